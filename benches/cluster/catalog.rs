//! What the hub serves at this moment, by its own stream of the whole catalog.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use knack_hub_api::CatalogLine;
use knack_hub_api::client::HubClient;
use kube::Api;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::installation::{Installation, TENANT, apply, hub_client};

/// The account of the stream: it may do everything, so that it sees every namespace's Skills as gateways do, and its stream
/// shares their view at the hub.
const READER: &str = "reader";
/// Between two tries to open the stream.
const RETRY: Duration = Duration::from_millis(50);

/// The last complete state of the catalog.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Digests by name, by namespace.
    skills: HashMap<String, HashMap<String, String>>,
}

impl Served {
    /// How many Skills of a namespace are served.
    pub(crate) fn count(&self, namespace: &str) -> usize {
        self.skills.get(namespace).map_or(0, HashMap::len)
    }

    /// The content of a Skill that is served.
    pub(crate) fn digest(&self, namespace: &str, name: &str) -> Option<&str> {
        self.skills.get(namespace)?.get(name).map(String::as_str)
    }

    /// Whether nothing is known: the stream has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Takes a line. Returns whether the state is complete.
    fn take(&mut self, line: CatalogLine) -> bool {
        match line {
            CatalogLine::Hello(_) => self.skills.clear(),
            CatalogLine::Skill(skill) => {
                let of_namespace = self.skills.entry(skill.namespace).or_default();
                of_namespace.insert(skill.name, skill.digest);
            }
            CatalogLine::Removed(removed) => {
                if let Some(of_namespace) = self.skills.get_mut(&removed.namespace) {
                    of_namespace.remove(&removed.name);
                }
            }
            CatalogLine::Synced(_) => return true,
            _ => {}
        }
        false
    }
}

/// The stream.
pub(crate) struct Catalog {
    served: watch::Receiver<Served>,
    _following: AbortOnDropHandle<()>,
}

impl Catalog {
    /// Opens it, and opens it again whenever it ends.
    pub(crate) async fn follow(client: &kube::Client) -> Self {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), TENANT);
        apply(&accounts, READER, "v1", "ServiceAccount", json!({})).await;
        let binding = json!({
            "subjects": [{"kind": "ServiceAccount", "namespace": TENANT, "name": READER}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        });
        let (name, version) = (format!("bench-{READER}"), "rbac.authorization.k8s.io/v1");
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        apply(&bindings, &name, version, "ClusterRoleBinding", binding).await;
        let hub = hub_client(client, READER).await;
        let (sender, served) = watch::channel(Served::default());
        Self {
            served,
            _following: AbortOnDropHandle::new(tokio::spawn(read(hub, sender))),
        }
    }

    /// Waits until a complete state fits.
    pub(crate) async fn until(&self, what: &str, patience: Duration, fits: impl FnMut(&Served) -> bool) {
        let mut served = self.served.clone();
        let found = tokio::time::timeout(patience, served.wait_for(fits)).await;
        found
            .unwrap_or_else(|_| panic!("not within {patience:?}: {what}"))
            .expect("the stream is read on");
    }

    /// The content of a Skill that is served now.
    pub(crate) fn digest(&self, namespace: &str, name: &str) -> Option<String> {
        self.served.borrow().digest(namespace, name).map(str::to_owned)
    }
}

async fn read(hub: HubClient, served: watch::Sender<Served>) {
    let path = format!("/v1/catalog?runtime={}&watch=true", Installation::runtime());
    loop {
        if let Ok(mut lines) = hub.hub().watch(&path).await {
            while let Ok(Some(line)) = lines.next_value::<CatalogLine>().await {
                served.send_if_modified(|served| served.take(line));
            }
        }
        served.send_if_modified(|served| {
            let was_known = !served.is_empty();
            served.skills.clear();
            was_known
        });
        tokio::time::sleep(RETRY).await;
    }
}
