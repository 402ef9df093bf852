//! What the frames of the owner do.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::queue::OutQueue;
use super::resolve;
use super::run::{Active, Process, Readiness};
use super::setup::Setup;
use super::watch::Watcher;
use crate::bootstrap;
use crate::files::stage;
use crate::locks::Effective;
use crate::process::{Launch, Reach, Stdin, go_ahead, kill_everything, spawn};
use crate::protocol::{
    Claimed, DecodeError, Exit, Files, FromRunner, PROTOCOL, Program, Ready, Rejected, Run, Start, Started, ToRunner,
};

/// Longest context of a run; it goes into the log.
const MAX_CONTEXT_BYTES: usize = 4096;
/// Longest nonce; it is repeated on every frame.
const MAX_NONCE_BYTES: usize = 128;
/// An interpreter that has not come up by then will not.
pub(super) const START_BOUND: Duration = Duration::from_secs(30);

/// The state of the conversation.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) nonce: String,
    pub(super) out: OutQueue,
    pub(super) setup: Option<Setup>,
    pub(super) process: Option<Process>,
    /// A run whose interpreter has not come up yet.
    waiting: Option<Run>,
    pub(super) active: Option<Active>,
    /// The answer to `start` is due when the interpreter stands.
    owes_ready: bool,
    /// Set when nothing can run any more: the result is due.
    pub(super) failed: Option<String>,
    /// When a run without an owner is killed.
    pub(super) orphaned: Option<Instant>,
}

impl Session {
    pub(super) fn new() -> Self {
        let mut session = Self::default();
        session.send_ready();
        session
    }

    /// Puts a frame into the queue.
    pub(super) fn tell(&mut self, frame: &FromRunner) {
        self.out.send(frame, &self.nonce);
    }

    /// Whether a program was asked for.
    pub(super) fn has_run(&self) -> bool {
        self.active.is_some()
    }

    /// Whom the runner kills at the end.
    pub(super) fn reach(&self) -> Reach {
        Reach::of(self.setup.as_ref().and_then(|setup| setup.start.identity))
    }

    /// Acts on one line of the owner.
    pub(super) fn take(&mut self, line: Result<ToRunner, DecodeError>, now: Instant) {
        let frame = match line {
            Ok(frame) => frame,
            Err(error) => return self.reject(error.to_string()),
        };
        if let ToRunner::Claim(claim) = &frame {
            if self.nonce.is_empty() && (1..=MAX_NONCE_BYTES).contains(&claim.nonce.len()) {
                self.nonce.clone_from(&claim.nonce);
            }
            if self.nonce.is_empty() {
                return self.reject("claim: a nonce has 1 to 128 bytes".to_owned());
            }
            return self.tell(&FromRunner::Claimed(Claimed {
                nonce: self.nonce.clone(),
            }));
        }
        if self.nonce.is_empty() || frame.nonce() != self.nonce {
            // Not our owner: no answer, or a stranger could make the journal grow.
            return;
        }
        match frame {
            ToRunner::Claim(_) | ToRunner::Ack(_) => {}
            ToRunner::Start(start) => self.start(start, now),
            ToRunner::Files(files) => self.files(&files),
            ToRunner::Run(run) => self.run(run, now),
            ToRunner::Cancel(_) => self.cancel(),
        }
    }

    fn start(&mut self, start: Start, now: Instant) {
        if self.setup.is_some() {
            return self.reject("start: the sandbox stands already".to_owned());
        }
        if let Some(journal) = &start.journal
            && let Err(reason) = self.out.keep(journal)
        {
            self.failed = Some(reason);
            return;
        }
        let started = Setup::new(start).and_then(|setup| Ok((setup.start_ahead()?, setup)));
        match started {
            Ok((child, setup)) => {
                self.owes_ready = true;
                let output_bytes = setup.limits.output_bytes;
                self.process = child.map(|child| Process::new(child, Readiness::Starting(now), output_bytes));
                self.setup = Some(setup);
                self.answer_start();
            }
            Err(reason) => self.failed = Some(reason),
        }
    }

    /// Sends the second `ready` once the interpreter stands, or if there is none.
    fn answer_start(&mut self) {
        let stands = self
            .process
            .as_ref()
            .is_none_or(|process| process.readiness == Readiness::Ready);
        if self.owes_ready && stands {
            self.owes_ready = false;
            self.send_ready();
        }
    }

    fn send_ready(&mut self) {
        self.tell(&FromRunner::Ready(Ready {
            nonce: self.nonce.clone(),
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            locks: self.process.as_ref().map(|process| process.locks),
        }));
    }

    fn files(&mut self, files: &Files) {
        if self.active.is_some() {
            return self.reject("files: the run has begun".to_owned());
        }
        let Some(setup) = &mut self.setup else {
            return self.reject("files: there was no start".to_owned());
        };
        for file in &files.files {
            if let Err(reason) = stage(&setup.place, files.area, file, &mut setup.staged) {
                // Without its file the program would fail in a way that nobody understands.
                self.failed = Some(reason);
                return;
            }
        }
    }

