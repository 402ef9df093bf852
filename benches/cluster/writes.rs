//! Writes to the API server per execution.
//!
//! Counted by the API server itself (`apiserver_request_total`), from before the first of a batch to after the last Job
//! has gone: creation, status, record, deletion, everybody's. Left out are Events, Leases, which are renewed whether or
//! not anything runs, and reviews of tokens and access, which store nothing.

use std::collections::BTreeMap;

use serde_json::json;

use crate::Bench;
use crate::installation::SANDBOXES;
use crate::report::{Budget, Measured, Report};
use crate::statistics::{measured, median_and_spread};

/// Executions in a batch, one after the other.
const BATCH: usize = 6;
/// Batches of each side.
const ROUNDS: usize = 3;
/// How long a finished Job stays, for all the shortest that a SkillRuntime takes: Jobs go within the batch.
const TTL_SECONDS: u32 = 30;
/// Verbs of the counter that write.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// What is no write of an execution; see the module.
const APART: [&str; 6] = [
    "events",
    "leases",
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectreviews",
    "serviceaccounts",
];

/// Writes so far, by resource.
type Counts = BTreeMap<String, f64>;

/// Warm and cold executions against bare Jobs of the same time to live.
pub(crate) async fn per_execution(bench: &mut Bench) {
    let budgets =
        ["api_writes_warm_above_bare_job", "api_writes_cold_above_bare_job"].map(|name| Budget { name, limit: 2.0 });
    let Bench {
        installation,
        bare,
        report,
        ..
    } = bench;
    let client = installation.client.clone();
    let sample = async || {
        let mut sides: [Vec<f64>; 3] = Default::default();
        let mut totals: [Counts; 3] = Default::default();
        for round in 1..=ROUNDS {
            for (side, pool) in [(0, 0), (1, 2), (2, 0)] {
                installation
                    .configure(
                        json!({"warmPool": {"replicas": pool}, "sandbox": {"ttlSecondsAfterFinished": TTL_SECONDS}}),
                    )
                    .await;
                installation.swept(SANDBOXES).await;
                let before = counts(&client).await;
                for _ in 0..BATCH {
                    match side {
                        0 => bare.run(TTL_SECONDS).await,
                        1 => {
                            installation.standing(pool).await;
                            installation.warm_call().await;
                        }
                        _ => drop(installation.call().await),
                    }
                }
                installation.standing(pool).await;
                installation.swept(&bare.namespace).await;
                installation.swept(SANDBOXES).await;
                let after = counts(&client).await;
                let written = difference(&before, &after);
                sides[side].push(written.values().sum::<f64>() / BATCH as f64);
                for (resource, count) in written {
                    *totals[side].entry(resource).or_default() += count / (BATCH * ROUNDS) as f64;
                }
            }
            let last = |side: usize| sides[side][round - 1];
            Report::note(&format!(
                "  round {round} of {ROUNDS}: bare {:.1}, warm {:.1}, cold {:.1} writes",
                last(0),
                last(1),
                last(2)
            ));
        }
        for (name, counts) in ["bare", "warm", "cold"].iter().zip(&totals) {
            let parts: Vec<String> = counts
                .iter()
                .map(|(resource, count)| format!("{resource} {count:.1}"))
                .collect();
            Report::note(&format!("  {name}: {}", parts.join(", ")));
        }
        let [floor, warm, cold] = sides.map(|side| (measured(side.clone()), median_and_spread(side).0));
        [warm, cold].map(|(side, value)| Measured {
            value: value - floor.1,
            spread: side.spread.max(floor.0.spread),
        })
    };
    report.steady(budgets, sample).await;
}

fn difference(before: &Counts, after: &Counts) -> Counts {
    let mut written: Counts = after
        .iter()
        .map(|(resource, count)| (resource.clone(), count - before.get(resource).unwrap_or(&0.0)))
        .collect();
    written.retain(|_, count| *count > 0.0);
    written
}

async fn counts(client: &kube::Client) -> Counts {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("the API server's metrics");
    let mut counts = Counts::new();
    for line in text.lines() {
        let Some((labels, value)) = line
            .strip_prefix("apiserver_request_total{")
            .and_then(|rest| rest.split_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let begin = labels.find(&format!("{name}=\""))? + name.len() + 2;
            labels[begin..].split('"').next()
        };
        let (verb, code) = (label("verb").unwrap_or_default(), label("code").unwrap_or_default());
        let resource = label("resource").unwrap_or_default();
        let is_write = WRITES.contains(&verb) && code.starts_with('2') && label("dry_run") == Some("");
        if !is_write || APART.contains(&resource) {
            continue;
        }
        let subresource = label("subresource").filter(|name| !name.is_empty());
        let name = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
        *counts.entry(name).or_default() += value.trim().parse::<f64>().unwrap_or(0.0);
    }
    counts
}
