//! Views, built once per change of the world and shared by every stream that shows the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use knack_skill::model::SkillRef;

use super::artifacts::{Artifacts, reference};
use super::settings::HubSettings;
use super::view::{View, build};
use super::watch::Shared;
use crate::hub_api::RuntimeName;
use crate::selection::{Caller, Scope};

/// Views kept: one for each runtime and each namespace that sees it its own way.
const KEPT: usize = 1024;

/// A runtime, and whose view of it: `None` for everything.
type Key = (RuntimeName, Option<String>);

/// The views of one hub.
#[derive(Debug)]
pub struct Views {
    shared: Arc<Shared>,
    artifacts: Artifacts,
    settings: Arc<HubSettings>,
    built: Mutex<HashMap<Key, (u64, Arc<View>)>>,
}

impl Views {
    /// Views of a world.
    pub fn new(shared: Arc<Shared>, artifacts: Artifacts, settings: Arc<HubSettings>) -> Self {
        Self {
            shared,
            artifacts,
            settings,
            built: Mutex::default(),
        }
    }

    /// The view at least as new as the world's `version`; `None` for a runtime that is gone.
    pub fn get(&self, version: u64, runtime: &RuntimeName, sees: Option<&str>) -> Option<Arc<View>> {
        let key = (runtime.clone(), sees.map(str::to_owned));
        // Built under the lock: the others who want the same wait and share it instead of building it again.
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, view)) = built.get(&key)
            && *at >= version
        {
            return Some(Arc::clone(view));
        }
        let view = Arc::new(self.build(runtime, sees)?);
        if built.len() >= KEPT {
            built.clear();
        }
        built.insert(key, (version, Arc::clone(&view)));
        Some(view)
    }

    /// Whether a skill is served at a runtime to a caller, now.
    pub fn serves(&self, runtime: &RuntimeName, sees: Option<&str>, skill: &SkillRef) -> bool {
        self.shared.read(|world| {
            let (Some(runtime_object), Some(object)) =
                (world.runtime(runtime), world.skills.get(&skill.namespace, &skill.name))
            else {
                return false;
            };
            let scope = self.scope(runtime, &world.namespaces);
            let caller = sees.map_or(Caller::All, Caller::Namespace);
            let view = build(
                runtime_object,
                &scope,
                caller,
                std::iter::once(&**object),
                "",
                |id, revision| self.artifacts.summary(id, revision),
            );
            view.skills.contains_key(&reference(object))
        })
    }

    fn build(&self, runtime: &RuntimeName, sees: Option<&str>) -> Option<View> {
        self.shared.read(|world| {
            let object = world.runtime(runtime)?;
            let scope = self.scope(runtime, &world.namespaces);
            let caller = sees.map_or(Caller::All, Caller::Namespace);
            let skills = world.skills.iter().map(|skill| &**skill);
            Some(build(
                object,
                &scope,
                caller,
                skills,
                world.skills.seen(),
                |id, revision| self.artifacts.summary(id, revision),
            ))
        })
    }

    fn scope<'s>(&'s self, runtime: &RuntimeName, namespaces: &'s crate::selection::NamespaceLabels) -> Scope<'s> {
        Scope {
            cluster_default: self.settings.is_cluster_default(runtime),
            namespaces,
            default_image: self.settings.default_image.as_deref(),
            allow_image_tags: self.settings.allow_image_tags,
        }
    }
}
