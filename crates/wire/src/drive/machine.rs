//! The loop itself: rounds, retries, limits, time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::sorter::Sorter;
use super::values::{
    BodyKind, Call, CallOutcome, CallResult, ClientHead, EndKind, Entry, Failure, GeneratedFile, Head, In, Out, Record,
    Settings, Summary,
};
use crate::fault::Fault;
use crate::format::{Codec, CodecOptions, Decoded, Ending, Part, dialect, splice};
use crate::frame::SseDecoder;
use crate::json::{self, Edits};
use crate::request::{Injection, Request, ToolChoice, View};
use crate::route::{Format, Kind};

/// Most bytes that are gathered of one turn: what must be echoed is held in memory, so it is bounded.
pub const MAX_TURN: usize = 8 << 20;
/// Most bytes of an error body that are kept for passing on.
const MAX_ERROR: usize = 1 << 20;
/// A stream that says nothing for this long is dead.
pub const SILENCE: Duration = Duration::from_secs(60);
/// First sign of life while the client sees nothing.
const FIRST_KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Later signs of life.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Retries of one internal round.
const RETRIES: u32 = 2;
/// The longest `retry-after` that is obeyed; a longer one ends the loop.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Waiting before a retry when upstream does not say how long.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Where the loop stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has happened, or the answer to `Lookup` is awaited.
    Start,
    /// A request is out.
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
struct Pending {
    call: Call,
    outcome: Option<CallOutcome>,
}

/// The loop of one request. Feed it until it says [`Out::Finish`].
///
/// When it says [`Out::Send`], an older upstream exchange is of no use any more: its bytes must not be fed.
#[derive(Debug)]
pub struct Drive {
    request: Request,
    injection: Injection,
    settings: Settings,
    view: View,
    codec: Box<dyn Codec>,
    sorter: Sorter,
    /// The answer is not looked into.
    transparent: bool,
    state: State,
    /// The body of the running round.
    body: Bytes,
    round: u32,
    retries: u32,
    skill_rounds: u32,
    /// Rounds come as streams; told by the first answer.
    stream: Option<bool>,
    decoder: SseDecoder,
    buffer: BytesMut,
    head_sent: bool,
    pending: Vec<Pending>,
    /// The running turn has calls of the client too.
    mixed: bool,
    entries: Vec<Entry>,
    files: Vec<GeneratedFile>,
    calls_run: u32,
    last_input: Duration,
    /// Since when the client sees nothing although something happens, and how many signs of life it got.
    quiet: Option<(Duration, u32)>,
}

impl Drive {
    /// A loop over a request and what is injected into it. Errors (400): a leaf of the request has a type that makes it
    /// unusable, or several answers are asked for (`n > 1`) while tools are injected.
    pub fn new(request: Request, injection: Injection, settings: Settings) -> Result<Self, Fault> {
        let view = request.view()?;
        if view.candidates > 1 && !injection.tools.is_empty() {
            let (param, said) = if request.format() == Format::Gemini {
                ("generationConfig.candidateCount", "candidateCount")
            } else {
                ("n", "n")
            };
            return Err(Fault::bad(
                param,
                format!("\"{said}\" must be 1 while skills are active; send x-knack-skills: none to switch them off."),
            ));
        }
        let options = CodecOptions {
            native: settings.native,
            container: settings.container.clone(),
            litellm: settings.litellm,
        };
        let codec = dialect(request.format()).codec(&request, options);
        let transparent =
            request.kind() != Kind::Generate || (injection.tools.is_empty() && settings.container.is_none());
        let names = injection.tools.iter().map(|tool| tool.name.clone()).collect();
        let sorter = Sorter::new(names, view.structured && !injection.tools.is_empty());
        Ok(Self {
            request,
            injection,
            settings,
            view,
            codec,
            sorter,
            transparent,
            state: State::Start,
            body: Bytes::new(),
            round: 0,
            retries: 0,
            skill_rounds: 0,
            stream: None,
            decoder: SseDecoder::new(),
            buffer: BytesMut::new(),
            head_sent: false,
            pending: Vec::new(),
            mixed: false,
            entries: Vec::new(),
            files: Vec::new(),
            calls_run: 0,
            last_input: Duration::ZERO,
            quiet: None,
        })
    }

