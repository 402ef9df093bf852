//! The binary `knack-runner`: see `docs/runner-protocol.md`.

use std::io::Write as _;
use std::process::ExitCode;

use knack_vocabulary::probe::PROBE_WORD_BYTES;

/// Unknown arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let words = [(); 4].map(|()| arguments.next());
    match words.each_ref().map(Option::as_deref) {
        [None, ..] => run(),
        [Some(word), None, ..] if word == "--version" => version(),
        [Some(word), Some(uid), None, _] if word == "--end-uid" => end_uid(uid),
        [Some(word), Some(target), Some(question), None] if word == "--probe" => probe(target, question),
        _ => {
            complain(
                "usage: knack-runner [--version | --end-uid <uid> | --probe <address:port> <question>]; without argument it serves one execution by frames on stdin and stdout",
            );
            ExitCode::from(USAGE)
        }
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn run() -> ExitCode {
    use std::os::fd::AsFd as _;
    if !knack_runner::is_first_of_pod() {
        return restarted();
    }
    match knack_runner::serve(std::io::stdin().as_fd(), std::io::stdout().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("knack-runner: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Reports a restarted container to the reader of the log, and serves no one: the exit code is a failure.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn restarted() -> ExitCode {
    use knack_runner::protocol::{FromRunner, encode};
    // A closed stdout has no reader; the exit code reports the same.
    drop(std::io::stdout().write_all(&encode(&FromRunner::Restarted {})));
    complain("knack-runner: the container was started again; a pod runs once");
    ExitCode::FAILURE
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn end_uid(uid: &std::ffi::OsStr) -> ExitCode {
    let uid = uid.to_str().and_then(|uid| uid.parse().ok());
    match uid
        .ok_or_else(|| "the uid is not a number".to_owned())
        .and_then(knack_runner::end_uid)
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            complain("knack-runner --end-uid: processes are still running");
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(&format!("knack-runner --end-uid: {error}"));
            ExitCode::from(USAGE)
        }
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn end_uid(_: &std::ffi::OsStr) -> ExitCode {
    run()
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn run() -> ExitCode {
    complain("knack-runner: sandboxes need Linux on x86_64 or aarch64");
    ExitCode::FAILURE
}

/// Dials the address with a question and says on stdout what came of it.
fn probe(target: &std::ffi::OsStr, question: &std::ffi::OsStr) -> ExitCode {
    let target = target.to_str().and_then(|target| target.parse().ok());
    let is_word = |word: &&str| {
        (1..=PROBE_WORD_BYTES).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let (Some(target), Some(question)) = (target, question.to_str().filter(is_word)) else {
        complain(
            "knack-runner --probe: write the target as <address>:<port>, and the question as at most 64 letters and digits",
        );
        return ExitCode::from(USAGE);
    };
    let seen = knack_runner::protocol::Probe::run(target, question);
    let line = knack_runner::protocol::encode(&seen);
    match std::io::stdout().write_all(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn version() -> ExitCode {
    let line = format!(
        "knack-runner {} protocol {}..={}\n",
        env!("CARGO_PKG_VERSION"),
        knack_runner::protocol::PROTOCOL_MIN,
        knack_runner::protocol::PROTOCOL
    );
    match std::io::stdout().write_all(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Writes one line to stderr. If stderr is closed, there is no other place for it.
fn complain(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
