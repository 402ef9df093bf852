//! What the controller knows of the cluster: slim copies of its objects, kept by watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::watch;

use super::index::Index;
use crate::api::{Skill, SkillRuntime};
use crate::selection::NamespaceLabels;

/// A skill as watched: without file contents, and possibly undecodable.
pub(super) type WatchedSkill = DeserializeGuard<Skill>;
/// A runtime as watched.
pub(super) type WatchedRuntime = DeserializeGuard<SkillRuntime>;
/// Metadata of a ConfigMap.
pub(super) type ConfigMapMeta = PartialObjectMeta<ConfigMap>;

/// The stores of one watched namespace, or of all.
#[derive(Debug, Clone)]
pub(super) struct Realm {
    pub(super) skills: Store<WatchedSkill>,
    pub(super) runtimes: Store<WatchedRuntime>,
    pub(super) config_maps: Store<ConfigMapMeta>,
    /// Skills by their name.
    pub(super) skills_by_name: Index,
    /// ConfigMaps by the uid of their controller.
    pub(super) config_maps_by_owner: Index,
}

/// All stores.
#[derive(Debug)]
pub(super) struct World {
    pub(super) realms: Vec<Realm>,
    pub(super) namespaces: Store<PartialObjectMeta<Namespace>>,
    /// One per stream; true once its first list is complete.
    pub(super) ready: Vec<watch::Receiver<bool>>,
}

impl World {
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

    /// Every decodable skill that is not being deleted.
    pub(super) fn skills(&self) -> Vec<Arc<WatchedSkill>> {
        let stores = self.realms.iter().map(|realm| &realm.skills);
        let mut all: Vec<_> = stores.flat_map(Store::state).collect();
        all.retain(|skill| decoded(skill).is_some());
        all
    }

    /// Skills of one name, in any namespace.
    pub(super) fn namesakes(&self, name: &str) -> Vec<Arc<WatchedSkill>> {
        let found = self
            .realms
            .iter()
            .flat_map(|realm| members(&realm.skills_by_name, name, &realm.skills));
        found.filter(|skill| decoded(skill).is_some()).collect()
    }

    /// Every decodable runtime that is not being deleted, by namespace and name.
    pub(super) fn runtimes(&self) -> Vec<Arc<WatchedRuntime>> {
        let mut all: Vec<_> = self.realms.iter().flat_map(|realm| realm.runtimes.state()).collect();
        all.retain(|runtime| runtime.0.is_ok() && runtime.meta().deletion_timestamp.is_none());
        all.sort_by_key(|runtime| (runtime.namespace(), runtime.name_any()));
        all
    }

    /// Metadata of a ConfigMap that carries a skill's label.
    pub(super) fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMapMeta>> {
        let key = ObjectRef::<ConfigMapMeta>::new(name).within(namespace);
        self.realms.iter().find_map(|realm| realm.config_maps.get(&key))
    }

    /// Metadata of the ConfigMaps that an object controls.
    pub(super) fn owned_config_maps(&self, namespace: &str, uid: &str) -> Vec<Arc<ConfigMapMeta>> {
        let found = self
            .realms
            .iter()
            .flat_map(|realm| members(&realm.config_maps_by_owner, uid, &realm.config_maps));
        found
            .filter(|config_map| {
                config_map.metadata.namespace.as_deref() == Some(namespace)
                    && is_controlled_by(&config_map.metadata, uid)
            })
            .collect()
    }

    /// Labels of every namespace.
    pub(super) fn namespace_labels(&self) -> NamespaceLabels {
        let labelled = self.namespaces.state().into_iter();
        labelled
            .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
            .collect::<BTreeMap<_, _>>()
    }
}

/// What a store holds of an index's entry.
fn members<K>(index: &Index, key: &str, store: &Store<K>) -> Vec<Arc<K>>
where
    K: kube::runtime::reflector::Lookup + Clone + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let members = index.members(key).into_iter();
    members
        .filter_map(|(namespace, name)| store.get(&ObjectRef::new(&name).within(&namespace)))
        .collect()
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

/// The uid of an object's controller.
pub(super) fn controller_uid(meta: &kube::core::ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.uid.as_str())
}
