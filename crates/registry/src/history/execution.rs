//! One execution, as a history stores it.

use knack_skill::digest::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::rfc3339;
use crate::model::Owner;

/// Bytes of an input as JSON: arguments of a model's call, of which the code of `run_code` is the largest.
const INPUT_MAX_BYTES: usize = 16 << 10;
/// Bytes of an output: as much as a model is shown of one.
const OUTPUT_MAX_BYTES: usize = 32 << 10;
/// Bytes of a text that says why a run failed.
const ERROR_MAX_BYTES: usize = 4 << 10;

/// The state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waiting for a free place.
    Pending,
    /// Started.
    Running,
    /// Ended with exit code 0.
    Success,
    /// Ended with another code or a signal, or never started.
    Error,
    /// Ended by its time limit.
    Timeout,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Success, Self::Error, Self::Timeout];

    /// The word of the API.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }

    /// The status of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Timeout)
    }
}

/// The skill of an execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutedSkill {
    /// The id of its row in the API.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The skill's own version.
    pub version: Option<String>,
    /// The digest of its files.
    pub digest: String,
    /// Whether it asks for values that may be granted; not kept.
    #[serde(skip)]
    pub asks_for_values: bool,
}

/// An execution in its state at the time of a note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// Its id; a later note of the same id replaces an earlier one.
    pub id: String,
    /// The caller.
    pub caller: Owner,
    /// `None`: code that a model wrote for no skill.
    pub skill: Option<ExecutedSkill>,
    /// The tool as it was called, `run_code` for code.
    pub tool: String,
    /// The session that an ad hoc run named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The id of the request.
    pub request: String,
    /// The arguments of the call, or the beginning of their JSON.
    pub input: Value,
    /// Its output, as JSON if it is JSON, or the beginning.
    pub output: Value,
    /// Whether input, output or error are cut.
    #[serde(default)]
    pub truncated: bool,
    /// Its state.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// From its start to its end, with all waiting.
    pub duration_ms: Option<u64>,
    /// Unix time in microseconds.
    pub created: i64,
    /// The claim is withdrawn: nothing was run, as if it had never been requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

impl Execution {
    /// Sets the input from the JSON of a call.
    #[must_use]
    pub fn with_input(mut self, json: &str) -> Self {
        self.input = self.bounded(json, INPUT_MAX_BYTES);
        self
    }

    /// Sets the output. The output of a program that failed does not count.
    #[must_use]
    pub fn with_output(mut self, text: &str) -> Self {
        self.output = self.bounded(text.trim_end(), OUTPUT_MAX_BYTES);
        self
    }

    /// Sets why it failed.
    #[must_use]
    pub fn with_error(mut self, text: &str) -> Self {
        let kept = beginning(text.trim_end(), ERROR_MAX_BYTES);
        self.truncated |= kept.len() < text.trim_end().len();
        self.error = Some(kept.to_owned());
        self
    }

    /// The text as JSON if it is JSON and small enough; else its beginning as text.
    fn bounded(&mut self, text: &str, most: usize) -> Value {
        let kept = beginning(text, most);
        if kept.len() < text.len() {
            self.truncated = true;
            return kept.into();
        }
        serde_json::from_str(text).unwrap_or_else(|_| text.into())
    }

    /// The execution as reported by an account: its caller is set to a client of that account. `None`: a gateway makes no such
    /// execution. A time out of range is replaced by the time of the report.
    pub(super) fn of_account(self, namespace: &str, account: &str, now: i64) -> Option<Self> {
        let client = self.caller.as_str();
        let is_hash = client.len() <= CLIENT_MAX && client.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = serde_json::to_vec(&self).ok()?.len();
        if !is_hash || bytes > NOTE_MAX_BYTES || self.id.is_empty() || self.id.len() > ID_MAX {
            return None;
        }
        let is_possible = (now - OLDEST_MICROS..=now + AHEAD_MICROS).contains(&self.created);
        Some(Self {
            caller: Owner::account(namespace, account, Some(client)),
            created: if is_possible { self.created } else { now },
            ..self
        })
    }

    /// The execution as claimed by an account, before it runs, with the time of the claim. `None`: a gateway makes no such execution.
    pub(super) fn claimed_by(self, namespace: &str, account: &str, now: i64) -> Option<Self> {
        let claimed = self.of_account(namespace, account, now)?;
        let is_claim = claimed.status == Status::Pending && !claimed.withdrawn && !claimed.request.is_empty();
        is_claim.then_some(Self {
            created: now,
            ..claimed
        })
    }

    /// Removes input and output: the skill asks for values that only the cluster knows, and any of these texts may
    /// contain one.
    #[must_use]
    pub fn withheld(self) -> Self {
        let error = self.error.is_some().then(|| WITHHELD.to_owned());
        Self {
            input: Value::Null,
            output: Value::Null,
            truncated: true,
            error,
            ..self
        }
    }

    /// Removes input and output.
    pub(super) fn slim(&self) -> Self {
        Self {
            input: Value::Null,
            output: Value::Null,
            truncated: true,
            ..self.clone()
        }
    }

    /// The record of an execution whose end was never reported.
    pub(crate) fn lost(&self) -> Self {
        Self {
            status: Status::Error,
            error: Some(LOST.to_owned()),
            ..self.clone()
        }
    }

    /// As the API shows it.
    #[must_use]
    pub fn shown(&self) -> Value {
        let skill = self.skill.as_ref();
        json!({
            "id": self.id, "apiKeyId": self.caller.shown(),
            "skillId": skill.map(|skill| &skill.id), "skillName": skill.map(|skill| &skill.name),
            "skillVersion": skill.map(|skill| &skill.version), "skillDigest": skill.map(|skill| &skill.digest),
            "tool": self.tool, "sessionId": self.session, "requestId": self.request,
            "input": self.input, "output": self.output, "truncated": self.truncated,
            "status": self.status.word(), "errorMessage": self.error, "durationMs": self.duration_ms,
            "createdAt": rfc3339(self.created),
        })
    }
}

/// The id for these parts: a UUID of version 8 from their hash, equal for equal parts.
pub(crate) fn id_of(parts: &Value) -> String {
    let hash = sha256(parts.to_string());
    let number = u128::from_str_radix(hash.get(..32).unwrap_or_default(), 16).unwrap_or_default();
    uuid::Builder::from_custom_bytes(number.to_be_bytes())
        .into_uuid()
        .to_string()
}

/// Replaces an error that may contain a granted value.
const WITHHELD: &str = "not kept: the skill of this tool is granted values";
/// Hex digits of the hash of a client.
const CLIENT_MAX: usize = 64;
/// Bytes of an id; a UUID has 36.
const ID_MAX: usize = 64;
/// Bytes of a reported note: input, output and error, each as large as it may be and JSON in JSON, and some for the rest.
const NOTE_MAX_BYTES: usize = 2 * (INPUT_MAX_BYTES + OUTPUT_MAX_BYTES + ERROR_MAX_BYTES) + (8 << 10);
/// The longest time from the start of a run to the report of its end: a gateway retries for as long as it lives.
const OLDEST_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// The largest difference between the clocks of two nodes.
const AHEAD_MICROS: i64 = 60 * 1_000_000;

/// The error of an execution that had not ended when the history was opened again.
const LOST: &str = "the process that ran it ended before it did, or before its end was recorded; whether the program did its work is not known";

/// At most so many bytes, cut between characters.
fn beginning(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}
