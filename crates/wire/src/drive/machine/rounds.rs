//! The steps after a complete turn: calls, results, the next round, the end.

use std::time::Duration;

use bytes::Bytes;

use super::{Drive, DriveState, PendingCall};
use crate::drive::values::{
    BodyKind, CallOutcome, CallResult, ClientHead, DriveAction, EndKind, HiddenEntry, HiddenTurns, OpenCall, RoundNote,
    ToolCall,
};
use crate::format::{Ending, dialect, splice};
use crate::json::Edits;
use crate::request::ToolChoice;
use crate::route::Format;
use crate::stored::StoredForm;

impl Drive {
    /// A turn is complete: hand it out, or run what is Knack's.
    pub(super) fn turn_over(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        let mut shown = Vec::new();
        self.sorter.close(self.codec.as_mut(), &mut shown);
        let own = self.sorter.own_calls();
        let runs = !own.is_empty() && self.sorter.stop.unwrap_or(true);
        self.sorter.settle_rest(!runs, self.codec.as_mut(), &mut shown);
        let of_client = self.sorter.client_calls();
        self.mixed = of_client.into_iter().any(|unit| !self.codec.is_answered(unit));
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
        let calls = own.iter().map(|unit| PendingCall {
            call: self.call(*unit),
            caller: self.codec.caller(*unit),
            outcome: None,
        });
        self.pending = calls.collect();
        if limit {
            return self.limit(out);
        }
        out.extend(self.note(true).map(DriveAction::Note));
        self.refuse_beyond(self.settings.max_calls, self.settings.calls_text);
        self.state = DriveState::Running;
        if self.quiet.is_none() {
            self.quiet = Some((now, 0));
        }
        self.run_pending(now, out);
    }

    /// Asks for the calls that are not refused: at once, or one after the other where the client forbids several in a turn,
    /// since the model may have made them regardless, and not to be run side by side.
    fn run_pending(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        let at_once = if self.fields.one_call { 1 } else { usize::MAX };
        let open = self.pending.iter().filter(|pending| pending.outcome.is_none());
        for pending in open.take(at_once) {
            self.calls_run += 1;
            out.push(DriveAction::Run(pending.call.clone()));
        }
        if self.pending.iter().all(|pending| pending.outcome.is_some()) {
            self.results_in(now, out);
        }
    }

    /// Answers calls from the `allowed`th on with a text instead of a run.
    fn refuse_beyond(&mut self, allowed: usize, text: &str) {
        for pending in self.pending.iter_mut().skip(allowed) {
            pending.outcome = Some(CallOutcome {
                token: pending.call.token,
                text: text.to_owned(),
                is_error: true,
                ..CallOutcome::default()
            });
        }
    }

    pub(super) fn call(&self, unit: u32) -> ToolCall {
        let call = self.codec.call(unit);
        let (name, id) = call
            .map(|call| (self.aliases.resolve(call.name).to_owned(), call.id.to_owned()))
            .unwrap_or_default();
        let arguments = self.codec.arguments(unit);
        let arguments = if arguments.trim().is_empty() {
            "{}".to_owned()
        } else {
            arguments
        };
        ToolCall {
            token: unit,
            round: self.skill_rounds,
            name,
            id,
            arguments,
        }
    }

    /// The turn as it goes back to the provider.
    fn whole_turn(&self) -> Vec<Bytes> {
        self.aliases.rename(self.request.format(), self.codec.turn())
    }

    /// One skill round too many: nothing runs, and the answer says so.
    pub(super) fn limit(&mut self, out: &mut Vec<DriveAction>) {
        let text = self.settings.limit_text;
        let results = self
            .pending
            .drain(..)
            .map(|pending| refused(pending, text.to_owned()))
            .collect();
        self.entries.push(HiddenEntry::Turn(self.whole_turn()));
        self.entries.push(HiddenEntry::Results(results));
        let ending = if self.mixed { Ending::ClientCalls } else { Ending::Limit };
        self.finish(ending, out);
    }

    pub(super) fn result(&mut self, outcome: CallOutcome, now: Duration, out: &mut Vec<DriveAction>) {
        let is_asked = |pending: &&mut PendingCall| pending.outcome.is_none() && pending.call.token == outcome.token;
        let Some(pending) = self.pending.iter_mut().find(is_asked) else {
            return;
        };
        pending.outcome = Some(outcome);
        if self.fields.one_call {
            self.run_pending(now, out);
        } else if self.pending.iter().all(|pending| pending.outcome.is_some()) {
            self.results_in(now, out);
        }
    }

