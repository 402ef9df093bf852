//! Lines to frames and back, incrementally and with a bounded line length.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MAX_LINE_BYTES;

/// Why a line was not a frame. The decoder continues with the next line after each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The line is longer than [`MAX_LINE_BYTES`]; its bytes were dropped.
    TooLong,
    /// The line is not a frame; the text says what the parser found.
    Malformed(String),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong => write!(formatter, "frame is longer than {MAX_LINE_BYTES} bytes"),
            Self::Malformed(what) => write!(formatter, "frame is malformed: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// An incremental decoder: bytes in, in any cuts; frames out.
///
/// It buffers at most one line ([`MAX_LINE_BYTES`]) plus the bytes pushed since the last [`Decoder::next_line`] that
/// returned `None`. Empty lines are skipped. It never panics on any input.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Start of the first line not handed out yet.
    start: usize,
    /// Bytes from `start` that are known to hold no newline.
    scanned: usize,
    /// The current line ran over the limit; its bytes are dropped up to the next newline.
    skipping: bool,
}

impl Decoder {
    /// Creates an empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next line, without its newline, or its error; `None` when more bytes are needed. Empty lines are
    /// skipped.
    pub fn next_line(&mut self) -> Option<Result<&[u8], DecodeError>> {
        let (start, end) = loop {
            let pending = self.buffer.get(self.start..).unwrap_or_default();
            let found = pending
                .get(self.scanned..)
                .unwrap_or_default()
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(offset) = found else {
                if pending.len() > MAX_LINE_BYTES || self.skipping {
                    self.skipping = true;
                    self.buffer.clear();
                    self.start = 0;
                }
                self.scanned = self.buffer.len() - self.start;
                return None;
            };
            let length = self.scanned + offset;
            let is_empty = pending
                .get(..length)
                .is_none_or(|line| line.iter().all(u8::is_ascii_whitespace));
            let is_too_long = std::mem::take(&mut self.skipping) || length > MAX_LINE_BYTES;
            let start = self.start;
            self.start += length + 1;
            self.scanned = 0;
            if is_too_long {
                return Some(Err(DecodeError::TooLong));
            }
            if !is_empty {
                break (start, start + length);
            }
        };
        Some(Ok(self.buffer.get(start..end).unwrap_or_default()))
    }

    /// Returns the next frame or the error of the next line; `None` when more bytes are needed.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Option<Result<T, DecodeError>> {
        let line = self.next_line()?;
        Some(
            line.and_then(|line| {
                serde_json::from_slice(line).map_err(|error| DecodeError::Malformed(error.to_string()))
            }),
        )
    }
}

/// Encodes a frame as one line with its newline.
///
/// Frames hold strings, numbers, maps with string keys and [`super::Data`] only, which JSON can always express; a frame
/// that could not be written would come out as an empty line, which decoders skip.
pub fn encode<T: Serialize>(frame: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(frame).unwrap_or_default();
    line.push(b'\n');
    line
}
