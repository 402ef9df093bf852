//! Objects that are deleted under their executions.

use std::time::{Duration, Instant};

use cluster_support::STILL;
use knack_execution::ExecutionError;
use serde_json::json;
use tokio::task::JoinSet;

use super::beside;
use super::calls::{Calls, is_named};
use super::journals::Journals;
use super::support::Installation;

/// How soon a caller hears of it: the limit of its execution, and the 3 minutes that a gateway asks on after it.
const TOLD_WITHIN: Duration = Duration::from_mins(4);
/// Executions that run meanwhile.
const RUNNING: usize = 3;

/// Runs that would take half a minute, and are running.
async fn runs(calls: &Calls, journals: &mut Journals) -> JoinSet<Result<String, ExecutionError>> {
    let mut running = JoinSet::new();
    for _ in 0..RUNNING {
        let calls = calls.clone();
        running.spawn(async move { calls.text(calls.python("import time; time.sleep(30)", 60)).await });
    }
    let begun = Instant::now();
    while journals.started().count() < RUNNING {
        journals.look();
        assert!(begun.elapsed() < STILL, "three are running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running
}

/// Every one of them ends in an error that says by name what happened, or, if pods may finish, with its result.
async fn told(mut running: JoinSet<Result<String, ExecutionError>>, may_finish: bool) {
    let begun = Instant::now();
    while let Some(ended) = tokio::time::timeout(TOLD_WITHIN, running.join_next())
        .await
        .expect("told in bounded time")
    {
        let ended = ended.unwrap();
        println!("after {:?}: {ended:?}", begun.elapsed());
        match ended {
            Ok(_) => assert!(may_finish, "it ended as if nothing had happened"),
            Err(error) => assert!(is_named(&error), "{error:?}"),
        }
    }
}

#[test]
fn a_runtime_that_is_deleted_ends_its_executions_and_may_come_back() {
    beside(
        "a_runtime_that_is_deleted_ends_its_executions_and_may_come_back",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let mut journals = Journals::keep(cluster, &installation.run);
            let calls = Calls::new(&installation, installation.tenant(0).await).await;
            let runtime = ["-n", installation.run.name(), "skillruntime", "default"];
            let yaml = cluster.kubectl(&[&["get", "-o", "yaml"], &runtime[..]].concat());
            let running = runs(&calls, &mut journals).await;
            cluster.kubectl(&[&["delete"], &runtime[..]].concat());
            told(running, false).await;
            let refused = calls.text(calls.sleeper(0.0, "x")).await.unwrap_err();
            assert!(is_named(&refused), "{refused:?}");
            // Its Jobs are its own, and go with it.
            let begun = Instant::now();
            while !cluster
                .kubectl(&["get", "jobs,pods", "-n", &installation.run, "-o", "name"])
                .is_empty()
            {
                assert!(begun.elapsed() < STILL, "its Jobs and pods stay");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            let file = installation.folder.path().join("runtime.yaml");
            std::fs::write(&file, without_identity(&yaml)).unwrap();
            cluster.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
            let again = tokio::time::timeout(STILL, async {
                loop {
                    match calls.text(calls.sleeper(0.0, "again")).await {
                        Ok(text) => return text,
                        Err(error) => assert!(is_named(&error), "{error:?}"),
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
            assert_eq!(again.await.expect("the new runtime runs code"), "again\n");
        },
    );
}

/// The object without what the server gave it.
fn without_identity(yaml: &str) -> String {
    let lines = yaml.lines().take_while(|line| !line.starts_with("status:"));
    let own = ["  uid:", "  resourceVersion:", "  creationTimestamp:", "  generation:"];
    lines
        .filter(|line| !own.iter().any(|key| line.starts_with(key)))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn a_namespace_that_is_deleted_ends_its_executions() {
    beside("a_namespace_that_is_deleted_ends_its_executions", async |cluster| {
        let installation = Installation::start(cluster, 1, json!({})).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        let calls = Calls::new(&installation, installation.tenant(0).await).await;
        let running = runs(&calls, &mut journals).await;
        cluster.kubectl(&["delete", "namespace", &installation.run, "--wait=false"]);
        // While it is terminating, and after.
        let first = calls.text(calls.sleeper(0.0, "x"));
        let first = tokio::time::timeout(TOLD_WITHIN, first)
            .await
            .expect("bounded")
            .unwrap_err();
        println!("a new one: {first}");
        assert!(is_named(&first), "{first:?}");
        // The hub's rights there may go before its runs do: then pods end by their grace, in which a run may finish.
        told(running, true).await;
        let begun = Instant::now();
        while cluster
            .try_kubectl(&["get", "namespace", &installation.run])
            .status
            .success()
        {
            assert!(begun.elapsed() < STILL, "the namespace stays");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let refused = calls.text(calls.sleeper(0.0, "x"));
        let refused = tokio::time::timeout(TOLD_WITHIN, refused)
            .await
            .expect("bounded")
            .unwrap_err();
        assert!(is_named(&refused), "{refused:?}");
    });
}
