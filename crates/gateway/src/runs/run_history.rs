//! The notes of every run for a history that outlives the process, if there is one.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use knack_execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, ExecutionStatus, Executor, Exit,
};
use knack_skill::call::Render;
use knack_skill::model::Skill;
use knack_skill::texts::function_error;
use tokio_util::sync::CancellationToken;

use crate::model_calls::turn_store::KeyedHash;

/// A history of runs.
pub trait RunHistory: Debug + Send + Sync {
    /// Notes a run as it is now; the last note of an id counts. Never waits.
    fn note(&self, run: &RunNote);
    /// Notes that are missing in the history, since the start.
    fn dropped(&self) -> u64;
    /// Whether the start of a run is noted, too; whoever runs it is asked until it has started.
    fn wants_starts(&self) -> bool {
        true
    }
}

/// One run as it is now.
#[derive(Debug, Clone)]
pub struct RunNote {
    /// Execution id.
    pub id: String,
    /// The caller.
    pub caller: KeyedHash,
    /// Its skill; `None`: code for none.
    pub skill: Option<Arc<Skill>>,
    /// The tool as it was called.
    pub tool: String,
    /// The request that caused it.
    pub request_id: String,
    /// The arguments as JSON.
    pub input: String,
    /// The run's output.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The run's state.
    pub status: ExecutionStatus,
    /// From its beginning to its end.
    pub(crate) duration: Option<Duration>,
    /// When it was called.
    pub begun: jiff::Timestamp,
}

/// The placeholder of a granted value.
const HIDDEN: &str = "[granted value]";
/// A shorter granted value is no secret, and hiding it would make a text unreadable.
const HIDDEN_MIN_BYTES: usize = 4;

/// Pauses between polls of a run that has not started, the last one again and again: most runs have ended by then.
const POLL_PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

/// Why runs end before they have a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EarlyEnd {
    /// Their client disconnected, or cancelled the request.
    #[default]
    Left,
    /// Their request reached its deadline.
    Deadline,
    /// The gateway stopped.
    Shutdown,
}

impl EarlyEnd {
    /// The status of such a run, in logs and metrics.
    pub(crate) const fn status(self) -> &'static str {
        match self {
            Self::Deadline => ExecutionStatus::Timeout.as_str(),
            Self::Left | Self::Shutdown => "cancelled",
        }
    }

    /// Status and error in the history, which has no status of its own for a run that was cancelled.
    const fn noted(self) -> (ExecutionStatus, &'static str) {
        match self {
            Self::Left => (
                ExecutionStatus::Error,
                "ended: its client disconnected or cancelled the request",
            ),
            Self::Deadline => (ExecutionStatus::Timeout, "ended: its request reached its deadline"),
            Self::Shutdown => (ExecutionStatus::Error, "ended: the gateway stopped"),
        }
    }
}

/// Why the runs of one request end early. Set before they are dropped; the default is [`EarlyEnd::Left`].
#[derive(Debug, Clone, Default)]
pub(crate) struct EarlyEnds(Arc<OnceLock<EarlyEnd>>);

impl EarlyEnds {
    /// Says why; the first word counts.
    pub(crate) fn set(&self, end: EarlyEnd) {
        let _ = self.0.set(end);
    }

    /// The reason that was set.
    pub(crate) fn get(&self) -> EarlyEnd {
        self.0.get().copied().unwrap_or_default()
    }
}

/// A run that is noted: waiting now, and as ended in any case.
#[derive(Debug)]
pub(crate) struct NotedRun {
    history: Arc<dyn RunHistory>,
    run: RunNote,
    is_function: bool,
    granted: Vec<String>,
    begun: tokio::time::Instant,
    early: EarlyEnds,
    has_ended: bool,
}

impl NotedRun {
    /// Notes that a run waits. `render`: what its program writes where. `granted`: values that are never noted. `early`: why it
    /// ends, if it is dropped.
    pub(crate) fn begin(
        history: Arc<dyn RunHistory>,
        mut run: RunNote,
        render: Render,
        granted: Vec<String>,
        early: EarlyEnds,
    ) -> Self {
        run.input = hidden(&run.input, &granted);
        history.note(&run);
        Self {
            history,
            run,
            is_function: matches!(render, Render::Function { .. }),
            granted,
            begun: tokio::time::Instant::now(),
            early,
            has_ended: false,
        }
    }

