//! The probe and the condition `Isolated`, with something that enforces, without, and with something that comes late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster_support::Cluster;
use knack::jobs::{Beacon, JobExecutor, ProbeTarget};
use knack_execution::{ExecutionError, Executor as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python, within};

/// A listener on the node, as pods reach it, and how many connections it has had.
async fn listener(cluster: &Cluster) -> (ProbeTarget, Arc<AtomicUsize>) {
    let node = cluster.kubectl(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}",
    ]);
    let listener = tokio::net::TcpListener::bind((node.as_str(), 0)).await.unwrap();
    let target = ProbeTarget {
        address: listener.local_addr().unwrap(),
        beacon: Beacon::default(),
    };
    let (beacon, heard) = (target.beacon.clone(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            // The control comes from the node itself.
            if from.ip().to_string() != node {
                count.fetch_add(1, Ordering::Relaxed);
            }
            beacon.answer(stream).await;
        }
    });
    (target, heard)
}

async fn owner(fixture: &Fixture, target: &ProbeTarget) -> Arc<JobExecutor> {
    let probe = Some(target.clone());
    let executor = fixture.replica_with("owner", |settings| settings.probe = probe).await;
    within(30, executor.wait_until_owner()).await;
    executor
}

/// Status and reason of the condition, what was found out, and its message.
fn condition(fixture: &Fixture) -> String {
    let of = |field| format!("{{.status.conditions[?(@.type=='Isolated')].{field}}}");
    let path = format!(
        "jsonpath={} {} {{.status.isolation.runner}} {{.status.isolation.cni}} {}",
        of("status"),
        of("reason"),
        of("message")
    );
    let words = ["get", "skillruntime", "default", "-n", &fixture.namespace, "-o", &path];
    fixture.cluster.kubectl(&words)
}

fn required() -> serde_json::Value {
    json!({"warmPool": {"replicas": 0}, "sandbox": {"enforcement": "Required"}})
}

#[test]
fn isolated_is_true_only_where_policies_are_enforced() {
    cluster_support::run("isolated_is_true_only_where_policies_are_enforced", async |cluster| {
        for is_enforced in [false, true] {
            let fixture = Fixture::new(cluster, required()).await;
            // Also where nothing is to enforce: the stand-in of another test closes every pod until it has seen it.
            let mut policies = cluster.policy_turn();
            if is_enforced {
                policies.enforce(&[fixture.namespace.name()]);
            }
            let (target, _) = listener(cluster).await;
            let executor = owner(&fixture, &target).await;
            // Nothing is known yet: the run waits for the probe of its node.
            let first = within(90, executor.execute(python("print(1)"), CancellationToken::new())).await;
            let expected = if is_enforced {
                "True Verified true true the network plugin enforces policies on 1 of 1 nodes"
            } else {
                "False PolicyNotEnforced true false the network plugin lets sandbox pods reach the network on 1 of 1 nodes"
            };
            eventually(90, expected, async || condition(&fixture).starts_with(expected)).await;
            let second = within(60, executor.execute(python("print(1)"), CancellationToken::new())).await;
            for outcome in [first, second] {
                match outcome {
                    Ok(result) => assert!(is_enforced && result.stdout.text() == "1\n"),
                    Err(ExecutionError::Unavailable(missing)) => {
                        assert!(!is_enforced && missing.to_string().contains("Isolated"), "{missing}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            executor.shutdown().await;
            drop(policies);
        }
    });
}

/// A network plugin that lets a pod out at first, as some do until its policies have come to the node: here the stub
/// starts once the probe has been answered. The node's hostname label differs from its name, as on some clouds.
#[test]
fn a_late_policy_is_recognised_and_runs_wait_for_it() {
    cluster_support::run("a_late_policy_is_recognised_and_runs_wait_for_it", async |cluster| {
        // A stand-in that had to wait for its turn would begin when the probe is over.
        let mut policies = cluster.policy_turn();
        let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
        let label = |value: &str| {
            cluster.kubectl(&[
                "label",
                "node",
                &node,
                "--overwrite",
                &format!("kubernetes.io/hostname={value}"),
            ]);
        };
        label("another-name");
        let fixture = Fixture::new(cluster, required()).await;
        let (target, heard) = listener(cluster).await;
        let executor = owner(&fixture, &target).await;
        let running = executor.execute(python("print(1)"), CancellationToken::new());
        let enforcing = async {
            eventually(60, "the probe got out", async || heard.load(Ordering::Relaxed) > 0).await;
            let namespace = fixture.namespace.name().to_owned();
            let begun = tokio::task::spawn_blocking(move || {
                policies.enforce(&[&namespace]);
                policies
            });
            begun.await.unwrap()
        };
        let (outcome, _policies) = tokio::join!(within(90, running), enforcing);
        assert_eq!(outcome.unwrap().stdout.text(), "1\n");
        let expected = "False PolicyLate";
        eventually(30, expected, async || condition(&fixture).starts_with(expected)).await;
        assert!(
            condition(&fixture).contains(&format!("late: {node}")),
            "{}",
            condition(&fixture)
        );
        executor.shutdown().await;
        label(&node);
    });
}
