//! Judges the sidecars of pods by the pods' metadata. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_hub_api::RuntimeName;
use knack_injection::names::{ANNOTATION_MIRROR, DISABLED};
use knack_vocabulary::{
    ANNOTATION_INJECTION, ANNOTATION_RUNTIME, CONTAINER_SIDECAR, ENABLED, LABEL_INJECT, LABEL_ROLE, ROLE_SANDBOX,
};

use crate::condition_value::{ConditionStatus, ConditionValue};

/// Pods that run, or will, as a field selector.
pub(super) const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Maximum number of pod names listed in the condition.
const NAMED_MAX: usize = 10;
/// Maximum length, in characters, of one pod's problem in the condition message.
const WHY_MAX_CHARS: usize = 120;
/// The beginning of what the injection says of APIs that do not go through the sidecar.
const NOT_REDIRECTED: &str = "not redirected: ";
/// Namespaces that no delivery touches, besides the release's own.
const NEVER: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// How a pod that asks fares; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InjectionState {
    /// It has no sidecar.
    Without,
    /// It has one, and the hub refuses its ServiceAccount: calls pass unchanged.
    Refused,
    /// It has one, and its namespace does not have the hub's authorities: calls pass unchanged.
    Untrusting,
    /// It has one, and calls of an API do not go through it.
    Partly,
    /// It has one, and an annotation of it that means the sidecar is ignored: so its skills may not be those that are meant.
    Ignored,
    /// It has one of another image than this installation's, which carries skills all the same.
    Stale,
    /// It has the sidecar, and calls go through it.
    Injected,
}

impl InjectionState {
    /// All of them.
    pub(super) const ALL: [Self; 7] = [
        Self::Without,
        Self::Refused,
        Self::Untrusting,
        Self::Partly,
        Self::Ignored,
        Self::Stale,
        Self::Injected,
    ];

    /// As metrics name it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Refused => "refused",
            Self::Untrusting => "untrusting",
            Self::Partly => "partly",
            Self::Ignored => "ignored",
            Self::Stale => "stale",
            Self::Injected => "injected",
        }
    }
}

/// Whether pods of a namespace can get the sidecar at all.
pub(super) fn is_reached(namespace: &str, own: &str) -> bool {
    namespace != own && !NEVER.contains(&namespace)
}

/// How a pod fares by its metadata and by whether it has a container of the sidecar's name, and why; `None` if it does not ask.
pub(super) fn injection_state(
    pod: &ObjectMeta,
    has_sidecar: bool,
    namespace_asks: bool,
) -> Option<(InjectionState, String)> {
    let label = |key: &str| pod.labels.as_ref()?.get(key).map(String::as_str);
    let annotation = |key: &str| pod.annotations.as_ref()?.get(key).map(String::as_str);
    let asks = match label(LABEL_INJECT) {
        Some(ENABLED) => true,
        Some(DISABLED) => false,
        _ => namespace_asks,
    };
    let other = pod.deletion_timestamp.is_some()
        || label(LABEL_ROLE) == Some(ROLE_SANDBOX)
        || annotation(ANNOTATION_MIRROR).is_some();
    if !asks || other {
        return None;
    }
    Some(match annotation(ANNOTATION_INJECTION) {
        None => {
            let why = "it was not injected; pods are injected only when they are created";
            (InjectionState::Without, why.to_owned())
        }
        Some(text) if text.starts_with("injected") && !has_sidecar => {
            let why =
                format!("{ANNOTATION_INJECTION} says that it has one, but there is no container {CONTAINER_SIDECAR}");
            (InjectionState::Without, why)
        }
        Some("injected") => (InjectionState::Injected, String::new()),
        Some(text) => match text.strip_prefix("injected; ") {
            Some(why) if why.starts_with(NOT_REDIRECTED) => (InjectionState::Partly, why.to_owned()),
            Some(why) => (InjectionState::Ignored, why.to_owned()),
            None => (InjectionState::Without, text.to_owned()),
        },
    })
}

