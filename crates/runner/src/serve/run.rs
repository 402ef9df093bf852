//! A run in progress, or a child that is ready for one.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::capture::Capture;
use super::memory::KillCounter;
use super::watch::Watcher;
use crate::bootstrap::READY;
use crate::locks::{Effective, lower_limits};
use crate::process::Child;
use crate::protocol::{Exit, Identity, Locks, OutputStream};

/// More orphans than this in one check are a program that forks without end; honest ones make a few.
const BUSY_ORPHANS: u32 = 8;

/// The child and its pipes.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) locks: Locks,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    pub(super) payload: Payload,
    pub(super) readiness: Readiness,
    /// Many orphans ended since the last check: check again soon.
    pub(super) makes_orphans: bool,
    /// Set once the main process was reaped.
    pub(super) status: Option<WaitStatus>,
}

/// Whether an interpreter waits for its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Its handshake has not come.
    Starting(Instant),
    /// It waits, or runs.
    Ready,
    /// It wrote something else.
    Broken,
}

/// The program on its way to the bootstrap.
#[derive(Debug, Default)]
pub(super) struct Payload {
    /// `None` when all was written or the reader is gone.
    pub(super) pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    written: usize,
    /// There is a program: the pipe closes after it.
    pub(super) is_given: bool,
}

impl Payload {
    pub(super) fn give(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.is_given = true;
    }

    /// Writes what fits and closes the pipe at the end; a child that does not read loses it.
    pub(super) fn write(&mut self) {
        while let Some(pipe) = &self.pipe {
            let waiting = self.bytes.get(self.written..).unwrap_or_default();
            if waiting.is_empty() {
                self.pipe = None;
                self.bytes = Vec::new();
                return;
            }
            match rustix::io::write(pipe, waiting) {
                Ok(count) => self.written += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}

impl Process {
    /// Takes a child over.
    pub(super) fn new(child: Child, locks: Locks, readiness: Readiness, output_bytes: u64) -> Self {
        let pipe = child.stdin.filter(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_ok());
        // The handshake is no output, but it goes through the same capture.
        let room = if readiness == Readiness::Ready {
            output_bytes
        } else {
            output_bytes + READY.len() as u64
        };
        Self {
            pid: child.pid,
            pidfd: child.pidfd,
            locks,
            stdout: Capture::new(Some(child.stdout), OutputStream::Stdout, room),
            stderr: Capture::new(Some(child.stderr), OutputStream::Stderr, output_bytes),
            payload: Payload {
                pipe,
                ..Payload::default()
            },
            readiness,
            makes_orphans: false,
            status: None,
        }
    }

    /// Reads the handshake, if it is there.
    pub(super) fn check_ready(&mut self) {
        if matches!(self.readiness, Readiness::Starting(_)) {
            match self.stdout.strip(READY) {
                Some(true) => self.readiness = Readiness::Ready,
                Some(false) => self.readiness = Readiness::Broken,
                None => {}
            }
        }
    }

    /// Reaps every process that has ended: the main process and orphans, whose zombies would fill the pids limit.
    pub(super) fn reap(&mut self) {
        let mut orphans = 0;
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => self.status = Some(status),
                Ok(Some(_)) => orphans += 1,
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.makes_orphans = orphans > BUSY_ORPHANS;
    }

    /// The main process, as long as its number is its own.
    pub(super) fn unreaped(&self) -> Option<Pid> {
        self.status.is_none().then_some(self.pid)
    }

    /// Lowers the limits that depend on the request, from outside.
    ///
    /// Errors: a limit cannot be set; the program must not get the child then.
    pub(super) fn lower(&mut self, limits: &Effective, identity: Option<Identity>) -> Result<(), String> {
        self.stdout.set_cap(limits.output_bytes);
        self.stderr.set_cap(limits.output_bytes);
        lower(self.pid, limits, identity)
    }

    /// Ends a process that has run nothing. It is reaped with the orphans.
    pub(super) fn kill(self) -> Option<Pid> {
        let pid = self.unreaped()?;
        // It may have ended by itself, which is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        Some(pid)
    }
}

/// Lowers the limits of a child that was started ahead to those of the request.
///
/// Errors: a limit cannot be set; the program must not get the child then.
pub(super) fn lower(pid: Pid, limits: &Effective, identity: Option<Identity>) -> Result<(), String> {
    lower_limits(pid, identity, &limits.rlimits(cpu_used(pid)))
        .map_err(|error| format!("limits: {}", std::io::Error::from(error)))
}

/// The CPU time a process has used; zero where the kernel does not report it.
fn cpu_used(pid: Pid) -> Duration {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let nanoseconds = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The run itself.
#[derive(Debug)]
pub(super) struct ActiveRun {
    pub(super) id: String,
    /// The request.
    pub(super) digest: String,
    pub(super) limits: Effective,
    pub(super) began: Instant,
    pub(super) watcher: Watcher,
    pub(super) kills: KillCounter,
    /// Why the runner ended it, once it has decided to.
    pub(super) early_end: Option<Exit>,
}

impl ActiveRun {
    pub(super) fn deadline(&self) -> Instant {
        self.began + self.limits.timeout
    }
}