    fn started(&mut self) {
        self.run.status = ExecutionStatus::Running;
        self.history.note(&self.run);
    }

    /// Notes how it ended.
    pub(crate) fn end(mut self, result: &Result<Arc<ExecutionResult>, ExecutionError>) {
        let (status, output, error) = match result {
            Ok(result) => ended(result, self.is_function),
            Err(ExecutionError::Cancelled) => {
                let (status, text) = self.early.get().noted();
                (status, None, Some(text.to_owned()))
            }
            Err(error) => (ExecutionStatus::Error, None, Some(error.to_string())),
        };
        self.finish(status, output, error);
    }

    fn finish(&mut self, status: ExecutionStatus, output: Option<String>, error: Option<String>) {
        let hide = |text: String| hidden(&text, &self.granted);
        self.run.status = status;
        self.run.output = output.filter(|text| !text.is_empty()).map(hide);
        self.run.error = error.map(hide);
        self.run.duration = Some(self.begun.elapsed());
        self.has_ended = true;
        self.history.note(&self.run);
    }
}

/// A run that nobody waits for is dropped, and ends.
impl Drop for NotedRun {
    fn drop(&mut self) {
        if !self.has_ended {
            let (status, text) = self.early.get().noted();
            self.finish(status, None, Some(text.to_owned()));
        }
    }
}

/// Executes a request, and notes when it starts.
pub(crate) async fn execute(
    executor: &dyn Executor,
    request: ExecutionRequest,
    cancel: CancellationToken,
    noted: Option<&mut NotedRun>,
) -> Result<Arc<ExecutionResult>, ExecutionError> {
    let Some(noted) = noted.filter(|noted| noted.history.wants_starts()) else {
        return executor.execute(request, cancel).await;
    };
    let (caller, id): (String, ExecutionId) = (request.caller.clone(), request.id);
    let mut run = executor.execute(request, cancel);
    let last = POLL_PAUSES.last().copied().unwrap_or_default();
    for wait in POLL_PAUSES.into_iter().chain(std::iter::repeat(last)) {
        if let Ok(result) = tokio::time::timeout(wait, &mut run).await {
            return result;
        }
        let record = executor.get(&caller, id).await;
        if record.is_ok_and(|record| record.status == ExecutionStatus::Running) {
            noted.started();
            break;
        }
    }
    run.await
}

/// Status, output and error of a run. A function that did not return has no output: its program writes the text of an error to
/// standard output, and what the function printed, with the traceback, to standard error.
fn ended(result: &ExecutionResult, is_function: bool) -> (ExecutionStatus, Option<String>, Option<String>) {
    let (status, stdout) = (result.status(), result.stdout.text());
    if !is_function || status == ExecutionStatus::Success {
        return (status, Some(stdout.into_owned()), why(result));
    }
    let code = match result.exit {
        Exit::Code(code) => Some(code),
        _ => None,
    };
    let error = match function_error(code, &stdout) {
        Some(error) => Some(error.to_owned()),
        None if status == ExecutionStatus::Timeout => Some(TIMED_OUT.to_owned()),
        None => why(result),
    };
    (status, None, error)
}

/// Why a run failed that was ended by its time limit and says nothing else.
const TIMED_OUT: &str = "it reached its time limit";

fn why(result: &ExecutionResult) -> Option<String> {
    let text = stderr_text(result);
    match result.status() {
        ExecutionStatus::Success => None,
        ExecutionStatus::Timeout if text.is_empty() => Some(TIMED_OUT.to_owned()),
        _ if text.is_empty() => Some(format!("exit code {}", result.exit.code())),
        _ => Some(text),
    }
}

