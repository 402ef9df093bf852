//! Runs the behaviour vectors: every case through the adapter of its op, compared as docs/design/dialects.md#behaviour-vectors says.
//!
//! `cargo run -p vectors` reads the checked-in copies in `tests/vectors/cases`, or the folder that the environment
//! variable `KNACK_VECTORS` names. Ids that are not among the copies are handled by the same adapters.
//!
//! ```text
//! cases/*.json -> case -> registry (file, op) -> adapter -> matching -> report
//!                                                             exceptions.json
//! ```
//!
//! The report closes with two counts: cases of ops whose adapter calls what a program of the product calls as well
//! (`reachable`), and of ops with functions that are in `facts`, or that only tests reach (`value only`). `tools/reached.py vectors` computes it.
//!
//! An adapter is a function of the case's `input`; it never sees what is expected.

mod adapters;
mod case;
mod exceptions;
mod facts;
mod matching;
mod reach;
mod registry;
mod report;
mod special;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the checked-in copies live, fixed at build time: the harness is never installed.
const COPIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");
/// The list of cases that are deliberately not followed.
const EXCEPTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/exceptions.json");

fn main() -> ExitCode {
    let folder = std::env::var_os("KNACK_VECTORS").map_or_else(|| PathBuf::from(COPIES), PathBuf::from);
    let mut out = std::io::stdout().lock();
    match run(&folder) {
        Ok(report) => {
            // A closed pipe (`| head`) is no reason to change the verdict.
            let _ = report.print(&mut out);
            if report.ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(message) => {
            let _ = writeln!(out, "vectors: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Loads the cases of `folder`, the exceptions and the copies' ids, and runs everything.
fn run(folder: &Path) -> Result<report::Report, String> {
    let registry = registry::Registry::new()?;
    let reach = reach::Reach::compute()?;
    let files = case::load_folder(folder)?;
    let copies = case::load_folder(Path::new(COPIES))?;
    let exceptions = exceptions::Exceptions::load(Path::new(EXCEPTIONS), &copies, &registry)?;
    Ok(report::Report::of(&files, &registry, &exceptions, reach))
}
