//! The effects of the owner's frames.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::bounds::{MAX_BINDS, MAX_CONTEXT_BYTES, MAX_ID_BYTES, MAX_REASON_BYTES, MAX_REJECTED, MAX_STRANGERS};
use super::queue::OutQueue;
use super::resolve;
use super::run::{ActiveRun, Process, Readiness, lower};
use super::setup::Setup;
use super::watch::Watcher;
use crate::bootstrap;
use crate::files::stage;
use crate::locks::Kernel;
use crate::process::{KillScope, Launch, NoChild, WaitingChild, go_ahead};
use crate::protocol::{
    Bind, Bound, DecodeError, Exit, Files, FromRunner, LineRefusal, Locks, PROTOCOL, PROTOCOL_MIN, Program, Ready,
    Rejected, Run, RunnerLink, Start, Started, ToRunner, common_protocol, json_bytes, shorten,
};

/// An interpreter that has not come up by then will not.
pub(super) const START_BOUND: Duration = Duration::from_secs(30);

/// The state of the conversation.
#[derive(Debug, Default)]
pub(super) struct Session {
    kernel: Kernel,
    pub(super) out: OutQueue,
    pub(super) setup: Option<Setup>,
    /// The main process: an interpreter that waits or runs, or a command that runs.
    pub(super) process: Option<Process>,
    /// A locked child that waits for a command.
    pub(super) standby: Option<WaitingChild>,
    /// Children that were started ahead and not needed: they end, and count for no run.
    pub(super) dismissed: Vec<Pid>,
    /// A run of code that the interpreter does not have yet.
    waiting: Option<Run>,
    /// A command that the standby child does not have yet.
    order: Option<Order>,
    pub(super) active: Option<ActiveRun>,
    /// The answer to `start` is sent when the interpreter is ready.
    owes_ready: bool,
    /// Set when nothing can run any more: the result is due.
    pub(super) failed: Option<Exit>,
    /// When a run without an owner is killed.
    pub(super) orphaned: Option<Instant>,
    /// The pod is to end after the run.
    is_stopping: bool,
    /// Answers given so far, each of which has a bound.
    strangers: u32,
    binds: u32,
    rejected: u32,
}

/// A command that is about to begin.
#[derive(Debug)]
struct Order {
    launch: Launch,
    locks: Locks,
    output_bytes: u64,
}

impl Session {
    pub(super) fn new(kernel: Kernel) -> Self {
        let mut session = Self {
            kernel,
            ..Self::default()
        };
        session.send_frame(&ready(None));
        session
    }

    /// Puts a frame into the queue.
    pub(super) fn send_frame(&mut self, frame: &FromRunner) -> bool {
        self.out.send(frame)
    }

    /// Whether a program was asked for.
    pub(super) fn has_run(&self) -> bool {
        self.active.is_some()
    }

    /// Whom the runner kills at the end.
    pub(super) fn kill_scope(&self) -> KillScope {
        KillScope::of(self.setup.as_ref().and_then(|setup| setup.start.identity))
    }

    /// Nothing can run any more, for this reason.
    fn fail(&mut self, reason: &str) {
        self.failed = Some(not_started(reason));
    }

    /// Acts on one line of stdin.
    pub(super) fn take(&mut self, line: Result<&[u8], DecodeError>, now: Instant) {
        let Some(owner) = &mut self.out.link else {
            return self.take_unbound(line);
        };
        // A line that is too long is cut, so its mac cannot be verified.
        let Ok(line) = line else { return };
        match owner.read(line) {
            Ok(frame) => self.act(frame, now),
            Err(LineRefusal::Stranger) => {}
            Err(LineRefusal::Bind(_)) => self.answer_bind(),
            Err(LineRefusal::Malformed(what)) => self.reject(&format!("frame is malformed: {what}")),
            Err(LineRefusal::Lost { due, came }) => {
                let reason = format!("frame {due} of the owner is missing: frame {came} arrived instead");
                self.end(&reason);
            }
        }
    }

    /// Before there is an owner: the first `claim` makes one.
    fn take_unbound(&mut self, line: Result<&[u8], DecodeError>) {
        let found = line.map(serde_json::from_slice::<ToRunner>);
        if let Ok(Ok(ToRunner::Bind(bind))) = found {
            return self.bind(&bind);
        }
        // The sender of the line is unknown, so nothing of it goes into the log, not even the parser's error about it.
        let message = match found {
            Ok(Ok(_)) => "the runner is not bound".to_owned(),
            Ok(Err(_)) => format!("not a frame of protocol {PROTOCOL}, whose first is `claim` with a key"),
            Err(_) => "the line is too long".to_owned(),
        };
        if self.strangers < MAX_STRANGERS {
            self.strangers += 1;
            self.send_frame(&FromRunner::Rejected(Rejected { message }));
        }
    }

    fn bind(&mut self, bind: &Bind) {
        if common_protocol(&(PROTOCOL_MIN..=PROTOCOL), &(bind.protocol_min..=bind.protocol)).is_none() {
            if self.strangers < MAX_STRANGERS {
                self.strangers += 1;
                self.send_frame(&ready(None));
            }
            return;
        }
        self.out.link = Some(RunnerLink::new(&bind.key));
        self.answer_bind();
    }

