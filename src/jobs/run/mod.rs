//! One run in a pod: the conversation, and the pod's state where the stream does not show how the run ended.
//!
//! The end of an attach is never the end of a run. Whether an execution counts as run is decided by one thing only: the
//! line `started` in the pod's journal.

pub(super) mod end_unstarted;
pub(super) mod event;
pub(super) mod settling_run;
pub(super) mod spool;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use knack_execution::conversation::{
    CollectedFrames, DEADLINE_MARGIN, ExecutionRef, RunEnd, Transport, input_frames, millis, processes_left,
    read_result, run_end, run_frame, skill_frames, wire_program,
};
use knack_execution::{ClusterFailureKind, ExecutionError, ExecutionRequest, Program, StartKind};
use knack_memory::MemoryShare;
use knack_runner::protocol::{Exit as WireExit, FromRunner, PIECE_BYTES, RunResult, ToRunner};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::settling_run::{SettlingRun, end_if_it_stays};
use self::spool::{EventWriter, Spool};
use super::cluster::failure::pod_failure;
use super::cluster::pod_facts::{ContainerFacts, PodFacts};
use super::keys::Context;
use super::pods::kinds::may_run;
use super::pods::launch::{Launcher, Sandbox};
use super::pods::pod_index::PodState;
use super::pods::start::interpreter_path;
use super::request::JobRequest;

/// Frames up to this size go out in one write: a small request is one round trip.
const ONE_WRITE_BYTES: usize = 192 << 10;
/// What of files is in memory at most while they are sent, besides the files: a piece as a frame, as a line, in the write, and in
/// the buffers of the stream.
const SENDING_BYTES: usize = 6 * PIECE_BYTES;
/// How often something smaller is in memory then, and a program, which is one frame.
const SENDING_COPIES: usize = 3;
/// How long a cancelled runner may take to kill its run before its pod is deleted.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// How long the stream may continue after the pod is reported to be failing: its last frames may be on their way.
const TROUBLE_GRACE: Duration = Duration::from_secs(2);
/// How long a runner may take to exit after `ack`.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// What ends a run before its result.
#[derive(Debug, Clone)]
pub(super) struct RunCancellation {
    /// The caller cancels it, or there is no waiter left.
    pub(super) cancel: CancellationToken,
    /// This replica no longer owns the runtime: release everything and touch nothing.
    pub(super) lost: CancellationToken,
}

/// What a pod is asked to run, once.
pub(super) struct PodRun<'a> {
    /// The request.
    pub(super) request: &'a JobRequest,
    /// The memory for what is on its way to the pod, [`sending_bytes`].
    pub(super) room: Option<MemoryShare>,
    /// How the pod was started.
    pub(super) start: StartKind,
}

/// What ends a conversation before its result.
struct ConversationBounds<'a> {
    cancellation: &'a RunCancellation,
    deadline: Instant,
}

/// What is sent to a pod.
struct Outgoing<'a> {
    execution: &'a ExecutionRequest,
    run: ToRunner,
    /// The memory for it, until the runner has all of it.
    room: Option<MemoryShare>,
}

/// What a request takes in memory at most while it is sent, besides what it holds itself.
pub(super) fn sending_bytes(execution: &ExecutionRequest) -> usize {
    let inputs = execution.inputs.iter().map(|input| input.bytes.len());
    let skills = execution.mounts.iter().flat_map(|mount| mount.skill.files.values());
    let files: usize = inputs.chain(skills.map(|file| file.bytes.len())).sum();
    let program = match &execution.program {
        Program::Code { source, .. } => source.len(),
        Program::Command { argv } => argv.iter().map(String::len).sum(),
    };
    (SENDING_COPIES * files).min(SENDING_BYTES) + SENDING_COPIES * program
}

/// How the conversation ended.
enum ConversationEnd {
    Result(RunResult),
    /// The stream, or the pod, failed.
    Broken(ExecutionError),
    /// The runner broke the protocol, or sent more than a run may: neither it nor its journal is read further.
    ProtocolViolated(ExecutionError),
    Cancelled,
    Lost,
}

