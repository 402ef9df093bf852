//! What grows while the calls of one request are answered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use knack_skill::call::LoadReference;

use crate::files::request_files::RequestFiles;
use crate::runs::run_history::EarlyEnds;
use crate::telemetry::execution_note::ExecutionNote;
use crate::telemetry::skill_metrics::SkillUse;

/// The state that grows while the loop runs.
#[derive(Debug, Default)]
pub(crate) struct LoopState {
    /// Skills loaded so far, by earlier rounds and expanded turns.
    pub loaded: Vec<LoadReference>,
    /// Files of the conversation.
    pub files: RequestFiles,
    /// Executions for the log.
    pub executions: Vec<ExecutionNote>,
    /// Uses of skills in this request, for metrics.
    pub uses: Vec<SkillUse>,
    /// Whether a run made files that its result lacks.
    pub has_undelivered_files: bool,
    /// Why runs that are dropped end.
    pub(in crate::runs) early: EarlyEnds,
}

/// The state is valid between any two statements, so a poisoned lock is usable.
pub(super) fn lock(state: &Mutex<LoopState>) -> MutexGuard<'_, LoopState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
