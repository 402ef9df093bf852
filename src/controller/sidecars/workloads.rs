//! Workloads and pods of a namespace, read for the decision in [`super::roll`]. Pure.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knack_vocabulary::{ANNOTATION_ROLLED_FOR, CONTAINER_SIDECAR, LABEL_ROLL};
use kube::Resource;
use serde::Deserialize;

use super::roll::Workload;

/// The label of the Deployment controller on the pods of a ReplicaSet; the ReplicaSet's name ends with its value.
const LABEL_TEMPLATE_HASH: &str = "pod-template-hash";
/// A strategy that replaces pods only after they are deleted.
const ON_DELETE: &str = "OnDelete";

/// A pod as far as its sidecar goes. The rest, such as the environment of its containers, is passed over when it is read.
#[derive(Debug, Clone, Default, Resource, Deserialize)]
#[resource(inherit = Pod)]
pub(super) struct PodInBrief {
    /// The pod's metadata.
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecInBrief,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecInBrief {
    init_containers: Vec<ContainerInBrief>,
    containers: Vec<ContainerInBrief>,
    service_account_name: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerInBrief {
    name: String,
    image: Option<String>,
}

impl PodInBrief {
    /// Whether it has a container of the sidecar's name, which one that was written by hand need not have among the init
    /// containers.
    pub(super) fn has_sidecar(&self) -> bool {
        let mut all = self.spec.init_containers.iter().chain(&self.spec.containers);
        all.any(|container| container.name == CONTAINER_SIDECAR)
    }

    /// Its ServiceAccount; the API server gives each pod one.
    pub(super) fn service_account(&self) -> &str {
        self.spec.service_account_name.as_deref().unwrap_or("default")
    }
}

/// Kind and name of the workload of a pod; `None` for those that nothing restarts: Jobs, pods of their own.
pub(super) fn workload_of(pod: &PodInBrief) -> Option<(&'static str, String)> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.api_version == "apps/v1")?;
    match owner.kind.as_str() {
        "StatefulSet" => Some(("StatefulSet", owner.name.clone())),
        "DaemonSet" => Some(("DaemonSet", owner.name.clone())),
        "ReplicaSet" => {
            let hash = pod.metadata.labels.as_ref()?.get(LABEL_TEMPLATE_HASH)?;
            let name = owner.name.strip_suffix(hash)?.strip_suffix('-')?;
            Some(("Deployment", name.to_owned()))
        }
        _ => None,
    }
}

/// The image of a pod's sidecar if it is another one than `wanted`; `None` also if it has none, or is about to go.
pub(super) fn stale_image<'p>(pod: &'p PodInBrief, wanted: &str) -> Option<&'p str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut containers = pod.spec.init_containers.iter();
    let own = containers.find(|container| container.name == CONTAINER_SIDECAR)?;
    own.image.as_deref().filter(|image| !is_same_image(image, wanted))
}

/// Whether two references mean one image, also where a mirror of the cluster rewrote the registry: by the digests where
/// both have one, otherwise by the last part of the repository with its tag.
fn is_same_image(one: &str, other: &str) -> bool {
    let digest = |image: &str| image.split_once('@').map(|(_, digest)| digest.to_owned());
    match (digest(one), digest(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.rsplit('/').next() == other.rsplit('/').next(),
        _ => false,
    }
}

/// The members of a Deployment that are read.
pub(super) fn deployment(one: &Deployment) -> Option<Workload> {
    let (spec, status) = (one.spec.as_ref()?, one.status.clone().unwrap_or_default());
    let replicas = spec.replicas.unwrap_or(1);
    let all = |count: Option<i32>| count.unwrap_or(0) == replicas;
    let settled = all(status.updated_replicas) && all(status.available_replicas) && all(status.replicas);
    Some(Workload {
        settled: settled && seen(&one.metadata, status.observed_generation),
        held: spec.paused == Some(true),
        ..common("Deployment", &one.metadata, &spec.template)
    })
}

/// The members of a StatefulSet that are read.
pub(super) fn stateful_set(one: &StatefulSet) -> Option<Workload> {
    let (spec, status) = (one.spec.as_ref()?, one.status.clone().unwrap_or_default());
    let replicas = spec.replicas.unwrap_or(1);
    let settled =
        status.available_replicas.unwrap_or(0) == replicas && status.current_revision == status.update_revision;
    let strategy = spec.update_strategy.as_ref();
    let partition = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition);
    Some(Workload {
        settled: settled && seen(&one.metadata, status.observed_generation),
        held: partition.unwrap_or(0) > 0 || strategy.and_then(|one| one.type_.as_deref()) == Some(ON_DELETE),
        ..common("StatefulSet", &one.metadata, &spec.template)
    })
}

