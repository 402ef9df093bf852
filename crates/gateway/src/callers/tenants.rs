//! The catalogs of a shared gateway's clients: each of their namespaces has its own.
//!
//! The client check has the account of the token; the hub sends what its namespace sees. A catalog is followed from the
//! first request of a namespace on and dropped when it is no longer used, so that only the first request waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use knack_execution::Executor;
use knack_execution::remote::RemoteExecutor;
use knack_hub_api::RuntimeName;
use knack_hub_api::client::HubClient;
use tokio::time::Instant;

use crate::catalog::remote::{Blobs, CatalogTasks, follow};
use crate::catalog::{LiveCatalog, Snapshot};

/// Namespaces whose catalogs are followed at once: each is a connection to the hub and a compiled catalog. One more
/// drops the least recently used one, whose next request then waits once for its catalog.
const NAMESPACES_MAX: usize = 256;
/// A catalog that is not used for this time is dropped by the next request of another namespace.
const IDLE_MAX: Duration = Duration::from_mins(15);
/// How long the first requests of a namespace wait for its catalog, from the first of them on. The hub answers within tens of
/// milliseconds; while it is away, requests flow without skills.
const FIRST_SNAPSHOT_WAIT: Duration = Duration::from_secs(5);
/// When this share of the memory for content is left, the least recently used namespace is dropped.
const SCARCE_DIVISOR: usize = 4;

/// The catalog of a client.
#[derive(Debug, Clone)]
pub struct ServedCatalog {
    /// The skills that the client is served.
    pub catalog: Arc<LiveCatalog>,
    /// Runs programs, with the skills that it sees.
    pub executor: Arc<dyn Executor>,
}

/// The catalogs by namespace.
#[derive(Debug)]
pub struct Tenants {
    hub: HubClient,
    runtime: RuntimeName,
    blobs: Blobs,
    entries: Mutex<HashMap<Arc<str>, FollowedNamespace>>,
}

#[derive(Debug)]
struct FollowedNamespace {
    served: ServedCatalog,
    following: CatalogTasks,
    followed_since: Instant,
    asked_at: Instant,
}

/// A client's namespace, as its request carries it from the check of clients on.
#[derive(Debug, Clone)]
pub struct Tenant {
    tenants: Arc<Tenants>,
    namespace: Arc<str>,
}

impl Tenant {
    /// The catalog of this client. Waits a short time for the first catalog of its namespace.
    pub async fn served(&self) -> ServedCatalog {
        self.tenants.served(&self.namespace).await
    }
}

impl Tenants {
    /// None yet, at one runtime of a hub; file contents that catalogs share are kept in `blobs`.
    pub fn new(hub: HubClient, runtime: RuntimeName, blobs: Blobs) -> Arc<Self> {
        Arc::new(Self {
            hub,
            runtime,
            blobs,
            entries: Mutex::default(),
        })
    }

    /// A client of a namespace.
    pub fn tenant(self: &Arc<Self>, namespace: &str) -> Tenant {
        Tenant {
            tenants: Arc::clone(self),
            namespace: Arc::from(namespace),
        }
    }

    async fn served(&self, namespace: &Arc<str>) -> ServedCatalog {
        let (served, mut first, until) = {
            let mut entries = self.lock();
            let now = Instant::now();
            // Whatever namespace asks: those that are idle keep no stream and no memory while others are busy.
            entries.retain(|name, entry| name == namespace || now.duration_since(entry.asked_at) < IDLE_MAX);
            if let Some(entry) = entries.get_mut(namespace)
                && let Some(ended) = entry.following.ended().now_or_never()
            {
                tracing::error!(client_namespace = &**namespace, error = %ended, "the catalog of a client namespace is no longer followed; it is requested again");
                entries.remove(namespace);
            }
            if !entries.contains_key(namespace) {
                self.make_room(&mut entries, now);
            }
            let entry = entries
                .entry(Arc::clone(namespace))
                .or_insert_with(|| self.entry(namespace, now));
            entry.asked_at = now;
            let until = entry.followed_since + FIRST_SNAPSHOT_WAIT;
            (entry.served.clone(), entry.following.first(), until)
        };
        // An error means that the catalog was dropped meanwhile: its last snapshot is served.
        let _ = tokio::time::timeout_at(until, first.wait_for(|first| *first)).await;
        served
    }

