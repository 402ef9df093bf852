//! What goes wrong in a cluster: each failure has its own error with the word of Kubernetes, and none is a hang.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_support::Cluster;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use knack::jobs::{JobClients, JobExecutor, JobSettings};
use knack_execution::{ClusterFailureKind as Kind, ExecutionError, Executor as _, Exit, Limits, Program, StartKind};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, LogParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::liar;
use crate::support::{Fixture, eventually, python, within};

/// Runs that something happens to take this long, so that they are seen to run on a busy machine too.
const SEEN_SECONDS: u64 = 20;
/// One that is ended, and must not end by itself before: as long as a runtime allows.
const ENDED_SECONDS: u64 = 100;
/// How long containerd may take to hear that the kernel has killed something in a container.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// How long the executor waits for a pod that waits for a node of the test: longer than the test takes to bring it.
const LATE_NODE_WITHIN: Duration = Duration::from_mins(10);

fn cold() -> Value {
    json!({"warmPool": {"replicas": 0}})
}

/// The failure of a program that would print a word.
async fn failure(executor: &JobExecutor, seconds: u64) -> (Kind, String, bool) {
    let outcome = within(
        seconds,
        executor.execute(python("print('ran')"), CancellationToken::new()),
    )
    .await;
    told(outcome.unwrap_err())
}

fn told(error: ExecutionError) -> (Kind, String, bool) {
    println!("{error}");
    match error {
        ExecutionError::Cluster(failure) => (failure.kind, failure.reason, failure.may_have_run),
        other => panic!("{other:?}"),
    }
}

/// Pods that cannot start, by what is wrong with their image.
#[test]
fn images_that_cannot_run_are_named() {
    cluster_support::run("images_that_cannot_run_are_named", async |cluster| {
        for (image, kind, reasons) in [
            (
                "knack.local/absent:none".to_owned(),
                Kind::ImagePullFailed,
                &["ErrImagePull", "ImagePullBackOff"][..],
            ),
            (
                "Not An Image".to_owned(),
                Kind::ImagePullFailed,
                &["InvalidImageName"][..],
            ),
            (cluster.image("greedy"), Kind::OutOfMemory, &["OOMKilled"][..]),
            (
                cluster.image("old-runner"),
                Kind::RunnerTooOld,
                &["ProtocolMismatch", "NoAnswer", "Rejected"][..],
            ),
            (cluster.image("silent"), Kind::RunnerTooOld, &["NoAnswer"][..]),
        ] {
            let mut fixture = Fixture::new(cluster, cold()).await;
            fixture.resolved.image.clone_from(&image);
            let executor = fixture.owner().await;
            let (found, reason, may_have_run) = failure(&executor, 60).await;
            assert_eq!((found, may_have_run), (kind, false), "{image}: {reason}");
            assert!(reasons.contains(&reason.as_str()), "{image}: {reason}");
            executor.shutdown().await;
        }
    });
}

/// One that only sends unexpected frames, and one that behaves well up to the run: each ends in an error, in bounded
/// time, with the pods gone, and the executor runs the next one. So does an authenticated answer to another execution, or one with files
/// that are more, larger or smaller than said.
#[test]
fn a_compromised_runner_ends_in_an_error() {
    cluster_support::run("a_compromised_runner_ends_in_an_error", async |cluster| {
        let (garbage, liar) = (cluster.image("garbage"), liar::image(cluster));
        let rows = [
            (garbage, "print('ran')", "NoAnswer"),
            (liar.clone(), "print('ran')", "JournalUnreadable"),
            (liar.clone(), "print('another')", "something other than it was asked to"),
            (
                liar.clone(),
                "print('many')",
                "sent more files than the limits of the run allow",
            ),
            (
                liar.clone(),
                "print('large')",
                "sent a file whose size is not the announced one",
            ),
            (
                liar.clone(),
                "print('small')",
                "sent a file whose size is not the announced one",
            ),
            (liar, "print('half')", "sent a file that is incomplete"),
        ];
        // Each waits for bounds of the executor, so all of them wait together; each has a namespace of its own.
        let compromised = rows.map(|(image, program, expected)| compromised(cluster, image, program, expected));
        futures::future::join_all(compromised).await;
    });
}

