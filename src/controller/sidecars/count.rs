//! What the metadata of pods says of their sidecars. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_hub_api::RuntimeName;
use knack_injection::names::{ANNOTATION_MIRROR, DISABLED};
use knack_vocabulary::{ANNOTATION_INJECTION, ANNOTATION_RUNTIME, ENABLED, LABEL_INJECT, LABEL_ROLE, ROLE_SANDBOX};

/// Pods that run, or will, as a field selector.
pub(super) const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Pods whose names a condition has.
const NAMED_MAX: usize = 10;
/// Of what is wrong with one pod, the characters that a condition has.
const WHY_MAX_CHARS: usize = 120;
/// Namespaces that no delivery looks at, besides the release's own.
const NEVER: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// How a pod that asks fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectionState {
    /// It has the sidecar, and calls go through it.
    Injected,
    /// It has the sidecar, and calls of an API do not go through it: which, and why.
    Partly(String),
    /// It has none: why.
    Without(String),
}

/// Whether pods of a namespace can get the sidecar at all.
pub(super) fn is_reached(namespace: &str, own: &str) -> bool {
    namespace != own && !NEVER.contains(&namespace)
}

/// How a pod fares; `None` if it does not ask.
pub(super) fn injection_state(pod: &ObjectMeta, namespace_asks: bool) -> Option<InjectionState> {
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
        None => InjectionState::Without("nothing has added it; pods get it when they are created".to_owned()),
        Some("injected") => InjectionState::Injected,
        Some(text) => match text.strip_prefix("injected; ") {
            Some(why) => InjectionState::Partly(why.to_owned()),
            None => InjectionState::Without(text.to_owned()),
        },
    })
}

/// The SkillRuntime of a pod's sidecar: its own word, that of its namespace, or the installation's.
pub(super) fn runtime_of(pod: &ObjectMeta, of_namespace: Option<&str>, default: &RuntimeName) -> RuntimeName {
    let own = pod.annotations.as_ref().and_then(|all| all.get(ANNOTATION_RUNTIME));
    [own.map(String::as_str), of_namespace]
        .into_iter()
        .flatten()
        .find_map(|name| name.parse().ok())
        .unwrap_or_else(|| default.clone())
}

/// The pods of one SkillRuntime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// With the sidecar.
    pub(super) injected: usize,
    /// With the sidecar, and an API that does not go through it.
    pub(super) partly: usize,
    /// Without it.
    pub(super) without: usize,
    /// What is wrong by `namespace/name`: the first by name, those without a sidecar before the others.
    named: BTreeMap<(bool, String), String>,
}

impl Tally {
    /// Counts a pod.
    pub(super) fn add(&mut self, pod: &str, injection_state: &InjectionState) {
        let (has_it, why) = match injection_state {
            InjectionState::Injected => {
                self.injected += 1;
                return;
            }
            InjectionState::Partly(why) => {
                self.partly += 1;
                (true, why)
            }
            InjectionState::Without(why) => {
                self.without += 1;
                (false, why)
            }
        };
        let why = why.chars().take(WHY_MAX_CHARS).collect();
        self.named.insert((has_it, pod.to_owned()), why);
        if self.named.len() > NAMED_MAX {
            self.named.pop_last();
        }
    }

    /// Status, reason and message of the condition.
    pub(super) fn condition(&self) -> (&'static str, &'static str, String) {
        let all = self.injected + self.partly + self.without;
        if self.without + self.partly == 0 {
            return (
                "True",
                "AllInjected",
                format!("{all} of {all} pods that ask have the sidecar"),
            );
        }
        let (reason, begin) = if self.without > 0 {
            (
                "PodsWithoutSidecar",
                format!("{} of {all} pods that ask for the sidecar have none", self.without),
            )
        } else {
            (
                "ApisNotRedirected",
                format!(
                    "an API does not go through the sidecar in {} of {all} pods",
                    self.partly
                ),
            )
        };
        let named: Vec<String> = self
            .named
            .iter()
            .map(|((_, pod), why)| format!("{pod} ({why})"))
            .collect();
        let more = (self.without + self.partly).saturating_sub(named.len());
        let more = if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        };
        ("False", reason, format!("{begin}: {}{more}", named.join(", ")))
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
    fn a_pod_fares_as_its_labels_and_its_annotation_say() {
        let without = |why: &str| Some(InjectionState::Without(why.to_owned()));
        let nothing = "nothing has added it; pods get it when they are created";
        let says = |text: &str| json!({"knack.dev/injection": text});
        let enabled = || json!({"knack.dev/inject": "enabled"});
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
                Some(InjectionState::Injected),
            ),
            (
                "in part",
                enabled(),
                says("injected; not redirected: openai (base URLs differ)"),
                false,
                Some(InjectionState::Partly(
                    "not redirected: openai (base URLs differ)".to_owned(),
                )),
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
                injection_state(&pod(labels, annotations), namespace_asks),
                expected,
                "{what}"
            );
        }
        let mut ending = pod(enabled(), json!({}));
        ending.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(injection_state(&ending, true), None);
        assert_eq!(injection_state(&ObjectMeta::default(), false), None);
    }

    #[test]
    fn the_runtime_is_the_pods_then_the_namespaces_then_the_installations() {
        let default: RuntimeName = "knack-sandboxes/default".parse().unwrap();
        for (annotation, of_namespace, expected) in [
            (Value::Null, None, "knack-sandboxes/default"),
            (Value::Null, Some("team-a/tools"), "team-a/tools"),
            (Value::Null, Some("nonsense"), "knack-sandboxes/default"),
            (json!("team-b/own"), Some("team-a/tools"), "team-b/own"),
            (json!("no/such/name"), Some("team-a/tools"), "team-a/tools"),
        ] {
            let mut annotations = json!({});
            if !annotation.is_null() {
                annotations["knack.dev/runtime"] = annotation;
            }
            let found = runtime_of(&pod(json!({}), annotations), of_namespace, &default);
            assert_eq!(found.to_string(), expected);
        }
    }

    #[test]
    fn the_condition_names_ten_pods_and_says_how_many_there_are() {
        let mut tally = Tally::default();
        tally.add("n/good", &InjectionState::Injected);
        assert_eq!(tally.condition().0, "True");
        tally.add(
            "a/part",
            &InjectionState::Partly("not redirected: openai (x)".to_owned()),
        );
        let (status, reason, message) = tally.condition();
        assert_eq!((status, reason), ("False", "ApisNotRedirected"));
        assert_eq!(
            message,
            "an API does not go through the sidecar in 1 of 2 pods: a/part (not redirected: openai (x))"
        );
        for number in 0..15 {
            tally.add(&format!("z/p{number:02}"), &InjectionState::Without("w".repeat(1_000)));
        }
        let (status, reason, message) = tally.condition();
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
    fn namespaces_that_nothing_is_added_in_are_not_looked_at() {
        for (namespace, expected) in [("team-a", true), ("kube-system", false), ("knack-system", false)] {
            assert_eq!(is_reached(namespace, "knack-system"), expected, "{namespace}");
        }
    }
}
