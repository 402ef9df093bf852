//! What a skill declares of packages, from any bytes in every file that is read for it.
#![no_main]

use std::collections::BTreeMap;

use knack_packages::{Lock, declare, findings};
use knack_skill::model::SkillFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for path in [
        "SKILL.md", "requirements.txt", "requirements.lock", "pylock.toml", "package.json", "package-lock.json", "scripts/a.py", "scripts/a.py.lock", "a.js",
    ] {
        let file = SkillFile { bytes: data.into(), executable: false };
        let mut files = BTreeMap::from([(path.to_owned(), file)]);
        if let Some(script) = path.strip_suffix(".lock").filter(|script| script.ends_with(".py")) {
            let bytes = b"# /// script\n# dependencies = [\"a\"]\n# ///\n".as_slice().into();
            files.insert(script.to_owned(), SkillFile { bytes, executable: false });
        }
        let declared = declare(&files, None);
        let _ = findings(&files, None, &declared);
        // A lock has one form, which may be that of no packages.
        if let Some(lock) = &declared.lock {
            assert_eq!(Lock::read_or_empty("again", lock.text().as_bytes()).as_ref(), Ok(lock));
        }
    }
});
