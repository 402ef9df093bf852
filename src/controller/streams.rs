//! Watches into stores: slim copies, retries with pauses, and a signal when the first list is complete.

use std::fmt::Debug;
use std::hash::Hash;

use futures::{Stream, StreamExt as _};
use knack_api::skill::InlineSource;
use knack_vocabulary::KEY_PREFIX;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, reflector::Lookup, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::warn;

use super::cluster_state::{ConfigMapMeta, WatchedRuntime, WatchedSkill};
use super::error::ControllerError;
use crate::api_call::LIST_PAGE;
use crate::api_client::WATCH_SECONDS;

/// A watch with its store.
pub(super) struct WatchedStore<K: Lookup + Clone + 'static>
where
    K::DynamicType: Eq + Hash + Clone + Default,
{
    pub(super) store: Store<K>,
    pub(super) ready: watch::Receiver<bool>,
    writer: reflector::store::Writer<K>,
    ready_sender: watch::Sender<bool>,
}

impl<K> WatchedStore<K>
where
    K: Resource + Lookup + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Default + Debug + Send + Sync + Unpin,
    <K as Resource>::DynamicType: Eq + Hash + Clone + Default,
{
    /// A store that nothing fills yet.
    pub(super) fn new() -> Self {
        let (store, writer) = reflector::store();
        let (ready_sender, ready) = watch::channel(false);
        Self {
            store,
            ready,
            writer,
            ready_sender,
        }
    }

    /// Fills the store. `slim` takes out of every object what is not kept; `see` sees every event.
    pub(super) fn events(
        self,
        api: Api<K>,
        config: watcher::Config,
        slim: impl FnMut(&mut K) + Send + 'static,
        mut see: impl FnMut(&watcher::Event<K>) + Send + 'static,
    ) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static {
        let Self {
            writer, ready_sender, ..
        } = self;
        retried(api, config).modify(slim).reflect(writer).inspect(move |event| {
            if let Ok(event) = event {
                if matches!(event, watcher::Event::InitDone) {
                    ready_sender.send_replace(true);
                }
                see(event);
            }
        })
    }
}

/// The events of a watch that is tried again without end, with a growing pause. The log says what could not be watched, by the path and
/// the labels that the API server is asked for.
pub(super) fn retried<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let resource = api.resource_url().to_owned();
    let labels = config.label_selector.clone().unwrap_or_default();
    watcher(api, config).default_backoff().inspect(move |event| {
        if let Err(error) = event {
            warn!(%resource, %labels, %error, "a watch failed; retrying");
        }
    })
}

/// The objects of a kind in a namespace; `None`: in all.
pub(super) fn scoped<K>(client: &Client, namespace: Option<&String>) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Drives a stream of which only the store is used.
pub(super) async fn drain(events: impl Stream) -> Result<(), ControllerError> {
    events.for_each(|_| std::future::ready(())).await;
    Ok(())
}

/// The object of an event; `None`: it is about a list.
pub(super) fn object_of<K>(event: &watcher::Event<K>) -> Option<&K> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) | watcher::Event::Delete(object) => {
            Some(object)
        }
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Settings of every watch.
pub(super) fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(LIST_PAGE)
}

/// Keeps of a skill what selection and status need; contents are fetched when they are needed.
pub(super) fn slim_skill(skill: &mut WatchedSkill) {
    slim_metadata(skill.meta_mut());
    if let DeserializeGuard(Ok(skill)) = skill
        && let Some(inline) = &mut skill.spec.source.inline
    {
        *inline = InlineSource::default();
    }
}

/// Keeps of a runtime everything but bookkeeping.
pub(super) fn slim_runtime(runtime: &mut WatchedRuntime) {
    slim_metadata(runtime.meta_mut());
}

/// Keeps only the metadata of a ConfigMap that identifies its owner and revision.
pub(super) fn slim_config_map(config_map: &mut ConfigMapMeta) {
    config_map.managed_fields_mut().clear();
    config_map.annotations_mut().clear();
}

/// kubectl's annotation holds a second copy of the object.
fn slim_metadata(metadata: &mut kube::core::ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key.starts_with(KEY_PREFIX));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::PartialObjectMeta;
    use serde_json::json;

    use super::*;
    use crate::controller::fixture;

    /// The largest object that etcd takes.
    const OBJECT_MAX_BYTES: u32 = 3 << 19;

    #[test]
    fn a_page_of_the_largest_objects_is_a_small_part_of_the_memory() {
        let page = config().page_size.unwrap();
        assert!(page * OBJECT_MAX_BYTES <= 32 << 20, "{page} objects");
    }

    /// What a test's thread logs.
    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_watch_that_fails_is_named_in_the_log() {
        let written = LogBuffer::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let _log = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
        let (address, _) = fixture::start(|_, path, _| {
            let refused =
                json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
            path.ends_with("/configmaps").then_some(refused)
        });
        let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let namespace = "team-a".to_owned();
        let stored = WatchedStore::<PartialObjectMeta<ConfigMap>>::new();
        let stored = stored.events(
            scoped(&client, Some(&namespace)),
            config().labels("a=b"),
            |_| {},
            |_| {},
        );
        let events: Api<PartialObjectMeta<ConfigMap>> = scoped(&client, None);
        assert!(stored.any(async |event| event.is_err()).await);
        assert!(retried(events, config()).any(async |event| event.is_err()).await);
        let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        // The library that watches has lines of its own.
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("a watch failed")).collect();
        for (line, words) in lines.iter().zip([
            ["resource=/api/v1/namespaces/team-a/configmaps", "labels=a=b"],
            ["resource=/api/v1/configmaps", "labels= "],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{log}");
        }
        assert_eq!(lines.len(), 2, "{log}");
    }
}
