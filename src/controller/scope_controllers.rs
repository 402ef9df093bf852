//! The controllers of a watch scope: from the events of its watches to reconciles of skills and runtimes.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use knack_vocabulary::{KIND_SKILL, LABEL_SKILL, LABEL_UPLOAD};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, WatchStreamExt as _, controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster_state::{ConfigMapMeta, WatchedRuntime, WatchedSkill, controller_uid, source_key, words_of};
use super::context::Context;
use super::error::ControllerError;
use super::pending_changes::PendingChanges;
use super::scope_watches::{ScopeWatches, SkillIndexes};
use super::settings::{RUNTIME_CONCURRENCY, SKILL_CONCURRENCY};
use super::streams::{
    WatchedStore, config, drain, object_of, retried, scoped, slim_config_map, slim_runtime, slim_skill,
};
use super::use_events::LastEvents;
use super::{runtime, skill};

/// Starts the controllers of one namespace, or of all.
pub(super) fn start(
    tasks: &mut JoinSet<Result<(), ControllerError>>,
    client: &Client,
    context: &Arc<Context>,
    watches: ScopeWatches,
    stop: &CancellationToken,
) {
    let namespace = watches.namespace.as_ref();
    let (skill_store, runtime_store) = (watches.skills.store.clone(), watches.runtimes.store.clone());
    let skills = skill_events(
        watches.skills,
        scoped(client, namespace),
        watches.skill_indexes,
        Arc::clone(&context.changes),
    );
    let config_maps_by_owner = watches.config_maps_by_owner;
    let owned = watches.config_maps.events(
        scoped(client, namespace),
        config().labels(LABEL_SKILL),
        slim_config_map,
        move |event| {
            config_maps_by_owner.apply(event, |config_map| {
                controller_uid(&config_map.metadata).map(str::to_owned)
            });
        },
    );
    let uploads = watches.uploads.events(
        scoped(client, namespace),
        config().labels(&format!("{LABEL_UPLOAD},!{LABEL_SKILL}")),
        slim_config_map,
        |_| {},
    );
    // Others that skills name as their source carry no label of Knack; only events are wanted, so nothing is stored.
    let foreign: Api<ConfigMapMeta> = scoped(client, namespace);
    let foreign = retried(foreign, config().labels(&format!("!{LABEL_SKILL},!{LABEL_UPLOAD}"))).touched_objects();
    let (named, uploaded) = (Arc::clone(context), Arc::clone(context));
    let skill_controller = Controller::for_stream(skills.applied_objects(), skill_store)
        .with_config(controller::Config::default().concurrency(SKILL_CONCURRENCY))
        .watches_stream(owned.touched_objects(), |config_map| owner_of(&config_map))
        .watches_stream(uploads.touched_objects(), move |config_map| {
            users_of(&uploaded, &config_map)
        })
        .watches_stream(foreign, move |config_map: ConfigMapMeta| users_of(&named, &config_map))
        .reconcile_on(requested(watches.skill_triggers))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(skill::reconcile, skill::failed, Arc::clone(context));
    tasks.spawn(drain(skill_controller));
    let runtimes = runtime_events(tasks, watches.runtimes, scoped(client, namespace), Arc::clone(context));
    let runtime_controller = Controller::for_stream(runtimes.applied_objects(), runtime_store)
        .with_config(controller::Config::default().concurrency(RUNTIME_CONCURRENCY))
        .reconcile_on(requested(watches.runtime_triggers))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(runtime::reconcile, runtime::failed, Arc::clone(context));
    tasks.spawn(drain(runtime_controller));
}

/// The events of skills, which keep the indexes and note what changed. Those that are nothing but uses end here.
fn skill_events(
    watch: WatchedStore<WatchedSkill>,
    api: Api<WatchedSkill>,
    indexes: SkillIndexes,
    changes: Arc<PendingChanges>,
) -> impl Stream<Item = Result<watcher::Event<WatchedSkill>, watcher::Error>> + Send + 'static {
    let mut last_events = LastEvents::of(watch.store.clone());
    let events = watch.events(api, config(), slim_skill, move |event| {
        indexes.by_word.apply(event, words_of);
        indexes.by_namespace.apply(event, ResourceExt::namespace);
        indexes.by_source.apply(event, sources_of);
    });
    let others =
        events.filter(move |event| future::ready(!event.as_ref().is_ok_and(|event| last_events.is_use(event))));
    others.inspect(move |event| {
        let Ok(event) = event else { return };
        match (object_of(event), event) {
            (Some(skill), _) => {
                let (namespace, name) = (&skill.meta().namespace, &skill.meta().name);
                changes.skill(
                    namespace.as_deref().unwrap_or_default(),
                    name.as_deref().unwrap_or_default(),
                );
            }
            (None, watcher::Event::InitDone) => changes.list_of_skills(),
            (None, _) => {}
        }
    })
}

/// The events of runtimes, and the task that forgets the deleted ones.
fn runtime_events(
    tasks: &mut JoinSet<Result<(), ControllerError>>,
    watch: WatchedStore<WatchedRuntime>,
    api: Api<WatchedRuntime>,
    context: Arc<Context>,
) -> impl Stream<Item = Result<watcher::Event<WatchedRuntime>, watcher::Error>> + Send + 'static + use<> {
    let sorted_runtimes = context.cluster_state.sorted_runtimes.clone();
    let (forget, mut forgotten) = mpsc::unbounded_channel::<(String, String)>();
    tasks.spawn(async move {
        while let Some((namespace, name)) = forgotten.recv().await {
            runtime::forget(&context, &namespace, &name).await;
        }
        Ok(())
    });
    watch.events(api, config(), slim_runtime, move |event| {
        sorted_runtimes.clear();
        if let watcher::Event::Delete(runtime) = event {
            // A closed channel means that the process ends.
            let _ = forget.send((runtime.namespace().unwrap_or_default(), runtime.name_any()));
        }
    })
}

/// The requested objects as a stream.
fn requested<K: Send + 'static>(triggers: mpsc::Receiver<K>) -> impl Stream<Item = K> + Send + 'static {
    stream::unfold(triggers, |mut triggers| async {
        triggers.recv().await.map(|key| (key, triggers))
    })
}

/// The keys of the ConfigMaps that a skill names as its source.
pub(super) fn sources_of(skill: &WatchedSkill) -> Vec<String> {
    let (Ok(object), Some(namespace)) = (&skill.0, &skill.meta().namespace) else {
        return Vec::new();
    };
    let maps = object.spec.source.config_maps();
    maps.map(|name| source_key(namespace, name)).collect()
}

/// The skill that owns a ConfigMap.
fn owner_of(config_map: &ConfigMapMeta) -> Option<ObjectRef<WatchedSkill>> {
    let owner = config_map
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == KIND_SKILL)?;
    Some(ObjectRef::new(&owner.name).within(config_map.metadata.namespace.as_deref()?))
}

/// The skills that have a ConfigMap as source.
fn users_of(context: &Context, config_map: &PartialObjectMeta<ConfigMap>) -> Vec<ObjectRef<WatchedSkill>> {
    let namespace = config_map.namespace().unwrap_or_default();
    let users = context
        .cluster_state
        .skills_from(&namespace, &config_map.name_any())
        .into_iter();
    users
        .map(|skill| ObjectRef::new(&skill.name).within(&skill.namespace))
        .collect()
}
