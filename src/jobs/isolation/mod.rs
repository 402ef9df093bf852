//! Whether sandboxes are cut off from the network, by two locks that are checked separately.
//!
//! ```text
//! control   the hub asks its own listener, before and after  must be answered, or silence proves nothing
//! probe     a pod with the labels of a run, the runner's     gets answers: the network plugin does not enforce policies
//!           network lock off, asks the same listener for     on this node; for a while only: it enforces them late
//!           seconds; pinned to the node that is asked
//! run       an ordinary run tries to open a socket           may not: the runner's own lock
//! ```
//!
//! Results are kept by node in the [`NodeGate`](super::nodes::node_gate), which is checked whenever a pod is used.

mod isolation_status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use knack_execution::conversation::RunEnd;
use knack_execution::{ExecutionId, ExecutionRequest, Language, Program, StartKind, now};
use knack_runner::protocol::Probe;
use knack_serving::beacon::{ProbeTarget, Question};
use kube::api::LogParams;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::cluster::call;
use super::cluster::failure::pod_failure;
use super::cluster::pod_facts::PodFacts;
use super::names::CONTAINER;
use super::nodes::probe_results::{AGAIN, EVERY, ProbeResult, probe_result};
use super::pods::kinds::PodKind;
use super::pods::launch::{Launcher, job_name};
use super::pods::pod_requirements::{PodRequirements, Requester};
use super::pods::spec::{JobIdentity, JobPurpose, job_spec};
use super::request::JobRequest;
use super::resolved_runtime::ResolvedRuntime;
use super::run::spool::Spool;
use super::run::{self, PodRun, RunCancellation};

/// How long the pod of the probe may take, image pull included.
const PROBE_TIMEOUT: Duration = Duration::from_mins(2);

/// The system call that an ordinary run tries. `EPERM` is the runner's seccomp filter; any other result got past it.
const ATTEMPT: &str = "import socket, errno
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    print('open')
except OSError as error:
    print('closed' if error.errno == errno.EPERM else 'open')
";

/// Probes when it has a permit, and then every minute nodes that are new or whose result is an hour old, and at once a
/// node that a run waits for, until the task ends. `probes` are the permits of all runtimes.
pub(super) async fn watch(
    launcher: Launcher,
    resolved: Arc<ArcSwap<ResolvedRuntime>>,
    target: ProbeTarget,
    probes: Arc<Semaphore>,
    term_ended: CancellationToken,
) {
    // A runtime that demands isolation runs nothing before its results.
    let is_urgent = || resolved.load().requires_isolation;
    let nodes = async {
        loop {
            let is_urgent = is_urgent() || launcher.gate.is_probe_requested();
            let held = probe_permit(&probes, is_urgent, launcher.gate.probe_requested()).await;
            probe_nodes(&launcher, &resolved.load_full(), &target).await;
            drop(held);
            if !launcher.gate.is_probe_requested() {
                let _ = tokio::time::timeout(AGAIN, launcher.gate.probe_requested()).await;
            }
        }
    };
    let runner = async {
        loop {
            // A run that wants a node wakes one task: the one above.
            let held = probe_permit(&probes, is_urgent(), std::future::pending()).await;
            let result = Box::pin(attempt(&launcher, &resolved.load_full(), &term_ended)).await;
            drop(held);
            launcher.gate.set_runner_result(result);
            tokio::time::sleep(if result.is_some() { EVERY } else { AGAIN }).await;
        }
    };
    tokio::join!(isolation_status::publish(&launcher, &resolved), nodes, runner);
}

/// Waits for permission to probe. An urgent caller, or one that becomes urgent, needs none.
async fn probe_permit(
    probes: &Semaphore,
    is_urgent: bool,
    wanted: impl Future<Output = ()>,
) -> Option<SemaphorePermit<'_>> {
    if is_urgent {
        return None;
    }
    tokio::select! {
        held = probes.acquire() => held.ok(),
        () = wanted => None,
    }
}

/// Probes the nodes that are wanted or due; while there is no sandbox on any node, one that the scheduler chooses. One
/// after another: each probe is a pod that the quota counts too.
async fn probe_nodes(launcher: &Launcher, resolved: &ResolvedRuntime, target: &ProbeTarget) {
    let pods = launcher.index.all().into_iter();
    let live: BTreeSet<String> = pods
        .filter(|facts| !facts.is_probe)
        .filter_map(|facts| facts.node)
        .collect();
    for wanted in launcher.gate.next(resolved.requires_isolation, &live) {
        let (node, result) = probe(launcher, resolved, target, wanted.clone()).await;
        if let Some(node) = wanted.or(node) {
            launcher.gate.record_probe(node, result);
        }
    }
}

