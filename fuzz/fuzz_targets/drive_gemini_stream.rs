//! The whole loop over streams of Gemini.
#![no_main]

use knack_fuzz::check_stream;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#;

fuzz_target!(|data: &[u8]| check_stream(Format::Gemini, REQUEST, data));
