//! A stream as one JSON array: what a Gemini client reads that does not ask for `alt=sse`.
//!
//! The loop writes events all the same. At its edge each event becomes an element; keep-alives are line ends, which JSON
//! allows between elements.

use super::values::{BodyKind, DriveAction};

/// How an event begins and ends.
const BEGIN: &[u8] = b"data: ";
const END: &[u8] = b"\r\n\r\n";

/// Rewrites one answer.
#[derive(Debug, Default)]
pub(super) struct Array {
    /// The answer is a stream of the loop's own, not something that is passed on.
    streams: bool,
    /// An element has been written.
    begun: bool,
}

impl Array {
    /// Rewrites what was appended from `from` on.
    pub(super) fn rewrite(&mut self, out: &mut Vec<DriveAction>, from: usize) {
        for action in out.split_off(from) {
            match action {
                DriveAction::ClientHead(mut head) if head.body == BodyKind::Stream => {
                    self.streams = true;
                    head.body = BodyKind::Json;
                    out.push(DriveAction::ClientHead(head));
                }
                DriveAction::ClientBytes(bytes) if self.streams => {
                    out.push(DriveAction::ClientBytes(self.elements(&bytes).into()));
                }
                DriveAction::Finish(summary) => {
                    if self.streams {
                        out.push(DriveAction::ClientBytes(
                            if self.begun { &b"]"[..] } else { b"[]" }.into(),
                        ));
                    }
                    out.push(DriveAction::Finish(summary));
                }
                other => out.push(other),
            }
        }
    }

    /// Events as elements: the loop hands out whole events, each on one line, and line ends between them.
    fn elements(&mut self, mut events: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(events.len());
        while let Some(rest) = events.strip_prefix(BEGIN) {
            let end = memchr::memmem::find(rest, END).unwrap_or(rest.len());
            out.extend_from_slice(if self.begun { b",\r\n" } else { b"[" });
            self.begun = true;
            out.extend_from_slice(&rest[..end]);
            events = rest.get(end + END.len()..).unwrap_or_default();
        }
        out.extend_from_slice(events);
        out
    }
}
