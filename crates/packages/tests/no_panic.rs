//! No text makes a reader of the crate panic, and what is read can be written and read again.

use std::collections::BTreeMap;

use knack_packages::marker::Marker;
use knack_packages::{Lock, Requirement, declare, findings, imports, requirements_txt, script};
use knack_skill::model::SkillFile;
use proptest::prelude::*;

fn requirement_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("pillow".to_owned()),
        Just("[a,b]".to_owned()),
        Just(">=1,<2".to_owned()),
        Just("==1.0".to_owned()),
        Just("; python_version < '3'".to_owned()),
        Just(" and (os_name == \"x\" or extra in 'y')".to_owned()),
        Just(" --hash=sha256:".to_owned()),
        Just(" @ https://x".to_owned()),
        Just("\\\n".to_owned()),
        Just("# ".to_owned()),
        "\\PC{0,6}\n?",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn requirements_read_back(text in requirement_like()) {
        if let Ok(requirement) = Requirement::parse(&text) {
            let written = requirement.to_string();
            prop_assert_eq!(Requirement::parse(&written), Ok(requirement), "{}", written);
        }
        if let Ok(marker) = Marker::parse(&text) {
            prop_assert_eq!(Marker::parse(&marker.to_string()), Ok(marker));
        }
        let _ = requirements_txt::read("r", text.as_bytes());
        if let Ok(lock) = Lock::read("l", text.as_bytes()) {
            let text = lock.text().to_owned();
            prop_assert_eq!(Lock::read("l", text.as_bytes()), Ok(lock));
        }
    }

    #[test]
    fn locks_in_the_standard_format_read_back(
        name in "[A-Za-z0-9._-]{1,6}|\\PC{0,6}",
        version in "[0-9]{1,3}|\\PC{0,6}",
        compared in "[ -&(-~\n]{0,12}",
    ) {
        // A text of JSON is one of TOML.
        let written = |text: &str| serde_json::Value::from(text).to_string();
        let toml = format!(
            "lock-version = \"1.0\"\n[[packages]]\nname = {}\nversion = {}\nmarker = {}\nwheels = [{{name = \"a.whl\", hashes = {{sha256 = \"{}\"}}}}]\n",
            written(&name),
            written(&version),
            written(&format!("os_name != '{compared}'")),
            "a".repeat(64)
        );
        let file = SkillFile { bytes: toml.as_bytes().into(), executable: false };
        if let Some(lock) = declare(&[("pylock.toml".to_owned(), file)].into(), None).lock {
            let text = lock.text().to_owned();
            prop_assert_eq!(Lock::read("l", text.as_bytes()), Ok(lock), "{}", text);
        }
    }

    #[test]
    fn files_are_declared_without_a_panic(one in requirement_like(), two in "\\PC{0,200}", three in requirement_like()) {
        let block = format!("# /// script\n# {}\n# ///\n", three.replace('\n', "\n# "));
        let _ = script::read("a.py", &block);
        let _ = imports::of_source(&two);
        let files: BTreeMap<String, SkillFile> = [
            ("SKILL.md", format!("---\npackages: {{python: [{one:?}]}}\n---\n{two}")),
            ("requirements.lock", one.clone()),
            ("pylock.toml", one),
            ("package.json", two.clone()),
            ("a.py", block),
            ("b.py", two),
        ]
        .into_iter()
        .map(|(path, text)| (path.to_owned(), SkillFile { bytes: text.as_bytes().into(), executable: false }))
        .collect();
        let declared = declare(&files, None);
        let _ = findings(&files, None, &declared);
        prop_assert_eq!(declared.requirements_text(), declare(&files, None).requirements_text());
    }
}
