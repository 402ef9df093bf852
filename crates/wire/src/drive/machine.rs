//! The loop itself: its state, its clock, its first and last step.

mod reading;
mod rounds;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::aliases::Aliases;
use super::array::Array;
use super::sorter::Sorter;
use super::values::{
    BodyKind, CallOutcome, ClientHead, DriveAction, DriveInput, DriveSettings, DriveSummary, EndKind, GeneratedFile,
    HiddenEntry, OpenCall, ToolCall, UpstreamFailure,
};
use crate::fault::Fault;
use crate::format::{Codec, CodecOptions, dialect};
use crate::frame::SseDecoder;
use crate::json::Edits;
use crate::request::{BACKGROUND, Injection, Request, RequestFields};
use crate::route::{CallKind, Format};
use crate::stored::{StoredEvents, StoredForm};

/// Most bytes that are gathered of one turn: what must be echoed is held in memory, so it is bounded.
pub(super) const MAX_TURN: usize = 8 << 20;
/// Most bytes of an error body that are kept for passing on.
const MAX_ERROR: usize = 1 << 20;
/// A stream without a byte for this long is dead. Models that reason, and long prompts before the first token, are silent for
/// minutes, and an answer that is given up is paid for.
pub(super) const SILENCE: Duration = Duration::from_mins(5);
/// First keep-alive while the client receives nothing.
const FIRST_KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Interval of later keep-alives.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Retries of one internal round.
const RETRIES: u32 = 2;
/// The message to a client whose answer ends too early.
const LOST: &str = "The connection to the upstream was lost in the middle of its answer.";
/// The longest `retry-after` that is obeyed; a longer one ends the loop.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Waiting before a retry when upstream does not say how long.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The state of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriveState {
    /// A request is out, or about to go out ([`Drive::start`]).
    Waiting,
    /// A good answer is being read and understood.
    Reading,
    /// An answer is passed on as it comes.
    Passing { status: u16, stream: bool },
    /// An error answer of a later round is being read.
    Failing { status: u16 },
    /// Calls run.
    Running,
    /// Over.
    Done,
}

#[derive(Debug)]
struct PendingCall {
    call: ToolCall,
    /// See [`CallResult::caller`].
    caller: Option<String>,
    outcome: Option<CallOutcome>,
}

/// Why round 1 may be sent again in another form, if the upstream refuses it.
#[derive(Debug, Default)]
struct ResendOptions {
    /// A refusal may name a call of Knack whose saved turn is lost: nothing was put back into this request, and it was not
    /// answered before.
    may_answer_lost: bool,
    /// A refusal may name a member that was added for the loop's own sake: it was not left out before.
    may_leave_out: bool,
    /// The changes in the conversation with which round 1 is sent again without injected text and tools, if the upstream refuses
    /// these tools. `None`: it is not sent again. A copy costs little: the texts in it are shared [`Bytes`].
    edits_without_tools: Option<Edits>,
    /// Round 1 was sent again without injected text and tools.
    resent_without_tools: bool,
}

/// The loop of one request. Feed it until it says [`DriveAction::Finish`].
///
/// When it says [`DriveAction::Send`], an older upstream exchange is of no use any more: its bytes must not be fed.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one loop")]
pub struct Drive {
    request: Request,
    injection: Injection,
    settings: DriveSettings,
    fields: RequestFields,
    codec: Box<dyn Codec>,
    aliases: Aliases,
    sorter: Sorter,
    /// Answers are passed on without being read.
    transparent: bool,
    /// For an answer that is passed on unread: how what its client can read later is put into the client's terms.
    background: Option<StoredEvents>,
    state: DriveState,
    /// The body of the running round. It is empty while an answer is read whose body is made again.
    body: Bytes,
    /// An answer to round 1 is read, whose body was the request with the injection and nothing else. Most answers end with
    /// it, so it is made again for a second round, and not kept as long as the model writes.
    remakes_body: bool,
    round: u32,
    retries: u32,
    skill_rounds: u32,
    array: Array,
    /// Rounds come as streams; decided by the first answer.
    stream: Option<bool>,
    decoder: SseDecoder,
    buffer: BytesMut,
    head_sent: bool,
    pending: Vec<PendingCall>,
    /// The running turn has calls of the client too.
    mixed: bool,
    entries: Vec<HiddenEntry>,
    files: Vec<GeneratedFile>,
    calls_run: u32,
    /// The last round that was noted while it was read.
    noted: u32,
    last_input: Duration,
    resend: ResendOptions,
    /// Since when the client has received nothing although the loop works, and how many keep-alives it got.
    quiet: Option<(Duration, u32)>,
}

