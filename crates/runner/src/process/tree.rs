//! The tree of the run: every process that descends from the runner.
//!
//! The runner is PID 1 or a subreaper, so whatever detaches is still its descendant.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

/// How long the killing may take. 300 processes that fork again and again are gone after 60 ms (measured); the bound is
/// there because a loop without one is a way to hang the runner.
const KILL_BOUND: Duration = Duration::from_secs(30);

/// What the tree holds at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Anonymous and shared memory of all processes; pages of files are not counted.
    pub(crate) memory_bytes: u64,
    /// Threads of all processes.
    pub(crate) threads: u64,
}

/// Adds up the tree. Processes that end meanwhile count as nothing.
pub(crate) fn sample() -> Sample {
    let mut total = Sample::default();
    for pid in descendants() {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        for line in status.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            match name {
                "RssAnon:" | "RssShmem:" => total.memory_bytes += value * 1024,
                "Threads:" => total.threads += value,
                _ => {}
            }
        }
    }
    total
}

/// Every descendant of the runner, parents before children.
fn descendants() -> Vec<u32> {
    let mut found = children_of(std::process::id());
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children_of(pid));
        next += 1;
    }
    found
}

/// The children of one process, of all its threads. Empty where the kernel does not tell.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        if let Ok(line) = std::fs::read_to_string(thread.path().join("children")) {
            children.extend(
                line.split_ascii_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            );
        }
    }
    children
}

/// Kills every process of the run and reaps until there is none.
///
/// Returns the status of `main` if it was reaped here, and how many other processes there were.
pub(crate) fn kill_everything(main: Pid) -> (Option<WaitStatus>, u64) {
    let deadline = Instant::now() + KILL_BOUND;
    let mut main_status = None;
    let mut others = 0;
    // The group first: one call, no race inside it.
    let _ = rustix::process::kill_process_group(main, Signal::KILL);
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => main_status = Some(status),
            Ok(Some(_)) => others += 1,
            Ok(None) if Instant::now() < deadline => kill_round(),
            Err(rustix::io::Errno::INTR) => {}
            // ECHILD: nobody is left.
            Ok(None) | Err(_) => return (main_status, others),
        }
    }
}

/// Kills whoever is there now, then lets them die: on one CPU a busy loop would take the time they need for it.
fn kill_round() {
    if std::process::id() == 1 {
        // As PID 1 of its namespace the runner reaches everybody at one moment.
        drop(kill_all());
    } else {
        for pid in descendants() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
    let pause = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 200_000,
    };
    let _ = rustix::event::poll(&mut [], Some(&pause));
}

#[expect(unsafe_code, reason = "rustix has no kill(-1)")]
fn kill_all() -> std::io::Result<()> {
    // SAFETY: kill touches no memory. It is called by PID 1 only, so it reaches its own namespace and not the host.
    let outcome = unsafe { libc::kill(-1, libc::SIGKILL) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
