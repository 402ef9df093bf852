//! The pods of the suite: the control, the runtime under attack, a bystander.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster_support::{Cluster, Namespace, progress};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use knack::jobs::{Defaults, JobClients, JobExecutor, JobSettings, ResolvedRuntime};
use knack_api::SkillRuntime;
use knack_execution::StartKind;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::table::Control;
use crate::targets;

/// How the pods of a column come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Started for the execution.
    Cold,
    /// Standing ready before it.
    Warm,
    /// Started for the execution, on a node whose kernel has no Landlock (tests/cluster/lib/runc_without_landlock.sh).
    WithoutLandlock,
}

impl Way {
    /// What a result says of it.
    pub(crate) fn start(self) -> StartKind {
        match self {
            Self::Cold | Self::WithoutLandlock => StartKind::Cold,
            Self::Warm => StartKind::Warm,
        }
    }

    /// The name of its table.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Cold | Self::Warm => "pod",
            Self::WithoutLandlock => "pod-no-landlock",
        }
    }

    /// The runtime's spec.
    fn spec(self) -> Value {
        let sandbox = match self {
            Self::Cold | Self::Warm => json!({}),
            Self::WithoutLandlock => json!({"runtimeClassName": "no-landlock"}),
        };
        json!({"warmPool": {"replicas": usize::from(self == Self::Warm)}, "sandbox": sandbox})
    }
}

/// How long the executor may take to own the runtime and to have a pod ready, on a busy machine.
const READY_TIMEOUT: Duration = cluster_support::STILL;

/// How long a pod of the suite may take to be ready, as kubectl takes it: what an executor may.
const POD_TIMEOUT: &str = "--timeout=300s";

/// How often the control is asked how far it is.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long the node and the bystander may take to say that they are well: on a busy machine a kubelet misses a report, or a pod a
/// second. A pressure that the kubelet has seen it reports for 5 minutes.
const WELL_WITHIN: Duration = Duration::from_mins(2);

/// The Lease of the executor: the attacks take its processor, too.
const LEASE: Duration = Duration::from_mins(1);

