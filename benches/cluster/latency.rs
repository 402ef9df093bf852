//! Single calls: warm, in a burst, cold.

use std::time::Duration;

use serde_json::json;

use crate::Bench;
use crate::calls::RunTimes;
use crate::report::{Budget, Measured, Report};
use crate::statistics::{measured, median_and_spread, of_sorted};

/// Pods of the pool.
const POOL: usize = 4;
/// Time to live of Jobs here, the chart's: longer than a part, so that deletions fall into no call.
const TTL_SECONDS: u32 = 300;
/// Between two warm calls (docs/design/decisions.md#budgets).
const APART: Duration = Duration::from_millis(400);
/// Between two cold calls.
const COLD_APART: Duration = Duration::from_millis(700);
/// Turns of floor and Knack.
const ROUNDS: usize = 10;
/// Bursts, each of as many calls as the pool has pods.
const BURSTS: usize = 8;
/// Cold calls of each side in a round.
const COLD_CALLS: usize = 2;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// All values in one; the spread is that of the rounds' medians.
fn over_rounds(rounds: &[Vec<f64>]) -> Measured {
    let (_, spread) = median_and_spread(rounds.iter().map(|round| median_and_spread(round.clone()).0).collect());
    Measured {
        value: median_and_spread(rounds.concat()).0,
        spread,
    }
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    of_sorted(&values, percent)
}

/// Calls 400 ms apart, alternating with a bare pod that is attached: both meet the replacement of the pods before them.
pub(crate) async fn warm(bench: &mut Bench) {
    let Bench {
        installation,
        bare,
        report,
        ..
    } = bench;
    installation
        .configure(json!({"warmPool": {"replicas": POOL}, "sandbox": {"ttlSecondsAfterFinished": TTL_SECONDS}}))
        .await;
    // The connection, the caller's token and the skill's content are known from here on.
    installation.call().await;
    let budgets = [
        Budget {
            name: "warm_call_ms",
            limit: 5.0,
        },
        Budget {
            name: "warm_call_above_bare_ms",
            limit: 2.0,
        },
    ];
    let sample = async || {
        let (mut calls, mut floors) = (Vec::new(), Vec::new());
        let mut parts: Vec<RunTimes> = Vec::new();
        for round in 1..=ROUNDS {
            let mut pods = Vec::new();
            for _ in 0..POOL {
                pods.push(bare.attached(TTL_SECONDS).await);
            }
            installation.standing(POOL).await;
            let (mut floor, mut ran) = (Vec::new(), Vec::new());
            for mut pod in pods {
                tokio::time::sleep(APART).await;
                floor.push(ms(pod.ask().await));
                tokio::time::sleep(APART).await;
                ran.push(installation.warm_call().await);
            }
            calls.push(ran.iter().map(|ran| ms(ran.elapsed)).collect::<Vec<_>>());
            floors.push(floor);
            parts.extend(ran);
            Report::note(&format!(
                "  round {round} of {ROUNDS}: bare {:.1?}, calls {:.1?} ms",
                floors[round - 1],
                calls[round - 1]
            ));
        }
        let (call, floor) = (over_rounds(&calls), over_rounds(&floors));
        Report::note(&format!(
            "  p50 bare {:.2}, call {:.2} (at the hub {:.2}, program {:.2}); p90 bare {:.2}, call {:.2} ms",
            floor.value,
            call.value,
            median_and_spread(parts.iter().map(|ran| ms(ran.at_hub)).collect()).0,
            median_and_spread(parts.iter().map(|ran| ms(ran.program)).collect()).0,
            percentile(floors.concat(), 90),
            percentile(calls.concat(), 90),
        ));
        // A difference near zero has no relative spread: what matters is that of its two sides.
        let above = Measured {
            value: call.value - floor.value,
            spread: call.spread.max(floor.spread),
        };
        [call, above]
    };
    report.steady(budgets, sample).await;
}

/// As many calls at once as there are warm pods, and the same number one after the other without a pause.
pub(crate) async fn burst(bench: &mut Bench) {
    let Bench {
        installation, report, ..
    } = bench;
    installation
        .configure(json!({"warmPool": {"replicas": POOL}, "sandbox": {"ttlSecondsAfterFinished": TTL_SECONDS}}))
        .await;
    // As many connections as calls.
    futures::future::join_all((0..POOL).map(|_| installation.call())).await;
    let budget = Budget {
        name: "burst_ms",
        limit: 10.0,
    };
    let sample = async || {
        let (mut bursts, mut rows) = (Vec::new(), Vec::new());
        for round in 1..=BURSTS {
            installation.standing(POOL).await;
            let ran = futures::future::join_all((0..POOL).map(|_| installation.warm_call())).await;
            bursts.push(ran.iter().map(|ran| ms(ran.elapsed)).collect::<Vec<_>>());
            installation.standing(POOL).await;
            for _ in 0..POOL {
                rows.push(ms(installation.warm_call().await.elapsed));
            }
            Report::note(&format!("  round {round} of {BURSTS}: {:.1?} ms", bursts[round - 1]));
        }
        Report::note(&format!(
            "  warm calls back to back: p50 {:.2}, p90 {:.2} ms",
            median_and_spread(rows.clone()).0,
            percentile(rows, 90)
        ));
        [over_rounds(&bursts)]
    };
    report.steady([budget], sample).await;
}

/// Without a pool, in turns with bare Jobs that are attached to early.
pub(crate) async fn cold(bench: &mut Bench) {
    let Bench {
        installation,
        bare,
        report,
        ..
    } = bench;
    installation
        .configure(json!({"warmPool": {"replicas": 0}, "sandbox": {"ttlSecondsAfterFinished": TTL_SECONDS}}))
        .await;
    installation.call().await;
    bare.cold(TTL_SECONDS).await;
    let budget = Budget {
        name: "cold_call_to_bare_job",
        limit: 1.15,
    };
    let sample = async || {
        let (mut calls, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            let (mut floor, mut call) = (Vec::new(), Vec::new());
            for _ in 0..COLD_CALLS {
                tokio::time::sleep(COLD_APART).await;
                floor.push(ms(bare.cold(TTL_SECONDS).await));
                tokio::time::sleep(COLD_APART).await;
                let ran = installation.call().await;
                assert!(!ran.is_warm, "there is no pool");
                call.push(ms(ran.elapsed));
            }
            let total = |values: &[f64]| values.iter().sum::<f64>();
            ratios.push(total(&call) / total(&floor));
            Report::note(&format!(
                "  round {round} of {ROUNDS}: bare {floor:.0?}, calls {call:.0?} ms"
            ));
            floors.extend(floor);
            calls.extend(call);
        }
        bare.with_volume(false);
        let mut without = Vec::new();
        for _ in 0..ROUNDS {
            tokio::time::sleep(COLD_APART).await;
            without.push(ms(bare.cold(TTL_SECONDS).await));
        }
        bare.with_volume(true);
        Report::note(&format!(
            "  p50 bare {:.0} (without a volume {:.0}), call {:.0}; p90 bare {:.0}, call {:.0} ms",
            median_and_spread(floors.clone()).0,
            median_and_spread(without).0,
            median_and_spread(calls.clone()).0,
            percentile(floors, 90),
            percentile(calls, 90)
        ));
        [measured(ratios)]
    };
    report.steady([budget], sample).await;
}
