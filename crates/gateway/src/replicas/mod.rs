//! The store that the replicas of one gateway share: each finds the hidden turns and generated files of the others.
//!
//! ```text
//! an answer with hidden turns or files ─▶ queue ─▶ sealed ─▶ PUT /v1/kept/…        behind the answer
//! the hub's stream /v1/kept ─▶ index: which values there are                        all the time
//! a conversation that the index knows, without a saved turn here ─▶ GET /v1/kept/…      bounded, then as without
//! a client cancels a request that is not here ─▶ PUT /v1/kept/… of nothing ─▶ stream ─▶ the replica that serves it; once more
//!                                                                                    after a while, or when the link is back
//! ```
//!
//! A request whose conversation has no hidden turns costs one look-up in the index and never a call: the index decides.
//! Values are sealed with keys that contain the client's credential; the hub holds bytes and keyed hashes. Nothing here
//! fails a request: without the hub a gateway works as a single replica.

mod cancellations;
mod follow;
mod index;
mod read;
mod sealed;
mod untold;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
pub use cancellations::Cancellations;
use index::ReplicaIndex;
use knack_serving::tasks::{TaskEnded, Tasks};
pub(crate) use read::{FoundTurn, STAGED_TIMEOUT};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use untold::Untold;

use super::files::FileStore;
use crate::callers::caller::CallerSecret;
use crate::model_calls::turn_store::KeyedHash;
use crate::telemetry::metrics::ReplicaMetrics;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{KeptKey, KeptValue, RefusalCode, RuntimeName};
use knack_memory::MemoryBudget;

/// Disk quota of files that other replicas made and runs here were given, bytes. With the gateway's own 512 MiB and the
/// saved catalog, which takes 64 MiB while it is replaced, they stay below the 704 MiB of its volume.
const BORROWED_QUOTA_BYTES: u64 = 64 << 20;
/// Bytes of what waits to be written to the hub, and of what is read from it, each: eight of the largest values.
const WAITING_MAX_BYTES: usize = 32 << 20;
/// Values that wait to be written, in each lane: the files of one answer, which are at most 200, and some more.
const WAITING_MAX: usize = 256;
/// How long after the end of a stream a new one counts as its continuation; after that the hub counts as away.
const LOST_GRACE: Duration = Duration::from_secs(5);
/// How long a client that cancels a request waits until the others know: the owner of the runtime answers within milliseconds.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Lanes of writing: what belongs to one client is written in its order, and a large file delays a quarter of the clients.
const LANES: usize = 4;

/// The link between the replicas of a gateway; see the module.
#[derive(Debug)]
pub struct Replicas {
    hub: HubClient,
    runtime: RuntimeName,
    /// The address at which the owner of the runtime answered last.
    owner: ArcSwapOption<String>,
    index: Mutex<ReplicaIndex>,
    link: Mutex<LinkState>,
    lanes: Vec<mpsc::Sender<write::WriteJob>>,
    waiting: MemoryBudget,
    reading: MemoryBudget,
    /// Files that other replicas made and that runs here were given.
    borrowed: Arc<FileStore>,
    /// Requests that are served here.
    cancellations: Arc<Cancellations>,
    /// Cancellations that other replicas may not know.
    untold: Untold,
    metrics: ReplicaMetrics,
}

/// Whether the hub can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// It never sent its secret.
    Never,
    /// Its stream is open: the index is current.
    Linked,
    /// Its stream ended then. A stream ends with the token that it was opened with, and begins again at once.
    Lost(Instant),
}

/// The tasks of a link.
#[derive(Debug)]
pub(crate) struct LinkTasks {
    following: Tasks,
    /// They return once the queue is written.
    writing: Tasks,
    closing: CancellationToken,
    first: watch::Receiver<bool>,
}

impl Replicas {
    /// Links this process to the other replicas of its gateway by way of a hub. `secret` becomes the one that the hub gives all
    /// of them. Must be called within a tokio runtime.
    pub(crate) fn link(
        hub: HubClient,
        runtime: RuntimeName,
        secret: Arc<CallerSecret>,
        memory: &MemoryBudget,
        metrics: ReplicaMetrics,
    ) -> std::io::Result<(Arc<Self>, LinkTasks)> {
        let (lanes, waiting): (Vec<_>, Vec<_>) = (0..LANES).map(|_| mpsc::channel(WAITING_MAX)).unzip();
        let replicas = Arc::new(Self {
            hub,
            runtime,
            owner: ArcSwapOption::empty(),
            index: Mutex::default(),
            link: Mutex::new(LinkState::Never),
            lanes,
            waiting: memory.part(WAITING_MAX_BYTES),
            reading: memory.part(WAITING_MAX_BYTES),
            borrowed: FileStore::open(BORROWED_QUOTA_BYTES)?,
            cancellations: Arc::default(),
            untold: Untold::default(),
            metrics,
        });
        let closing = CancellationToken::new();
        let (sender, first) = watch::channel(false);
        let (mut following, mut writing) = (Tasks::default(), Tasks::default());
        let link = follow::follow(Arc::clone(&replicas), secret, sender);
        following.spawn("link to the other replicas", link);
        let telling = Arc::clone(&replicas).tell_again();
        following.spawn("cancellations for the other replicas", telling);
        for waiting in waiting {
            let lane = write::write_all(Arc::clone(&replicas), waiting, closing.clone());
            writing.spawn_finite("writing to the other replicas", lane);
        }
        let linking = LinkTasks {
            following,
            writing,
            closing,
            first,
        };
        Ok((replicas, linking))
    }