/// Builds the sandbox's archive, for a bed that was started just now.
pub(crate) fn build_sandbox() -> PathBuf {
    let output = Command::new(root().join("images/build.sh"))
        .args(["--debug", "sandbox-python"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "images/build.sh: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    root().join(text.lines().last().unwrap())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A runtime in a namespace of its own, and an unrelated pod beside it.
pub(crate) struct Runtime {
    pub(crate) executor: Arc<JobExecutor>,
    pub(crate) way: Way,
    pub(crate) bystander: Bystander,
    _namespace: Namespace,
}

impl Runtime {
    pub(crate) async fn start(cluster: &Cluster, way: Way) -> Self {
        cluster.install_definitions();
        let labels = [("pod-security.kubernetes.io/enforce", "restricted")];
        let namespace = cluster.namespace_with("attacks", &labels).await;
        let runtime = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "attacked", "namespace": namespace.name()},
            "spec": way.spec(),
        });
        let runtimes: Api<SkillRuntime> = Api::namespaced(cluster.client().await, &namespace);
        let runtime = runtimes
            .create(&PostParams::default(), &serde_json::from_value(runtime).unwrap())
            .await
            .unwrap();
        let resolved = ResolvedRuntime::of(&runtime, &Defaults::new(cluster.image("sandbox-python")));
        let clients = JobClients::new(cluster.config().await).unwrap();
        let mut settings = JobSettings::new("attacks-0", "https://127.0.0.1:1", [7; 32]);
        settings.lease_duration = LEASE;
        let executor = JobExecutor::new(clients, resolved, settings);
        let bystander = Bystander::start(cluster).await;
        let runtime = Self {
            executor,
            way,
            bystander,
            _namespace: namespace,
        };
        runtime.ready().await;
        runtime
    }

    /// Waits until the executor owns the runtime and, on the warm way, a pod is ready.
    pub(crate) async fn ready(&self) {
        let ready = async {
            self.executor.wait_until_owner().await;
            while self.way == Way::Warm && self.executor.counts().ready == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(READY_TIMEOUT, ready)
            .await
            .unwrap_or_else(|_| panic!("the runtime is not ready: {:?}", self.executor.counts()));
    }

    pub(crate) async fn stop(self) {
        self.executor.shutdown().await;
    }
}

/// A pod of another tenant that counts seconds.
pub(crate) struct Bystander {
    namespace: Namespace,
}

impl Bystander {
    async fn start(cluster: &Cluster) -> Self {
        let namespace = cluster.namespace("bystander").await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander"},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": cluster.image("busybox"), "command": ["/bin/sh", "-c", "while true; do echo tick; sleep 1; done"],
            }]},
        });
        create(cluster, &namespace, &pod).await;
        cluster.kubectl(&[
            "-n",
            &namespace,
            "wait",
            "pod/bystander",
            "--for=condition=Ready",
            POD_TIMEOUT,
        ]);
        Self { namespace }
    }

    /// It runs, was never restarted, and still ticks.
    pub(crate) async fn assert_unharmed(&self, cluster: &Cluster) {
        let fields = "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}";
        let said = cluster.kubectl(&["-n", &self.namespace, "get", "pod", "bystander", "-o", fields]);
        assert_eq!(said, "Running 0");
        let begun = Instant::now();
        let recent = ["-n", &self.namespace, "logs", "bystander", "--since=10s"];
        while !cluster.kubectl(&recent).contains("tick") {
            assert!(begun.elapsed() < WELL_WITHIN, "the bystander has stopped");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn create(cluster: &Cluster, namespace: &str, pod: &Value) -> String {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, namespace);
    let pod = serde_json::from_value(pod.clone()).unwrap();
    let created = pods.create(&PostParams::default(), &pod).await.unwrap();
    created.metadata.uid.unwrap()
}

/// The node's conditions, without times: `Ready=True` and no pressure of any kind.
pub(crate) fn node(cluster: &Cluster) -> String {
    let fields = "jsonpath={range .items[0].status.conditions[*]}{.type}={.status} {end}";
    cluster.kubectl(&["get", "nodes", "-o", fields])
}

/// Waits until the node says what it said before, which is what it says at once unless an attack or the machine is too much for it.
pub(crate) async fn assert_well(cluster: &Cluster, before: &str) {
    let begun = Instant::now();
    while node(cluster) != before {
        assert!(
            begun.elapsed() < WELL_WITHIN,
            "the node's conditions changed: {before} {}",
            node(cluster)
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Each attack unlocked, in a privileged pod without any limit.
pub(crate) async fn controls(cluster: &Cluster) -> BTreeMap<String, Control> {
    let namespace = cluster.namespace("control").await;
    let scripts: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    let files = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "attacks"},
        "data": {
            "attacks.py": crate::program::PROGRAM,
            "targets.py": include_str!("../attacks/targets.py"),
            "control.py": include_str!("control.py"),
        },
    });
    scripts
        .create(&PostParams::default(), &serde_json::from_value(files).unwrap())
        .await
        .unwrap();
    // It waits for a file, so that its limit of processes is lifted before it starts anything.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "control"},
        "spec": {
            "restartPolicy": "Never", "dnsPolicy": "None", "dnsConfig": {"nameservers": [crate::outside::V4]},
            "containers": [{
                "name": "main", "image": cluster.image("sandbox-python"),
                "command": ["/usr/bin/python3", "-c", "import os,time,sys\nwhile not os.path.exists('/control/go'): time.sleep(0.1)\nos.execv('/usr/bin/python3', ['python3', '/attacks/control.py', '/attacks'])"],
                "env": [{"name": "KNACK_TARGETS", "value": targets().to_string()}],
                "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
                "volumeMounts": [
                    {"name": "attacks", "mountPath": "/attacks"}, {"name": "busybox", "mountPath": "/busybox"},
                    {"name": "control", "mountPath": "/control"},
                ],
            }],
            "volumes": [
                {"name": "attacks", "configMap": {"name": "attacks", "defaultMode": 0o755}},
                {"name": "busybox", "image": {"reference": cluster.image("busybox"), "pullPolicy": "IfNotPresent"}},
                {"name": "control", "emptyDir": {}},
            ],
        },
    });
    let uid = create(cluster, &namespace, &pod).await;
    cluster.kubectl(&[
        "-n",
        &namespace,
        "wait",
        "pod/control",
        "--for=condition=Ready",
        POD_TIMEOUT,
    ]);
    cluster.lift_process_limit(&uid);
    cluster.kubectl(&[
        "-n",
        &namespace,
        "exec",
        "control",
        "--",
        "/usr/bin/python3",
        "-c",
        "open('/control/go','w')",
    ]);
    let log = log_of_control(cluster, &namespace).await;
    let controls: BTreeMap<String, Control> = log
        .lines()
        .filter_map(|line| line.strip_prefix("CONTROL ")?.split_once(' '))
        .map(|(name, outcome)| (name.to_owned(), control(outcome)))
        .collect();
    assert!(
        controls.len() > 90,
        "the control printed {} attacks: {log}",
        controls.len()
    );
    controls
}

/// What the control has printed when it has ended well. Each attack that it has tried is a step: a slow machine takes longer.
async fn log_of_control(cluster: &Cluster, namespace: &str) -> String {
    let mut lines = 0;
    loop {
        let phase = ["get", "pod", "control", "-o", "jsonpath={.status.phase}"];
        let phase = cluster.kubectl(&[&["-n", namespace], &phase[..]].concat());
        let log = cluster.kubectl(&["-n", namespace, "logs", "control"]);
        match phase.as_str() {
            "Succeeded" => return log,
            "Failed" => panic!("the control failed: {log}"),
            _ => {}
        }
        if log.lines().count() > lines {
            lines = log.lines().count();
            progress(format!("the control: {}", log.lines().last().unwrap_or_default()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn control(outcome: &str) -> Control {
    match outcome {
        "uid 65532" => Control::OpenTo("uid 65532"),
        "root" => Control::OpenTo("root"),
        closed => Control::ClosedByKernel(closed.trim_start_matches("closed ").to_owned()),
    }
}
