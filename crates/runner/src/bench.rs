//! Entry points for the bench of the locks; no other use.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::locks::{Effective, Kernel, PathRules, Recipe};
use crate::process::{Launch, Stdin, spawn};
use crate::protocol::{Landlock, Limits};

/// The program of both sides: small, and there on every machine.
const PROGRAM: &str = "/bin/true";

/// Runs the same program with and without the locks.
#[derive(Debug)]
pub struct Locks {
    work: PathBuf,
}

impl Default for Locks {
    fn default() -> Self {
        Self::new()
    }
}

impl Locks {
    /// Uses the system's temporary directory as the work directory.
    pub fn new() -> Self {
        Self {
            work: std::env::temp_dir(),
        }
    }

    /// Fork, exec and wait as std does it, with a `pre_exec` hook that does nothing so that both sides fork.
    pub fn bare(&self) -> Duration {
        let mut command = Command::new(PROGRAM);
        command.env_clear().current_dir(&self.work);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        before_exec(&mut command);
        let began = Instant::now();
        let child = command.spawn().expect("/bin/true is there");
        child.wait_with_output().expect("a child can be waited for");
        began.elapsed()
    }

    /// Fork, exec and wait as [`Self::bare`] does it, with every lock: rules opened, filters compiled, all applied.
    pub fn locked(&self) -> Duration {
        let rules = PathRules {
            read: vec!["/etc/ld.so.cache".into(), "/etc/localtime".into()],
            execute: ["/usr", "/lib", "/lib64", "/bin"].map(PathBuf::from).to_vec(),
            write: vec![self.work.clone()],
        };
        let rlimits = Effective::of_start(&Limits::default()).rlimits(Duration::ZERO);
        let launch = Launch {
            program: PROGRAM.into(),
            name: PROGRAM.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            cwd: self.work.clone(),
        };
        let began = Instant::now();
        let recipe = Recipe::prepare(&rules, Landlock::Required, None, rlimits, Kernel::default())
            .expect("the locks can be prepared");
        let child = spawn(&launch, Stdin::Null, recipe).expect("the locks hold");
        let mut rest = Vec::new();
        for pipe in [child.stdout, child.stderr] {
            std::fs::File::from(pipe)
                .read_to_end(&mut rest)
                .expect("a pipe can be read");
        }
        rustix::process::waitpid(Some(child.pid), rustix::process::WaitOptions::empty())
            .expect("a child can be waited for");
        began.elapsed()
    }
}

/// A hook that does nothing: with one, std forks as the runner does.
#[expect(unsafe_code, reason = "pre_exec is the hook between fork and exec")]
fn before_exec(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: the closure does nothing.
    unsafe {
        command.pre_exec(|| Ok(()));
    }
}
