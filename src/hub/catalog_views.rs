//! Views, shared by every stream that shows the same, and updated by changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use knack_api::skill_status::EarlierRevision;
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::{RuntimeLine, RuntimeName};
use knack_packages::EnvironmentStatuses;
use knack_packages::environment::EnvironmentImage;
use knack_skill::model::SkillRef;
use prometheus_client::metrics::counter::Counter;

use super::artifacts::Artifacts;
use super::catalog_view::{CatalogView, build, patch};
use super::identity::reference;
use super::runtime_line::runtime_line;
use super::settings::HubSettings;
use crate::cluster_reader::change_log::Change;
use crate::cluster_reader::cluster_state::ClusterState;
use crate::cluster_reader::watch::Shared;
use crate::jobs::languages;
use crate::selection::{Audience, NamespaceLabels, Rejection, Revision, Scope, environment, pin_of, version_refusal};

/// Views kept: one for each runtime and each namespace that has a view of its own. Those without a stream are dropped
/// first.
const KEPT: usize = 1024;

/// A runtime, and the namespace whose view of it this is: `None` for everything.
type CatalogViewKey = (RuntimeName, Option<String>);

/// A view with the number of the last change that is in it. It has its own lock: while it is built, requests for the
/// same view wait and share it, and requests for other views do not wait.
type CatalogViewSlot = Arc<Mutex<Option<(u64, Arc<CatalogView>)>>>;

/// How often views were built; compared with the changes of the cluster, this shows what sharing saves.
#[derive(Debug, Clone, Default)]
pub struct CatalogViewCounts {
    /// From all skills.
    pub built: Counter,
    /// By a few skills that changed.
    pub patched: Counter,
}

/// The views of one hub.
#[derive(Debug)]
pub struct CatalogViews {
    shared: Arc<Shared>,
    artifacts: Artifacts,
    settings: Arc<HubSettings>,
    counts: CatalogViewCounts,
    slots: Mutex<HashMap<CatalogViewKey, CatalogViewSlot>>,
}

/// The inputs of a view, copied from the cluster state, which may change meanwhile.
struct CatalogViewInputs {
    version: u64,
    runtime: Arc<SkillRuntime>,
    namespaces: Arc<NamespaceLabels>,
    environments: Arc<EnvironmentStatuses>,
    skills: Skills,
}

enum Skills {
    /// The view is still current.
    Same,
    All(Vec<Arc<Skill>>),
    Changed(BTreeMap<SkillRef, Option<Arc<Skill>>>),
}

impl CatalogViews {
    /// Views of a cluster state.
    pub fn new(
        shared: Arc<Shared>,
        artifacts: Artifacts,
        settings: Arc<HubSettings>,
        counts: CatalogViewCounts,
    ) -> Self {
        Self {
            shared,
            artifacts,
            settings,
            counts,
            slots: Mutex::default(),
        }
    }

    /// The view at least as new as the cluster state's `version`; `None` for a runtime that is gone.
    pub fn get(&self, version: u64, runtime: &RuntimeName, sees: Option<&str>) -> Option<Arc<CatalogView>> {
        let key = (runtime.clone(), sees.map(str::to_owned));
        let slot = self.slot(&key);
        let mut slot = lock(&slot);
        if let Some((at, view)) = &*slot
            && *at >= version
        {
            return Some(Arc::clone(view));
        }
        let known = slot.as_ref().map(|(at, _)| *at);
        let Some(material) = self
            .shared
            .read(|cluster_state| CatalogViewInputs::of(cluster_state, runtime, known))
        else {
            lock(&self.slots).remove(&key);
            return None;
        };
        let scope = self.scope(runtime, &material.namespaces, &material.environments);
        let audience = sees.map_or(Audience::All, Audience::Namespace);
        let summary = |skill: &Skill, earlier: Option<&EarlierRevision>| self.artifacts.summary(skill, earlier);
        let before = slot.as_ref().map(|(_, view)| Arc::clone(view));
        let view = match (material.skills, before) {
            (Skills::Same, Some(view)) => view,
            (Skills::Changed(changed), Some(view)) => {
                match patch(&view, &material.runtime, &scope, audience, &changed, summary) {
                    Some(patched) => {
                        self.counts.patched.inc();
                        Arc::new(patched)
                    }
                    None => view,
                }
            }
            (Skills::All(skills), _) => {
                self.counts.built.inc();
                let skills = skills.iter().map(|skill| &**skill);
                let line = self.line(&material.runtime);
                Arc::new(build(&material.runtime, line, &scope, audience, skills, summary))
            }
            // Only known changes are applied.
            (Skills::Same | Skills::Changed(_), None) => return None,
        };
        *slot = Some((material.version, Arc::clone(&view)));
        Some(view)
    }

