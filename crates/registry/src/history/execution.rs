//! One execution, as a history stores it.

use knack_skill::digest::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::rfc3339;
use crate::owner::Owner;

/// Bytes of an input as JSON: arguments of a model's call, of which the code of `run_code` is the largest.
const INPUT_MAX_BYTES: usize = 16 << 10;
/// Bytes of an output: as much as a model is shown of one.
const OUTPUT_MAX_BYTES: usize = 32 << 10;
/// Characters of an output in the answer to the program that asked for the run, as OmniRoute returns them.
const ANSWER_MAX_CHARS: usize = 100_000;
/// Bytes of an output in that answer.
const ANSWER_MAX_BYTES: usize = 4 * ANSWER_MAX_CHARS;
/// Bytes of a text that says why a run failed.
const ERROR_MAX_BYTES: usize = 4 << 10;

/// The state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waiting for a permit.
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
    /// The skill's name.
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
    /// What differs between two requests under one idempotency key. `None`: it had no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The arguments of the call, or the beginning of their JSON.
    pub input: Value,
    /// Its output, as JSON if it is JSON, or the beginning.
    pub output: Value,
    /// Whether input, output or error are cut.
    #[serde(default)]
    pub truncated: bool,
    /// The state of the execution.
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

    /// Sets the output within the bound of an answer to a program, which nothing stores.
    #[must_use]
    pub(crate) fn with_whole_output(mut self, text: &str) -> Self {
        let text = text.trim_end();
        let cut = text.char_indices().nth(ANSWER_MAX_CHARS);
        self.output = self.bounded(text, cut.map_or(ANSWER_MAX_BYTES, |(at, _)| at));
        self
    }

    /// Sets why it failed.
    #[must_use]
    pub fn with_error(mut self, text: &str) -> Self {
        let kept = writable(beginning(text.trim_end(), ERROR_MAX_BYTES), ERROR_MAX_BYTES);
        self.truncated |= kept.len() < text.trim_end().len();
        self.error = Some(kept.to_owned());
        self
    }

    /// The text as JSON if it is JSON that can be kept as such; else its beginning as text.
    fn bounded(&mut self, text: &str, most: usize) -> Value {
        let kept = beginning(text, most);
        if kept.len() == text.len()
            && let Ok(value) = serde_json::from_str(text)
            && is_keepable(&value, most)
        {
            return value;
        }
        let kept = writable(kept, most);
        self.truncated |= kept.len() < text.len();
        kept.into()
    }

    /// The execution as reported by an account: its caller is set to a client of that account. `None`: a gateway makes no such
    /// execution. A time out of range is replaced by the time of the report.
    pub(super) fn of_account(self, namespace: &str, account: &str, now: i64) -> Option<Self> {
        let client = self.caller.text();
        let is_hash = client.len() <= CLIENT_MAX && client.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = serde_json::to_vec(&self).ok()?.len();
        let has_ids = (1..=ID_MAX).contains(&self.id.len())
            && self
                .fingerprint
                .as_ref()
                .is_none_or(|fingerprint| fingerprint.len() <= ID_MAX);
        if !is_hash || bytes > NOTE_MAX_BYTES || !has_ids {
            return None;
        }
        let is_possible = (now - OLDEST_MICROS..=now + AHEAD_MICROS).contains(&self.created);
        Some(Self {
            caller: Owner::account(namespace, account, Some(&client)),
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

    /// Whether it is the record of an execution whose end was never reported.
    pub(crate) fn is_lost(&self) -> bool {
        self.error.as_deref() == Some(LOST)
    }

    /// Whether two executions of one idempotency key are of different requests.
    pub(crate) fn is_other_request(&self, other: Option<&str>) -> bool {
        let fingerprints = self.fingerprint.as_deref().zip(other);
        fingerprints.is_some_and(|(own, other)| own != other)
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

/// Levels of JSON that are kept as JSON. A line, a report and an answer have some around it, and a reader takes 127 in all.
const DEPTH_MAX: usize = 64;
/// A text may grow to so many times its bound when it is written as JSON, which [`NOTE_MAX_BYTES`] counts on.
const WRITTEN_TIMES: usize = 2;

/// Whether JSON may be kept as such: a reader takes it, and it is not much longer than it was sent (`9e15` is 18 digits).
fn is_keepable(value: &Value, most: usize) -> bool {
    has_depth(value, DEPTH_MAX) && value.to_string().len() <= WRITTEN_TIMES * most
}

/// Whether a value has at most so many levels. No deeper than what was parsed, which has 127.
fn has_depth(value: &Value, most: usize) -> bool {
    let within = |inner: &Value| has_depth(inner, most.saturating_sub(1));
    match value {
        Value::Array(items) => most > 0 && items.iter().all(within),
        Value::Object(members) => most > 0 && members.values().all(within),
        _ => true,
    }
}

/// The beginning of a text that takes at most [`WRITTEN_TIMES`] so many bytes as a string of JSON: control characters take six.
fn writable(text: &str, most: usize) -> &str {
    let mut written = 0;
    let end = text.char_indices().find(|(_, character)| {
        written += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..'\u{20}' => 6,
            other => other.len_utf8(),
        };
        written > WRITTEN_TIMES * most
    });
    end.map_or(text, |(at, _)| text.get(..at).unwrap_or_default())
}

/// At most so many bytes, cut between characters.
fn beginning(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution() -> Execution {
        let execution = json!({
            "id": "a", "caller": "11", "skill": null, "tool": "t", "request": "r", "input": null, "output": null,
            "status": "success", "error": null, "durationMs": 1, "created": 1,
        });
        serde_json::from_value(execution).unwrap()
    }

    fn read_back(execution: &Execution) -> Option<Execution> {
        serde_json::from_str(&serde_json::to_string(execution).unwrap()).ok()
    }

    /// A program chooses its output: what a reader of the line does not take would make the lists of its caller fail.
    #[test]
    fn json_of_any_depth_is_kept_so_that_it_can_be_read_again() {
        for depth in [1, DEPTH_MAX, DEPTH_MAX + 1, 126, 127, 128, 200] {
            for (open, inner, close) in [("[", "", "]"), ("{\"a\":", "1", "}")] {
                let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
                let kept = execution().with_output(&text).with_input(&text);
                assert_eq!(kept.output.is_string(), depth > DEPTH_MAX, "{depth}");
                assert_eq!(kept.input, kept.output);
                assert!(!kept.truncated);
                assert_eq!(read_back(&kept).as_ref(), Some(&kept), "{depth}");
            }
        }
    }

    /// What a gateway notes is what the registry takes, whatever the texts are.
    #[test]
    fn texts_that_grow_as_json_are_cut_so_that_a_report_of_them_is_taken() {
        for text in [
            "[9e15".to_owned() + &",9e15".repeat(6_000) + "]",
            "\u{1b}".repeat(OUTPUT_MAX_BYTES),
            "\"\n".repeat(OUTPUT_MAX_BYTES),
            "\u{7f}ü".repeat(OUTPUT_MAX_BYTES),
        ] {
            let kept = execution().with_input(&text).with_output(&text).with_error(&text);
            assert!(kept.output.is_string() && kept.truncated, "{text:.20}");
            let taken = kept.of_account("team", "app", 1);
            assert!(taken.is_some(), "{text:.20}");
        }
        let small = execution().with_output("\u{1b}[1mtext").with_input("[9e15]");
        assert!(!small.truncated && small.output.is_string() && small.input.is_array());
    }
}
