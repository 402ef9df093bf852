//! Whether sandboxes are cut off from the network, by two locks that are asked apart.
//!
//! ```text
//! control   the hub dials its own listener                  must connect, or nothing is learnt
//! probe     a pod with the labels of a run, the runner's    connects: the network plugin does not enforce policies
//!           network lock off, dials the same listener       on this node; every node with sandboxes is asked
//! run       an ordinary run tries to open a socket          may not: the runner's own lock
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use knack_runner::protocol::{Probe, ProbeOutcome};
use kube::Api;
use kube::api::{LogParams, Patch, PatchParams};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::cluster::call;
use super::executor::JobRequest;
use super::facts::PodFacts;
use super::failure::trouble;
use super::launch::{Launcher, Patience, Plan, job_name};
use super::names::CONTAINER;
use super::nodes::{AGAIN, Nodes, Seen};
use super::run::{self, Bounds};
use super::spec::{JobIdentity, JobPurpose, job_spec};
use super::spool::Spool;
use super::view::RuntimeView;
use crate::api::SkillRuntime;
use crate::api::runtime_status::IsolationStatus;
use crate::api::vocabulary::{API_VERSION, CONDITION_ISOLATED, FIELD_MANAGER_HUB, KIND_SKILL_RUNTIME};
use crate::execution::conversation::Verdict;
use crate::execution::{ExecutionId, ExecutionRequest, Language, Missing, Program, StartKind, now};

/// Longest dial of the control.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the pod of the probe may take, image pull included.
const PROBE_TIMEOUT: Duration = Duration::from_mins(2);

/// What an ordinary run tries. `EPERM` is the runner's seccomp filter; anything else got past it.
const ATTEMPT: &str = "import socket, errno
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    print('open')
except OSError as error:
    print('closed' if error.errno == errno.EPERM else 'open')
";

/// What was learnt; `None`: not yet, or it could not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Isolation {
    /// The network plugin enforces policies.
    pub(super) cni: Option<bool>,
    /// The runner's own lock holds.
    pub(super) runner: Option<bool>,
}

impl Isolation {
    /// Why a runtime does not run code now; `required`: it demands enforcement.
    pub(super) fn refusal(self, required: bool) -> Option<Missing> {
        if self.runner == Some(false) {
            return Some(Missing::new(
                "a run could open a socket: the runner's own lock does not hold (condition Isolated)",
                "use a sandbox image of this release",
            ));
        }
        (required && self.cni != Some(true)).then(|| {
            Missing::new(
                "spec.sandbox.enforcement is Required, and the cluster's network plugin was not seen to enforce \
                 NetworkPolicies (condition Isolated)",
                "install a network plugin that enforces them, or set enforcement to BestEffort",
            )
        })
    }

    /// Status, reason and message of the condition `Isolated`.
    fn condition(self) -> (&'static str, &'static str, &'static str) {
        match (self.runner, self.cni) {
            (Some(false), _) => (
                "False",
                "RunnerLockOpen",
                "a run could open a socket: the runner's own lock does not hold; use a sandbox image of this release",
            ),
            (_, Some(false)) => (
                "False",
                "PolicyNotEnforced",
                "the network plugin lets sandbox pods out; only the runner's own lock keeps runs from the network",
            ),
            (Some(true), Some(true)) => (
                "True",
                "Verified",
                "the network plugin enforces policies and the runner's own lock holds",
            ),
            _ => ("Unknown", "NotVerified", "isolation could not be verified yet"),
        }
    }
}

/// Whether the plugin enforces, from the two dials. Without a working control a blocked probe proves nothing.
const fn enforces(control: bool, probe: ProbeOutcome) -> Option<bool> {
    match (control, probe) {
        (_, ProbeOutcome::Connected) => Some(false),
        (true, ProbeOutcome::Silence | ProbeOutcome::Refused | ProbeOutcome::Unreachable) => Some(true),
        _ => None,
    }
}

