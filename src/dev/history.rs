//! What runs are, for the history of a registry.

use std::sync::Arc;

use knack_execution::ExecutionStatus;
use knack_gateway::run_history::{RunHistory, RunNote};
use knack_registry::{Execution, FolderHistory, History, Owner, RanSkill, Status};

/// A history that runs are noted in.
#[derive(Debug)]
pub(super) struct Noted(pub(super) Arc<FolderHistory>);

impl RunHistory for Noted {
    fn note(&self, run: &RunNote) {
        self.0.note(execution(run));
    }

    fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

fn execution(run: &RunNote) -> Execution {
    let mut execution = Execution {
        id: run.id.clone(),
        caller: Owner::from(run.caller),
        skill: run.skill.as_deref().map(RanSkill::of),
        tool: run.tool.clone(),
        session: None,
        request: run.request_id.clone(),
        input: serde_json::Value::Null,
        output: serde_json::Value::Null,
        truncated: false,
        status: status(run.status),
        error: None,
        duration_ms: duration_ms(run),
        created: run.begun.as_microsecond(),
    }
    .with_input(&run.input);
    if let Some(output) = &run.output {
        execution = execution.with_output(output);
    }
    match &run.error {
        Some(error) => execution.with_error(error),
        None => execution,
    }
}

pub(super) fn duration_ms(run: &RunNote) -> Option<u64> {
    let millis = run.duration?.as_millis();
    Some(u64::try_from(millis).unwrap_or(u64::MAX))
}

pub(super) const fn status(status: ExecutionStatus) -> Status {
    match status {
        ExecutionStatus::Pending => Status::Pending,
        ExecutionStatus::Running => Status::Running,
        ExecutionStatus::Success => Status::Success,
        ExecutionStatus::Error => Status::Error,
        ExecutionStatus::Timeout => Status::Timeout,
    }
}
