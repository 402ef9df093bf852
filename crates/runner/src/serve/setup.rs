//! What `start` builds: place, limits, recipe of the locks.

use std::path::PathBuf;
use std::time::Duration;

use super::memory::KillCounter;
use super::resolve;
use crate::bootstrap;
use crate::files::{Place, Staged};
use crate::locks::{Effective, PathRules, Recipe, START_CPU, check_identity};
use crate::process::{Child, Launch, Stdin, spawn};
use crate::protocol::Start;

/// The sandbox of one run, before and while it runs.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) start: Start,
    pub(super) limits: Effective,
    pub(super) place: Place,
    pub(super) staged: Staged,
    /// Found before there is a program that waits.
    pub(super) kills: KillCounter,
}

impl Setup {
    /// Makes the directories.
    ///
    /// Errors: in one line, for `not_started`.
    pub(super) fn new(mut start: Start) -> Result<Self, String> {
        for name in std::mem::take(&mut start.inherit) {
            if let Ok(value) = std::env::var(&name) {
                start.environment.insert(name, value);
            }
        }
        start.identity.map_or(Ok(()), check_identity)?;
        let limits = Effective::of_start(&start.limits);
        let place = Place::make(&start.directory, start.identity)?;
        Ok(Self {
            start,
            limits,
            place,
            staged: Staged::default(),
            kills: KillCounter::find(),
        })
    }

    /// Starts the interpreter ahead, if there is one.
    pub(super) fn start_ahead(&self) -> Result<Option<Child>, String> {
        let Some(interpreter) = &self.start.interpreter else {
            return Ok(None);
        };
        let mut environment = resolve::variables(&self.start.environment)?;
        environment.extend(resolve::reserved(&self.place));
        let launch = Launch {
            program: PathBuf::from(&interpreter.path),
            name: interpreter.path.clone().into(),
            arguments: bootstrap::arguments(interpreter),
            environment,
            cwd: self.place.work_path.clone(),
            stdin: Stdin::Pipe,
        };
        spawn(launch, self.recipe(&self.limits, START_CPU)?).map(Some)
    }

    /// The locks of a child of this sandbox.
    pub(super) fn recipe(&self, limits: &Effective, start_cpu: Duration) -> Result<Recipe, String> {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let mut rules = PathRules {
            read: paths(&self.start.read),
            execute: paths(&self.start.execute),
            write: paths(&self.start.write),
        };
        rules.execute.push(self.place.skills_path.clone());
        rules.write.push(self.place.work_path.clone());
        let rlimits = limits.rlimits(start_cpu);
        Recipe::prepare(&rules, self.start.landlock, self.start.identity, rlimits)
    }
}
