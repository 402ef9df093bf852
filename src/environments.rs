//! The statuses of environments that `knack packages serve` writes for controller and hub: one ConfigMap of the release namespace.

use std::fmt::Debug;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use knack_packages::EnvironmentStatuses;
use knack_vocabulary::CONFIG_MAP_PACKAGES;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher as start};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::api_client::WATCH_SECONDS;

/// What it means that objects of packages cannot be read.
pub(crate) const PACKAGES_WAIT: &str = "skills with packages wait for it";

/// The statuses of the ConfigMap; keys of another form are not theirs.
fn statuses(object: &ConfigMap) -> EnvironmentStatuses {
    EnvironmentStatuses::read(object.data.iter().flatten())
}

/// Follows the statuses without end. `take` gets them once they are listed, and whenever they change.
pub(crate) async fn follow(client: Client, namespace: String, mut take: impl FnMut(EnvironmentStatuses)) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    follow_one(api, CONFIG_MAP_PACKAGES, PACKAGES_WAIT, |object| {
        take(object.as_ref().map(statuses).unwrap_or_default());
    })
    .await;
}

/// Follows one object without end. `take` gets it, or `None` if there is none, once it is listed and whenever it changes. `without`: what
/// the log says of the time in which it cannot be read.
pub(crate) async fn follow_one<K>(api: Api<K>, name: &str, without: &str, mut take: impl FnMut(Option<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = Config::default()
        .timeout(WATCH_SECONDS)
        .fields(&format!("metadata.name={name}"));
    let kind = K::kind(&());
    let mut events = start(api, config).default_backoff().boxed();
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed = None,
            Ok(Event::InitApply(object)) => listed = Some(object),
            Ok(Event::InitDone) => take(listed.take()),
            Ok(Event::Apply(object)) => take(Some(object)),
            Ok(Event::Delete(_)) => take(None),
            Err(watcher::Error::InitialListFailed(error)) => {
                tracing::warn!(%error, "{kind} {name} cannot be read; {without}");
            }
            Err(error) => tracing::info!(%error, "the watch of {kind} {name} ended; watching again"),
        }
    }
}