/// A run by an image whose runner is compromised, and one by an honest image in its place.
async fn compromised(cluster: &'static Cluster, image: String, program: &str, expected: &str) {
    let mut fixture = Fixture::new(cluster, cold()).await;
    fixture.resolved.image.clone_from(&image);
    let executor = fixture.owner().await;
    let mut request = python(program);
    // What the executor waits for an answer of such a runner follows from the limit of the run.
    request.limits.timeout = Limits::default().timeout;
    let outcome = within(90, executor.execute(request, CancellationToken::new())).await;
    let found = match outcome.unwrap_err() {
        ExecutionError::Cluster(failure) if !failure.may_have_run => failure.reason,
        other => other.to_string(),
    };
    assert!(found.contains(expected), "{image} {program}: {found}");
    fixture.no_pod_runs().await;
    let mut honest = fixture.resolved.clone();
    honest.image = cluster.image("sandbox-python");
    executor.update(honest);
    let result = within(
        60,
        executor.execute(python("print('honest')"), CancellationToken::new()),
    )
    .await;
    assert_eq!(result.unwrap().stdout.text(), "honest\n");
    executor.shutdown().await;
}

#[test]
fn a_cluster_without_a_place_says_so() {
    cluster_support::run("a_cluster_without_a_place_says_so", async |cluster| {
        let mut fixture = Fixture::new(cluster, cold()).await;
        fixture.resolved.node_selector = BTreeMap::from([("nowhere".to_owned(), "true".to_owned())]);
        let executor = fixture.owner().await;
        let found = failure(&executor, 40).await;
        assert_eq!(found, (Kind::Unschedulable, "Unschedulable".to_owned(), false));
        executor.shutdown().await;
        for (quota, reason) in [("pods=0", "FailedCreate"), ("count/jobs.batch=0", "Forbidden")] {
            let fixture = Fixture::new(cluster, cold()).await;
            cluster.kubectl(&[
                "create",
                "quota",
                "none",
                "-n",
                &fixture.namespace,
                &format!("--hard={quota}"),
            ]);
            // The quota counts a moment after it was made.
            eventually(20, "the quota is in force", async || {
                let used = cluster.kubectl(&[
                    "get",
                    "quota",
                    "none",
                    "-n",
                    &fixture.namespace,
                    "-o",
                    "jsonpath={.status.used}",
                ]);
                !used.is_empty()
            })
            .await;
            let executor = fixture.owner().await;
            let found = failure(&executor, 40).await;
            assert_eq!(found, (Kind::QuotaExceeded, reason.to_owned(), false), "{quota}");
            executor.shutdown().await;
        }
    });
}

#[test]
fn a_hub_that_may_not_attach_says_so() {
    cluster_support::run("a_hub_that_may_not_attach_says_so", async |cluster| {
        let fixture = Fixture::new(cluster, cold()).await;
        let mut stranger = cluster.config().await;
        stranger.auth_info.impersonate = Some("stranger".to_owned());
        let clients = JobClients::from_clients(
            cluster.client().await,
            kube::Client::try_from(stranger).unwrap(),
            knack::lease::Keeper::start(cluster.config().await).unwrap(),
        );
        let settings = JobSettings::new("owner", "https://owner:8443", [1; 32]);
        let executor = JobExecutor::new(clients, fixture.resolved.clone(), settings);
        within(30, executor.wait_until_owner()).await;
        let found = failure(&executor, 40).await;
        assert_eq!(found, (Kind::AttachRefused, "Forbidden".to_owned(), false));
        executor.shutdown().await;
    });
}

/// The kernel kills the program alone, and the runner reports it; or it ends the runner too, as on every node with cgroup v2.
#[test]
fn a_program_over_its_memory_is_a_result() {
    cluster_support::run("a_program_over_its_memory_is_a_result", async |cluster| {
        join_all([false, true].map(|with_runner| over_memory(cluster, with_runner))).await;
    });
}

async fn over_memory(cluster: &'static Cluster, with_runner: bool) {
    let spec = json!({"warmPool": {"replicas": 0}, "sandbox": {"resources": {"limits": {"memory": "96Mi"}}}});
    let fixture = Fixture::new(cluster, spec).await;
    let executor = fixture.owner().await;
    let request = python(
        "import signal, time\n\
         go = []\n\
         signal.signal(signal.SIGUSR1, lambda *_: go.append(1))\n\
         print('up', flush=True)\n\
         while not go: time.sleep(0.01)\n\
         data = bytearray()\n\
         for _ in range(400): data.extend(bytes(1 << 20))",
    );
    let running = within(120, executor.execute(request, CancellationToken::new()));
    let (result, ()) = futures::future::join(running, let_go(&fixture, with_runner)).await;
    let result = result.unwrap();
    assert_eq!(result.exit, Exit::OutOfMemory, "with its runner: {with_runner}");
    assert_eq!(result.stdout.bytes, "up\n", "with its runner: {with_runner}");
    executor.shutdown().await;
}

