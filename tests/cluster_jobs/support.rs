//! A runtime of a test, and executors of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster_support::{Cluster, Namespace};
use knack::jobs::{Defaults, Event, JobClients, JobExecutor, JobRequest, JobSettings, ResolvedRuntime};
use knack_api::SkillRuntime;
use knack_api::schema::definitions;
use knack_execution::{ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Language, Limits, Program};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The secret that every replica of a test shares.
const SECRET: [u8; 32] = [9; 32];

/// The Lease of a replica here, where no test waits for one to run out: threads that get no processor for seconds do not lose it.
const LEASE: Duration = Duration::from_mins(1);

/// One SkillRuntime in a namespace of its own, under Pod Security `restricted`.
pub(crate) struct Fixture {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: Namespace,
    pub(crate) resolved: ResolvedRuntime,
}

impl Fixture {
    /// A runtime of this spec.
    pub(crate) async fn new(cluster: &'static Cluster, spec: Value) -> Self {
        let client = cluster.client().await;
        install_crds(client.clone()).await;
        let namespace = cluster
            .namespace_with("jobs", &[("pod-security.kubernetes.io/enforce", "restricted")])
            .await;
        let runtimes: Api<SkillRuntime> = Api::namespaced(client.clone(), &namespace);
        let object = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "default"}, "spec": spec,
        }))
        .unwrap();
        // A definition that was installed just now is served a moment later.
        let runtime = retry(async || runtimes.create(&PostParams::default(), &object).await).await;
        let resolved = ResolvedRuntime::of(&runtime, &Defaults::new(cluster.image("sandbox-python")));
        Self {
            cluster,
            namespace,
            resolved,
        }
    }

    /// A replica of the hub that competes for the runtime.
    pub(crate) async fn replica(&self, name: &str) -> Arc<JobExecutor> {
        self.replica_with(name, |_| {}).await
    }

    /// A replica of the hub with changed settings.
    pub(crate) async fn replica_with(&self, name: &str, change: impl FnOnce(&mut JobSettings)) -> Arc<JobExecutor> {
        let clients = JobClients::new(self.cluster.config().await).unwrap();
        let mut settings = JobSettings::new(name, format!("https://{name}:8443"), SECRET);
        settings.lease_duration = LEASE;
        change(&mut settings);
        JobExecutor::new(clients, self.resolved.clone(), settings)
    }

    /// A replica that owns the runtime.
    pub(crate) async fn owner(&self) -> Arc<JobExecutor> {
        let executor = self.replica("owner").await;
        within(30, executor.wait_until_owner()).await;
        executor
    }

    /// Waits until nothing of the runtime runs any more.
    pub(crate) async fn no_pod_runs(&self) {
        let running = [
            "get",
            "pods",
            "-n",
            &self.namespace,
            "--field-selector",
            "status.phase=Running",
            "-o",
            "name",
        ];
        eventually(30, "no pod runs", async || self.cluster.kubectl(&running).is_empty()).await;
    }
}

/// Only the definition that these tests need.
async fn install_crds(client: kube::Client) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let ours = definitions()
        .iter()
        .filter(|definition| definition["spec"]["names"]["kind"] == "SkillRuntime");
    for definition in ours {
        let name = definition["metadata"]["name"].as_str().unwrap();
        retry(async || {
            api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(definition))
                .await
        })
        .await;
    }
}

async fn retry<T>(mut call: impl AsyncFnMut() -> kube::Result<T>) -> T {
    let mut tries = 0;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) if tries >= 50 => panic!("{error}"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Bounds are written for an idle machine of two cores; a loaded one takes several times as long.
const PATIENCE: u32 = 5;

/// Fails if it takes longer than that, [`PATIENCE`] times.
pub(crate) async fn within<T>(seconds: u64, future: impl Future<Output = T>) -> T {
    let bound = Duration::from_secs(seconds) * PATIENCE;
    let ended = tokio::time::timeout(bound, future).await;
    cluster_support::progress("a wait ended");
    ended.unwrap_or_else(|_| panic!("not within {bound:?}"))
}

/// Asks again until it holds.
pub(crate) async fn eventually(seconds: u64, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let bound = Duration::from_secs(seconds) * PATIENCE;
    let until = tokio::time::Instant::now() + bound;
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster_support::progress(what);
}

/// A fresh id of now.
pub(crate) fn fresh_id() -> ExecutionId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let call = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    ExecutionId::new(now, &format!("test-{}", std::process::id()), 0, &call)
}

/// The limit of a run that says no other: the default, 10 s, is what an interpreter takes to start where many pods share a node.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);

/// A run of python source.
pub(crate) fn python(source: &str) -> ExecutionRequest {
    let program = Program::Code {
        language: Language::Python,
        source: source.to_owned(),
    };
    ExecutionRequest {
        skill: "team/tested".parse().ok(),
        limits: Limits {
            timeout: RUN_TIMEOUT,
            ..Limits::default()
        },
        ..ExecutionRequest::new(fresh_id(), "team/app/uid", program)
    }
}

/// Runs, keeping the events.
pub(crate) async fn run_with_events(
    executor: &JobExecutor,
    request: impl Into<JobRequest>,
) -> (Result<Arc<ExecutionResult>, ExecutionError>, Vec<Event>) {
    let (sender, mut receiver) = mpsc::channel(64);
    let collect = async {
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        events
    };
    tokio::join!(
        executor.execute_streaming(request.into(), CancellationToken::new(), sender),
        collect
    )
}
