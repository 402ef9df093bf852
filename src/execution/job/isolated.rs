//! What is said of isolation: the refusal of a runtime that demands it, and the condition `Isolated`.

use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::call;
use super::launch::Launcher;
use super::nodes::Counts;
use super::view::RuntimeView;
use crate::api::SkillRuntime;
use crate::api::runtime_status::IsolationStatus;
use crate::api::vocabulary::{API_VERSION, CONDITION_ISOLATED, FIELD_MANAGER_HUB, KIND_SKILL_RUNTIME};
use crate::execution::Missing;

/// Nodes named in the condition's message: enough to begin with, short enough to read.
const NAMED: usize = 5;
/// Between two writes: the probes of a cluster that has just been found must not cost a write each.
const PAUSE: Duration = Duration::from_secs(2);

/// What was learnt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Isolation {
    /// Of the network plugin, by node.
    pub(super) nodes: Counts,
    /// The runner's own lock holds; `None`: not tried yet, or it could not be.
    pub(super) runner: Option<bool>,
}

impl Isolation {
    /// Why a runtime does not run code now, wherever its pods are. `required`: it demands isolation; `can_ask`: nodes can be
    /// probed.
    pub(super) fn refusal(&self, required: bool, can_ask: bool) -> Option<Missing> {
        if self.runner == Some(false) {
            return Some(Missing::new(
                "a run could open a socket: the runner's own lock does not hold (condition Isolated)",
                "use a sandbox image of this release",
            ));
        }
        if !required {
            return None;
        }
        if !can_ask {
            return Some(Missing::new(
                "spec.sandbox.enforcement is Required, and this hub cannot probe nodes: it does not know its address",
                "set POD_IP for it, or set enforcement to BestEffort",
            ));
        }
        self.nodes.is_open_everywhere().then(|| {
            Missing::new(
                "spec.sandbox.enforcement is Required, and the cluster's network plugin was not seen to enforce \
                 NetworkPolicies (condition Isolated)",
                "install a network plugin that enforces them, or set enforcement to BestEffort",
            )
        })
    }

    /// Status, reason and message of the condition `Isolated`.
    fn condition(&self) -> (&'static str, &'static str, String) {
        let (nodes, all) = (&self.nodes, self.nodes.nodes());
        let of = |count: usize| format!("on {count} of {all} nodes");
        let (status, reason, message) = match (self.runner, nodes.open.len(), nodes.late.len()) {
            (Some(false), ..) => (
                "False",
                "RunnerLockOpen",
                "a run could open a socket: the runner's own lock does not hold; use a sandbox image of this release"
                    .to_owned(),
            ),
            (_, open @ 1.., _) => (
                "False",
                "PolicyNotEnforced",
                format!(
                    "the network plugin lets sandbox pods out {}; there only the runner's own lock keeps runs from the network",
                    of(open)
                ),
            ),
            (_, 0, late @ 1..) => (
                "False",
                "PolicyLate",
                format!(
                    "the network plugin lets sandbox pods out for their first seconds {}; with enforcement Required runs wait so \
                     long, else the runner's own lock alone keeps them from the network",
                    of(late)
                ),
            ),
            (Some(true), 0, 0) if nodes.isolated > 0 => (
                "True",
                "Verified",
                format!(
                    "the network plugin enforces policies {} and the runner's own lock holds",
                    of(nodes.isolated)
                ),
            ),
            _ => (
                "Unknown",
                "NotVerified",
                "isolation could not be verified yet".to_owned(),
            ),
        };
        let named = [
            ("open", &nodes.open),
            ("late", &nodes.late),
            ("not known", &nodes.unknown),
        ]
        .map(|(what, names)| with_nodes(what, names))
        .concat();
        (status, reason, format!("{message}{named}"))
    }
}

/// The first nodes of a list, as the end of a message.
fn with_nodes(what: &str, nodes: &[String]) -> String {
    let more = nodes.len().saturating_sub(NAMED);
    match (nodes.get(..NAMED).unwrap_or(nodes).join(", "), more) {
        (names, _) if names.is_empty() => String::new(),
        (names, 0) => format!("; {what}: {names}"),
        (names, more) => format!("; {what}: {names} and {more} more"),
    }
}

