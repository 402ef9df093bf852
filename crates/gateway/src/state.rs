//! The state that all requests of a gateway share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::request::Parts;
use knack_execution::Executor;
use knack_serving::Stop;
use knack_telemetry::Tracer;

use super::files::FileStore;
use super::replicas::{FoundTurn, Replicas};
use crate::callers::caller::CallerSecret;
use crate::callers::tenants::{ServedCatalog, Tenant};
use crate::catalog::remote::CatalogAge;
use crate::catalog::{LiveCatalog, Snapshot};
use crate::files::user_files::UserFiles;
use crate::http_server::budget::RequestMemory;
use crate::model_calls::inject::Materials;
use crate::model_calls::turn_store::{KeyedHash, TurnStore};
use crate::providers::upstream::Upstreams;
use crate::runs::code_tools::SandboxCodeTools;
use crate::runs::grants::Grants;
use crate::runs::run_history::RunHistory;
use crate::runs::skill_runs::SkillRuns;
use crate::skills_api::discovery::Discovery;
use crate::skills_api::uploads::Uploads;
use crate::telemetry::body_files::BodyRecorder;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::observe::Console;
use crate::telemetry::recent_requests::RecentRequests;

/// Whether requests from web pages and foreign hosts are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPolicy {
    /// `knack dev`: loopback names only, no foreign origin.
    LocalOnly,
    /// A Deployment behind a Service: any name; callers are checked otherwise.
    Any,
}

/// The state that all requests of a gateway share.
#[derive(Debug)]
pub struct Gateway {
    /// Skills and settings.
    pub catalog: Arc<LiveCatalog>,
    /// How old what it shows is, where a hub says it.
    pub catalog_age: Option<CatalogAge>,
    /// Providers.
    pub upstreams: Upstreams,
    /// Runs programs.
    pub executor: Arc<dyn Executor>,
    /// APIs whose upstream has no tool that runs programs: the executor runs them.
    pub sandbox_code_tools: SandboxCodeTools,
    /// Environment grants.
    pub grants: Arc<Grants>,
    /// Skills that callers upload, if they may.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// Runs of skills for users.
    pub skill_runs: SkillRuns,
    /// Where runs are noted, if anywhere.
    pub history: Option<Arc<dyn RunHistory>>,
    /// Skills for installers, if they are offered.
    pub discovery: Option<Arc<dyn Discovery>>,
    /// Generated files.
    pub files: Arc<FileStore>,
    /// Uploads and containers of callers, if this gateway keeps them; else the provider does.
    pub user_files: Option<Arc<UserFiles>>,
    /// Where generated files are also written for a person to find.
    pub files_folder: Option<std::path::PathBuf>,
    /// Hidden turns.
    pub turn_store: TurnStore,
    /// Secret of callers' identities.
    pub secret: Arc<CallerSecret>,
    /// The other replicas of this gateway, if it has any.
    pub replicas: Option<Arc<Replicas>>,
    /// The injected plan, in wire form.
    pub materials: Materials,
    /// The memory budget of requests.
    pub requests: RequestMemory,
    /// Metrics.
    pub metrics: Metrics,
    /// The last requests.
    pub recent: Arc<RecentRequests>,
    /// Where spans go.
    pub tracer: Tracer,
    /// Console lines.
    pub console: Arc<dyn Console>,
    /// `--record`.
    pub recorder: Option<BodyRecorder>,
    /// Host and Origin checks.
    pub host_policy: HostPolicy,
    /// Base of file URLs in tool texts, if this gateway's public URL is known.
    pub public_url: Option<String>,
    /// How far its shutdown is: while it drains, `/readyz` is 503 so that no new traffic comes.
    pub stops: Stop,
}

impl Gateway {
    /// Whether there is any saved turn of this caller, here or where other replicas keep theirs.
    pub(crate) fn has_saved_turns(&self, caller: &KeyedHash) -> bool {
        let replicas = self.replicas.as_ref();
        self.turn_store.has_caller(caller) || replicas.is_some_and(|replicas| replicas.knows_client(caller))
    }

    /// Keeps what another replica remembers here, too, unless that replica is about to replace it.
    pub(crate) fn keep_found(&self, caller: KeyedHash, found: FoundTurn) {
        if !found.saved.is_provisional() {
            self.turn_store.put(caller, found.opening, found.keys, found.saved);
        }
    }

    /// Begins to drain.
    pub(crate) fn drain(&self) {
        self.stops.leave.cancel();
    }

    /// The metrics as they are now.
    pub fn metrics_text(&self) -> String {
        let held = self.requests.process().held_bytes();
        self.metrics.memory_bytes.set(i64::try_from(held).unwrap_or(i64::MAX));
        if let Some(history) = &self.history {
            // The history counts; two scrapes at once must not count twice.
            self.metrics
                .history_dropped
                .inner()
                .fetch_max(history.dropped(), Ordering::Relaxed);
        }
        if let Some(age) = &self.catalog_age {
            let seconds = i64::try_from(age.get().as_secs()).unwrap_or(i64::MAX);
            self.metrics.catalog.age.set(seconds);
            let is_saved = age.is_saved() && self.catalog.current().absent.is_none();
            self.metrics.catalog.saved.set(i64::from(is_saved));
        }
        self.metrics.text()
    }

    /// The catalog for callers that no check has identified.
    pub fn served(&self) -> ServedCatalog {
        ServedCatalog {
            catalog: Arc::clone(&self.catalog),
            executor: Arc::clone(&self.executor),
        }
    }

    /// The catalog for the sender of a request. An authenticated client gets that of its namespace; without client
    /// authentication, all are served the same, and each what it uploaded.
    pub async fn served_to(&self, parts: &Parts) -> (ServedCatalog, Arc<Snapshot>) {
        let served = match parts.extensions.get::<Tenant>() {
            Some(tenant) => tenant.served().await,
            None => self.served(),
        };
        let snapshot = served.catalog.snapshot().await;
        let snapshot = match &self.uploads {
            Some(uploads) => uploads.snapshot(parts, snapshot).await,
            None => snapshot,
        };
        (served, snapshot)
    }

    /// Whether new traffic should go elsewhere.
    pub fn is_draining(&self) -> bool {
        self.stops.leave.is_cancelled()
    }

    /// Whether the drain is over, and answers that are still open are cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.stops.cut.is_cancelled()
    }
}
