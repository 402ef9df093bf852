//! The binary `knack-runner`: see `docs/runner-protocol.md`.

use std::io::Write as _;
use std::process::ExitCode;

/// Unknown arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (None, _) => run(),
        (Some(word), None) if word == "--version" => version(),
        _ => {
            complain("usage: knack-runner [--version]; it serves one execution by frames on stdin and stdout");
            ExitCode::from(USAGE)
        }
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn run() -> ExitCode {
    use std::os::fd::AsFd as _;
    match knack_runner::serve(std::io::stdin().as_fd(), std::io::stdout().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("knack-runner: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn run() -> ExitCode {
    complain("knack-runner: sandboxes need Linux on x86_64 or aarch64");
    ExitCode::FAILURE
}

fn version() -> ExitCode {
    let line = format!(
        "knack-runner {} protocol {}\n",
        env!("CARGO_PKG_VERSION"),
        knack_runner::protocol::PROTOCOL
    );
    match std::io::stdout().write_all(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says one line on stderr. If nobody listens there is nobody left to tell.
fn complain(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