/// Writes the condition whenever something is told, until the task ends.
pub(super) async fn publish(launcher: &Launcher, view: &ArcSwap<RuntimeView>) {
    let mut told = launcher.gate.listen();
    while told.changed().await.is_ok() {
        let (found, view) = (launcher.gate.seen(), view.load_full());
        tracing::info!(runtime = %view.reference(), ?found, "isolation looked at");
        if let Err(error) = write(launcher, &view, &found).await {
            tracing::warn!(%error, "condition {CONDITION_ISOLATED} could not be written");
            told.mark_changed();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes the condition and `status.isolation`.
async fn write(launcher: &Launcher, view: &RuntimeView, found: &Isolation) -> kube::Result<()> {
    let api: Api<SkillRuntime> = Api::namespaced(launcher.cluster.client.clone(), &view.namespace);
    let current = call(api.get(&view.name)).await?;
    let (status, reason, message) = found.condition();
    let before = current.status.and_then(|written| {
        let mut conditions = written.conditions.into_iter();
        conditions.find(|condition| condition.type_ == CONDITION_ISOLATED && condition.status == status)
    });
    let checked = Time(Timestamp::now());
    let condition = Condition {
        type_: CONDITION_ISOLATED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: current.metadata.generation,
        // It moves only when the status flips.
        last_transition_time: before.map_or_else(|| checked.clone(), |condition| condition.last_transition_time),
    };
    let isolation = IsolationStatus {
        runner: found.runner,
        cni: found.nodes.enforces(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(isolated: usize, late: &[&str], open: &[&str], unknown: &[&str]) -> Counts {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Counts {
            isolated,
            late: names(late),
            open: names(open),
            unknown: names(unknown),
        }
    }

    #[test]
    fn the_condition_tells_the_two_locks_apart_and_counts_nodes() {
        for (runner, nodes, status, reason, says) in [
            (
                Some(true),
                counts(3, &[], &[], &[]),
                "True",
                "Verified",
                "on 3 of 3 nodes",
            ),
            (
                Some(true),
                counts(2, &[], &[], &["c"]),
                "True",
                "Verified",
                "on 2 of 3 nodes and the runner's own lock holds; not known: c",
            ),
            (
                Some(true),
                counts(2, &[], &["b"], &[]),
                "False",
                "PolicyNotEnforced",
                "on 1 of 3 nodes",
            ),
            (
                Some(true),
                counts(1, &["l"], &["b"], &[]),
                "False",
                "PolicyNotEnforced",
                "; open: b; late: l",
            ),
            (
                None,
                counts(1, &["l"], &[], &[]),
                "False",
                "PolicyLate",
                "on 1 of 2 nodes",
            ),
            (
                Some(false),
                counts(1, &[], &[], &[]),
                "False",
                "RunnerLockOpen",
                "open a socket",
            ),
            (
                None,
                counts(1, &[], &[], &[]),
                "Unknown",
                "NotVerified",
                "not be verified",
            ),
            (
                Some(true),
                counts(0, &[], &[], &["a"]),
                "Unknown",
                "NotVerified",
                "not known: a",
            ),
            (
                Some(true),
                counts(0, &[], &[], &[]),
                "Unknown",
                "NotVerified",
                "not be verified",
            ),
        ] {
            let isolation = Isolation { nodes, runner };
            let (found_status, found_reason, message) = isolation.condition();
            assert_eq!((found_status, found_reason), (status, reason), "{isolation:?}");
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn a_runtime_is_refused_as_a_whole_only_where_no_node_can_do() {
        for (runner, nodes, can_ask, is_refused) in [
            (None, counts(0, &[], &[], &[]), true, [false, false]),
            (None, counts(0, &[], &[], &[]), false, [true, false]),
            (Some(true), counts(1, &[], &["b"], &[]), true, [false, false]),
            (Some(true), counts(0, &["l"], &["b"], &[]), true, [false, false]),
            (Some(true), counts(0, &[], &["b"], &["c"]), true, [true, false]),
            (Some(false), counts(1, &[], &[], &[]), true, [true, true]),
        ] {
            let isolation = Isolation { nodes, runner };
            let refused = [true, false].map(|required| isolation.refusal(required, can_ask).is_some());
            assert_eq!(refused, is_refused, "{isolation:?}");
        }
    }

    #[test]
    fn a_message_names_the_first_nodes() {
        let nodes: Vec<String> = (0..7).map(|number| format!("n{number}")).collect();
        assert_eq!(with_nodes("open", &nodes), "; open: n0, n1, n2, n3, n4 and 2 more");
        assert_eq!(with_nodes("open", &nodes[..1]), "; open: n0");
        assert_eq!(with_nodes("open", &[]), "");
    }
}
