//! The skill's folder inside a source.

use super::{Cause, Files, SourceError};

/// The files below `path`, relative to it; without a path, those beside the SKILL.md at the root, else beside the only one.
pub fn below(files: Files, path: Option<&str>) -> Result<Files, SourceError> {
    let prefix = match path {
        Some(path) => format!("{}/", path.trim_matches('/')),
        None => match folders(&files).as_slice() {
            [] => return Ok(files),
            // Others are files of the skill at the root.
            folders if folders.iter().any(String::is_empty) => return Ok(files),
            [folder] => folder.clone(),
            several => {
                let named: Vec<_> = several.iter().take(5).map(|folder| shown(folder)).collect();
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

/// The name of the only folder that holds a SKILL.md; `None` if that is the root, or there are several or none.
pub fn folder_name(files: &Files) -> Option<&str> {
    let folders = files.keys().filter_map(|path| path.strip_suffix("SKILL.md"));
    let mut documents = folders.filter(|folder| folder.is_empty() || folder.ends_with('/'));
    let folder = documents.next().filter(|_| documents.next().is_none())?;
    folder.strip_suffix('/')?.rsplit('/').next()
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

fn shown(folder: &str) -> &str {
    if folder.is_empty() {
        "."
    } else {
        folder.trim_end_matches('/')
    }
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
    fn the_folder_has_a_name() {
        for (paths, expected) in [
            (vec!["a/b/SKILL.md", "a/README"], Some("b")),
            (vec!["SKILL.md", "a"], None),
            (vec!["x/SKILL.md", "y/SKILL.md"], None),
            (vec!["x/MY-SKILL.md"], None),
            (vec!["x/._SKILL.md", "x/SKILL.md"], Some("x")),
        ] {
            assert_eq!(folder_name(&files(&paths)), expected, "{paths:?}");
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
