//! Uploads and containers of a cluster: what gateways keep here for their clients, each as the ServiceAccount that it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use knack_gateway::files::user_files::{
    AskedCall, Bounds, FileOwner, FilesRefusal, LocalFiles, Op, Reply, StoreUsage, answered, read_asked,
};
use knack_memory::{MemoryBudget, MemoryShare};
use knack_registry::no_link;
use knack_serving::sources::Pace;
use knack_serving::until_sent;
use knack_skill::digest::hex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::metrics::Metrics;
use super::shares::{SharePermit, Shares};
use crate::account_auth::ServiceAccountCaller;

/// Calls of the gateways of one namespace: 50 a second, 500 of them in a row, 32 at once, and three quarters of that of one client. A request that names a container with
/// 200 files is some 200 of them.
const CALLS: Pace = Pace {
    at_once: 32,
    burst: 500,
    refill: Duration::from_millis(20),
};
/// Work of all namespaces that is on a thread at once. The disk makes one change at a time, and a volume that hangs keeps every
/// thread that comes to it: the rest of the process's threads, of which tokio has 512, stay for what needs no volume.
const ON_THREADS_MAX: usize = 32;
/// How long a call waits for threads, and for memory for what it reads: less than a gateway waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
    calls: Shares,
    /// Where contents that are read take their memory.
    reading: MemoryBudget,
    /// Permits for [`ON_THREADS_MAX`].
    threads: Arc<Semaphore>,
}

impl ClusterFiles {
    /// Opens the folder, which is made if it is not there. Must be called inside a tokio runtime. Errors: the disk fails, or
    /// another process has it.
    pub(super) fn open(options: &FilesOptions, reading: MemoryBudget) -> anyhow::Result<Self> {
        let folder: &Path = &options.folder;
        let bounds = Bounds::of_cluster(options.most_bytes, SignedDuration::from_hours(i64::from(options.hours)));
        let parent = folder.parent().unwrap_or(folder);
        let opened = std::fs::create_dir_all(parent)
            .and_then(|()| no_link::named(folder))
            .and_then(|folder| LocalFiles::open(&folder, bounds, Arc::new(jiff::Timestamp::now)));
        let kept = Arc::new(opened.with_context(|| format!("--files-dir {}", folder.display()))?);
        kept.sweep_in_background();
        Ok(Self::over(kept, reading))
    }

    fn over(kept: Arc<LocalFiles>, reading: MemoryBudget) -> Self {
        Self {
            kept,
            calls: Shares::of(CALLS),
            reading,
            threads: Arc::new(Semaphore::new(ON_THREADS_MAX)),
        }
    }

    /// How much there is.
    pub(super) fn usage(&self) -> StoreUsage {
        self.kept.usage()
    }

    /// Answers a gateway, as the account that it proved to be. Its permit, and the memory for what is read, are given back when the
    /// answer is sent, or, if the gateway has left before, when the work has ended that was begun for it. The content that it sent is
    /// a part of `body`, and is held as long.
    pub(super) async fn answer(
        &self,
        caller: &ServiceAccountCaller,
        body: &Bytes,
        metrics: &Metrics,
    ) -> (StatusCode, Bytes) {
        let Some(AskedCall { client, op, content }) = read_asked(body) else {
            return (StatusCode::BAD_REQUEST, "unknown file operation".into());
        };
        let Some(permit) = self.calls.take(caller, &hex(&client)) else {
            metrics.files_refused("busy");
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "too many calls of this client, or of this namespace; try again".into(),
            );
        };
        let owner = FileOwner {
            account: account_key(&caller.namespace, &caller.service_account),
            caller: client,
        };
        let (outcome, held) = match self.done(owner, op, content, permit).await {
            Ok((outcome, held)) => (outcome, Some(held)),
            Err(refusal) => (Err(refusal), None),
        };
        if let Err(refusal) = &outcome
            && let Some(reason) = counted(refusal)
        {
            metrics.files_refused(reason);
        }
        // This refusal alone is the registry's fault, and counts as such (KnackRegistryFails).
        let status = match outcome {
            Err(FilesRefusal::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        let body = answered(outcome);
        let Some((permit, mut share)) = held else {
            return (status, body);
        };
        share.shrink_to(body.len());
        (status, until_sent(body, (permit, share)))
    }

    /// Does what is asked; with the outcome come the permit and the memory for what was read. Error: it was not done.
    async fn done(
        &self,
        owner: FileOwner,
        mut op: Op,
        content: Bytes,
        mut permit: SharePermit,
    ) -> Result<(Result<Reply, FilesRefusal>, (SharePermit, MemoryShare)), FilesRefusal> {
        let (until, mut reads) = (Instant::now() + PATIENCE, 0);
        if op.reads() {
            let work = move |kept: &LocalFiles, permit| (kept.reads(&owner, &op), op, permit);
            let size;
            (size, op, permit) = self.on_thread(until, permit, work).await?;
            reads = usize::try_from(size).unwrap_or(usize::MAX);
        }
        // As much again for the copy of it that is sent.
        let patience = until.saturating_duration_since(Instant::now());
        let share = self.reading.take(reads.saturating_mul(2), patience).await;
        let held = (permit, share.map_err(|_| FilesRefusal::Busy)?);
        let work = move |kept: &LocalFiles, held| (kept.execute(&owner, op, &content), held);
        self.on_thread(until, held, work).await
    }

    /// Does work of the disk on a thread. It cannot be cancelled there, so what the call holds goes with it and comes back with its
    /// result: whoever gives up does not make room for a call that would only wait behind it.
    async fn on_thread<H: Send + 'static, T: Send + 'static>(
        &self,
        until: Instant,
        held: H,
        work: impl FnOnce(&LocalFiles, H) -> T + Send + 'static,
    ) -> Result<T, FilesRefusal> {
        let thread = tokio::time::timeout_at(until, Arc::clone(&self.threads).acquire_owned()).await;
        let thread = thread
            .map_err(|_| FilesRefusal::Busy)?
            .map_err(|_| FilesRefusal::Failed)?;
        let kept = Arc::clone(&self.kept);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&kept, held);
            drop(thread);
            done
        });
        // It panicked, or the process ends.
        done.await.map_err(|_| FilesRefusal::Failed)
    }
}

/// The key of an account. A namespace has no `/` in its name.
fn account_key(namespace: &str, service_account: &str) -> [u8; 32] {
    Sha256::digest(format!("{namespace}/{service_account}")).into()
}

/// The word of a refusal in metrics; `None`: it is the client's affair alone.
const fn counted(refusal: &FilesRefusal) -> Option<&'static str> {
    match refusal {
        FilesRefusal::Full(_) => Some("full"),
        FilesRefusal::Failed => Some("disk"),
        FilesRefusal::Busy => Some("busy"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
