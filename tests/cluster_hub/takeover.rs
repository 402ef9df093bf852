//! A hub that takes a runtime over whose last runs left more results than it has memory for.

use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use futures::StreamExt as _;
use knack_execution::ExecutionId;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ExecutionFrame, RefusalCode, SkillLine};
use serde_json::json;

use super::cgroup::Group;
use super::limited::Limited;
use super::support::{Installation, SOON, fresh_id};

/// Memory limit of the new owner, bytes: a quarter of its half may be kept results.
const LIMIT_BYTES: usize = 128 << 20;
/// Runs whose pods are there with their journals, and what each gives: together as much as the limit.
const RUNS: usize = 30;
const OUTPUT_BYTES: usize = 1_000_000;
const FILE_BYTES: usize = 3_000_000;
/// Results that the new owner must have: one fewer than fit into its part for kept results.
const KEPT: usize = LIMIT_BYTES / 8 / (OUTPUT_BYTES + FILE_BYTES) - 1;
/// Runs at once.
const AT_ONCE: usize = 4;
/// Between two questions to a hub that is not the owner yet.
const POLL: Duration = Duration::from_millis(200);

/// What one answer was: the first bytes of the output, which are random, or the hub's refusal.
async fn answer(
    installation: &Installation,
    client: &HubClient,
    skill: &SkillLine,
    id: ExecutionId,
) -> Result<Vec<u8>, HubError> {
    let program = format!(
        "import os, sys; sys.stdout.write(os.urandom(8).hex().ljust({OUTPUT_BYTES}, '-')); open('file', 'wb').write(bytes({FILE_BYTES}))"
    );
    let post = installation.post(skill, &id.to_string(), &["python3", "-c", &program]);
    let mut lines = client
        .hub()
        .post_stream("/v1/executions", post.to_string().into())
        .await?;
    let mut file_bytes = 0;
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await? {
        match frame {
            ExecutionFrame::File(piece) => file_bytes += piece.data.0.len(),
            ExecutionFrame::Error(refusal) => return Err(HubError::Refused(refusal)),
            ExecutionFrame::Result(result) => {
                assert_eq!((file_bytes, result.stdout.0.len()), (FILE_BYTES, OUTPUT_BYTES));
                return Ok(result.stdout.0[..16].to_vec());
            }
            _ => {}
        }
    }
    panic!("the answer ends without a result");
}

/// The answer of a hub that may not own the runtime yet.
async fn answered(
    installation: &Installation,
    client: &HubClient,
    skill: &SkillLine,
    id: ExecutionId,
) -> Result<Vec<u8>, HubError> {
    let begun = Instant::now();
    loop {
        match answer(installation, client, skill, id).await {
            Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotOwner && begun.elapsed() < SOON => {
                tokio::time::sleep(POLL).await;
            }
            // Its API server, or it, had no time for the request.
            Err(error) if error.is_transient() && begun.elapsed() < SOON => tokio::time::sleep(POLL).await,
            told => return told,
        }
    }
}

#[test]
fn a_new_owner_keeps_the_last_results_that_it_has_memory_for_and_lives() {
    run(
        "a_new_owner_keeps_the_last_results_that_it_has_memory_for_and_lives",
        async |cluster| {
            let Some(group) = Group::new(LIMIT_BYTES) else {
                cluster_support::skip("the new owner's limit", "no memory control group can be made here");
                return;
            };
            let spec = json!({
                "warmPool": {"replicas": AT_ONCE},
                "concurrency": {"maxRuns": AT_ONCE, "maxQueued": RUNS, "queueTimeoutSeconds": 300},
                "sandbox": {"ttlSecondsAfterFinished": 3600},
            });
            let mut installation = Installation::start(cluster, 1, spec).await;
            installation
                .skill(&installation.tenants[0], "large", "print('x')")
                .await;
            let client = installation.tenant(0).await;
            let skill = installation.served(&client, "large").await;
            let answers: Vec<(ExecutionId, Vec<u8>)> = futures::stream::iter(0..RUNS)
                .map(async |_| {
                    let id = fresh_id();
                    let first = answered(&installation, &client, &skill, id).await.unwrap();
                    progress("a large result was answered");
                    (id, first)
                })
                .buffered(AT_ONCE)
                .collect()
                .await;
            installation.kill_hub();
            let mut hub = Limited::start(&installation, cluster, group).await;
            let (mut kept, mut gone) = (Vec::new(), 0);
            for (index, (id, first)) in answers.into_iter().enumerate().rev() {
                match answered(&installation, &client, &skill, id).await {
                    Ok(again) => {
                        assert_eq!(again, first, "an execution ran twice");
                        kept.push(index);
                    }
                    Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::Gone => gone += 1,
                    Err(error) => panic!("{error}; {}", hub.state()),
                }
                progress("a result was asked for again");
            }
            println!("kept {kept:?}, gone {gone}; the hub: {}", hub.state());
            assert_eq!(hub.group.killed(), 0, "killed for want of memory");
            assert!(kept.len() >= KEPT, "{kept:?}");
            // Pods are made before their runs, so the order of their ends is known roughly.
            assert!(
                kept.iter().all(|index| *index >= RUNS / 2),
                "of the last ones: {kept:?}"
            );
        },
    );
}
