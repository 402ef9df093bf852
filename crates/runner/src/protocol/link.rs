//! Frames that only the two ends of a conversation can make: numbered, authenticated, and sealed where others read.
//!
//! A pod's stdin takes bytes from every client that may attach, and its stdout is a log that others read. So after
//! `claim` a line counts only if it was made with the conversation's key:
//!
//! ```text
//! {"type":"cancel","mac":"<32 characters>"}
//! └───── authenticated ─┘       └ base64 of the number (8 bytes, little endian) and the tag (16 bytes)
//! ```
//!
//! The tag is that of ChaCha20-Poly1305 with the text before `,"mac":"` as associated data and nothing to encrypt; a
//! `sealed` frame is encrypted by the same cipher. The nonce is the frame's number and which of the three uses it is, so
//! it never repeats under one key: a key belongs to one runner, which runs once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Bind, Data, FromRunner, Key, PROTOCOL, PROTOCOL_MIN, Sealed, ToRunner, encode};

/// The separator between the authenticated text and the mac.
const BEFORE_MAC: &[u8] = b",\"mac\":\"";
/// The end of the line.
const AFTER_MAC: &[u8] = b"\"}";
/// A number and a tag.
const MAC_BYTES: usize = 8 + 16;
/// Its length in base64.
const MAC_CHARACTERS: usize = MAC_BYTES / 3 * 4;
/// The longest line without a mac that is parsed after the first `claim`: another one.
const MAX_BIND_BYTES: usize = 1024;

/// The uses of a key; part of the cipher's nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The mac of a frame from the owner.
    Owner = 1,
    /// The mac of a frame from the runner.
    Runner = 2,
    /// A sealed frame from the runner.
    Sealed = 3,
}

/// A key, ready for use.
struct Cipher(ChaCha20Poly1305);

impl Cipher {
    fn new(key: &Key) -> Self {
        Self(ChaCha20Poly1305::new(key.bytes().into()))
    }

    fn nonce(number: u64, used: Use) -> chacha20poly1305::Nonce {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8] = used as u8;
        bytes.into()
    }

    /// A frame as a line with its mac. `None`: the frame cannot be written, which no frame of the protocol meets.
    fn line<T: Serialize>(&self, frame: &T, number: u64, used: Use) -> Option<(Vec<u8>, [u8; MAC_BYTES])> {
        let mut line = serde_json::to_vec(frame).ok()?;
        // The mac comes as a further member, so the object's end comes after it.
        line.pop();
        let text = Payload { msg: &[], aad: &line };
        let tag = self.0.encrypt(&Self::nonce(number, used), text).ok()?;
        let mut mac = [0; MAC_BYTES];
        mac[..8].copy_from_slice(&number.to_le_bytes());
        mac.get_mut(8..)?.copy_from_slice(&tag);
        line.extend_from_slice(BEFORE_MAC);
        line.extend_from_slice(STANDARD.encode(mac).as_bytes());
        line.extend_from_slice(AFTER_MAC);
        line.push(b'\n');
        Some((line, mac))
    }

    /// The mac of a line, if the line was made with this key for this use.
    fn proven(&self, line: &[u8], used: Use) -> Option<[u8; MAC_BYTES]> {
        let (text, mac) = split_mac(line)?;
        let (number, tag) = (number_of(&mac), mac.get(8..)?);
        let payload = Payload { msg: tag, aad: text };
        self.0.decrypt(&Self::nonce(number, used), payload).ok()?;
        Some(mac)
    }
}