/// Tells the program of the only pod to go on, once it has printed something: output is sealed. A runner that ends with it is stopped
/// first, so that it cannot report anything.
async fn let_go(fixture: &Fixture, with_runner: bool) {
    let pods: Api<Pod> = Api::namespaced(fixture.cluster.client().await, &fixture.namespace);
    let name = started_pod(fixture).await;
    eventually(60, "the program has printed something", async || {
        let log = pods.logs(&name, &LogParams::default()).await;
        log.is_ok_and(|log| log.contains(r#""type":"sealed""#))
    })
    .await;
    let uid = pods.get(&name).await.unwrap().metadata.uid.unwrap();
    let (program, runners) = (processes(&uid, "python"), processes(&uid, "knack-runner"));
    assert!(program.len() == 1 && !runners.is_empty(), "{program:?} {runners:?}");
    let tell = |whom: &[i32], signal: Signal| {
        for process in whom {
            kill_process(Pid::from_raw(*process).unwrap(), signal).unwrap();
        }
    };
    if with_runner {
        tell(&runners, Signal::STOP);
    }
    tell(&program, Signal::USR1);
    if with_runner {
        let status = format!("/proc/{}/status", program[0]);
        eventually(60, "the kernel has killed the program", async || {
            std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tZ"))
        })
        .await;
        // containerd hears of it by another way than of the container's end: it must hear of it first, or it tells kubelet of an end
        // like any other.
        tokio::time::sleep(TOLD_WITHIN).await;
        tell(&runners, Signal::KILL);
    }
}

/// The processes of a pod by the beginning of their name, as this machine numbers them.
fn processes(pod_uid: &str, name: &str) -> Vec<i32> {
    let is_it = |process: &i32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
        read("cgroup").contains(pod_uid) && read("comm").starts_with(name)
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(is_it).collect()
}

/// A pod that is taken away at once under its run: the run counts as run, and why it ended is said. One that is asked to end has
/// the time to finish.
#[test]
fn a_pod_that_is_taken_away_says_by_whom() {
    cluster_support::run("a_pod_that_is_taken_away_says_by_whom", async |cluster| {
        let cases = [
            ("delete now", Some(Kind::PodDeleted)),
            ("evict", None),
            ("delete", None),
            ("deadline", None),
        ];
        join_all(cases.map(|(how, kind)| taken_away(cluster, how, kind))).await;
    });
}

async fn taken_away(cluster: &'static Cluster, how: &str, kind: Option<Kind>) {
    let fixture = Fixture::new(cluster, cold()).await;
    let executor = fixture.owner().await;
    let seconds = if kind.is_some() { ENDED_SECONDS } else { SEEN_SECONDS };
    let mut request = python(&format!(
        "import time; print('up', flush=True); time.sleep({seconds}); print('down')"
    ));
    request.limits.timeout = Duration::from_secs(SEEN_SECONDS + seconds);
    let id = request.id;
    let running = within(120, executor.execute(request.clone(), CancellationToken::new()));
    tokio::pin!(running);
    let pod = tokio::select! {
        pod = started_pod(&fixture) => pod,
        early = &mut running => panic!("{how}: over before its pod was seen to run: {early:?}"),
    };
    let (outcome, ()) = tokio::join!(running, take_away(&fixture, &pod, how));
    // Asked again it is not run again.
    let again = executor.execute(request, CancellationToken::new()).await;
    if let Some(kind) = kind {
        let (found, reason, may_have_run) = told(outcome.unwrap_err());
        assert_eq!((found, may_have_run), (kind, true), "{how}: {reason}");
        assert_eq!(told(again.unwrap_err()).0, kind, "{id}");
    } else {
        assert_eq!(outcome.unwrap().stdout.text(), "up\ndown\n", "{how}");
        assert_eq!(again.unwrap().stdout.text(), "up\ndown\n", "{how}");
    }
    executor.shutdown().await;
}

/// The pod in which a run has started.
async fn started_pod(fixture: &Fixture) -> String {
    let pods: Api<Pod> = Api::namespaced(fixture.cluster.client().await, &fixture.namespace);
    let mut name = String::new();
    eventually(60, "the run has started", async || {
        let listed = pods.list(&ListParams::default()).await.unwrap();
        let Some(pod) = listed.items.first().and_then(|pod| pod.metadata.name.clone()) else {
            return false;
        };
        name.clone_from(&pod);
        has_started(&pods, &pod).await
    })
    .await;
    name
}

/// Whether the log of the pod says that its run has started; a pod whose container waits has no log.
async fn has_started(pods: &Api<Pod>, pod: &str) -> bool {
    let log = pods.logs(pod, &LogParams::default()).await;
    log.is_ok_and(|log| log.contains(r#""type":"started""#))
}

async fn take_away(fixture: &Fixture, pod: &str, how: &str) {
    let pods: Api<Pod> = Api::namespaced(fixture.cluster.client().await, &fixture.namespace);
    let delete = DeleteParams {
        grace_period_seconds: how.ends_with("now").then_some(1),
        ..DeleteParams::default()
    };
    match how {
        "evict" => {
            pods.evict(pod, &EvictParams::default()).await.unwrap();
        }
        "delete" | "delete now" => {
            pods.delete(pod, &delete).await.unwrap();
        }
        _ => {
            let job = pod.rsplit_once('-').unwrap().0;
            let patch = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
            fixture
                .cluster
                .kubectl(&["patch", "job", job, "-n", &fixture.namespace, "-p", patch]);
        }
    }
}

/// Every pod of the runtime is evicted, as `kubectl drain` does, while four runs are on their way: none is lost, none is
/// run twice, and the pool comes back.
#[test]
fn a_drain_loses_no_run() {
    cluster_support::run("a_drain_loses_no_run", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 2}})).await;
        let executor = fixture.owner().await;
        eventually(60, "two pods stand", async || executor.counts().ready == 2).await;
        let source = format!("import time, uuid; time.sleep({SEEN_SECONDS}); print(uuid.uuid4())");
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let executor = std::sync::Arc::clone(&executor);
            let mut request = python(&source);
            request.limits.timeout = Duration::from_secs(2 * SEEN_SECONDS);
            running.spawn(async move { executor.execute(request, CancellationToken::new()).await });
        }
        let pods: Api<Pod> = Api::namespaced(cluster.client().await, &fixture.namespace);
        let sandboxes = async || {
            let of_runs = ListParams::default().labels("knack.dev/role=sandbox");
            let listed = pods.list(&of_runs).await.unwrap().items;
            listed.into_iter().filter_map(|pod| pod.metadata.name)
        };
        eventually(60, "four run", async || {
            let started = sandboxes().await.map(async |pod| has_started(&pods, &pod).await);
            join_all(started).await.into_iter().filter(|started| *started).count() == 4
        })
        .await;
        for name in sandboxes().await {
            match pods.evict(&name, &EvictParams::default()).await {
                // One that the pool has replaced since the list was read.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                evicted => {
                    evicted.unwrap();
                }
            }
        }
        let mut outputs = std::collections::BTreeSet::new();
        while let Some(outcome) = within(60, running.join_next()).await {
            let result = outcome.unwrap().unwrap();
            outputs.insert(result.stdout.text().into_owned());
        }
        assert_eq!(outputs.len(), 4, "each ran by itself: {outputs:?}");
        eventually(60, "the pool is whole again", async || executor.counts().ready == 2).await;
        executor.shutdown().await;
    });
}