    /// The environment of packages that runs of a revision get at a runtime now; `None` if they need none. Errors: why
    /// it is not run there.
    pub fn environment(
        &self,
        runtime: &RuntimeName,
        revision: Revision<'_>,
    ) -> Result<Option<EnvironmentImage>, Rejection> {
        self.shared.read(|cluster_state| {
            let Some(found) = cluster_state.runtime(runtime) else {
                return Ok(None);
            };
            let scope = self.scope(runtime, &cluster_state.namespaces, &cluster_state.environments);
            environment(found, revision, &scope).map(Option::<&EnvironmentImage>::cloned)
        })
    }

    /// Why a pin of a runtime takes no revision of this version of a skill.
    pub fn version_refusal(&self, runtime: &RuntimeName, skill: &SkillRef, version: Option<&str>) -> Option<Rejection> {
        self.shared.read(|cluster_state| {
            let runtime = cluster_state.runtime(runtime)?;
            version_refusal(pin_of(runtime, &skill.namespace, &skill.name), version)
        })
    }

    /// Whether a skill is served at a runtime to a caller, now.
    pub fn serves(&self, runtime: &RuntimeName, sees: Option<&str>, skill: &SkillRef) -> bool {
        self.shared.read(|cluster_state| {
            let (Some(runtime_object), Some(object)) = (
                cluster_state.runtime(runtime),
                cluster_state.skills.get(&skill.namespace, &skill.name),
            ) else {
                return false;
            };
            let scope = self.scope(runtime, &cluster_state.namespaces, &cluster_state.environments);
            let audience = sees.map_or(Audience::All, Audience::Namespace);
            let line = self.line(runtime_object);
            let one = std::iter::once(&**object);
            let view = build(runtime_object, line, &scope, audience, one, |skill, earlier| {
                self.artifacts.summary(skill, earlier)
            });
            view.skills.contains_key(&reference(object))
        })
    }

    fn line(&self, runtime: &SkillRuntime) -> RuntimeLine {
        let languages = languages(&runtime.spec.sandbox, &self.settings.default_languages);
        runtime_line(runtime, &languages)
    }

    fn slot(&self, key: &CatalogViewKey) -> CatalogViewSlot {
        let mut slots = lock(&self.slots);
        if slots.len() >= KEPT && !slots.contains_key(key) {
            // A stream holds a reference to its view; without a stream the slot has the only one.
            slots.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || lock(slot).as_ref().is_some_and(|(_, view)| Arc::strong_count(view) > 1)
            });
            if slots.len() >= KEPT {
                slots.clear();
            }
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }

    fn scope<'s>(
        &'s self,
        runtime: &RuntimeName,
        namespaces: &'s NamespaceLabels,
        environments: &'s EnvironmentStatuses,
    ) -> Scope<'s> {
        Scope {
            cluster_default: self.settings.is_cluster_default(runtime),
            namespaces,
            default_image: self.settings.default_image.as_deref(),
            allow_image_tags: self.settings.allow_image_tags,
            environments: self.settings.packages.then_some(environments),
        }
    }
}

impl CatalogViewInputs {
    /// For a view that contains the changes up to `known`; `None` for a runtime that is gone.
    fn of(cluster_state: &ClusterState, runtime: &RuntimeName, known: Option<u64>) -> Option<Self> {
        let changes = known.and_then(|known| cluster_state.log.since(known));
        Some(Self {
            version: cluster_state.log.version(),
            runtime: Arc::clone(cluster_state.runtime(runtime)?),
            namespaces: Arc::clone(&cluster_state.namespaces),
            environments: Arc::clone(&cluster_state.environments),
            skills: match changes {
                Some(changes) => Skills::after(cluster_state, runtime, changes),
                None => Skills::All(cluster_state.skills.iter().cloned().collect()),
            },
        })
    }
}

impl Skills {
    fn after<'w>(
        cluster_state: &'w ClusterState,
        runtime: &RuntimeName,
        changes: impl Iterator<Item = &'w Change>,
    ) -> Self {
        let mut changed = BTreeMap::new();
        for change in changes {
            match change {
                Change::Skill(id) => {
                    let skill = cluster_state.skills.get(&id.namespace, &id.name).cloned();
                    changed.insert(id.clone(), skill);
                }
                Change::Runtime(name) if name != runtime => {}
                Change::Runtime(_) | Change::All => return Self::All(cluster_state.skills.iter().cloned().collect()),
            }
        }
        if changed.is_empty() {
            Self::Same
        } else {
            Self::Changed(changed)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is valid between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "catalog_views_tests.rs"]
pub(super) mod tests;
