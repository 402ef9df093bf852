//! The event decoder: the same events however the bytes are cut.
#![no_main]

use knack_wire::frame::{SseDecoder, SseEvent};
use libfuzzer_sys::fuzz_target;

fn decode(data: &[u8], size: usize) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    for piece in data.chunks(size) {
        if decoder.push(piece, &mut events).is_err() {
            return events;
        }
    }
    let _ = decoder.finish(&mut events);
    events
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else { return };
    assert_eq!(decode(stream, usize::from(*size).max(1)), decode(stream, stream.len().max(1)));
});
