//! The environments of the skills that a process serves: built when it starts and when a skill changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use knack_execution::environments::{EnvironmentState, Environments};
use knack_execution::interpreter::CodeUser;
use knack_packages::given::applied;
use knack_packages::{Declaration, Rules, State, declare};
use knack_skill::model::Skill;
use knack_trust::Roots;
use tokio::sync::{OnceCell, watch};
use tokio_util::task::AbortOnDropHandle;

use super::build::{Builder, BuiltEnvironment};
use super::build_error::BuildError;
use super::limits::BuildLimits;
use super::node::NpmIndex;
use super::python::BaseInterpreter;
use super::store::{Store, default_store};
use super::uv::Uv;
use crate::counted::counted;

/// Where lines of progress go.
pub type LogLine = fn(&str);

/// The service.
#[derive(Debug)]
pub struct Packages {
    environments: Environments,
    /// Made for the first skill that wants an environment.
    builder: OnceCell<Result<Builder, BuildError>>,
    log: LogLine,
    rules: Rules,
    roots: Roots,
    /// Skills that were judged, by what their environment depends on.
    known: Mutex<BTreeMap<String, Known>>,
    /// How many environments were settled.
    settled: watch::Sender<u64>,
}

/// The environment of a skill that was judged.
#[derive(Debug)]
enum Known {
    /// It is to be made.
    Wanted(Arc<SkillPackages>),
    /// Runs get it, or need none.
    Ready,
    /// It cannot be made.
    Failed(State),
}

/// Why the packages of a skill are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPackages {
    /// Its packages are being installed.
    Installing,
    /// They cannot be had.
    Failed(State),
}

/// A skill whose environment is to be made.
#[derive(Debug)]
struct SkillPackages {
    name: String,
    declared: Declaration,
}

impl Packages {
    /// A service for an executor: the environments of skills, under a runtime's rules; installers trust these authorities too.
    pub fn new(environments: Environments, rules: Rules, roots: Roots, log: LogLine) -> Arc<Self> {
        Arc::new(Self {
            environments,
            builder: OnceCell::new(),
            log,
            rules,
            roots,
            known: Mutex::default(),
            settled: watch::Sender::new(0),
        })
    }

