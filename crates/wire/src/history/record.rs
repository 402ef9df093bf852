//! What is remembered of one answer: the upstream messages that the client did not see.
//!
//! A record is a value with its own byte form (`encode`, `decode`), so that any store can hold it:
//!
//! ```text
//! "KH" version | format | messages | open results | client call ids | open calls | resumes | files | state
//! ```
//!
//! Numbers are little-endian `u32`, every field and list has its length before it. Skill texts are not
//! in a record: a load result keeps its place and the reference `Load`, and the text is rendered
//! again when the record is used, so a store holds no skill content and a record stays small.

use crate::drive::OpenCall;
use crate::json;
use crate::route::Format;

/// Largest encoded record, in bytes. Ten rounds of results of 24 KiB fit; a bigger loop is not
/// remembered, which is a miss and never an error.
pub const MAX_RECORD_BYTES: usize = 256 * 1024;

/// First bytes of every encoded record; the last one is the version.
const MAGIC: [u8; 3] = *b"KH\x03";

/// A part of an upstream message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Bytes of the message as they went upstream.
    Raw(String),
    /// The text of a load result: the caller's reference ({skill, digest, path, inputs} in its own notation), rendered
    /// again and escaped into the JSON string around it.
    Load(String),
}

/// A whole upstream message, item or block: its segments in order.
pub type Piece = Vec<Segment>;

/// A file that a run of this answer made. The bytes are with the gateway's files, under the response id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNote {
    /// Path relative to the work directory.
    pub name: String,
    /// SHA-256 of the bytes, lower-case hex.
    pub sha256: String,
    /// Id of the response that delivered it.
    pub response_id: String,
}

/// Everything that is restored when the client sends the visible part of an answer again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Upstream messages of the whole loop in order, including our results. They replace the visible assistant message.
    pub messages: Vec<Piece>,
    /// Results of ours that belong into the client's next message, before its own results (Messages
    /// and Gemini, where all results of a turn share one message). In Responses they stand in `messages` too, and are needed
    /// alone where the upstream keeps the turn. Empty in Chat.
    pub open_results: Vec<Piece>,
    /// Ids of the calls that the client has to answer.
    pub client_calls: Vec<String>,
    /// Calls of ours at the end that have not run, since the limit of rounds was reached. They run if the client resumes
    /// the answer; if it says something else instead, `open_results` refuse them.
    pub open_calls: Vec<OpenCall>,
    /// True if `messages` begin with the results of the calls that the answer before left open.
    pub resumes: bool,
    /// Files that the answer's runs made.
    pub files: Vec<FileNote>,
    /// The id under which the upstream keeps the state after the whole answer (Responses), where another was shown.
    pub state: String,
}

impl Segment {
    /// Cuts the text of a load result out of the message that carried it, leaving the reference.
    ///
    /// `message` is JSON as it went upstream and `text` the rendered load before escaping. A message in which the text
    /// is not found stays whole: the record is bigger, and still right.
    pub(crate) fn cut(message: &str, text: &str, reference: &str) -> Piece {
        let mut quoted = vec![b'"'];
        json::push_escaped(&mut quoted, text);
        let quoted = String::from_utf8_lossy(&quoted);
        match message.find(&*quoted) {
            Some(at) if !text.is_empty() => vec![
                Self::Raw(message[..=at].to_owned()),
                Self::Load(reference.to_owned()),
                Self::Raw(message[at + quoted.len()..].to_owned()),
            ],
            _ => vec![Self::Raw(message.to_owned())],
        }
    }
}

impl Record {
    /// The byte form, or `None` over `MAX_RECORD_BYTES`.
    pub fn encode(&self, format: Format) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(&MAGIC);
        out.push(super::tag(format));
        for pieces in [&self.messages, &self.open_results] {
            put_list(&mut out, pieces, put_piece);
        }
        put_list(&mut out, &self.client_calls, |out, id| put(out, id));
        put_list(&mut out, &self.open_calls, |out, call| {
            put(out, &call.id);
            put(out, &call.name);
            put(out, &call.arguments);
        });
        out.push(u8::from(self.resumes));
        put_list(&mut out, &self.files, |out, file| {
            put(out, &file.name);
            put(out, &file.sha256);
            put(out, &file.response_id);
        });
        put(&mut out, &self.state);
        (out.len() <= MAX_RECORD_BYTES).then_some(out)
    }

    /// Reads a byte form back. `None` for another version, another format or damaged bytes: a store
    /// shared with other versions of the gateway may hold any of them, and a miss is always valid.
    pub fn decode(bytes: &[u8], format: Format) -> Option<Self> {
        if bytes.len() > MAX_RECORD_BYTES {
            return None;
        }
        let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&[super::tag(format)])?;
        let mut reader = Reader { rest };
        let record = Self {
            messages: reader.list(Reader::piece)?,
            open_results: reader.list(Reader::piece)?,
            client_calls: reader.list(Reader::text)?,
            open_calls: reader.list(|reader| {
                Some(OpenCall {
                    id: reader.text()?,
                    name: reader.text()?,
                    arguments: reader.text()?,
                })
            })?,
            resumes: reader.flag()?,
            files: reader.list(|reader| {
                Some(FileNote {
                    name: reader.text()?,
                    sha256: reader.text()?,
                    response_id: reader.text()?,
                })
            })?,
            state: reader.text()?,
        };
        reader.rest.is_empty().then_some(record)
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Lengths over `u32::MAX` cannot be read back; such a record is over the limit and never leaves `encode`.
fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], put_one: impl Fn(&mut Vec<u8>, &T)) {
    put_length(out, list.len());
    for one in list {
        put_one(out, one);
    }
}

fn put_piece(out: &mut Vec<u8>, piece: &Piece) {
    put_list(out, piece, |out, segment| match segment {
        Segment::Raw(raw) => {
            out.push(0);
            put(out, raw);
        }
        Segment::Load(load) => {
            out.push(1);
            put(out, load);
        }
    });
}

/// Reads the byte form. Every step checks what is left, so no length in the bytes is trusted.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn length(&mut self) -> Option<usize> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn list<T>(&mut self, mut read_one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // The count is not used to reserve: each element takes bytes, so the loop ends with them.
        (0..self.length()?).map(|_| read_one(self)).collect()
    }

    fn flag(&mut self) -> Option<bool> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*byte < 2).then_some(*byte == 1)
    }

    fn piece(&mut self) -> Option<Piece> {
        self.list(|reader| {
            let (kind, rest) = reader.rest.split_first()?;
            reader.rest = rest;
            match kind {
                0 => Some(Segment::Raw(reader.text()?)),
                1 => Some(Segment::Load(reader.text()?)),
                _ => None,
            }
        })
    }
}
