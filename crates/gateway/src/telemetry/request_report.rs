//! The report of one request after its end: skills, rounds, calls, runs and their times, and nothing of its content.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

use super::log::RequestLog;
use super::timeline::{Step, millis};

/// Longest name that is kept, bytes: a client chooses the model's, and it may be as long as a body.
const NAME_MAX_BYTES: usize = 200;
/// Names of one request that are kept of each kind (skills, notes).
const NAMES_MAX: usize = 64;

/// One request, as `knack trace` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// The request's id, as in `x-knack-request-id`, the log, the spans and the exemplars.
    pub request_id: String,
    /// When its head came in: RFC 3339, UTC. It becomes text on demand.
    #[serde(serialize_with = "in_milliseconds")]
    pub begun: jiff::Timestamp,
    /// Milliseconds from its head to the end of its answer.
    pub took_ms: u64,
    /// `chat`, `messages`, `responses`, `gemini`, or `proxy` for a request that was passed on untouched.
    pub format: Cow<'static, str>,
    /// Model asked for.
    pub model: String,
    /// Whether the client streams.
    pub stream: bool,
    /// HTTP status of the answer.
    pub status: u16,
    /// How it ended, if not with an answer.
    pub end: Option<String>,
    /// Revision of the catalog that served it.
    pub revision: String,
    /// Skills whose instructions were in the system text, as `name (why)`.
    pub skills: Vec<String>,
    /// Skills that were offered by the listing.
    pub listed: usize,
    /// Estimated tokens (bytes / 4) that the injection added.
    pub added_tokens: usize,
    /// Files that runs made.
    pub files: usize,
    /// Why something was not as a person might expect.
    pub notes: Vec<String>,
    /// Rounds and calls, in the order of their begins.
    pub steps: Vec<Step>,
    /// Further steps, which were not kept.
    pub steps_left_out: usize,
}

impl From<RequestLog> for RequestReport {
    /// The report of a finished request.
    fn from(log: RequestLog) -> Self {
        let (mut steps, steps_left_out) = log.timeline.finish(&log.uses, &log.executions, log.duration);
        for step in &mut steps {
            if let Step::Call { tool, .. } = step {
                cut(tool);
            }
        }
        // It is kept for long.
        steps.shrink_to_fit();
        Self {
            request_id: log.request_id,
            begun: log.begun,
            took_ms: millis(log.duration),
            format: log.format.into(),
            model: shortened(log.subject),
            stream: log.stream,
            status: log.status,
            end: log.end.map(shortened),
            revision: log.revision,
            skills: some(log.skills),
            listed: log.listed,
            added_tokens: log.added_tokens,
            files: log.files.len(),
            notes: some(log.notes),
            steps,
            steps_left_out,
        }
    }
}

impl RequestReport {
    /// Memory that it takes: itself and what its texts and lists have allocated, without what the allocator adds.
    pub fn bytes(&self) -> usize {
        let texts = [&self.request_id, &self.model, &self.revision];
        let texts: usize = texts.into_iter().chain(&self.end).map(String::capacity).sum();
        let lists = [&self.skills, &self.notes];
        let names: usize = lists
            .into_iter()
            .map(|list| list.capacity() * size_of::<String>() + list.iter().map(String::capacity).sum::<usize>())
            .sum();
        let steps = self.steps.capacity() * size_of::<Step>() + self.steps.iter().map(Step::allocated).sum::<usize>();
        size_of::<Self>() + texts + names + steps
    }
}

/// Three digits, as logs have them.
fn in_milliseconds<S: Serializer>(time: &jiff::Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.3}"))
}

fn some(mut names: Vec<String>) -> Vec<String> {
    names.truncate(NAMES_MAX);
    names.shrink_to_fit();
    names.iter_mut().for_each(cut);
    names
}

fn shortened(mut text: String) -> String {
    cut(&mut text);
    text
}

/// Shortens a text that is too long, and gives back its memory.
fn cut(text: &mut String) {
    if text.len() > NAME_MAX_BYTES {
        *text = cut_copy(text);
    }
}

/// A text that others choose, as logs and spans have it: as it is, or its begin.
pub fn cut_copy(text: &str) -> String {
    if text.len() > NAME_MAX_BYTES {
        format!("{}…", &text[..text.floor_char_boundary(NAME_MAX_BYTES)])
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_bounded() {
        let log = RequestLog {
            subject: "ä".repeat(1 << 20),
            skills: vec!["s".repeat(1 << 10); 1 << 10],
            ..RequestLog::default()
        };
        let report = RequestReport::from(log);
        assert!(report.bytes() < 32 << 10, "{}", report.bytes());
        assert!(report.model.ends_with('…'), "{}", report.model);
    }

    #[test]
    fn its_begin_is_written_in_milliseconds() {
        let log = RequestLog {
            begun: "2026-11-23T16:20:01.5006Z".parse().unwrap(),
            ..RequestLog::default()
        };
        let text = serde_json::to_string(&RequestReport::from(log.clone())).unwrap();
        assert!(text.contains(r#""begun":"2026-11-23T16:20:01.500Z""#), "{text}");
        let read: RequestReport = serde_json::from_str(&text).unwrap();
        assert_eq!(read.begun.as_millisecond(), log.begun.as_millisecond());
    }

    #[test]
    fn its_bytes_are_at_least_those_of_what_it_holds() {
        let mut log = RequestLog {
            request_id: "i".repeat(36),
            subject: "m".repeat(100),
            end: Some("e".repeat(50)),
            revision: "r".repeat(12),
            skills: vec!["s".repeat(30); 3],
            notes: vec!["n".repeat(60); 2],
            ..RequestLog::default()
        };
        let without_steps = RequestReport::from(log.clone()).bytes();
        assert!(without_steps > size_of::<RequestReport>() + 36 + 100 + 50 + 12 + 3 * 30 + 2 * 60);
        for round in 1..=100 {
            log.timeline.sent(round, std::time::Duration::ZERO);
            log.timeline.over(Some("broken"), std::time::Duration::ZERO);
        }
        let with_steps = RequestReport::from(log.clone()).bytes();
        assert!(
            with_steps >= without_steps + 100 * (size_of::<Step>() + "broken".len()),
            "{with_steps}"
        );
    }
}
