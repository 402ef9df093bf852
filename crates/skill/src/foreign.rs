//! Folders that tools make beside a skill's files, and that are no part of it. A folder of this machine is read without them. What
//! was reviewed or uploaded by its bytes keeps them, and they are named.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::SkillFile;
use crate::problem::{Problem, ProblemKind, Severity};

/// Packages of Node.
const NODE_MODULES: &str = "node_modules";
/// The usual name of a virtual environment of Python.
const ENVIRONMENT: &str = ".venv";
/// The file in a virtual environment, whatever the folder is called.
pub const ENVIRONMENT_MARK: &str = "pyvenv.cfg";

/// Names of such folders, wherever they are: version control, byte code, packages of a checkout.
pub const FOREIGN_FOLDERS: [&str; 6] = [".git", ".hg", ".svn", "__pycache__", NODE_MODULES, ENVIRONMENT];

/// Where the packages of such a folder are declared, as a clause: of one whose content an author may have meant to ship. `name`: of
/// the folder; a virtual environment may have any.
pub fn declared_instead(name: &str) -> Option<&'static str> {
    match name {
        NODE_MODULES => Some("list its packages in package.json and run knack skill lock"),
        ".git" | ".hg" | ".svn" | "__pycache__" => None,
        _ => Some("list its packages in requirements.txt"),
    }
}

/// All such folders of one name in a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignFolders {
    /// The name.
    name: String,
    /// The path of the first.
    first: String,
    files: usize,
    bytes: usize,
}

impl ForeignFolders {
    /// A warning about them.
    pub(crate) fn problem(&self) -> Problem {
        let message = format!(
            "{} files ({} bytes) are in folders with the name {}, which are no part of a skill; they are kept",
            self.files, self.bytes, self.name
        );
        let help = match declared_instead(&self.name) {
            Some(instead) => format!("remove them; {instead}"),
            None => "remove them".to_owned(),
        };
        Problem::new(Severity::Warning, ProblemKind::FolderForeign, message, help).in_file(self.first.as_str())
    }

    /// What to do about a skill that is too large: one clause.
    pub(crate) fn removal(&self) -> String {
        format!(
            "remove {}, which is no part of a skill ({} files, {} bytes)",
            self.first, self.files, self.bytes
        )
    }
}

/// The foreign folders among a skill's files, those with the most bytes first.
pub(crate) fn of_files(files: &BTreeMap<String, SkillFile>) -> Vec<ForeignFolders> {
    let mark = format!("/{ENVIRONMENT_MARK}");
    let environments: BTreeSet<&str> = files.keys().filter_map(|path| path.strip_suffix(&mark)).collect();
    let mut found: BTreeMap<&str, ForeignFolders> = BTreeMap::new();
    for (path, file) in files {
        let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
        let outermost = folders.into_iter().find_map(|folder| {
            let name = folder.rsplit('/').next().unwrap_or(folder);
            let is_foreign = FOREIGN_FOLDERS.contains(&name) || environments.contains(folder);
            is_foreign.then_some((folder, name))
        });
        if let Some((folder, name)) = outermost {
            let entry = found.entry(name).or_insert_with(|| ForeignFolders {
                name: name.to_owned(),
                first: folder.to_owned(),
                files: 0,
                bytes: 0,
            });
            entry.files += 1;
            entry.bytes += file.bytes.len();
        }
    }
    let mut found: Vec<ForeignFolders> = found.into_values().collect();
    found.sort_by_key(|folders| std::cmp::Reverse((folders.bytes, folders.files)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn files(list: &[(&str, usize)]) -> BTreeMap<String, SkillFile> {
        let file = |bytes: usize| SkillFile {
            bytes: vec![b'x'; bytes].into(),
            executable: false,
        };
        list.iter()
            .map(|(path, bytes)| ((*path).to_owned(), file(*bytes)))
            .collect()
    }

    #[test]
    fn each_name_is_reported_once_with_what_to_do() {
        let list = [
            ("SKILL.md", 1),
            ("a/__pycache__/a.pyc", 2),
            ("b/__pycache__/b.pyc", 3),
            ("env/pyvenv.cfg", 4),
            ("env/lib/__pycache__/x.pyc", 5),
            ("node_modules/x/index.js", 10),
            // A file of the name, and a folder without the mark.
            ("docs/.git", 1),
            ("venv/notes.md", 1),
            ("pyvenv.cfg", 1),
        ];
        let told: Vec<String> = tree::check(&files(&list)).iter().map(ToString::to_string).collect();
        let kept = "which are no part of a skill; they are kept";
        assert_eq!(
            told,
            [
                format!(
                    "node_modules: 1 files (10 bytes) are in folders with the name node_modules, {kept} (remove them; list its \
                     packages in package.json and run knack skill lock)"
                ),
                format!(
                    "env: 2 files (9 bytes) are in folders with the name env, {kept} (remove them; list its packages in \
                     requirements.txt)"
                ),
                format!(
                    "a/__pycache__: 2 files (5 bytes) are in folders with the name __pycache__, {kept} (remove them)"
                ),
            ]
        );
    }

    #[test]
    fn a_skill_that_is_too_large_by_them_says_which_to_remove() {
        let mut many = files(&[("SKILL.md", 1), ("big.bin", tree::MAX_FOLDER_BYTES / 2)]);
        for number in 0..tree::MAX_FILES {
            many.extend(files(&[(&format!(".venv/lib/{number}.py"), 3_000)]));
        }
        let problems = tree::check(&many);
        let removal = "remove .venv, which is no part of a skill (2000 files, 6000000 bytes)";
        for kind in [ProblemKind::TooManyFiles, ProblemKind::FolderTooLarge] {
            let problem = problems.iter().find(|problem| problem.kind == kind).unwrap();
            assert!(problem.is_error() && problem.help.starts_with(removal), "{problem}");
        }
    }
}
