//! A container that kubelet starts again: where `restartPolicy` says so, here; in pods of Knack where containerd made one and
//! lost it.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams, PostParams};
use serde_json::{Value, json};

use crate::support::eventually;

/// A pod as sandboxes are, but for `restartPolicy`, and without stdin, whose end ends an idle runner.
fn pod(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again"},
        "spec": {
            "restartPolicy": "Always", "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 70000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "sandbox", "image": image, "command": ["/knack/knack-runner"],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
                },
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            }],
            "volumes": [{"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
        },
    })
}

#[test]
fn the_second_container_of_a_pod_says_so_and_serves_no_one() {
    cluster_support::run(
        "the_second_container_of_a_pod_says_so_and_serves_no_one",
        async |cluster| {
            let namespace = cluster
                .namespace_with("jobs", &[("pod-security.kubernetes.io/enforce", "restricted")])
                .await;
            let pods: Api<Pod> = Api::namespaced(cluster.client().await, &namespace);
            let pod = serde_json::from_value(pod(&cluster.image("sandbox-python"))).unwrap();
            // The namespace's ServiceAccount comes a moment after it.
            eventually(30, "the pod is made", async || {
                pods.create(&PostParams::default(), &pod).await.is_ok()
            })
            .await;
            let log = async || pods.logs("again", &LogParams::default()).await.unwrap_or_default();
            // On some line: a log has stdout and stderr in the order in which containerd has read them.
            eventually(60, "the second runner says what it is", async || {
                log().await.lines().any(|line| line == r#"{"type":"restarted"}"#)
            })
            .await;
            eventually(60, "it has ended", async || {
                let status = pods.get_status("again").await.unwrap().status.unwrap();
                let container = status.container_statuses.unwrap().remove(0);
                let last = container.last_state.and_then(|state| state.terminated);
                let now = container.state.and_then(|state| state.terminated);
                container.restart_count > 0 && now.or(last).is_some_and(|ended| ended.exit_code == 1)
            })
            .await;
        },
    );
}
