//! Decides which workload with an older sidecar in its pods is restarted next. Pure.
//!
//! A restart is what `kubectl rollout restart` does: an annotation of the pod template changes. Its value is the image that the
//! restart was for, so a workload is restarted once for each image, also where the new pods have another one again (a webhook
//! of the cluster that rewrites images, an injector that is not available).

use knack_injection::names::DISABLED;

/// How a workload is doing, in the words that all kinds share.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each of which a test varies"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Workload {
    /// `Deployment`, `StatefulSet` or `DaemonSet`.
    pub(super) kind: &'static str,
    /// The workload's name.
    pub(super) name: String,
    /// Value of the label `knack.dev/roll` on it.
    pub(super) label: Option<String>,
    /// Value of the annotation `knack.dev/rolled-for` on its pod template.
    pub(super) rolled_for: Option<String>,
    /// Its own controller has seen its last change, all pods are of that and available.
    pub(super) settled: bool,
    /// It is paused, or its strategy replaces no pods by itself.
    pub(super) held: bool,
    /// It belongs to another object, which would take the change back.
    pub(super) owned: bool,
    /// Its pod template has a sidecar of Knack: new pods would have the same.
    pub(super) written: bool,
    /// Its restart for this image was refused, and nothing of it has changed since.
    pub(super) refused: bool,
    /// Pods whose sidecar has another image than wanted.
    pub(super) stale: usize,
}

/// The action in a namespace at one check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision<'a> {
    /// Nothing is stale that may be restarted.
    Nothing,
    /// This restart is not over: no other one begins. One that never ends, since the new pods do not become available, holds all
    /// others of its namespace.
    Wait(&'a Workload),
    /// This one is restarted.
    Roll(&'a Workload),
}

/// Decides for the workloads of one namespace, of which at most one is restarted at a time; the first by kind and name.
pub(super) fn decide<'a>(workloads: &'a [Workload], wanted: &str) -> Decision<'a> {
    let done = |one: &Workload| one.rolled_for.as_deref() == Some(wanted);
    if let Some(under_way) = workloads.iter().find(|one| done(one) && !one.settled) {
        return Decision::Wait(under_way);
    }
    workloads
        .iter()
        .filter(|one| one.stale > 0 && one.settled && !done(one) && may_roll(one))
        .min_by_key(|one| (one.kind, one.name.as_str()))
        .map_or(Decision::Nothing, Decision::Roll)
}

/// Whether a restart of it is wanted, and gives its pods another sidecar.
fn may_roll(one: &Workload) -> bool {
    one.label.as_deref() != Some(DISABLED) && !one.held && !one.owned && !one.written && !one.refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "registry.example/knack-gateway:2";

    fn stale(name: &str) -> Workload {
        Workload {
            kind: "Deployment",
            name: name.to_owned(),
            settled: true,
            stale: 2,
            ..Workload::default()
        }
    }

    fn text(decision: &Decision<'_>) -> String {
        match decision {
            Decision::Nothing => "nothing".to_owned(),
            Decision::Wait(one) => format!("wait {}/{}", one.kind, one.name),
            Decision::Roll(one) => format!("roll {}/{}", one.kind, one.name),
        }
    }

    #[test]
    fn one_workload_at_a_time_and_only_one_that_a_restart_helps() {
        let but = |change: fn(&mut Workload)| {
            let mut one = stale("a");
            change(&mut one);
            one
        };
        let rolled = |name: &str, image: &str, settled: bool| Workload {
            rolled_for: Some(image.to_owned()),
            settled,
            ..stale(name)
        };
        let of_kind = |kind: &'static str, name: &str| Workload { kind, ..stale(name) };
        let fresh = |one: Workload| Workload { stale: 0, ..one };
        let old = "registry.example/knack-gateway:1";
        let (set, daemon) = (of_kind("StatefulSet", "a"), of_kind("DaemonSet", "z"));
        let (yes, no) = (Some("enabled".to_owned()), Some("disabled".to_owned()));
        let labelled = |label: Option<String>| Workload { label, ..stale("a") };
        let changing = || but(|one| one.settled = false);
        for (what, workloads, expected) in [
            ("none", vec![], "nothing"),
            ("nothing stale", vec![fresh(stale("a"))], "nothing"),
            ("the first by name", vec![stale("b"), stale("a")], "roll Deployment/a"),
            ("by kind first", vec![set, daemon], "roll DaemonSet/z"),
            (
                "a restart is under way",
                vec![stale("a"), rolled("b", NEW, false)],
                "wait Deployment/b",
            ),
            (
                "it is over and helped",
                vec![fresh(rolled("a", NEW, true)), stale("b")],
                "roll Deployment/b",
            ),
            // Never again for this image.
            ("it is over and did not help", vec![rolled("a", NEW, true)], "nothing"),
            (
                "that of an older release",
                vec![rolled("a", old, true)],
                "roll Deployment/a",
            ),
            ("somebody changes it just now", vec![changing()], "nothing"),
            (
                "somebody changes another one",
                vec![changing(), stale("b")],
                "roll Deployment/b",
            ),
            ("it says no", vec![labelled(no)], "nothing"),
            ("it says yes", vec![labelled(yes)], "roll Deployment/a"),
            ("paused", vec![but(|one| one.held = true)], "nothing"),
            ("owned", vec![but(|one| one.owned = true)], "nothing"),
            (
                "the restart was refused",
                vec![but(|one| one.refused = true)],
                "nothing",
            ),
            (
                "that of the first one was refused",
                vec![but(|one| one.refused = true), stale("b")],
                "roll Deployment/b",
            ),
            (
                "the sidecar is in the manifest",
                vec![but(|one| one.written = true)],
                "nothing",
            ),
        ] {
            assert_eq!(text(&decide(&workloads, NEW)), expected, "{what}");
        }
    }
}
