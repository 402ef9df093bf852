//! Requests that may run code for longer than results are kept: their ids are taken when no result, no Job and, after a
//! change of the owner, no memory of them is left.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster_support::STILL;
use k8s_openapi::api::batch::v1::Job;
use knack_execution::{ExecutionError, ExecutionId, ExecutionRequest};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::beside;
use super::calls::Calls;
use super::journals::Journals;
use super::support::Installation;

/// How long a request may run code.
const DEADLINE_SECONDS: u64 = 3600;
/// How long a result is kept.
const KEPT_SECONDS: u64 = 30;

/// A run in a request that began so long ago.
fn aged(calls: &Calls, age: Duration, word: &str) -> ExecutionRequest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let id = ExecutionId::new(now.saturating_sub(age), &uuid::Uuid::new_v4().to_string(), 0, "test");
    ExecutionRequest {
        id,
        ..calls.sleeper(0.0, word)
    }
}

#[test]
fn with_a_deadline_beyond_the_retention_nothing_runs_again() {
    beside(
        "with_a_deadline_beyond_the_retention_nothing_runs_again",
        async |cluster| {
            let spec = json!({
                "gateway": {"injection": {"deadlineSeconds": DEADLINE_SECONDS}},
                "sandbox": {"ttlSecondsAfterFinished": KEPT_SECONDS},
            });
            let mut installation = Installation::start(cluster, 1, spec).await;
            let mut journals = Journals::keep(cluster, &installation.run);
            let calls = Calls::new(&installation, installation.tenant(0).await).await;
            let late = aged(&calls, Duration::from_secs(KEPT_SECONDS / 2), "late");
            assert_eq!(calls.text(late.clone()).await.unwrap(), "late\n");
            assert_eq!(calls.text(late.clone()).await.unwrap(), "late\n", "asked for again");
            let beyond = Duration::from_secs(DEADLINE_SECONDS + KEPT_SECONDS + 60);
            let too_late = aged(&calls, beyond, "too late");
            assert_eq!(calls.text(too_late.clone()).await, Err(ExecutionError::Gone));

            let jobs: Api<Job> = Api::namespaced(installation.client.clone(), installation.run.name());
            let begun = Instant::now();
            while !jobs.list(&ListParams::default()).await.unwrap().items.is_empty() {
                assert!(begun.elapsed() < STILL, "finished Jobs stay");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            assert_eq!(
                calls.text(late.clone()).await,
                Err(ExecutionError::Gone),
                "no result is left"
            );

            // The next owner has no record of it, and no journal is left.
            installation.kill_hub();
            installation.restart_hub().await;
            assert_eq!(calls.text(calls.sleeper(0.0, "fresh")).await.unwrap(), "fresh\n");
            assert_eq!(calls.text(late.clone()).await, Err(ExecutionError::Gone));
            // It could not distinguish them: an execution requested before the retention may have run.
            let unknown = aged(&calls, Duration::from_mins(40), "unknown");
            assert_eq!(calls.text(unknown.clone()).await, Err(ExecutionError::Gone));
            let starts = journals.starts();
            let of = |request: &ExecutionRequest| starts.get(&request.id.to_string()).copied().unwrap_or(0);
            assert_eq!([of(&late), of(&too_late), of(&unknown)], [1, 0, 0]);
        },
    );
}