/// Runs the probe. Returns the node that it ran on, and what it proves there; `None`: no result.
async fn probe(
    launcher: &Launcher,
    resolved: &ResolvedRuntime,
    target: &ProbeTarget,
    node: Option<String>,
) -> (Option<String>, Option<ProbeResult>) {
    let control = target.answers().await;
    let question = target.beacon.ask();
    let identity = JobIdentity {
        name: job_name(&resolved.name),
        uid: resolved.uids.first,
        requirements: PodRequirements::of_pool(resolved, &PodKind::plain(None)),
        owner: launcher.replica.clone(),
        avoid: launcher.gate.avoided(resolved.requires_isolation),
        purpose: JobPurpose::Probe {
            target: target.address.to_string(),
            question: question.word.clone(),
            node,
        },
    };
    let mut state = launcher.index.follow(&identity.name);
    match launcher.cluster.create(&job_spec(resolved, &identity)).await {
        Ok(uid) => launcher.index.bind(&identity.name, uid),
        Err(error) => {
            tracing::warn!(%error, "the Job of the isolation probe could not be created");
            return (None, None);
        }
    }
    let is_done = |facts: &PodFacts| {
        let is_hopeless = pod_failure(facts).is_some_and(|found| found.grace.is_zero());
        facts.has_ended() || is_hopeless || facts.unscheduled.is_some()
    };
    let ended = state.wait_for(|state| state.is_gone || state.facts.as_ref().is_some_and(is_done));
    let pod = match tokio::time::timeout(PROBE_TIMEOUT, ended).await {
        Ok(Ok(state)) => state
            .facts
            .as_ref()
            .map(|facts| (facts.name.clone(), facts.node.clone())),
        _ => None,
    };
    let result = match &pod {
        Some((pod, Some(_))) => read(launcher, pod, &question).await,
        _ => None,
    };
    launcher.cluster.delete_job(&identity.name).await;
    // A listener that went away meanwhile explains the silence as well.
    let control = control && target.answers().await;
    let result = result.and_then(|result| probe_result(control, question.is_asked(), &result, &question.answer));
    (pod.and_then(|(_, node)| node), result)
}

/// The answer in the log of a probe's pod, if it belongs to this question.
async fn read(launcher: &Launcher, pod: &str, question: &Question) -> Option<Probe> {
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        ..LogParams::default()
    };
    let log = call(launcher.cluster.pods.logs(pod, &parameters)).await.ok()?;
    let mut result = log.lines().filter_map(|line| serde_json::from_str::<Probe>(line).ok());
    result.find(|probe| probe.question == question.word)
}

/// Runs code that tries. `None`: it could not be run, or there is no python.
async fn attempt(launcher: &Launcher, resolved: &ResolvedRuntime, term_ended: &CancellationToken) -> Option<bool> {
    if !resolved.languages.contains(&Language::Python) {
        return None;
    }
    let requirements = PodRequirements::of_pool(resolved, &PodKind::plain(Some(Language::Python)));
    let sandbox = launcher
        .launch(resolved, &requirements, Requester::Pool, &|_| {})
        .await
        .ok()?;
    let job = sandbox.pod.job.clone();
    let program = Program::Code {
        language: Language::Python,
        source: ATTEMPT.to_owned(),
    };
    let id = ExecutionId::new(now(), &launcher.replica, 0, &job);
    let request = JobRequest::from(ExecutionRequest::new(id, "knack/isolation", program));
    let cancellation = RunCancellation {
        cancel: CancellationToken::new(),
        lost: term_ended.clone(),
    };
    let run = PodRun {
        request: &request,
        room: None,
        start: StartKind::Cold,
    };
    let end = run::run(launcher, sandbox, run, &cancellation, &Spool::new(None)).await;
    launcher.cluster.delete_job(&job).await;
    match end {
        RunEnd::Ended(result) => match result.stdout.text().trim() {
            "closed" => Some(true),
            "open" => Some(false),
            _ => None,
        },
        RunEnd::NotStarted(_) | RunEnd::Failed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn probes_take_turns_and_one_with_a_waiting_run_needs_none() {
        let (probes, wanted) = (Semaphore::new(1), Notify::new());
        let first = probe_permit(&probes, false, wanted.notified()).await;
        assert!(first.is_some());
        assert!(
            probe_permit(&probes, true, wanted.notified()).await.is_none(),
            "urgent: at once"
        );
        let mut second = Box::pin(probe_permit(&probes, false, wanted.notified()));
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        wanted.notify_one();
        assert!(second.await.is_none(), "a run came to wait for it");
        let third = probe_permit(&probes, false, wanted.notified());
        drop(first);
        assert!(third.await.is_some());
    }
}
