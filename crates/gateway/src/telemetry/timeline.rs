//! The steps of one request with their times: rounds with the provider, and calls of injected tools.
//!
//! Always kept, for `knack trace` (docs/observability.md#one-request); spans need a collector. The exchange says what
//! happened and when; nothing here reads a clock.

use std::time::Duration;

use knack_hub_api::SkillUseKind;
use knack_wire::ToolCall;
use serde::{Deserialize, Serialize};

use super::execution_note::{CallId, ExecutionNote};
use super::skill_metrics::SkillUse;

/// Steps of one request that are kept: more than most requests have, since a turn may have 32 calls and a runtime sets the
/// number of rounds. Those after them are counted.
const STEPS_MAX: usize = 128;

/// One step. Times are milliseconds since the request's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Step {
    /// A request to the provider. A retry is a step of its own, with the same number.
    Round {
        /// From 1.
        round: u32,
        /// When it was sent.
        begun_ms: u64,
        /// From then to the last byte of the answer, or to its failure; the time so far, if the client left.
        took_ms: u64,
        /// From its begin to the first byte of the answer's body.
        first_byte_ms: Option<u64>,
        /// HTTP status of the answer; none came without one.
        status: Option<u16>,
        /// `connect`, `broken`, `timeout` or `unreadable`.
        failure: Option<String>,
        /// False: the request ended before the answer did.
        ended: bool,
    },
    /// A call of an injected tool.
    Call {
        /// The round whose answer has the call; 0: an earlier answer left it open.
        round: u32,
        /// Name of the tool.
        tool: String,
        /// When it began.
        begun_ms: u64,
        /// From then to its result; the time so far, if the client left.
        took_ms: u64,
        /// `namespace/name`.
        skill: Option<String>,
        /// True if the model got an error text; absent: the request ended first.
        failed: Option<bool>,
        /// The run, if it needed one.
        run: Option<Run>,
    },
}

impl Step {
    /// Bytes that its texts have allocated.
    pub(crate) fn allocated(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        match self {
            Self::Round { failure, .. } => of(failure),
            Self::Call { tool, skill, run, .. } => {
                let run = run.as_ref();
                let run = run.map_or(0, |run| run.id.capacity() + run.status.capacity() + of(&run.start));
                tool.capacity() + of(skill) + run
            }
        }
    }
}

/// The run of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Execution id: in logs of the gateway and the hub, and on the Job.
    pub id: String,
    /// `success`, `error`, `timeout`, or why it did not run.
    pub status: String,
    /// `warm` or `cold`; nothing was started without one.
    pub start: Option<String>,
    /// Milliseconds that it waited for a permit.
    pub queued_ms: Option<u64>,
    /// Milliseconds of the program alone.
    pub program_ms: Option<u64>,
}

/// The steps so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    steps: Vec<Step>,
    /// For each step: its call, if it is one.
    calls: Vec<Option<CallId>>,
    /// The round that is out, as an index of `steps`, and when its last byte arrived.
    open: Option<(usize, Duration)>,
    left_out: usize,
}

impl Timeline {
    /// A round is sent at `at`. The one before is over.
    pub(crate) fn sent(&mut self, round: u32, at: Duration) {
        self.over(None, at);
        let step = Step::Round {
            round,
            begun_ms: millis(at),
            took_ms: 0,
            first_byte_ms: None,
            status: None,
            failure: None,
            ended: false,
        };
        self.open = self.push(step, None).map(|index| (index, at));
    }

    /// The head of the provider's answer.
    pub(crate) fn head(&mut self, answered: u16, at: Duration) {
        if let Some(Step::Round { status, .. }) = self.last_heard(at) {
            *status = Some(answered);
        }
    }

    /// Bytes of the provider's answer.
    pub(crate) fn bytes(&mut self, at: Duration) {
        if let Some(Step::Round {
            begun_ms,
            first_byte_ms,
            ..
        }) = self.last_heard(at)
        {
            first_byte_ms.get_or_insert(millis(at).saturating_sub(*begun_ms));
        }
    }

