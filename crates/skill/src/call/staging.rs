//! Where files of a conversation are in a run: those that earlier runs wrote, and those that the user attached.

use std::collections::BTreeMap;

/// Folder of the user's files in the work directory; for a declared tool, of all files of the conversation.
pub const INPUTS: &str = "inputs";

/// Folder of the skills that a request attaches whole. They are files of the conversation: no catalog has them to mount.
pub const ATTACHED: &str = "attached";

/// Folder of the skills in the work directory, made by the runner.
pub const SKILLS: &str = "skills";

/// Whether a path is [`SKILLS`] or lies below it. Nothing else can be put there.
pub fn is_below_skills(path: &str) -> bool {
    path.split('/').next() == Some(SKILLS)
}

/// Whether a file may be put into a work directory.
///
/// Names that begin with a dot configure programs (`.npmrc`, `.bashrc`, `.local/lib/python3.11/site-packages`), so they are
/// never taken from one run to the next.
pub fn is_stageable(path: &str) -> bool {
    !path.split('/').any(|part| part.starts_with('.'))
}

/// Whether a path lies below [`INPUTS`].
pub fn is_below_inputs(path: &str) -> bool {
    path.strip_prefix(INPUTS)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|rest| !rest.is_empty())
}

/// Where the files of a conversation are for a declared tool: all of them below [`INPUTS`], where the tool can open
/// them and no interpreter finds them by itself. The user's keep their paths; a file of an earlier run whose path is
/// taken gets a number before its name.
pub fn below_inputs<T>(files: impl IntoIterator<Item = (String, T)>) -> BTreeMap<String, T> {
    let (mut placed, others): (BTreeMap<String, T>, BTreeMap<String, T>) =
        files.into_iter().partition(|(path, _)| is_below_inputs(path));
    for (path, file) in others {
        let (folder, name) = path
            .rsplit_once('/')
            .map_or((String::new(), path.as_str()), |(folder, name)| {
                (format!("{folder}/"), name)
            });
        let first = format!("{INPUTS}/{path}");
        // One more number than there are files: one of them is free, unless a folder has each of these names.
        let others = (2..placed.len() + 3).map(|number| format!("{INPUTS}/{folder}{number}-{name}"));
        let free = std::iter::once(first)
            .chain(others)
            .find(|place| !placed.keys().any(|taken| collide(place, taken)));
        if let Some(place) = free {
            placed.insert(place, file);
        }
    }
    placed
}

/// Whether two files cannot both be there: the same path, or one is a folder of the other.
pub fn collide(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    long.strip_prefix(short)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_with_a_dot_are_not_staged() {
        for path in ["a", "a/b.txt", "a.b/c", "inputs/x..y", "a-.b"] {
            assert!(is_stageable(path), "{path}");
        }
        for path in [".a", "a/.b", ".local/lib/x.py", "inputs/.npmrc", "..", "a/./b"] {
            assert!(!is_stageable(path), "{path}");
        }
    }

    #[test]
    fn the_folder_of_the_skills_is_known_by_its_first_part() {
        for (path, below) in [
            ("skills", true),
            ("skills/a/b", true),
            ("skillset/a", false),
            ("a/skills", false),
            ("inputs/skills", false),
        ] {
            assert_eq!(is_below_skills(path), below, "{path}");
        }
    }

    #[test]
    fn only_paths_behind_the_folder_are_below_it() {
        for (path, below) in [
            ("inputs/a", true),
            ("inputs", false),
            ("inputs/", false),
            ("inputsa/b", false),
            ("a/inputs/b", false),
        ] {
            assert_eq!(is_below_inputs(path), below, "{path}");
        }
    }

    #[test]
    fn a_tool_finds_every_file_below_inputs_and_the_users_keep_their_places() {
        let paths = ["inputs/data.csv", "data.csv", "out/a.txt", "x", "inputs/x/y", "inputs"];
        let placed = below_inputs(paths.map(|path| (path.to_owned(), path)));
        let placed: Vec<(&str, &str)> = placed.iter().map(|(place, from)| (place.as_str(), *from)).collect();
        assert_eq!(
            placed,
            [
                ("inputs/2-data.csv", "data.csv"),
                ("inputs/2-x", "x"),
                ("inputs/data.csv", "inputs/data.csv"),
                ("inputs/inputs", "inputs"),
                ("inputs/out/a.txt", "out/a.txt"),
                ("inputs/x/y", "inputs/x/y"),
            ]
        );
    }
}
