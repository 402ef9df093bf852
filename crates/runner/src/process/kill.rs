//! Ends a run: none of its processes is left.
//!
//! A process that dies of SIGKILL makes no more children: the kernel looks for a pending kill under the lock under which
//! it adds the child. So one `kill(-1)` ends any number of processes at one moment, and a walk over the children misses
//! only those that were born between its scan and its kill.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::nap::nap;
use super::tree::children;
use super::uid::{fork_killer, kill_all};
use crate::protocol::{Identity, KILL_BOUND_MS};

/// Processes reaped in a row before the next kill: a run that forks without end always has another one to reap.
const REAPS_PER_STRIKE: usize = 1000;
/// Walks over the children without a pause between them. The other CPUs are all that can escape a walk, and the next
/// one has them.
const WALKS_IN_A_ROW: u32 = 4;
/// The first pause: on one CPU a busy loop would take the time that the dying need.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest pause.
const LAST_PAUSE: Duration = Duration::from_millis(5);

/// Whom the runner reaches at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillScope {
    /// It is PID 1: everybody in its namespace.
    Namespace,
    /// Everybody with the uid that this run has for itself.
    Uid(Identity),
    /// The children, one by one. The runner is a subreaper, so a process that loses its parent becomes a child.
    Children,
}

impl KillScope {
    /// The widest reach that stays inside the run.
    pub(crate) fn of(identity: Option<Identity>) -> Self {
        match identity {
            _ if std::process::id() == 1 => Self::Namespace,
            Some(identity) if identity.exclusive => Self::Uid(identity),
            _ => Self::Children,
        }
    }
}

/// The result of the killing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KillResult {
    /// The status of the main process if it was reaped here.
    pub(crate) main: Option<WaitStatus>,
    /// Other processes that were reaped here.
    pub(crate) others: u64,
    /// Processes that still live after [`KILL_BOUND_MS`].
    pub(crate) survivors: u64,
}

/// Kills every process of the run and reaps until there is none.
///
/// `main` is the main process if it was not reaped yet: the kernel may have reused the pid of a reaped process. Those of
/// `dismissed` are not counted: they were the runner's own.
pub(crate) fn kill_everything(main: Option<Pid>, dismissed: &[Pid], kill_scope: KillScope) -> KillResult {
    let deadline = Instant::now() + Duration::from_millis(KILL_BOUND_MS);
    let mut result = KillResult::default();
    let mut killer = Killer::new(kill_scope);
    if let Some(main) = main {
        // The group first: it holds everybody that did not detach.
        let _ = rustix::process::kill_process_group(main, Signal::KILL);
    }
    while reap(main, dismissed, &mut killer, &mut result) {
        if Instant::now() >= deadline {
            result.survivors = (children().len() as u64).max(1);
            return result;
        }
        killer.strike();
    }
    result
}

/// Reaps the processes that have ended. Returns whether any may be left.
fn reap(main: Option<Pid>, dismissed: &[Pid], killer: &mut Killer, result: &mut KillResult) -> bool {
    for _ in 0..REAPS_PER_STRIKE {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if status.stopped() => killer.stopped(pid),
            Ok(Some((pid, _))) if killer.is_helper(pid) => {}
            Ok(Some((pid, status))) if Some(pid) == main => result.main = Some(status),
            Ok(Some((pid, _))) if dismissed.contains(&pid) => {}
            Ok(Some(_)) => result.others += 1,
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            // ECHILD: no child is left.
            Err(_) => return false,
        }
    }
    true
}

/// Kills in rounds.
#[derive(Debug)]
struct Killer {
    kill_scope: KillScope,
    /// A process of the runner that has the run's uid and kills.
    helper: Option<Pid>,
    walks: u32,
    pause: Duration,
}

impl Killer {
    fn new(kill_scope: KillScope) -> Self {
        Self {
            kill_scope,
            helper: None,
            walks: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Kills all processes that exist, then waits for their end.
    fn strike(&mut self) {
        match self.kill_scope {
            // SIGKILL to everybody but PID 1, which is the caller.
            KillScope::Namespace => drop(kill_all()),
            KillScope::Uid(identity) => {
                if self.helper.is_none() {
                    self.helper = fork_killer(identity);
                }
                // No process to be had, which is what a fork bomb is for.
                if self.helper.is_none() {
                    kill_children(None);
                }
            }
            KillScope::Children => {
                kill_children(None);
                self.walks += 1;
                if !self.walks.is_multiple_of(WALKS_IN_A_ROW) {
                    return;
                }
            }
        }
        nap(self.pause);
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    /// Whether this is the helper, which has then ended.
    fn is_helper(&mut self, pid: Pid) -> bool {
        self.helper.take_if(|helper| *helper == pid).is_some()
    }

    /// Where the kernel keeps no signals inside the run, the run can stop the helper, which has its uid. The next one
    /// needs two syscalls to be faster.
    fn stopped(&mut self, pid: Pid) {
        if self.helper == Some(pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            kill_children(Some(pid));
        }
    }
}

/// Kills the children that are there now, but one.
fn kill_children(but: Option<Pid>) {
    for pid in children() {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|pid| Some(*pid) != but) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
