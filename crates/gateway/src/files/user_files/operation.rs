//! The requests to a store of uploads and containers, and its answers, as values and as bytes between gateway and registry.
//!
//! ```text
//! POST /knack/v1/files   {"caller": "…", "op": {…}}⏎ content        200   {"done": {…}}⏎ content   or   {"refused": {…}}⏎
//! ```

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::form::{NAME_MAX_BYTES, TYPE_MAX_BYTES};
use super::objects::{Container, ContainerFile, FileInfo, NewContainer, NewContainerFile, NewFile, SkillReference};
use super::refusal::FilesRefusal;
use crate::model_calls::turn_store::KeyedHash;

/// Where the registry of a cluster keeps files for gateways.
pub const FILES_PATH: &str = "/knack/v1/files";
/// Longest line of a request: names, a path, and ids of skills.
const ASKED_MAX_BYTES: usize = 16 << 10;
/// Skills of a container. A request may have more, but what a container has is kept in memory.
pub(super) const SKILLS_MAX: usize = 32;
/// Longest id that a gateway may choose or name.
const ID_MAX_BYTES: usize = 128;
/// Longest path of a file in a container: as the sandbox has it.
const PATH_MAX_BYTES: usize = 1024;
/// Longest purpose or memory limit: a word of the APIs.
const WORD_MAX_BYTES: usize = 64;

/// A request to a store. Those that add a file come with a content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Keep an upload.
    AddFile(NewFile),
    /// One upload.
    File(String),
    /// One upload with its content.
    FileContent(String),
    /// All uploads of the caller, and the positions of removed ids among them.
    Files(Vec<String>),
    /// Remove an upload.
    DeleteFile(String),
    /// Remember the position of a removed file that was kept elsewhere.
    NoteGone(String, Timestamp),
    /// Make a container.
    AddContainer(NewContainer),
    /// One container, and the positions of removed ids among its files.
    Container(String, Vec<String>),
    /// One container, for a request that names it: it counts as a use.
    UseContainer(String),
    /// All containers of the caller without their files, and the positions of removed ids among them.
    Containers(Vec<String>),
    /// Remove a container.
    DeleteContainer(String),
    /// Put a file into a container; one of its path goes. The container is made if a run puts it there.
    AddToContainer(String, NewContainerFile),
    /// Put an upload, the second id, into a container, under its own name.
    CopyToContainer(String, String),
    /// Put an upload, the second id, into a container, under another name.
    CopyToContainerAs(String, String, String),
    /// A file of a container with its content.
    ContainerFileContent(String, String),
    /// Remove a file of a container.
    DeleteContainerFile(String, String),
}

/// Positions of removed ids in a list.
pub(super) type RemovedIds = Vec<(String, Timestamp)>;

/// An answer of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// No content.
    Done,
    /// An upload.
    File(FileInfo),
    /// Uploads.
    Files(Vec<FileInfo>, RemovedIds),
    /// A container.
    Container(Container, RemovedIds),
    /// Containers.
    Containers(Vec<Container>, RemovedIds),
    /// A file of a container.
    ContainerFile(ContainerFile),
}

/// An answer with the content that belongs to it, which is empty for most.
pub type Reply = (Answer, Bytes);

/// A refusal of the registry, as it is sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SentRefusal {
    File(String),
    Container(String),
    ContainerFile(String),
    Expired(String),
    Invalid(String),
    TooLarge(String),
    Full(String),
    Failed,
    Busy,
}

#[derive(Debug, Serialize, Deserialize)]
struct SentCall {
    caller: String,
    op: Op,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FilesResponse {
    Done(Answer),
    Refused(SentRefusal),
}

impl Op {
    /// Whether its answer is a content that is read from the disk, or copied there.
    pub const fn reads(&self) -> bool {
        matches!(
            self,
            Self::FileContent(_)
                | Self::CopyToContainer(..)
                | Self::CopyToContainerAs(..)
                | Self::ContainerFileContent(..)
        )
    }

