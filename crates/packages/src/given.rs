//! The standard environment for skills that declare nothing, where a runtime gives it.

use crate::declare::{Declaration, Source};
use crate::rules::Rules;
use crate::standard;

/// The declaration of such a skill, equal for all of them. `None` never happens, as for its lock.
pub fn standard_environment() -> Option<Declaration> {
    Some(Declaration {
        source: Source::OfRuntime,
        lock: Some(standard::lock()?.clone()),
        ..Declaration::default()
    })
}

/// The declaration of a skill under a runtime's rules: its own, else the standard environment if the rules give it.
pub fn applied(rules: &Rules, declared: Declaration) -> Declaration {
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

#[cfg(test)]
mod tests {
    use knack_skill::model::AskedPackages;

    use super::*;
    use crate::declare::declare;
    use crate::fixture::files;

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
            (&[("SKILL.md", "x"), ("requirements.lock", &lock)], None, Source::Lock),
        ] {
            let declared = declare(&files(list), spec.as_ref());
            let had = applied(&rules, declared.clone());
            assert_eq!(had.source, source, "{list:?}");
            // It may be missing, as before.
            assert_eq!(had.is_declared(), declared.is_declared(), "{list:?}");
            assert_eq!(applied(&Rules::default(), declared.clone()), declared);
        }
    }
}
