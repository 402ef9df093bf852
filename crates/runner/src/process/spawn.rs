//! Starting the child: fork, locks, exec.
//!
//! Fork and not a second exec of the runner: the runner has one thread, so the child may allocate and call anything
//! before its exec, and a fork of this small process costs 0.1 ms where another exec costs 0.76 ms (measured).

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags};

use crate::locks::Recipe;
use crate::protocol::{LandlockState, Locks};

/// What to execute.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The absolute path of the binary.
    pub(crate) program: PathBuf,
    /// What the program sees as its own name.
    pub(crate) name: OsString,
    /// The arguments after the name.
    pub(crate) arguments: Vec<OsString>,
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The working directory.
    pub(crate) cwd: PathBuf,
    /// What the child reads.
    pub(crate) stdin: Stdin,
}

/// The child's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// A pipe, for a bootstrap that waits for its program.
    Pipe,
    /// Nothing.
    Null,
}

/// A running child with all its locks on.
#[derive(Debug)]
pub(crate) struct Child {
    /// The main process; reaped by whoever waits for it, once.
    pub(crate) pid: Pid,
    /// Readable when the main process has ended; absent where the kernel has no pidfds.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// What was reached.
    pub(crate) locks: Locks,
}

/// Starts the child.
///
/// Errors: one line that tells the lock that did not hold or why the program could not be executed. Nothing of the
/// program has run then.
pub(crate) fn spawn(launch: Launch, mut recipe: Recipe) -> Result<Child, String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let mut command = Command::new(&launch.program);
    command
        .arg0(&launch.name)
        .args(&launch.arguments)
        .env_clear()
        .envs(launch.environment)
        .current_dir(&launch.cwd)
        .stdin(if launch.stdin == Stdin::Pipe {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let locked = move || {
        let mut reached = None;
        let outcome = recipe.apply(|locks| reached = Some(locks));
        let line = match (&outcome, reached) {
            (Ok(()), Some(locks)) => encode(locks),
            (Ok(()), None) => String::new(),
            (Err(failure), _) => format!("-{failure}"),
        };
        writer.write_all(line.as_bytes())?;
        outcome.map_err(|_| std::io::Error::from_raw_os_error(libc::EPERM))
    };
    before_exec(&mut command, locked);
    let spawned = command.spawn();
    // The closure holds the child's end of the pipe; without this the read below would wait for ourselves.
    drop(command);
    let mut line = String::new();
    reader
        .read_to_string(&mut line)
        .map_err(|error| format!("lock report: {error}"))?;
    let mut child = match (spawned, line.strip_prefix('-')) {
        (_, Some(failure)) => return Err(format!("a lock does not hold: {failure}")),
        (Err(error), None) => {
            return Err(format!("cannot execute {}: {error}", launch.program.display()));
        }
        (Ok(child), None) => child,
    };
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("the child has no pid")?;
    let Some(locks) = decode(&line) else {
        // Fail closed: a child whose locks are unknown does not run.
        child
            .kill()
            .and_then(|()| child.wait().map(drop))
            .map_err(|error| format!("kill: {error}"))?;
        return Err("the child did not report its locks".to_owned());
    };
    Ok(Child {
        pid,
        pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok(),
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
        locks,
    })
}

#[expect(unsafe_code, reason = "pre_exec is the hook between fork and exec")]
pub(crate) fn before_exec(command: &mut Command, locked: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the runner has one thread, so no lock of another thread can be held at the fork, and the closure may
    // allocate and write. It touches only its own data.
    unsafe {
        command.pre_exec(locked);
    }
}

/// One line for the pipe: state and ABI.
fn encode(locks: Locks) -> String {
    let state = match locks.landlock {
        LandlockState::FullyEnforced => 'f',
        LandlockState::PartiallyEnforced => 'p',
        LandlockState::NotEnforced => 'n',
    };
    format!("{state}{}", locks.landlock_abi)
}

fn decode(line: &str) -> Option<Locks> {
    let mut characters = line.chars();
    let landlock = match characters.next()? {
        'f' => LandlockState::FullyEnforced,
        'p' => LandlockState::PartiallyEnforced,
        'n' => LandlockState::NotEnforced,
        _ => return None,
    };
    Some(Locks {
        seccomp: true,
        landlock,
        landlock_abi: characters.as_str().parse().ok()?,
    })
}