/// The members of a DaemonSet that are read.
pub(super) fn daemon_set(one: &DaemonSet) -> Option<Workload> {
    let (spec, status) = (one.spec.as_ref()?, one.status.clone().unwrap_or_default());
    let desired = status.desired_number_scheduled;
    let all = |count: Option<i32>| count.unwrap_or(0) == desired;
    let settled = all(status.updated_number_scheduled) && all(status.number_available);
    let strategy = spec.update_strategy.as_ref();
    Some(Workload {
        settled: settled && seen(&one.metadata, status.observed_generation),
        held: strategy.and_then(|one| one.type_.as_deref()) == Some(ON_DELETE),
        ..common("DaemonSet", &one.metadata, &spec.template)
    })
}

fn common(kind: &'static str, meta: &ObjectMeta, template: &PodTemplateSpec) -> Workload {
    let annotations = template.metadata.as_ref().and_then(|meta| meta.annotations.as_ref());
    let mut inits = template
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    Workload {
        kind,
        name: meta.name.clone().unwrap_or_default(),
        label: meta.labels.as_ref().and_then(|all| all.get(LABEL_ROLL)).cloned(),
        rolled_for: annotations.and_then(|all| all.get(ANNOTATION_ROLLED_FOR)).cloned(),
        owned: meta
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.controller == Some(true)),
        written: inits.any(|container| container.name == CONTAINER_SIDECAR),
        ..Workload::default()
    }
}

