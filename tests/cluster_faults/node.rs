//! A node that goes with a run on it.

use std::time::{Duration, Instant};

use cluster_support::{Cluster, Component};
use knack_execution::{ClusterFailureKind as Kind, ExecutionError};
use serde_json::json;

use super::alone;
use super::calls::Calls;
use super::components::{Down, whole};
use super::journals::Journals;
use super::support::{Installation, SOON};

/// Kubernetes keeps pods of a node that is gone for 40 s, and looks every 20 s; the rest is for a busy machine. Shorter than the run.
const NOTICED_WITHIN: Duration = Duration::from_secs(140);

/// The machine is switched off and its Node object deleted. What ran there fails as lost with its node, a new call says
/// that there is no place, and code runs again when a node is there.
#[test]
fn a_lost_node_is_reported_and_the_next_one_is_used() {
    alone("a_lost_node_is_reported_and_the_next_one_is_used", async |cluster| {
        let spec = json!({"sandbox": {"maxTimeoutSeconds": 200}});
        let installation = Installation::start(cluster, 1, spec).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        let calls = Calls::new(&installation, installation.tenant(0).await).await;
        let running = tokio::spawn({
            let calls = calls.clone();
            async move { calls.text(calls.python("import time; time.sleep(150)", 160)).await }
        });
        starts(&mut journals).await;

        let off = lose_node(cluster);
        let begun = Instant::now();
        let placeless = tokio::time::timeout(SOON, calls.text(calls.sleeper(0.0, "placed")))
            .await
            .expect("bounded");
        assert_eq!(kind(&placeless), Some(Kind::Unschedulable), "{placeless:?}");
        let lost = tokio::time::timeout(NOTICED_WITHIN, running)
            .await
            .expect("told in bounded time");
        let lost = lost.unwrap();
        println!("a run whose node went ended after {:?}: {lost:?}", begun.elapsed());
        assert_eq!(kind(&lost), Some(Kind::NodeLost), "{lost:?}");
        assert!(matches!(&lost, Err(ExecutionError::Cluster(failure)) if failure.may_have_run));

        drop(off);
        runs_again(&calls).await;
        restore(cluster).await;
    });
}

/// The owner goes with the node: the API server answers that the log of the run is not found, as of a pod that is gone, while
/// the pod is there and its program runs. The next owner does not take it for a run that never was.
#[test]
fn a_run_whose_node_and_owner_are_lost_at_once_is_not_run_again() {
    alone(
        "a_run_whose_node_and_owner_are_lost_at_once_is_not_run_again",
        async |cluster| {
            let spec = json!({"sandbox": {"maxTimeoutSeconds": 200}});
            let mut installation = Installation::start(cluster, 1, spec).await;
            let mut journals = Journals::keep(cluster, &installation.run);
            let calls = Calls::new(&installation, installation.tenant(0).await).await;
            let request = calls.python("import time; time.sleep(150)", 160);
            let id = request.id.to_string();
            let asked = tokio::spawn({
                let calls = calls.clone();
                async move { calls.text(request).await }
            });
            starts(&mut journals).await;

            installation.kill_hub();
            let off = lose_node(cluster);
            installation.restart_hub().await;
            let outcome = tokio::time::timeout(NOTICED_WITHIN, asked)
                .await
                .expect("told in bounded time");
            assert_eq!(outcome.unwrap(), Err(ExecutionError::Gone));

            drop(off);
            runs_again(&calls).await;
            assert_eq!(journals.starts().get(&id), Some(&1));
            restore(cluster).await;
        },
    );
}

/// Waits until a run has started.
async fn starts(journals: &mut Journals) {
    tokio::time::timeout(SOON, async {
        while journals.started().count() == 0 {
            journals.look();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it runs");
}

/// Switches the machine off, whose containers run on, and deletes its Node object.
fn lose_node(cluster: &Cluster) -> Down<'_> {
    let off = Down::kill(cluster, Component::Kubelet);
    cluster.kubectl(&["delete", "node", "--all", "--wait=false"]);
    off
}

/// Waits until code runs on the new node.
async fn runs_again(calls: &Calls) {
    let outcome = tokio::time::timeout(SOON, async {
        loop {
            match calls.text(calls.sleeper(0.0, "placed")).await {
                Ok(text) => return text,
                Err(error) => println!("not yet: {error}"),
            }
        }
    });
    assert_eq!(outcome.await.expect("code runs on the new node"), "placed\n");
}

/// A node that is registered again makes kube-proxy exit; elsewhere its DaemonSet restarts it.
async fn restore(cluster: &Cluster) {
    cluster.start(Component::Proxy);
    whole(cluster).await;
}

fn kind(outcome: &Result<String, ExecutionError>) -> Option<Kind> {
    match outcome {
        Err(ExecutionError::Cluster(failure)) => Some(failure.kind),
        _ => None,
    }
}
