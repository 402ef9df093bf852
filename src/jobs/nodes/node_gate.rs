//! On which nodes sandboxes may run code: the results of probes, checked whenever a pod is about to be used.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use knack_execution::Missing;
use tokio::sync::{Notify, watch};

use super::isolation_results::Isolation;
use super::probe_results::{Clearance, EXPLORE, Nodes, ProbeResult};

/// How long a run waits for the probe of its node: 5 s of connection attempts where the network blocks and 20 s where
/// it does not, the start of a pod whose image the node has, and probes of other nodes that are ahead.
const ASK_PATIENCE: Duration = Duration::from_mins(1);

/// The probe results, and the runs that wait for more.
#[derive(Debug)]
pub(in crate::jobs) struct NodeGate {
    state: Mutex<NodeGateState>,
    /// Wakes the task that probes.
    wanted: Notify,
    /// Wakes every run that waits for a result.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct NodeGateState {
    nodes: Nodes,
    runner: Option<bool>,
    /// When a check gave a result last.
    checked: Option<Timestamp>,
    wanted: BTreeSet<String>,
    /// When a node of the scheduler's choice was probed last.
    explored: Option<Instant>,
    /// Whether there is anything to probe with.
    can_ask: bool,
}

/// Why a pod is not used.
#[derive(Debug)]
pub(in crate::jobs) struct NodeRefusal {
    /// The reason, for the caller.
    pub(in crate::jobs) missing: Missing,
    /// Whether a pod on another node may be used.
    pub(in crate::jobs) is_of_node: bool,
}

impl Default for NodeGate {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            wanted: Notify::new(),
            changes: watch::Sender::new(()),
        }
    }
}

impl NodeGate {
    /// From now on nodes can be probed.
    pub(in crate::jobs) fn open(&self) {
        self.lock().can_ask = true;
    }

    /// The current counts.
    pub(in crate::jobs) fn isolation(&self) -> Isolation {
        let state = self.lock();
        Isolation {
            nodes: state.nodes.counts(Instant::now()),
            runner: state.runner,
            checked: state.checked,
        }
    }

    /// Why the runtime does not run code at all now; `required`: it demands isolation.
    pub(in crate::jobs) fn refusal(&self, required: bool) -> Option<Missing> {
        let can_ask = self.lock().can_ask;
        self.isolation().refusal(required, can_ask)
    }

    /// Whether a pod on this node, running since then, may be used.
    pub(in crate::jobs) fn clearance(&self, required: bool, node: &str, since: Instant) -> Clearance {
        if required {
            self.lock().nodes.clearance(node, Instant::now(), since)
        } else {
            Clearance::Go
        }
    }

    /// Nodes that the scheduler must not use.
    pub(in crate::jobs) fn avoided(&self, required: bool) -> Vec<String> {
        if required {
            self.lock().nodes.avoided(Instant::now())
        } else {
            Vec::new()
        }
    }

    /// Asks for a result on a node, soon.
    pub(in crate::jobs) fn request_probe(&self, node: &str) {
        self.lock().wanted.insert(node.to_owned());
        self.wanted.notify_one();
    }