    fn answer_bind(&mut self) {
        if self.binds < MAX_BINDS {
            self.binds += 1;
            self.send_frame(&FromRunner::Bound(Bound {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            }));
        }
    }

    fn act(&mut self, frame: ToRunner, now: Instant) {
        match frame {
            ToRunner::Bind(_) | ToRunner::Ack => {}
            ToRunner::Start(start) => self.start(start, now),
            ToRunner::Files(files) => self.files(&files),
            ToRunner::Run(run) => self.run(run, now),
            ToRunner::Cancel => self.end("cancelled before the run"),
        }
    }

    fn start(&mut self, start: Start, now: Instant) {
        if self.setup.is_some() {
            return self.reject("start: the sandbox was already started");
        }
        if let Some(journal) = start.journal
            && let Err(reason) = self.out.keep(journal)
        {
            return self.fail(&reason);
        }
        match self.build(start, now) {
            Ok(()) => {
                self.owes_ready = true;
                self.answer_start();
            }
            // There is no program of the run yet.
            Err(reason) => self.failed = Some(without_child(reason.of_sandbox())),
        }
    }

    /// Prepares the directories of the run and its children: an interpreter if one is asked for, and a child that waits
    /// for a command.
    fn build(&mut self, start: Start, now: Instant) -> Result<(), NoChild> {
        let setup = self.setup.insert(Setup::new(start, self.kernel)?);
        let output_bytes = setup.limits.output_bytes;
        if let Some(child) = setup.start_ahead()? {
            let locks = setup.locks(child.landlock);
            self.process = Some(Process::new(child, locks, Readiness::Starting(now), output_bytes));
        }
        if self.process.is_none() || setup.start.commands {
            self.standby = Some(setup.stand_by()?);
        }
        Ok(())
    }

    /// The locks that are on for every program.
    fn locks(&self) -> Option<Locks> {
        let of_standby = || {
            let (setup, standby) = (self.setup.as_ref()?, self.standby.as_ref()?);
            Some(setup.locks(standby.landlock()))
        };
        self.process.as_ref().map(|process| process.locks).or_else(of_standby)
    }

    /// Sends the second `ready` once the interpreter is ready, or if there is none.
    fn answer_start(&mut self) {
        let is_ready = self
            .process
            .as_ref()
            .is_none_or(|process| process.readiness == Readiness::Ready);
        if self.owes_ready && is_ready {
            self.owes_ready = false;
            self.send_frame(&ready(self.locks()));
        }
    }

    fn files(&mut self, files: &Files) {
        if self.active.is_some() {
            return self.reject("files: the run has begun");
        }
        let Some(setup) = &mut self.setup else {
            return self.reject("files: there was no start");
        };
        for file in &files.files {
            if let Err(reason) = stage(&setup.folders, files.area, file, &mut setup.staged) {
                // Without the file the program would fail with an unrelated error.
                return self.fail(&reason);
            }
        }
    }

    fn run(&mut self, run: Run, now: Instant) {
        if self.active.is_some() {
            return self.reject("run: this runner has already run a program");
        }
        let (Some(setup), Some(link)) = (&self.setup, &self.out.link) else {
            return self.reject("run: there was no start");
        };
        for (what, text, limit) in [
            ("id", &run.id, MAX_ID_BYTES),
            ("context", &run.context, MAX_CONTEXT_BYTES),
        ] {
            if json_bytes(text) > limit as u64 {
                return self.reject(&format!("run: the {what} is longer than {limit} bytes"));
            }
        }
        go_ahead();
        let mut limits = setup.limits;
        if matches!(run.program, Program::Command { .. }) {
            // The limit that is set here is that of the interpreter that started ahead.
            limits.address_space_bytes = None;
        }
        self.active = Some(ActiveRun {
            id: run.id.clone(),
            digest: link.request_digest(),
            limits: limits.lowered(&run.limits),
            began: now,
            watcher: Watcher::start(setup.watched(), now),
            kills: setup.kills.clone().started(),
            early_end: None,
        });
        let started = match &run.program {
            Program::Command { argv } => self.run_command(&run, argv),
            Program::Code { .. } => self.run_code(run),
        };
        if let Err(reason) = started {
            self.failed = Some(without_child(reason));
        }
    }

    /// Says that the run begins, if it may with the locks that hold.
    fn begin(&mut self, run: &Run, locks: Locks) -> Result<(), NoChild> {
        if locks.landlock_abi < run.require_landlock {
            return Err(NoChild::LocksMissing(format!(
                "the run needs Landlock ABI {}, this kernel has {}",
                run.require_landlock,
                match locks.landlock_abi {
                    0 => "none".to_owned(),
                    abi => format!("ABI {abi}"),
                }
            )));
        }
        let digest = self.active.as_ref().map(|active| active.digest.clone());
        self.send_frame(&FromRunner::Started(Started {
            id: run.id.clone(),
            digest: digest.unwrap_or_default(),
            locks,
            context: run.context.clone(),
        }));
        Ok(())
    }

