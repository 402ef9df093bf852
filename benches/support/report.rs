//! The lines and the outcome, shared by the benches.

use std::process::ExitCode;

use super::once::is_once;

/// One measured value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Median over the pairs.
    pub value: f64,
    /// Relative spread of the pairs.
    pub spread: f64,
}

/// A row: its name and what its value may be at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget<'a> {
    /// As printed and as in docs/benchmarks.md.
    pub name: &'a str,
    /// In the unit that the name ends in.
    pub limit: f64,
}

/// Spread above which a value says little.
const NOISY: f64 = 0.10;
/// How often a noisy row is measured before it counts as over.
const TRIES: usize = 3;

/// Prints rows; an `over` fails the bench.
#[derive(Debug, Default)]
pub(crate) struct Report {
    over: Vec<String>,
}

impl Report {
    /// Measures rows that come of one sample, up to [`TRIES`] times, until the pairs of all agree. `sample` gives a value
    /// for each row, in their order.
    pub(crate) async fn steady<const N: usize, F>(&mut self, budgets: [Budget<'_>; N], mut sample: F)
    where
        F: AsyncFnMut() -> [Measured; N],
    {
        let tries = if is_once() { 1 } else { TRIES };
        for attempt in 1..=tries {
            let rows = sample().await;
            let is_last = attempt == tries || rows.iter().all(|measured| measured.spread <= NOISY);
            for (budget, measured) in budgets.iter().zip(rows) {
                self.row(budget, measured, is_last);
            }
            if is_last {
                return;
            }
        }
    }

    /// Prints one try of a row. The last one counts: three noisy tries within the limit mean that the machine is too
    /// noisy, beyond it they count as over.
    fn row(&mut self, budget: &Budget<'_>, measured: Measured, is_last: bool) {
        let Measured { value, spread } = measured;
        let outcome = match (value <= budget.limit, spread > NOISY) {
            _ if is_once() => "once",
            (true, false) => "ok",
            (true, true) => "noisy",
            (false, true) if !is_last => "noisy",
            (false, _) => "over",
        };
        println!(
            "budget {} {value:.3} {} {outcome} (spread {:.0} %)",
            budget.name,
            budget.limit,
            spread * 100.0
        );
        if is_last && outcome == "over" {
            self.over.push(budget.name.to_owned());
        }
    }

    /// A line without a limit.
    pub(crate) fn note(text: &str) {
        println!("{text}");
    }

    /// Fails if anything is over. No exit here: the servers under measurement are to be stopped first.
    pub(crate) fn finish(self) -> ExitCode {
        if self.over.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("over budget: {}", self.over.join(", "));
        ExitCode::FAILURE
    }
}