    /// Runs the calls that an earlier answer left open; the first request goes out with their results. Without tools of
    /// Knack's in this request they stay refused.
    pub(super) fn resume(&mut self, calls: Vec<OpenCall>, now: Duration, out: &mut Vec<DriveAction>) {
        self.pending = (0..)
            .zip(calls)
            .map(|(token, call)| PendingCall {
                call: ToolCall {
                    token,
                    round: 0,
                    name: call.name,
                    id: call.id,
                    arguments: call.arguments,
                },
                caller: None,
                outcome: None,
            })
            .collect();
        if self.injection.tools().is_empty() {
            self.refuse_beyond(0, self.settings.limit_text);
        } else {
            self.refuse_beyond(self.settings.max_calls, self.settings.calls_text);
        }
        self.state = DriveState::Running;
        self.run_pending(now, out);
    }

    pub(super) fn results_in(&mut self, now: Duration, out: &mut Vec<DriveAction>) {
        let results = self.take_results();
        let dialect = dialect(self.request.format());
        if self.round == 0 {
            // Results of calls that an earlier answer left open: this exchange has no turn yet.
            let elements = dialect.results(&results);
            self.body = splice::grow(&self.body, dialect.conversation_key(), &elements);
            self.entries.push(HiddenEntry::Results(results));
            return self.send(Duration::ZERO, now, out);
        }
        let mut shown = Vec::new();
        if self.settings.native {
            self.codec.show_results(&results, &mut shown);
            self.flush(&mut shown, now, out);
        }
        let turn = self.whole_turn();
        self.entries.push(HiddenEntry::Turn(turn.clone()));
        self.entries.push(HiddenEntry::Results(results.clone()));
        if self.mixed {
            return self.finish(Ending::ClientCalls, out);
        }
        self.next_round(&turn, &dialect.results(&results), now, out);
    }

