//! One model request in progress: drives knack-wire's loop with real sockets, sandboxes and the clock.
//!
//! No task is spawned. The exchange lives in the answer's body, so a client that disconnects drops it, and with it the
//! upstream request and every run.

mod answer_headers;
mod ending;
mod parts;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::HeaderMap;
use knack_serving::reason::StatusReason;
use knack_telemetry::genai;
use knack_wire::drive::{AnswerHead, BodyKind, DriveSummary, EndKind, UpstreamFailure};
use knack_wire::history::Expansion;
use knack_wire::{CallOutcome, DriveAction, DriveInput, Fault};

pub use self::answer_headers::insert_stream_headers;
use self::answer_headers::retry_after;
pub(crate) use self::answer_headers::{begins_event, coding, compressed, content_type, is_event_stream};
pub(crate) use self::parts::{AnswerPiece, ExchangeParts, UpstreamTarget};
use self::state::{AnswerState, RoundState, Upstream};
use super::call::ModelCall;
use crate::files::delivered;
use crate::providers::forwarded_headers::forward_response_headers;
use crate::providers::upstream::{causes, certificate_fault};
use crate::runs::run_history::EarlyEnd;
use crate::state::Gateway;
use crate::telemetry::log::RequestLog;

/// One model request in progress.
pub(crate) struct Exchange {
    call: ModelCall,
    parts: ExchangeParts,
    /// What the loop wants done, in order.
    actions: VecDeque<DriveAction>,
    scratch: Vec<DriveAction>,
    round: RoundState,
    answer: AnswerState,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("request_id", &self.call.log.request_id)
            .finish_non_exhaustive()
    }
}

enum ExchangeEvent {
    Head(Result<reqwest::Response, reqwest::Error>),
    Chunk(Result<Option<Bytes>, reqwest::Error>),
    CallFacts(CallOutcome, usize),
    Tick,
}

impl Exchange {
    /// Puts the hidden turns back and starts the loop; nothing is sent before [`Exchange::next`] is polled. It is boxed,
    /// since the body of an answer moves it with each piece.
    pub(crate) async fn start(call: ModelCall, parts: ExchangeParts) -> Box<Self> {
        // From here on a client that disconnects has a line in the log.
        let mut exchange = Box::new(Self {
            call,
            parts,
            actions: VecDeque::with_capacity(4),
            scratch: Vec::with_capacity(4),
            round: RoundState::default(),
            answer: AnswerState::default(),
        });
        exchange.begin().await;
        exchange
    }

    async fn begin(&mut self) {
        let (expansion, mut files) = self
            .parts
            .hidden
            .expand(&self.call.gateway, self.parts.drive.request())
            .await;
        // Files that the request names are newer than files of earlier turns.
        files.append(&mut self.parts.given);
        if !files.is_empty()
            && let Some(tools) = &self.parts.tools
            && !tools.stage_files(files)
        {
            self.call
                .log
                .notes
                .push("files of earlier turns were left out: no memory".to_owned());
        }
        let Expansion { edits, open_calls, .. } = expansion;
        self.parts
            .drive
            .start(edits, open_calls, self.call.begun.elapsed(), &mut self.scratch);
        self.actions.extend(self.scratch.drain(..));
    }

    /// The provider's headers of an answer with this status, as they go to the client: those of round 1, or of the error that
    /// is passed on.
    pub(crate) fn take_headers(&mut self, status: u16) -> (HeaderMap, StatusReason) {
        let headers = match status {
            200..300 => &mut self.answer.head_headers,
            _ => &mut self.answer.error_headers,
        };
        headers.take().unwrap_or_default()
    }

    /// Whether the provider refused the tools that were added, and the request was sent without them.
    pub(crate) const fn resent_without_tools(&self) -> bool {
        self.parts.drive.resent_without_tools()
    }

    /// The loop's part of the log so far; the rest is published at the end.
    pub(crate) const fn log_mut(&mut self) -> &mut RequestLog {
        &mut self.call.log
    }