/// Runs the request in a pod, once.
pub(super) async fn run(
    launcher: &Launcher,
    mut sandbox: Sandbox,
    PodRun { request, room, start }: PodRun<'_>,
    cancellation: &RunCancellation,
    spool: &Arc<Spool>,
) -> RunEnd {
    let execution = &request.execution;
    let pod = sandbox.pod.clone();
    let run = match last_frame(launcher, &sandbox, request, start) {
        Ok(run) => run,
        Err(error) => {
            launcher.cluster.delete_job(&pod.job).await;
            return RunEnd::NotStarted(error);
        }
    };
    let mut events = EventWriter::new(Arc::clone(spool));
    let mut collected = CollectedFrames::within(&execution.limits, launcher.results.as_ref());
    let settling = SettlingRun {
        launcher,
        pod: &pod,
        reference: ExecutionRef::of(execution),
        start,
        timeout: execution.limits.timeout,
        deadline: Instant::now() + execution.limits.timeout + DEADLINE_MARGIN,
    };
    let bounds = ConversationBounds {
        cancellation,
        deadline: settling.deadline,
    };
    let outgoing = Outgoing { execution, run, room };
    match converse_within(bounds, &mut sandbox, outgoing, &mut collected, &mut events).await {
        ConversationEnd::Result(RunResult {
            exit: WireExit::Survivors { count },
            ..
        }) => settling.fail(processes_left(&format!("{count} of them"))).await,
        ConversationEnd::Result(result) => {
            // Later: the answer does not wait for the runner's exit.
            tokio::spawn(acknowledge(launcher.clone(), sandbox));
            run_end(settling.reference, &result, collected, start)
        }
        ConversationEnd::ProtocolViolated(error) => settling.fail(error).await,
        ConversationEnd::Lost => RunEnd::Failed(ExecutionError::NotOwner { owner: None }),
        ConversationEnd::Cancelled => {
            end_cancelled(launcher, sandbox).await;
            RunEnd::Failed(ExecutionError::Cancelled)
        }
        ConversationEnd::Broken(error) => {
            drop(sandbox);
            // The journal has all of it again.
            let has_started = collected.started;
            drop(collected);
            tracing::info!(pod = %pod.pod, %error, "the stream of a run was interrupted; reading its journal");
            unless_given_up(&settling, cancellation, has_started, &mut events).await
        }
    }
}

/// The conversation, until it ends, the pod is in trouble, or the run is given up on.
async fn converse_within(
    ConversationBounds { cancellation, deadline }: ConversationBounds<'_>,
    sandbox: &mut Sandbox,
    mut outgoing: Outgoing<'_>,
    collected: &mut CollectedFrames,
    events: &mut EventWriter,
) -> ConversationEnd {
    let mut state = sandbox.pod.state.clone();
    let received = AtomicUsize::new(0);
    let mut room = outgoing.room.take();
    let mut observe = |frame: &FromRunner| {
        // The first one comes once the runner has read everything.
        drop(room.take());
        received.fetch_add(1, Ordering::Relaxed);
        events.frame(frame);
    };
    tokio::select! {
        biased;
        () = cancellation.lost.cancelled() => ConversationEnd::Lost,
        () = cancellation.cancel.cancelled() => ConversationEnd::Cancelled,
        end = converse(sandbox, outgoing, collected, &mut observe) => end,
        () = in_trouble(&mut state, &received) => ConversationEnd::Broken(ExecutionError::Internal("the pod failed while the program ran".into())),
        () = tokio::time::sleep_until(deadline) => ConversationEnd::Broken(ExecutionError::Internal("no result in time".into())),
    }
}

/// How a run ended whose stream broke, unless it is abandoned first.
async fn unless_given_up(
    settling: &SettlingRun<'_>,
    cancellation: &RunCancellation,
    has_started: bool,
    events: &mut EventWriter,
) -> RunEnd {
    // On the heap: few runs need it, and each would carry its state.
    let determine = Box::pin(settling.determine_end(has_started, events));
    tokio::select! {
        () = cancellation.lost.cancelled() => RunEnd::Failed(ExecutionError::NotOwner { owner: None }),
        () = cancellation.cancel.cancelled() => settling.fail(ExecutionError::Cancelled).await,
        end = determine => end,
    }
}

