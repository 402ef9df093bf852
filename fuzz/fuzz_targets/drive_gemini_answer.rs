//! The whole loop over answers of Gemini.
#![no_main]

use knack_fuzz::check_answer;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#;

fuzz_target!(|data: &[u8]| check_answer(Format::Gemini, REQUEST, data));
