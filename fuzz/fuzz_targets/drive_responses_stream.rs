//! The whole loop over streams of Responses.
#![no_main]

use knack_fuzz::check_stream;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = r#"{"model":"m","stream":true,"input":"x"}"#;

fuzz_target!(|data: &[u8]| check_stream(Format::Responses, REQUEST, data));
