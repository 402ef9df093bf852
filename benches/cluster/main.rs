//! Budgets of the cluster, each against a floor of the same run, on the real cluster of the tests with etcd's fsync on.
//!
//! Knack is what users get: the chart, with images of the release build. The floors are what a person would write without
//! it: bare Jobs with the same image, resources and time to live, driven by this process. Floor and Knack take turns, so
//! that a machine that drifts drifts for both.
//!
//! `tools/bench_cluster.sh` makes the cluster and the images. `ONLY=row` measures one part.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a bench prints, and ends by panicking where it cannot measure; its numbers are small"
)]

mod bare;
mod calls;
mod catalog;
mod changes;
mod counted;
mod installation;
mod latency;
#[path = "../support/once.rs"]
mod once;
mod processes;
mod propagation;
#[path = "../support/report.rs"]
mod report;
mod scale;
#[path = "../support/statistics.rs"]
mod statistics;
mod throughput;
mod writes;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bare::Bare;
use installation::Installation;
use report::Report;

/// Everything, each row three times at worst.
const BOUND: Duration = Duration::from_mins(57);

/// The parts, in the order of their running. The largest are the last, so that their leftovers disturb no other.
const PARTS: [&str; 9] = [
    "warm",
    "burst",
    "cold",
    "sustained",
    "writes",
    "propagation",
    FLOOR_OF_CHANGES,
    "skills",
    "changes",
];
/// Measured before the thousands of `skills` are there; it prints no row by itself. Its two runtimes and hundred Skills stay.
const FLOOR_OF_CHANGES: &str = "few";

/// What every part works with.
struct Bench {
    installation: Installation,
    bare: Bare,
    report: Report,
    begun: Instant,
    /// The floor of `changes`, once it is measured.
    few: Option<changes::Cost>,
}

impl Bench {
    /// A line of progress.
    fn progress(&self, text: &str) {
        Report::note(&format!("{:4} s  {text}", self.begun.elapsed().as_secs()));
    }
}

fn main() -> ExitCode {
    // `cargo bench` and `cargo test --benches` call with flags of their own; a budget is only measured when asked for.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let only = std::env::var("ONLY").unwrap_or_default();
    assert!(
        only.is_empty() || PARTS.contains(&only.as_str()),
        "ONLY={only}: there are {}",
        PARTS.join(" ")
    );
    let outcome = OnceLock::new();
    cluster_support::run_within("bench-cluster", BOUND, async |cluster| {
        let begun = Instant::now();
        let installation = Installation::new(cluster).await;
        let bare = Bare::new(cluster).await;
        let mut bench = Bench {
            installation,
            bare,
            report: Report::default(),
            begun,
            few: None,
        };
        bench.progress("knack is installed");
        for part in PARTS {
            let is_floor = part == FLOOR_OF_CHANGES && only == "changes";
            if only.is_empty() || only == part || is_floor {
                bench.progress(&format!("== {part}"));
                bench.installation.cleared(&bench.bare.namespace).await;
                measure(&mut bench, part).await;
            }
        }
        bench.progress("done");
        outcome.get_or_init(|| bench.report.finish());
    });
    outcome.into_inner().unwrap_or(ExitCode::FAILURE)
}

async fn measure(bench: &mut Bench, part: &str) {
    match part {
        "warm" => latency::warm(bench).await,
        "burst" => latency::burst(bench).await,
        "cold" => latency::cold(bench).await,
        "sustained" => throughput::sustained(bench).await,
        "writes" => writes::per_execution(bench).await,
        "propagation" => propagation::to_every_gateway(bench).await,
        FLOOR_OF_CHANGES => changes::few(bench).await,
        "skills" => scale::to_ready(bench).await,
        "changes" => changes::beside_many(bench).await,
        other => panic!("no part {other}"),
    }
}
