//! Which folders of a skills directory HUSK serves, and under which routes. Skills of the product have no routes of their own.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::finding::Finding;
use knack_skill::problem::ProblemKind;

use super::husk_manifest;

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
    let mut taken = Taken::default();
    for (folder, document) in documents {
        match load_one(folder, document).and_then(|skill| taken.take(skill)) {
            Ok(skill) => skills.push(skill),
            Err(finding) => findings.push(finding),
        }
    }
    (skills, findings)
}

/// What skills before this one have.
#[derive(Debug, Default)]
struct Taken {
    slugs: BTreeSet<String>,
    /// Each skill answers at its route, and at the address of its card, `/skills/<slug>`.
    paths: BTreeSet<String>,
}

impl Taken {
    /// Notes what a skill has. Error: another has some of it.
    fn take(&mut self, Loaded { skill, slug }: Loaded) -> Result<FolderSkill, Finding> {
        if self.slugs.contains(&slug) {
            return Err(repeated(
                &skill.folder,
                "name",
                &format!("duplicate skill slug {slug:?}"),
            ));
        }
        let paths = [skill.route.clone(), format!("/skills/{slug}")];
        if let Some(path) = paths.iter().find(|path| self.paths.contains(*path)) {
            return Err(repeated(
                &skill.folder,
                "route",
                &format!("duplicate skill route {path:?}"),
            ));
        }
        self.slugs.insert(slug);
        self.paths.extend(paths);
        Ok(skill)
    }
}

fn repeated(folder: &str, field: &str, what: &str) -> Finding {
    let message = format!("{folder}/{DOCUMENT}: {what}, which a skill before it has");
    Finding::refused(ProblemKind::KeyRepeated, field, message, "change one of the two")
}

/// Whether a route is free for a skill.
pub(crate) fn check_route(route: &str) -> Result<(), Finding> {
    let route = husk_manifest::normalized_route(route);
    if !RESERVED.contains(&route.as_str()) {
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

/// A skill by itself.
struct Loaded {
    skill: FolderSkill,
    slug: String,
}

fn load_one(folder: &str, document: &str) -> Result<Loaded, Finding> {
    let (members, _) = husk_manifest::frontmatter(document)?;
    let folder_slug = husk_manifest::slug(folder);
    let manifest = husk_manifest::read(&members, &folder_slug)?;
    check_route(&manifest.route)?;
    let slug = husk_manifest::slug_of(&manifest.name, &folder_slug);
    let skill = FolderSkill {
        folder: folder.to_owned(),
        route: manifest.route,
    };
    Ok(Loaded { skill, slug })
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
    fn a_skill_whose_slug_or_path_another_has_is_refused() {
        let document = |members: &str| FolderEntry::Folder(Some(format!("---\n{members}\ndescription: d\n---\nb")));
        for (first, second, expected) in [
            (
                "name: Same\nroute: /x",
                "name: same\nroute: /y",
                Some("duplicate skill slug"),
            ),
            (
                "name: A\nroute: /x",
                "name: B\nroute: x/",
                Some("duplicate skill route"),
            ),
            ("name: A", "name: B\nroute: /skills/a", Some("duplicate skill route")),
            (
                "name: A\nroute: /skills/b",
                "name: B\nroute: /z",
                Some("duplicate skill route"),
            ),
            (
                "name: A\nroute: /healthz/",
                "name: B",
                Some("collides with a built-in endpoint"),
            ),
            (
                "name: A\nroute: openapi.json",
                "name: B",
                Some("collides with a built-in endpoint"),
            ),
            ("name: A\nroute: /x", "name: B\nroute: /y", None),
        ] {
            let entries = BTreeMap::from([("a".to_owned(), document(first)), ("b".to_owned(), document(second))]);
            let (skills, findings) = load_folder(None, &entries);
            assert_eq!(skills.len(), if expected.is_some() { 1 } else { 2 }, "{second}");
            let told = findings.first().map(|finding| finding.message.as_str());
            assert_eq!(told.is_some(), expected.is_some(), "{second}");
            assert!(
                told.unwrap_or_default().contains(expected.unwrap_or_default()),
                "{told:?}"
            );
        }
    }

    #[test]
    fn reserved_routes_are_refused_however_they_are_written() {
        for route in [
            "/",
            "//",
            "",
            "/skills",
            "/skills/",
            "skills//",
            "/healthz/",
            "healthz",
            "/openapi.json/",
        ] {
            assert!(check_route(route).is_err(), "{route}");
        }
        assert!(check_route("/skills/x").is_ok());
    }
}