    /// The request as parsed; `history` reads it.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The id of the response that the client sees; empty before round 1's answer has told it.
    pub fn response_id(&self) -> &str {
        self.codec.response_id()
    }

    /// True once [`Out::Finish`] was given.
    pub fn finished(&self) -> bool {
        self.state == State::Done
    }

    /// The first wishes: [`Out::Lookup`] or the first [`Out::Send`].
    pub fn start(&mut self, now: Duration, out: &mut Vec<Out>) {
        if self.settings.lookup {
            out.push(Out::Lookup)
        } else {
            self.feed(In::Expanded(Edits::new()), now, out)
        }
    }

    /// Takes in what happened at `now` (since the request began) and appends what is to be done. What does not fit the
    /// state is ignored.
    pub fn feed(&mut self, input: In, now: Duration, out: &mut Vec<Out>) {
        match (self.state, input) {
            (State::Start, In::Expanded(edits)) => {
                self.body = self.request.apply(&self.injection, edits);
                self.send(Duration::ZERO, now, out);
            }
            (State::Waiting, In::Head(head)) => self.head(head, now, out),
            (State::Waiting, In::Failed(_)) => self.no_answer(now, out),
            (State::Reading, In::Body(bytes)) => {
                self.last_input = now;
                if self.stream == Some(true) {
                    self.stream_bytes(&bytes, now, out)
                } else {
                    self.body_bytes(&bytes, out)
                }
            }
            (State::Reading, In::End) => self.end(now, out),
            (State::Reading, In::Failed(_)) => self.fault(
                &Fault::new(502, "The upstream broke off in the middle of its answer."),
                out,
            ),
            (State::Passing { .. }, In::Body(bytes)) => out.push(Out::ClientBytes(bytes)),
            (State::Passing { status, .. }, In::End) => {
                let end = if (200..300).contains(&status) {
                    EndKind::Passed
                } else {
                    EndKind::Upstream(status)
                };
                self.finish_with(end, out);
            }
            (State::Passing { stream, .. }, In::Failed(_)) => {
                let fault = Fault::new(502, "The upstream broke off in the middle of its answer.");
                if stream {
                    out.push(Out::ClientBytes(fault.frame(self.request.format()).into()));
                }
                self.finish_with(EndKind::Fault(fault.message), out);
            }
            (State::Failing { .. }, In::Body(bytes)) => {
                let room = MAX_ERROR.saturating_sub(self.buffer.len()).min(bytes.len());
                self.buffer.extend_from_slice(&bytes[..room]);
            }
            (State::Failing { status }, In::End | In::Failed(Failure::Broken)) => self.pass_late_error(status, out),
            (State::Running, In::Result(outcome)) => self.result(outcome, now, out),
            (State::Done, _) => {}
            (_, In::Tick) => self.tick(now, out),
            _ => {}
        }
    }

