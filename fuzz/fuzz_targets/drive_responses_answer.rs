//! The whole loop over answers of Responses.
#![no_main]

use knack_fuzz::check_answer;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = r#"{"model":"m","input":"x"}"#;

fuzz_target!(|data: &[u8]| check_answer(Format::Responses, REQUEST, data));
