//! The lines and the verdict.

use std::fmt::Write as _;

/// One measured value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Median over the pairs.
    pub value: f64,
    /// Relative spread of the pairs.
    pub spread: f64,
}

/// Spread above which a value says little.
const NOISY: f64 = 0.10;
/// How often a noisy row is measured before it counts as over.
pub(crate) const TRIES: usize = 3;

/// Collects rows; an `over` fails the bench.
#[derive(Debug)]
pub(crate) struct Report {
    over: Vec<String>,
    table: String,
}

impl Report {
    /// An empty report.
    pub(crate) fn new() -> Self {
        Self {
            over: Vec::new(),
            table: String::new(),
        }
    }

    /// Prints one try of a row; true if its pairs agree.
    pub(crate) fn budget(name: &str, measured: Measured, limit: f64) -> bool {
        let noisy = measured.spread > NOISY;
        let verdict = match (measured.value <= limit, noisy) {
            (true, false) => "ok",
            (_, true) => "noisy",
            (false, false) => "over",
        };
        println!(
            "budget {name} {:.3} {limit} {verdict} (spread {:.0} %)",
            measured.value,
            measured.spread * 100.0
        );
        !noisy
    }

    /// Settles a row after its last try.
    pub(crate) fn settle(&mut self, name: &str, measured: Measured, limit: f64, steady: bool) {
        let ok = measured.value <= limit;
        // Three noisy tries: the machine cannot tell. Within the limit that is said; beyond it, it counts as over.
        let verdict = if ok && steady {
            "ok"
        } else if ok {
            "noisy"
        } else {
            "over"
        };
        if !ok {
            self.over.push(name.to_owned());
        }
        let _ = writeln!(self.table, "| `{name}` | {:.3} | {limit} | {verdict} |", measured.value);
    }

    /// A line without a limit.
    pub(crate) fn note(text: &str) {
        println!("{text}");
    }

    /// Writes the table for docs/benchmarks.md and fails if anything is over.
    pub(crate) fn finish(self) {
        if let Ok(path) = std::env::var("KNACK_BENCH_TABLE") {
            std::fs::write(&path, &self.table).expect("the table's file can be written");
        }
        if !self.over.is_empty() {
            println!("over budget: {}", self.over.join(", "));
            std::process::exit(1);
        }
    }
}
