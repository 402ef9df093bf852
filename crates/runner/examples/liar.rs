//! A compromised runner, for tests of its owner: it has the key, plays its part up to the run, and answers as it likes.
//!
//! A program with the word `another` is answered with the result of another execution; one with the word `many`, `large`, `small` or
//! `half` with files that are not what they are said to be, and a result. Every other one is answered with frames without proof,
//! 40 MB without a line's end, and silence.
#![expect(clippy::unwrap_used, reason = "a program for tests")]

use std::io::{BufRead as _, Write as _};

use knack_runner::fixture::mk_result;
use knack_runner::protocol::{
    Bound, Data, Exit, FilePiece, FromRunner, LandlockState, LineRefusal, Locks, PROTOCOL, Program, Ready, RunResult,
    RunnerLink, Started, ToRunner, WorkBound,
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
            if let Ok(ToRunner::Bind(bind)) = serde_json::from_str(&text) {
                let mut runner = RunnerLink::new(&bind.key);
                say(&runner.encode(&bound()));
                link = Some(runner);
            }
            continue;
        };
        match owned.read(text.as_bytes()) {
            Err(LineRefusal::Bind(_)) => say(&owned.encode(&bound())),
            Ok(ToRunner::Start(_)) => say(&owned.encode(&ready())),
            Ok(ToRunner::Run(run)) => {
                let Program::Code { source, .. } = &run.program else {
                    continue;
                };
                let another = "0".repeat(run.id.len());
                if source.contains("another") {
                    answer(owned, &another, Vec::new());
                } else if let Some(files) = files(source) {
                    answer(owned, &run.id, files);
                } else {
                    answer_nothing(&another);
                }
            }
            _ => {}
        }
    }
}

/// A conversation that is proven; of another execution it is not the one that was asked for.
fn answer(link: &mut RunnerLink, id: &str, files: Vec<FilePiece>) {
    say(&link.encode(&started(id, link.request_digest())));
    for piece in files {
        say(&link.encode(&FromRunner::File(piece)));
    }
    say(&link.encode(&result(id, link.request_digest())));
}

/// The files that a program asks for.
fn files(source: &str) -> Option<Vec<FilePiece>> {
    let has = |word: &str| source.contains(word);
    if has("many") {
        return Some(
            (0..10_000)
                .map(|number| piece(&format!("f{number}"), 1, true))
                .collect(),
        );
    }
    // More is said than comes, more comes than is said, and a file has no end.
    let (size, last) = [("large", (1 << 40, true)), ("small", (0, true)), ("half", (2, false))]
        .into_iter()
        .find_map(|(word, file)| has(word).then_some(file))?;
    Some(vec![piece("f", size, last)])
}

/// One byte of a file that has as many as are said.
fn piece(path: &str, size: u64, last: bool) -> FilePiece {
    FilePiece {
        path: path.to_owned(),
        mode: 0o644,
        size,
        sha256: "0".repeat(64),
        offset: 0,
        data: Data(vec![b'x']),
        last,
    }
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

fn bound() -> FromRunner {
    FromRunner::Bound(Bound {
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
        digest,
        locks: Some(LOCKS),
        ..mk_result(id, Exit::Code { code: 0 })
    })
}