/// Looks at once, and then every minute at nodes that are new and hours that are over, until the task ends.
pub(super) async fn watch(
    launcher: Launcher,
    view: Arc<ArcSwap<RuntimeView>>,
    target: SocketAddr,
    seen: Arc<ArcSwap<Isolation>>,
    over: CancellationToken,
) {
    let mut nodes = Nodes::default();
    let mut tried: Option<Seen> = None;
    loop {
        let now_view = view.load_full();
        let probed = probe_nodes(&launcher, &now_view, target, &mut nodes).await;
        let is_due = tried.is_none_or(|tried| tried.is_due(Instant::now()));
        if is_due {
            let told = attempt(&launcher, &now_view, &over).await;
            tried = Some(Seen {
                at: Instant::now(),
                told,
            });
        }
        if probed || is_due {
            let found = Isolation {
                cni: nodes.enforces(),
                runner: tried.and_then(|tried| tried.told),
            };
            tracing::info!(runtime = %now_view.reference(), ?found, open = ?nodes.open(), "isolation looked at");
            seen.store(Arc::new(found));
            if let Err(error) = write(&launcher, &now_view, found, &nodes.open()).await {
                tracing::warn!(%error, "condition Isolated could not be written");
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Probes the nodes that are due; while no sandbox stands anywhere, one that the scheduler chooses.
async fn probe_nodes(launcher: &Launcher, view: &RuntimeView, target: SocketAddr, nodes: &mut Nodes) -> bool {
    let live = launcher
        .index
        .all()
        .into_iter()
        .filter(|facts| !facts.is_probe)
        .filter_map(|facts| facts.node)
        .collect();
    let mut due: Vec<Option<String>> = nodes.due(Instant::now(), &live).into_iter().map(Some).collect();
    if due.is_empty() && nodes.is_empty() {
        due.push(None);
    }
    let is_any = !due.is_empty();
    for wanted in due {
        let (node, enforces) = probe(launcher, view, target, wanted.clone()).await;
        if let Some(node) = wanted.or(node) {
            nodes.tell(node, Instant::now(), enforces);
        }
    }
    is_any
}

/// Runs the probe. The node that it ran on, and whether policies hold there; `None`: nothing was learnt.
async fn probe(
    launcher: &Launcher,
    view: &RuntimeView,
    target: SocketAddr,
    node: Option<String>,
) -> (Option<String>, Option<bool>) {
    let dial = tokio::time::timeout(CONTROL_TIMEOUT, TcpStream::connect(target));
    let control = matches!(dial.await, Ok(Ok(_)));
    let identity = JobIdentity {
        name: job_name(&view.name),
        uid: view.uids.first,
        image: view.image.clone(),
        resources: view.resources.clone(),
        env: Vec::new(),
        owner: launcher.replica.clone(),
        purpose: JobPurpose::Probe {
            target: target.to_string(),
            node,
        },
    };
    let mut state = launcher.index.follow(&identity.name);
    match launcher.cluster.create(&job_spec(view, &identity)).await {
        Ok(uid) => launcher.index.bind(&identity.name, uid),
        Err(error) => {
            tracing::warn!(%error, "the isolation probe could not be made");
            return (None, None);
        }
    }
    let is_done = |facts: &PodFacts| facts.is_over() || trouble(facts).is_some_and(|found| found.patience.is_zero());
    let ended = state.wait_for(|state| state.is_gone || state.facts.as_ref().is_some_and(is_done));
    let pod = match tokio::time::timeout(PROBE_TIMEOUT, ended).await {
        Ok(Ok(state)) => state
            .facts
            .as_ref()
            .map(|facts| (facts.name.clone(), facts.node.clone())),
        _ => None,
    };
    let told = match &pod {
        Some((pod, _)) => read(launcher, pod).await,
        None => None,
    };
    launcher.cluster.delete_job(&identity.name).await;
    (
        pod.and_then(|(_, node)| node),
        told.and_then(|told| enforces(control, told.outcome)),
    )
}

async fn read(launcher: &Launcher, pod: &str) -> Option<Probe> {
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        ..LogParams::default()
    };
    let log = call(launcher.cluster.pods.logs(pod, &parameters)).await.ok()?;
    log.lines().find_map(|line| serde_json::from_str(line).ok())
}

/// Runs code that tries. `None`: it could not be run, or there is no python.
async fn attempt(launcher: &Launcher, view: &RuntimeView, over: &CancellationToken) -> Option<bool> {
    if !view.languages.contains(&Language::Python) {
        return None;
    }
    let plan = Plan::of_pool(view, Some(Language::Python));
    let sandbox = launcher.launch(view, &plan, Patience::Pool, &|_| {}).await.ok()?;
    let job = sandbox.job.clone();
    let program = Program::Code {
        language: Language::Python,
        source: ATTEMPT.to_owned(),
    };
    let id = ExecutionId::new(now(), &launcher.replica, 0, &job);
    let request = JobRequest::from(ExecutionRequest::new(id, "knack/isolation", program));
    let bounds = Bounds {
        cancel: CancellationToken::new(),
        lost: over.clone(),
    };
    let verdict = run::run(launcher, sandbox, &request, StartKind::Cold, &bounds, &Spool::new(None)).await;
    launcher.cluster.delete_job(&job).await;
    match verdict {
        Verdict::Ended(result) => match result.stdout.text().trim() {
            "closed" => Some(true),
            "open" => Some(false),
            _ => None,
        },
        Verdict::NotStarted(_) | Verdict::Failed(_) => None,
    }
}

/// Nodes named in the condition's message: enough to begin with, short enough to read.
const NAMED: usize = 5;

/// Writes the condition and `status.isolation`.
async fn write(launcher: &Launcher, view: &RuntimeView, found: Isolation, open: &[String]) -> kube::Result<()> {
    let api: Api<SkillRuntime> = Api::namespaced(launcher.cluster.client.clone(), &view.namespace);
    let current = call(api.get(&view.name)).await?;
    let (status, reason, message) = found.condition();
    let before = current.status.and_then(|status| {
        status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == CONDITION_ISOLATED && condition.status == *found.condition().0)
    });
    let checked = Time(Timestamp::now());
    let condition = Condition {
        type_: CONDITION_ISOLATED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: with_nodes(message, open),
        observed_generation: current.metadata.generation,
        // It moves only when the status flips.
        last_transition_time: before.map_or_else(|| checked.clone(), |condition| condition.last_transition_time),
    };
    let isolation = IsolationStatus {
        runner: found.runner,
        cni: found.cni,
        checked_at: Some(checked),
    };
    let body = json!({
        "apiVersion": API_VERSION, "kind": KIND_SKILL_RUNTIME, "metadata": {"name": view.name},
        "status": {"conditions": [condition], "isolation": isolation},
    });
    let parameters = PatchParams::apply(FIELD_MANAGER_HUB).force();
    call(api.patch_status(&view.name, &parameters, &Patch::Apply(&body)))
        .await
        .map(|_| ())
}

/// A message with the first nodes that are open.
fn with_nodes(message: &str, open: &[String]) -> String {
    let more = open.len().saturating_sub(NAMED);
    match (open.get(..NAMED).unwrap_or(open).join(", "), more) {
        (names, _) if names.is_empty() => message.to_owned(),
        (names, 0) => format!("{message}; open on: {names}"),
        (names, more) => format!("{message}; open on: {names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_probe_proves_enforcement_only_beside_a_working_control() {
        use ProbeOutcome as Seen;
        for (control, probe, expected) in [
            (true, Seen::Connected, Some(false)),
            (false, Seen::Connected, Some(false)),
            (true, Seen::Silence, Some(true)),
            (true, Seen::Refused, Some(true)),
            (true, Seen::Unreachable, Some(true)),
            (true, Seen::Failed, None),
            (false, Seen::Silence, None),
            (false, Seen::Refused, None),
        ] {
            assert_eq!(enforces(control, probe), expected, "{control} {probe:?}");
        }
    }

    #[test]
    fn the_condition_tells_the_two_locks_apart_and_required_fails_closed() {
        for (runner, cni, status, reason, is_refused) in [
            (Some(true), Some(true), "True", "Verified", [false, false]),
            (Some(true), Some(false), "False", "PolicyNotEnforced", [true, false]),
            (Some(false), Some(true), "False", "RunnerLockOpen", [true, true]),
            (None, Some(true), "Unknown", "NotVerified", [false, false]),
            (Some(true), None, "Unknown", "NotVerified", [true, false]),
            (None, None, "Unknown", "NotVerified", [true, false]),
        ] {
            let isolation = Isolation { cni, runner };
            let (found_status, found_reason, _) = isolation.condition();
            assert_eq!((found_status, found_reason), (status, reason), "{isolation:?}");
            let refused = [true, false].map(|required| isolation.refusal(required).is_some());
            assert_eq!(refused, is_refused, "{isolation:?}");
        }
    }
}
