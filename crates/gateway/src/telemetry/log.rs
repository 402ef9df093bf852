//! The log of a request and of its executions.

use std::fmt::Write as _;
use std::time::Duration;

use super::execution_note::ExecutionNote;
use super::skill_metrics::SkillUse;
use super::timeline::Timeline;

/// The format of requests to the Files APIs.
pub(crate) const FILES_API: &str = "files";
/// The format of requests to the Skills APIs.
pub(crate) const SKILLS_API: &str = "skills";
/// The format of requests of MCP: calls of tools as of models, and the others as of an API of the gateway's own.
pub const MCP: &str = "mcp";
/// The status that nginx uses for a client that left before an answer.
const CLIENT_LEFT: u16 = 499;

/// The reported facts of one request.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
pub struct RequestLog {
    /// The gateway's own id.
    pub request_id: String,
    /// When its head came in.
    pub begun: jiff::Timestamp,
    /// Wire format word, or `proxy`.
    pub format: &'static str,
    /// An API of the gateway's own was asked: nothing was added.
    pub(crate) is_own: bool,
    /// What it is for: the model asked for; of a call without a model its tool; of a request that is passed on its path; of an API of
    /// the gateway's own what was asked. Logs and `knack trace` call it the model.
    pub subject: String,
    /// Whether the client streams.
    pub stream: bool,
    /// HTTP status of the answer.
    pub status: u16,
    /// Revision of the catalog that serves it.
    pub revision: String,
    /// Skills whose body was in the system text, as `name (why)`.
    pub skills: Vec<String>,
    /// Skills offered by the listing.
    pub listed: usize,
    /// Tokens that the injection added.
    pub added_tokens: usize,
    /// Upstream rounds.
    pub rounds: u32,
    /// Round 1 was sent again in another form, since the provider refused what the gateway had added.
    pub sent_first_again: bool,
    /// Runs of skill code.
    pub executions: Vec<ExecutionNote>,
    /// Uses of skills, for metrics.
    pub uses: Vec<SkillUse>,
    /// Rounds and calls with their times.
    pub(crate) timeline: Timeline,
    /// Files that were delivered, and where they were written.
    pub files: Vec<String>,
    /// Why something was not as a person might expect.
    pub notes: Vec<String>,
    /// How it ended, if not with an answer.
    pub end: Option<String>,
    /// The answer ended with an error after a head that says success.
    pub(crate) broken: bool,
    /// From the request's head to the answer's end.
    pub(crate) duration: Duration,
}

impl RequestLog {
    /// The answer was dropped before its end: by its client, or by the gateway at the end of its drain (`is_cut`).
    pub(crate) fn dropped(&mut self, is_cut: bool) {
        let (end, status) = if is_cut {
            ("shutdown", 503)
        } else {
            ("client left", CLIENT_LEFT)
        };
        self.end = Some(end.to_owned());
        // Nothing was sent.
        if self.status == 0 {
            self.status = status;
        }
    }

    /// Removes what the plan of the request added to it: the provider refused these tools, and the request was sent without them.
    pub(crate) fn remove_skills(&mut self) {
        self.skills.clear();
        self.uses.clear();
        (self.listed, self.added_tokens) = (0, 0);
        self.notes
            .push("sent without skills: the provider refused their tools or text".to_owned());
    }

    /// The console line. A person reads it at night: the important part first, details behind.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{} {} {}",
            self.status,
            self.format,
            if self.subject.is_empty() { "-" } else { &self.subject }
        );
        if self.is_own {
            if let Some(end) = &self.end {
                let _ = write!(line, " | {end}");
            }
            let _ = write!(line, " | {} ms {}", self.duration.as_millis(), self.request_id);
            return line;
        }
        if self.stream {
            line.push_str(" stream");
        }
        let _ = write!(
            line,
            " | skills: {}",
            if self.skills.is_empty() {
                "none".to_owned()
            } else {
                self.skills.join(", ")
            }
        );
        if self.listed > 0 {
            let _ = write!(line, " + {} listed", self.listed);
        }
        let _ = write!(
            line,
            " | +{} tokens | {} {}",
            self.added_tokens,
            self.rounds,
            if self.rounds == 1 { "round" } else { "rounds" }
        );
        for run in &self.executions {
            let skill = if run.skill.is_empty() {
                "run_code"
            } else {
                run.skill.as_str()
            };
            let _ = write!(
                line,
                " | {skill}: {} {} {} ms",
                run.status,
                run.start,
                run.duration.as_millis()
            );
        }
        for file in &self.files {
            let _ = write!(line, " | file {file}");
        }
        if let Some(end) = &self.end {
            let _ = write!(line, " | {end}");
        }
        for note in &self.notes {
            let _ = write!(line, " | {note}");
        }
        let _ = write!(line, " | {} ms {}", self.duration.as_millis(), self.request_id);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::execution_note::CallId;

    #[test]
    fn the_line_of_an_api_of_our_own_has_no_model_and_no_skills() {
        let log = RequestLog {
            request_id: "id".to_owned(),
            format: FILES_API,
            is_own: true,
            subject: "POST /v1/files".to_owned(),
            status: 200,
            duration: Duration::from_millis(3),
            ..RequestLog::default()
        };
        assert_eq!(log.line(), "200 files POST /v1/files | 3 ms id");
        let mut left = RequestLog { status: 0, ..log };
        left.dropped(false);
        assert_eq!(left.line(), "499 files POST /v1/files | client left | 3 ms id");
    }

    #[test]
    fn the_line_names_skills_rounds_runs_and_reasons() {
        let log = RequestLog {
            request_id: "id".to_owned(),
            format: "chat",
            subject: "gpt-x".to_owned(),
            status: 200,
            skills: vec!["ball (always)".to_owned()],
            listed: 2,
            added_tokens: 90,
            rounds: 2,
            executions: vec![ExecutionNote {
                id: "e".to_owned(),
                call: CallId { round: 1, token: 0 },
                skill: "default/ball".to_owned(),
                status: "success",
                start: "warm",
                queued: None,
                program: None,
                duration: Duration::from_millis(4),
            }],
            notes: vec!["skill x: capped".to_owned()],
            duration: Duration::from_millis(12),
            ..RequestLog::default()
        };
        assert_eq!(
            log.line(),
            "200 chat gpt-x | skills: ball (always) + 2 listed | +90 tokens | 2 rounds | default/ball: success warm 4 ms | skill x: capped | 12 ms id"
        );
    }
}
