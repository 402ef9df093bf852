//! The span scanner: whatever it takes is JSON, its spans are values, and no change writes the same bytes.
#![no_main]

use knack_wire::json::{self, Edits};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|data: &[u8]| {
    let Ok(span) = json::document(data) else { return };
    // The reference reader refuses lone surrogates and numbers out of range, which a proxy passes on.
    let plain = |byte: &u8| !matches!(byte, b'\\' | b'e' | b'E');
    if data.iter().all(plain) {
        assert!(serde_json::from_slice::<&RawValue>(data).is_ok());
    }
    assert_eq!(Edits::new().apply(data), data);
    for member in json::members(data, span).unwrap_or_default() {
        assert!(json::document(member.value.of(data)).is_ok());
        json::unescape(member.key.of(data));
    }
    let elements = json::elements(data, span).unwrap_or_default();
    for element in &elements {
        assert!(json::document(element.of(data)).is_ok());
        json::text(data, *element);
    }
    let gone: Vec<usize> = (0..elements.len()).filter(|index| index % 2 == 1).collect();
    let mut edits = Edits::new();
    edits.remove_items(&elements, &gone);
    let less = edits.apply(data);
    assert!(json::document(&less).is_ok(), "{}", String::from_utf8_lossy(&less));
});
