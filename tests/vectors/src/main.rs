//! Runs the behaviour vectors: every case through the adapter of its op, compared as docs/design/dialects.md#behaviour-vectors says.
//!
//! `cargo run -p vectors` reads the checked-in copies in `tests/vectors/cases`, or the folder that the argument or the environment
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
//! A case that is marked as a quirk need not hold outside the copies, unless all quirks among the copies of its op do; but its adapter
//! must answer. A panic is a failure always.
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

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the checked-in copies live, fixed at build time: the harness is never installed.
const COPIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");
/// The list of cases that are deliberately not followed.
const EXCEPTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/exceptions.json");

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let folder = folder(std::env::args_os().skip(1), std::env::var_os("KNACK_VECTORS"));
    match folder.and_then(|folder| run(&folder)) {
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

/// The folder that is read: the one argument, else that of the environment, else the copies. Errors: more than one is named, or an option.
fn folder(arguments: impl Iterator<Item = OsString>, environment: Option<OsString>) -> Result<PathBuf, String> {
    let mut folder = environment.map(PathBuf::from);
    for argument in arguments {
        let shown = argument.display();
        if argument.as_encoded_bytes().starts_with(b"-") {
            return Err(format!(
                "there is no option {shown}; the only argument is a folder of cases"
            ));
        }
        if let Some(other) = &folder {
            let other = other.display();
            return Err(format!(
                "{shown}: {other} is named already; name one folder, by an argument or by KNACK_VECTORS"
            ));
        }
        folder = Some(PathBuf::from(argument));
    }
    Ok(folder.unwrap_or_else(|| PathBuf::from(COPIES)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_argument_or_that_of_the_environment_and_nothing_is_ignored() {
        let of = |arguments: &[&str], environment: Option<&str>| {
            let arguments = arguments.iter().map(OsString::from);
            folder(arguments, environment.map(OsString::from))
        };
        assert_eq!(of(&[], None), Ok(PathBuf::from(COPIES)));
        assert_eq!(of(&[], Some("a")), Ok(PathBuf::from("a")));
        assert_eq!(of(&["b"], None), Ok(PathBuf::from("b")));
        for (arguments, environment, named) in [
            (&["b"][..], Some("a"), "b: a is named already"),
            (&["b", "c"], None, "c: b is named already"),
            (&["--file"], None, "no option --file"),
        ] {
            let refused = of(arguments, environment).unwrap_err();
            assert!(refused.contains(named), "{refused}");
        }
    }
}
