//! Frames of both directions: the same frames however the bytes are cut, and each frame survives its own encoding.
#![no_main]

use knack_runner::protocol::{Decoder, FromRunner, ToRunner, encode};
use libfuzzer_sys::fuzz_target;

fn decode<T: serde::de::DeserializeOwned + serde::Serialize>(data: &[u8], size: usize) -> Vec<Option<Vec<u8>>> {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for piece in data.chunks(size) {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame::<T>() {
            frames.push(frame.ok().map(|frame| encode(&frame)));
        }
    }
    frames
}

fn check<T: serde::de::DeserializeOwned + serde::Serialize>(data: &[u8], size: usize) {
    let frames = decode::<T>(data, size);
    assert_eq!(frames, decode::<T>(data, data.len().max(1)));
    for line in frames.into_iter().flatten() {
        assert_eq!(decode::<T>(&line, line.len()), [Some(line)]);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((size, stream)) = data.split_first() else { return };
    let size = usize::from(*size).max(1);
    check::<ToRunner>(stream, size);
    check::<FromRunner>(stream, size);
});
