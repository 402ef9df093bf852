//! The inputs and the actions of the loop.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::stored::StoredForm;

/// Inputs of the loop.
#[derive(Debug)]
pub enum DriveInput {
    /// The head of the upstream's answer to the last [`DriveAction::Send`].
    Head(AnswerHead),
    /// Bytes of the upstream's body, decompressed, in any pieces.
    Body(Bytes),
    /// The upstream's body is complete.
    End,
    /// The upstream failed: no connection, or it broke off.
    Failed(UpstreamFailure),
    /// The result of a call that [`DriveAction::Run`] asked for. Results may come in any order.
    Result(CallOutcome),
    /// Time has passed: keep-alives, silence, deadline. See [`super::Drive::wake`].
    Tick,
    /// The caller cannot continue: the client gets this error, in any state of the loop.
    Refused(Fault),
}

/// The head of an upstream answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerHead {
    /// HTTP status.
    pub status: u16,
    /// True if the content type is `text/event-stream`.
    pub stream: bool,
    /// `retry-after` (or `retry-after-ms`), if present and parsable.
    pub retry_after: Option<Duration>,
}

/// How an upstream exchange failed without an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// No connection, or it ended before a head came.
    Connect,
    /// The connection broke after the head.
    Broken,
}

/// An action for the loop's driver. Actions are done in order.
#[derive(Debug)]
pub enum DriveAction {
    /// Send this body upstream (same URL, same credentials), after waiting `delay`.
    Send {
        /// The body.
        body: Bytes,
        /// 1 for the first; `Idempotency-Key` goes out on round 1 only.
        round: u32,
        /// How long to wait first (internal retries).
        delay: Duration,
    },
    /// Run a call of Knack and answer with [`DriveInput::Result`]. Several may be asked for at once; they may run in parallel.
    Run(ToolCall),
    /// Store this before anything that follows in the same list is sent.
    Remember(Box<HiddenTurns>),
    /// Note this before anything that follows in the same list is sent: until the loop has ended, and a
    /// [`DriveAction::Remember`] takes its place.
    Note(Box<RoundNote>),
    /// Begin the answer to the client.
    ClientHead(ClientHead),
    /// Bytes for the client.
    ClientBytes(Bytes),
    /// The answer is complete (or broken off on purpose): close it. Nothing follows. An upstream exchange or calls
    /// that still run are of no use any more: cancel them.
    Finish(DriveSummary),
}

/// A call of an injected tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Goes back in [`CallOutcome::token`].
    pub token: u32,
    /// Skill round, from 1; 0 for a call that an earlier answer left open.
    pub round: u32,
    /// Tool name as injected.
    pub name: String,
    /// The provider's id of the call.
    pub id: String,
    /// Arguments as the model wrote them: text that should be a JSON object, `{}` if the model sent nothing. May be
    /// broken: the caller answers with an error text then.
    pub arguments: String,
}

/// A call of Knack that was asked for and has not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenCall {
    /// The provider's id of the call.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments as the model wrote them.
    pub arguments: String,
}

/// The outcome of a call.
#[derive(Debug, Clone, Default)]
pub struct CallOutcome {
    /// From [`ToolCall::token`].
    pub token: u32,
    /// The text for the model.
    pub text: String,
    /// True for a failure.
    pub is_error: bool,
    /// Stored instead of the text in [`HiddenTurns`]s, so that a load result is rendered again from the skill (the caller's
    /// own notation, as in `{"skill":…,"digest":…}`).
    pub reference: Option<String>,
    /// How the run is shown in the native form; without it `text` is shown as its output, or as its errors.
    pub native: Option<NativeRun>,
    /// Files that the run made.
    pub files: Vec<GeneratedFile>,
    /// The files among them that are in the container of the answer.
    pub contained: Vec<ContainerFile>,
}

/// A file in the container of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFile {
    /// The file's id.
    pub id: String,
    /// Relative to the work directory.
    pub path: String,
}

/// A run in the terms of the vendor's own code execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeRun {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code.
    pub return_code: i32,
    /// True if the time limit ended it.
    pub timed_out: bool,
    /// Ids under which the files can be fetched.
    pub file_ids: Vec<String>,
}

/// A file made by a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Name relative to the work directory.
    pub name: String,
    /// Media type.
    pub media_type: String,
    /// Content.
    pub bytes: Bytes,
}

/// A result as it goes into the conversation.
#[derive(Debug, Clone, Default)]
pub struct CallResult {
    /// The provider's id of the call.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments of the call.
    pub arguments: String,
    /// The text for the model.
    pub text: String,
    /// True for a failure.
    pub is_error: bool,
    /// See [`CallOutcome::reference`].
    pub reference: Option<String>,
    /// See [`CallOutcome::native`].
    pub native: Option<NativeRun>,
    /// See [`CallOutcome::files`].
    pub files: Vec<GeneratedFile>,
    /// See [`CallOutcome::contained`].
    pub contained: Vec<ContainerFile>,
    /// What called, as JSON, if the call says it: its result says it again (Responses).
    pub caller: Option<String>,
}

