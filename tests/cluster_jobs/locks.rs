//! Nodes whose kernel has no Landlock.

use knack_execution::{ClusterFailureKind, ExecutionError, Executor as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python, within};

/// A runtime whose pods run on such a node (tests/cluster/lib/runc_without_landlock.sh).
fn spec(landlock: &str) -> Value {
    json!({"warmPool": {"replicas": 1}, "sandbox": {"runtimeClassName": "no-landlock", "landlock": landlock}})
}

/// Where Landlock is required nothing runs, the error says which lock is missing, and so does the runtime.
#[test]
fn a_node_without_a_required_lock_runs_nothing() {
    cluster_support::run("a_node_without_a_required_lock_runs_nothing", async |cluster| {
        let fixture = Fixture::new(cluster, spec("Required")).await;
        let executor = fixture.owner().await;
        let outcome = executor.execute(python("print('ran')"), CancellationToken::new());
        let Err(ExecutionError::Cluster(failure)) = within(60, outcome).await else {
            panic!("it ran");
        };
        println!("{failure}");
        assert_eq!(failure.kind, ClusterFailureKind::ContainerFailed);
        assert_eq!(failure.reason, "LocksMissing");
        assert!(failure.message.contains("Landlock"), "{failure}");
        assert!(!failure.may_have_run);
        let condition = || {
            cluster.kubectl(&[
                "get",
                "skillruntime",
                "default",
                "-n",
                &fixture.namespace,
                "-o",
                "jsonpath={range .status.conditions[?(@.type=='SandboxesReady')]}{.status} {.reason}: {.message}{end}",
            ])
        };
        eventually(60, "the condition says why", async || {
            let condition = condition();
            condition.starts_with("False LocksMissing: ") && condition.contains("Landlock")
        })
        .await;
        executor.shutdown().await;
    });
}

/// Where it is not required code runs under the other locks, and its result says what held.
#[test]
fn a_result_says_that_landlock_did_not_hold() {
    cluster_support::run("a_result_says_that_landlock_did_not_hold", async |cluster| {
        for (spec, lacks) in [(spec("BestEffort"), true), (json!({}), false)] {
            let fixture = Fixture::new(cluster, spec).await;
            let executor = fixture.owner().await;
            let outcome = executor.execute(python("print('ran')"), CancellationToken::new());
            let result = within(60, outcome).await.unwrap();
            assert_eq!(result.stdout.text(), "ran\n");
            let locks = &result.locks;
            assert_eq!(
                (locks.seccomp, locks.landlock == "NotEnforced", locks.landlock_abi == 0),
                (true, lacks, lacks),
                "{locks:?}"
            );
            executor.shutdown().await;
        }
    });
}