impl Drive {
    /// A loop over a request and what is injected into it. Errors (400): a leaf of the request has a type that makes it
    /// unusable, or several answers are asked for (`n > 1`) while tools are injected. 404: it goes on from what only the provider
    /// keeps, which takes no injection.
    pub fn new(request: Request, injection: Injection, settings: DriveSettings) -> Result<Self, Fault> {
        let fields = request.fields()?;
        Self::with_fields(request, fields, injection, settings)
    }

    /// [`Drive::new`] with the request's own fields, for callers that have read them.
    pub fn with_fields(
        request: Request,
        fields: RequestFields,
        injection: Injection,
        settings: DriveSettings,
    ) -> Result<Self, Fault> {
        if fields.candidates > 1 && !injection.tools().is_empty() {
            let (param, name) = if request.format() == Format::Gemini {
                ("generationConfig.candidateCount", "candidateCount")
            } else {
                ("n", "n")
            };
            return Err(Fault::bad(
                param,
                format!("\"{name}\" must be 1 while skills are active; send x-knack-skills: none to switch them off."),
            ));
        }
        if let Some(fault) = dialect(request.format()).refused(&request, &injection) {
            return Err(fault);
        }
        let options = CodecOptions {
            container: settings.container.clone(),
            litellm: settings.litellm,
            run_tool: settings.run_tool.clone().filter(|_| settings.native),
        };
        let codec = dialect(request.format()).codec(&request, options);
        let transparent =
            request.kind() != CallKind::Generate || (injection.tools().is_empty() && settings.container.is_none());
        let aliases = Aliases::of(&injection, &fields.client_tools);
        let sorter = Sorter::new(
            aliases.own_names(&injection),
            fields.client_tools.clone(),
            fields.structured && !injection.tools().is_empty(),
            request.format() != Format::Chat,
        );
        Ok(Self {
            request,
            injection,
            settings,
            fields,
            codec,
            aliases,
            sorter,
            transparent,
            background: None,
            state: DriveState::Waiting,
            body: Bytes::new(),
            remakes_body: false,
            round: 0,
            retries: 0,
            skill_rounds: 0,
            array: Array::default(),
            stream: None,
            decoder: SseDecoder::new(),
            buffer: BytesMut::new(),
            head_sent: false,
            pending: Vec::new(),
            mixed: false,
            entries: Vec::new(),
            files: Vec::new(),
            calls_run: 0,
            noted: 0,
            last_input: Duration::ZERO,
            resend: ResendOptions::default(),
            quiet: None,
        })
    }

    /// The request as parsed; `history` reads it.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The id of the response that the client sees; empty until round 1's answer has one.
    pub fn response_id(&self) -> &str {
        self.codec.response_id()
    }

    /// True once [`DriveAction::Finish`] was given.
    pub fn finished(&self) -> bool {
        self.state == DriveState::Done
    }

    /// True if good answers are read and understood; false if they are passed on as they come.
    pub const fn reads(&self) -> bool {
        !self.transparent
    }

    /// The first actions. `edits` are changes inside the conversation: hidden turns put back, and
    /// Knack's blocks of the native form expanded. A conversation may end in Knack's calls that have not run (Messages: an answer that ended as `pause_turn`
    /// at the limit of rounds and came back): `calls` are run before anything is sent.
    pub fn start(&mut self, edits: Edits, calls: Vec<OpenCall>, now: Duration, out: &mut Vec<DriveAction>) {
        let from = out.len();
        let has_tools = !self.injection.tools().is_empty();
        self.resend.may_answer_lost =
            calls.is_empty() && edits.is_empty() && has_tools && !self.transparent && self.goes_on();
        if self.must_read() && !(self.injection.is_empty() && edits.is_empty()) {
            self.transparent = false;
        }
        self.background = self.in_background(&edits);
        self.resend.may_leave_out =
            !self.transparent && dialect(self.request.format()).adds_member(&self.request, &self.injection);
        self.resend.edits_without_tools = (calls.is_empty() && self.can_go_without(&edits)).then(|| edits.clone());
        self.remakes_body = edits.is_empty() && calls.is_empty();
        self.body = self.request.apply(&self.injection, edits);
        if !self.transparent {
            self.codec.sent(&self.request, &self.body);
        }
        if calls.is_empty() {
            self.send(Duration::ZERO, now, out);
        } else {
            self.resume(calls, now, out);
        }
        self.rewrite(out, from);
    }