    fn entry(&self, namespace: &Arc<str>, now: Instant) -> FollowedNamespace {
        let hub = self.hub.for_namespace(namespace);
        let of = Arc::clone(namespace);
        let on_change = move |snapshot: &Snapshot| log_catalog(&of, snapshot);
        // Not saved: without a hub no client is authenticated, so it would serve no request.
        let (catalog, following) = follow(hub.clone(), self.runtime.clone(), self.blobs.clone(), None, on_change);
        FollowedNamespace {
            served: ServedCatalog {
                catalog,
                executor: RemoteExecutor::new(hub, self.runtime.clone()),
            },
            following,
            followed_since: now,
            asked_at: now,
        }
    }

    fn make_room(&self, entries: &mut HashMap<Arc<str>, FollowedNamespace>, now: Instant) {
        let kept: Vec<Arc<str>> = {
            let asked = entries.iter().map(|(name, entry)| (Arc::clone(name), entry.asked_at));
            let budget = self.blobs.budget();
            let scarce = budget.free_bytes() < budget.total_bytes() / SCARCE_DIVISOR;
            stay(asked.collect(), now, scarce)
        };
        entries.retain(|name, _| kept.contains(name));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, FollowedNamespace>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which namespaces stay when one more is added, by the time of their last request.
fn stay(mut asked: Vec<(Arc<str>, Instant)>, now: Instant, scarce: bool) -> Vec<Arc<str>> {
    asked.retain(|(_, at)| now.duration_since(*at) < IDLE_MAX);
    asked.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    asked.truncate(NAMESPACES_MAX - 1);
    if scarce {
        asked.pop();
    }
    asked.into_iter().map(|(name, _)| name).collect()
}

fn log_catalog(namespace: &str, snapshot: &Snapshot) {
    for report in &snapshot.reports {
        tracing::warn!(client_namespace = namespace, report = %report, "the catalog has a problem");
    }
    tracing::info!(
        client_namespace = namespace, revision = %snapshot.revision, skills = snapshot.skills.len(),
        absent = snapshot.absent.as_deref(), "the catalog changed"
    );
}

#[cfg(test)]
mod tests {
    use knack_hub_api::client::{Authorities, HubClientSettings, HubError, Route, Token};
    use knack_memory::MemoryBudget;

    use super::*;

    /// A hub of which nothing is reached: each try ends the task that follows it.
    #[derive(Debug)]
    struct Faulty;

    #[async_trait::async_trait]
    impl Route for Faulty {
        async fn base(&self, _: Option<&str>) -> Result<String, HubError> {
            panic!("a fault")
        }
    }

    #[tokio::test]
    async fn a_catalog_whose_task_has_failed_is_followed_anew_and_idle_ones_go_with_any_request() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificate = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
        let hub = HubClient::new(HubClientSettings {
            url: "https://hub:1".to_owned(),
            authorities: Authorities::Pem(certificate.cert.pem()),
            token: Token::Fixed("t".to_owned()),
            address: None,
        });
        let hub = hub.unwrap().routed(Arc::new(Faulty));
        let tenants = Tenants::new(
            hub,
            "n/default".parse().unwrap(),
            Blobs::new(MemoryBudget::new(1 << 20)),
        );
        let tenant = tenants.tenant("a");
        let first = tenant.served().await.catalog;
        let again = tenant.served().await.catalog;
        assert!(!Arc::ptr_eq(&first, &again), "it would serve for ever what it saw last");
        tenants.tenant("b").served().await;
        tokio::time::pause();
        tokio::time::advance(IDLE_MAX).await;
        tenants.tenant("a").served().await;
        assert_eq!(
            tenants.lock().keys().map(|name| &**name).collect::<Vec<_>>(),
            ["a"],
            "no stream and no memory of the idle one"
        );
    }

    #[test]
    fn catalogs_stay_while_they_are_asked_for_and_there_is_room() {
        let now = Instant::now() + Duration::from_hours(1);
        let many = |count: u32| -> Vec<(Arc<str>, Instant)> {
            (0..count)
                .map(|age| (Arc::from(format!("n{age}")), now - Duration::from_secs(u64::from(age))))
                .collect()
        };
        let idle = (Arc::from("idle"), now - IDLE_MAX);
        assert_eq!(stay(vec![idle.clone()], now, false), Vec::<Arc<str>>::new());
        let mut three = many(3);
        three.insert(1, idle);
        assert_eq!(stay(three.clone(), now, false).concat(), "n0n1n2");
        assert_eq!(stay(three, now, true).concat(), "n0n1", "the one asked for longest ago");
        let full = stay(many(400), now, false);
        assert_eq!(full.len(), NAMESPACES_MAX - 1);
        assert!(full.iter().any(|name| &**name == "n254"));
        assert!(full.iter().all(|name| &**name != "n255"));
    }
}