    /// When [`In::Tick`] is wanted next, since the request began; `None` if never.
    pub fn wake(&self) -> Option<Duration> {
        if self.transparent || matches!(self.state, State::Done | State::Passing { .. }) {
            return None;
        }
        let silence = (self.state == State::Reading && self.stream == Some(true)).then(|| self.last_input + SILENCE);
        [Some(self.settings.deadline), silence, self.keep_alive_due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn keep_alive_due(&self) -> Option<Duration> {
        let (since, given) = self.quiet.filter(|_| self.head_sent && self.stream == Some(true))?;
        Some(since + FIRST_KEEP_ALIVE + KEEP_ALIVE * given)
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Out>) {
        if self.transparent || matches!(self.state, State::Passing { .. }) {
            return;
        }
        if now >= self.settings.deadline {
            return self.fault(
                &Fault::new(504, "The request took longer than its deadline allows."),
                out,
            );
        }
        if self.state == State::Reading && self.stream == Some(true) && now >= self.last_input + SILENCE {
            let text = format!("The upstream sent nothing for {} seconds.", SILENCE.as_secs());
            return self.fault(&Fault::new(504, text), out);
        }
        if self.keep_alive_due().is_some_and(|due| now >= due)
            && let Some((since, given)) = self.quiet
        {
            out.push(Out::ClientBytes(Bytes::from_static(
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

    fn send(&mut self, delay: Duration, now: Duration, out: &mut Vec<Out>) {
        if delay.is_zero() {
            self.round += 1;
            self.retries = 0;
        }
        self.state = State::Waiting;
        self.last_input = now;
        out.push(Out::Send {
            body: self.body.clone(),
            round: self.round,
            delay,
        });
    }

    fn head(&mut self, head: Head, now: Duration, out: &mut Vec<Out>) {
        self.last_input = now;
        let good = (200..300).contains(&head.status);
        if self.round == 1 && (self.transparent || !good) {
            self.state = State::Passing {
                status: head.status,
                stream: head.stream && good,
            };
            self.head_sent = true;
            return out.push(Out::ClientHead(ClientHead {
                status: head.status,
                body: BodyKind::AsUpstream,
                upstream_headers: true,
                no_retry: false,
            }));
        }
        if !good {
            let retryable = matches!(head.status, 408 | 429 | 500..=599);
            let delay = head.retry_after.unwrap_or(RETRY_DELAY * 2_u32.pow(self.retries));
            if retryable && delay <= MAX_RETRY_AFTER && self.retry(delay, now, out) {
                return;
            }
            self.buffer.clear();
            self.state = State::Failing { status: head.status };
            return;
        }
        if self.stream.is_some_and(|stream| stream != head.stream) {
            return self.fault(
                &Fault::new(
                    502,
                    "The upstream answered a later round in another form than the first.",
                ),
                out,
            );
        }
        self.stream = Some(head.stream);
        self.decoder = SseDecoder::new();
        self.buffer.clear();
        self.state = State::Reading;
    }

    /// Sends the same round again if that is allowed.
    fn retry(&mut self, delay: Duration, now: Duration, out: &mut Vec<Out>) -> bool {
        if self.round < 2 || self.retries >= RETRIES || now + delay >= self.settings.deadline {
            return false;
        }
        self.retries += 1;
        self.send(delay.max(Duration::from_millis(1)), now, out);
        true
    }

    fn no_answer(&mut self, now: Duration, out: &mut Vec<Out>) {
        if !self.retry(RETRY_DELAY * 2_u32.pow(self.retries), now, out) {
            self.fault(&Fault::new(502, "The upstream cannot be reached."), out);
        }
    }

    fn stream_bytes(&mut self, bytes: &[u8], now: Duration, out: &mut Vec<Out>) {
        let mut events = Vec::new();
        let read = self.decoder.push(bytes, &mut events);
        self.events(events, now, out);
        if read.is_err() && self.state == State::Reading {
            self.fault(&Fault::new(502, "The upstream sent an event that is too large."), out);
        }
    }

    /// Takes in complete events; everything they show goes out in one piece.
    fn events(&mut self, events: Vec<crate::frame::SseEvent>, now: Duration, out: &mut Vec<Out>) {
        let mut shown = Vec::new();
        for event in events {
            if event.data.is_empty() {
                continue;
            }
            let frame = match self.codec.frame(event) {
                Ok(frame) => frame,
                Err(garbage) => {
                    self.flush(&mut shown, now, out);
                    return self.fault(
                        &Fault::new(
                            502,
                            format!(
                                "The upstream sent something that is not an event of its format: {}.",
                                garbage.0
                            ),
                        ),
                        out,
                    );
                }
            };
            self.client_head(out);
            if frame.parts.contains(&Part::Error) {
                self.codec.show(&frame, &vec![true; frame.parts.len()], &mut shown);
                self.flush(&mut shown, now, out);
                return self.finish_with(EndKind::Upstream(200), out);
            }
            self.sorter.take(frame, self.codec.as_mut(), &mut shown);
            if self.sorter.ended {
                self.flush(&mut shown, now, out);
                return self.turn_over(now, out);
            }
        }
        self.flush(&mut shown, now, out);
        if self.codec.gathered() + self.sorter.held_bytes() > MAX_TURN {
            self.fault(
                &Fault::new(502, format!("The upstream's turn is larger than {MAX_TURN} bytes.")),
                out,
            );
        }
    }

    fn flush(&mut self, shown: &mut Vec<u8>, now: Duration, out: &mut Vec<Out>) {
        if !shown.is_empty() {
            self.quiet = None;
            out.push(Out::ClientBytes(std::mem::take(shown).into()));
        } else if self.sorter.hides && self.quiet.is_none() {
            self.quiet = Some((now, 0));
        }
    }

    /// The head of a streamed answer goes out with the first event that was understood.
    fn client_head(&mut self, out: &mut Vec<Out>) {
        if !self.head_sent {
            self.head_sent = true;
            out.push(Out::ClientHead(ClientHead {
                status: 200,
                body: BodyKind::Stream,
                upstream_headers: true,
                no_retry: false,
            }));
        }
    }

    fn body_bytes(&mut self, bytes: &[u8], out: &mut Vec<Out>) {
        if self.buffer.len() + bytes.len() > MAX_TURN {
            return self.fault(
                &Fault::new(502, format!("The upstream's answer is larger than {MAX_TURN} bytes.")),
                out,
            );
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn end(&mut self, now: Duration, out: &mut Vec<Out>) {
        if self.stream == Some(true) {
            let mut events = Vec::new();
            let read = self.decoder.finish(&mut events);
            self.events(events, now, out);
            if self.state != State::Reading {
                return;
            }
            if self.sorter.stop.is_none() || read.is_err() {
                return self.fault(
                    &Fault::new(502, "The upstream's stream ended before its answer was complete."),
                    out,
                );
            }
            return self.turn_over(now, out);
        }
        let body = self.buffer.split().freeze();
        match self.codec.body(body) {
            Ok(frame) if frame.parts.contains(&Part::Error) => self.pass_strange_body(&frame, out),
            Ok(frame) => {
                self.sorter.take(frame, self.codec.as_mut(), &mut Vec::new());
                self.turn_over(now, out);
            }
            Err(garbage) => self.fault(
                &Fault::new(502, format!("The upstream's answer cannot be read: {}.", garbage.0)),
                out,
            ),
        }
    }

    /// A 200 whose body is no answer of the format.
    fn pass_strange_body(&mut self, frame: &Decoded, out: &mut Vec<Out>) {
        out.push(Out::ClientHead(ClientHead {
            status: 200,
            body: BodyKind::Json,
            upstream_headers: true,
            no_retry: self.calls_run > 0,
        }));
        out.push(Out::ClientBytes(frame.raw.clone()));
        self.finish_with(EndKind::Upstream(200), out);
    }

    /// A turn is complete: hand it out, or run what is ours.
    fn turn_over(&mut self, now: Duration, out: &mut Vec<Out>) {
        let mut shown = Vec::new();
        self.sorter.close(self.codec.as_mut(), &mut shown);
        let own = self.sorter.own_calls();
        let runs = !own.is_empty() && self.sorter.stop.unwrap_or(true);
        self.sorter.settle_text(!runs, self.codec.as_mut(), &mut shown);
        self.mixed = !self.sorter.client_calls().is_empty();
        if !runs {
            self.flush(&mut shown, now, out);
            return self.finish(Ending::AsCame, out);
        }
        let limit = self.skill_rounds >= self.settings.max_rounds;
        self.skill_rounds += 1;
        let native = self.settings.native && !limit;
        if native {
            self.codec.show_calls(&own, &mut shown);
        }
        self.flush(&mut shown, now, out);
        let calls = own.iter().map(|unit| self.call(*unit));
        self.pending = calls.map(|call| Pending { call, outcome: None }).collect();
        if limit {
            return self.limit(out);
        }
        self.state = State::Running;
        if self.quiet.is_none() {
            self.quiet = Some((now, 0));
        }
        for pending in &self.pending {
            self.calls_run += 1;
            out.push(Out::Run(pending.call.clone()));
        }
    }

    fn call(&self, unit: u32) -> Call {
        let call = self.codec.call(unit);
        let (name, id) = call
            .map(|call| (call.name.to_owned(), call.id.to_owned()))
            .unwrap_or_default();
        let arguments = self.codec.arguments(unit);
        let arguments = if arguments.trim().is_empty() {
            "{}".to_owned()
        } else {
            arguments
        };
        Call {
            token: unit,
            round: self.skill_rounds,
            name,
            id,
            arguments,
        }
    }

    /// One skill round too many: nothing runs, and the answer says so.
    fn limit(&mut self, out: &mut Vec<Out>) {
        let text = self.settings.limit_text.clone();
        let results = self
            .pending
            .drain(..)
            .map(|pending| refused(pending.call, text.clone()))
            .collect();
        self.entries.push(Entry::Turn(self.codec.turn()));
        self.entries.push(Entry::Results(results));
        let ending = if self.mixed { Ending::ClientCalls } else { Ending::Limit };
        self.finish(ending, out);
    }

    fn result(&mut self, outcome: CallOutcome, now: Duration, out: &mut Vec<Out>) {
        if let Some(pending) = self
            .pending
            .iter_mut()
            .find(|pending| pending.call.token == outcome.token)
        {
            pending.outcome = Some(outcome);
        }
        if self.pending.iter().all(|pending| pending.outcome.is_some()) {
            self.results_in(now, out);
        }
    }

    fn results_in(&mut self, now: Duration, out: &mut Vec<Out>) {
        let last = self.skill_rounds >= self.settings.max_rounds && !self.settings.last_note.is_empty();
        let note = if last { self.settings.last_note.as_str() } else { "" };
        let mut results = Vec::with_capacity(self.pending.len());
        for pending in self.pending.drain(..) {
            let Some(outcome) = pending.outcome else { continue };
            self.files.extend(outcome.files);
            let text = if note.is_empty() {
                outcome.text
            } else {
                format!("{}\n{note}", outcome.text)
            };
            results.push(CallResult {
                id: pending.call.id,
                name: pending.call.name,
                arguments: pending.call.arguments,
                text,
                is_error: outcome.is_error,
                reference: outcome.reference,
                native: outcome.native,
            });
        }
        let mut shown = Vec::new();
        if self.settings.native {
            self.codec.show_results(&results, &mut shown);
            self.flush(&mut shown, now, out);
        }
        let turn = self.codec.turn();
        self.entries.push(Entry::Turn(turn.clone()));
        self.entries.push(Entry::Results(results.clone()));
        if self.mixed {
            return self.finish(Ending::ClientCalls, out);
        }
        let mut elements = turn;
        elements.extend(dialect(self.request.format()).results(&results));
        self.next_round(&elements, now, out);
    }

    fn next_round(&mut self, elements: &[Bytes], now: Duration, out: &mut Vec<Out>) {
        let dialect = dialect(self.request.format());
        self.body = splice::grow(&self.body, dialect.conversation_key(), elements);
        if self.round == 1 && self.relaxes() {
            let key = if self.request.format() == Format::Gemini {
                "toolConfig"
            } else {
                "tool_choice"
            };
            let choice = json::object(&self.body)
                .ok()
                .and_then(|top| json::member(&self.body, &top, key).map(|member| member.value));
            if let Some(choice) = choice {
                self.body = dialect.relax(&self.body, choice).into();
            }
        }
        self.codec.begin_round();
        self.sorter.begin_round();
        if self.quiet.is_none() {
            self.quiet = Some((now, 0));
        }
        self.send(Duration::ZERO, now, out);
    }

    /// A forced choice was met in round 1 if the forced tool was ours, or if only our tools can meet it.
    fn relaxes(&self) -> bool {
        match &self.view.tool_choice {
            ToolChoice::Required => self.view.client_tools.is_empty(),
            ToolChoice::Named(name) => {
                self.view.client_tools.is_empty() || self.injection.tools.iter().any(|tool| tool.name == *name)
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed => false,
        }
    }

    fn finish(&mut self, ending: Ending, out: &mut Vec<Out>) {
        if !self.entries.is_empty() && !self.settings.native {
            out.push(Out::Remember(self.record(ending)));
        }
        let mut bytes = Vec::new();
        self.codec.finish(ending, &self.files, &mut bytes);
        if !self.head_sent {
            self.head_sent = true;
            out.push(Out::ClientHead(ClientHead {
                status: 200,
                body: BodyKind::Json,
                upstream_headers: true,
                no_retry: false,
            }));
        }
        out.push(Out::ClientBytes(bytes.into()));
        self.finish_with(
            if ending == Ending::Limit {
                EndKind::Limit
            } else {
                EndKind::Answer
            },
            out,
        );
    }

    fn record(&mut self, ending: Ending) -> Record {
        let mut entries = std::mem::take(&mut self.entries);
        if ending == Ending::AsCame {
            entries.push(Entry::Turn(self.codec.turn()));
        }
        let client_calls = if self.mixed {
            self.codec.shown_calls().to_vec()
        } else {
            Vec::new()
        };
        Record {
            entries,
            visible: self.codec.visible(),
            client_calls,
            response_id: self.codec.response_id().to_owned(),
        }
    }

    fn pass_late_error(&mut self, status: u16, out: &mut Vec<Out>) {
        let body = self.buffer.split().freeze();
        if self.head_sent {
            let frame = dialect(self.request.format()).upstream_error_frame(status, &body);
            out.push(Out::ClientBytes(frame.into()));
        } else {
            self.head_sent = true;
            out.push(Out::ClientHead(ClientHead {
                status,
                body: BodyKind::Json,
                upstream_headers: true,
                no_retry: self.calls_run > 0,
            }));
            out.push(Out::ClientBytes(body));
        }
        self.finish_with(EndKind::Upstream(status), out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Out>) {
        let format = self.request.format();
        if self.head_sent {
            out.push(Out::ClientBytes(fault.frame(format).into()));
        } else {
            self.head_sent = true;
            out.push(Out::ClientHead(ClientHead {
                status: fault.status,
                body: BodyKind::Json,
                upstream_headers: false,
                no_retry: self.calls_run > 0,
            }));
            out.push(Out::ClientBytes(fault.body(format).into()));
        }
        self.finish_with(EndKind::Fault(fault.message.clone()), out);
    }

    fn finish_with(&mut self, end: EndKind, out: &mut Vec<Out>) {
        self.state = State::Done;
        let (usage, response_id) = (self.codec.usage(), self.codec.response_id().to_owned());
        out.push(Out::Finish(Summary {
            rounds: self.round,
            calls: self.calls_run,
            end,
            usage,
            response_id,
        }));
    }
}

fn refused(call: Call, text: String) -> CallResult {
    CallResult {
        id: call.id,
        name: call.name,
        arguments: call.arguments,
        text,
        is_error: true,
        ..CallResult::default()
    }
}
