//! The skill's folder inside a source.

use super::{Cause, Files, SourceError};

/// The files below `path`, relative to it; without a path, those beside the SKILL.md at the root, else beside the only one that is in
/// the folder of no other.
pub fn below(files: Files, path: Option<&str>) -> Result<Files, SourceError> {
    let prefix = match path {
        Some(path) => format!("{}/", path.trim_matches('/')),
        None => match outermost(&files).as_slice() {
            [] => return Ok(files),
            // Others are files of the skill at the root.
            [root] if root.is_empty() => return Ok(files),
            [folder] => format!("{folder}/"),
            several => {
                let named: Vec<_> = several.iter().take(5).map(String::as_str).collect();
                return Err(SourceError::new(
                    Cause::Ambiguous,
                    format!(
                        "spec.source: several SKILL.md files ({}{}); select one with spec.source.path",
                        named.join(", "),
                        if several.len() > 5 { ", ..." } else { "" }
                    ),
                ));
            }
        },
    };
    if prefix.is_empty() || prefix == "/" {
        return Ok(files);
    }
    let total = files.len();
    let inside: Files = files
        .into_iter()
        .filter_map(|(name, file)| Some((name.strip_prefix(&prefix)?.to_owned(), file)))
        .collect();
    if inside.is_empty() {
        return Err(SourceError::new(
            Cause::NotFound,
            format!(
                "spec.source.path: no file below {:?}; the source has {total} files",
                prefix.trim_end_matches('/')
            ),
        ));
    }
    Ok(inside)
}

/// The folders that are a skill each, as a search of the unpacked files finds them: those with a SKILL.md that are in no other one.
pub fn outermost(files: &Files) -> Vec<String> {
    let folders = folders(files);
    let is_inside = |folder: &str| {
        folders
            .iter()
            .any(|other| other != folder && folder.starts_with(&**other))
    };
    let outer = folders.iter().filter(|folder| !is_inside(folder));
    outer.map(|folder| folder.trim_end_matches('/').to_owned()).collect()
}

/// Folders that hold a SKILL.md, with a trailing `/`; the root is empty.
fn folders(files: &Files) -> Vec<String> {
    files
        .keys()
        .filter_map(|name| name.strip_suffix("SKILL.md"))
        .filter(|folder| folder.is_empty() || folder.ends_with('/'))
        .map(ToOwned::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillFile;

    use super::*;

    fn files(paths: &[&str]) -> Files {
        let file = SkillFile {
            bytes: b"x".as_slice().into(),
            executable: false,
        };
        paths.iter().map(|path| ((*path).to_owned(), file.clone())).collect()
    }

    #[test]
    fn folders_of_an_archive_are_a_skill_each_unless_another_one_has_them() {
        for (paths, expected) in [
            (vec!["a/SKILL.md", "a/b/SKILL.md", "ab/SKILL.md", "c"], vec!["a", "ab"]),
            (vec!["x/a/SKILL.md", "x/b/SKILL.md"], vec!["x/a", "x/b"]),
            (vec!["SKILL.md", "a/SKILL.md"], vec![""]),
            (vec!["a/README", "x/MY-SKILL.md"], vec![]),
            (vec!["x/._SKILL.md", "x/SKILL.md"], vec!["x"]),
        ] {
            assert_eq!(outermost(&files(&paths)), expected, "{paths:?}");
        }
    }

    #[test]
    fn the_folder_is_found() {
        for (paths, path, expected) in [
            (vec!["SKILL.md", "a"], None, Ok(vec!["SKILL.md", "a"])),
            (vec!["x/SKILL.md", "x/a", "README"], None, Ok(vec!["SKILL.md", "a"])),
            (vec!["x/SKILL.md", "y/SKILL.md"], Some("y"), Ok(vec!["SKILL.md"])),
            (vec!["x/SKILL.md", "y/SKILL.md"], Some("/y/"), Ok(vec!["SKILL.md"])),
            (vec!["x/SKILL.md", "y/SKILL.md"], None, Err(Cause::Ambiguous)),
            (vec!["SKILL.md", "y/SKILL.md"], None, Ok(vec!["SKILL.md", "y/SKILL.md"])),
            (
                vec!["a/SKILL.md", "a/b/SKILL.md"],
                None,
                Ok(vec!["SKILL.md", "b/SKILL.md"]),
            ),
            (vec!["SKILL.md"], Some("z"), Err(Cause::NotFound)),
            (vec!["a"], None, Ok(vec!["a"])),
        ] {
            let got = below(files(&paths), path);
            match expected {
                Ok(names) => assert_eq!(got.unwrap().into_keys().collect::<Vec<_>>(), names, "{paths:?}"),
                Err(cause) => assert_eq!(got.unwrap_err().cause, cause, "{paths:?}"),
            }
        }
    }
}