/// The SkillRuntime of a pod's sidecar: its own word, that of its namespace, or the installation's. `None`: that of its
/// namespace cannot be read, with which a gateway has no catalog. A pod's own word that cannot be read is not passed on to it.
pub(super) fn runtime_of(pod: &ObjectMeta, of_namespace: Option<&str>, default: &RuntimeName) -> Option<RuntimeName> {
    let own = pod.annotations.as_ref().and_then(|all| all.get(ANNOTATION_RUNTIME));
    if let Some(own) = own.and_then(|name| name.parse().ok()) {
        return Some(own);
    }
    match of_namespace.filter(|name| !name.is_empty()) {
        Some(name) => name.parse().ok(),
        None => Some(default.clone()),
    }
}

/// The pods of one SkillRuntime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    counts: BTreeMap<InjectionState, usize>,
    /// Problems by `namespace/name`: the first by name, the worst before the others.
    named: BTreeMap<(InjectionState, String), String>,
}

impl Tally {
    /// Counts a pod.
    pub(super) fn add(&mut self, pod: &str, state: InjectionState, why: &str) {
        *self.counts.entry(state).or_default() += 1;
        if state == InjectionState::Injected {
            return;
        }
        let why = why.chars().take(WHY_MAX_CHARS).collect();
        self.named.insert((state, pod.to_owned()), why);
        if self.named.len() > NAMED_MAX {
            self.named.pop_last();
        }
    }

