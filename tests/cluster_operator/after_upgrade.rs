//! Workloads whose pods have an older sidecar: restarted one after the other, where the namespace asks.
//!
//! Nothing injects here, and the pods run nowhere: pods with an older sidecar are made by hand, then ReplicaSets and Deployments
//! take them as their own, as Kubernetes does with what fits their selectors.

use std::time::Instant;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::objects::merge;
use crate::wait::{BOUND, until};

/// Between two looks at what has no watch.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
/// The sidecar of this installation, and that of an older one.
const NEW: &str = "registry.example/knack-gateway:2";
const OLD: &str = "registry.example/knack-gateway:1";
/// What the ReplicaSets of the test end with.
const HASH: &str = "5d8f7c9b4";

fn labels(name: &str) -> Value {
    json!({"app": name, "pod-template-hash": HASH})
}

fn spec() -> Value {
    json!({"nodeSelector": {"knack.dev/nowhere": "true"}, "containers": [{"name": "app", "image": "none"}]})
}

/// A pod with an older sidecar.
async fn older_pod(client: &Client, namespace: &str, name: &str, labels: &Value) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec()});
    pod["spec"]["initContainers"] = json!([{"name": "knack-gateway", "image": OLD, "restartPolicy": "Always"}]);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
}

/// A Deployment with one available pod that has an older sidecar.
async fn deploy(client: &Client, namespace: &str, name: &str, more: &Value) {
    let params = PostParams::default();
    older_pod(client, namespace, &format!("{name}-1"), &labels(name)).await;
    let set = json!({
        "metadata": {"name": format!("{name}-{HASH}"), "labels": labels(name)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels(name)},
            "template": {"metadata": {"labels": labels(name)}, "spec": spec()},
        },
    });
    Api::<ReplicaSet>::namespaced(client.clone(), namespace)
        .create(&params, &serde_json::from_value(set).unwrap())
        .await
        .unwrap();
    let mut deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec()},
        },
    });
    deployment["metadata"]["labels"] = more.clone();
    Api::<Deployment>::namespaced(client.clone(), namespace)
        .create(&params, &serde_json::from_value(deployment).unwrap())
        .await
        .unwrap();
    available(client, namespace, name).await;
}

/// Says what a kubelet would of all pods of a Deployment, until its controller finds it complete.
async fn available(client: &Client, namespace: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let started = Instant::now();
    loop {
        let own = ListParams::default().labels(&format!("app={name}"));
        for pod in pods.list(&own).await.unwrap() {
            // One that is gone meanwhile needs nothing.
            let _ = pods
                .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&ready))
                .await;
        }
        let found = deployments.get(name).await.unwrap();
        let status = found.status.clone().unwrap_or_default();
        let one = Some(1);
        if status.observed_generation == found.metadata.generation
            && (status.replicas, status.updated_replicas, status.available_replicas) == (one, one, one)
        {
            return;
        }
        assert!(started.elapsed() < BOUND, "{name}: {status:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a Deployment was restarted for.
fn rolled(deployment: &Deployment) -> Option<String> {
    let meta = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    meta.annotations.as_ref()?.get("knack.dev/rolled-for").cloned()
}

async fn until_stale(controller: &Controller, expected: f64) {
    let started = Instant::now();
    loop {
        let stale = controller.counter("knack_controller_stale_sidecars");
        if (stale - expected).abs() < 0.5 {
            return;
        }
        assert!(started.elapsed() < BOUND, "stale: {stale}, expected {expected}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[test]
fn older_sidecars_are_replaced_one_workload_after_the_other() {
    let name = "older_sidecars_are_replaced_one_workload_after_the_other";
    cluster_support::run(name, async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let (home, asks, quiet) = (
            cluster.namespace("stale-home").await,
            cluster.namespace("stale-asks").await,
            cluster.namespace("stale-quiet").await,
        );
        let (home, asks, quiet) = (home.name(), asks.name(), quiet.name());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        merge(
            &namespaces,
            asks,
            json!({"metadata": {"labels": {"knack.dev/roll": "enabled"}}}),
        )
        .await;
        for (namespace, name, labels) in [
            (asks, "a", json!({})),
            (asks, "b", json!({})),
            (asks, "not-this", json!({"knack.dev/roll": "disabled"})),
            (quiet, "a", json!({})),
        ] {
            deploy(&client, namespace, name, &labels).await;
        }
        let default = format!("{home}/default");
        let flags = [
            "--injection-runtime",
            default.as_str(),
            "--sidecar-image",
            NEW,
            "--roll-stale-sidecars",
        ];
        let controller = Controller::start(cluster, home, &[home, asks, quiet], &flags, "leading").await;

        let deployments: Api<Deployment> = Api::namespaced(client.clone(), asks);
        let restarted = |one: Option<&Deployment>| one.and_then(rolled).as_deref() == Some(NEW);
        until(&deployments, "a", "the first restart", restarted).await;
        // Its new pod is not available yet: the next look, which a further pod shows, restarts nothing else.
        older_pod(&client, asks, "alone", &json!({})).await;
        until_stale(&controller, 4.0).await;
        assert!(controller.counter("knack_controller_writes_total{kind=\"Workload\"}") < 1.5);
        assert_eq!(rolled(&deployments.get("b").await.unwrap()), None);
        available(&client, asks, "a").await;
        until(&deployments, "b", "the second restart", restarted).await;
        available(&client, asks, "b").await;
        // What is left says no, here or by its namespace.
        until_stale(&controller, 2.0).await;
        assert_eq!(rolled(&deployments.get("not-this").await.unwrap()), None);
        let others: Api<Deployment> = Api::namespaced(client.clone(), quiet);
        assert_eq!(rolled(&others.get("a").await.unwrap()), None);
        assert_eq!(told(&client, asks).await, ["a", "b"]);
        controller.stop();
    });
}

/// The Deployments that have an Event about their restart, once there are two.
async fn told(client: &Client, namespace: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let started = Instant::now();
    loop {
        let found = events.list(&ListParams::default()).await.unwrap();
        let ours = found
            .items
            .iter()
            .filter(|event| event.reason.as_deref() == Some("SidecarRolled"));
        let mut names: Vec<String> = ours
            .filter(|event| {
                event
                    .note
                    .as_deref()
                    .is_some_and(|note| note.contains(OLD) && note.contains(NEW))
            })
            .filter_map(|event| event.regarding.as_ref()?.name.clone())
            .collect();
        names.sort();
        // A later look may tell of one again.
        names.dedup();
        if names.len() >= 2 {
            return names;
        }
        assert!(started.elapsed() < BOUND, "Events: {names:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
