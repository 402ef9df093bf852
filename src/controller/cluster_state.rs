//! The controller's copy of the cluster: slim objects, kept current by watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use knack_api::{Skill, SkillRuntime};
use knack_vocabulary::API_VERSION;
use kube::core::{DeserializeGuard, ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::watch;

use super::key_index::KeyIndex;
use crate::object_name::ObjectName;
use crate::selection::{NamespaceLabels, Scope, ids_of, namespaces_reached};

/// A skill as watched: without file contents, and possibly undecodable.
pub(super) type WatchedSkill = DeserializeGuard<Skill>;
/// A runtime as watched.
pub(super) type WatchedRuntime = DeserializeGuard<SkillRuntime>;
/// Metadata of a ConfigMap.
pub(super) type ConfigMapMeta = PartialObjectMeta<ConfigMap>;

/// The stores of one watched namespace, or of all.
#[derive(Debug, Clone)]
pub(super) struct WatchScope {
    pub(super) skills: Store<WatchedSkill>,
    pub(super) runtimes: Store<WatchedRuntime>,
    pub(super) config_maps: Store<ConfigMapMeta>,
    /// ConfigMaps that the registry made for uploads.
    pub(super) uploads: Store<ConfigMapMeta>,
    /// Skills by the words that requests may mean them by: [`words_of`].
    pub(super) skills_by_word: KeyIndex,
    /// Skills by their namespace.
    pub(super) skills_by_namespace: KeyIndex,
    /// Skills by the ConfigMap that they name as their source: [`source_key`].
    pub(super) skills_by_source: KeyIndex,
    /// ConfigMaps by the uid of their controller.
    pub(super) config_maps_by_owner: KeyIndex,
}

/// All stores.
#[derive(Debug)]
pub(super) struct ControllerState {
    pub(super) watch_scopes: Vec<WatchScope>,
    pub(super) namespaces: Store<PartialObjectMeta<Namespace>>,
    /// Computed from `namespaces` on demand; code that changes them clears it.
    pub(super) labels: Cached<NamespaceLabels>,
    /// Computed from the watch scopes' runtimes on demand; code that changes them clears it.
    pub(super) sorted_runtimes: Cached<Vec<Arc<WatchedRuntime>>>,
    /// One per stream; true once its first list is complete.
    pub(super) ready: Vec<watch::Receiver<bool>>,
}

impl ControllerState {
    /// Waits until every first list is complete: before, absence means nothing.
    pub(super) async fn ready(&self) {
        for ready in &self.ready {
            // An error means that the stream ended, and with it the process.
            let _ = ready.clone().wait_for(|ready| *ready).await;
        }
    }

    /// Whether every first list is complete.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.iter().all(|ready| *ready.borrow())
    }

    /// One skill, unless it cannot be read or is on its way out.
    pub(super) fn skill(&self, namespace: &str, name: &str) -> Option<Arc<WatchedSkill>> {
        let key = ObjectRef::<WatchedSkill>::new(name).within(namespace);
        let found = self
            .watch_scopes
            .iter()
            .find_map(|watch_scope| watch_scope.skills.get(&key));
        found.filter(|skill| decoded(skill).is_some())
    }

    /// Every decodable skill that is not being deleted.
    pub(super) fn skills(&self) -> Vec<Arc<WatchedSkill>> {
        let stores = self.watch_scopes.iter().map(|watch_scope| &watch_scope.skills);
        let mut all: Vec<_> = stores.flat_map(Store::state).collect();
        all.retain(|skill| decoded(skill).is_some());
        all
    }

    /// Skills in any namespace of which one is called, or carries as an id, what another one is called or carries, by a name and ids.
    pub(super) fn of_words(&self, name: &str, ids: &[String]) -> Vec<Arc<WatchedSkill>> {
        let words: BTreeSet<&str> = ids.iter().map(String::as_str).chain([name]).collect();
        let found = self.watch_scopes.iter().flat_map(|watch_scope| {
            let found = words.iter().flat_map(|word| watch_scope.skills_by_word.members(word));
            let found: BTreeSet<ObjectName> = found.collect();
            let get = move |found: ObjectName| {
                watch_scope
                    .skills
                    .get(&ObjectRef::new(&found.name).within(&found.namespace))
            };
            found.into_iter().filter_map(get)
        });
        found.filter(|skill| decoded(skill).is_some()).collect()
    }

    /// Skills of one namespace.
    pub(super) fn skills_of(&self, namespace: &str) -> Vec<Arc<WatchedSkill>> {
        let found = self
            .watch_scopes
            .iter()
            .flat_map(|watch_scope| members(&watch_scope.skills_by_namespace, namespace, &watch_scope.skills));
        found.filter(|skill| decoded(skill).is_some()).collect()
    }

    /// Whether a namespace has a Skill or a SkillRuntime. The labels of any other change nothing that a runtime serves: one that
    /// comes later is a change of its own.
    pub(super) fn is_in_use(&self, namespace: &str) -> bool {
        let has_skills = |watch_scope: &WatchScope| !watch_scope.skills_by_namespace.members(namespace).is_empty();
        let is_here = |runtime: &Arc<WatchedRuntime>| runtime.namespace().as_deref() == Some(namespace);
        self.watch_scopes.iter().any(has_skills) || self.runtimes().iter().any(is_here)
    }

    /// Skills that have a ConfigMap of this name as source, or as one of several.
    pub(super) fn skills_from(&self, namespace: &str, config_map: &str) -> Vec<ObjectName> {
        let key = source_key(namespace, config_map);
        let watch_scopes = self.watch_scopes.iter();
        watch_scopes
            .flat_map(|watch_scope| watch_scope.skills_by_source.members(&key))
            .collect()
    }

    /// The skills that a runtime may select: few for one that selects in its own namespace, all for one that selects in
    /// others.
    pub(super) fn candidates(&self, runtime: &SkillRuntime, scope: &Scope<'_>) -> Vec<Arc<WatchedSkill>> {
        match namespaces_reached(runtime, scope) {
            None => self.skills(),
            Some(namespaces) => namespaces.iter().flat_map(|name| self.skills_of(name)).collect(),
        }
    }

    /// Every decodable runtime that is not being deleted, by namespace and name.
    pub(super) fn runtimes(&self) -> Arc<Vec<Arc<WatchedRuntime>>> {
        self.sorted_runtimes.get(|| {
            let mut all: Vec<_> = self
                .watch_scopes
                .iter()
                .flat_map(|watch_scope| watch_scope.runtimes.state())
                .collect();
            all.retain(|runtime| runtime.0.is_ok() && runtime.meta().deletion_timestamp.is_none());
            all.sort_by_cached_key(|runtime| (runtime.namespace(), runtime.name_any()));
            all
        })
    }

    /// Metadata of the runtimes of a namespace that this version cannot decode and that are not being deleted.
    pub(super) fn undecoded_runtimes(&self, namespace: &str) -> Vec<ObjectMeta> {
        let all = self
            .watch_scopes
            .iter()
            .flat_map(|watch_scope| watch_scope.runtimes.state());
        let undecoded = all
            .filter(|runtime| runtime.0.is_err())
            .map(|runtime| runtime.meta().clone());
        let mut undecoded: Vec<ObjectMeta> = undecoded
            .filter(|meta| meta.namespace.as_deref() == Some(namespace) && meta.deletion_timestamp.is_none())
            .collect();
        undecoded.sort_by(|one, other| one.name.cmp(&other.name));
        undecoded
    }

    /// Whether a runtime is there that this version cannot decode and that is not being deleted.
    pub(super) fn is_undecoded_runtime(&self, namespace: &str, name: &str) -> bool {
        let key = ObjectRef::<WatchedRuntime>::new(name).within(namespace);
        let found = self
            .watch_scopes
            .iter()
            .find_map(|watch_scope| watch_scope.runtimes.get(&key));
        found.is_some_and(|runtime| runtime.0.is_err() && runtime.meta().deletion_timestamp.is_none())
    }

    /// Whether a runtime is there, also one that cannot be read or is being deleted.
    pub(super) fn has_runtime(&self, namespace: &str, name: &str) -> bool {
        let key = ObjectRef::<WatchedRuntime>::new(name).within(namespace);
        self.watch_scopes
            .iter()
            .any(|watch_scope| watch_scope.runtimes.get(&key).is_some())
    }

    /// Metadata of a ConfigMap that carries a skill's label.
    pub(super) fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMapMeta>> {
        let key = ObjectRef::<ConfigMapMeta>::new(name).within(namespace);
        self.watch_scopes
            .iter()
            .find_map(|watch_scope| watch_scope.config_maps.get(&key))
    }

    /// Metadata of a ConfigMap that the registry made for an upload.
    pub(super) fn upload(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMapMeta>> {
        let key = ObjectRef::<ConfigMapMeta>::new(name).within(namespace);
        self.watch_scopes
            .iter()
            .find_map(|watch_scope| watch_scope.uploads.get(&key))
    }

    /// Metadata of the ConfigMaps that an object controls.
    pub(super) fn owned_config_maps(&self, namespace: &str, uid: &str) -> Vec<Arc<ConfigMapMeta>> {
        let found = self
            .watch_scopes
            .iter()
            .flat_map(|watch_scope| members(&watch_scope.config_maps_by_owner, uid, &watch_scope.config_maps));
        found
            .filter(|config_map| {
                config_map.metadata.namespace.as_deref() == Some(namespace)
                    && is_controlled_by(&config_map.metadata, uid)
            })
            .collect()
    }

    /// Labels of every namespace.
    pub(super) fn namespace_labels(&self) -> Arc<NamespaceLabels> {
        self.labels.get(|| {
            let labelled = self.namespaces.state().into_iter();
            labelled
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect::<BTreeMap<_, _>>()
        })
    }
}

/// A value that is made of stores once after each of their changes; clones share it.
#[derive(Debug)]
pub(super) struct Cached<T>(Arc<Mutex<Option<Arc<T>>>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Cached<T> {
    /// The value. It is made with the lock held: a change that comes meanwhile clears it afterwards.
    fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kept.get_or_insert_with(|| Arc::new(make())))
    }

    /// A store has changed.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The key of a ConfigMap as a source.
pub(super) fn source_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// The objects of a store under an index's key.
fn members<K>(index: &KeyIndex, key: &str, store: &Store<K>) -> Vec<Arc<K>>
where
    K: kube::runtime::reflector::Lookup + Clone + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let members = index.members(key).into_iter();
    members
        .filter_map(|member| store.get(&ObjectRef::new(&member.name).within(&member.namespace)))
        .collect()
}