/// A pool whose image cannot be pulled says so in the runtime's status, and that it can again.
#[test]
fn a_pool_that_cannot_start_says_so_in_a_condition() {
    cluster_support::run("a_pool_that_cannot_start_says_so_in_a_condition", async |cluster| {
        let mut fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 1}})).await;
        let good = fixture.resolved.clone();
        fixture.resolved.image = "knack.local/nothing:bed".to_owned();
        let executor = fixture.owner().await;
        let condition = || {
            cluster.kubectl(&[
                "get", "skillruntime", "default", "-n", &fixture.namespace, "-o",
                "jsonpath={.status.conditions[?(@.type=='SandboxesReady')].status} {.status.conditions[?(@.type=='SandboxesReady')].reason}",
            ])
        };
        eventually(90, "the condition says why", async || {
            matches!(
                condition().as_str(),
                "False ImagePullBackOff" | "False ErrImagePull" | "False ErrImageNeverPull"
            )
        })
        .await;
        executor.update(good.clone());
        eventually(90, "the condition is True", async || condition() == "True Started").await;
        // An edit after which everything starts as before: `kubectl wait` asks for the condition of that generation.
        let edit = r#"{"spec":{"concurrency":{"maxQueued":7}}}"#;
        cluster.kubectl(&[
            "patch",
            "skillruntime",
            "default",
            "-n",
            &fixture.namespace,
            "--type=merge",
            "-p",
            edit,
        ]);
        executor.update(good);
        let generations =
            || {
                cluster.kubectl(&[
                "get", "skillruntime", "default", "-n", &fixture.namespace, "-o",
                "jsonpath={.metadata.generation} {.status.conditions[?(@.type=='SandboxesReady')].observedGeneration}",
            ])
            };
        eventually(30, "the condition is of the new generation", async || {
            let generations = generations();
            let (now, observed) = generations.split_once(' ').unwrap_or_default();
            now != "1" && now == observed
        })
        .await;
        executor.shutdown().await;
    });
}

