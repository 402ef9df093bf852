//! The result of a runtime's evaluation of many skills, kept for its next one, so that one skill's change costs what it
//! touches.
//!
//! A kept evaluation is used while runtime, labels and environments are those that it was made with, and every skill
//! that changed since is known by name and is judged as before: then only its part of the revision is another one.
//! Whatever else changed is evaluated as a whole. Losing a kept evaluation costs work, never correctness.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use knack_api::SkillRuntime;
use knack_packages::EnvironmentStatuses;

use super::summary::{Revision, Summary};
use crate::controller::pending_changes::Changed;
use crate::controller::reason::{VerdictParts, served_instead, verdict_word};
use crate::object_name::ObjectName;
use crate::selection::{NamespaceLabels, RejectionReason, Selected, created, ids_of, is_shared};

/// Evaluations that are kept. One of 10,000 skills takes about a megabyte; runtimes that select in all namespaces are
/// few.
const EVALUATIONS_MAX: usize = 8;
/// Changed skills that are noted for a runtime until it is reconciled; beyond it, all are evaluated.
const PENDING_MAX: usize = 256;
/// All skills are evaluated this often, in case that an event was lost.
const AGE_MAX: Duration = Duration::from_mins(10);

/// The kept evaluations of all runtimes, by the runtime's name.
#[derive(Debug, Default)]
pub(in crate::controller) struct Evaluations(Mutex<HashMap<ObjectName, RuntimeEvaluation>>);

#[derive(Debug, Default)]
struct RuntimeEvaluation {
    pending: ChangedSkills,
    kept: Option<KeptEvaluation>,
}

/// The skills that changed since the kept evaluation was made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChangedSkills {
    /// These, by namespace and name.
    Skills(BTreeSet<ObjectName>),
    /// Any.
    Any,
}

impl Default for ChangedSkills {
    fn default() -> Self {
        Self::Skills(BTreeSet::new())
    }
}

/// An evaluation, and what it was made with.
#[derive(Debug)]
pub(super) struct KeptEvaluation {
    inputs: EvaluationInputs,
    at: Instant,
    evaluation: Evaluation,
}

/// An evaluation that can be used for the next one.
pub(super) struct TakenEvaluation {
    pub(super) evaluation: Evaluation,
    /// The skills that changed since.
    pub(super) changed: BTreeSet<ObjectName>,
    /// When it was made of all skills.
    pub(super) at: Instant,
}

/// All that decides about a skill besides the skill.
#[derive(Debug, Clone)]
pub(super) struct EvaluationInputs {
    pub(super) uid: Option<String>,
    pub(super) generation: Option<i64>,
    pub(super) labels: Arc<NamespaceLabels>,
    pub(super) environments: Option<Arc<EnvironmentStatuses>>,
}

impl EvaluationInputs {
    /// Whether both are made of the same objects: an equal object that was made anew costs one evaluation.
    fn is(&self, other: &Self) -> bool {
        let environments = match (&self.environments, &other.environments) {
            (None, None) => true,
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            _ => false,
        };
        environments
            && Arc::ptr_eq(&self.labels, &other.labels)
            && (&self.uid, self.generation) == (&other.uid, other.generation)
    }
}

impl Evaluations {
    /// Notes for a runtime what changed. To be called before its reconcile is requested.
    pub(in crate::controller) fn note(&self, runtime: &ObjectName, changed: &Changed) {
        let mut evaluations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = evaluations.get_mut(runtime) else {
            return;
        };
        let ChangedSkills::Skills(known) = &mut entry.pending else {
            return;
        };
        if let Some(names) = changed.names() {
            known.extend(names.map(|(namespace, name)| ObjectName::new(namespace, name)));
            if known.len() <= PENDING_MAX {
                return;
            }
        }
        entry.pending = ChangedSkills::Any;
    }

    /// Takes the evaluation of a runtime, if it can be used for the next one, with the skills that changed since. From
    /// here on changes are noted for the evaluation that [`Self::keep`] brings. To be called before skills are read.
    pub(super) fn take(&self, runtime: &ObjectName, inputs: &EvaluationInputs) -> Option<TakenEvaluation> {
        let mut evaluations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !evaluations.contains_key(runtime) && evaluations.len() >= EVALUATIONS_MAX {
            return None;
        }
        let entry = evaluations.entry(runtime.clone()).or_default();
        let (pending, kept) = (std::mem::take(&mut entry.pending), entry.kept.take()?);
        match pending {
            ChangedSkills::Skills(names) if kept.inputs.is(inputs) && kept.at.elapsed() < AGE_MAX => {
                Some(TakenEvaluation {
                    evaluation: kept.evaluation,
                    changed: names,
                    at: kept.at,
                })
            }
            _ => None,
        }
    }

