//! The standard environment for skills that declare nothing, where a runtime gives it.

use crate::declaration::{Declaration, Source};
use crate::rules::{RuleViolation, Rules};
use crate::standard;

/// The declaration of such a skill, equal for all of them. `None` never happens, as for its lock.
pub fn standard_environment() -> Option<Declaration> {
    Some(Declaration {
        source: Source::OfRuntime,
        lock: Some(standard::lock()?.clone()),
        ..Declaration::default()
    })
}

/// The declaration of a skill under a runtime's rules: its own, else the standard environment if the rules give it. What is inferred
/// from imports is dropped where the rules forbid it.
pub fn applied(rules: &Rules, declared: Declaration) -> Declaration {
    // Nothing is declared, so nothing is refused: the skill is served without what its imports ask for.
    if declared.source == Source::Inferred && forbidden(rules, &declared).is_some() {
        return Declaration {
            source: Source::Nothing,
            lock: None,
            ..declared
        };
    }
    if !rules.gives_standard() || declared.is_refused() || declared.wants_environment() {
        return declared;
    }
    match standard_environment() {
        Some(standard) => Declaration {
            imports: declared.imports,
            findings: declared.findings,
            ..standard
        },
        None => declared,
    }
}

/// Why a skill may not have the packages of its declaration under a runtime's rules; `None`: it may, or nothing would be installed.
pub fn forbidden(rules: &Rules, declared: &Declaration) -> Option<RuleViolation> {
    if !declared.has_packages() {
        return None;
    }
    let is_standard = matches!(declared.source, Source::Standard | Source::Inferred | Source::OfRuntime);
    rules.forbidden(is_standard && !declared.has_node_packages())
}

/// The rule that a declaration breaks, for a version of Python or for any.
pub fn broken(rules: &Rules, declared: &Declaration, python: Option<&str>) -> Option<RuleViolation> {
    let of_versions = || rules.violation(declared.versions()?, python);
    let of_node = || declared.open_node.as_ref().and_then(|_| rules.unlocked_node());
    forbidden(rules, declared).or_else(of_versions).or_else(of_node)
}

#[cfg(test)]
mod tests {
    use knack_skill::model::AskedPackages;
    use serde_json::json;

    use super::*;
    use crate::State;
    use crate::declare::declare;
    use crate::fixture::files;
    use crate::lock::LOCK_FILE;
    use crate::rules::Allowed;

    #[test]
    fn a_skill_without_declarations_has_it_and_no_other_skill() {
        let rules = Rules::default().with_standard(true);
        let lock = format!("six==1 --hash=sha256:{}\n", "a".repeat(64));
        let front = "---\nname: x\npackages: {python: [pillow]}\n---\n";
        for (list, spec, source) in [
            (&[("SKILL.md", "x")][..], None, Source::OfRuntime),
            (&[("SKILL.md", "x"), ("a.py", "import mcp")], None, Source::OfRuntime),
            (&[("SKILL.md", "x"), ("a.py", "import numpy")], None, Source::Inferred),
            (&[("SKILL.md", "x")], Some(AskedPackages::default()), Source::Spec),
            (&[("SKILL.md", front)], None, Source::Frontmatter),
            (
                &[("SKILL.md", "x"), ("requirements.lock", &lock)],
                None,
                Source::Lock(LOCK_FILE),
            ),
        ] {
            let declared = declare(&files(list), spec.as_ref());
            let had = applied(&rules, declared.clone());
            assert_eq!(had.source, source, "{list:?}");
            // It may be missing, as before.
            assert_eq!(had.is_declared(), declared.is_declared(), "{list:?}");
            assert_eq!(applied(&Rules::default(), declared.clone()), declared);
            let none = applied(&Rules::default().allowing(Allowed::Nothing), declared.clone());
            let is_dropped = declared.source == Source::Inferred;
            assert_eq!(
                none.wants_environment(),
                declared.wants_environment() && !is_dropped,
                "{list:?}"
            );
        }
    }

    #[test]
    fn packages_are_those_that_the_runtime_allows() {
        let integrity = format!("sha512-{}==", "A".repeat(86));
        let package = json!({"version": "1.0.0", "resolved": "https://r.example/c.tgz", "integrity": integrity});
        let lock =
            json!({"lockfileVersion": 3, "packages": {"": {"dependencies": {"c": "1"}}, "node_modules/c": package}});
        let lock = lock.to_string();
        let node = ("package-lock.json", lock.as_str());
        let six = format!("six==1 --hash=sha256:{}\n", "a".repeat(64));
        let six = (LOCK_FILE, six.as_str());
        let lists = [
            &[("SKILL.md", "x")][..],
            &[("requirements.txt", "# none\n")],
            &[("SKILL.md", "---\nname: x\npackages: {standard: true}\n---\n")],
            &[("a.py", "import numpy")],
            &[("a.py", "import numpy"), node],
            &[("requirements.txt", "six")],
            &[("SKILL.md", "x"), node],
            // A lock is installed, whatever is declared beside it.
            &[("requirements.txt", "# none\n"), six],
            &[("SKILL.md", "---\nname: x\npackages: {python: []}\n---\n"), six],
        ];
        for (allowed, expected) in [
            (Allowed::Declared, [false; 9]),
            (
                Allowed::Standard,
                [false, false, false, false, true, true, true, true, true],
            ),
            (
                Allowed::Nothing,
                [false, false, true, true, true, true, true, true, true],
            ),
        ] {
            let rules = Rules::default().allowing(allowed);
            let found = lists.map(|list| super::forbidden(&rules, &declare(&files(list), None)).is_some());
            assert_eq!(found, expected, "{allowed:?}");
        }
        assert_eq!(
            Rules::default()
                .allowing(Allowed::Nothing)
                .forbidden(true)
                .unwrap()
                .state(),
            State::Refused
        );
    }
}
