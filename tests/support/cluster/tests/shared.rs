//! What tests rely on at the shared cluster: pods, Services, image volumes, the policy stub, a namespace per test.
#![expect(
    clippy::unwrap_used,
    reason = "a test program: a failure is a panic, and helpers are tests too"
)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_support::{Cluster, run};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// How long a pod may take to end on a busy machine.
const POD_TIMEOUT: &str = "--timeout=300s";

/// A pod that runs a shell script once, as any tenant's could.
fn script(image: &str, name: &str, labels: &Value, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]}],
        },
    })
}

async fn create(cluster: &Cluster, namespace: &str, pod: Value) {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, namespace);
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Waits for the pod's end and returns what it printed.
fn log_of(cluster: &Cluster, namespace: &str, pod: &str) -> String {
    let phase = "--for=jsonpath={.status.phase}=Succeeded";
    cluster.kubectl(&["-n", namespace, "wait", &format!("pod/{pod}"), phase, POD_TIMEOUT]);
    cluster.kubectl(&["-n", namespace, "logs", pod])
}

#[test]
fn a_namespace_belongs_to_one_test_and_goes_with_it() {
    run("a_namespace_belongs_to_one_test_and_goes_with_it", async |cluster| {
        let client = cluster.client().await;
        let all: Api<NamespaceObject> = Api::all(client);
        let (first, second) = tokio::join!(cluster.namespace("support"), cluster.namespace("support"));
        assert_ne!(first.name(), second.name());
        let name = first.name().to_owned();
        drop(first);
        let gone = async {
            while all.get_opt(&name).await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        // Kubernetes takes what tests beside this one delete, too.
        tokio::time::timeout(Duration::from_mins(4), gone).await.unwrap();
    });
}

#[test]
fn pods_reach_services_by_name_and_the_outside_by_address() {
    run(
        "pods_reach_services_by_name_and_the_outside_by_address",
        async |cluster| {
            let namespace = cluster.namespace("support").await;
            let image = cluster.image("busybox");
            let server = script(
                &image,
                "server",
                &json!({"app": "server"}),
                "echo hello >/tmp/index.html; exec httpd -f -p 8080 -h /tmp",
            );
            create(cluster, &namespace, server).await;
            cluster.kubectl(&[
                "-n",
                &namespace,
                "expose",
                "pod",
                "server",
                "--port=80",
                "--target-port=8080",
            ]);
            cluster.kubectl(&[
                "-n",
                &namespace,
                "wait",
                "pod/server",
                "--for=condition=Ready",
                POD_TIMEOUT,
            ]);
            // The first look may come before kube-proxy and the name server know the Service.
            let ask = "for _ in $(seq 600); do wget -qO- http://server && exit 0; sleep 0.2; done; exit 1";
            create(cluster, &namespace, script(&image, "client", &json!({}), ask)).await;
            assert_eq!(log_of(cluster, &namespace, "client").trim(), "hello");
            let route = "ping -c1 -W5 10.99.0.254 >/dev/null && echo reached || ip route";
            create(cluster, &namespace, script(&image, "outside", &json!({}), route)).await;
            let told = log_of(cluster, &namespace, "outside");
            // Raw sockets may be denied to the pod's user; the route must be there in any case.
            assert!(told.contains("reached") || told.contains("default via"), "{told}");
        },
    );
}

#[test]
fn an_image_volume_brings_the_runner() {
    run("an_image_volume_brings_the_runner", async |cluster| {
        let namespace = cluster.namespace("support").await;
        let text = "/knack/knack-runner --version; touch /knack/x 2>&1; true";
        let mut pod = script(&cluster.image("busybox"), "volume", &json!({}), text);
        let volume =
            json!({"name": "runner", "image": {"reference": cluster.image("runner"), "pullPolicy": "IfNotPresent"}});
        pod["spec"]["volumes"] = json!([volume]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "runner", "mountPath": "/knack"}]);
        create(cluster, &namespace, pod).await;
        let log = log_of(cluster, &namespace, "volume");
        assert!(log.starts_with("knack-runner ") && log.contains("Read-only"), "{log}");
    });
}

/// Developers import again and again under one name.
#[test]
fn an_image_imported_again_is_the_one_that_a_volume_brings() {
    run(
        "an_image_imported_again_is_the_one_that_a_volume_brings",
        async |cluster| {
            let namespace = cluster.namespace("support").await;
            let folder = tempfile::tempdir().unwrap();
            let content = folder.path().join("content");
            let archive = folder.path().join("again.tar");
            // Of this run alone, so that no other run's import comes between.
            let name = format!("knack.local/again-{}:bed", namespace.name());
            for (pod, word) in [("first", "one"), ("second", "two")] {
                std::fs::create_dir_all(&content).unwrap();
                std::fs::write(content.join("word"), word).unwrap();
                let made = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../images/archive.py"))
                    .args(["--name", &name, "--output"])
                    .arg(&archive)
                    .arg(&content)
                    .output()
                    .unwrap();
                assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
                cluster.import(&[&archive]);
                let mut object = script(&cluster.image("busybox"), pod, &json!({}), "cat /content/word");
                object["spec"]["volumes"] =
                    json!([{"name": "content", "image": {"reference": name, "pullPolicy": "IfNotPresent"}}]);
                object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "content", "mountPath": "/content"}]);
                create(cluster, &namespace, object).await;
                assert_eq!(log_of(cluster, &namespace, pod), word);
            }
        },
    );
}

#[test]
fn the_policy_stub_closes_sandbox_pods_and_no_others() {
    run("the_policy_stub_closes_sandbox_pods_and_no_others", async |cluster| {
        let namespace = cluster.namespace("support").await;
        let image = cluster.image("busybox");
        let sandbox = json!({"knack.dev/role": "sandbox"});
        // The API server is what every pod can reach by address when nothing forbids it.
        let dial = |times: u32| {
            format!(
                "for _ in $(seq {times}); do nc -w 3 10.250.0.1 443 </dev/null 2>/dev/null && echo open && exit 0; sleep 0.3; done; echo closed"
            )
        };
        // What is open is so at the first dial, or, while a stand-in is there, once the pod was seen: on a busy machine seconds later.
        let (open, closed) = (&dial(60), &dial(5));
        create(cluster, &namespace, script(&image, "before", &sandbox, open)).await;
        assert_eq!(log_of(cluster, &namespace, "before").trim(), "open");
        let enforced = cluster.enforce_policies(&[namespace.name()]);
        create(cluster, &namespace, script(&image, "sandboxed", &sandbox, closed)).await;
        create(cluster, &namespace, script(&image, "other", &json!({}), open)).await;
        assert_eq!(log_of(cluster, &namespace, "sandboxed").trim(), "closed");
        assert_eq!(log_of(cluster, &namespace, "other").trim(), "open");
        drop(enforced);
        create(cluster, &namespace, script(&image, "after", &sandbox, open)).await;
        assert_eq!(log_of(cluster, &namespace, "after").trim(), "open");
    });
}
