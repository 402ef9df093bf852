//! The results of the isolation probes, and their consequences for runs.

use k8s_openapi::jiff::Timestamp;
use knack_execution::Missing;

use super::probe_results::Counts;
use crate::condition_value::{ConditionStatus, ConditionValue};

/// Nodes named in the condition's message: enough to begin with, short enough to read.
const NAMED: usize = 5;

/// The result of the probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) struct Isolation {
    /// The results of the network plugin, by node.
    pub(in crate::jobs) nodes: Counts,
    /// The runner's own lock holds; `None`: not tried yet, or the try failed.
    pub(in crate::jobs) runner: Option<bool>,
    /// When a check gave a result last; `None`: none of this owner has.
    pub(in crate::jobs) checked: Option<Timestamp>,
}

impl Isolation {
    /// Why a runtime does not run code now, wherever its pods are. `required`: it demands isolation; `can_ask`: nodes can be
    /// probed.
    pub(in crate::jobs) fn refusal(&self, required: bool, can_ask: bool) -> Option<Missing> {
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
                "spec.sandbox.enforcement is Required, and this hub cannot probe nodes: its own address is unknown",
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

    /// What the condition `Isolated` says.
    pub(in crate::jobs) fn condition(&self) -> ConditionValue {
        let (nodes, all) = (&self.nodes, self.nodes.nodes());
        let of = |count: usize| format!("on {count} of {all} nodes");
        let (status, reason, message) = match (self.runner, nodes.open.len(), nodes.late.len()) {
            (Some(false), ..) => (
                ConditionStatus::False,
                "RunnerLockOpen",
                "a run could open a socket: the runner's own lock does not hold; use a sandbox image of this release"
                    .to_owned(),
            ),
            (_, open @ 1.., _) => (
                ConditionStatus::False,
                "PolicyNotEnforced",
                format!(
                    "the network plugin lets sandbox pods reach the network {}; there only the runner's own lock keeps runs from the network",
                    of(open)
                ),
            ),
            (_, 0, late @ 1..) => (
                ConditionStatus::False,
                "PolicyLate",
                format!(
                    "the network plugin lets sandbox pods reach the network in their first seconds {}; with enforcement \
                     Required runs wait until it stops them, otherwise only the runner's own lock keeps runs from the network",
                    of(late)
                ),
            ),
            (Some(true), 0, 0) if nodes.isolated > 0 => (
                ConditionStatus::True,
                "Verified",
                format!(
                    "the network plugin enforces policies {} and the runner's own lock holds",
                    of(nodes.isolated)
                ),
            ),
            _ => (
                ConditionStatus::Unknown,
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
        ConditionValue::new(status, reason, format!("{message}{named}"))
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
    fn the_condition_separates_the_two_locks_and_counts_nodes() {
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
            let isolation = Isolation {
                nodes,
                runner,
                checked: None,
            };
            let found = isolation.condition();
            assert_eq!(
                (found.status.as_str(), &*found.reason),
                (status, reason),
                "{isolation:?}"
            );
            assert!(found.message.contains(says), "{}", found.message);
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
            let isolation = Isolation {
                nodes,
                runner,
                checked: None,
            };
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