    /// Whether the ids in it may be Knack's ids, and every text has the length that it may have, so that it fits into a line
    /// and counts as what the table takes it for.
    pub(super) fn is_sound(&self) -> bool {
        let id = |id: &String| !id.is_empty() && id.len() <= ID_MAX_BYTES;
        let named = |name: &String, mime: &String| name.len() <= NAME_MAX_BYTES && mime.len() <= TYPE_MAX_BYTES;
        let word = |word: &String| word.len() <= WORD_MAX_BYTES;
        match self {
            Self::AddFile(new) => named(&new.name, &new.mime) && word(&new.purpose),
            Self::AddContainer(new) => {
                let skill = |skill: &SkillReference| id(&skill.id) && skill.version.as_ref().is_none_or(word);
                id(&new.id)
                    && new.name.len() <= NAME_MAX_BYTES
                    && new.memory_limit.as_ref().is_none_or(word)
                    && new.skills.len() <= SKILLS_MAX
                    && new.skills.iter().all(skill)
            }
            Self::AddToContainer(one, file) => {
                id(one) && file.path.len() <= PATH_MAX_BYTES && file.mime.len() <= TYPE_MAX_BYTES
            }
            Self::CopyToContainerAs(one, other, name) => id(one) && id(other) && name.len() <= NAME_MAX_BYTES,
            Self::Files(ids) | Self::Containers(ids) => ids.len() <= 2,
            Self::Container(one, ids) => id(one) && ids.len() <= 2,
            Self::File(one)
            | Self::FileContent(one)
            | Self::DeleteFile(one)
            | Self::NoteGone(one, _)
            | Self::UseContainer(one)
            | Self::DeleteContainer(one) => id(one),
            Self::CopyToContainer(one, other)
            | Self::ContainerFileContent(one, other)
            | Self::DeleteContainerFile(one, other) => id(one) && id(other),
        }
    }
}

/// The body of a request to the registry.
pub(super) fn call_body(caller: &KeyedHash, op: Op, content: &Bytes) -> Option<Bytes> {
    let caller = knack_skill::digest::hex(caller);
    framed(&SentCall { caller, op }, content)
}

/// A request to the registry.
#[derive(Debug, PartialEq, Eq)]
pub struct AskedCall {
    /// The client of the gateway.
    pub client: KeyedHash,
    /// What is asked.
    pub op: Op,
    /// The content of a file, if one is sent.
    pub content: Bytes,
}

/// Reads a request to the registry. `None`: it is none.
pub fn read_asked(body: &Bytes) -> Option<AskedCall> {
    let (SentCall { caller, op }, content) = unframed(body, ASKED_MAX_BYTES)?;
    let client = key_of(&caller)?;
    op.is_sound().then_some(AskedCall { client, op, content })
}

/// The body of the registry's answer.
pub fn answered(outcome: Result<Reply, FilesRefusal>) -> Bytes {
    let (line, content) = match outcome {
        Ok((answer, content)) => (FilesResponse::Done(answer), content),
        Err(refusal) => (FilesResponse::Refused(sent_refusal(refusal)), Bytes::new()),
    };
    // Values that Knack makes are always written.
    framed(&line, &content).unwrap_or_default()
}

/// The registry's answer; `None`: it is none.
pub(super) fn read_answered(body: &Bytes) -> Option<Result<Reply, FilesRefusal>> {
    let (line, content) = unframed(body, body.len())?;
    Some(match line {
        FilesResponse::Done(answer) => Ok((answer, content)),
        FilesResponse::Refused(sent) => Err(received_refusal(sent)),
    })
}

fn framed(line: &impl Serialize, content: &Bytes) -> Option<Bytes> {
    let mut out = serde_json::to_vec(line).ok()?;
    out.reserve_exact(content.len() + 1);
    out.push(b'\n');
    out.extend_from_slice(content);
    Some(out.into())
}

fn unframed<T: DeserializeOwned>(body: &Bytes, line_max: usize) -> Option<(T, Bytes)> {
    let end = memchr::memchr(b'\n', body).filter(|end| *end <= line_max)?;
    let line = serde_json::from_slice(body.get(..end)?).ok()?;
    Some((line, body.slice(end + 1..)))
}

fn key_of(hex: &str) -> Option<KeyedHash> {
    let mut key = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(key)
}

fn sent_refusal(refusal: FilesRefusal) -> SentRefusal {
    match refusal {
        FilesRefusal::Missing("File", id) => SentRefusal::File(id),
        FilesRefusal::Missing("Container", id) => SentRefusal::Container(id),
        FilesRefusal::Missing(_, id) => SentRefusal::ContainerFile(id),
        FilesRefusal::Expired(id) => SentRefusal::Expired(id),
        FilesRefusal::Invalid(_, text) => SentRefusal::Invalid(text),
        FilesRefusal::NotAllowed(text, _) => SentRefusal::Invalid(text.to_owned()),
        FilesRefusal::TooLarge(text) => SentRefusal::TooLarge(text),
        FilesRefusal::Full(text) => SentRefusal::Full(text),
        FilesRefusal::Busy | FilesRefusal::TooOften(_) => SentRefusal::Busy,
        FilesRefusal::NoSuchPath | FilesRefusal::Failed | FilesRefusal::Away => SentRefusal::Failed,
    }
}

fn received_refusal(sent: SentRefusal) -> FilesRefusal {
    match sent {
        SentRefusal::File(id) => FilesRefusal::Missing("File", id),
        SentRefusal::Container(id) => FilesRefusal::Missing("Container", id),
        SentRefusal::ContainerFile(id) => FilesRefusal::Missing("Container file", id),
        SentRefusal::Expired(id) => FilesRefusal::Expired(id),
        SentRefusal::Invalid(text) => FilesRefusal::Invalid("file", text),
        SentRefusal::TooLarge(text) => FilesRefusal::TooLarge(text),
        SentRefusal::Full(text) => FilesRefusal::Full(text),
        SentRefusal::Failed => FilesRefusal::Failed,
        SentRefusal::Busy => FilesRefusal::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_arrive_as_they_were_sent_and_others_are_none() {
        let op = Op::DeleteContainerFile("cntr_knack_a".to_owned(), "line\nbreak".to_owned());
        let content = Bytes::from_static(b"a\nb\n");
        let sent = call_body(&[0xab; 32], op.clone(), &content).unwrap();
        let asked = AskedCall {
            client: [0xab; 32],
            op,
            content: content.clone(),
        };
        assert_eq!(read_asked(&sent), Some(asked));
        for body in [
            &b""[..],
            b"{}\n",
            b"{\"caller\":\"00\",\"op\":{\"file\":\"a\"}}\n",
            b"{\"caller\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"op\":{\"file\":\"\"}}\n",
            b"{\"caller\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"op\":{\"file\":\"a\"}}",
            b"{\"caller\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"op\":{\"nothing\":\"a\"}}\n",
        ] {
            let text = String::from_utf8_lossy(body);
            assert_eq!(read_asked(&Bytes::copy_from_slice(body)), None, "{text}");
        }
        let file = |name: usize, mime: usize, purpose: usize| {
            Op::AddFile(NewFile {
                name: "x".repeat(name),
                mime: "x".repeat(mime),
                purpose: "x".repeat(purpose),
                lasts: None,
            })
        };
        let made = |path: usize, mime: usize| {
            let file = NewContainerFile {
                path: "x".repeat(path),
                mime: "x".repeat(mime),
                source: crate::files::user_files::Source::User,
            };
            Op::AddToContainer("cntr_knack_a".to_owned(), file)
        };
        let attached = |skills: usize, version: usize| {
            let skill = SkillReference {
                id: "x".repeat(ID_MAX_BYTES),
                version: Some("x".repeat(version)),
            };
            Op::AddContainer(NewContainer {
                id: "cntr_knack_a".to_owned(),
                name: "\u{1}".repeat(NAME_MAX_BYTES),
                skills: vec![skill; skills],
                ..NewContainer::default()
            })
        };
        let container = |name: usize| {
            Op::AddContainer(NewContainer {
                id: "cntr_knack_a".to_owned(),
                name: "x".repeat(name),
                ..NewContainer::default()
            })
        };
        for (op, is_read) in [
            (Op::File("x".repeat(ID_MAX_BYTES)), true),
            (Op::File("x".repeat(ID_MAX_BYTES + 1)), false),
            (file(NAME_MAX_BYTES, TYPE_MAX_BYTES, WORD_MAX_BYTES), true),
            (file(NAME_MAX_BYTES + 1, 1, 1), false),
            (file(1, TYPE_MAX_BYTES + 1, 1), false),
            (file(1, 1, WORD_MAX_BYTES + 1), false),
            (made(PATH_MAX_BYTES, TYPE_MAX_BYTES), true),
            (made(PATH_MAX_BYTES + 1, 1), false),
            (made(1, TYPE_MAX_BYTES + 1), false),
            (container(NAME_MAX_BYTES), true),
            (container(NAME_MAX_BYTES + 1), false),
            (attached(SKILLS_MAX, WORD_MAX_BYTES), true),
            (attached(SKILLS_MAX + 1, 1), false),
            (attached(1, WORD_MAX_BYTES + 1), false),
        ] {
            let read = read_asked(&call_body(&[1; 32], op.clone(), &Bytes::new()).unwrap());
            assert_eq!(read.is_some(), is_read, "{op:?}");
        }
        for outcome in [
            Ok((Answer::Done, content)),
            Err(FilesRefusal::Missing("File", "a".to_owned())),
            Err(FilesRefusal::Missing("Container", "a".to_owned())),
            Err(FilesRefusal::Missing("Container file", "a".to_owned())),
            Err(FilesRefusal::Expired("a".to_owned())),
            Err(FilesRefusal::TooLarge("a".to_owned())),
            Err(FilesRefusal::Full("a".to_owned())),
            Err(FilesRefusal::Failed),
            Err(FilesRefusal::Busy),
        ] {
            assert_eq!(read_answered(&answered(outcome.clone())), Some(outcome));
        }
        assert_eq!(read_answered(&Bytes::from_static(b"<html>")), None);
    }
}