    /// The next piece of the answer; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<AnswerPiece> {
        loop {
            while let Some(action) = self.actions.pop_front() {
                if let Some(piece) = self.perform(action).await {
                    return Some(piece);
                }
            }
            if self.answer.finished {
                return None;
            }
            let event = self.event().await;
            self.feed(event);
        }
    }

    /// Performs one action of the loop; returns a piece for the client.
    async fn perform(&mut self, action: DriveAction) -> Option<AnswerPiece> {
        match action {
            DriveAction::Send { body, round, delay } => self.send(body, round, delay),
            DriveAction::Run(call) => self.run(call),
            DriveAction::Remember(mut hidden) => {
                hidden.response_id = self.known_id(&hidden.response_id);
                self.keep_files(&hidden.response_id).await;
                self.parts.hidden.remember(
                    &self.call.gateway,
                    self.parts.drive.request(),
                    *hidden,
                    &self.answer.kept,
                );
            }
            DriveAction::Note(note) => {
                self.parts
                    .hidden
                    .note(&self.call.gateway, self.parts.drive.request().format(), *note);
            }
            DriveAction::ClientHead(head) => {
                self.call.log.status = head.status;
                self.answer.body_kind = head.body;
                return Some(AnswerPiece::Head(head));
            }
            DriveAction::ClientBytes(first) => return Some(AnswerPiece::Bytes(self.coalesce(first))),
            DriveAction::Finish(summary) => {
                let broken = self.answer.body_kind == BodyKind::AsUpstream && matches!(summary.end, EndKind::Fault(_));
                self.finish(summary).await;
                return broken.then_some(AnswerPiece::Broken);
            }
        }
        None
    }

    /// Bytes that are ready together go out in one write.
    fn coalesce(&mut self, first: Bytes) -> Bytes {
        let more = self
            .actions
            .iter()
            .take_while(|action| matches!(action, DriveAction::ClientBytes(_)))
            .count();
        let bytes = if more == 0 {
            first
        } else {
            let mut joined = BytesMut::from(first);
            for action in self.actions.drain(..more) {
                if let DriveAction::ClientBytes(bytes) = action {
                    joined.extend_from_slice(&bytes);
                }
            }
            joined.freeze()
        };
        if self.parts.recording.is_some() {
            self.answer.recorded.extend_from_slice(&bytes);
        }
        bytes
    }

    /// Takes memory for a body that is about to be sent: the received one stays, and while a round's body is made, the
    /// one before still exists. An unchanged body is the bytes that were received.
    fn hold(&mut self, body: &Bytes) -> Result<(), Fault> {
        let raw = self.parts.drive.request().raw();
        let copy = if std::ptr::eq(raw.as_ptr(), body.as_ptr()) {
            0
        } else {
            body.len()
        };
        let held = self.parts.holding.grow_to(raw.len() + self.round.sent_bytes + copy);
        self.round.sent_bytes = copy;
        held.map_err(|_| Fault::new(503, OUT_OF_MEMORY))
    }

    fn send(&mut self, body: Bytes, round: u32, delay: Duration) {
        if let Err(fault) = self.hold(&body) {
            return self.input(DriveInput::Refused(fault));
        }
        if let Some(recording) = &self.parts.recording {
            recording.write(&format!("upstream-{round}.json"), body.clone());
        }
        let mut headers = self.parts.target.headers.clone();
        if self.call.log.rounds > 0 {
            // A second, different body under the same key is a conflict (docs/design/wire-formats.md#headers).
            headers.remove("idempotency-key");
            self.call.log.sent_first_again |= round == 1;
            if self.parts.drive.resent_without_tools() && round == 1 {
                self.call.log.remove_skills();
            }
        }
        // Not at the end only: a client may leave before it.
        self.call.log.rounds = round;
        let server = || self.call.gateway.upstreams.server(self.parts.target.api);
        self.call
            .trace
            .send(&mut headers, (round, &body, delay), &self.call.log, server);
        let body = self.choose_encoding(body, &mut headers);
        self.call.log.timeline.sent(round, self.call.begun.elapsed() + delay);
        let request =
            self.call
                .gateway
                .upstreams
                .post(self.parts.target.api, &self.parts.target.path_and_query, headers, body);
        self.round.upstream = Upstream::Sending(Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            request.send().await
        }));
    }

    /// The body to send: a compressed one that is not changed is sent as it was received; every other one goes without the header
    /// that names its encoding.
    fn choose_encoding(&mut self, body: Bytes, headers: &mut HeaderMap) -> Bytes {
        let is_same = body.as_ptr() == self.parts.drive.request().raw().as_ptr();
        match self.parts.target.received.take() {
            Some(received) if is_same => received,
            _ => {
                headers.remove(http::header::CONTENT_ENCODING);
                body
            }
        }
    }

    fn run(&mut self, call: knack_wire::ToolCall) {
        let Some(tools) = self.parts.tools.clone() else { return };
        let response_id = self.known_id(self.parts.drive.response_id());
        let cancel = self.round.cancel.get_or_insert_default().child_token();
        // Its answer is complete: the time of the run is not the provider's.
        self.round_over();
        let trace = self.call.trace.call(&call);
        self.call.log.timeline.called(&call, self.call.begun.elapsed());
        let run = tools.run(call, response_id, cancel, trace);
        let Some(container) = self.parts.container.clone() else {
            let run = async move { (run.await, 0) };
            return self.round.running.get_or_insert_default().push(Box::pin(run));
        };
        let (gateway, caller) = (Arc::clone(&self.call.gateway), self.parts.hidden.caller.clone());
        let run = async move { delivered::contained(&gateway, caller, &container, run).await };
        self.round.running.get_or_insert_default().push(Box::pin(run));
    }

    async fn event(&mut self) -> ExchangeEvent {
        let wake = self.parts.drive.wake();
        let (begun, running) = (self.call.begun, &mut self.round.running);
        let tick = async move {
            match wake {
                Some(at) => tokio::time::sleep_until(begun + at).await,
                None => std::future::pending().await,
            }
        };
        let outcome = async {
            match running {
                Some(running) => running.next().await,
                None => None,
            }
        };
        let upstream = async {
            match &mut self.round.upstream {
                Upstream::Idle => std::future::pending().await,
                Upstream::Sending(sending) => ExchangeEvent::Head(sending.await),
                Upstream::Reading(response) => ExchangeEvent::Chunk(response.chunk().await),
            }
        };
        tokio::select! {
            // Data first: a busy stream must not be starved by timers, and timers fire within one poll anyway.
            biased;
            event = upstream => event,
            Some((outcome, lost)) = outcome => ExchangeEvent::CallFacts(outcome, lost),
            () = tick => ExchangeEvent::Tick,
        }
    }

    fn feed(&mut self, event: ExchangeEvent) {
        self.round.late = matches!(event, ExchangeEvent::Tick);
        let at = self.call.begun.elapsed();
        match event {
            ExchangeEvent::Head(Ok(response)) => self.feed_head(response, at),
            ExchangeEvent::Head(Err(error)) => self.feed_no_answer(error, at),
            ExchangeEvent::Chunk(Ok(Some(bytes))) => {
                self.classify_by_first_bytes(&bytes);
                self.call.trace.bytes(&bytes);
                self.call.log.timeline.bytes(at);
                self.input(DriveInput::Body(bytes));
            }
            ExchangeEvent::Chunk(Ok(None)) => {
                self.classify_by_first_bytes(b"");
                self.round.upstream = Upstream::Idle;
                self.input(DriveInput::End);
                self.body_ended();
            }
            ExchangeEvent::Chunk(Err(error)) => {
                self.classify_by_first_bytes(b"");
                tracing::warn!(request_id = %self.call.log.request_id, error = %causes(error), "the provider closed the connection before the end of its answer");
                self.round.upstream = Upstream::Idle;
                self.call.trace.over(Some(genai::Failure::Broken));
                self.call.log.timeline.over(Some("broken"), at);
                self.input(DriveInput::Failed(UpstreamFailure::Broken));
            }
            ExchangeEvent::CallFacts(outcome, lost) => {
                if let Some(id) = self.parts.container.as_ref().filter(|_| lost > 0) {
                    let text = format!("{lost} files could not be kept in the container {id}");
                    self.call.log.notes.push(text);
                }
                self.call.log.timeline.answered(outcome.token, outcome.is_error, at);
                self.answer.made.extend(outcome.files.iter().cloned());
                self.input(DriveInput::Result(outcome));
            }
            ExchangeEvent::Tick => self.input(DriveInput::Tick),
        }
    }

    /// Takes the head of an answer. One in a content coding cannot be read by the loop and is refused.
    fn feed_head(&mut self, response: reqwest::Response, at: Duration) {
        let headers = response.headers();
        let head = AnswerHead {
            status: response.status().as_u16(),
            stream: content_type(headers).is_some_and(is_event_stream),
            retry_after: retry_after(headers),
        };
        let is_typed = headers.contains_key(http::header::CONTENT_TYPE);
        self.call.log.timeline.head(head.status, at);
        let passed_on = || {
            (
                forward_response_headers(headers),
                StatusReason::of(response.extensions()),
            )
        };
        if !response.status().is_success() {
            self.answer.error_headers = Some(passed_on());
        } else if self.answer.head_headers.is_none() {
            self.answer.head_headers = Some(passed_on());
        }
        if let Some(coding) = coding(headers).filter(|_| self.parts.drive.reads() && response.status().is_success()) {
            let fault = Fault::new(502, compressed(&coding));
            self.call.trace.head(head.status, head.stream);
            self.round.upstream = Upstream::Idle;
            self.call.trace.over(Some(genai::Failure::Broken));
            self.call.log.timeline.over(Some("broken"), at);
            return self.input(DriveInput::Refused(fault));
        }
        self.round.upstream = Upstream::Reading(Box::new(response));
        if is_typed || !self.parts.drive.reads() {
            self.call.trace.head(head.status, head.stream);
            self.input(DriveInput::Head(head));
        } else {
            self.round.untyped = Some(head);
        }
    }

    /// Hands on a head that waited for the first bytes of its body.
    fn classify_by_first_bytes(&mut self, bytes: &[u8]) {
        if let Some(mut head) = self.round.untyped.take() {
            head.stream = begins_event(bytes);
            self.call.trace.head(head.status, head.stream);
            self.input(DriveInput::Head(head));
        }
    }

    /// Takes the error of a request that no provider answered.
    fn feed_no_answer(&mut self, error: reqwest::Error, at: Duration) {
        let refused = certificate_fault(&error);
        tracing::warn!(
            request_id = %self.call.log.request_id, error = %causes(error),
            certificate = refused.as_ref().map(|fault| fault.message.as_str()), "no answer from the provider"
        );
        self.round.upstream = Upstream::Idle;
        self.call.trace.over(Some(genai::Failure::Connect));
        self.call.log.timeline.over(Some("connect"), at);
        // Asking again cannot help a certificate.
        self.input(refused.map_or(DriveInput::Failed(UpstreamFailure::Connect), DriveInput::Refused));
    }

    /// The provider's answer has ended. One that the loop rejects is closed with the reason, at the end.
    fn body_ended(&mut self) {
        let is_fault =
            |action: &DriveAction| matches!(action, DriveAction::Finish(end) if matches!(end.end, EndKind::Fault(_)));
        if !self.actions.iter().any(is_fault) {
            self.round_over();
        }
    }

    /// The open round is over, with its last byte.
    fn round_over(&mut self) {
        self.call.trace.over(None);
        self.call.log.timeline.over(None, self.call.begun.elapsed());
    }

    fn input(&mut self, input: DriveInput) {
        self.parts
            .drive
            .feed(input, self.call.begun.elapsed(), &mut self.scratch);
        self.actions.extend(self.scratch.drain(..));
    }

    /// The id that the answer's files are kept under: its own, or that of the request (`x-knack-request-id`) where the
    /// provider gives none, as some Gemini servers do.
    fn known_id(&self, response_id: &str) -> String {
        let id = if response_id.is_empty() {
            &self.call.log.request_id
        } else {
            response_id
        };
        id.to_owned()
    }

    /// Keeps generated files under the response's id before the client can ask for them.
    async fn keep_files(&mut self, response_id: &str) {
        if self.answer.made.is_empty() || !self.answer.kept.is_empty() {
            return;
        }
        // Boxed, so that requests without files do not carry its state.
        let kept = delivered::keep(
            &self.call.gateway,
            &self.parts.hidden.caller,
            response_id,
            &self.answer.made,
            &mut self.call.log,
        );
        self.answer.kept = Box::pin(kept).await;
    }

    /// Remembers an answer that its client has left: it may have read its id.
    fn remember_left(&mut self) {
        let waiting = self.actions.drain(..).find_map(|action| match action {
            DriveAction::Remember(hidden) => Some(*hidden),
            _ => None,
        });
        if let Some(hidden) = waiting.or_else(|| self.parts.drive.broken()) {
            self.parts.hidden.remember(
                &self.call.gateway,
                self.parts.drive.request(),
                hidden,
                &self.answer.kept,
            );
        }
    }

    /// Ends the runs that nobody waits for any more, and has them noted.
    fn end_runs(&mut self, why: EarlyEnd) {
        if let Some(cancel) = &self.round.cancel {
            cancel.cancel();
        }
        if self.round.running.is_some()
            && let Some(tools) = &self.parts.tools
        {
            tools.end_early(why);
            self.round.running = None;
        }
    }

    async fn finish(&mut self, summary: DriveSummary) {
        self.keep_files(&self.known_id(&summary.response_id)).await;
        self.end_runs(if self.round.late {
            EarlyEnd::Deadline
        } else {
            EarlyEnd::Left
        });
        self.round.upstream = Upstream::Idle;
        self.answer.finished = true;
        self.call.log.rounds = summary.rounds;
        self.ended(self.as_read(summary.end));
        if let Some(recording) = &self.parts.recording {
            recording.write("response", std::mem::take(&mut self.answer.recorded).freeze());
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let is_cut = self.call.gateway.is_cut();
        self.end_runs(if is_cut { EarlyEnd::Shutdown } else { EarlyEnd::Left });
        self.call.log.duration = self.call.begun.elapsed();
        if let Some(tools) = &self.parts.tools {
            tools.take_notes(&mut self.call.log);
        }
        let failed = if self.answer.finished { None } else { self.failure() };
        let has_left = !self.answer.finished && failed.is_none();
        if !self.answer.finished {
            self.remember_left();
        }
        match failed {
            Some(end) => self.ended(end),
            None if has_left => self.call.log.dropped(is_cut),
            None => {}
        }
        self.call
            .gateway
            .metrics
            .turn_store_bytes
            .set(i64::try_from(self.call.gateway.turn_store.held_bytes()).unwrap_or(i64::MAX));
        let why = if is_cut {
            genai::Failure::Shutdown
        } else {
            genai::Failure::Cancelled
        };
        self.call.trace.finish(&self.call.log, has_left.then_some(&why));
        let Gateway {
            console,
            metrics,
            recent,
            ..
        } = &*self.call.gateway;
        std::mem::take(&mut self.call.log).publish(&**console, metrics, recent);
    }
}

/// The answer to the client when there is no memory for the body of a round.
const OUT_OF_MEMORY: &str =
    "The gateway holds too many large requests at this moment and cannot continue this one; try again in a second.";