impl CallResult {
    /// The run in the native form; of a call without one, its text as what was printed, or as errors.
    pub(crate) fn native_run(&self) -> Cow<'_, NativeRun> {
        if let Some(run) = &self.native {
            return Cow::Borrowed(run);
        }
        let (stdout, stderr) = if self.is_error {
            (String::new(), self.text.clone())
        } else {
            (self.text.clone(), String::new())
        };
        Cow::Owned(NativeRun {
            stdout,
            stderr,
            return_code: i32::from(self.is_error),
            ..NativeRun::default()
        })
    }
}

/// The head of the answer to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientHead {
    /// HTTP status.
    pub status: u16,
    /// The kind of the body.
    pub body: BodyKind,
    /// True if the headers of round 1's upstream answer belong to it; false for an error of Knack.
    pub upstream_headers: bool,
    /// True if code has run, or asking again cannot help: `x-should-retry: false`.
    pub no_retry: bool,
}

/// The kind of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// As the upstream says (its own content type).
    AsUpstream,
    /// `text/event-stream`.
    Stream,
    /// `application/json`.
    Json,
}

/// A loop to remember: the part of it that the client has not seen. [`HiddenTurns::visible`] and [`HiddenTurns::client_calls`]
/// give its place in the history; `history` makes the keys.
#[derive(Debug, Clone, Default)]
pub struct HiddenTurns {
    /// The raw upstream messages of the whole loop, in order.
    pub entries: Vec<HiddenEntry>,
    /// The assistant message(s) as the client sees them, in the form in which it sends them back.
    pub visible: Vec<Bytes>,
    /// Ids of the client's calls that the answer ends with; their results come with the next request.
    pub client_calls: Vec<String>,
    /// The id of the response that the client sees.
    pub response_id: String,
    /// The id under which the upstream keeps the state after the last round, if a client may go on from it (Responses) or
    /// read it (Chat) by an id; else empty.
    pub state: String,
    /// True if the calls of the last entry were refused at the limit of rounds and the answer can be resumed.
    pub paused: bool,
    /// How the client is to see what the upstream keeps of the answer, if it keeps it (Responses, Chat). An answer without
    /// entries is remembered for this alone.
    pub stored: Option<StoredForm>,
}

/// A round of a loop that still runs, where the upstream keeps it and a client may come upon it: by the id that it was shown, or
/// in a list (Chat).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundNote {
    /// The id under which the upstream keeps the round.
    pub id: String,
    /// How it is shown: as the answer, which is not there yet, or as a part of one.
    pub form: StoredForm,
    /// The upstream has all of the round, and the loop goes on.
    pub is_over: bool,
}

/// One step of a remembered loop.
#[derive(Debug, Clone)]
pub enum HiddenEntry {
    /// Conversation elements of an assistant turn, whole, as upstream sent them.
    Turn(Vec<Bytes>),
    /// Knack's results for it; as the first entry, for calls that the answer before left open. If the turn has calls of the client too, its results are merged in behind them.
    Results(Vec<CallResult>),
}

/// The summary of a loop, for logs and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriveSummary {
    /// Upstream rounds started, retries not counted.
    pub rounds: u32,
    /// Knack's calls that were run.
    pub calls: u32,
    /// How it ended.
    pub end: EndKind,
    /// The summed usage object of the format, as JSON.
    pub usage: Option<Vec<u8>>,
    /// Id of the response that the client saw.
    pub response_id: String,
}

/// How a loop ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EndKind {
    /// With an answer of the model.
    #[default]
    Answer,
    /// With an upstream error passed through.
    Upstream(u16),
    /// With an error of Knack.
    Fault(String),
    /// With the limit of skill rounds.
    Limit,
    /// Proxied unread.
    Passed,
}

/// Numbers and texts that the caller chooses.
#[derive(Debug, Clone)]
pub struct DriveSettings {
    /// Most rounds of skill calls in one request; default 10.
    pub max_rounds: u32,
    /// Most calls of one turn that are run; default 32. The others get an answer that says so.
    pub max_calls: usize,
    /// The result of a call beyond that.
    pub calls_text: &'static str,
    /// The whole loop must end within this time.
    pub deadline: Duration,
    /// Appended, behind a line feed, to each result of the last allowed round.
    pub last_note: &'static str,
    /// The result of a call that was not run because the limit was reached.
    pub limit_text: &'static str,
    /// The result of a call of Knack that a conversation which the upstream keeps left open and whose saved turn is lost.
    pub lost_text: &'static str,
    /// Show Knack's calls as the vendor's server tools (if the client asked for code execution).
    pub native: bool,
    /// The tool whose runs are shown in the native form, in formats where nothing else of Knack is (Responses, Gemini).
    pub run_tool: Option<String>,
    /// The response's `container` member as JSON, if Knack gives it. Responses shows its id with each run.
    pub container: Option<String>,
    /// Give generated files as `_litellm_generated_files`.
    pub litellm: bool,
    /// The client reads a stream as one JSON array (Gemini without `alt=sse`), while the upstream is asked for events.
    pub array: bool,
    /// The request's name, for Knack's errors in formats that have a place for it.
    pub request_id: Option<String>,
}

impl Default for DriveSettings {
    fn default() -> Self {
        Self {
            max_rounds: 10,
            max_calls: 32,
            calls_text: "too many calls at once",
            deadline: Duration::from_mins(9),
            last_note: "",
            limit_text: "limit reached",
            lost_text: "result no longer available",
            native: false,
            run_tool: None,
            container: None,
            litellm: false,
            array: false,
            request_id: None,
        }
    }
}