    /// Returns when a pod may be used, or refuses it. A node that nothing is known of is probed first.
    pub(in crate::jobs) async fn admit(&self, required: bool, node: &str, since: Instant) -> Result<(), NodeRefusal> {
        let until = tokio::time::Instant::now() + ASK_PATIENCE;
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            match self.clearance(required, node, since) {
                Clearance::Go => return Ok(()),
                Clearance::Wait(left) => tokio::time::sleep(left).await,
                Clearance::Ask => {
                    self.request_probe(node);
                    if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                        return Err(unknown(node));
                    }
                }
                Clearance::Unknown => return Err(unknown(node)),
                Clearance::Open => return Err(open(node)),
            }
        }
    }

    /// Nodes to probe now: those that a run waits for first. `None` in it: a node of the scheduler's choice, since no
    /// suitable one is known.
    pub(in crate::jobs) fn next(&self, required: bool, live: &BTreeSet<String>) -> Vec<Option<String>> {
        let mut state = self.lock();
        let wanted = std::mem::take(&mut state.wanted);
        let now = Instant::now();
        let mut next: Vec<String> = wanted
            .into_iter()
            // Another run may have requested it meanwhile.
            .filter(|node| state.nodes.clearance(node, now, now) == Clearance::Ask)
            .collect();
        let due = state.nodes.due(now, live);
        next.extend(due.into_iter().filter(|node| !next.contains(node)).collect::<Vec<_>>());
        let may_explore = state.explored.is_none_or(|at| now.duration_since(at) >= EXPLORE);
        let needs_node =
            state.nodes.is_empty() || (required && may_explore && state.nodes.counts(now).is_open_everywhere());
        if next.is_empty() && needs_node {
            state.explored = Some(now);
            return vec![None];
        }
        next.into_iter().map(Some).collect()
    }

    /// Whether a run waits for a node.
    pub(in crate::jobs) fn is_probe_requested(&self) -> bool {
        !self.lock().wanted.is_empty()
    }

    /// Returns when a node is wanted.
    pub(in crate::jobs) async fn probe_requested(&self) {
        self.wanted.notified().await;
    }

    /// Records the result of a probe of a node.
    pub(in crate::jobs) fn record_probe(&self, node: String, result: Option<ProbeResult>) {
        let mut state = self.lock();
        state.checked = result.map(|_| Timestamp::now()).or(state.checked);
        state.nodes.record_probe(node, Instant::now(), result);
        drop(state);
        self.changes.send_replace(());
    }

    /// Records what an ordinary run reported about the runner's own lock.
    pub(in crate::jobs) fn set_runner_result(&self, holds: Option<bool>) {
        let mut state = self.lock();
        state.checked = holds.map(|_| Timestamp::now()).or(state.checked);
        state.runner = holds;
        drop(state);
        self.changes.send_replace(());
    }

    /// The runtime was edited: what is known is of another generation.
    pub(in crate::jobs) fn notify_edited(&self) {
        let state = self.lock();
        let is_anything_known = !state.nodes.is_empty() || state.runner.is_some();
        drop(state);
        if is_anything_known {
            self.changes.send_replace(());
        }
    }

    /// A receiver of every result from now on.
    pub(in crate::jobs) fn listen(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, NodeGateState> {
        // The state is valid between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(node: &str) -> NodeRefusal {
    NodeRefusal {
        missing: Missing::new(
            format!(
                "spec.sandbox.enforcement is Required, and it could not be determined whether node {node} keeps sandboxes \
                 from the network (condition Isolated)"
            ),
            "try again in a minute, and see the hub's log for the probe of the node",
        ),
        is_of_node: true,
    }
}

fn open(node: &str) -> NodeRefusal {
    NodeRefusal {
        missing: Missing::new(
            format!(
                "spec.sandbox.enforcement is Required, and node {node} lets sandboxes reach the network (condition Isolated)"
            ),
            "install a network plugin that enforces NetworkPolicies on every node, or keep sandboxes from it with \
             spec.sandbox.nodeSelector",
        ),
        is_of_node: true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_run_on_a_new_node_waits_for_its_probe_and_follows_its_result() {
        for (result, is_admitted) in [
            (Some(ProbeResult::Isolated), true),
            (Some(ProbeResult::Open), false),
            (None, false),
        ] {
            let gate = Arc::new(NodeGate::default());
            let waiting = tokio::spawn({
                let gate = Arc::clone(&gate);
                async move { gate.admit(true, "new", Instant::now()).await }
            });
            gate.probe_requested().await;
            assert_eq!(gate.next(true, &BTreeSet::new()), [Some("new".to_owned())]);
            assert!(!waiting.is_finished(), "nothing runs on a node that was not asked");
            gate.record_probe("another".to_owned(), Some(ProbeResult::Isolated));
            gate.record_probe("new".to_owned(), result);
            assert_eq!(waiting.await.unwrap().is_ok(), is_admitted, "{result:?}");
        }
    }

    #[test]
    fn a_check_without_a_result_has_checked_nothing() {
        let gate = NodeGate::default();
        gate.record_probe("a".to_owned(), None);
        gate.set_runner_result(None);
        assert_eq!(gate.isolation().checked, None);
        gate.record_probe("a".to_owned(), Some(ProbeResult::Open));
        let checked = gate.isolation().checked;
        assert!(checked.is_some());
        gate.record_probe("b".to_owned(), None);
        gate.set_runner_result(None);
        assert_eq!(gate.isolation().checked, checked);
        gate.set_runner_result(Some(true));
        assert!(gate.isolation().checked >= checked, "the clock may have a coarse tick");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_never_probed_is_refused_in_the_end() {
        let gate = NodeGate::default();
        let refused = gate.admit(true, "new", Instant::now()).await.unwrap_err();
        assert!(refused.missing.to_string().contains("node new"), "{refused:?}");
    }

    #[tokio::test]
    async fn without_the_demand_no_run_waits() {
        let gate = NodeGate::default();
        gate.record_probe("a".to_owned(), Some(ProbeResult::Open));
        for node in ["a", "new"] {
            gate.admit(false, node, Instant::now()).await.unwrap();
        }
        assert!(gate.avoided(false).is_empty());
        assert_eq!(gate.avoided(true), ["a"]);
        assert!(!gate.is_probe_requested());
    }

    #[test]
    fn while_nothing_is_known_any_node_is_asked_and_then_those_with_sandboxes() {
        let gate = NodeGate::default();
        assert_eq!(gate.next(true, &BTreeSet::new()), [None]);
        let live = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        gate.request_probe("b");
        assert_eq!(gate.next(true, &live), [Some("b".to_owned()), Some("a".to_owned())]);
        gate.record_probe("a".to_owned(), Some(ProbeResult::Isolated));
        gate.record_probe("b".to_owned(), Some(ProbeResult::Isolated));
        gate.request_probe("a");
        assert!(gate.next(true, &live).is_empty(), "known meanwhile");
    }

    #[test]
    fn if_all_known_nodes_are_open_another_is_tried_now_and_then() {
        let gate = NodeGate::default();
        gate.record_probe("a".to_owned(), Some(ProbeResult::Open));
        let live = BTreeSet::new();
        assert!(gate.next(false, &live).is_empty(), "nobody asks for better");
        assert_eq!(gate.next(true, &live), [None]);
        assert!(gate.next(true, &live).is_empty());
    }
}
