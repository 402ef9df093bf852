//! A compromised runner, for tests of its owner: it has the key, plays its part up to the run, and answers as it likes.
//!
//! A program with the word `another` is answered with the result of another execution. Every other one is answered with
//! frames without proof, 40 MB without a line's end, and silence.
#![expect(clippy::unwrap_used, reason = "a program for tests")]

use std::io::{BufRead as _, Write as _};

use knack_runner::protocol::{
    Claimed, Exit, FromRunner, LandlockState, Locks, PROTOCOL, Program, Ready, Refusal, RunResult, RunnerLink, Started,
    StreamReport, ToRunner, WorkBound,
};

const LOCKS: Locks = Locks {
    seccomp: true,
    landlock: LandlockState::FullyEnforced,
    landlock_abi: 6,
    work: WorkBound::Outside,
};

fn main() {
    let mut link: Option<RunnerLink> = None;
    for line in std::io::stdin().lock().lines() {
        let text = line.unwrap();
        let Some(owned) = link.as_mut() else {
            if let Ok(ToRunner::Claim(claim)) = serde_json::from_str(&text) {
                let mut bound = RunnerLink::new(&claim.key);
                say(&bound.encode(&claimed()));
                link = Some(bound);
            }
            continue;
        };
        match owned.read(text.as_bytes()) {
            Err(Refusal::Claim(_)) => say(&owned.encode(&claimed())),
            Ok(ToRunner::Start(_)) => say(&owned.encode(&ready())),
            Ok(ToRunner::Run(run)) => {
                let asks = matches!(&run.program, Program::Code { source, .. } if source.contains("another"));
                let id = "0".repeat(run.id.len());
                if asks {
                    answer_another(owned, &id);
                } else {
                    answer_nothing(&id);
                }
            }
            _ => {}
        }
    }
}

/// A conversation that is proven, and not the one that was asked for.
fn answer_another(link: &mut RunnerLink, id: &str) {
    say(&link.encode(&started(id, link.request_digest())));
    say(&link.encode(&result(id, link.request_digest())));
}

/// Frames without authentication, then a line that does not end, then nothing more.
fn answer_nothing(id: &str) {
    for frame in [result(id, String::new()), started(id, String::new())] {
        let mut line = serde_json::to_vec(&frame).unwrap();
        line.push(b'\n');
        say(&line);
    }
    say(&vec![b'x'; 40_000_000]);
    loop {
        std::thread::park();
    }
}

fn say(line: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line).unwrap();
    stdout.flush().unwrap();
}

fn claimed() -> FromRunner {
    FromRunner::Claimed(Claimed {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
    })
}

fn ready() -> FromRunner {
    FromRunner::Ready(Ready {
        protocol_min: None,
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        locks: Some(LOCKS),
    })
}

fn started(id: &str, digest: String) -> FromRunner {
    FromRunner::Started(Started {
        id: id.to_owned(),
        digest,
        locks: LOCKS,
        context: String::new(),
    })
}

fn result(id: &str, digest: String) -> FromRunner {
    FromRunner::Result(RunResult {
        id: id.to_owned(),
        digest,
        exit: Exit::Code { code: 0 },
        stdout: StreamReport::default(),
        stderr: StreamReport::default(),
        wall_us: 0,
        cpu_us: 0,
        max_rss_bytes: 0,
        killed: 0,
        files: 0,
        file_errors: 0,
        locks: Some(LOCKS),
    })
}