    /// Takes these skills in the place of all others, before a snapshot of them is served: from now on no run of them goes
    /// without what they declare.
    pub fn set_skills(&self, skills: &[Arc<Skill>]) {
        let ids: BTreeSet<String> = skills.iter().map(|skill| skill.environment_id()).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|id, _| ids.contains(id));
        self.environments.keep(&ids);
        for skill in skills {
            self.judged(&mut known, skill);
        }
    }

    /// The environment of a skill, which is to be made if it was not judged yet.
    fn judged<'k>(&self, known: &'k mut BTreeMap<String, Known>, skill: &Skill) -> &'k Known {
        known.entry(skill.environment_id()).or_insert_with_key(|id| {
            let declared = applied(&self.rules, declare(&skill.files, skill.requirements.as_ref()));
            // What is refused may be all that the skill has: a lock alone that cannot be used.
            if !declared.wants_environment() && !declared.is_refused() {
                return Known::Ready;
            }
            let why = format!(
                "the packages of skill \"{}\" are being installed; try again in a minute",
                skill.id.name
            );
            self.environments.set(id, EnvironmentState::Refused(why));
            Known::Wanted(Arc::new(SkillPackages {
                name: skill.id.name.clone(),
                declared,
            }))
        })
    }

    /// What packages a new revision of a skill misses, where runs of the one that is served have their packages, or may have them in a
    /// moment; where these have failed, nothing is lost by the new one.
    pub fn missing(&self, new: &Skill, served: &Skill) -> Option<MissingPackages> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_served = known.get(&served.environment_id());
        if !matches!(of_served, Some(Known::Ready | Known::Wanted(_))) {
            return None;
        }
        match self.judged(&mut known, new) {
            Known::Wanted(_) => Some(MissingPackages::Installing),
            Known::Ready => None,
            Known::Failed(state) => Some(MissingPackages::Failed(*state)),
        }
    }

    /// Changes whenever an environment is there, or cannot be made.
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// Builds what is set and not settled whenever the watched number changes, one after the other.
    pub fn follow(self: Arc<Self>, mut changes: watch::Receiver<u64>) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                while let Some((id, wanted)) = self.next() {
                    // Printed on the terminal; runs get it from the state.
                    let _ = self.settle(&id, &wanted).await;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        }))
    }

    fn next(&self) -> Option<(String, Arc<SkillPackages>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find_map(|(id, known)| match known {
            Known::Wanted(wanted) => Some((id.clone(), Arc::clone(wanted))),
            Known::Ready | Known::Failed(_) => None,
        })
    }

    /// Makes the environment of one skill before it is run, and forgets every other skill. Errors: the skill declares packages,
    /// and they are not there.
    pub async fn ensure(&self, skill: &Arc<Skill>) -> Result<(), BuildError> {
        self.set_skills(std::slice::from_ref(skill));
        match self.next() {
            Some((id, wanted)) => self.settle(&id, &wanted).await,
            None => Ok(()),
        }
    }

    async fn settle(&self, id: &str, wanted: &SkillPackages) -> Result<(), BuildError> {
        let name = &wanted.name;
        let begun = tokio::time::Instant::now();
        let built = self.build(wanted).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have left the catalog meanwhile.
        let Some(place) = known.get_mut(id) else {
            return Ok(());
        };
        *place = Known::Ready;
        let outcome = match built {
            Ok(built) => {
                (self.log)(&format!("packages of {name}: {}", ready(&built, begun.elapsed())));
                self.environments.set(id, EnvironmentState::Ready(built.environment));
                Ok(())
            }
            Err(error) if !wanted.declared.is_declared() && !wanted.declared.is_refused() => {
                (self.log)(&format!(
                    "packages of {name}: its scripts run without the standard environment: {error}"
                ));
                self.environments.set(id, EnvironmentState::Base);
                Ok(())
            }
            Err(error) => {
                (self.log)(&format!("packages of {name}: {error}"));
                // The reason is the person's; it may name an index.
                let why = format!(
                    "the packages of skill \"{name}\" are not there ({}); it cannot run here",
                    error.state
                );
                self.environments.set(id, EnvironmentState::Refused(why));
                *place = Known::Failed(error.state);
                Err(error)
            }
        };
        drop(known);
        self.settled.send_modify(|number| *number += 1);
        outcome
    }

    async fn build(&self, wanted: &SkillPackages) -> Result<BuiltEnvironment, BuildError> {
        let builder = self
            .builder
            .get_or_init(|| open_builder(BuildLimits::default(), self.rules.clone(), &self.roots))
            .await;
        let builder = builder.as_ref().map_err(Clone::clone)?;
        let (log, name) = (self.log, wanted.name.clone());
        builder
            .environment(&wanted.declared, &move |line| {
                log(&format!("packages of {name}: {line}"));
            })
            .await
    }
}

/// The builder of this machine, which trusts these authorities besides those of the system.
pub(crate) async fn open_builder(limits: BuildLimits, rules: Rules, roots: &Roots) -> Result<Builder, BuildError> {
    let reach = if rustix::process::geteuid().is_root() {
        CodeUser::Stranger
    } else {
        CodeUser::SameUser
    };
    let base = BaseInterpreter::of_host(reach).await?;
    let store = Store::open(&default_store()?, reach)?;
    let npm = NpmIndex::of(std::env::vars_os(), roots);
    Ok(Builder::new(
        store,
        base,
        Uv::find().and_then(|uv| uv.trusting(roots)),
        npm,
        limits,
        rules,
    ))
}

fn ready(built: &BuiltEnvironment, took: std::time::Duration) -> String {
    let about = &built.about;
    let what = format!(
        "{}, {} MB",
        counted(about.packages.len() + about.node.len(), "package"),
        about.bytes / 1_000_000
    );
    if built.is_new {
        format!("ready ({what}, {:.1} s)", took.as_secs_f64())
    } else {
        format!("ready ({what}, already there)")
    }
}
