//! The watches of a watch scope, one namespace or all, and the cluster state that they fill.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{mpsc, watch};

use super::cluster_state::{Cached, ConfigMapMeta, ControllerState, WatchScope, WatchedRuntime, WatchedSkill};
use super::key_index::KeyIndex;
use super::settings::{ControllerSettings, TRIGGER_QUEUE};
use super::streams::WatchedStore;

/// The indexes over the skills of a watch scope.
#[derive(Default)]
#[expect(clippy::struct_field_names, reason = "each is read as `skills by word`")]
pub(super) struct SkillIndexes {
    pub(super) by_word: KeyIndex,
    pub(super) by_namespace: KeyIndex,
    pub(super) by_source: KeyIndex,
}

/// The watches of one namespace, or of all, before they start.
pub(super) struct ScopeWatches {
    pub(super) namespace: Option<String>,
    pub(super) skills: WatchedStore<WatchedSkill>,
    pub(super) runtimes: WatchedStore<WatchedRuntime>,
    pub(super) config_maps: WatchedStore<ConfigMapMeta>,
    pub(super) uploads: WatchedStore<ConfigMapMeta>,
    pub(super) skill_indexes: SkillIndexes,
    pub(super) config_maps_by_owner: KeyIndex,
    pub(super) skill_triggers: mpsc::Receiver<ObjectRef<WatchedSkill>>,
    pub(super) runtime_triggers: mpsc::Receiver<ObjectRef<WatchedRuntime>>,
}

/// Where reconciles of skills and of runtimes are requested.
pub(super) type Triggers = (
    Vec<mpsc::Sender<ObjectRef<WatchedSkill>>>,
    Vec<mpsc::Sender<ObjectRef<WatchedRuntime>>>,
);

impl ScopeWatches {
    /// The watches of a namespace, or of all, and the senders of its triggers.
    fn new(
        namespace: Option<String>,
    ) -> (
        Self,
        mpsc::Sender<ObjectRef<WatchedSkill>>,
        mpsc::Sender<ObjectRef<WatchedRuntime>>,
    ) {
        let (skill_sender, skill_triggers) = mpsc::channel(TRIGGER_QUEUE);
        let (runtime_sender, runtime_triggers) = mpsc::channel(TRIGGER_QUEUE);
        let watches = Self {
            namespace,
            skills: WatchedStore::new(),
            runtimes: WatchedStore::new(),
            config_maps: WatchedStore::new(),
            uploads: WatchedStore::new(),
            skill_indexes: SkillIndexes::default(),
            config_maps_by_owner: KeyIndex::default(),
            skill_triggers,
            runtime_triggers,
        };
        (watches, skill_sender, runtime_sender)
    }

    /// The part of the cluster state that these watches fill.
    fn watch_scope(&self) -> WatchScope {
        WatchScope {
            skills: self.skills.store.clone(),
            runtimes: self.runtimes.store.clone(),
            config_maps: self.config_maps.store.clone(),
            uploads: self.uploads.store.clone(),
            skills_by_word: self.skill_indexes.by_word.clone(),
            skills_by_namespace: self.skill_indexes.by_namespace.clone(),
            skills_by_source: self.skill_indexes.by_source.clone(),
            config_maps_by_owner: self.config_maps_by_owner.clone(),
        }
    }

    /// A signal for each watch, once its first list is complete.
    fn ready(&self) -> [watch::Receiver<bool>; 4] {
        [
            self.skills.ready.clone(),
            self.runtimes.ready.clone(),
            self.config_maps.ready.clone(),
            self.uploads.ready.clone(),
        ]
    }
}

/// The watches of the settings' namespaces, none of them started, and the cluster state that they will fill.
pub(super) fn prepare(
    settings: &ControllerSettings,
    labels: &WatchedStore<PartialObjectMeta<Namespace>>,
) -> (Vec<ScopeWatches>, Triggers, ControllerState) {
    let own = settings.namespaces();
    let namespaces: Vec<Option<String>> = if own.is_empty() {
        vec![None]
    } else {
        own.into_iter().map(|name| Some(name.to_owned())).collect()
    };
    let (mut watch_scopes, mut skill_senders, mut runtime_senders) = (Vec::new(), Vec::new(), Vec::new());
    for namespace in namespaces {
        let (watches, skill_sender, runtime_sender) = ScopeWatches::new(namespace);
        skill_senders.push(skill_sender);
        runtime_senders.push(runtime_sender);
        watch_scopes.push(watches);
    }
    let ready = watch_scopes.iter().flat_map(ScopeWatches::ready);
    let cluster_state = ControllerState {
        watch_scopes: watch_scopes.iter().map(ScopeWatches::watch_scope).collect(),
        namespaces: labels.store.clone(),
        labels: Cached::default(),
        sorted_runtimes: Cached::default(),
        ready: ready.chain([labels.ready.clone()]).collect(),
    };
    (watch_scopes, (skill_senders, runtime_senders), cluster_state)
}