    /// Pods that fare so.
    pub(super) fn count(&self, state: InjectionState) -> usize {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    /// What the condition says. An older sidecar carries skills, so it makes nothing false.
    pub(super) fn condition(&self) -> ConditionValue {
        let all: usize = self.counts.values().sum();
        let worst = self.counts.keys().next().copied().unwrap_or(InjectionState::Injected);
        let count = self.count(worst);
        let (status, reason, begin) = match worst {
            InjectionState::Without => (
                ConditionStatus::False,
                "PodsWithoutSidecar",
                format!("{count} of {all} pods that ask for the sidecar have none"),
            ),
            InjectionState::Refused => (
                ConditionStatus::False,
                "CallersNotAllowed",
                format!(
                    "the hub refuses the sidecars of {count} of {all} pods; add the labels of their namespaces to \
                     spec.allowedCallers, or grant their ServiceAccounts the verb use"
                ),
            ),
            InjectionState::Untrusting => (
                ConditionStatus::False,
                "AuthoritiesNotShared",
                format!("the sidecars of {count} of {all} pods do not trust the hub"),
            ),
            InjectionState::Partly => (
                ConditionStatus::False,
                "ApisNotRedirected",
                format!("an API does not go through the sidecar in {count} of {all} pods"),
            ),
            InjectionState::Ignored => (
                ConditionStatus::False,
                "AnnotationIgnored",
                format!(
                    "an annotation for the sidecar is ignored in {count} of {all} pods; correct it in the pod template, and restart \
                     the workload"
                ),
            ),
            InjectionState::Stale => (
                ConditionStatus::True,
                "OlderSidecars",
                format!(
                    "all {all} pods that ask have the sidecar, {count} of them with another image than this installation's; \
                     restart their workloads, or set injection.rollStale"
                ),
            ),
            InjectionState::Injected => {
                let text = format!("{all} of {all} pods that ask have the sidecar");
                return ConditionValue::new(ConditionStatus::True, "AllInjected", text);
            }
        };
        let names = self.names(status == ConditionStatus::False);
        ConditionValue::new(status, reason, format!("{begin}: {names}"))
    }

    /// The first pods with what is wrong, and how many more there are. Older sidecars have no names beside what is `worse`.
    fn names(&self, worse: bool) -> String {
        let is_named =
            |state: InjectionState| state != InjectionState::Injected && (!worse || state != InjectionState::Stale);
        let named: Vec<String> = self
            .named
            .iter()
            .filter(|((state, _), _)| is_named(*state))
            .map(|((_, pod), why)| format!("{pod} ({why})"))
            .collect();
        let wrong: usize = InjectionState::ALL
            .into_iter()
            .filter(|state| is_named(*state))
            .map(|state| self.count(state))
            .sum();
        let mut text = named.join(", ");
        let more = wrong.saturating_sub(named.len());
        if more > 0 {
            text += &format!(", and {more} more");
        }
        let older = self.count(InjectionState::Stale);
        if worse && older > 0 {
            text += &format!("; sidecars of another image than this installation's: {older}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn pod(labels: Value, annotations: Value) -> ObjectMeta {
        serde_json::from_value(json!({"name": "p", "namespace": "n", "labels": labels, "annotations": annotations}))
            .unwrap()
    }

    #[test]
    fn alerts_and_dashboard_know_the_states() {
        for word in crate::fixture::monitored_words("knack_controller_sidecar_pods", "state") {
            assert!(InjectionState::ALL.iter().any(|state| state.word() == word), "{word}");
        }
    }

    #[test]
    fn pod_state_follows_labels_and_annotation() {
        let without = |why: &str| Some((InjectionState::Without, why.to_owned()));
        let partly = |why: &str| Some((InjectionState::Partly, why.to_owned()));
        let ignored = |why: &str| Some((InjectionState::Ignored, why.to_owned()));
        let nothing = "it was not injected; pods are injected only when they are created";
        let says = |text: &str| json!({"knack.dev/injection": text});
        let enabled = || json!({"knack.dev/inject": "enabled"});
        let untrue = without("knack.dev/injection says that it has one, but there is no container knack-gateway");
        for text in ["injected", "injected; not redirected: openai (base URLs differ)"] {
            assert_eq!(
                injection_state(&pod(enabled(), says(text)), false, false),
                untrue,
                "{text}"
            );
        }
        for (what, labels, annotations, namespace_asks, expected) in [
            ("asks nobody", json!({}), json!({}), false, None),
            ("by its namespace", json!({}), json!({}), true, without(nothing)),
            ("by itself", enabled(), json!({}), false, without(nothing)),
            (
                "disabled",
                json!({"knack.dev/inject": "disabled"}),
                json!({}),
                true,
                None,
            ),
            (
                "another word",
                json!({"knack.dev/inject": "yes"}),
                json!({}),
                false,
                None,
            ),
            (
                "injected",
                enabled(),
                says("injected"),
                false,
                Some((InjectionState::Injected, String::new())),
            ),
            (
                "in part",
                enabled(),
                says("injected; not redirected: openai (base URLs differ)"),
                false,
                partly("not redirected: openai (base URLs differ)"),
            ),
            (
                "in part, with an annotation that is ignored",
                enabled(),
                says("injected; not redirected: openai (own key); unknown annotation knack.dev/runtim is ignored"),
                false,
                partly("not redirected: openai (own key); unknown annotation knack.dev/runtim is ignored"),
            ),
            (
                "a runtime that is ignored",
                enabled(),
                says("injected; knack.dev/runtime is not namespace/name and is ignored"),
                false,
                ignored("knack.dev/runtime is not namespace/name and is ignored"),
            ),
            (
                "refused",
                enabled(),
                says("not injected: not a Linux pod"),
                false,
                without("not injected: not a Linux pod"),
            ),
            ("nonsense", enabled(), says(""), false, without("")),
            ("a sandbox", json!({"knack.dev/role": "sandbox"}), json!({}), true, None),
            (
                "a mirror",
                enabled(),
                json!({"kubernetes.io/config.mirror": "x"}),
                false,
                None,
            ),
        ] {
            assert_eq!(
                injection_state(&pod(labels, annotations), true, namespace_asks),
                expected,
                "{what}"
            );
        }
        let mut ending = pod(enabled(), json!({}));
        ending.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(injection_state(&ending, false, true), None);
        assert_eq!(injection_state(&ObjectMeta::default(), false, false), None);
    }

    #[test]
    fn the_runtime_is_the_pods_then_the_namespaces_then_the_installations() {
        let default: RuntimeName = "knack-sandboxes/default".parse().unwrap();
        for (annotation, of_namespace, expected) in [
            (Value::Null, None, Some("knack-sandboxes/default")),
            (Value::Null, Some(""), Some("knack-sandboxes/default")),
            (Value::Null, Some("team-a/tools"), Some("team-a/tools")),
            (Value::Null, Some("nonsense"), None),
            (json!("team-b/own"), Some("team-a/tools"), Some("team-b/own")),
            (json!("team-b/own"), Some("nonsense"), Some("team-b/own")),
            (json!("no/such/name"), Some("team-a/tools"), Some("team-a/tools")),
        ] {
            let mut annotations = json!({});
            if !annotation.is_null() {
                annotations["knack.dev/runtime"] = annotation;
            }
            let found = runtime_of(&pod(json!({}), annotations), of_namespace, &default);
            assert_eq!(found.map(|name| name.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn the_condition_names_ten_pods_and_says_how_many_there_are() {
        let mut tally = Tally::default();
        tally.add("n/good", InjectionState::Injected, "");
        tally.add("a/part", InjectionState::Partly, "not redirected: openai (x)");
        for number in 0..15 {
            tally.add(&format!("z/p{number:02}"), InjectionState::Without, &"w".repeat(1_000));
        }
        let ConditionValue {
            status,
            reason,
            message,
        } = tally.condition();
        let (status, reason) = (status.as_str(), &*reason);
        assert_eq!((status, reason), ("False", "PodsWithoutSidecar"));
        assert!(
            message.starts_with("15 of 17 pods that ask for the sidecar have none: z/p00 (www"),
            "{message}"
        );
        assert!(message.ends_with("), and 6 more"), "{message}");
        assert!(
            message.contains("z/p09") && !message.contains("z/p10") && !message.contains("a/part"),
            "{message}"
        );
        assert!(message.len() < 2_000);
    }

    #[test]
    fn the_condition_says_the_worst_and_what_to_do() {
        use InjectionState::{Ignored, Injected, Partly, Refused, Stale, Without};
        let refused = "False CallersNotAllowed the hub refuses the sidecars of 1 of 2 pods; add the labels of their namespaces \
             to spec.allowedCallers, or grant their ServiceAccounts the verb use: n/refused (why)";
        let older = "True OlderSidecars all 2 pods that ask have the sidecar, 1 of them with another image than this \
             installation's; restart their workloads, or set injection.rollStale: n/stale (why)";
        let ignored = "False AnnotationIgnored an annotation for the sidecar is ignored in 1 of 2 pods; correct it in the pod \
             template, and restart the workload: n/ignored (why); sidecars of another image than this installation's: 1";
        let partly = "False ApisNotRedirected an API does not go through the sidecar in 1 of";
        for (states, expected) in [
            (
                &[Injected][..],
                "True AllInjected 1 of 1 pods that ask have the sidecar".to_owned(),
            ),
            (&[Injected, Stale], older.to_owned()),
            (&[Injected, Partly], format!("{partly} 2 pods: n/partly (why)")),
            (
                &[Stale, Partly],
                format!("{partly} 2 pods: n/partly (why); sidecars of another image than this installation's: 1"),
            ),
            (&[Stale, Ignored], ignored.to_owned()),
            (&[Injected, Refused], refused.to_owned()),
            (
                &[Partly, Refused, Without],
                "False PodsWithoutSidecar 1 of 3 pods that ask for the sidecar have none: n/without (why), \
                 n/refused (why), n/partly (why)"
                    .to_owned(),
            ),
        ] {
            let mut tally = Tally::default();
            for state in states {
                tally.add(&format!("n/{}", state.word()), *state, "why");
            }
            let ConditionValue {
                status,
                reason,
                message,
            } = tally.condition();
            let (status, reason) = (status.as_str(), &*reason);
            assert_eq!(format!("{status} {reason} {message}"), expected, "{states:?}");
        }
    }

    #[test]
    fn namespaces_that_nothing_is_added_in_are_not_checked() {
        for (namespace, expected) in [("team-a", true), ("kube-system", false), ("knack-system", false)] {
            assert_eq!(is_reached(namespace, "knack-system"), expected, "{namespace}");
        }
    }
}