    /// Takes in what happened at `now` (since the request began) and appends what is to be done. What does not fit the
    /// state is ignored.
    pub fn feed(&mut self, input: DriveInput, now: Duration, out: &mut Vec<DriveAction>) {
        let from = out.len();
        self.take(input, now, out);
        self.rewrite(out, from);
    }

    /// Makes elements of one array of what was appended from `from` on, for a client that reads one.
    fn rewrite(&mut self, out: &mut Vec<DriveAction>, from: usize) {
        if self.settings.array {
            self.array.rewrite(out, from);
        }
    }

    fn take(&mut self, input: DriveInput, now: Duration, out: &mut Vec<DriveAction>) {
        match (self.state, input) {
            (DriveState::Waiting, DriveInput::Head(head)) => self.head(head, now, out),
            (DriveState::Waiting, DriveInput::Failed(_)) => self.no_answer(now, out),
            (DriveState::Reading, DriveInput::Body(bytes)) => {
                self.last_input = now;
                if self.stream == Some(true) {
                    self.stream_bytes(&bytes, now, out);
                } else {
                    self.body_bytes(&bytes, out);
                }
            }
            (DriveState::Reading, DriveInput::End) => self.end(now, out),
            (DriveState::Reading, DriveInput::Failed(_)) => self.fault(&Fault::new(502, LOST), out),
            (DriveState::Passing { .. }, DriveInput::Body(bytes)) => self.pass(bytes, out),
            (DriveState::Passing { status, .. }, DriveInput::End) => {
                self.pass_rest(out);
                let end = if (200..300).contains(&status) {
                    EndKind::Passed
                } else {
                    EndKind::Upstream(status)
                };
                self.finish_with(end, out);
            }
            (DriveState::Passing { stream, .. }, DriveInput::Failed(_)) => {
                let fault = self.named(&Fault::new(502, LOST));
                if stream {
                    // The beginning of a line that waits for its end is left out: a client that reads the stream again gets it whole,
                    // and the error must be a line of its own.
                    out.push(DriveAction::ClientBytes(fault.frame(self.request.format()).into()));
                }
                self.finish_with(EndKind::Fault(fault.message), out);
            }
            (DriveState::Failing { .. }, DriveInput::Body(bytes)) => {
                let room = MAX_ERROR.saturating_sub(self.buffer.len()).min(bytes.len());
                self.buffer.extend_from_slice(&bytes[..room]);
            }
            (DriveState::Failing { status }, DriveInput::End | DriveInput::Failed(UpstreamFailure::Broken)) => {
                self.failed(status, now, out);
            }
            (DriveState::Running, DriveInput::Result(outcome)) => self.result(outcome, now, out),
            (DriveState::Done, _) => {}
            (_, DriveInput::Refused(fault)) => self.fault(&fault, out),
            (_, DriveInput::Tick) => self.tick(now, out),
            _ => {}
        }
    }

