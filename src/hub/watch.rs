//! From the API server to the world: one watch per kind and scope.

use std::fmt::Debug;
use std::sync::{Arc, RwLock};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher as start};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::settings::HubSettings;
use super::world::{Change, World, trim};
use crate::api::{Skill, SkillRuntime};

/// Load balancers drop idle watches, one at 240 s; asking anew after 200 s notices.
pub(super) const WATCH_TIMEOUT_SECONDS: u32 = 200;

/// The world, and a number that grows with every change of it.
#[derive(Debug)]
pub struct Shared {
    world: RwLock<World>,
    version: watch::Sender<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            world: RwLock::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Shared {
    /// Reads the world; keep it short, writers wait.
    pub fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        // The world is valid between any two events, so a poisoned lock is usable.
        read(&self.world.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Changes the world; `change` says what that changes for readers.
    pub fn write(&self, change: impl FnOnce(&mut World) -> Option<Change>) {
        let version = {
            let mut world = self.world.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            let change = change(&mut world);
            change.map(|change| world.log.note(change))
        };
        if let Some(new) = version {
            // Of two writers the second may be here first.
            self.version.send_modify(|version| *version = new.max(*version));
        }
    }

    /// Highest resourceVersion of any Skill that this replica has seen.
    pub fn seen(&self) -> String {
        self.read(|world| world.skills.seen().to_owned())
    }

    /// Follows the changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// How many watches there are per kind.
pub fn lists(settings: &HubSettings) -> usize {
    scopes(settings).len()
}

fn scopes(settings: &HubSettings) -> Vec<Option<String>> {
    if settings.watch_namespaces.is_empty() {
        return vec![None];
    }
    let mut all = settings.watch_namespaces.clone();
    all.extend(settings.runtime_namespaces.iter().cloned());
    all.into_iter().map(Some).collect()
}

/// Starts all watches. `on_skill` hears of every Skill that came or changed.
pub fn spawn(
    client: &Client,
    settings: &HubSettings,
    shared: &Arc<Shared>,
    on_skill: impl Fn(&Skill) + Clone + Send + Sync + 'static,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for scope in scopes(settings) {
        let (world, on_skill) = (Arc::clone(shared), on_skill.clone());
        let of = scope.clone();
        let skills = api::<DeserializeGuard<Skill>>(client, scope.as_deref());
        tasks.spawn(follow(skills, "Skill", move |event| {
            let Some(event) = decoded(event, "Skill") else { return };
            let event = map(event, trim);
            if let Event::Apply(skill) | Event::InitApply(skill) = &event {
                on_skill(skill);
            }
            world.write(|world| world.skills.take(of.as_deref(), event));
        }));
        let (world, of) = (Arc::clone(shared), scope.clone());
        let runtimes = api::<DeserializeGuard<SkillRuntime>>(client, scope.as_deref());
        tasks.spawn(follow(runtimes, "SkillRuntime", move |event| {
            if let Some(event) = decoded(event, "SkillRuntime") {
                world.write(|world| world.runtimes.take(of.as_deref(), event));
            }
        }));
    }
    let world = Arc::clone(shared);
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    tasks.spawn(follow(namespaces, "Namespace", move |event| {
        world.write(|world| world.take_namespace(event));
    }));
    tasks
}

fn api<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Follows one watch for ever. Errors are told and tried again with a growing pause; a missing CRD is such an error.
async fn follow<K>(api: Api<K>, kind: &'static str, mut take: impl FnMut(Event<K>))
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = Config::default().timeout(WATCH_TIMEOUT_SECONDS);
    let mut events = start(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take(event),
            Err(watcher::Error::InitialListFailed(error)) => {
                tracing::warn!(kind, %error, "objects cannot be listed; is the CRD installed and may the hub read it?");
            }
            Err(error) => tracing::info!(kind, %error, "a watch ended; watching again"),
        }
    }
}

/// An object that this version cannot read (a newer one wrote it) is left as it was known; it must not end the watch.
fn decoded<K>(event: Event<DeserializeGuard<K>>, kind: &'static str) -> Option<Event<K>> {
    let read = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (namespace, name) = (invalid.metadata.namespace, invalid.metadata.name);
            tracing::warn!(kind, ?namespace, ?name, error = %invalid.error, "an object cannot be read; it stays as it was");
            None
        }
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(read(guard)?),
        Event::Delete(guard) => Event::Delete(read(guard)?),
        Event::InitApply(guard) => Event::InitApply(read(guard)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

fn map<K>(event: Event<K>, change: impl Fn(K) -> K) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}
