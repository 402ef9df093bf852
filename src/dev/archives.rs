//! Skills in archives that a user names.

use std::path::Path;

use knack_gateway::catalog::SkillSource;

use super::bare_source::bare;
use crate::sources::archive::unpack;
use crate::sources::outermost;

/// Ends of the names of files that are archives.
const ARCHIVES: [&str; 4] = [".zip", ".tar.gz", ".tgz", ".tar"];

/// The name of an archive's file without its ending; `None`: it is none.
pub fn archive_stem(name: &str) -> Option<&str> {
    ARCHIVES.iter().find_map(|end| name.strip_suffix(end))
}

pub(super) fn is_archive(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| archive_stem(name).is_some())
}

/// Folders that an error names.
const TOLD_MAX: usize = 5;

/// The skill of an archive that holds one.
pub fn archived_skill(origin: &str, stem: &str, bytes: &[u8]) -> Result<SkillSource, String> {
    let mut skills = archived_skills(origin, stem, bytes)?;
    if skills.len() > 1 {
        let names = skills.iter().take(TOLD_MAX).map(|skill| skill.id.name.as_str());
        return Err(format!(
            "the archive holds {} skills ({}{}), where one is expected; download it and name the file, or unpack it and name one folder",
            skills.len(),
            names.collect::<Vec<_>>().join(", "),
            if skills.len() > TOLD_MAX { ", ..." } else { "" }
        ));
    }
    skills.pop().ok_or_else(|| "the archive holds no skill".to_owned())
}

/// Every skill of an archive, named as the folder that holds its SKILL.md, or `stem` where that is at the root or nowhere.
pub(super) fn archived_skills(origin: &str, stem: &str, bytes: &[u8]) -> Result<Vec<SkillSource>, String> {
    let files = unpack(bytes).map_err(|error| error.message)?;
    let folders = outermost(&files);
    if folders.iter().all(String::is_empty) {
        return Ok(vec![bare(stem.to_owned(), origin.to_owned(), files)]);
    }
    let skill = |folder: &String| {
        let before = format!("{folder}/");
        let inside = files.range(before.clone()..).map_while(|(path, file)| {
            let path = path.strip_prefix(&before)?;
            Some((path.to_owned(), file.clone()))
        });
        let name = folder.rsplit('/').next().unwrap_or_default();
        let origin = if folders.len() == 1 {
            origin.to_owned()
        } else {
            format!("{origin}/{folder}")
        };
        bare(name.to_owned(), origin, inside.collect())
    };
    Ok(folders.iter().map(skill).collect())
}
