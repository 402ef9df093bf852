//! A hub that comes back with another journal key: it cannot read what ran, so it must not run it again.

use std::time::{Duration, Instant};

use knack_execution::ExecutionError;
use serde_json::json;
use tokio::task::JoinSet;

use super::beside;
use super::calls::Calls;
use super::journals::Journals;
use super::replicas::install;
use super::support::SOON;

/// Runs that the kill meets.
const RUNNING: usize = 6;
/// How long each would take, seconds: the first one must run still when the last one has a pod.
const RUN_SECONDS: u64 = 100;

#[test]
fn a_hub_with_another_journal_key_runs_nothing_twice() {
    beside("a_hub_with_another_journal_key_runs_nothing_twice", async |cluster| {
        let mut installation = install(cluster, json!({"warmPool": {"replicas": 1}})).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        installation.restart_hub().await;
        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let calls = Calls::new(&installation, installation.hub_client(&token)).await;

        let ended = calls.sleeper(0.0, "ended");
        assert_eq!(calls.text(ended.clone()).await, Ok("ended\n".to_owned()));
        let mut ids = vec![ended.id.to_string()];
        let mut running = JoinSet::new();
        for index in 0..RUNNING {
            let source = format!("import time; time.sleep({RUN_SECONDS}); print({index})");
            let request = calls.python(&source, RUN_SECONDS + 10);
            ids.push(request.id.to_string());
            let calls = calls.clone();
            running.spawn(async move { calls.text(request).await });
        }
        let begun = Instant::now();
        while journals.started().count() <= RUNNING {
            assert!(begun.elapsed() < SOON, "all start");
            tokio::time::sleep(Duration::from_millis(20)).await;
            journals.look();
        }

        installation.kill_hub();
        std::fs::write(installation.folder.path().join("journal.key"), "another").unwrap();
        installation.restart_hub().await;
        assert_eq!(calls.text(ended).await, Err(ExecutionError::Gone));
        while let Some(outcome) = running.join_next().await {
            assert_eq!(outcome.unwrap(), Err(ExecutionError::Gone));
        }
        assert_eq!(calls.text(calls.sleeper(0.0, "new")).await, Ok("new\n".to_owned()));
        let starts = journals.starts();
        for id in &ids {
            assert_eq!(starts.get(id), Some(&1), "{id}");
        }
    });
}
