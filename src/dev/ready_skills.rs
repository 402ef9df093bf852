//! The skills whose packages are installed: those from files and those of every caller, together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use knack_skill::model::Skill;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::packages::{MissingPackages, Packages};

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
    /// New revisions of skills from files, which are not served before.
    waiting: Vec<Arc<Skill>>,
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

    /// New revisions that have other packages than what is served, until they are served.
    pub(super) fn waiting(&self, skills: Vec<Arc<Skill>>) {
        if !(skills.is_empty() && self.lock().waiting.is_empty()) {
            self.judge(|all| all.waiting = skills);
        }
    }

    /// What packages a new revision misses, where the one that is served has its own.
    pub(super) fn missing(&self, new: &Arc<Skill>, served: &Skill) -> Option<MissingPackages> {
        let packages = self.packages.as_ref()?;
        // Before it is judged: what installs it may be done with it before all sources are judged.
        self.lock().waiting.push(Arc::clone(new));
        packages.missing(new, served)
    }

    /// Sends to `wake` whenever packages are there, or cannot be had, while new revisions wait.
    pub(super) fn on_installed(self: Arc<Self>, wake: mpsc::Sender<()>) -> Option<AbortOnDropHandle<()>> {
        let mut settled = self.packages.as_ref()?.settled();
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            while settled.changed().await.is_ok() {
                if !self.lock().waiting.is_empty() {
                    // A full channel means that the files are about to be read.
                    let _ = wake.try_send(());
                }
            }
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Skills> {
        self.skills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, change: impl FnOnce(&mut Skills)) {
        let mut all = self.lock();
        change(&mut all);
        let Some(packages) = &self.packages else { return };
        let served = all.files.iter().chain(&all.uploads);
        let skills: Vec<Arc<Skill>> = served.chain(&all.waiting).cloned().collect();
        packages.set_skills(&skills);
        self.changed.send_modify(|number| *number += 1);
    }
}