    /// Whether other replicas may have a saved turn of this client.
    pub(crate) fn knows_client(&self, client: &KeyedHash) -> bool {
        self.is_linked() && self.index().knows_client(&KeptKey(*client))
    }

    /// Whether other replicas may have a saved turn of a conversation that begins so.
    pub(crate) fn knows_opening(&self, client: &KeyedHash, opening: &KeyedHash) -> bool {
        self.is_linked() && self.index().knows_opening(&KeptKey(*client), &KeptKey(*opening))
    }

    /// Whether the hub has sent the secret of callers' identities: until then this gateway knows each client by another name than
    /// all other replicas do.
    pub(crate) fn has_secret(&self) -> bool {
        *self.state() != LinkState::Never
    }

    /// The requests that other replicas can cancel here.
    pub fn cancellations(&self) -> Arc<Cancellations> {
        Arc::clone(&self.cancellations)
    }

    /// Tells the other replicas that a client cancels a request, now and once more. Before the first link nobody else knows the client
    /// by this key. It does not wait in the queue of values, so that one that cancels much takes no room from those of others.
    pub async fn cancel(&self, client: KeyedHash, request: KeyedHash) {
        if !self.has_secret() {
            return;
        }
        let is_told = self.tell(client, request).await;
        self.untold.add(client, request, is_told, Instant::now());
    }

    /// Tells what other replicas may not know, until the task is ended.
    async fn tell_again(self: Arc<Self>) {
        loop {
            self.untold.some().await;
            for (client, request) in self.untold.due(Instant::now()) {
                if !self.tell(client, request).await {
                    break;
                }
                self.untold.note_told(&request, Instant::now());
            }
        }
    }

    /// Tells the other replicas of a cancellation; whether the hub has taken it.
    async fn tell(&self, client: KeyedHash, request: KeyedHash) -> bool {
        if !self.is_linked() {
            return false;
        }
        let path = KeptValue::cancellation(KeptKey(client), KeptKey(request)).path(&self.runtime);
        let path = &path;
        let call = self.at_owner(|at| async move {
            let at = at.as_ref().map(|at| at.as_str());
            self.hub.at(at).put_bytes(path, Bytes::new()).await
        });
        let why = match tokio::time::timeout(CANCEL_TIMEOUT, call).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::info!(
            why,
            "other replicas do not know yet that a client has cancelled a request"
        );
        false
    }

    fn is_linked(&self) -> bool {
        match *self.state() {
            LinkState::Never => false,
            LinkState::Linked => true,
            LinkState::Lost(at) => at.elapsed() < LOST_GRACE,
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index is valid between any two of its methods.
    fn index(&self) -> MutexGuard<'_, ReplicaIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the index.
    fn update(&self, change: impl FnOnce(&mut ReplicaIndex)) {
        let mut index = self.index();
        change(&mut index);
        self.metrics.set_known_values(index.len());
    }

    /// Calls the owner of the runtime, following one redirect: a second one means that it changes at this moment.
    async fn at_owner<T, F>(&self, ask: impl Fn(Option<Arc<String>>) -> F) -> Result<T, HubError>
    where
        F: Future<Output = Result<T, HubError>>,
    {
        let error = match ask(self.owner.load_full()).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        match &error {
            HubError::Refused(refusal) if refusal.code == RefusalCode::NotOwner => {
                let owner = refusal.owner.clone().map(Arc::new);
                self.owner.store(owner.clone());
                if owner.is_none() {
                    return Err(error);
                }
                ask(owner).await
            }
            HubError::Unreachable(_) | HubError::Broken(_) => {
                // The owner may be gone: the Service has the replicas that are ready.
                self.owner.store(None);
                Err(error)
            }
            _ => Err(error),
        }
    }
}

impl LinkTasks {
    /// Resolves when the hub has sent the secret that all replicas share.
    pub(crate) async fn first(&mut self) {
        // An error means that the task is gone, and nothing comes any more.
        let _ = self.first.wait_for(|first| *first).await;
    }

    /// Resolves when a task has ended that should not have.
    pub(crate) async fn ended(&mut self) -> TaskEnded {
        tokio::select! {
            ended = self.following.ended() => ended,
            ended = self.writing.ended() => ended,
        }
    }

    /// Ends the link once the queue is written, or its time is over.
    pub(crate) async fn close(self) {
        self.closing.cancel();
        if tokio::time::timeout(write::CLOSE_TIMEOUT, self.writing.returned())
            .await
            .is_err()
        {
            tracing::info!(
                "hidden turns or files were not written to the hub in time; other replicas will not have them"
            );
        }
        drop(self.following);
    }
}
