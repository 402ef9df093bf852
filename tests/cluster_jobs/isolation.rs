//! The probe and the condition `Isolated`, with and without something that enforces.

use knack::execution::{ExecutionError, Executor as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python, within};

#[test]
fn isolated_is_true_only_where_policies_are_enforced() {
    cluster_support::run("isolated_is_true_only_where_policies_are_enforced", async |cluster| {
        for is_enforced in [false, true] {
            let spec = json!({"warmPool": {"replicas": 0}, "sandbox": {"enforcement": "Required"}});
            let fixture = Fixture::new(cluster, spec).await;
            let _policies = is_enforced.then(|| cluster.enforce_policies(&[fixture.namespace.name()]));
            let node = cluster.kubectl(&[
                "get",
                "nodes",
                "-o",
                "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}",
            ]);
            let listener = tokio::net::TcpListener::bind((node.as_str(), 0)).await.unwrap();
            let target = listener.local_addr().unwrap();
            tokio::spawn(async move { while listener.accept().await.is_ok() {} });
            let executor = fixture
                .replica_with("owner", |settings| settings.probe = Some(target))
                .await;
            within(30, executor.wait_until_owner()).await;
            let condition = || {
                cluster.kubectl(&[
                    "get", "skillruntime", "default", "-n", &fixture.namespace, "-o",
                    "jsonpath={.status.conditions[?(@.type=='Isolated')].status} {.status.conditions[?(@.type=='Isolated')].reason} {.status.isolation.runner} {.status.isolation.cni}",
                ])
            };
            let expected = if is_enforced {
                "True Verified true true"
            } else {
                "False PolicyNotEnforced true false"
            };
            eventually(90, expected, async || condition() == expected).await;
            let outcome = within(60, executor.execute(python("print(1)"), CancellationToken::new())).await;
            match outcome {
                Ok(result) => assert!(is_enforced && result.stdout.text() == "1\n"),
                Err(ExecutionError::Unavailable(missing)) => {
                    assert!(!is_enforced && missing.to_string().contains("Isolated"), "{missing}");
                }
                Err(error) => panic!("{error}"),
            }
            executor.shutdown().await;
        }
    });
}
