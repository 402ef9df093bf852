//! Reading upstream's answers: heads, streams, bodies, errors.

use std::time::Duration;

use bytes::Bytes;

use super::{Drive, DriveState, MAX_RETRY_AFTER, MAX_TURN, RETRIES, RETRY_DELAY};
use crate::drive::aliases::Aliases;
use crate::drive::refusal::{is_of_our_text, is_of_our_tools};
use crate::drive::sorter::Sorter;
use crate::drive::values::{AnswerHead, BodyKind, ClientHead, DriveAction, EndKind, HiddenTurns};
use crate::fault::Fault;
use crate::format::{DecodedFrame, FramePart, Garbage, dialect};
use crate::frame::{SseDecoder, SseEvent};
use crate::json::Edits;
use crate::request::Injection;
use crate::route::Format;
use crate::stored::StoredEvents;

/// The message to a client whose answer ends before it is one.
const INCOMPLETE: &str = "The upstream's stream ended before its answer was complete.";

/// Most parts of one event, or of an answer in one piece: what a part is shown as depends on those before it. An answer in one piece has
/// some hundred.
const FRAME_MAX_PARTS: usize = 4_096;

/// The frame, unless it has more parts than an answer has.
fn sortable(frame: DecodedFrame) -> Result<DecodedFrame, Garbage> {
    if frame.parts.len() > FRAME_MAX_PARTS {
        return Err(Garbage(format!("it has more than {FRAME_MAX_PARTS} parts")));
    }
    Ok(frame)
}

