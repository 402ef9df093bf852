//! As many runs as the node can make pods, and a quick word to those who come on top.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::Bench;
use crate::bare::Bare;
use crate::calls::Answer;
use crate::installation::Installation;
use crate::report::{Budget, Measured, Report};
use crate::statistics::{measured, median_and_spread, of_sorted};

/// Runs at once, on both sides.
const RUNS: usize = 8;
/// Calls that wait in the queue all the time.
const QUEUED: usize = 4;
/// The shortest that a SkillRuntime takes, on both sides. What a turn made is deleted after it.
const TTL_SECONDS: u32 = 30;
/// One turn.
const TURN: Duration = Duration::from_secs(15);
/// Turns of each side.
const TURNS: usize = 3;
/// Between two calls on top of a full queue.
const KNOCK: Duration = Duration::from_millis(150);

/// The two rows of one load.
pub(crate) async fn sustained(bench: &mut Bench) {
    let Bench {
        installation,
        bare,
        report,
        ..
    } = bench;
    installation
        .configure(json!({
            "warmPool": {"replicas": 4}, "sandbox": {"ttlSecondsAfterFinished": TTL_SECONDS},
            "concurrency": {"maxRuns": RUNS, "maxQueued": QUEUED, "queueTimeoutSeconds": 60},
        }))
        .await;
    // Within 10 % of the node's own rate.
    let rate = Budget {
        name: "sustained_bare_to_knack",
        limit: 1.0 / 0.9,
    };
    let refusal = Budget {
        name: "refusal_p99_ms",
        limit: 50.0,
    };
    let sample = async || {
        let (mut ratios, mut refusals) = (Vec::new(), Vec::new());
        for turn in 1..=TURNS {
            let own = bare_rate(bare).await;
            installation.swept(&bare.namespace).await;
            installation.standing(4).await;
            let (rate, mut refused) = knack_rate(installation).await;
            refused.sort_by(f64::total_cmp);
            Report::note(&format!(
                "  turn {turn} of {TURNS}: bare {own:.2}, knack {rate:.2} runs/s; {} refused, {:.1} to {:.1} ms",
                refused.len(),
                refused.first().unwrap_or(&f64::NAN),
                refused.last().unwrap_or(&f64::NAN)
            ));
            ratios.push(own / rate);
            refusals.push(refused);
            installation.swept(crate::installation::SANDBOXES).await;
        }
        let mut all = refusals.concat();
        assert!(all.len() > 100, "a full queue refuses: {}", all.len());
        all.sort_by(f64::total_cmp);
        // One percentile of all turns: a single value, which has no spread.
        let p99 = of_sorted(&all, 99);
        Report::note(&format!(
            "  refusals: p50 {:.1}, p99 {p99:.1} ms",
            median_and_spread(all).0
        ));
        [
            measured(ratios),
            Measured {
                value: p99,
                spread: 0.0,
            },
        ]
    };
    report.steady([rate, refusal], sample).await;
    installation
        .configure(json!({"warmPool": {"replicas": 0}, "concurrency": {"maxRuns": null, "maxQueued": null, "queueTimeoutSeconds": null}}))
        .await;
}

/// Runs per second of so many workers, up to the end of the last run that began within the turn.
async fn rate<F: Future<Output = ()>>(workers: usize, run: impl Fn() -> F) -> f64 {
    let until = Instant::now() + TURN;
    let ended = AtomicUsize::new(0);
    let last = std::sync::Mutex::new(Instant::now());
    let work = || async {
        while Instant::now() < until {
            run().await;
            ended.fetch_add(1, Ordering::Relaxed);
            *last.lock().expect("no worker panics with it") = Instant::now();
        }
    };
    let begun = Instant::now();
    futures::future::join_all((0..workers).map(|_| work())).await;
    let took = last.lock().expect("no worker panics with it").duration_since(begun);
    ended.load(Ordering::Relaxed) as f64 / took.as_secs_f64()
}

async fn bare_rate(bare: &Bare) -> f64 {
    rate(RUNS, || bare.run(TTL_SECONDS)).await
}

/// The rate with a queue that never empties, and how long those waited who found it full.
async fn knack_rate(installation: &Installation) -> (f64, Vec<f64>) {
    let mut refused = Vec::new();
    let knock = async {
        // The queue is full by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let until = Instant::now() + TURN.saturating_sub(Duration::from_secs(2));
        while Instant::now() < until {
            tokio::time::sleep(KNOCK).await;
            // Now and then a permit is just free; that call is a run like any other.
            if let Answer::Refused(after) = installation.try_call().await {
                refused.push(after.as_secs_f64() * 1e3);
            }
        }
    };
    // A worker that finds the queue full, because of a knock, asks again.
    let run = || async {
        while let Answer::Refused(_) = installation.try_call().await {
            tokio::time::sleep(KNOCK).await;
        }
    };
    let (rate, ()) = tokio::join!(rate(RUNS + QUEUED, run), knock);
    (rate, refused)
}
