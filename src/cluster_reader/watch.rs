//! From the API server to the cluster state: one watch per kind and scope.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future;
use std::sync::{Arc, RwLock};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_api::{Skill, SkillRuntime};
use knack_vocabulary::LABEL_RUNTIME;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher as start};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::change_log::Change;
use super::cluster_state::{ClusterState, trim};
use super::decoded::{Undecoded, decoded};
use crate::api_call::{LIST_PAGE, call};
use crate::api_client::WATCH_SECONDS;
use crate::environments;
use crate::tasks::Tasks;

/// The cluster state, and a number that grows with every change of it.
#[derive(Debug)]
pub struct Shared {
    cluster_state: RwLock<ClusterState>,
    version: watch::Sender<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            cluster_state: RwLock::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Shared {
    /// Reads the cluster state; keep it short, writers wait.
    pub fn read<T>(&self, read: impl FnOnce(&ClusterState) -> T) -> T {
        // The cluster state is valid between any two events, so a poisoned lock is usable.
        read(
            &self
                .cluster_state
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }

    /// Applies a change to the cluster state; `change` describes it for readers. Returns what `change` returned.
    pub fn write(&self, change: impl FnOnce(&mut ClusterState) -> Option<Change>) -> Option<Change> {
        let mut cluster_state = self
            .cluster_state
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let change = change(&mut cluster_state)?;
        let new = cluster_state.log.note(change.clone());
        drop(cluster_state);
        // The second of two writers may get here first.
        self.version.send_modify(|version| *version = new.max(*version));
        Some(change)
    }

    /// Highest resourceVersion of any Skill that this replica has seen.
    pub fn newest_version(&self) -> String {
        self.read(|cluster_state| cluster_state.skills.newest_version().to_owned())
    }

    /// Follows the changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// The watched objects.
#[derive(Debug, Clone, Default)]
pub struct WatchSettings {
    /// Namespace of the release.
    pub namespace: String,
    /// Namespaces whose Skills and SkillRuntimes are watched; empty: all.
    pub watch_namespaces: BTreeSet<String>,
    /// Namespaces where code runs, watched too.
    pub runtime_namespaces: BTreeSet<String>,
    /// Whether builders say what they know of environments of packages.
    pub packages: bool,
    /// Whether the fences of these namespaces are watched: by whoever runs code there.
    pub fences: bool,
}

/// How many watches there are per kind.
pub fn lists(settings: &WatchSettings) -> usize {
    scopes(settings).len()
}

fn scopes(settings: &WatchSettings) -> Vec<Option<String>> {
    match namespaces(settings) {
        None => vec![None],
        Some(namespaces) => namespaces.into_iter().map(Some).collect(),
    }
}

/// The namespaces that are watched; `None`: all.
pub fn namespaces(settings: &WatchSettings) -> Option<Vec<String>> {
    let watched = &settings.watch_namespaces;
    (!watched.is_empty()).then(|| watched.union(&settings.runtime_namespaces).cloned().collect())
}

/// Starts all watches. `on_skill` is called for every Skill that is new or changed, once it is in the cluster state.
pub(crate) fn spawn(
    client: &Client,
    settings: &WatchSettings,
    shared: &Arc<Shared>,
    on_skill: impl Fn(&Skill) + Clone + Send + Sync + 'static,
) -> Tasks {
    let mut tasks = Tasks::default();
    for scope in scopes(settings) {
        let skills = api(client, scope.as_deref());
        tasks.spawn(
            "watch of Skills",
            follow_skills(skills, scope.clone(), Arc::clone(shared), on_skill.clone()),
        );
        let (cluster_state, of) = (Arc::clone(shared), scope.clone());
        let runtimes = api::<DeserializeGuard<SkillRuntime>>(client, scope.as_deref());
        let take = move |event| {
            let event = decoded(event, "SkillRuntime");
            cluster_state.write(|cluster_state| cluster_state.runtimes.take(of.as_deref(), event));
            future::ready(())
        };
        tasks.spawn("watch of SkillRuntimes", follow(runtimes, "SkillRuntime", take));
    }
    if settings.fences {
        for namespace in &settings.runtime_namespaces {
            let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
            let (cluster_state, of) = (Arc::clone(shared), namespace.clone());
            let take = move |event| {
                cluster_state.write(|cluster_state| Arc::make_mut(&mut cluster_state.fences).apply(&of, event));
                future::ready(())
            };
            // The policies of runtimes have the label; one that loses it is reported as deleted.
            let fences = Config::default().labels(LABEL_RUNTIME);
            tasks.spawn(
                "watch of NetworkPolicies",
                follow_some(policies, fences, "NetworkPolicy", take),
            );
        }
    }
    if settings.packages {
        let (client, cluster_state, namespace) = (client.clone(), Arc::clone(shared), settings.namespace.clone());
        let take = move |records| {
            cluster_state.write(|cluster_state| {
                let has_changed = *cluster_state.environments != records || !cluster_state.environments_listed;
                (cluster_state.environments, cluster_state.environments_listed) = (Arc::new(records), true);
                has_changed.then_some(Change::All)
            });
        };
        tasks.spawn("watch of environments", environments::follow(client, namespace, take));
    }
    let cluster_state = Arc::clone(shared);
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let take = move |event| {
        cluster_state.write(|cluster_state| cluster_state.take_namespace(event));
        future::ready(())
    };
    tasks.spawn("watch of Namespaces", follow(namespaces, "Namespace", take));
    tasks
}

/// Follows the Skills of a scope.
async fn follow_skills(
    api: Api<DeserializeGuard<Skill>>,
    scope: Option<String>,
    shared: Arc<Shared>,
    on_skill: impl Fn(&Skill) + Clone,
) {
    follow(api.clone(), "Skill", |event| {
        let is_init = matches!(event, Event::Init);
        let event = decoded(event, "Skill").map(|event| map(event, trim));
        take_skill(&shared, scope.as_deref(), event, &on_skill);
        let (api, shared, scope) = (api.clone(), Arc::clone(&shared), scope.clone());
        async move {
            if is_init {
                note_revision(&api, &shared, scope.as_deref()).await;
            }
        }
    })
    .await;
}

/// Records the resourceVersion that the next list has at least. Its objects do not show it: the newest one may be deleted.
async fn note_revision(api: &Api<DeserializeGuard<Skill>>, shared: &Shared, scope: Option<&str>) {
    let listed = call(
        || "list Skills".to_owned(),
        api.list_metadata(&ListParams::default().limit(1)),
    )
    .await;
    match listed {
        Ok(list) => {
            let revision = list.metadata.resource_version.unwrap_or_default();
            shared.write(|cluster_state| {
                cluster_state.skills.set_list_version(scope, revision);
                None
            });
        }
        // The list that follows asks the same server, and logs its failure.
        Err(error) => tracing::debug!(%error, "the resourceVersion of the list of Skills could not be read"),
    }
}

/// Applies an event of the watch over `scope`, and then calls `on_skill` for what it changed. In this order: a reader of
/// artifacts gives up a revision that the cluster state does not name.
pub(crate) fn take_skill(
    shared: &Shared,
    scope: Option<&str>,
    event: Result<Event<Skill>, Undecoded>,
    on_skill: impl Fn(&Skill),
) {
    let change = shared.write(|cluster_state| cluster_state.skills.take(scope, event));
    let changed: Vec<Arc<Skill>> = shared.read(|cluster_state| match &change {
        None => Vec::new(),
        Some(Change::Skill(id)) => cluster_state
            .skills
            .get(&id.namespace, &id.name)
            .cloned()
            .into_iter()
            .collect(),
        Some(Change::All | Change::Runtime(_)) => cluster_state.skills.iter().cloned().collect(),
    });
    for skill in &changed {
        on_skill(skill);
    }
}

pub(crate) fn api<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Follows one watch without end; the next event is asked for when `take` is done with one. Errors are logged and retried
/// with a growing pause; a missing CRD is such an error.
pub(crate) async fn follow<K, Done>(api: Api<K>, kind: &'static str, take: impl FnMut(Event<K>) -> Done)
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    Done: Future<Output = ()>,
{
    follow_some(api, Config::default(), kind, take).await;
}

/// As [`follow`], of the objects that a selector takes.
async fn follow_some<K, Done>(api: Api<K>, selector: Config, kind: &'static str, mut take: impl FnMut(Event<K>) -> Done)
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    Done: Future<Output = ()>,
{
    let config = selector.timeout(WATCH_SECONDS).page_size(LIST_PAGE);
    let mut events = start(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take(event).await,
            Err(watcher::Error::InitialListFailed(error)) => {
                tracing::warn!(kind, %error, "objects cannot be listed; is the CRD installed and may this process read it?");
            }
            Err(error) => tracing::info!(kind, %error, "a watch ended; watching again"),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use axum::extract::RawQuery;
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::get;
    use axum::{Json, Router};

    use super::*;
    use crate::api_client;

    fn guarded(name: &str, spec: &serde_json::Value) -> DeserializeGuard<SkillRuntime> {
        let object = serde_json::json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"namespace": "run", "name": name, "uid": name, "resourceVersion": "7"}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    /// What a newer version wrote is served as it was until it is deleted, and then no more.
    #[test]
    fn an_object_that_cannot_be_decoded_is_kept_by_a_list_and_goes_with_its_deletion() {
        let mut cluster_state = ClusterState::default();
        let mut take = |event| cluster_state.runtimes.take(None, decoded(event, "SkillRuntime"));
        let unreadable = |name: &str| {
            let guard = guarded(name, &serde_json::json!({"sandbox": 1}));
            assert!(guard.0.is_err());
            guard
        };
        for name in ["a", "b"] {
            take(Event::Apply(guarded(name, &serde_json::json!({}))));
        }
        take(Event::Apply(unreadable("a")));
        take(Event::Init);
        take(Event::InitApply(unreadable("a")));
        take(Event::InitApply(unreadable("b")));
        take(Event::InitApply(unreadable("never seen")));
        take(Event::InitDone);
        assert!(take(Event::Delete(unreadable("b"))).is_some());
        assert!(take(Event::Delete(unreadable("b"))).is_none());
        let names: Vec<_> = cluster_state
            .runtimes
            .iter()
            .map(|runtime| runtime.metadata.name.clone())
            .collect();
        assert_eq!(names, [Some("a".to_owned())]);
        assert_eq!(cluster_state.runtimes.newest_version(), "7");
    }

    /// An API server without Skills, at revision 500.
    async fn skills(RawQuery(query): RawQuery) -> Response {
        if query.unwrap_or_default().contains("watch=true") {
            return future::pending().await;
        }
        Json(serde_json::json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillList", "metadata": {"resourceVersion": "500"}, "items": [],
        }))
        .into_response()
    }

    /// The first list is acknowledged and never answered: its API server's machine is gone.
    #[tokio::test]
    async fn a_list_that_is_never_answered_is_asked_for_again() {
        let asked = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&asked);
        let lists = move |query: RawQuery| async move {
            let is_list = query
                .0
                .as_deref()
                .is_some_and(|query| !query.contains("limit=1&") && !query.ends_with("limit=1"));
            if is_list && counted.fetch_add(1, Ordering::Relaxed) == 0 {
                return future::pending().await;
            }
            skills(query).await
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/apis/knack.dev/v1alpha1/skills", get(lists));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut config = api_client::bounded(kube::Config::new(url.parse().unwrap()));
        assert!(config.read_timeout > Some(Duration::from_secs(WATCH_SECONDS.into())));
        // As it does after minutes.
        config.read_timeout = Some(Duration::from_millis(500));
        let shared = Arc::new(Shared::default());
        let mut changes = shared.changes();
        let api = Api::all(Client::try_from(config).unwrap());
        let following = tokio::spawn(follow_skills(api, None, Arc::clone(&shared), |_| {}));
        let listed = changes.wait_for(|_| shared.read(|cluster_state| cluster_state.skills.is_complete(1)));
        let listed = tokio::time::timeout(Duration::from_mins(1), listed).await;
        assert!(listed.is_ok(), "a deleted Skill would be served for ever");
        assert!(asked.load(Ordering::Relaxed) > 1);
        following.abort();
    }

    #[tokio::test]
    async fn a_list_is_as_new_as_the_server_says_though_its_newest_skill_is_deleted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/apis/knack.dev/v1alpha1/skills", get(skills));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let shared = Arc::new(Shared::default());
        let mut changes = shared.changes();
        let following = tokio::spawn(follow_skills(Api::all(client), None, Arc::clone(&shared), |_| {}));
        let listed = changes.wait_for(|_| shared.read(|cluster_state| cluster_state.skills.is_complete(1)));
        let listed = tokio::time::timeout(std::time::Duration::from_mins(1), listed).await;
        assert!(listed.is_ok(), "nothing was listed");
        assert_eq!(shared.newest_version(), "500");
        following.abort();
    }
}
