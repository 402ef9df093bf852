//! Pods inside of other objects: what a manifest's author wrote, with the sidecar in every pod template.

use serde_json::{Map, Value};

use super::again::inject_again;
use super::inject::{Outcome, asks_not, inject};
use super::parameters::Parameters;

/// One pod of a manifest, and what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// `Kind name` of the object.
    pub object: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The position of the pod of a kind: a JSON pointer. `None` for kinds without one.
fn place(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "",
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => "/spec/template",
        "CronJob" => "/spec/jobTemplate/spec/template",
        "PodTemplate" => "/template",
        _ => return None,
    })
}

/// Adds the sidecar to every pod of an object, and of the objects of a List; others stay as they are. A sidecar that an earlier
/// injection has put there is replaced. A pod with the label `knack.dev/inject: disabled` stays as it is too. Returns one line per pod.
pub fn inject_manifest(object: &mut Value, parameters: &Parameters) -> Vec<Injected> {
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = word("kind").to_owned();
    if kind == "List" || kind.ends_with("List") && object.get("items").is_some_and(Value::is_array) {
        let items = object.get_mut("items").and_then(Value::as_array_mut);
        return items
            .into_iter()
            .flatten()
            .flat_map(|item| inject_manifest(item, parameters))
            .collect();
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    let known = |key: &str| metadata.and_then(|metadata: &Map<String, Value>| metadata.get(key)?.as_str());
    let named = known("name").or_else(|| known("generateName")).unwrap_or("?");
    let title = format!("{kind} {named}");
    let Some(pod) = place(&kind).and_then(|place| object.pointer_mut(place)) else {
        return Vec::new();
    };
    let outcome = if asks_not(pod) {
        Outcome::Unchanged("its label says disabled")
    } else {
        let injection = inject_again(pod, parameters).unwrap_or_else(|| inject(pod, parameters));
        *pod = injection.pod;
        injection.outcome
    };
    vec![Injected { object: title, outcome }]
}