/// The frame that asks the runner to run, once everything is staged.
fn last_frame(
    launcher: &Launcher,
    sandbox: &Sandbox,
    request: &JobRequest,
    start: StartKind,
) -> Result<ToRunner, ExecutionError> {
    let execution = &request.execution;
    if !may_run(&sandbox.env, execution) {
        // No caller should request this; here is the last place that can refuse.
        return Err(ExecutionError::Internal(
            "a pod with granted values was asked to run something other than their declared tool".into(),
        ));
    }
    let (program, language) = wire_program(&execution.program, |language| {
        Some(interpreter_path(language, request.packages.as_ref()))
    })?;
    let context = Context {
        caller: execution.caller.clone(),
        skill: request.skill.clone(),
        is_command: ExecutionRef::of(execution).is_command,
        is_warm: start == StartKind::Warm,
        timeout_ms: millis(execution.limits.timeout),
    };
    let context = launcher.keys.seal(&sandbox.pod.uid, &context);
    Ok(run_frame(execution, program, language, context))
}

/// Sends frames one after another, so that a small request is one write and of a large one only a piece waits in memory.
async fn send_all(
    to: &mut impl Transport,
    frames: impl Iterator<Item = ToRunner> + Send,
) -> Result<(), ExecutionError> {
    let mut write = Vec::new();
    for frame in frames {
        let frame = to.encode(&frame);
        if !write.is_empty() && write.len() + frame.len() > ONE_WRITE_BYTES {
            to.send(&write).await?;
            write.clear();
        }
        write.extend(frame);
    }
    to.send(&write).await
}

/// Sends the frames and reads until the result, or until the stream or the runner fails.
async fn converse(
    sandbox: &mut Sandbox,
    outgoing: Outgoing<'_>,
    collected: &mut CollectedFrames,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> ConversationEnd {
    match send_and_read(sandbox, outgoing, collected, observe).await {
        Ok(result) => ConversationEnd::Result(result),
        Err(error) if collected.is_over() => ConversationEnd::ProtocolViolated(error),
        Err(error) => ConversationEnd::Broken(error),
    }
}

async fn send_and_read(
    sandbox: &mut Sandbox,
    Outgoing { execution, run, .. }: Outgoing<'_>,
    collected: &mut CollectedFrames,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> Result<RunResult, ExecutionError> {
    let skills = execution.mounts.iter().flat_map(skill_frames);
    let frames = skills.chain(input_frames(execution)).chain([run]);
    send_all(&mut sandbox.attached, frames).await?;
    read_result(&mut sandbox.attached, execution.id, collected, observe).await
}

/// Returns when the pod is reported to be over, gone or failing, and no frame was `received` for a while: a runner waits 2 s for
/// its `ack`, and a large result may be on its way for longer.
async fn in_trouble(state: &mut watch::Receiver<PodState>, received: &AtomicUsize) {
    let is_bad = |state: &PodState| state.is_gone || state.facts.as_ref().is_some_and(is_lost);
    // The index lives as long as the owner; without it no more changes arrive.
    if state.wait_for(is_bad).await.is_err() {
        std::future::pending::<()>().await;
    }
    loop {
        let before = received.load(Ordering::Relaxed);
        tokio::time::sleep(TROUBLE_GRACE).await;
        if received.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// Whether no more frames can come from a pod. One that was asked to end finishes its run, and reports it, as long as
/// its container runs.
fn is_lost(facts: &PodFacts) -> bool {
    if facts.has_ended() {
        return true;
    }
    let is_leaving = facts.container == ContainerFacts::Running;
    pod_failure(facts).is_some_and(|found| {
        !is_leaving || !matches!(found.kind, ClusterFailureKind::Evicted | ClusterFailureKind::PodDeleted)
    })
}

/// The answer is complete, so a runner that is gone already is no failure. The stream stays until the pod ends it, or
/// the ack could be cut off.
async fn acknowledge(launcher: Launcher, mut sandbox: Sandbox) {
    let _ = sandbox.attached.send_frame(&ToRunner::Ack).await;
    let _ = tokio::time::timeout(EXIT_GRACE, sandbox.attached.drain()).await;
    let pod = sandbox.pod.clone();
    drop(sandbox);
    end_if_it_stays(launcher, pod).await;
}

async fn end_cancelled(launcher: &Launcher, mut sandbox: Sandbox) {
    let end = async {
        sandbox.attached.send_frame(&ToRunner::Cancel).await?;
        while !matches!(sandbox.attached.next().await?, FromRunner::Result(_)) {}
        Ok::<(), ExecutionError>(())
    };
    match tokio::time::timeout(CANCEL_GRACE, end).await {
        Ok(Ok(())) => {
            tokio::spawn(acknowledge(launcher.clone(), sandbox));
        }
        _ => launcher.cluster.delete_pod(&sandbox.pod.pod, &sandbox.pod.uid).await,
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
