//! Every change of a Skill becomes active in a gateway. How long it takes is a figure beside its budget, not a verdict: a busy machine is no defect.

use std::time::Duration;

use cluster_support::run;
use knack_gateway::catalog::remote::{Blobs, follow};
use knack_memory::MemoryBudget;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::support::{Installation, SOON, apply_skill};

/// Changes measured: p99 of 100 is the second worst.
const CHANGES: usize = 100;
/// A Skill applied is active in every gateway (docs/design/decisions.md#budgets).
const BUDGET: Duration = Duration::from_millis(500);

#[test]
fn every_change_becomes_active_in_a_gateway_and_its_time_is_a_figure() {
    run(
        "every_change_becomes_active_in_a_gateway_and_its_time_is_a_figure",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            let (sender, mut digests) = mpsc::unbounded_channel();
            let (_live, _following) = follow(
                client,
                installation.runtime(),
                Blobs::new(MemoryBudget::of_process()),
                None,
                move |snapshot| {
                    let skill = snapshot.skills.iter().find(|skill| skill.id.name == "moving");
                    let script = skill.and_then(|skill| skill.files.get("scripts/run.py"));
                    if let Some(script) = script {
                        let _ = sender.send(String::from_utf8_lossy(&script.bytes).into_owned());
                    }
                },
            );
            let mut times = Vec::with_capacity(CHANGES);
            for change in 0..=CHANGES {
                let script = format!("print({change})");
                let begun = Instant::now();
                apply_skill(&installation.client, &installation.tenants[0], "moving", &script).await;
                tokio::time::timeout(SOON, async {
                    while digests.recv().await.as_deref() != Some(script.as_str()) {}
                })
                .await
                .unwrap_or_else(|_| panic!("change {change} does not arrive"));
                cluster_support::progress(format!("change {change} of {CHANGES}"));
                // The first one waits for the whole installation.
                if change > 0 {
                    times.push(begun.elapsed());
                }
            }
            times.sort();
            let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
            let word = if at(99) <= BUDGET { "ok" } else { "over" };
            println!(
                "skill propagation p50 {} ms, p90 {} ms",
                at(50).as_millis(),
                at(90).as_millis()
            );
            println!(
                "budget skill_propagation_p99_ms {} {} {word}",
                at(99).as_millis(),
                BUDGET.as_millis()
            );
        },
    );
}
