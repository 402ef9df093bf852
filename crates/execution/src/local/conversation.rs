//! One run in a local sandbox: the conversation, its cancellation and its end.

use std::sync::Arc;
use std::time::Duration;

use knack_runner::protocol::{Exit as WireExit, FromRunner, Program as WireProgram, RunResult, ToRunner};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::sandbox::Sandbox;
use crate::conversation::{
    CollectedFrames, DEADLINE_MARGIN, ExecutionRef, RunEnd, Transport, input_frames, processes_left, read_result,
    run_end, run_frame, timings,
};
use crate::{ExecutionError, ExecutionRequest, Exit, Language, StartKind};

/// How long a cancelled runner may take to kill its run before it is killed itself.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

/// Runs the request in a sandbox, once. `argv` is the command with its interpreter resolved, for commands.
pub(super) async fn run(
    mut sandbox: Sandbox,
    request: &ExecutionRequest,
    program: WireProgram,
    language: Option<Language>,
    start: StartKind,
    cancel: &CancellationToken,
) -> RunEnd {
    let began = Instant::now();
    let mut collected = CollectedFrames::within(&request.limits, None);
    let deadline = began + request.limits.timeout + DEADLINE_MARGIN;
    let talk = talk(&mut sandbox, request, program, language, &mut collected);
    tokio::select! {
        biased;
        () = cancel.cancelled() => {
            end_cancelled(sandbox).await;
            RunEnd::Failed(ExecutionError::Cancelled)
        }
        result = tokio::time::timeout_at(deadline, talk) => match result {
            Ok(Ok(RunResult { exit: WireExit::Survivors { count }, .. })) => {
                // A uid is swept again and, if that does not help either, never used again.
                sandbox.kill().await;
                RunEnd::Failed(processes_left(&format!("{count} of them")))
            }
            Ok(Ok(result)) => {
                // Later: the answer does not wait for the runner's exit.
                tokio::spawn(acknowledge(sandbox));
                run_end(ExecutionRef::of(request), &result, collected, start)
            }
            Ok(Err(error)) if collected.started => RunEnd::Failed(error),
            Ok(Err(error)) => RunEnd::NotStarted(error),
            Err(_) => {
                let locks = sandbox.locks.clone();
                if !sandbox.kill().await {
                    return RunEnd::Failed(processes_left("the runner did not answer"));
                }
                let timings = timings(began.elapsed(), start);
                RunEnd::Ended(collected.into_result(request.id, Exit::Timeout, [false; 2], timings, locks))
            }
        }
    }
}

async fn talk(
    sandbox: &mut Sandbox,
    request: &ExecutionRequest,
    program: WireProgram,
    language: Option<Language>,
    collected: &mut CollectedFrames,
) -> Result<RunResult, ExecutionError> {
    let run = run_frame(request, program, language, String::new());
    for frame in input_frames(request).chain([run]) {
        sandbox.send_frame(&frame).await?;
    }
    read_result(sandbox, request.id, collected, &mut |_| {}).await
}

/// The answer is complete, so a runner that is gone already is no failure.
async fn acknowledge(mut sandbox: Sandbox) {
    let _ = sandbox.send_frame(&ToRunner::Ack).await;
}

async fn end_cancelled(mut sandbox: Sandbox) {
    let end = async {
        sandbox.send_frame(&ToRunner::Cancel).await?;
        while !matches!(sandbox.next().await?, FromRunner::Result(_)) {}
        sandbox.send_frame(&ToRunner::Ack).await
    };
    // Without a uid of the run's own only the runner can find its processes: with its stdin closed it continues killing
    // them.
    if !matches!(tokio::time::timeout(CANCEL_GRACE, end).await, Ok(Ok(()))) && sandbox.has_own_uid() {
        sandbox.kill().await;
    }
}

/// A request's cancellation as seen by a run: shared by clone.
pub(super) type SharedRequest = Arc<ExecutionRequest>;
