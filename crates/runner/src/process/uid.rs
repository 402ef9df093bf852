//! Ending everything that one uid runs.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::nap::nap;
use super::priority::go_ahead;
use crate::locks::{check_identity, drop_to};
use crate::protocol::{Identity, KILL_BOUND_MS};

/// Pause between two checks for processes that are still dying.
const PAUSE: Duration = Duration::from_millis(1);

/// Forks a process that takes the identity, kills all other processes that have it, and exits.
///
/// A separate process, because the runner must never have the run's uid: the run could then signal it. `None`: no
/// process could be created.
#[expect(unsafe_code, reason = "neither std nor rustix has fork")]
pub(super) fn fork_killer(identity: Identity) -> Option<Pid> {
    // SAFETY: the runner has one thread, so the child may call anything; it ends by _exit and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Not inherited.
        go_ahead();
        let outcome = drop_to(identity).is_ok() && kill_all().is_ok();
        // SAFETY: ends the process without touching what it shares with the runner.
        unsafe { libc::_exit(i32::from(!outcome)) }
    }
    Pid::from_raw(pid.max(0))
}

/// SIGKILL for everybody the caller may signal, but not itself and PID 1.
///
/// Called by PID 1 of a namespace or by a process that has given up everything but the uid of a run.
#[expect(unsafe_code, reason = "rustix has no kill(-1)")]
pub(super) fn kill_all() -> std::io::Result<()> {
    // SAFETY: kill touches no memory.
    let outcome = unsafe { libc::kill(-1, libc::SIGKILL) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Takes the uid (and the gid of the same number) permanently and ends every other process that has it; for an owner
/// whose runner was killed before it could.
///
/// Returns whether none is left; zombies that their parent has not reaped count as gone. Errors: one line; no process
/// was killed then.
pub fn end_uid(uid: u32) -> Result<bool, String> {
    let identity = Identity {
        uid,
        gid: uid,
        exclusive: true,
    };
    check_identity(identity)?;
    go_ahead();
    drop_to(identity).map_err(|failure| failure.to_string())?;
    let deadline = Instant::now() + Duration::from_millis(KILL_BOUND_MS);
    loop {
        // ESRCH: there is no such process, not even a zombie.
        if kill_all().is_err() || !anyone_lives(uid) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        nap(PAUSE);
    }
}

/// Whether a process other than the caller has the uid and is no zombie.
fn anyone_lives(uid: u32) -> bool {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
            pid.is_some_and(|pid| pid != own)
        })
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok())
        .any(|status| {
            let value = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_ascii_whitespace().next()
            };
            // The real uid: what the caller, which has no capability, may signal.
            value("Uid:").is_some_and(|real| real.parse() == Ok(uid)) && !matches!(value("State:"), Some("Z" | "X"))
        })
}
