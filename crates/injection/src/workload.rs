//! Pods inside of other objects: what a manifest's author wrote, with the sidecar in every pod template.

use serde_json::{Map, Value};

use knack_vocabulary::{LABEL_ROLE, ROLE_SANDBOX};

use super::env::{items, name, value};
use super::inject::{Outcome, asks_not, inject, label};
use super::names::VARIABLE_HUB;
use super::parameters::Parameters;
use super::replace::inject_again;

/// One pod of a manifest, and what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// `Kind name` of the object.
    pub object: String,
    /// The outcome.
    pub outcome: Outcome,
    /// Whether all pull secrets of the pod are the sidecar's. Kubernetes gives a pod those of its ServiceAccount only if it names none.
    pub hides_pull_secrets: bool,
}

/// Namespaces whose pods never get the sidecar, besides that of the installation: those of Kubernetes.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// `apiVersion` and `kind`.
type Kind<'a> = (&'a str, &'a str);

/// The position of the pod of a kind: a JSON pointer. `None` for kinds without one, and for those of other groups that have a name of
/// these. An object without `apiVersion` is taken by its kind.
fn place((api_version, kind): Kind<'_>) -> Option<&'static str> {
    let (group, place) = match kind {
        "Pod" => ("", ""),
        "ReplicationController" => ("", "/spec/template"),
        "PodTemplate" => ("", "/template"),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => ("apps", "/spec/template"),
        "Job" => ("batch", "/spec/template"),
        "CronJob" => ("batch", "/spec/jobTemplate/spec/template"),
        _ => return None,
    };
    let of = api_version.split_once('/').map_or("", |(group, _)| group);
    (api_version.is_empty() || of == group).then_some(place)
}

/// Adds the sidecar to every pod of an object, and of the objects of a List; others stay as they are. A sidecar that an earlier
/// injection has put there is replaced. A pod that gets none in a cluster stays as it is too: one with the label
/// `knack.dev/inject: disabled`, a sandbox, or one in a namespace of Kubernetes or of the installation. Returns one line per pod.
pub fn inject_manifest(object: &mut Value, parameters: &Parameters) -> Vec<Injected> {
    inject_object(object, ("", ""), parameters)
}

/// `listed`: the kind of an object that is an item of a list, if it has none of its own.
fn inject_object(object: &mut Value, listed: Kind<'_>, parameters: &Parameters) -> Vec<Injected> {
    let word = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    let api_version = word("apiVersion").unwrap_or_else(|| listed.0.to_owned());
    let kind = word("kind").unwrap_or_else(|| listed.1.to_owned());
    if let Some(of) = kind.strip_suffix("List")
        && (of.is_empty() || object.get("items").is_some_and(Value::is_array))
    {
        let listed = if of.is_empty() {
            ("", "")
        } else {
            (api_version.as_str(), of)
        };
        let items = object.get_mut("items").and_then(Value::as_array_mut);
        return items
            .into_iter()
            .flatten()
            .flat_map(|item| inject_object(item, listed, parameters))
            .collect();
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    let known = |key: &str| metadata.and_then(|metadata: &Map<String, Value>| metadata.get(key)?.as_str());
    let named = known("name").or_else(|| known("generateName")).unwrap_or("?");
    let title = format!("{kind} {named}");
    let namespace = known("namespace").unwrap_or_default();
    let is_excluded = SYSTEM_NAMESPACES.contains(&namespace)
        || installation(parameters).is_some_and(|installation| installation == namespace);
    let Some(pod) = place((api_version.as_str(), kind.as_str())).and_then(|place| object.pointer_mut(place)) else {
        return Vec::new();
    };
    // A pod that has the sidecar may have its secrets from an earlier injection.
    let mut may_lose = items(&pod["spec"], "imagePullSecrets").is_empty();
    let outcome = if is_excluded {
        Outcome::Unchanged("pods of its namespace never get the sidecar")
    } else if label(pod, LABEL_ROLE) == Some(ROLE_SANDBOX) {
        Outcome::Unchanged("a sandbox never gets the sidecar")
    } else if asks_not(pod) {
        Outcome::Unchanged("its label says disabled")
    } else {
        let again = inject_again(pod, parameters);
        may_lose |= again.is_some();
        let injection = again.unwrap_or_else(|| inject(pod, parameters));
        *pod = injection.pod;
        injection.outcome
    };
    let secrets = items(&pod["spec"], "imagePullSecrets");
    let is_own = |secret: &Value| parameters.image_pull_secrets.iter().any(|own| own == name(secret));
    let hides_pull_secrets =
        may_lose && matches!(outcome, Outcome::Injected(_)) && !secrets.is_empty() && secrets.iter().all(is_own);
    vec![Injected {
        object: title,
        outcome,
        hides_pull_secrets,
    }]
}

/// The namespace of the installation, by the name of its hub's Service: `https://knack-hub.<namespace>.svc:8443`.
fn installation(parameters: &Parameters) -> Option<&str> {
    let env = parameters.container.get("env")?.as_array()?;
    let hub = env.iter().find(|entry| name(entry) == VARIABLE_HUB).map(value)?;
    let host = hub.split_once("://")?.1.split([':', '/']).next()?;
    let mut labels = host.split('.').skip(1);
    let namespace = labels.next()?;
    (labels.next() == Some("svc")).then_some(namespace)
}