    /// The results of the calls that ran, with the note of the last allowed round.
    fn take_results(&mut self) -> Vec<CallResult> {
        let last = self.skill_rounds >= self.settings.max_rounds && !self.settings.last_note.is_empty();
        let note = if last { self.settings.last_note } else { "" };
        let mut results = Vec::with_capacity(self.pending.len());
        for pending in self.pending.drain(..) {
            let Some(outcome) = pending.outcome else { continue };
            self.files.extend(outcome.files.iter().cloned());
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
                files: outcome.files,
                contained: outcome.contained,
                caller: pending.caller,
            });
        }
        results
    }

    fn next_round(&mut self, turn: &[Bytes], results: &[Bytes], now: Duration, out: &mut Vec<DriveAction>) {
        let dialect = dialect(self.request.format());
        if std::mem::take(&mut self.remakes_body) {
            self.body = self.request.apply(&self.injection, Edits::new());
        }
        self.body = dialect.next_body(&self.body, turn, results);
        if self.round == 1
            && self.relaxes()
            && let Some(relaxed) = dialect.relax(&self.body)
        {
            self.body = relaxed.into();
        }
        self.codec.begin_round();
        self.sorter.begin_round();
        if self.quiet.is_none() {
            self.quiet = Some((now, 0));
        }
        self.send(Duration::ZERO, now, out);
    }

    /// A forced choice was met in round 1 if the forced tool was Knack's, or if only Knack's tools can meet it.
    pub(super) fn relaxes(&self) -> bool {
        // A tool of the client's that one of Knack's replaces.
        let code_tool = self.fields.code_tool.as_ref();
        let code_tool = code_tool.filter(|_| self.injection.code_tool.is_some());
        let is_ours = |name: &String| code_tool.is_some_and(|tool| tool.name == *name);
        let alone = !self.fields.unnamed_tools && self.fields.client_tools.iter().all(is_ours);
        match &self.fields.tool_choice {
            ToolChoice::Required => alone || code_tool.is_some_and(|tool| tool.forced),
            ToolChoice::Named(name) => {
                alone || is_ours(name) || self.injection.tools().iter().any(|tool| tool.name == *name)
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed => false,
        }
    }

    pub(super) fn finish(&mut self, ending: Ending, out: &mut Vec<DriveAction>) {
        // In the native form too: no API's form of a run says all that the model read of it. Most answers have nothing to remember.
        let stored = self.codec.stored(Some(ending));
        if !self.entries.is_empty() || stored.is_some() {
            let hidden = self.hidden(ending, stored);
            out.push(DriveAction::Remember(Box::new(hidden)));
        }
        let mut bytes = Vec::new();
        self.codec.finish(ending, &self.files, &mut bytes);
        if !self.head_sent {
            self.head_sent = true;
            out.push(DriveAction::ClientHead(ClientHead {
                status: 200,
                body: BodyKind::Json,
                upstream_headers: true,
                no_retry: false,
            }));
        }
        out.push(DriveAction::ClientBytes(bytes.into()));
        self.finish_with(
            if ending == Ending::Limit {
                EndKind::Limit
            } else {
                EndKind::Answer
            },
            out,
        );
    }

    fn hidden(&mut self, ending: Ending, stored: Option<StoredForm>) -> HiddenTurns {
        let mut entries = std::mem::take(&mut self.entries);
        if ending == Ending::AsCame && !entries.is_empty() {
            let turn = self.whole_turn();
            // An answer may end in a round that says nothing, which no provider takes back.
            if !turn.is_empty() {
                entries.push(HiddenEntry::Turn(turn));
            }
        }
        let client_calls = if self.mixed {
            self.codec.shown_calls().to_vec()
        } else {
            Vec::new()
        };
        HiddenTurns {
            entries,
            visible: self.codec.visible(),
            client_calls,
            response_id: self.codec.response_id().to_owned(),
            state: self.codec.state_id().to_owned(),
            paused: ending == Ending::Limit,
            stored,
        }
    }

    /// What is to be remembered of an answer that ends here, although its loop does not: the client was shown the id of a
    /// response that the upstream keeps, with what is Knack's in it; or the upstream lists what it keeps (Chat), and the
    /// client was shown no answer.
    pub fn broken(&self) -> Option<HiddenTurns> {
        if self.state == DriveState::Done {
            return None;
        }
        let is_shown = self.head_sent && self.stream == Some(true);
        let (mut stored, id) = (self.codec.stored(None)?, self.codec.response_id().to_owned());
        stored.cut = self.round == 1 && self.state == DriveState::Reading;
        let (state, stored) = if is_shown {
            (id.clone(), stored)
        } else if self.request.format() == Format::Chat {
            (String::new(), StoredForm::part(id.clone(), stored.rounds))
        } else {
            return None;
        };
        Some(HiddenTurns {
            state,
            response_id: id,
            stored: Some(stored),
            ..HiddenTurns::default()
        })
    }

    /// What is to be known of the running round while the loop goes on. Its id is known once it has begun to answer.
    fn note(&self, is_over: bool) -> Option<Box<RoundNote>> {
        let is_listed = self.request.format() == Format::Chat;
        let is_shown = self.round == 1 && self.head_sent && self.stream == Some(true);
        if !is_shown && !is_listed {
            return None;
        }
        let form = self.codec.stored(None)?;
        let answer = self.codec.response_id();
        let id = if self.round == 1 { answer } else { self.codec.state_id() };
        (!id.is_empty()).then(|| {
            let part = || StoredForm::part(answer.to_owned(), Vec::new());
            Box::new(RoundNote {
                id: id.to_owned(),
                form: if is_shown { form } else { part() },
                is_over,
            })
        })
    }

    /// Notes a round that is being read, once.
    pub(super) fn note_begun(&mut self, out: &mut Vec<DriveAction>) {
        if self.noted < self.round
            && let Some(note) = self.note(false)
        {
            self.noted = self.round;
            out.push(DriveAction::Note(note));
        }
    }

    pub(super) fn remember_broken(&self, out: &mut Vec<DriveAction>) {
        out.extend(self.broken().map(Box::new).map(DriveAction::Remember));
    }
}

fn refused(PendingCall { call, caller, .. }: PendingCall, text: String) -> CallResult {
    CallResult {
        caller,
        id: call.id,
        name: call.name,
        arguments: call.arguments,
        text,
        is_error: true,
        ..CallResult::default()
    }
}
