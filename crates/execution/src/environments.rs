//! Which environment of packages the runs of a skill get.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::{ExecutionError, ExecutionRequest};

/// A read-only virtual environment of Python, with packages of Node beside it.
#[derive(Debug)]
pub struct Environment {
    /// The environment's key.
    pub key: String,
    /// The folder; a run may read and execute what is below it.
    pub root: PathBuf,
    /// The environment's interpreter.
    pub python: PathBuf,
    /// Console scripts.
    pub bin: PathBuf,
    /// Packages of Node, below `root`, if it has any: a folder that is a `node_modules`.
    pub node_modules: Option<PathBuf>,
    /// Held as long as runs may use it: it is not removed meanwhile.
    pub in_use: File,
}

/// The state of a skill's packages.
#[derive(Debug, Clone)]
pub enum EnvironmentState {
    /// It has none: its runs get what every run gets.
    Base,
    /// Its runs get this environment.
    Ready(Arc<Environment>),
    /// Its runs are refused: one line for the model.
    Refused(String),
}

/// The state of every skill that is known, by [`environment_id`](knack_skill::model::Skill::environment_id). Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Environments(Arc<RwLock<HashMap<String, EnvironmentState>>>);

impl PartialEq for Environments {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Environments {}

impl Environments {
    /// Sets the state of a skill.
    pub fn set(&self, id: &str, state: EnvironmentState) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(id.to_owned(), state);
    }

    /// Forgets every skill but these.
    pub fn keep(&self, ids: &BTreeSet<String>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|id, _| ids.contains(id));
    }

    /// The environment of a run: that of the skill it names. Code that names none has none.
    ///
    /// Errors: the skill's packages are not there.
    pub(super) fn of(&self, request: &ExecutionRequest) -> Result<Option<Arc<Environment>>, ExecutionError> {
        let Some(skill) = &request.skill else { return Ok(None) };
        let Some(mount) = request.mounts.iter().find(|mount| mount.skill.id == *skill) else {
            return Ok(None);
        };
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match all.get(&mount.skill.environment_id()) {
            None | Some(EnvironmentState::Base) => Ok(None),
            Some(EnvironmentState::Ready(environment)) => Ok(Some(Arc::clone(environment))),
            Some(EnvironmentState::Refused(why)) => Err(ExecutionError::Invalid(why.clone())),
        }
    }
}
