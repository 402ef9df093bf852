//! One run in a pod: the conversation, and the pod's state where the stream does not show how the run ended.
//!
//! The end of an attach is never the end of a run. Whether an execution counts as run is decided by one thing only: the
//! line `started` in the pod's journal.

pub(super) mod end_unstarted;
pub(super) mod event;
pub(super) mod spool;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use knack_execution::conversation::{
    CollectedFrames, DEADLINE_MARGIN, ExecutionRef, RunEnd, Transport, input_frames, millis, processes_left,
    read_result, run_end, run_frame, skill_frames, wire_program,
};
use knack_execution::{ClusterFailureKind, ExecutionError, ExecutionRequest, Exit, Program, StartKind};
use knack_memory::MemoryShare;
use knack_runner::protocol::{Exit as WireExit, FromRunner, PIECE_BYTES, RunResult, ToRunner};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::end_unstarted::end_unstarted;
use self::spool::{EventWriter, Spool};
use super::cluster::failure::{failure, pod_failure, vanished};
use super::cluster::journal::{self, Journal, ReadExtent};
use super::cluster::out_of_memory;
use super::cluster::pod_facts::{ContainerFacts, PodFacts};
use super::keys::Context;
use super::pods::kinds::may_run;
use super::pods::launch::{Launcher, Sandbox};
use super::pods::pod_index::{PodRef, PodState};
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
/// How long a runner whose stream broke after `run` was sent may take to send `started`, which is its first frame.
const STARTED_PATIENCE: Duration = Duration::from_secs(2);
/// How long the API server, the kubelet or containerd may be away before the result of a run is given up: each is back
/// within a minute, or needs an administrator.
const SETTLE_PATIENCE: Duration = Duration::from_secs(90);
/// How much later than the executor's deadline a result may still come by the log, of a runner that gave it in time.
const LATE_GRACE: Duration = Duration::from_secs(5);
/// Between two tries to read a journal.
const SETTLE_RETRY: Duration = Duration::from_millis(500);
/// How long a runner may take to exit after `ack`.
const EXIT_GRACE: Duration = Duration::from_secs(3);
/// How long a pod may stay after its run was answered. Longer than a busy kubelet takes to report an exit: the log of a pod that is
/// over is kept for the next owner, and ends with a pod that is deleted.
const STAY_TIMEOUT: Duration = Duration::from_secs(30);

