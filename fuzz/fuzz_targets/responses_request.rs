//! Requests of Responses: read, injected into, left alone.
#![no_main]

use knack_fuzz::check_request;
use knack_wire::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| check_request(Format::Responses, data));
