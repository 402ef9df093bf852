//! Which folders of a skills directory HUSK serves, and under which routes. Skills of the product have no routes of their own.

use std::collections::BTreeMap;

use knack_skill::finding::Finding;
use knack_skill::problem::ProblemKind;
use knack_skill::{husk, names};

/// Routes of the server itself.
const RESERVED: [&str; 4] = ["/", "/healthz", "/skills", "/openapi.json"];
const DOCUMENT: &str = "SKILL.md";

/// The content of a skills directory under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FolderEntry {
    /// A file.
    File,
    /// A folder with the text of its SKILL.md, if it has one of exactly that name.
    Folder(Option<String>),
}

/// A skill that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderSkill {
    /// Folder name; empty for the directory itself.
    pub(crate) folder: String,
    /// Its path.
    pub(crate) route: String,
}

/// Loads a skills directory in order of folder names. A SKILL.md in the directory itself makes it the only skill; a
/// broken or repeated skill is reported and skipped, the others are served.
pub(crate) fn load_folder(
    root: Option<&str>,
    entries: &BTreeMap<String, FolderEntry>,
) -> (Vec<FolderSkill>, Vec<Finding>) {
    let documents: Vec<(&str, &str)> = match root {
        Some(document) => vec![("", document)],
        None => entries
            .iter()
            .filter_map(|(name, entry)| match entry {
                FolderEntry::Folder(Some(document)) => Some((name.as_str(), document.as_str())),
                FolderEntry::Folder(None) | FolderEntry::File => None,
            })
            .collect(),
    };
    let (mut skills, mut findings): (Vec<FolderSkill>, Vec<Finding>) = (Vec::new(), Vec::new());
    for (folder, document) in documents {
        match load_one(folder, document) {
            Ok(skill) if skills.iter().any(|other| other.route == skill.route) => {
                let message = format!("{folder}/{DOCUMENT}: duplicate skill slug, {} is taken", skill.route);
                findings.push(Finding::refused(
                    ProblemKind::KeyRepeated,
                    "name",
                    message,
                    "rename one of the two",
                ));
            }
            Ok(skill) => skills.push(skill),
            Err(finding) => findings.push(finding),
        }
    }
    (skills, findings)
}

/// Whether a route is free for a skill.
pub(crate) fn check_route(route: &str) -> Result<(), Finding> {
    if !RESERVED.contains(&route) {
        return Ok(());
    }
    let message = format!("route {route} collides with a built-in endpoint");
    Err(Finding::refused(
        ProblemKind::FieldInvalid,
        "route",
        message,
        "choose another route",
    ))
}

fn load_one(folder: &str, document: &str) -> Result<FolderSkill, Finding> {
    let (members, _) = husk::frontmatter(document)?;
    let (manifest, findings) = husk::read(&members, &names::husk_slug(folder));
    if let Some(finding) = findings.into_iter().find(Finding::is_refused) {
        return Err(finding);
    }
    check_route(&manifest.route)?;
    Ok(FolderSkill {
        folder: folder.to_owned(),
        route: manifest.route,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_or_repeated_skill_never_stops_the_rest() {
        let document = |name: &str| FolderEntry::Folder(Some(format!("---\nname: {name}\ndescription: d\n---\nb")));
        let entries = BTreeMap::from([
            ("a".to_owned(), document("Same")),
            ("b".to_owned(), FolderEntry::Folder(Some("broken".to_owned()))),
            ("c".to_owned(), document("same")),
            ("d".to_owned(), document("Other")),
            ("e".to_owned(), FolderEntry::File),
            ("f".to_owned(), FolderEntry::Folder(None)),
        ]);
        let (skills, findings) = load_folder(None, &entries);
        let folders: Vec<_> = skills.iter().map(|skill| skill.folder.as_str()).collect();
        assert_eq!((folders.as_slice(), findings.len()), (["a", "d"].as_slice(), 2));
    }

    #[test]
    fn reserved_routes_are_refused() {
        assert!(check_route("/skills").is_err());
        assert!(check_route("/skills/x").is_ok());
    }
}