    fn run_code(&mut self, run: Run) -> Result<(), NoChild> {
        // It ends by itself: it will get no command.
        self.dismissed.extend(self.standby.take().map(|standby| standby.pid()));
        if let Some(process) = &self.process {
            self.begin(&run, process.locks)?;
        }
        self.waiting = Some(run);
        Ok(())
    }

    /// Reads the interpreter's handshake and, if there is one, answers `start`. Hands a waiting program over once
    /// everything is written, `started` included: an owner that finds no `started` where a runner has died may run the
    /// program in another sandbox.
    pub(super) fn advance(&mut self) {
        if let Some(process) = &mut self.process {
            process.check_ready();
        }
        self.answer_start();
        if self.out.is_empty()
            && let Err(reason) = self.hand_over().and_then(|()| self.execute())
        {
            self.failed = Some(without_child(reason));
        }
    }

    /// Gives the waiting program to the interpreter if that is ready.
    fn hand_over(&mut self) -> Result<(), NoChild> {
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
            return Err(format!("no interpreter for {language:?} was started")
                .to_lowercase()
                .into());
        };
        match process.readiness {
            Readiness::Starting(_) => return Ok(()),
            Readiness::Broken => return Err("the interpreter did not start".to_owned().into()),
            Readiness::Ready => {}
        }
        let cwd = resolve::cwd(&setup.folders, cwd).map_err(NoChild::OfProgram)?;
        let variables = resolve::variables(environment).map_err(NoChild::OfProgram)?;
        process.lower(&active.limits, setup.start.identity)?;
        let cwd = std::os::unix::ffi::OsStrExt::as_bytes(cwd.as_os_str());
        process
            .payload
            .give(bootstrap::payload(cwd, arguments, &variables, source));
        process.payload.write();
        self.waiting = None;
        Ok(())
    }

    /// Prepares a command and says that it begins.
    fn run_command(&mut self, run: &Run, argv: &[String]) -> Result<(), NoChild> {
        let (Some(setup), Some(active)) = (&self.setup, &self.active) else {
            return Ok(());
        };
        let (limits, identity) = (active.limits, setup.start.identity);
        let launch = setup.launch(run, argv)?;
        let standby = match self.standby.take() {
            Some(standby) => standby,
            None => setup.stand_by()?,
        };
        let locks = setup.locks(standby.landlock());
        lower(standby.pid(), &limits, identity)?;
        self.standby = Some(standby);
        self.begin(run, locks)?;
        // It is locked and has nothing to run: its end need not be awaited.
        self.dismissed.extend(self.process.take().and_then(Process::kill));
        self.owes_ready = false;
        self.order = Some(Order {
            launch,
            locks,
            output_bytes: limits.output_bytes,
        });
        Ok(())
    }

    /// Gives the waiting command to the standby child.
    fn execute(&mut self) -> Result<(), NoChild> {
        let Some(order) = self.order.take() else { return Ok(()) };
        let standby = self
            .standby
            .take()
            .ok_or_else(|| "no child waits for a command".to_owned())?;
        let child = standby.exec(&order.launch)?;
        self.process = Some(Process::new(child, order.locks, Readiness::Ready, order.output_bytes));
        Ok(())
    }

    /// The pod is to end. Returns whether the runner may go at once: nothing runs. Else the run ends as it would have; asked
    /// twice, it is cancelled.
    pub(super) fn stop(&mut self) -> bool {
        let Some(active) = &mut self.active else { return true };
        if std::mem::replace(&mut self.is_stopping, true) {
            active.early_end.get_or_insert(Exit::Cancelled);
        }
        false
    }

    /// Ends the run on the owner's word, or an idle sandbox, for this reason.
    pub(super) fn end(&mut self, reason: &str) {
        match &mut self.active {
            Some(active) => {
                active.early_end.get_or_insert(Exit::Cancelled);
            }
            None => self.fail(reason),
        }
    }

    fn reject(&mut self, message: &str) {
        if self.rejected < MAX_REJECTED {
            self.rejected += 1;
            self.send_frame(&FromRunner::Rejected(Rejected {
                message: shorten(message, MAX_REASON_BYTES),
            }));
        }
    }
}

fn ready(locks: Option<Locks>) -> FromRunner {
    FromRunner::Ready(Ready {
        protocol_min: Some(PROTOCOL_MIN),
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        locks,
    })
}

/// The sandbox failed before the program began.
pub(super) fn not_started(reason: &str) -> Exit {
    Exit::NotStarted {
        reason: shorten(reason, MAX_REASON_BYTES),
        of_program: Some(false),
    }
}

fn without_child(reason: NoChild) -> Exit {
    match reason {
        NoChild::LocksMissing(reason) => Exit::LocksMissing {
            reason: shorten(&reason, MAX_REASON_BYTES),
        },
        NoChild::OfProgram(reason) => Exit::NotStarted {
            reason: shorten(&reason, MAX_REASON_BYTES),
            of_program: Some(true),
        },
        NoChild::Failed(reason) => not_started(&reason),
    }
}
