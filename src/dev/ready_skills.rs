//! The skills whose packages are installed: those from files and those of every caller, together.

use std::sync::{Arc, Mutex, PoisonError};

use knack_skill::model::Skill;

use crate::packages::Packages;

/// The skills whose packages are installed.
#[derive(Debug)]
pub(super) struct ReadySkills {
    packages: Option<Arc<Packages>>,
    changed: tokio::sync::watch::Sender<u64>,
    skills: Mutex<Skills>,
}

#[derive(Debug, Default)]
struct Skills {
    files: Vec<Arc<Skill>>,
    uploads: Vec<Arc<Skill>>,
}

impl ReadySkills {
    /// None yet. `changed` wakes who installs.
    pub(super) fn new(packages: Option<Arc<Packages>>, changed: tokio::sync::watch::Sender<u64>) -> Self {
        Self {
            packages,
            changed,
            skills: Mutex::default(),
        }
    }

    /// The skills from files as they are now.
    pub(super) fn files(&self, skills: Vec<Arc<Skill>>) {
        self.judge(|all| all.files = skills);
    }

    /// The uploaded ones.
    pub(super) fn uploads(&self, skills: Vec<Arc<Skill>>) {
        self.judge(|all| all.uploads = skills);
    }

    fn judge(&self, change: impl FnOnce(&mut Skills)) {
        let mut all = self.skills.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        let Some(packages) = &self.packages else { return };
        let skills: Vec<Arc<Skill>> = all.files.iter().chain(&all.uploads).cloned().collect();
        packages.set_skills(&skills);
        self.changed.send_modify(|number| *number += 1);
    }
}