    /// Keeps an evaluation whose results are written. `at`: when all skills were evaluated.
    pub(super) fn keep(&self, runtime: &ObjectName, inputs: EvaluationInputs, evaluation: Evaluation, at: Instant) {
        let mut evaluations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Without an entry there were too many of them, or the runtime is gone.
        if let Some(entry) = evaluations.get_mut(runtime) {
            entry.kept = Some(KeptEvaluation { inputs, at, evaluation });
        }
    }

    /// A runtime is gone.
    pub(super) fn forget(&self, runtime: &ObjectName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(runtime);
    }
}

/// The result of one evaluation.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) summary: Summary,
    /// By a keyed hash of namespace and name.
    skills: HashMap<u64, SkillEvaluation>,
    keys: RandomState,
}

/// The result for one skill.
#[derive(Debug)]
struct SkillEvaluation {
    /// A hash of all that others are affected by.
    effect: u64,
    revision: Revision,
    verdict: (bool, &'static str),
    /// The earlier revision that is served. The effect names it, too.
    serves: Option<Box<str>>,
}

impl Evaluation {
    /// The evaluation of everything that a runtime selected.
    pub(super) fn new(runtime: &SkillRuntime, selected: &[Selected<'_>]) -> Self {
        let keys = RandomState::new();
        let judged = |item: &Selected<'_>| SkillEvaluation {
            effect: effect(&keys, runtime, item),
            revision: Revision::of(item),
            verdict: verdict_word(runtime, item),
            serves: served_instead(runtime, item).map(Into::into),
        };
        let judged: Vec<SkillEvaluation> = selected.iter().map(judged).collect();
        let revision = judged.iter().map(|judged| judged.revision).sum();
        let names = selected.iter().map(|item| key(&keys, name(item)));
        let skills = names.zip(judged).collect();
        let summary = Summary::with_revision(runtime, selected, revision);
        Self { summary, skills, keys }
    }

    /// Takes a changed skill in: what the runtime selects of it alone. `false`: others are affected, or the summary is, so that
    /// all are to be evaluated; the kept evaluation is of no use then.
    pub(super) fn take_in(
        &mut self,
        runtime: &SkillRuntime,
        changed: (&str, &str),
        selected: Option<&Selected<'_>>,
    ) -> bool {
        let known = self.skills.get_mut(&key(&self.keys, changed));
        match (known, selected) {
            (None, None) => true,
            (Some(known), Some(item)) if known.effect == effect(&self.keys, runtime, item) => {
                let revision = Revision::of(item);
                self.summary.revision.replace(known.revision, revision);
                known.revision = revision;
                true
            }
            _ => false,
        }
    }

    /// The verdict on a skill; `None`: it is not selected.
    pub(super) fn verdict(&self, skill: (&str, &str)) -> Option<VerdictParts<'_>> {
        let known = self.skills.get(&key(&self.keys, skill))?;
        let (is_accepted, word) = known.verdict;
        Some((is_accepted, word, known.serves.as_deref()))
    }
}

fn key(keys: &RandomState, skill: (&str, &str)) -> u64 {
    keys.hash_one(skill)
}

fn name<'a>(item: &Selected<'a>) -> (&'a str, &'a str) {
    let metadata = &item.skill.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// All of a selected skill that counts, the list of rejected ones, the list of skills and the sharing of names and ids depend on.
fn effect(keys: &RandomState, runtime: &SkillRuntime, item: &Selected<'_>) -> u64 {
    let mut hash = keys.build_hasher();
    let verdict = match &item.accepted {
        // Whether a name or an id is shared follows from the rest.
        Ok(Some(rejection))
            if matches!(
                rejection.reason,
                RejectionReason::NameShared | RejectionReason::IdShared
            ) =>
        {
            None
        }
        Ok(reservation) => reservation.as_ref().map(|reservation| (true, reservation)),
        Err(rejection) => Some((false, rejection)),
    };
    verdict
        .map(|(is_served, rejection)| (is_served, rejection.reason, &rejection.message))
        .hash(&mut hash);
    item.mode.as_str().hash(&mut hash);
    ids_of(item.skill).hash(&mut hash);
    super::listing::description(item).hash(&mut hash);
    (
        item.skill.metadata.uid.as_deref(),
        created(item.skill),
        is_shared(runtime, item.skill),
    )
        .hash(&mut hash);
    hash.finish()
}
