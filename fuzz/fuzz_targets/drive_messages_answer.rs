//! The whole loop over answers of Messages.
#![no_main]

use knack_fuzz::check_answer;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;

fuzz_target!(|data: &[u8]| check_answer(Format::Messages, REQUEST, data));
