//! What a revision declares of packages, in the form of a status: for the controller, which writes it, and for the hub, which
//! asks it of a revision that no status speaks of any more.

use knack_api::skill_status::PackagesStatus;
use knack_packages::environment::Input;
use knack_packages::{Declaration, Finding};

/// Most characters of a requirement in a status.
const REQUIREMENT_MAX: usize = 512;
/// Most characters of where packages are declared.
const SOURCE_MAX: usize = 256;
/// Most characters of why a declaration cannot be used.
const REFUSED_MAX: usize = 1024;

/// What status says of the packages that a skill declares; `None` if it declares none.
pub fn declared_packages(declared: &Declaration) -> Option<PackagesStatus> {
    if !declared.declares_python() && !declared.is_refused() {
        return None;
    }
    Some(packages_status(declared))
}

/// The same of any declaration.
pub(super) fn packages_status(declared: &Declaration) -> PackagesStatus {
    let lines: Vec<String> = match &declared.lock {
        Some(lock) => lock
            .packages()
            .iter()
            .map(|(name, version)| format!("{name}=={version}"))
            .collect(),
        None => declared.python.iter().map(ToString::to_string).collect(),
    };
    let lines = lines.iter().take(knack_packages::MAX_PACKAGES);
    PackagesStatus {
        source: cut(&declared.source.shown(), SOURCE_MAX),
        locked: declared.lock.is_some(),
        digest: (!declared.is_refused()).then(|| Input::of(declared).digest()),
        python: lines.map(|line| cut(line, REQUIREMENT_MAX)).collect(),
        refused: declared
            .findings
            .iter()
            .find(|finding| finding.is_error())
            .map(|finding| cut(&Finding::to_string(finding), REFUSED_MAX)),
    }
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max - 3).chain("...".chars()).collect(),
    }
}