/// Whether a status is about the object as it is, and the object stays.
fn seen(meta: &ObjectMeta, observed: Option<i64>) -> bool {
    meta.deletion_timestamp.is_none() && observed >= meta.generation
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template() -> Value {
        json!({
            "metadata": {"annotations": {"knack.dev/rolled-for": "image:1"}},
            "spec": {"containers": [{"name": "app"}]},
        })
    }

    fn meta() -> Value {
        json!({"name": "a", "generation": 3})
    }

    #[test]
    fn a_workload_is_settled_when_all_its_pods_are_new_and_available() {
        let read = |status: Value| {
            let spec = json!({"replicas": 2, "selector": {}, "template": template()});
            let one = json!({"metadata": meta(), "spec": spec, "status": status});
            deployment(&serde_json::from_value(one).unwrap()).unwrap()
        };
        let good = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(
            read(good.clone()),
            Workload {
                kind: "Deployment",
                name: "a".to_owned(),
                rolled_for: Some("image:1".to_owned()),
                settled: true,
                ..Workload::default()
            }
        );
        for (field, value) in [
            ("observedGeneration", 2),
            ("replicas", 3),
            ("updatedReplicas", 1),
            ("availableReplicas", 1),
        ] {
            let mut status = good.clone();
            status[field] = json!(value);
            assert!(!read(status).settled, "{field}");
        }
        assert!(!read(json!({})).settled);
    }

    #[test]
    fn other_kinds_have_their_own_words() {
        let set = |strategy: Value, update: &str, available: i32| {
            let spec = json!({"selector": {}, "template": template(), "updateStrategy": strategy});
            let status = json!({"observedGeneration": 3, "replicas": 1, "availableReplicas": available, "currentRevision": "r1", "updateRevision": update});
            let one = json!({"metadata": meta(), "spec": spec, "status": status});
            let read = stateful_set(&serde_json::from_value(one).unwrap()).unwrap();
            (read.settled, read.held)
        };
        assert_eq!(set(json!({"type": "RollingUpdate"}), "r1", 1), (true, false));
        assert_eq!(set(json!({"type": "RollingUpdate"}), "r2", 1), (false, false));
        assert_eq!(set(json!({"type": "RollingUpdate"}), "r1", 0), (false, false));
        assert_eq!(set(json!({"type": "OnDelete"}), "r1", 1), (true, true));
        assert_eq!(set(json!({"rollingUpdate": {"partition": 1}}), "r1", 1), (true, true));
        let daemon = |strategy: Value, updated: i32| {
            let spec = json!({"selector": {}, "template": template(), "updateStrategy": strategy});
            let status = json!({"observedGeneration": 3, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated,
                "numberAvailable": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2});
            let one = json!({"metadata": meta(), "spec": spec, "status": status});
            let read = daemon_set(&serde_json::from_value(one).unwrap()).unwrap();
            (read.settled, read.held)
        };
        assert_eq!(daemon(json!({}), 2), (true, false));
        assert_eq!(daemon(json!({}), 1), (false, false));
        assert_eq!(daemon(json!({"type": "OnDelete"}), 2), (true, true));
    }

    #[test]
    fn what_bars_a_restart_is_seen() {
        let mut one = json!({"metadata": meta(), "spec": {"selector": {}, "paused": true, "template": template()}});
        one["metadata"]["labels"] = json!({"knack.dev/roll": "disabled"});
        one["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "example.org/v1", "kind": "App", "name": "a", "uid": "u", "controller": true}]);
        one["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "knack-gateway", "image": "image:1"}]);
        let read = deployment(&serde_json::from_value(one).unwrap()).unwrap();
        assert_eq!((read.held, read.owned, read.written), (true, true, true));
        assert_eq!(read.label.as_deref(), Some("disabled"));
    }

    #[test]
    fn a_pod_leads_to_its_workload_and_its_sidecar() {
        let pod = |kind: &str, name: &str, api: &str| -> PodInBrief {
            serde_json::from_value(json!({
                "metadata": {
                    "labels": {"pod-template-hash": "7d9"},
                    "ownerReferences": [{"apiVersion": api, "kind": kind, "name": name, "uid": "u", "controller": true}],
                },
                "spec": {
                    "containers": [{"name": "app", "image": "app:1"}],
                    "initContainers": [{"name": "other", "image": "o:1"}, {"name": "knack-gateway", "image": "image:1"}],
                },
            }))
            .unwrap()
        };
        for (kind, name, api, expected) in [
            (
                "ReplicaSet",
                "web-7d9",
                "apps/v1",
                Some(("Deployment", "web".to_owned())),
            ),
            ("ReplicaSet", "web-8e0", "apps/v1", None),
            ("StatefulSet", "db", "apps/v1", Some(("StatefulSet", "db".to_owned()))),
            ("DaemonSet", "agent", "apps/v1", Some(("DaemonSet", "agent".to_owned()))),
            ("Job", "once", "batch/v1", None),
            ("StatefulSet", "db", "example.org/v1", None),
        ] {
            assert_eq!(workload_of(&pod(kind, name, api)), expected, "{kind} {name}");
        }
        let mut one = pod("DaemonSet", "agent", "apps/v1");
        assert_eq!(one.service_account(), "default");
        assert_eq!(stale_image(&one, "image:2"), Some("image:1"));
        assert_eq!(stale_image(&one, "image:1"), None);
        assert_eq!(stale_image(&one, "mirror.example.org/hub/image:1"), None);
        one.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(stale_image(&one, "image:2"), None);
        assert_eq!(stale_image(&PodInBrief::default(), "image:2"), None);
    }

    #[test]
    fn a_mirror_that_rewrites_images_makes_no_sidecar_stale() {
        for (one, other, same) in [
            ("r.io/knack/gateway@sha256:aa", "r.io/knack/gateway@sha256:aa", true),
            ("mirror:5000/x/y@sha256:aa", "r.io/knack/gateway@sha256:aa", true),
            ("r.io/knack/gateway:2@sha256:aa", "r.io/knack/gateway:1@sha256:aa", true),
            ("r.io/knack/gateway@sha256:bb", "r.io/knack/gateway@sha256:aa", false),
            ("mirror:5000/r.io/knack/gateway:1", "r.io/knack/gateway:1", true),
            ("r.io/knack/gateway:1", "r.io/knack/gateway:2", false),
            ("r.io/knack/hub:1", "r.io/knack/gateway:1", false),
            // The bytes behind the tag are unknown now.
            ("r.io/knack/gateway:1", "r.io/knack/gateway:1@sha256:aa", false),
        ] {
            assert_eq!(is_same_image(one, other), same, "{one} {other}");
        }
    }
}