/// The program's standard error, and why the sandbox ended it.
pub(crate) fn stderr_text(result: &ExecutionResult) -> String {
    let mut text = result.stderr.text().into_owned();
    let reason = match result.exit {
        Exit::OutputLimit => "ended by the sandbox: too much output",
        Exit::DiskLimit => "ended by the sandbox: too many files or bytes written",
        Exit::ProcessLimit => "ended by the sandbox: too many processes",
        Exit::Code(_) | Exit::Signal(_) | Exit::Timeout | Exit::OutOfMemory => return text,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(reason);
    text
}

/// A text without granted values, as they are and as JSON writes them.
fn hidden(text: &str, granted: &[String]) -> String {
    let mut text = text.to_owned();
    for value in granted.iter().filter(|value| value.len() >= HIDDEN_MIN_BYTES) {
        let json = serde_json::Value::from(value.as_str()).to_string();
        let inner = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        for form in [value.as_str(), inner] {
            text = text.replace(form, HIDDEN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use knack_execution::Stream;
    use knack_execution::fixture::mk_result;

    use super::*;

    fn result(exit: Exit, stdout: &'static str, stderr: &'static str) -> ExecutionResult {
        let id = ExecutionId::new(Duration::ZERO, "request", 0, "call");
        let stderr = Stream {
            bytes: stderr.into(),
            truncated: false,
        };
        ExecutionResult {
            stderr,
            ..mk_result(id, exit, stdout)
        }
    }

    #[test]
    fn a_failed_run_says_why_and_a_failed_function_has_no_output() {
        use ExecutionStatus::{Error, Success, Timeout};
        const FUNCTION: bool = true;
        for (is_function, exit, stdout, stderr, expected) in [
            (FUNCTION, Exit::Code(0), "7", "printed", (Success, Some("7"), None)),
            // The harness writes the text of the error to standard output.
            (
                FUNCTION,
                Exit::Code(1),
                "ValueError: x\n",
                "traceback",
                (Error, None, Some("ValueError: x")),
            ),
            (
                FUNCTION,
                Exit::Code(1),
                "",
                "traceback",
                (Error, None, Some("traceback")),
            ),
            (FUNCTION, Exit::Code(3), "", "", (Error, None, Some("exit code 3"))),
            // Neither what it printed nor the exit code of a timeout is the reason.
            (FUNCTION, Exit::Timeout, "", "printed", (Timeout, None, Some(TIMED_OUT))),
            (FUNCTION, Exit::Timeout, "half", "", (Timeout, None, Some(TIMED_OUT))),
            (
                FUNCTION,
                Exit::OutOfMemory,
                "",
                "",
                (Error, None, Some("exit code 137")),
            ),
            (
                FUNCTION,
                Exit::DiskLimit,
                "",
                "printed",
                (
                    Error,
                    None,
                    Some("printed\nended by the sandbox: too many files or bytes written"),
                ),
            ),
            (!FUNCTION, Exit::Code(0), "7", "printed", (Success, Some("7"), None)),
            (
                !FUNCTION,
                Exit::Code(1),
                "half",
                "traceback",
                (Error, Some("half"), Some("traceback")),
            ),
            (
                !FUNCTION,
                Exit::Timeout,
                "half",
                "",
                (Timeout, Some("half"), Some(TIMED_OUT)),
            ),
            (
                !FUNCTION,
                Exit::Timeout,
                "half",
                "printed",
                (Timeout, Some("half"), Some("printed")),
            ),
        ] {
            let (status, output, error) = ended(&result(exit, stdout, stderr), is_function);
            assert_eq!(
                (status, output.as_deref(), error.as_deref()),
                expected,
                "{exit:?} {stdout:?} {stderr:?}"
            );
        }
    }

    #[test]
    fn granted_values_are_hidden_in_every_form() {
        let granted = ["se\"cret".to_owned(), "abc".to_owned(), "token-1".to_owned()];
        for (text, expected) in [
            ("token-1 and token-1", "[granted value] and [granted value]"),
            (r#"{"a": "se\"cret"}"#, r#"{"a": "[granted value]"}"#),
            ("se\"cret", "[granted value]"),
            ("abc", "abc"),
        ] {
            assert_eq!(hidden(text, &granted), expected);
        }
    }
}
