//! The note of a run: made when it ends, also where nobody waits for its result.

use std::sync::{Arc, Mutex};

use knack_execution::{ExecutionError, ExecutionId, ExecutionResult, ExecutionStatus, StartKind};
use knack_hub_api::SkillUseKind;
use knack_skill::call::RunSpec;
use knack_wire::ToolCall;
use tokio::time::Instant;

use super::convert::ran;
use super::loop_state::{LoopState, lock};
use crate::telemetry::execution_note::{CallId, ExecutionNote};
use crate::telemetry::skill_metrics::SkillUse;
use crate::telemetry::trace::CallTrace;

/// A run that is out. Dropped without a result, because its client left or its request reached the deadline, it is noted as
/// that: the code may have run.
pub(super) struct OpenRun<'a> {
    request_id: &'a str,
    state: &'a Mutex<LoopState>,
    id: ExecutionId,
    call: CallId,
    /// `namespace/name`; `None`: code for no skill.
    skill: Option<String>,
    begun: Instant,
    /// `None` once it has ended.
    trace: Option<CallTrace>,
}

impl<'a> OpenRun<'a> {
    /// A run that begins now, with the request that it is for and what grows there.
    pub(super) fn begin(
        request_id: &'a str,
        state: &'a Mutex<LoopState>,
        id: ExecutionId,
        call: &ToolCall,
        spec: &RunSpec,
        trace: CallTrace,
    ) -> Self {
        Self {
            request_id,
            state,
            id,
            call: CallId::of(call),
            skill: spec.skill.as_ref().map(ToString::to_string),
            begun: Instant::now(),
            trace: Some(trace),
        }
    }

    /// It goes out again, under another id.
    pub(super) const fn renamed(&mut self, id: ExecutionId) {
        self.id = id;
    }

    /// It has its result.
    pub(super) fn end(mut self, result: &Result<Arc<ExecutionResult>, ExecutionError>) {
        let status = result
            .as_ref()
            .map_or_else(ExecutionError::metric_label, |result| result.status().as_str());
        self.note(status, result.as_ref().ok().map(|result| &**result));
    }

    /// Notes how it ended, once.
    fn note(&mut self, status: &'static str, result: Option<&ExecutionResult>) {
        let Some(trace) = self.trace.take() else { return };
        let timings = result.map(|result| &result.timings);
        let note = ExecutionNote {
            id: self.id.to_string(),
            call: self.call,
            skill: self.skill.clone().unwrap_or_default(),
            status,
            start: timings.map_or("", |timings| StartKind::as_str(timings.start)),
            queued: timings.map(|timings| timings.queue_wait),
            program: timings.map(|timings| timings.run),
            duration: self.begun.elapsed(),
        };
        tracing::info!(request_id = %self.request_id, execution_id = %note.id, skill = %note.skill, status = note.status, start = note.start, "execution ended");
        trace.end(&ran(&note));
        let mut state = lock(self.state);
        if let Some(skill) = self.skill.take() {
            let is_success = note.status == ExecutionStatus::Success.as_str();
            state.uses.push(SkillUse {
                skill,
                what: if is_success {
                    SkillUseKind::Ran
                } else {
                    SkillUseKind::Failed
                },
                tokens: 0,
                call: Some(self.call),
            });
        }
        state.executions.push(note);
    }
}

impl Drop for OpenRun<'_> {
    fn drop(&mut self) {
        let early = lock(self.state).early.get();
        self.note(early.status(), None);
    }
}
