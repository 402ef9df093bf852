//! Budgets of the gateway, each against the floor proxy in the same run.
//!
//! Three processes serve in turn: nobody (the upstream directly), the floor, and `knack dev` with 100 skills. The
//! upstream is in this process and answers from memory, in the format that it is asked in. Pairs are interleaved, so that a machine that drifts drifts for
//! all. CPU time is what the kernel counted for the process, memory its anonymous resident set.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints, and ends by panicking where it cannot measure; its numbers are small"
)]

mod bodies;
mod load;
mod measure;
#[path = "../support/once.rs"]
mod once;
mod processes;
#[path = "../support/report.rs"]
mod report;
mod rows;
#[path = "../support/statistics.rs"]
mod statistics;
mod uploads;
mod upstream;
mod wire;

use std::process::ExitCode;

use processes::{Floor, Knack};
use report::Report;

/// Interleaved pairs per row.
const PAIRS: usize = 10;

fn pairs() -> usize {
    if once::is_once() { 1 } else { PAIRS }
}

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo bench` and `cargo test --benches` call with flags of their own; a budget is only measured when asked for.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    // The first TLS client panics without it, plain HTTP or not.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let upstream = upstream::Upstream::start().await;
    let knack = Knack::start(&upstream.url, processes::StoredTurns::Empty).await;
    let system = upstream.learn_system_text(&knack.url).await;
    let floor = Floor::start(&upstream.url, &system).await;
    let mut report = Report::default();
    if once::is_once() {
        for wire in wire::Wire::ALL {
            rows::request_cost(
                &mut report,
                &upstream,
                &floor,
                &knack,
                &bodies::small(wire),
                wire.suffix(),
            )
            .await;
            rows::first_byte(&mut report, &floor, &knack, &bodies::small(wire), wire.suffix()).await;
        }
        load::full_load(&mut report, &floor, &knack, &bodies::small(wire::Wire::Chat), "").await;
        uploads::served(&mut report, &knack).await;
        return report.finish();
    }
    // The rows of small requests alone take minutes.
    let is_small = std::env::args().any(|argument| argument == "--small");
    let bodies = |wire| {
        let mut bodies = bodies::all(wire);
        if is_small {
            bodies.truncate(1);
        }
        bodies
    };
    for wire in wire::Wire::ALL {
        for body in bodies(wire) {
            rows::request_cost(&mut report, &upstream, &floor, &knack, &body, wire.suffix()).await;
            rows::first_byte(&mut report, &floor, &knack, &body, wire.suffix()).await;
        }
        for body in bodies(wire).iter().take(2) {
            load::full_load(&mut report, &floor, &knack, body, wire.suffix()).await;
        }
    }
    if is_small {
        return report.finish();
    }
    let full = Knack::start(&upstream.url, processes::StoredTurns::Full).await;
    upstream.fill_records(&full.url).await;
    let body = bodies::medium(wire::Wire::Chat);
    rows::request_cost(&mut report, &upstream, &floor, &full, &body, "_full_records").await;
    rows::first_byte(&mut report, &floor, &full, &body, "_full_records").await;
    rows::memory(&mut report, &knack, "").await;
    rows::memory(&mut report, &full, "_full_records").await;
    // Of a process that has done nothing else.
    let idle = Knack::start(&upstream.url, processes::StoredTurns::Empty).await;
    load::idle_streams(&mut report, &idle).await;
    uploads::served(&mut report, &knack).await;
    uploads::listed(&mut report, &upstream.url).await;
    report.finish()
}
