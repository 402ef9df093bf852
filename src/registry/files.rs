//! Uploads and containers of a cluster: what gateways keep here for their clients, each as the ServiceAccount that it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use knack_gateway::user_files::{Bounds, FileOwner, LocalFiles, Refusal, Reply, StoreUsage, answered, read_asked};
use knack_memory::MemoryBudget;
use knack_serving::sources::{Pace, Sources};
use sha2::{Digest as _, Sha256};

use super::metrics::Metrics;
use crate::hub::auth::Caller;

/// Calls of the gateways of one namespace: 50 a second, 500 of them in a row, 32 at once. A request that names a container with
/// 200 files is some 200 of them.
const CALLS: Pace = Pace {
    at_once: 32,
    burst: 500,
    refill: Duration::from_millis(20),
};
/// How long a content that is read waits for memory.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// How much is kept, and where.
#[derive(Debug, Clone)]
pub struct FilesOptions {
    /// The folder; this process alone uses it.
    pub folder: std::path::PathBuf,
    /// How long an upload is kept, hours.
    pub hours: u32,
    /// Bytes of all contents.
    pub most_bytes: u64,
}

/// The files of this registry.
#[derive(Debug)]
pub(super) struct ClusterFiles {
    kept: Arc<LocalFiles>,
    calls: Arc<Sources>,
    /// Where contents that are read take their memory.
    reading: MemoryBudget,
}

impl ClusterFiles {
    /// Opens the folder, which is made if it is not there. Must be called inside a tokio runtime. Errors: the disk fails, or
    /// another process has it.
    pub(super) fn open(options: &FilesOptions, reading: MemoryBudget) -> anyhow::Result<Self> {
        let folder: &Path = &options.folder;
        let bounds = Bounds::of_cluster(options.most_bytes, SignedDuration::from_hours(i64::from(options.hours)));
        let parent = folder.parent().unwrap_or(folder);
        let opened = std::fs::create_dir_all(parent)
            .and_then(|()| LocalFiles::open(folder, bounds, Arc::new(jiff::Timestamp::now)));
        let kept = Arc::new(opened.with_context(|| format!("--files-dir {}", folder.display()))?);
        kept.sweep_in_background();
        Ok(Self {
            kept,
            calls: Arc::new(Sources::new(CALLS)),
            reading,
        })
    }

    /// How much there is.
    pub(super) fn held(&self) -> StoreUsage {
        self.kept.held()
    }

    /// Answers a gateway, as the account that it proved to be.
    pub(super) async fn answer(&self, caller: &Caller, body: &Bytes, metrics: &Metrics) -> (StatusCode, Bytes) {
        let Some(_turn) = self.calls.take(&caller.namespace, tokio::time::Instant::now()) else {
            metrics.files_refused("busy");
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "too many calls of this namespace; try again".into(),
            );
        };
        let Some((client, op, content)) = read_asked(body) else {
            return (StatusCode::BAD_REQUEST, "unknown file operation".into());
        };
        let owner = FileOwner {
            account: account_key(&caller.namespace, &caller.service_account),
            caller: client,
        };
        let reads = usize::try_from(self.kept.reads(&owner, &op)).unwrap_or(usize::MAX);
        // An answer is a copy of the content.
        let outcome: Result<Reply, Refusal> = match self.reading.take(2 * reads, READ_PATIENCE).await {
            Ok(_held) => {
                let kept = Arc::clone(&self.kept);
                let done = tokio::task::spawn_blocking(move || kept.execute(&owner, op, &content)).await;
                done.unwrap_or(Err(Refusal::Failed))
            }
            Err(_) => Err(Refusal::Busy),
        };
        if let Err(refusal) = &outcome
            && let Some(reason) = counted(refusal)
        {
            metrics.files_refused(reason);
        }
        // Of all refusals this one is the registry's fault, and counts as such (KnackRegistryFails).
        let status = match outcome {
            Err(Refusal::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        (status, answered(outcome))
    }
}

/// The key of an account. A namespace has no `/` in its name.
fn account_key(namespace: &str, service_account: &str) -> [u8; 32] {
    Sha256::digest(format!("{namespace}/{service_account}")).into()
}

/// The word of a refusal in metrics; `None`: it is the client's affair alone.
const fn counted(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Full(_) => Some("full"),
        Refusal::Failed => Some("disk"),
        Refusal::Busy => Some("busy"),
        _ => None,
    }
}
