//! The replicas of the hub, from the EndpointSlices of its own Service.
//!
//! Kubernetes maintains them: they contain a replica while it is ready, until its termination
//! begins. Reading them in the release's namespace is the only right that this needs.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use knack_vocabulary::{LABEL_SERVICE_NAME, SERVICE_HUB};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api_client::WATCH_SECONDS;
use crate::lease::Peers;

/// Names of ready pods by EndpointSlice.
#[derive(Debug, Default)]
struct ReadyPeers {
    known: BTreeMap<String, BTreeSet<String>>,
    /// A list that is not complete yet.
    listed: BTreeMap<String, BTreeSet<String>>,
}

impl ReadyPeers {
    /// Takes an event; the ready pods, once they are known.
    fn take(&mut self, event: Event<EndpointSlice>) -> Option<BTreeSet<String>> {
        match event {
            Event::Apply(slice) => drop(self.known.insert(slice.name_any(), ready_pods(&slice))),
            Event::Delete(slice) => drop(self.known.remove(&slice.name_any())),
            Event::Init => {
                self.listed.clear();
                return None;
            }
            Event::InitApply(slice) => {
                self.listed.insert(slice.name_any(), ready_pods(&slice));
                return None;
            }
            Event::InitDone => self.known = std::mem::take(&mut self.listed),
        }
        Some(self.known.values().flatten().cloned().collect())
    }
}

/// Names of the pods behind a slice that get traffic.
fn ready_pods(slice: &EndpointSlice) -> BTreeSet<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        // Absent: ready, as the API defines it.
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    });
    ready
        .filter_map(|endpoint| endpoint.target_ref.as_ref())
        .filter(|target| target.kind.as_deref() == Some("Pod"))
        .filter_map(|target| target.name.clone())
        .collect()
}

/// Reports the replicas whenever they change, without end. While they cannot be read, the last ones known count.
pub(super) async fn follow(client: Client, namespace: String, peers: watch::Sender<Peers>) {
    let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
    let config = Config::default()
        .labels(&format!("{LABEL_SERVICE_NAME}={SERVICE_HUB}"))
        .timeout(WATCH_SECONDS);
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut slices = ReadyPeers::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(ready) = slices.take(event) {
                    let replicas = ready.len();
                    if peers.send_if_modified(|peers| peers.see(ready, Instant::now())) {
                        tracing::info!(replicas, "the replicas of the hub changed");
                    }
                }
            }
            Err(watcher::Error::InitialListFailed(error)) => {
                tracing::warn!(%error, "the hub's EndpointSlices cannot be listed; runtimes are not spread over replicas");
            }
            Err(error) => tracing::info!(%error, "a watch ended; watching again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, endpoints: &Value) -> EndpointSlice {
        let object = json!({
            "metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints, "ports": [],
        });
        serde_json::from_value(object).unwrap()
    }

    fn endpoint(pod: &str, ready: Option<bool>) -> Value {
        json!({"addresses": ["10.0.0.7"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}})
    }

    fn names(ready: Option<BTreeSet<String>>) -> String {
        ready.map_or_else(
            || "?".to_owned(),
            |ready| ready.into_iter().collect::<Vec<_>>().join(" "),
        )
    }

    #[test]
    fn pods_that_get_traffic_are_replicas() {
        let mut slices = ReadyPeers::default();
        let first = slice("s-1", &json!([endpoint("a", Some(true)), endpoint("b", Some(false))]));
        let second = slice("s-2", &json!([endpoint("c", None), {"addresses": ["10.0.0.8"]}]));
        // A pod with two address families has two endpoints.
        let both = slice("s-1", &json!([endpoint("b", Some(true)), endpoint("c", Some(true))]));
        for (event, expected) in [
            (Event::Init, "?"),
            (Event::InitApply(first), "?"),
            (Event::InitApply(second.clone()), "?"),
            (Event::InitDone, "a c"),
            (Event::Apply(both.clone()), "b c"),
            (Event::Delete(second), "b c"),
            (Event::Init, "?"),
            (Event::InitDone, ""),
            (Event::Apply(both), "b c"),
        ] {
            assert_eq!(names(slices.take(event)), expected);
        }
    }
}