    /// When [`DriveInput::Tick`] is wanted next, since the request began; `None` if never.
    pub fn wake(&self) -> Option<Duration> {
        if self.transparent || matches!(self.state, DriveState::Done | DriveState::Passing { .. }) {
            return None;
        }
        let silence =
            (self.state == DriveState::Reading && self.stream == Some(true)).then(|| self.last_input + SILENCE);
        [Some(self.settings.deadline), silence, self.keep_alive_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// True if round 1 was refused because of Knack's tools, and was sent again without them.
    pub const fn resent_without_tools(&self) -> bool {
        self.resend.resent_without_tools
    }

    /// True if the request makes sense without anything that Knack adds: it names nothing that only the gateway can serve. Messages
    /// takes no calls in a history without tools, and an answer in one array is written from events.
    fn can_go_without(&self, edits: &Edits) -> bool {
        let injection = &self.injection;
        let adds_tools = !injection.tools().is_empty() && !self.transparent;
        let is_ours = injection.is_named
            || injection.code_tool.is_some()
            || !injection.own_skills.is_empty()
            || self.settings.container.is_some();
        let takes_history =
            self.request.format() != Format::Messages || edits.is_empty() || self.fields.has_client_tools();
        adds_tools && !is_ours && takes_history && !self.settings.array
    }

    /// True if the request goes on from a state that the upstream keeps.
    fn goes_on(&self) -> bool {
        let keys = ["previous_response_id", "conversation"];
        self.request.format() == Format::Responses && keys.iter().any(|key| self.request.present(key).is_some())
    }

    /// True if the answer has to be read where anything of the request was changed: it repeats members of it, or a client
    /// can read it later by its id, with what it was asked.
    fn must_read(&self) -> bool {
        // The answer to a request in the background that is no stream comes at once, and says that it is queued.
        let comes_at_once = |why| why == BACKGROUND && !self.fields.stream;
        let is_open = self.fields.closed.is_none_or(comes_at_once);
        let is_answered = self.request.kind() == CallKind::Generate && is_open;
        let reads = match self.request.format() {
            Format::Responses => true,
            Format::Chat => self.fields.stored && self.fields.candidates == 1,
            Format::Messages | Format::Gemini => false,
        };
        is_answered && reads
    }

    /// The events of a stream in the background whose request was changed. They are not read as those of a loop are: it may last
    /// for hours, and its client may leave it and read on later.
    fn in_background(&self, edits: &Edits) -> Option<StoredEvents> {
        let is_stream = self.fields.stream && self.fields.closed == Some(BACKGROUND);
        (self.transparent && is_stream && !edits.is_empty()).then(|| {
            let own = self.request.present("previous_response_id");
            let own = own.map(|id| String::from_utf8_lossy(self.request.bytes(id)).into_owned());
            StoredEvents::new(StoredForm::in_background(own), None)
        })
    }

    fn keep_alive_due(&self) -> Option<Duration> {
        let (since, given) = self.quiet.filter(|_| self.head_sent && self.stream == Some(true))?;
        Some(since + FIRST_KEEP_ALIVE + KEEP_ALIVE * given)
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        if self.transparent || matches!(self.state, DriveState::Passing { .. }) {
            return;
        }
        if now >= self.settings.deadline {
            let fault = Fault {
                // The same request takes as long once more, whether or not code has run.
                retry: false,
                ..Fault::new(504, "The request took longer than its deadline allows.")
            };
            return self.fault(&fault, out);
        }
        if self.state == DriveState::Reading && self.stream == Some(true) && now >= self.last_input + SILENCE {
            let text = format!("The upstream sent nothing for {} seconds.", SILENCE.as_secs());
            return self.fault(&Fault::new(504, text), out);
        }
        if self.keep_alive_due().is_some_and(|due| now >= due)
            && let Some((since, given)) = self.quiet
        {
            out.push(DriveAction::ClientBytes(Bytes::from_static(
                dialect(self.request.format()).keep_alive(),
            )));
            // A late tick does not make a burst of signs of life.
            let mut given = given + 1;
            while since + FIRST_KEEP_ALIVE + KEEP_ALIVE * given <= now {
                given += 1;
            }
            self.quiet = Some((since, given));
        }
    }

    fn send(&mut self, delay: Duration, now: Duration, out: &mut Vec<DriveAction>) {
        if delay.is_zero() {
            self.round += 1;
            self.retries = 0;
        }
        self.state = DriveState::Waiting;
        self.last_input = now;
        out.push(DriveAction::Send {
            body: self.body.clone(),
            round: self.round,
            delay,
        });
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<DriveAction>) {
        let format = self.request.format();
        let fault = &self.named(fault);
        self.remember_broken(out);
        if self.head_sent {
            let frame = self.number_error(fault.frame(format));
            out.push(DriveAction::ClientBytes(frame.into()));
        } else {
            self.head_sent = true;
            out.push(DriveAction::ClientHead(ClientHead {
                status: fault.status,
                body: BodyKind::Json,
                upstream_headers: false,
                no_retry: self.calls_run > 0 || !fault.retry,
            }));
            out.push(DriveAction::ClientBytes(fault.body(format).into()));
        }
        self.finish_with(EndKind::Fault(fault.message.clone()), out);
    }

    /// An error frame behind what the client was shown. Events that pass as they come are not counted.
    fn number_error(&mut self, frame: Vec<u8>) -> Vec<u8> {
        if self.transparent {
            frame
        } else {
            self.codec.number_error(frame)
        }
    }

    /// A fault with the request's name.
    fn named(&self, fault: &Fault) -> Fault {
        Fault {
            request_id: self.settings.request_id.clone(),
            ..fault.clone()
        }
    }

    fn finish_with(&mut self, end: EndKind, out: &mut Vec<DriveAction>) {
        self.state = DriveState::Done;
        let (usage, response_id) = (self.codec.usage(), self.codec.response_id().to_owned());
        out.push(DriveAction::Finish(DriveSummary {
            rounds: self.round,
            calls: self.calls_run,
            end,
            usage,
            response_id,
        }));
    }
}
