//! What goes wrong in a cluster: each failure has its own error with the word of Kubernetes, and none is a hang.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use knack::execution::job::{JobClients, JobExecutor, JobSettings};
use knack::execution::{ClusterFailureKind as Kind, ExecutionError, Executor as _, Exit};
use kube::api::{Api, EvictParams, ListParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python, within};

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
            fixture.view.image.clone_from(&image);
            let executor = fixture.owner().await;
            let (found, reason, may_have_run) = failure(&executor, 60).await;
            assert_eq!((found, may_have_run), (kind, false), "{image}: {reason}");
            assert!(reasons.contains(&reason.as_str()), "{image}: {reason}");
            executor.shutdown().await;
        }
    });
}

/// One that only says what nobody asked for, and one that plays its part up to the run: each ends in an error, in bounded
/// time, with the pods gone, and the executor runs the next one.
#[test]
fn a_compromised_runner_ends_in_an_error() {
    cluster_support::run("a_compromised_runner_ends_in_an_error", async |cluster| {
        for (image, kind, reason) in [
            ("garbage", Kind::RunnerTooOld, "NoAnswer"),
            ("liar", Kind::ContainerFailed, "NotStarted"),
        ] {
            let mut fixture = Fixture::new(cluster, cold()).await;
            fixture.view.image = cluster.image(image);
            let executor = fixture.owner().await;
            let found = failure(&executor, 90).await;
            assert_eq!(found, (kind, reason.to_owned(), false), "{image}");
            fixture.no_pod_runs().await;
            let mut honest = fixture.view.clone();
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
    });
}

#[test]
fn a_cluster_without_a_place_says_so() {
    cluster_support::run("a_cluster_without_a_place_says_so", async |cluster| {
        let mut fixture = Fixture::new(cluster, cold()).await;
        fixture.view.node_selector = BTreeMap::from([("nowhere".to_owned(), "true".to_owned())]);
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
        let clients = JobClients {
            api: cluster.client().await,
            attach: kube::Client::try_from(stranger).unwrap(),
        };
        let settings = JobSettings::new("owner", "https://owner:8443", [1; 32]);
        let executor = JobExecutor::new(clients, fixture.view.clone(), settings);
        within(30, executor.wait_until_owner()).await;
        let found = failure(&executor, 40).await;
        assert_eq!(found, (Kind::AttachRefused, "Forbidden".to_owned(), false));
        executor.shutdown().await;
    });
}

/// Memory: the program alone, told by the runner.
#[test]
fn a_program_over_its_memory_is_a_result() {
    cluster_support::run("a_program_over_its_memory_is_a_result", async |cluster| {
        let spec = json!({"warmPool": {"replicas": 0}, "sandbox": {"resources": {"limits": {"memory": "96Mi"}}}});
        let fixture = Fixture::new(cluster, spec).await;
        let executor = fixture.owner().await;
        let request = python("data = bytearray(); [data.extend(bytes(1 << 20)) for _ in range(400)]");
        let result = within(60, executor.execute(request, CancellationToken::new()))
            .await
            .unwrap();
        assert_eq!(result.exit, Exit::OutOfMemory);
        executor.shutdown().await;
    });
}

/// A pod that is taken away under its run: the run counts as run, and why it ended is said.
#[test]
fn a_pod_that_is_taken_away_says_by_whom() {
    cluster_support::run("a_pod_that_is_taken_away_says_by_whom", async |cluster| {
        for (how, kind) in [
            ("evict", Kind::Evicted),
            ("delete", Kind::PodDeleted),
            ("deadline", Kind::DeadlineExceeded),
        ] {
            let fixture = Fixture::new(cluster, cold()).await;
            let executor = fixture.owner().await;
            let mut request = python("import time; print('up', flush=True); time.sleep(30)");
            request.limits.timeout = std::time::Duration::from_secs(40);
            let id = request.id;
            let running = within(120, executor.execute(request.clone(), CancellationToken::new()));
            let disturb = async {
                let pods: Api<Pod> = Api::namespaced(cluster.client().await, &fixture.namespace);
                let mut name = String::new();
                eventually(60, "the run has started", async || {
                    let listed = pods.list(&ListParams::default()).await.unwrap();
                    let Some(pod) = listed.items.first().and_then(|pod| pod.metadata.name.clone()) else {
                        return false;
                    };
                    name.clone_from(&pod);
                    let log = cluster.try_kubectl(&["logs", "-n", &fixture.namespace, &pod]).stdout;
                    String::from_utf8_lossy(&log).contains(r#""type":"started""#)
                })
                .await;
                match how {
                    "evict" => {
                        pods.evict(&name, &EvictParams::default()).await.unwrap();
                    }
                    "delete" => {
                        pods.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
                    }
                    _ => {
                        let job = name.rsplit_once('-').unwrap().0;
                        cluster.kubectl(&[
                            "patch",
                            "job",
                            job,
                            "-n",
                            &fixture.namespace,
                            "-p",
                            r#"{"spec":{"activeDeadlineSeconds":1}}"#,
                        ]);
                    }
                }
            };
            let (outcome, ()) = tokio::join!(running, disturb);
            let (found, reason, may_have_run) = told(outcome.unwrap_err());
            assert_eq!((found, may_have_run), (kind, true), "{how}: {reason}");
            // It counts as run: asked again it is not run again.
            let again = executor.execute(request, CancellationToken::new()).await.unwrap_err();
            assert_eq!(told(again).0, kind, "{id}");
            executor.shutdown().await;
        }
    });
}
