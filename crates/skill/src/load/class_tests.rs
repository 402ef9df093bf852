//! Every class of problem, with a folder that has it: reported with what to do, and never a panic.

use std::collections::BTreeMap;

use super::{LoadInput, LoadResult, SpecOverrides, load};
use crate::model::{SkillFile, SkillRef};
use crate::problem::{ProblemKind, Profile};

/// A folder with the problem. Without an arm here a new class does not compile.
fn example(kind: ProblemKind) -> (Vec<(String, Vec<u8>)>, SpecOverrides) {
    use ProblemKind as P;
    let mut overrides = SpecOverrides::default();
    let good = "---\nname: demo\ndescription: d\n---\nB\n";
    let with = |members: &str| format!("---\nname: demo\ndescription: d\n{members}\n---\nB\n");
    let named = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nB\n");
    let described = |text: &str| format!("---\nname: demo\ndescription: {text}\n---\nB\n");
    let beside = |path: &str, bytes: usize| (path.to_owned(), vec![b'x'; bytes]);
    let mut more = Vec::new();
    let document: Vec<u8> = match kind {
        P::NoSkillMd => return (vec![beside("README.md", 1)], overrides),
        P::NotUtf8 => b"---\nname: \xff\n---\n".to_vec(),
        P::FileTooLarge => vec![b'x'; (1 << 20) + 1],
        P::FolderTooLarge => {
            more.push(beside("big.bin", 8 << 20));
            good.into()
        }
        P::FolderForeign => {
            more.push((".venv/x".to_owned(), b"x".to_vec()));
            good.into()
        }
        P::TooManyFiles => {
            more.extend((0..2_000).map(|number| beside(&format!("f{number}"), 1)));
            good.into()
        }
        P::PathInvalid => {
            more.push(beside("../x", 1));
            good.into()
        }
        P::PathConflict => {
            more.extend([beside("a", 1), beside("a/b", 1)]);
            good.into()
        }
        P::FrontmatterMissing => "Just text".into(),
        P::FrontmatterUnclosed => "---\nname: demo\n".into(),
        P::FrontmatterNotMapping => "---\n- a\n---\nB".into(),
        P::YamlInvalid => "---\na: [b\n---\nB".into(),
        P::KeyRepeated => with("description: e").into(),
        P::NameMissing => "---\ndescription: d\n---\nB".into(),
        P::NameEmpty => named("\"\"").into(),
        P::NameTooLong => named(&"n".repeat(65)).into(),
        P::NameUppercase => named("Demo").into(),
        P::NameInvalidChars => named("de mo").into(),
        P::NameEdgeHyphen => named("demo-").into(),
        P::NameDoubleHyphen => named("de--mo").into(),
        P::NameMismatch => named("other").into(),
        P::DescriptionMissing => "---\nname: demo\n---\nB".into(),
        P::DescriptionEmpty => described("\"\"").into(),
        P::DescriptionTooLong => described(&"d".repeat(1_025)).into(),
        P::CompatibilityTooLong => with(&format!("compatibility: {}", "c".repeat(501))).into(),
        P::CompatibilityNotText => with("compatibility: [a]").into(),
        P::UnexpectedFields | P::FieldUnknown => with("foo: 1").into(),
        P::FieldInvalid => with("activation: sometimes").into(),
        P::FieldHasNoEffect => with("tools: [Bash, Read]").into(),
        P::InputInvalid => with("inputs:\n  - label: x").into(),
        P::InputRepeated => with("inputs:\n  - {name: a, label: x}\n  - {name: a, label: y}").into(),
        P::InputUnfilled => with("activation: Always\ninputs:\n  - {name: a, required: true}").into(),
        P::PlaceholderUndeclared => with("inputs:\n  - {name: a, label: x}")
            .replace("\nB\n", "\n{{b}}\n")
            .into(),
        P::PlaceholderLiteral => good.replace("B\n", "$ARGUMENTS\n").into(),
        P::ToolInvalid => with("tools:\n  - name: t").into(),
        P::ToolRepeated => {
            let tool = "{name: t, description: d, command: [python3, t.py]}";
            with(&format!("tools:\n  - {tool}\n  - {tool}")).into()
        }
        P::ToolFileMissing => with("tools:\n  - {name: t, description: d, command: [scripts/t.py]}").into(),
        P::ToolFileNotProgram => {
            more.push(("scripts/t.py".to_owned(), b"print(1)\n".to_vec()));
            with("tools:\n  - {name: t, description: d, command: [scripts/t.py]}").into()
        }
        P::VersionInvalid => with("version: \"1.0\"").into(),
        P::VersionMismatch => {
            overrides.version = Some("2.0.0".to_owned());
            with("version: 1.0.0").into()
        }
        P::BodyEmpty => "---\nname: demo\ndescription: d\n---\n".into(),
    };
    more.push(("SKILL.md".to_owned(), document));
    (more, overrides)
}

fn judge(kind: ProblemKind, profile: Profile) -> LoadResult {
    let (entries, overrides) = example(kind);
    let file = |bytes: Vec<u8>| SkillFile {
        bytes: bytes.into(),
        executable: false,
    };
    let files: BTreeMap<String, SkillFile> = entries.into_iter().map(|(path, bytes)| (path, file(bytes))).collect();
    load(LoadInput {
        id: SkillRef {
            namespace: "default".to_owned(),
            name: "demo".to_owned(),
        },
        files,
        overrides,
        profile,
    })
}

#[test]
fn every_class_says_what_to_do_and_only_errors_keep_a_skill_from_service() {
    for kind in ProblemKind::ALL {
        let mut reported = false;
        for profile in [Profile::Load, Profile::Strict] {
            let loaded = judge(kind, profile);
            let refused = loaded.problems.iter().any(crate::problem::Problem::is_error);
            assert_eq!(
                loaded.skill.is_none(),
                refused,
                "{kind:?} {profile:?}: {:?}",
                loaded.problems
            );
            for problem in loaded.problems.iter().filter(|problem| problem.kind == kind) {
                reported = true;
                assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{problem:?}");
            }
        }
        assert!(reported, "{kind:?}: {:?}", judge(kind, Profile::Strict).problems);
    }
}

/// The specification leaves `metadata` to its authors; its own example has version "1.0".
#[test]
fn only_a_version_outside_of_metadata_must_be_one() {
    for (written, is_refused) in [
        ("metadata:\n  author: example-org\n  version: \"1.0\"", false),
        ("metadata:\n  version: 2", false),
        ("metadata:\n  version: v1.0.0", false),
        ("metadata:\n  version: latest", false),
        ("version: \"1.0\"", true),
    ] {
        let text = format!("---\nname: demo\ndescription: d\n{written}\n---\nx\n");
        let strict = super::tests::load_text(&text, Profile::Strict);
        assert_eq!(strict.skill.is_none(), is_refused, "{written}: {:?}", strict.problems);
        let is_told = strict
            .problems
            .iter()
            .any(|problem| problem.kind == ProblemKind::VersionInvalid);
        assert!(is_told, "{written}");
        let skill = super::tests::load_text(&text, Profile::Load).skill.unwrap();
        assert_eq!(skill.version, None, "{written}");
    }
}
