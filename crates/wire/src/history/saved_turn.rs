//! The saved turn of one answer: the upstream messages that the client did not see.
//!
//! A saved turn is a value in memory. Where it leaves the process it is JSON, by serde: a reader whose saved turn has other members
//! takes it for a miss, which is always valid. Skill texts are not in a saved turn: a load result keeps its place and the
//! reference `Load`, and the text is rendered again when the saved turn is used, so a store holds no skill content and a
//! saved turn stays small.

use serde::{Deserialize, Serialize};

use crate::drive::OpenCall;
use crate::json::{self, Span};
use crate::stored::{SentRun, StoredForm};

/// Largest saved turn, in bytes ([`SavedTurn::size`]). Ten rounds of results of 24 KiB fit; the messages of a bigger loop are not
/// remembered, which is a miss and never an error.
pub const MAX_SAVED_BYTES: usize = 256 << 10;

/// A part of an upstream message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// Bytes of the message as they went upstream.
    Raw(String),
    /// The text of a load result: the caller's reference ({skill, digest, path, inputs} in its own notation), rendered
    /// again and escaped into the JSON string around it.
    Load(String),
}

/// A whole upstream message, item or block: its segments in order.
pub type SavedMessage = Vec<Segment>;

/// A file that a run of this answer made. The bytes are with the gateway's files, under the response id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileNote {
    /// Path relative to the work directory.
    pub name: String,
    /// SHA-256 of the bytes, lower-case hex.
    pub sha256: String,
    /// Id of the response that delivered it.
    pub response_id: String,
}

/// Everything that is restored when the client sends the visible part of an answer again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTurn {
    /// Upstream messages of the whole loop in order, including Knack's results. They replace the visible assistant message.
    pub messages: Vec<SavedMessage>,
    /// Knack's results that belong into the client's next message, before its own results (Messages
    /// and Gemini, where all results of a turn share one message). In Responses they are in `messages` too, and are needed
    /// alone where the upstream keeps the turn. Empty in Chat.
    pub open_results: Vec<SavedMessage>,
    /// Ids of the calls that the client has to answer.
    pub client_calls: Vec<String>,
    /// Knack's calls at the end that have not run, since the limit of rounds was reached. They run if the client resumes
    /// the answer; if it says something else instead, `open_results` refuse them.
    pub open_calls: Vec<OpenCall>,
    /// True if `messages` begin with the results of the calls that the answer before left open.
    pub resumes: bool,
    /// Files that the answer's runs made.
    pub files: Vec<FileNote>,
    /// The id under which the upstream keeps the state after the whole answer (Responses, Chat). Empty while the loop runs.
    pub state: String,
    /// What a client sees that reads the answer by its id, where the upstream keeps it (Responses, Chat). The saved turn of a turn
    /// has only what later answers hide, too (Responses), and saved turns of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredForm>,
}

impl Segment {
    fn size(&self) -> usize {
        let (Self::Raw(text) | Self::Load(text)) = self;
        size_of::<Self>() + text.len()
    }

    /// Cuts the text of a load result out of the message that carried it, leaving the reference.
    ///
    /// `message` is JSON as it went upstream and `text` the rendered load before escaping. A message in which the text
    /// is not found stays whole: the saved turn is bigger, and still right.
    pub(crate) fn cut(message: &str, text: &str, reference: &str) -> SavedMessage {
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

impl SavedTurn {
    /// What is needed of it by the id of its answer, which is shown so: the upstream has the messages.
    pub(super) fn of_id(&self, stored: Option<StoredForm>) -> Self {
        Self {
            messages: Vec::new(),
            open_results: self.open_results.clone(),
            client_calls: self.client_calls.clone(),
            open_calls: self.open_calls.clone(),
            resumes: self.resumes,
            files: self.files.clone(),
            state: self.state.clone(),
            stored,
        }
    }

    /// Whether its loop still ran, or had shown no answer, when it was written: an answer that ended has a state where the
    /// upstream keeps it.
    pub fn is_provisional(&self) -> bool {
        self.state.is_empty() && self.stored.is_some()
    }

    /// What its messages hide where it has no form, since the upstream did not keep the answer: Knack's calls by their call
    /// ids, and the reasoning before them by its own (Responses).
    pub fn hides(&self) -> StoredForm {
        let mut hidden = Vec::new();
        let mut reasoning = None;
        for message in &self.messages {
            // One of several segments is a result, and its call is before it.
            let [Segment::Raw(raw)] = message.as_slice() else {
                continue;
            };
            let item = Span::new(0, raw.len());
            let text = |key| {
                json::get_text(raw.as_bytes(), item, key)
                    .unwrap_or_default()
                    .into_owned()
            };
            let before = reasoning.take();
            match &*text("type") {
                "reasoning" => reasoning = Some(text("id")),
                "function_call" if !self.client_calls.contains(&text("call_id")) => {
                    hidden.extend(before);
                    hidden.push(text("call_id"));
                }
                _ => {}
            }
        }
        hidden.retain(|id| !id.is_empty());
        StoredForm {
            hidden,
            ..StoredForm::default()
        }
    }

    /// Has these runs listed with what the answer was asked with, if there is room for all of them in what is shown by the
    /// answer's id and in the saved turn.
    pub fn list_runs(&mut self, runs: &[SentRun]) {
        if let Some(stored) = &mut self.stored {
            stored.list_runs(runs);
        }
        if self.size() > MAX_SAVED_BYTES
            && let Some(stored) = &mut self.stored
        {
            stored.runs = Vec::new();
        }
    }

    /// Bytes that it takes: those of its texts, and of the values around them.
    pub fn size(&self) -> usize {
        let pieces = self.messages.iter().chain(&self.open_results);
        let pieces = pieces.map(|piece| size_of::<SavedMessage>() + piece.iter().map(Segment::size).sum::<usize>());
        let ids = self.client_calls.iter().map(|id| size_of::<String>() + id.len());
        let calls = self
            .open_calls
            .iter()
            .map(|OpenCall { id, name, arguments }| size_of::<OpenCall>() + id.len() + name.len() + arguments.len());
        let files = self.files.iter().map(
            |FileNote {
                 name,
                 sha256,
                 response_id,
             }| { size_of::<FileNote>() + name.len() + sha256.len() + response_id.len() },
        );
        let stored = self.stored.as_ref().map_or(0, StoredForm::size);
        pieces.chain(ids).chain(calls).chain(files).sum::<usize>() + self.state.len() + stored
    }
}
