//! The folder of `knack dev`, as its callers ask it: each at a pace, all on few threads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use knack_registry::{StoreError, VolumeThreads};
use knack_serving::sources::Pace;

use super::bounds::Bounds;
use super::caller_calls::CallerCalls;
use super::files_caller::FilesCaller;
use super::local::LocalFiles;
use super::objects::FileOwner;
use super::operation::{Op, Reply};
use super::refusal::FilesRefusal;
use super::store::{Clock, UploadStore, UserFiles};

/// Calls of one caller: those of the Skills APIs of a folder. A script may upload hundreds of files, and a request that names a container
/// of 200 files makes some 200 calls; a loop does not keep the disk from others.
const CALLS: Pace = Pace {
    at_once: 128,
    burst: 1000,
    refill: Duration::from_millis(10),
};
/// Calls that are on a thread at once.
const ON_THREADS: usize = 16;
/// How long a caller waits for the folder, as for the registry of a cluster: the largest content has 30 MiB.
const PATIENCE: Duration = Duration::from_secs(30);
/// The cause in the log of a call that takes longer.
const LATE: &str = "the volume that keeps files did not answer in time";

/// Uploads and containers that a folder of this machine keeps.
#[derive(Debug)]
pub(super) struct FolderFiles {
    store: Arc<LocalFiles>,
    calls: CallerCalls,
    threads: VolumeThreads,
}

impl FolderFiles {
    pub(super) fn over(store: Arc<LocalFiles>) -> Self {
        Self {
            store,
            calls: CallerCalls::new(CALLS),
            threads: VolumeThreads::new(ON_THREADS, PATIENCE, LATE),
        }
    }
}

#[async_trait]
impl UploadStore for FolderFiles {
    async fn call(&self, who: &FilesCaller, op: Op, content: Bytes) -> Result<Reply, FilesRefusal> {
        let _turn = self.calls.turn(who).await?;
        let (store, owner) = (Arc::clone(&self.store), FileOwner::here(who.bucket()));
        let done = self.threads.done(move || store.execute(&owner, op, &content)).await;
        done.map_err(|error| {
            tracing::warn!(%error, "a request about files is refused");
            match error {
                StoreError::Unavailable(_) => FilesRefusal::Busy,
                // It panicked, or the process ends.
                _ => FilesRefusal::Failed,
            }
        })
        .flatten()
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn idle(&self) -> SignedDuration {
        self.store.idle()
    }
}

impl UserFiles {
    /// An empty store with a temporary folder of its own. Must be called within a tokio runtime: what is expired is removed
    /// in the background.
    pub fn temporary(bounds: Bounds, clock: Clock) -> io::Result<Arc<Self>> {
        Ok(Self::sweeping(LocalFiles::temporary(bounds, clock)?))
    }

    /// The store in a folder that is kept. Must be called within a tokio runtime.
    pub fn open(folder: &Path, bounds: Bounds, clock: Clock) -> io::Result<Arc<Self>> {
        Ok(Self::sweeping(LocalFiles::open(folder, bounds, clock)?))
    }

    fn sweeping(store: LocalFiles) -> Arc<Self> {
        let store = Arc::new(store);
        store.sweep_in_background();
        Self::of(FolderFiles::over(store))
    }
}

#[cfg(test)]
mod tests {
    use knack_wire::history::{Caller, HistorySecret};

    use super::*;

    fn opened() -> FolderFiles {
        let store = LocalFiles::temporary(Bounds::default(), Arc::new(Timestamp::now)).unwrap();
        FolderFiles::over(Arc::new(store))
    }

    fn who(key: &str) -> FilesCaller {
        let caller = Caller::new(&HistorySecret::new([1; 32]), key.as_bytes());
        let counted = caller.bucket();
        FilesCaller::new(caller, counted, None)
    }

    async fn list(files: &FolderFiles, who: &FilesCaller) -> Result<Reply, FilesRefusal> {
        files.call(who, Op::Files(Vec::new()), Bytes::new()).await
    }

    #[tokio::test]
    async fn a_caller_with_all_its_requests_under_way_is_refused_and_another_key_is_served() {
        let files = opened();
        let flood = who("flood");
        let mut under_way = Vec::new();
        for _ in 0..CALLS.at_once {
            under_way.push(files.calls.turn(&flood).await.unwrap());
        }
        let refused = list(&files, &flood).await;
        assert!(
            matches!(&refused, Err(FilesRefusal::TooOften(text)) if text.contains("128 at once")),
            "{refused:?}"
        );
        assert!(list(&files, &who("other")).await.is_ok());
        let model_request = flood.waiting(Duration::from_mins(1));
        let mut waiting = Box::pin(list(&files, &model_request));
        assert!(futures::poll!(&mut waiting).is_pending(), "waits for its turn");
        drop(under_way);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn a_folder_that_hangs_is_not_waited_for_without_end() {
        let mut files = opened();
        files.threads = VolumeThreads::new(0, Duration::from_millis(10), LATE);
        assert_eq!(list(&files, &who("a")).await, Err(FilesRefusal::Busy));
    }
}
