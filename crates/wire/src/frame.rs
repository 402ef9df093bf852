//! Frames of a response body: server-sent events.

use bytes::{Buf, Bytes, BytesMut};

/// Largest event that is accepted: as much as a turn may gather.
pub const MAX_EVENT: usize = 8 << 20;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The last `event:` line; empty if there was none.
    pub name: Bytes,
    /// The `data:` lines, joined by line feeds.
    pub data: Bytes,
}

/// An event grew beyond [`MAX_EVENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the upstream's stream is larger than {MAX_EVENT} bytes")]
pub struct TooLarge;

/// Reads server-sent events from any pieces: LF, CRLF and CR line ends, `data:` with or without the space, several data
/// lines, comments, missing `event:` lines, a last event without its blank line.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// Bytes not yet consumed: at most one line.
    buffer: BytesMut,
    /// How much of the buffer has no line end.
    searched: usize,
    /// The last line ended with CR: a line feed that follows belongs to it.
    after_cr: bool,
    /// A byte order mark may still come.
    started: bool,
    name: Bytes,
    data: Vec<Bytes>,
    /// Bytes held in `data`.
    held: usize,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in bytes and appends the events that are complete. Errors if one event is larger than [`MAX_EVENT`].
    pub fn push(&mut self, piece: &[u8], events: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        self.buffer.extend_from_slice(piece);
        loop {
            if self.after_cr && !self.buffer.is_empty() {
                self.after_cr = false;
                if self.buffer[0] == b'\n' {
                    self.buffer.advance(1);
                }
            }
            let Some(found) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
                break;
            };
            let end = self.searched + found;
            self.after_cr = self.buffer[end] == b'\r';
            let line = self.buffer.split_to(end + 1).freeze().slice(..end);
            self.searched = 0;
            self.line(line, events)?;
        }
        self.searched = self.buffer.len();
        if self.held + self.searched > MAX_EVENT {
            Err(TooLarge)
        } else {
            Ok(())
        }
    }

    /// The stream has ended: a last event without line end or blank line counts.
    pub fn finish(&mut self, events: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        let rest = self.buffer.split().freeze();
        self.searched = 0;
        if !rest.is_empty() {
            self.line(rest, events)?;
        }
        self.dispatch(events);
        Ok(())
    }

    fn line(&mut self, line: Bytes, events: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        let line = if self.started { line } else { without_mark(line) };
        self.started = true;
        if line.is_empty() {
            self.dispatch(events);
        } else if let Some(data) = field(&line, b"data") {
            self.held += data.len() + 1;
            if self.held > MAX_EVENT {
                return Err(TooLarge);
            }
            self.data.push(data);
        } else if let Some(name) = field(&line, b"event") {
            self.name = name;
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        self.held = 0;
        let data = match self.data.len() {
            0 => return,
            1 => self.data.pop().unwrap_or_default(),
            _ => {
                let joined = self.data.join(&b'\n');
                self.data.clear();
                joined.into()
            }
        };
        events.push(SseEvent { name, data });
    }
}

fn without_mark(line: Bytes) -> Bytes {
    if line.starts_with(b"\xef\xbb\xbf") {
        line.slice(3..)
    } else {
        line
    }
}

/// The value of a line if its field is `name`. A line without colon has an empty value.
fn field(line: &Bytes, name: &[u8]) -> Option<Bytes> {
    let rest = line.strip_prefix(name)?;
    match rest {
        [] => Some(Bytes::new()),
        [b':', b' ', ..] => Some(line.slice(name.len() + 2..)),
        [b':', ..] => Some(line.slice(name.len() + 1..)),
        _ => None,
    }
}

/// Writes one event in the form of Chat: `data: {…}`, LF.
pub fn push_data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"data: ");
    push_line(out, data);
    out.extend_from_slice(b"\n\n");
}

/// Writes one event in the form of Responses and Messages: an `event:` line and a `data:` line, LF.
pub fn push_event(out: &mut Vec<u8>, name: &[u8], data: &[u8]) {
    out.extend_from_slice(b"event: ");
    push_line(out, name);
    out.extend_from_slice(b"\n");
    push_data(out, data);
}

/// Writes one event in the form of Gemini: `data: {…}`, CRLF.
pub fn push_data_crlf(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"data: ");
    push_line(out, data);
    out.extend_from_slice(b"\r\n\r\n");
}

/// JSON has line ends only between tokens, so each may be replaced by a space: an event must be one line.
pub(crate) fn push_line(out: &mut Vec<u8>, data: &[u8]) {
    if memchr::memchr2(b'\n', b'\r', data).is_none() {
        out.extend_from_slice(data);
    } else {
        out.extend(
            data.iter()
                .map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
        );
    }
}