/// A label of the cluster's node, taken away when dropped.
struct NodeLabel {
    cluster: &'static Cluster,
    node: String,
    key: String,
}

impl NodeLabel {
    fn set(cluster: &'static Cluster, key: &str) -> Self {
        let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
        cluster.kubectl(&["label", "node", &node, &format!("{key}=true")]);
        Self {
            cluster,
            node,
            key: key.to_owned(),
        }
    }
}

impl Drop for NodeLabel {
    fn drop(&mut self) {
        // Not `kubectl`, which panics: the test may fail already.
        let removed = format!("{}-", self.key);
        let _ = self.cluster.try_kubectl(&["label", "node", &self.node, &removed]);
    }
}

/// No node fits until one comes, as where nodes are added on demand: the pool waits for it with the pod that it has made, and a
/// caller meanwhile is told why.
#[test]
fn a_pool_waits_for_a_late_node_with_the_same_pod() {
    cluster_support::run("a_pool_waits_for_a_late_node_with_the_same_pod", async |cluster| {
        let mut fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 1}})).await;
        let key = format!("{}.knack.test/late", &*fixture.namespace);
        fixture.resolved.node_selector = BTreeMap::from([(key.clone(), "true".to_owned())]);
        let late = |settings: &mut JobSettings| settings.start_timeout = LATE_NODE_WITHIN;
        let executor = fixture.replica_with("owner", late).await;
        within(30, executor.wait_until_owner()).await;
        let uid_of = |job: &str| {
            let path = "jsonpath={.metadata.uid}";
            cluster.kubectl(&["get", job, "-n", &fixture.namespace, "-o", path])
        };
        let jobs = ["get", "jobs", "-n", &fixture.namespace, "-o", "name"];
        eventually(30, "the pool has made its pod", async || {
            !cluster.kubectl(&jobs).is_empty()
        })
        .await;
        let pooled = uid_of(cluster.kubectl(&jobs).trim());

        let found = failure(&executor, 40).await;
        assert_eq!(found, (Kind::Unschedulable, "Unschedulable".to_owned(), false));
        assert_eq!(executor.counts().ready, 0);
        let _label = NodeLabel::set(cluster, &key);
        eventually(60, "the pod stands", async || executor.counts().ready == 1).await;
        let result = within(
            60,
            executor.execute(
                python("import os; print(os.uname().nodename)"),
                CancellationToken::new(),
            ),
        )
        .await
        .unwrap();
        assert_eq!(result.timings.start, StartKind::Warm);
        // A pod's host name is its own name, and begins with its Job's.
        let pod = result.stdout.text().trim().to_owned();
        let job = format!("job/{}", pod.rsplit_once('-').unwrap().0);
        assert_eq!(uid_of(&job), pooled, "{pod}");
        executor.shutdown().await;
    });
}

/// The pod of such a run is gone, with its journal, and its Job alone says that it ran nothing.
#[test]
fn what_did_not_start_may_be_asked_for_again_at_the_next_owner() {
    cluster_support::run(
        "what_did_not_start_may_be_asked_for_again_at_the_next_owner",
        async |cluster| {
            let fixture = Fixture::new(cluster, cold()).await;
            let mut request = python("");
            request.program = Program::Command {
                argv: vec!["no-such-program".to_owned()],
            };
            let owner = fixture.owner().await;
            let ask = async |executor: &JobExecutor| {
                let outcome = executor.execute(request.clone(), CancellationToken::new());
                let error = within(60, outcome).await.unwrap_err();
                assert!(matches!(error, ExecutionError::Invalid(_)), "{error:?}");
            };
            ask(&owner).await;
            let result = r"jsonpath={.items[*].metadata.annotations.knack\.dev/result}";
            eventually(30, "its Job says that nothing ran", async || {
                let result = cluster.kubectl(&["get", "jobs", "-n", &fixture.namespace, "-o", result]);
                result.contains(r#""mayHaveRun":false"#)
            })
            .await;
            fixture.no_pod_runs().await;
            cluster.kubectl(&["delete", "pods", "--all", "-n", &fixture.namespace]);
            owner.shutdown().await;
            let next = fixture.replica("next").await;
            within(30, next.wait_until_owner()).await;
            ask(&next).await;
            next.shutdown().await;
        },
    );
}
