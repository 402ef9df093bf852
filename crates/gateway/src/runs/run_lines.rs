//! Runs as executions of a registry's history.

use knack_execution::ExecutionStatus;
use knack_registry::{ExecutedSkill, Execution, Owner, Status};

use super::run_history::RunNote;

/// A run as a history has it.
pub fn execution(run: &RunNote) -> Execution {
    let mut execution = Execution {
        id: run.id.clone(),
        caller: Owner::from(run.caller),
        skill: run.skill.as_deref().map(ExecutedSkill::of),
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
        withdrawn: false,
        fingerprint: None,
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

pub(crate) fn duration_ms(run: &RunNote) -> Option<u64> {
    let millis = run.duration?.as_millis();
    Some(u64::try_from(millis).unwrap_or(u64::MAX))
}

pub(crate) const fn status(status: ExecutionStatus) -> Status {
    match status {
        ExecutionStatus::Pending => Status::Pending,
        ExecutionStatus::Running => Status::Running,
        ExecutionStatus::Success => Status::Success,
        ExecutionStatus::Error => Status::Error,
        ExecutionStatus::Timeout => Status::Timeout,
    }
}