    /// The open round is over: with its last byte, or now if it failed.
    pub(crate) fn over(&mut self, reason: Option<&'static str>, at: Duration) {
        let Some((index, last_heard)) = self.open.take() else {
            return;
        };
        let until = if reason.is_some() { at } else { last_heard };
        if let Some(Step::Round {
            begun_ms,
            took_ms,
            failure,
            ended,
            ..
        }) = self.steps.get_mut(index)
        {
            *took_ms = millis(until).saturating_sub(*begun_ms);
            *failure = reason.map(str::to_owned);
            *ended = true;
        }
    }

    /// A call begins.
    pub(crate) fn called(&mut self, call: &ToolCall, at: Duration) {
        let step = Step::Call {
            round: call.round,
            tool: call.name.clone(),
            begun_ms: millis(at),
            took_ms: 0,
            skill: None,
            failed: None,
            run: None,
        };
        self.push(step, Some(CallId::of(call)));
    }

    /// A call of the round that was answered last has its result.
    pub(crate) fn answered(&mut self, token: u32, is_error: bool, at: Duration) {
        let latest = self
            .calls
            .iter()
            .rposition(|known| known.is_some_and(|call| call.token == token));
        let Some(step) = latest.and_then(|index| self.steps.get_mut(index)) else {
            return;
        };
        if let Step::Call {
            begun_ms,
            took_ms,
            failed,
            ..
        } = step
        {
            *took_ms = millis(at).saturating_sub(*begun_ms);
            *failed = Some(is_error);
        }
    }

    /// The request is over: all steps, and how many were left out.
    pub(crate) fn finish(mut self, uses: &[SkillUse], runs: &[ExecutionNote], at: Duration) -> (Vec<Step>, usize) {
        for used in uses.iter().filter(|used| used.what == SkillUseKind::Loaded) {
            if let Some(Step::Call { skill, .. }) = used.call.and_then(|call| self.of(call)) {
                *skill = Some(used.skill.clone());
            }
        }
        for note in runs {
            if let Some(Step::Call { skill, run, .. }) = self.of(note.call) {
                *skill = (!note.skill.is_empty()).then(|| note.skill.clone());
                *run = Some(note.into());
            }
        }
        for step in &mut self.steps {
            match step {
                Step::Round {
                    begun_ms,
                    took_ms,
                    ended: false,
                    ..
                }
                | Step::Call {
                    begun_ms,
                    took_ms,
                    failed: None,
                    ..
                } => {
                    *took_ms = millis(at).saturating_sub(*begun_ms);
                }
                Step::Round { .. } | Step::Call { .. } => {}
            }
        }
        (self.steps, self.left_out)
    }

    fn push(&mut self, step: Step, call: Option<CallId>) -> Option<usize> {
        if self.steps.len() >= STEPS_MAX {
            self.left_out += 1;
            return None;
        }
        if self.steps.is_empty() {
            // Most requests have one round, and their report is kept for long.
            self.steps.reserve_exact(1);
            self.calls.reserve_exact(1);
        }
        self.steps.push(step);
        self.calls.push(call);
        Some(self.steps.len() - 1)
    }

    fn last_heard(&mut self, at: Duration) -> Option<&mut Step> {
        let (index, last_heard) = self.open.as_mut()?;
        *last_heard = at;
        self.steps.get_mut(*index)
    }

    fn of(&mut self, call: CallId) -> Option<&mut Step> {
        let index = self.calls.iter().position(|known| *known == Some(call))?;
        self.steps.get_mut(index)
    }
}

impl From<&ExecutionNote> for Run {
    fn from(note: &ExecutionNote) -> Self {
        Self {
            id: note.id.clone(),
            status: note.status.to_owned(),
            start: (!note.start.is_empty()).then(|| note.start.to_owned()),
            queued_ms: note.queued.map(millis),
            program_ms: note.program.map(millis),
        }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