    fn run(&mut self, run: Run, now: Instant) {
        if self.active.is_some() {
            return self.reject("run: this runner has run already".to_owned());
        }
        let Some(setup) = &self.setup else {
            return self.reject("run: there was no start".to_owned());
        };
        if run.context.len() > MAX_CONTEXT_BYTES {
            return self.reject(format!("run: the context is longer than {MAX_CONTEXT_BYTES} bytes"));
        }
        go_ahead();
        let limits = setup.limits.lowered(&run.limits);
        let watch = setup.start.watch;
        let started = FromRunner::Started(Started {
            nonce: self.nonce.clone(),
            id: run.id.clone(),
            digest: digest(&run.program),
            context: run.context.clone(),
        });
        self.out.send(&started, &self.nonce);
        self.active = Some(Active {
            id: run.id.clone(),
            limits,
            began: now,
            watcher: Watcher::start(watch, now),
            kills: setup.kills.clone().started(),
            verdict: None,
        });
        let outcome = match &run.program {
            Program::Command { argv } => self.run_command(&run, argv, &limits),
            Program::Code { .. } => {
                self.waiting = Some(run);
                self.hand_over()
            }
        };
        if let Err(reason) = outcome {
            self.failed = Some(reason);
        }
    }

    /// Looks for the interpreter's handshake and, if there is one, answers `start` and hands a waiting program over.
    pub(super) fn advance(&mut self) {
        if let Some(process) = &mut self.process {
            process.check_ready();
        }
        self.answer_start();
        if let Err(reason) = self.hand_over() {
            self.failed = Some(reason);
        }
    }

    /// Gives the waiting program to the interpreter if it stands.
    fn hand_over(&mut self) -> Result<(), String> {
        let Some(Run {
            program:
                Program::Code {
                    language,
                    source,
                    arguments,
                },
            cwd,
            environment,
            ..
        }) = &self.waiting
        else {
            return Ok(());
        };
        let (Some(setup), Some(active)) = (&self.setup, &self.active) else {
            return Ok(());
        };
        let started = setup.start.interpreter.as_ref().map(|interpreter| interpreter.language);
        let Some(process) = self.process.as_mut().filter(|_| started == Some(*language)) else {
            return Err(format!("no interpreter for {language:?} was started").to_lowercase());
        };
        match process.readiness {
            Readiness::Starting(_) => return Ok(()),
            Readiness::Broken => return Err("the interpreter did not come up".to_owned()),
            Readiness::Ready => {}
        }
        let cwd = resolve::cwd(&setup.place, cwd)?;
        let variables = resolve::variables(environment)?;
        process.lower(&active.limits, setup.start.identity)?;
        let cwd = std::os::unix::ffi::OsStrExt::as_bytes(cwd.as_os_str());
        process
            .payload
            .give(bootstrap::payload(cwd, arguments, &variables, source));
        process.payload.write();
        self.waiting = None;
        Ok(())
    }

    fn run_command(&mut self, run: &Run, argv: &[String], limits: &Effective) -> Result<(), String> {
        if let Some(idle) = self.process.take() {
            let killed = kill_everything(idle.unreaped(), self.reach());
            if killed.survivors > 0 {
                return Err("the interpreter that stood ready cannot be ended".to_owned());
            }
        }
        let Some(setup) = &self.setup else {
            return Ok(());
        };
        let cwd = resolve::cwd(&setup.place, &run.cwd)?;
        let mut environment = resolve::variables(&setup.start.environment)?;
        let added = resolve::variables(&run.environment)?;
        environment.retain(|(name, _)| added.iter().all(|(other, _)| other != name));
        environment.extend(added);
        environment.extend(resolve::reserved(&setup.place));
        let search = environment
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.as_str());
        let program = resolve::command(argv, &cwd, search)?;
        let launch = Launch {
            program,
            name: argv.first().cloned().unwrap_or_default().into(),
            arguments: argv.iter().skip(1).map(Into::into).collect(),
            environment,
            cwd,
            stdin: Stdin::Null,
        };
        let child = spawn(launch, setup.recipe(limits, Duration::ZERO)?)?;
        self.process = Some(Process::new(child, Readiness::Ready, limits.output_bytes));
        self.owes_ready = false;
        Ok(())
    }

    /// Ends the run on the owner's word, or an idle sandbox.
    pub(super) fn cancel(&mut self) {
        match &mut self.active {
            Some(active) => {
                active.verdict.get_or_insert(Exit::Cancelled);
            }
            None => self.failed = Some("cancelled before the run".to_owned()),
        }
    }

    fn reject(&mut self, message: String) {
        self.tell(&FromRunner::Rejected(Rejected {
            nonce: self.nonce.clone(),
            message,
        }));
    }
}

/// SHA-256 (hex) of the program: of the source text, or of the argv joined by NUL.
fn digest(program: &Program) -> String {
    let hash = match program {
        Program::Code { source, .. } => Sha256::digest(source),
        Program::Command { argv } => Sha256::digest(argv.join("\0")),
    };
    hex(&hash)
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
