//! The steps of `start`: folders, limits, recipe of the locks.

use std::path::PathBuf;

use super::memory::KillCounter;
use super::resolve;
use crate::bootstrap;
use crate::files::{RunFolders, Staged};
use crate::locks::{Effective, Kernel, LandlockReached, PathRules, Quota, Recipe, START_CPU, check_identity};
use crate::process::{Child, Launch, NoChild, Stdin, WaitingChild, spawn};
use crate::protocol::{Locks, Run, Start, Watch, WorkBound};

/// The sandbox of one run, before and while it runs.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) start: Start,
    pub(super) limits: Effective,
    pub(super) folders: RunFolders,
    pub(super) staged: Staged,
    /// Found before there is a program that waits.
    pub(super) kills: KillCounter,
    kernel: Kernel,
}

impl Setup {
    /// Makes the directories.
    ///
    /// Errors: in one line, for `not_started`.
    pub(super) fn new(mut start: Start, kernel: Kernel) -> Result<Self, String> {
        for name in std::mem::take(&mut start.inherit) {
            if let Ok(value) = std::env::var(&name) {
                start.environment.insert(name, value);
            }
        }
        start.identity.map_or(Ok(()), check_identity)?;
        let limits = Effective::of_start(&start.limits);
        let quota = quota(start.watch).filter(|_| kernel.mounts);
        let mut folders = RunFolders::make(&start.directory, start.identity, quota)?;
        if folders.bound == WorkBound::Outside && is_watched(start.watch) {
            folders.bound = WorkBound::Watched;
        }
        Ok(Self {
            start,
            limits,
            folders,
            staged: Staged::default(),
            kills: KillCounter::find(),
            kernel,
        })
    }

    /// The limits that the runner watches.
    pub(super) fn watched(&self) -> Watch {
        match self.folders.bound {
            WorkBound::Watched | WorkBound::Outside => self.start.watch,
            // Full at the same numbers.
            WorkBound::Mounted => Watch {
                work_files: None,
                work_bytes: None,
                ..self.start.watch
            },
        }
    }

    /// The locks of a child of this sandbox.
    pub(super) fn locks(&self, landlock: LandlockReached) -> Locks {
        Locks {
            seccomp: true,
            landlock: landlock.state,
            landlock_abi: landlock.abi,
            work: self.folders.bound,
        }
    }

    /// Starts the interpreter ahead, if there is one.
    pub(super) fn start_ahead(&self) -> Result<Option<Child>, NoChild> {
        let Some(interpreter) = &self.start.interpreter else {
            return Ok(None);
        };
        let mut environment = resolve::variables(&self.start.environment)?;
        environment.extend(resolve::reserved(&self.folders));
        let launch = Launch {
            program: PathBuf::from(&interpreter.path),
            name: interpreter.path.clone().into(),
            arguments: bootstrap::arguments(interpreter),
            environment,
            cwd: self.folders.work_path.clone(),
        };
        spawn(&launch, Stdin::Pipe, self.recipe(&self.limits)?).map(Some)
    }

    /// Starts a child that waits for a command.
    pub(super) fn stand_by(&self) -> Result<WaitingChild, NoChild> {
        let limits = Effective {
            // The limit in the settings is the interpreter's; a command's comes with the command.
            address_space_bytes: None,
            ..self.limits
        };
        WaitingChild::fork(self.recipe(&limits)?, Stdin::Null)
    }

    /// The program of a command.
    ///
    /// Errors: it cannot be found, or there is no such directory; the texts go to the model.
    pub(super) fn launch(&self, run: &Run, argv: &[String]) -> Result<Launch, NoChild> {
        let cwd = resolve::cwd(&self.folders, &run.cwd).map_err(NoChild::OfProgram)?;
        let mut environment = resolve::variables(&self.start.environment)?;
        let added = resolve::variables(&run.environment).map_err(NoChild::OfProgram)?;
        environment.retain(|(name, _)| added.iter().all(|(other, _)| other != name));
        environment.extend(added);
        environment.extend(resolve::reserved(&self.folders));
        let search = environment
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.as_str());
        Ok(Launch {
            program: resolve::command(argv, &cwd, search).map_err(NoChild::OfProgram)?,
            name: argv.first().cloned().unwrap_or_default().into(),
            arguments: argv.iter().skip(1).map(Into::into).collect(),
            environment,
            cwd,
        })
    }

    /// The locks of a child of this sandbox. It starts ahead, so it has the CPU time for that.
    fn recipe(&self, limits: &Effective) -> Result<Recipe, String> {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let mut rules = PathRules {
            read: paths(&self.start.read),
            execute: paths(&self.start.execute),
            write: paths(&self.start.write),
        };
        rules.execute.push(self.folders.skills_path.clone());
        rules.write.push(self.folders.work_path.clone());
        let rlimits = limits.rlimits(START_CPU);
        Recipe::prepare(&rules, self.start.landlock, self.start.identity, rlimits, self.kernel)
    }
}

fn is_watched(watch: Watch) -> bool {
    watch.work_files.is_some() || watch.work_bytes.is_some()
}

/// The size of a file system for the work directory; it needs both numbers.
fn quota(watch: Watch) -> Option<Quota> {
    Some(Quota {
        bytes: watch.work_bytes?,
        files: watch.work_files?,
    })
}