impl Drive {
    pub(super) fn head(&mut self, head: AnswerHead, now: Duration, out: &mut Vec<DriveAction>) {
        self.last_input = now;
        let good = (200..300).contains(&head.status);
        let lost = self.resend.may_answer_lost && head.status == 400 && self.round == 1;
        let left_out = self.resend.may_leave_out && matches!(head.status, 400 | 422) && self.round == 1;
        // llama.cpp refuses tools with 500.
        let goes_without = self.resend.edits_without_tools.is_some()
            && matches!(head.status, 400 | 404 | 422 | 500)
            && self.round == 1;
        if good {
            // It has a copy of the hidden turns.
            self.resend.edits_without_tools = None;
            if self.remakes_body {
                self.body = Bytes::new();
            }
        }
        if self.round == 1 && (self.transparent || !good) && !lost && !left_out && !goes_without {
            self.state = DriveState::Passing {
                status: head.status,
                stream: head.stream && good,
            };
            if !(good && head.stream) {
                self.background = None;
            }
            self.head_sent = true;
            return out.push(DriveAction::ClientHead(ClientHead {
                status: head.status,
                body: BodyKind::AsUpstream,
                upstream_headers: true,
                // Calls that an earlier answer left open may have run before round 1.
                no_retry: !good && self.calls_run > 0,
            }));
        }
        if !good {
            let retryable = matches!(head.status, 408 | 429 | 500..=599);
            let delay = head.retry_after.unwrap_or(RETRY_DELAY * 2_u32.pow(self.retries));
            if retryable && delay <= MAX_RETRY_AFTER && self.retry(delay, now, out) {
                return;
            }
            self.buffer.clear();
            self.state = DriveState::Failing { status: head.status };
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
        self.state = DriveState::Reading;
    }

    /// Hands on bytes of an answer that is passed on unread. A stream in the background is remembered with its first
    /// event: its client may read it by its id from then on.
    pub(super) fn pass(&mut self, bytes: Bytes, out: &mut Vec<DriveAction>) {
        let Some(events) = &mut self.background else {
            return out.push(DriveAction::ClientBytes(bytes));
        };
        let was_known = events.id().is_some();
        let shown = events.push(&bytes);
        if let Some(id) = events.id().filter(|_| !was_known) {
            out.push(DriveAction::Remember(Box::new(HiddenTurns {
                response_id: id.to_owned(),
                state: id.to_owned(),
                stored: Some(events.form().clone()),
                ..HiddenTurns::default()
            })));
        }
        if !shown.is_empty() {
            out.push(DriveAction::ClientBytes(shown.into()));
        }
    }

    /// Hands on what waits for the end of a line.
    pub(super) fn pass_rest(&mut self, out: &mut Vec<DriveAction>) {
        let rest = self.background.as_mut().map(StoredEvents::rest).unwrap_or_default();
        if !rest.is_empty() {
            out.push(DriveAction::ClientBytes(rest.into()));
        }
    }

    /// Sends the same round again if that is allowed.
    pub(super) fn retry(&mut self, delay: Duration, now: Duration, out: &mut Vec<DriveAction>) -> bool {
        if self.round < 2 || self.retries >= RETRIES || now + delay >= self.settings.deadline {
            return false;
        }
        self.retries += 1;
        self.send(delay.max(Duration::from_millis(1)), now, out);
        true
    }

    pub(super) fn no_answer(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        if !self.retry(RETRY_DELAY * 2_u32.pow(self.retries), now, out) {
            self.fault(&Fault::new(502, Fault::UNREACHABLE), out);
        }
    }

    pub(super) fn stream_bytes(&mut self, bytes: &[u8], now: Duration, out: &mut Vec<DriveAction>) {
        let mut events = Vec::new();
        let read = self.decoder.push(bytes, &mut events);
        self.events(events, now, out);
        if read.is_err() && self.state == DriveState::Reading {
            self.fault(&Fault::new(502, "The upstream sent an event that is too large."), out);
        }
    }

    /// Takes in complete events; everything they show goes out in one piece.
    pub(super) fn events(&mut self, events: Vec<SseEvent>, now: Duration, out: &mut Vec<DriveAction>) {
        let mut shown = Vec::new();
        for event in events {
            if event.data.is_empty() {
                continue;
            }
            let frame = match self.codec.frame(event).and_then(sortable) {
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
            if self.ends_early(&frame) {
                self.flush(&mut shown, now, out);
                return self.fault(&Fault::new(502, INCOMPLETE), out);
            }
            self.client_head(out);
            self.note_begun(out);
            if frame.parts.contains(&FramePart::Error) {
                self.remember_broken(out);
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

    /// True if a frame is the end marker of an answer that is none: in Messages one without its stop reason, in Chat one without
    /// any chunk. Some servers of Chat never send a reason.
    fn ends_early(&self, frame: &DecodedFrame) -> bool {
        let is_complete = match self.request.format() {
            Format::Messages => self.sorter.stop.is_some(),
            Format::Chat => self.sorter.begun,
            Format::Responses | Format::Gemini => true,
        };
        !is_complete && frame.parts == [FramePart::End]
    }

    /// Hands over what the client sees of what has come. If that is nothing (it is held, hidden, or was a comment), signs of life take
    /// its place.
    pub(super) fn flush(&mut self, shown: &mut Vec<u8>, now: Duration, out: &mut Vec<DriveAction>) {
        if shown.is_empty() {
            self.quiet.get_or_insert((now, 0));
        } else {
            self.quiet = None;
            out.push(DriveAction::ClientBytes(std::mem::take(shown).into()));
        }
    }

    /// The head of a streamed answer goes out with the first event that was understood.
    pub(super) fn client_head(&mut self, out: &mut Vec<DriveAction>) {
        if !self.head_sent {
            self.head_sent = true;
            out.push(DriveAction::ClientHead(ClientHead {
                status: 200,
                body: BodyKind::Stream,
                upstream_headers: true,
                no_retry: false,
            }));
        }
    }

    pub(super) fn body_bytes(&mut self, bytes: &[u8], out: &mut Vec<DriveAction>) {
        if self.buffer.len() + bytes.len() > MAX_TURN {
            return self.fault(
                &Fault::new(502, format!("The upstream's answer is larger than {MAX_TURN} bytes.")),
                out,
            );
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn end(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        if self.stream == Some(true) {
            let mut events = Vec::new();
            let read = self.decoder.finish(&mut events);
            self.events(events, now, out);
            if self.state != DriveState::Reading {
                return;
            }
            if self.sorter.stop.is_none() || read.is_err() {
                return self.fault(&Fault::new(502, INCOMPLETE), out);
            }
            return self.turn_over(now, out);
        }
        let body = self.buffer.split().freeze();
        match self.codec.body(body).and_then(sortable) {
            Ok(frame) if frame.parts.contains(&FramePart::Error) => self.pass_strange_body(&frame, out),
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

    /// A 200 whose body is not an answer of the format.
    pub(super) fn pass_strange_body(&mut self, frame: &DecodedFrame, out: &mut Vec<DriveAction>) {
        self.remember_broken(out);
        out.push(DriveAction::ClientHead(ClientHead {
            status: 200,
            body: BodyKind::Json,
            upstream_headers: true,
            no_retry: self.calls_run > 0,
        }));
        out.push(DriveAction::ClientBytes(frame.raw.clone()));
        self.finish_with(EndKind::Upstream(200), out);
    }

    /// An error answer is complete: it is passed on, unless it names a call that the state which the request goes on from
    /// left open. In a conversation, which cannot be left, the call is answered once; a response can be left, so the
    /// client gets an error that says what to send instead of its id.
    ///
    /// A refusal of round 1 that names what was added for the loop's own sake is answered by the same request without it,
    /// once: nothing ran, and the client cannot take out what it did not send. The same holds of one that is about Knack's
    /// tools or system text.
    pub(super) fn failed(&mut self, status: u16, now: Duration, out: &mut Vec<DriveAction>) {
        if std::mem::take(&mut self.resend.may_leave_out) && self.round == 1 {
            let dialect = dialect(self.request.format());
            if let Some(body) = dialect.without_added(&self.request, &self.body, &self.buffer) {
                return self.send_first_again(body.into(), now, out);
            }
        }
        if self.round == 1
            && let Some(edits) = self.resend.edits_without_tools.take()
            && (is_of_our_tools(&self.buffer, &self.fields) || is_of_our_text(&self.buffer, &self.request))
        {
            return self.send_without(edits, now, out);
        }
        if std::mem::take(&mut self.resend.may_answer_lost) && self.round == 1 {
            let dialect = dialect(self.request.format());
            if let Some(fault) = dialect.lost_state(&self.body, &self.buffer) {
                return self.fault(&fault, out);
            }
            let answered = dialect.answer_open(&self.body, &self.buffer, self.settings.lost_text);
            if let Some(body) = answered {
                return self.send_first_again(body.into(), now, out);
            }
        }
        self.pass_late_error(status, out);
    }

    /// Sends the request without Knack's text and tools: nothing ran, and the client cannot take out what it did not send.
    fn send_without(&mut self, edits: Edits, now: Duration, out: &mut Vec<DriveAction>) {
        self.injection = Injection::default();
        self.aliases = Aliases::default();
        self.sorter = Sorter::new(Vec::new(), Vec::new(), false, false);
        self.resend.resent_without_tools = true;
        self.transparent = edits.is_empty() || !self.must_read();
        let body = self.request.apply(&self.injection, edits);
        if !self.transparent {
            self.codec.sent(&self.request, &body);
        }
        self.send_first_again(body, now, out);
    }

    /// Sends round 1 in another form, since the upstream refused the first one.
    fn send_first_again(&mut self, body: Bytes, now: Duration, out: &mut Vec<DriveAction>) {
        self.body = body;
        self.remakes_body = false;
        self.round = 0;
        self.send(Duration::ZERO, now, out);
    }

    pub(super) fn pass_late_error(&mut self, status: u16, out: &mut Vec<DriveAction>) {
        let body = self.buffer.split().freeze();
        self.remember_broken(out);
        if self.head_sent {
            let dialect = dialect(self.request.format());
            let frame = dialect.upstream_error_frame(status, &body, self.settings.request_id.as_deref());
            let frame = self.number_error(frame);
            out.push(DriveAction::ClientBytes(frame.into()));
        } else {
            self.head_sent = true;
            out.push(DriveAction::ClientHead(ClientHead {
                status,
                body: BodyKind::AsUpstream,
                upstream_headers: true,
                no_retry: self.calls_run > 0,
            }));
            out.push(DriveAction::ClientBytes(body));
        }
        self.finish_with(EndKind::Upstream(status), out);
    }
}
