//! Values of `knack-skill`, the executor, the wire and traces, one into the other.

use std::time::Duration;

use knack_execution::{ExecutionRequest, ExecutionStatus, Exit, Limits};
use knack_skill::call::{End, Outcome};
use knack_skill::model::SandboxRequest;
use knack_telemetry::genai::{CallFacts, Failure};
use knack_wire::drive::NativeRun;

use crate::catalog::RuntimeSettings;
use crate::telemetry::execution_note::ExecutionNote;

/// The code of a program that could not be started, as a shell reports it.
pub(super) const NOT_STARTED: i32 = 126;

/// The trace of a call that ran nothing.
pub(super) fn answered(is_error: bool) -> CallFacts {
    CallFacts {
        failure: is_error.then_some(Failure::Refused),
        ..CallFacts::default()
    }
}

/// The trace of an execution.
pub(super) fn ran(note: &ExecutionNote) -> CallFacts {
    CallFacts {
        execution: Some(note.id.clone()),
        skill: (!note.skill.is_empty()).then(|| note.skill.clone()),
        start: (!note.start.is_empty()).then_some(note.start),
        failure: (note.status != ExecutionStatus::Success.as_str()).then_some(Failure::Run(note.status)),
    }
}

/// Most bytes that a run may hold here at once: its inputs on their way as base64, its output and its result files.
pub(super) fn in_flight(request: &ExecutionRequest) -> usize {
    let inputs: usize = request.inputs.iter().map(|input| input.bytes.len()).sum();
    let limits = &request.limits;
    let results = limits.max_files_bytes.saturating_add(2 * limits.max_output_bytes);
    usize::try_from(results)
        .unwrap_or(usize::MAX)
        .saturating_add(inputs.div_ceil(3) * 4)
}

/// The outcome of a run that could not be started.
pub(super) fn not_started(reason: &str) -> Outcome {
    Outcome {
        end: End::NotStarted(reason.to_owned()),
        duration_ms: 0,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        files: Vec::new(),
        file_errors: Vec::new(),
    }
}

/// Exit kinds without wording of their own are reported as a kill, with the reason on stderr.
pub(super) fn end_of(exit: Exit, timeout_seconds: u64) -> End {
    match exit {
        Exit::Code(code) => End::Exit(code),
        Exit::Signal(signal) => End::Signal(signal),
        Exit::Timeout => End::Timeout {
            seconds: timeout_seconds,
        },
        Exit::OutOfMemory => End::OutOfMemory,
        Exit::OutputLimit | Exit::DiskLimit | Exit::ProcessLimit => End::Signal(9),
    }
}

/// The name of a mount below `skills/`.
pub(super) fn mount_name(path: &str) -> String {
    path.strip_prefix("skills/").unwrap_or(path).to_owned()
}

/// The limits of a run: those that its skill asks for, within the ceilings of the runtime, and the memory that a request allows.
pub(super) fn limits(runtime: &RuntimeSettings, asked: &SandboxRequest, of_request: Option<u64>) -> Limits {
    let base = Limits::default();
    let timeout = asked.timeout_seconds.map_or(runtime.timeout, Duration::from_secs);
    let memory = match asked.memory_bytes {
        Some(asked) => narrowed(Some(asked), runtime.max_memory_bytes),
        None => runtime.memory_bytes,
    };
    let output = asked.max_output_bytes.unwrap_or(base.max_output_bytes);
    Limits {
        timeout: timeout.min(runtime.max_timeout),
        max_output_bytes: output.min(base.max_output_bytes),
        memory_bytes: narrowed(memory, of_request),
        ..base
    }
}

/// A limit, and what a request may take off it.
fn narrowed(allowed: Option<u64>, most: Option<u64>) -> Option<u64> {
    allowed.map(|allowed| most.map_or(allowed, |most| allowed.min(most)))
}

/// A run in the native form of a provider.
pub(super) fn native(stdout: &str, stderr: &str, return_code: i32) -> NativeRun {
    NativeRun {
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
        return_code,
        ..NativeRun::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_can_only_tighten_the_memory_of_its_runtime() {
        for (asked, own, most, of_request, expected) in [
            (None, None, Some(9), None, None),
            (None, Some(5), Some(9), None, Some(5)),
            (None, Some(5), Some(9), Some(3), Some(3)),
            (Some(7), Some(5), Some(9), None, Some(7)),
            (Some(10), None, Some(9), None, Some(9)),
            (Some(10), Some(5), Some(9), Some(8), Some(8)),
            // In a cluster the hub judges what skills ask for.
            (Some(10), None, None, None, Some(10)),
        ] {
            let runtime = RuntimeSettings {
                memory_bytes: own,
                max_memory_bytes: most,
                ..RuntimeSettings::default()
            };
            let asking = SandboxRequest {
                memory_bytes: asked,
                ..SandboxRequest::default()
            };
            let limits = limits(&runtime, &asking, of_request);
            assert_eq!(
                limits.memory_bytes, expected,
                "{asked:?} {own:?} {most:?} {of_request:?}"
            );
        }
    }
}