/// The words that requests may mean a skill by: its name and its ids.
pub(super) fn words_of(skill: &WatchedSkill) -> Vec<String> {
    let ids = skill.0.as_ref().map_or(&[][..], ids_of);
    ids.iter().cloned().chain([skill.name_any()]).collect()
}

/// The skill of a watched object, unless it cannot be read or is on its way out.
pub(super) fn decoded(skill: &WatchedSkill) -> Option<&Skill> {
    skill
        .0
        .as_ref()
        .ok()
        .filter(|skill| skill.metadata.deletion_timestamp.is_none())
}

/// Whether an object's controller has this uid.
pub(super) fn is_controlled_by(meta: &kube::core::ObjectMeta, uid: &str) -> bool {
    controller_uid(meta) == Some(uid)
}

/// Whether an object's controller is one of the same kind and name that was there before: it goes with its controller, soon.
pub(super) fn is_predecessor(meta: &kube::core::ObjectMeta, kind: &str, name: &str, uid: &str) -> bool {
    let mut controllers = meta.owner_references.iter().flatten();
    controllers.any(|owner| {
        owner.controller == Some(true)
            && owner.api_version == API_VERSION
            && owner.kind == kind
            && owner.name == name
            && owner.uid != uid
    })
}

/// The uid of an object's controller.
pub(super) fn controller_uid(meta: &kube::core::ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    use super::*;

    /// 10,000 skills in 200 namespaces, and the skills that a runtime of one of them may select.
    #[test]
    fn a_runtime_of_one_namespace_reads_its_skills_only() {
        let (store, mut writer) = reflector::store::<WatchedSkill>();
        let (by_namespace, by_source) = (KeyIndex::default(), KeyIndex::default());
        for number in 0..10_000 {
            let namespace = format!("n{}", number % 200);
            let skill: Skill = serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
                "metadata": {"name": format!("s{number}"), "namespace": namespace},
                "spec": {"source": {"configMap": {"name": format!("source{}", number % 400)}}},
            }))
            .unwrap();
            let event = watcher::Event::Apply(DeserializeGuard(Ok(skill)));
            by_namespace.apply(&event, kube::ResourceExt::namespace);
            by_source.apply(&event, crate::controller::scope_controllers::sources_of);
            writer.apply_watcher_event(&event);
        }
        let cluster_state = ControllerState {
            watch_scopes: vec![WatchScope {
                skills: store,
                runtimes: reflector::store().0,
                config_maps: reflector::store().0,
                uploads: reflector::store().0,
                skills_by_word: KeyIndex::default(),
                skills_by_namespace: by_namespace,
                skills_by_source: by_source,
                config_maps_by_owner: KeyIndex::default(),
            }],
            namespaces: reflector::store().0,
            labels: Cached::default(),
            sorted_runtimes: Cached::default(),
            ready: Vec::new(),
        };
        let labels = cluster_state.namespace_labels();
        assert!(Arc::ptr_eq(&labels, &cluster_state.namespace_labels()), "made once");
        cluster_state.labels.clear();
        assert!(
            !Arc::ptr_eq(&labels, &cluster_state.namespace_labels()),
            "and after a change again"
        );
        for (spec, cluster_default, expected) in [
            (json!({}), false, 50),
            (
                json!({"skillSelector": {"skills": [{"name": "s8", "namespace": "n8"}]}}),
                false,
                100,
            ),
            (json!({"skillSelector": {"namespaceSelector": {}}}), false, 10_000),
            (json!({}), true, 10_000),
        ] {
            let runtime: SkillRuntime = serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
                "metadata": {"name": "main", "namespace": "n7"}, "spec": spec,
            }))
            .unwrap();
            let scope = Scope {
                cluster_default,
                namespaces: &labels,
                default_image: None,
                allow_image_tags: false,
                environments: None,
            };
            assert_eq!(cluster_state.candidates(&runtime, &scope).len(), expected, "{spec}");
        }
        // Names 7, 407, 807 ...: 25 of the 10,000.
        assert_eq!(cluster_state.skills_from("n7", "source7").len(), 25);
        assert_eq!(cluster_state.skills_from("n8", "source7").len(), 0);
    }
}