/// What ends a run before its result.
#[derive(Debug, Clone)]
pub(super) struct RunCancellation {
    /// The caller cancels it, or there is no waiter left.
    pub(super) cancel: CancellationToken,
    /// This replica no longer owns the runtime: release everything and touch nothing.
    pub(super) lost: CancellationToken,
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

/// Runs the request in a pod, once. `room`: the memory for what is on its way there, [`sending_bytes`].
pub(super) async fn run(
    launcher: &Launcher,
    mut sandbox: Sandbox,
    request: &JobRequest,
    room: Option<MemoryShare>,
    start: StartKind,
    cancellation: &RunCancellation,
    spool: &Arc<Spool>,
) -> RunEnd {
    let execution = &request.execution;
    let reference = ExecutionRef::of(execution);
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
    let deadline = Instant::now() + execution.limits.timeout + DEADLINE_MARGIN;
    let talk = converse_within(
        (cancellation, deadline),
        &mut sandbox,
        Outgoing { execution, run, room },
        &mut collected,
        &mut events,
    );
    match talk.await {
        ConversationEnd::Result(RunResult {
            exit: WireExit::Survivors { count },
            ..
        }) => fail_with_pod(launcher, &pod, processes_left(&format!("{count} of them"))).await,
        ConversationEnd::Result(result) => {
            // Later: the answer does not wait for the runner's exit.
            tokio::spawn(acknowledge(launcher.clone(), pod, sandbox));
            run_end(reference, &result, collected, start)
        }
        ConversationEnd::ProtocolViolated(error) => fail_with_pod(launcher, &pod, error).await,
        ConversationEnd::Lost => RunEnd::Failed(ExecutionError::NotOwner { owner: None }),
        ConversationEnd::Cancelled => {
            end_cancelled(launcher, pod, sandbox).await;
            RunEnd::Failed(ExecutionError::Cancelled)
        }
        ConversationEnd::Broken(error) => {
            drop(sandbox);
            // The journal has all of it again.
            let has_started = collected.started;
            drop(collected);
            tracing::info!(pod = %pod.pod, %error, "the stream of a run was interrupted; reading its journal");
            // On the heap: few runs need it, and each would carry its state.
            let times = (deadline, execution.limits.timeout);
            let determine = determine_end(launcher, &pod, (reference, has_started), start, times, &mut events);
            unless_given_up(launcher, &pod, cancellation, Box::pin(determine)).await
        }
    }
}

/// The conversation, until it ends, the pod is in trouble, or the run is given up on.
async fn converse_within(
    (cancellation, deadline): (&RunCancellation, Instant),
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

/// The result of `determine`, unless the run is abandoned first.
async fn unless_given_up(
    launcher: &Launcher,
    pod: &PodRef,
    cancellation: &RunCancellation,
    determine: impl Future<Output = RunEnd>,
) -> RunEnd {
    tokio::select! {
        () = cancellation.lost.cancelled() => RunEnd::Failed(ExecutionError::NotOwner { owner: None }),
        () = cancellation.cancel.cancelled() => fail_with_pod(launcher, pod, ExecutionError::Cancelled).await,
        end = determine => end,
    }
}

/// The run has failed, and its pod must not continue.
async fn fail_with_pod(launcher: &Launcher, pod: &PodRef, error: ExecutionError) -> RunEnd {
    launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
    RunEnd::Failed(error)
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
async fn acknowledge(launcher: Launcher, pod: PodRef, mut sandbox: Sandbox) {
    let _ = sandbox.attached.send_frame(&ToRunner::Ack).await;
    let _ = tokio::time::timeout(EXIT_GRACE, sandbox.attached.drain()).await;
    drop(sandbox);
    end_if_it_stays(launcher, pod).await;
}

/// Ends a pod whose runner has answered and does not exit: whatever it still does was not requested.
pub(super) async fn end_if_it_stays(launcher: Launcher, pod: PodRef) {
    let mut state = pod.state;
    let ended = state.wait_for(PodState::has_ended);
    if tokio::time::timeout(STAY_TIMEOUT, ended).await.is_err() {
        tracing::warn!(pod = %pod.pod, "the runner sent its result but does not exit; deleting its pod");
        launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
    }
}

async fn end_cancelled(launcher: &Launcher, pod: PodRef, mut sandbox: Sandbox) {
    let end = async {
        sandbox.attached.send_frame(&ToRunner::Cancel).await?;
        while !matches!(sandbox.attached.next().await?, FromRunner::Result(_)) {}
        Ok::<(), ExecutionError>(())
    };
    match tokio::time::timeout(CANCEL_GRACE, end).await {
        Ok(Ok(())) => {
            tokio::spawn(acknowledge(launcher.clone(), pod, sandbox));
        }
        _ => launcher.cluster.delete_pod(&sandbox.pod.pod, &sandbox.pod.uid).await,
    }
}

/// Determines from the journal and the pod how a run ended, where the stream did not show it. Never runs anything.
///
/// A run whose journal can be read and has no result after the deadline is over its `timeout`: its runner is too busy to
/// end it, or hangs. The pod is deleted.
///
/// [`RunEnd::NotStarted`] only if the container is over, its whole journal has no `started`, and `has_started`, what was
/// seen so far, is false.
pub(super) async fn determine_end(
    launcher: &Launcher,
    pod: &PodRef,
    (reference, mut has_started): (ExecutionRef, bool),
    start: StartKind,
    (deadline, timeout): (Instant, Duration),
    events: &mut EventWriter,
) -> RunEnd {
    let (late, give_up) = (deadline + LATE_GRACE, deadline + SETTLE_PATIENCE);
    let mut unstarted_since: Option<Instant> = None;
    // A late journal was read and does not show the run.
    let mut is_undecided = false;
    loop {
        let pod_ended = pod.state.borrow().has_ended();
        let is_late = Instant::now() >= late && !is_undecided;
        let (until, bound) = match (pod_ended, has_started) {
            (true, _) => (ReadExtent::Now, give_up),
            (false, true) if is_late => (ReadExtent::Now, give_up),
            (false, true) if is_undecided => (ReadExtent::Result, give_up),
            (false, true) => (ReadExtent::Result, late),
            (false, false) => (ReadExtent::Started, Instant::now() + STARTED_PATIENCE),
        };
        events.restart();
        match tokio::time::timeout_at(bound, read_journal(launcher, pod, until, events)).await {
            Ok(Ok(journal)) => {
                has_started |= journal.may_have_started();
                if is_late && !pod_ended && until == ReadExtent::Now && journal.is_without_end() {
                    if let Some(result) = journal.without_result(reference, Exit::Timeout, timeout, start) {
                        launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
                        return RunEnd::Ended(result);
                    }
                    is_undecided = true;
                } else {
                    let known = (reference, has_started);
                    if let Some(end) = end_by_journal(launcher, pod, journal, known, start, pod_ended).await {
                        return end;
                    }
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(pod = %pod.pod, %error, "a journal could not be read; retrying");
                if pod.state.borrow().is_gone && journal::is_not_found(&error) {
                    // No journal is left to prove that nothing ran. That of a pod that is there may come back with its kubelet.
                    return end_without_result(launcher, pod, true).await;
                }
            }
            Err(_) if until == ReadExtent::Started => {
                unstarted_since.get_or_insert_with(Instant::now);
            }
            Err(_) => {}
        }
        if Instant::now() >= give_up {
            // Long past the runner's own deadline.
            return fail_with_pod(launcher, pod, journal_unreadable()).await;
        }
        if unstarted_since.is_some() && !has_started {
            return end_unstarted(launcher, pod, true).await;
        }
        tokio::time::sleep(SETTLE_RETRY).await;
    }
}

/// The end that a journal shows, which was read whole where `pod_ended`. `None`: none yet.
async fn end_by_journal(
    launcher: &Launcher,
    pod: &PodRef,
    journal: Journal,
    (reference, has_started): (ExecutionRef, bool),
    start: StartKind,
    pod_ended: bool,
) -> Option<RunEnd> {
    if let Some(result) = &journal.result {
        if !pod_ended {
            tokio::spawn(end_if_it_stays(launcher.clone(), pod.clone()));
        }
        return Some(run_end(reference, result, journal.collected, start));
    }
    if let Some(error) = journal.violation {
        return Some(if pod_ended {
            RunEnd::Failed(error)
        } else {
            fail_with_pod(launcher, pod, error).await
        });
    }
    if !pod_ended {
        return None;
    }
    let facts = pod.state.borrow().facts.clone();
    let by_memory = facts.and_then(|facts| out_of_memory::end(&facts, journal, reference, start));
    Some(match by_memory {
        Some(end) => end,
        None => end_without_result(launcher, pod, has_started).await,
    })
}

fn journal_unreadable() -> ExecutionError {
    failure(
        ClusterFailureKind::ApiUnavailable,
        "JournalUnreadable",
        "could not determine how the run ended from its pod",
        true,
    )
}

async fn read_journal(
    launcher: &Launcher,
    pod: &PodRef,
    until: ReadExtent,
    events: &mut EventWriter,
) -> kube::Result<Journal> {
    let journal = launcher.journal(&pod.uid);
    journal::read(&launcher.cluster.pods, &pod.pod, journal, until, &mut |frame| {
        events.frame(frame);
    })
    .await
}

/// The end of a run whose container has ended and whose journal has no result.
async fn end_without_result(launcher: &Launcher, pod: &PodRef, may_have_run: bool) -> RunEnd {
    let state = pod.state.borrow().clone();
    let found = state.facts.as_ref().and_then(pod_failure);
    // The Job says who deleted it: its own deadline, or another client.
    let is_leaving = state.is_gone || state.facts.as_ref().is_some_and(|facts| facts.is_deleting);
    let error = match found.filter(|_| !is_leaving) {
        Some(found) => found.error(may_have_run),
        None if is_leaving => {
            let job_failed = launcher.cluster.job_failed(&pod.job).await;
            vanished(state.facts.as_ref(), job_failed.as_ref()).error(may_have_run)
        }
        None => failure(
            ClusterFailureKind::ContainerFailed,
            "NoResult",
            "the container ended without a result",
            may_have_run,
        ),
    };
    if may_have_run {
        RunEnd::Failed(error)
    } else {
        RunEnd::NotStarted(error)
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "run_end_tests.rs"]
mod end_tests;
