//! What a revision declares of packages, in the form of a status: for the controller, which writes it, and for the hub, which
//! asks it of a revision that no status speaks of any more.

use std::collections::BTreeSet;

use knack_api::skill_status::PackagesStatus;
use knack_packages::environment::Input;
use knack_packages::{Declaration, Finding, NodeDeclaration};

use crate::shortened::cut;

/// Most characters of a requirement in a status. Only a marker is cut: what stands before it is shorter (`Requirement::parse`).
const REQUIREMENT_MAX: usize = 512;
/// Most characters of where packages are declared.
const SOURCE_MAX: usize = 256;
/// Most characters of why a declaration cannot be used.
const REFUSED_MAX: usize = 1024;

/// What status says of the packages that a skill declares; `None` if it declares none.
pub fn declared_packages(declared: &Declaration) -> Option<PackagesStatus> {
    if !declared.is_declared() && !declared.is_refused() {
        return None;
    }
    Some(packages_status(declared))
}

/// What status says of the packages of any declaration, also of one without packages.
pub(super) fn packages_status(declared: &Declaration) -> PackagesStatus {
    let lines: Vec<String> = match &declared.lock {
        Some(lock) => lock.shown(),
        None => declared.python.iter().map(ToString::to_string).collect(),
    };
    let listed = |lines: Vec<String>| -> Vec<String> {
        let lines = lines.iter().take(knack_packages::MAX_PACKAGES);
        lines.map(|line| cut(line, REQUIREMENT_MAX)).collect()
    };
    let input = Input::of(declared);
    PackagesStatus {
        source: cut(&declared.shown_source(), SOURCE_MAX),
        locked: input.is_locked() && declared.open_node.is_none(),
        digest: (!declared.is_refused()).then(|| input.digest()),
        python: listed(lines),
        node: listed(match &declared.open_node {
            Some(open) => open.dependencies.iter().map(ToString::to_string).collect(),
            None => declared.node.as_ref().map(of_node).unwrap_or_default(),
        }),
        node_unlocked: declared.open_node.is_some(),
        refused: declared
            .findings
            .iter()
            .find(|finding| finding.is_error())
            .map(|finding| cut(&Finding::to_string(finding), REFUSED_MAX)),
    }
}

/// Each version of a package once, wherever it is declared.
fn of_node(declared: &NodeDeclaration) -> Vec<String> {
    let packages = declared.lock.packages().iter();
    let all: BTreeSet<String> = packages
        .map(|package| format!("{}@{}", package.name, package.version))
        .collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use knack_packages::stated;
    use knack_skill::model::SkillFile;

    use super::*;

    /// What other systems install of a lock is left out; of a package with a version for each Python, each has its marker.
    #[test]
    fn a_status_lists_what_a_lock_may_install_in_a_sandbox() {
        let status = packages_status(&knack_packages::given::standard_environment().unwrap());
        let of = |name: &str| -> Vec<&str> {
            let lines = status.python.iter().map(String::as_str);
            lines.filter(|line| line.split("==").next() == Some(name)).collect()
        };
        let is_marked = |line: &&&str| line.contains(" ; python_full_version ");
        assert_eq!(of("numpy").len(), of("numpy").iter().filter(is_marked).count());
        assert!(of("numpy").len() > 1, "{:?}", of("numpy"));
        assert!(
            of("cffi").len() == 1 && !of("cffi")[0].contains(';'),
            "{:?}",
            of("cffi")
        );
    }

    /// As many as the definition of a Skill allows; all of them decide about the digest.
    #[test]
    fn a_status_lists_each_package_of_node_once_and_not_without_end() {
        let lock = |count: usize| {
            let mut packages = serde_json::Map::new();
            for number in 0..count {
                let integrity = format!("sha512-{}==", "a".repeat(86));
                let entry = serde_json::json!({"version": "1.0.0", "integrity": integrity});
                packages.insert(format!("node_modules/p{number:03}"), entry.clone());
                packages.insert(format!("node_modules/p{number:03}/node_modules/p000"), entry);
            }
            let text = serde_json::json!({"lockfileVersion": 3, "packages": packages}).to_string();
            let file = SkillFile {
                bytes: text.into_bytes().into(),
                executable: false,
            };
            let declared = stated(&[("package-lock.json".to_owned(), file)].into(), None);
            declared_packages(&declared).unwrap()
        };
        let (few, many, more) = (lock(2), lock(220), lock(221));
        assert_eq!(few.node, ["p000@1.0.0", "p001@1.0.0"]);
        assert_eq!((few.source.as_str(), few.locked), ("package-lock.json", true));
        assert_eq!(many.node.len(), knack_packages::MAX_PACKAGES);
        assert_eq!(many.node, more.node);
        assert_ne!(many.digest, more.digest);
    }
}
