//! Mentions at the start of a message.
#![no_main]

use knack_skill::at_skill;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = std::str::from_utf8(data) else { return };
    if let Some(mention) = at_skill::parse(message) {
        assert!(message.starts_with('@') && message.ends_with(mention.text));
        assert!(message[1..].starts_with(mention.skill));
        at_skill::map_text(&[], mention.text);
    }
});
