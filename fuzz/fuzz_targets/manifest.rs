//! Skill and SkillRuntime manifests of any text: each document is taken or refused by a text that names it.
#![no_main]

use knack_api::parse_manifests;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for document in parse_manifests(text) {
        if let Err(error) = document {
            assert!(!error.message.is_empty());
        }
    }
});
