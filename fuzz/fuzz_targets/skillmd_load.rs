//! SKILL.md of any bytes, under both profiles.
#![no_main]

use std::collections::BTreeMap;

use knack_skill::model::{SkillFile, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for profile in [Profile::Load, Profile::Strict] {
        let file = SkillFile { bytes: data.into(), executable: false };
        let loaded = load(LoadInput {
            id: SkillRef { namespace: "default".to_owned(), name: "x".to_owned() },
            files: BTreeMap::from([("SKILL.md".to_owned(), file)]),
            overrides: SpecOverrides::default(),
            profile,
        });
        // What is not served says why.
        assert!(loaded.skill.is_some() || loaded.problems.iter().any(knack_skill::problem::Problem::is_error));
    }
});