fn number_of(mac: &[u8; MAC_BYTES]) -> u64 {
    mac.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The authenticated text of a line and its mac.
fn split_mac(line: &[u8]) -> Option<(&[u8], [u8; MAC_BYTES])> {
    let line = line.trim_ascii_end().strip_suffix(AFTER_MAC)?;
    let (line, mac) = line.split_at_checked(line.len().checked_sub(MAC_CHARACTERS)?)?;
    let text = line.strip_suffix(BEFORE_MAC)?;
    Some((text, STANDARD.decode(mac).ok()?.try_into().ok()?))
}

/// The owner's end: makes frames for the runner and verifies those of the runner.
pub struct OwnerLink {
    key: Key,
    cipher: Cipher,
    next: u64,
    asked: Sha256,
    reader: Reader,
}

impl std::fmt::Debug for OwnerLink {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OwnerLink")
            .field("next", &self.next)
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

impl OwnerLink {
    /// The end of a conversation with this key.
    pub fn new(key: Key) -> Self {
        Self {
            cipher: Cipher::new(&key),
            next: 0,
            asked: Sha256::new(),
            reader: Reader::new(&key),
            key,
        }
    }

    /// The line that binds the runner; sent again it asks "are you alive".
    pub fn bind(&self) -> Vec<u8> {
        encode(&ToRunner::Bind(Bind {
            key: self.key.clone(),
            protocol_min: PROTOCOL_MIN,
            protocol: PROTOCOL,
        }))
    }

    /// The line of a frame. Lines must be sent in the order in which they were made: the runner takes no other.
    pub fn encode(&mut self, frame: &ToRunner) -> Vec<u8> {
        let Some((line, mac)) = self.cipher.line(frame, self.next, Use::Owner) else {
            return Vec::new();
        };
        self.next += 1;
        self.asked.update(mac);
        line
    }

    /// The digest in `started` and `result` once the runner has taken every frame made so far: that of the conversation up
    /// to and including its `run`.
    pub fn request_digest(&self) -> String {
        hex(&self.asked.clone().finalize())
    }

    /// Reads a line of the runner's stdout. Each frame must follow the one before it: what is lost in between may be
    /// anything. A conversation may be joined late, so the first frame has any number.
    pub fn read(&mut self, line: &[u8]) -> Incoming {
        self.reader.read(line)
    }
}

/// A line of a runner's stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A frame of the runner that has our key.
    Frame(FromRunner),
    /// A frame that an unauthenticated peer may have caused: `ready` at boot, an answer to a stranger, another protocol.
    Unproven(FromRunner),
    /// A frame of the runner that has our key, and not the one after the last: something is missing.
    Gap {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// Unknown content.
    Nothing,
}

/// Verifies the frames of a runner that has a key, from its stdout or from the log of it.
pub struct Reader {
    cipher: Cipher,
    due: Option<u64>,
}

impl std::fmt::Debug for Reader {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads what is on its way: the first frame has any number.
    pub fn new(key: &Key) -> Self {
        Self {
            cipher: Cipher::new(key),
            due: None,
        }
    }

    /// Reads a whole log: the first frame is number 0, or the beginning is missing.
    pub fn of_log(key: &Key) -> Self {
        Self {
            due: Some(0),
            ..Self::new(key)
        }
    }

    /// Reads a line.
    pub fn read(&mut self, line: &[u8]) -> Incoming {
        if let Some(mac) = self.cipher.proven(line, Use::Runner) {
            // Made by the runner, so it is a frame, or one of a newer runner that this version cannot parse.
            let frame = serde_json::from_slice(line).map_or(Incoming::Nothing, Incoming::Frame);
            return self.in_order(number_of(&mac), frame);
        }
        match serde_json::from_slice(line) {
            Ok(FromRunner::Sealed(sealed)) => match self.open(&sealed) {
                Some(frame) => self.in_order(sealed.sequence, Incoming::Frame(frame)),
                None => Incoming::Nothing,
            },
            Ok(frame) => Incoming::Unproven(frame),
            Err(_) => Incoming::Nothing,
        }
    }

    fn in_order(&mut self, came: u64, heard: Incoming) -> Incoming {
        let due = self.due.unwrap_or(came);
        self.due = Some(came.saturating_add(1));
        if due == came {
            heard
        } else {
            Incoming::Gap { due, came }
        }
    }

    fn open(&self, sealed: &Sealed) -> Option<FromRunner> {
        let nonce = Cipher::nonce(sealed.sequence, Use::Sealed);
        let text = self.cipher.0.decrypt(&nonce, sealed.data.0.as_slice()).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let (head, bytes) = (text.get(..end)?, text.get(end + 1..)?);
        let mut frame: FromRunner = serde_json::from_slice(head).ok()?;
        match &mut frame {
            FromRunner::Output(output) => output.data = Data(bytes.to_vec()),
            FromRunner::File(piece) => piece.data = Data(bytes.to_vec()),
            _ => {}
        }
        Some(frame)
    }
}

/// Why a runner did not act on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineRefusal {
    /// It was not made with the key: it is not answered.
    Stranger,
    /// A `claim` frame, which the runner's owner may have sent.
    Bind(Bind),
    /// The owner made it, but one before it did not arrive.
    Lost {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// The owner made it, and it is no frame; the text says what the parser found.
    Malformed(String),
}

/// The runner's end.
pub struct RunnerLink {
    cipher: Cipher,
    /// The number of the next frame to the owner.
    next: u64,
    /// The number of the next frame from the owner.
    due: u64,
    asked: Sha256,
    is_sealed: bool,
}

impl std::fmt::Debug for RunnerLink {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunnerLink")
            .field("next", &self.next)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

impl RunnerLink {
    /// The end of a conversation with this key.
    pub fn new(key: &Key) -> Self {
        Self {
            cipher: Cipher::new(key),
            next: 0,
            due: 0,
            asked: Sha256::new(),
            is_sealed: false,
        }
    }

    /// From now on frames with content of the run are sealed.
    pub fn seal(&mut self) {
        self.is_sealed = true;
    }

    /// Reads a line of stdin.
    pub fn read(&mut self, line: &[u8]) -> Result<ToRunner, LineRefusal> {
        let Some(mac) = self.cipher.proven(line, Use::Owner) else {
            if line.len() <= MAX_BIND_BYTES
                && let Ok(ToRunner::Bind(bind)) = serde_json::from_slice(line)
            {
                return Err(LineRefusal::Bind(bind));
            }
            return Err(LineRefusal::Stranger);
        };
        let (due, came) = (self.due, number_of(&mac));
        if due != came {
            return Err(LineRefusal::Lost { due, came });
        }
        self.due += 1;
        self.asked.update(mac);
        serde_json::from_slice(line).map_err(|error| LineRefusal::Malformed(error.to_string()))
    }

    /// The owner's requests so far; see [`OwnerLink::request_digest`].
    pub fn request_digest(&self) -> String {
        hex(&self.asked.clone().finalize())
    }

    /// The next line, if it is this frame's; empty for one that cannot be written, which no frame of the protocol is. Its number
    /// is used up by [`RunnerLink::sent`].
    pub fn line(&self, frame: &FromRunner) -> Vec<u8> {
        let line = if self.is_sealed && is_secret(frame) {
            self.sealed(frame)
        } else {
            self.cipher.line(frame, self.next, Use::Runner).map(|(line, _)| line)
        };
        line.unwrap_or_default()
    }

    /// The last line goes out.
    pub fn sent(&mut self) {
        self.next += 1;
    }

    fn sealed(&self, frame: &FromRunner) -> Option<Vec<u8>> {
        let nonce = Cipher::nonce(self.next, Use::Sealed);
        let sealed = self.cipher.0.encrypt(&nonce, plain(frame)?.as_slice()).ok()?;
        Some(encode(&FromRunner::Sealed(Sealed {
            sequence: self.next,
            data: Data(sealed),
        })))
    }
}

/// Whether a frame has content that only the owner may read. In plain text are: that a runner lives and has an owner,
/// its locks, and which execution began.
const fn is_secret(frame: &FromRunner) -> bool {
    !matches!(
        frame,
        FromRunner::Ready(_) | FromRunner::Bound(_) | FromRunner::Started(_) | FromRunner::Sealed(_)
    )
}

/// The frame's JSON without its bytes, a newline, and the bytes raw: base64 is paid once.
fn plain(frame: &FromRunner) -> Option<Vec<u8>> {
    let mut head = frame.clone();
    let bytes = match &mut head {
        FromRunner::Output(output) => std::mem::take(&mut output.data.0),
        FromRunner::File(piece) => std::mem::take(&mut piece.data.0),
        _ => Vec::new(),
    };
    let mut text = serde_json::to_vec(&head).ok()?;
    text.push(b'\n');
    text.extend_from_slice(&bytes);
    Some(text)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
