//! A runtime that is deleted and applied again at once, under its executions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster_support::STILL;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_api::SkillRuntime;
use knack_execution::ExecutionError;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

use super::beside;
use super::calls::{Calls, is_named};
use super::journals::Journals;
use super::support::Installation;

/// How often the runtime is created again.
const TIMES: usize = 4;
/// Executions that run each time.
const RUNNING: usize = 4;
/// How soon a caller gets the end of its execution: its limit, and the 3 minutes that a gateway asks on after it.
const TOLD_WITHIN: Duration = Duration::from_mins(4);
/// How often a state without a signal is polled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Deletes the runtime and makes it again from its own spec. Returns the new uid.
async fn make_anew(installation: &Installation) -> String {
    let api: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
    let mut runtime = api.get("default").await.unwrap();
    runtime.metadata.uid = None;
    runtime.metadata.resource_version = None;
    runtime.metadata.managed_fields = None;
    runtime.status = None;
    api.delete("default", &DeleteParams::background()).await.unwrap();
    let made = api.create(&PostParams::default(), &runtime).await.unwrap();
    made.uid().unwrap()
}

/// The owner of the fence.
async fn owner_of_fence(installation: &Installation) -> Option<String> {
    let api: Api<NetworkPolicy> = Api::namespaced(installation.client.clone(), installation.run.name());
    let fence = api.get_opt("knack-sandbox-default").await.unwrap()?;
    fence.owner_references().first().map(|owner| owner.uid.clone())
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < STILL, "{what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    cluster_support::progress(what);
}

/// What is answered to runs that were under way: their output, or by name why there is none.
fn is_answer(ended: &Result<String, ExecutionError>) -> bool {
    match ended {
        Ok(text) => text == "done\n",
        Err(error) => is_named(error) || *error == ExecutionError::Gone,
    }
}

#[test]
fn a_recreated_runtime_takes_its_fence_over_and_runs_nothing_twice() {
    beside(
        "a_recreated_runtime_takes_its_fence_over_and_runs_nothing_twice",
        async |cluster| {
            let spec = json!({"warmPool": {"replicas": 1}, "concurrency": {"maxRuns": 2 * RUNNING}});
            let installation = Installation::start(cluster, 1, spec).await;
            let mut journals = Journals::keep(cluster, &installation.run);
            let calls = Calls::new(&installation, installation.tenant(0).await).await;
            let (mut ids, mut uid, mut answers) = (BTreeSet::new(), String::new(), [0, 0]);
            for time in 0..TIMES {
                let mut running = JoinSet::new();
                for _ in 0..RUNNING {
                    let request = calls.python("import time; time.sleep(10); print('done')", 60);
                    ids.insert(request.id.to_string());
                    let calls = calls.clone();
                    running.spawn(async move { calls.text(request).await });
                }
                until("all of them run", async || {
                    journals.look();
                    journals.started().filter(|(id, _)| ids.contains(*id)).count() == (time + 1) * RUNNING
                })
                .await;
                uid = make_anew(&installation).await;
                until("the fence is the new one's", async || {
                    owner_of_fence(&installation).await.as_ref() == Some(&uid)
                })
                .await;
                while let Some(ended) = tokio::time::timeout(TOLD_WITHIN, running.join_next())
                    .await
                    .expect("told in bounded time")
                {
                    let ended = ended.unwrap();
                    assert!(is_answer(&ended), "{ended:?}");
                    answers[usize::from(ended.is_err())] += 1;
                    println!("{time}: {ended:?}");
                }
                let begun = Instant::now();
                until("the new runtime runs code", async || {
                    match calls.text(calls.sleeper(0.0, "again")).await {
                        Ok(text) => text == "again\n",
                        Err(error) => {
                            assert!(is_named(&error), "{error:?}");
                            false
                        }
                    }
                })
                .await;
                println!("{time}: code runs again {:?} after the answers", begun.elapsed());
            }
            // When the objects of the earlier runtimes are collected, the fence still exists.
            let jobs: Api<Job> = Api::namespaced(installation.client.clone(), installation.run.name());
            until("the Jobs of earlier ones are gone", async || {
                let jobs = jobs.list(&ListParams::default()).await.unwrap();
                let of_new = |job: &Job| job.owner_references().iter().any(|owner| owner.uid == uid);
                jobs.iter().all(of_new)
            })
            .await;
            assert_eq!(owner_of_fence(&installation).await, Some(uid));
            let starts = journals.starts();
            let doubled: Vec<_> = starts.iter().filter(|(_, starts)| **starts > 1).collect();
            println!("output and errors: {answers:?}; doubled: {doubled:?}");
            assert!(doubled.is_empty(), "{doubled:?}");
            assert!(ids.iter().all(|id| starts.contains_key(id)));
        },
    );
}
