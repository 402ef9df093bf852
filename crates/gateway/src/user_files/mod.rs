//! Files that callers upload, and containers, which carry files from one request to the next (docs/files.md).
//!
//! ```text
//! POST /v1/files, /v1/containers… ─▶ route ─▶ serve ─▶ table (who has what, within bounds) + disk (contents)
//! a model request that names an id of ours ─▶ named ─▶ inputs of its runs; what they write goes into the container
//! ```
//!
//! They live in this process and are gone with it.

mod asked;
mod bounds;
mod containers;
mod form;
mod info;
pub mod named;
mod page;
mod route;
mod serve;
mod shapes;
mod table;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::disk::{Disk, Stored};
use super::files::FileEntry;
use super::records::Key;
pub use bounds::Bounds;
pub use info::{FileInfo, Found};
pub use route::{Call, route};
pub use serve::serve;
pub use shapes::{content, text_time};
pub use table::{Container, ContainerFile, NewContainer, Refusal, Source, Upload};
use table::{Made, Table};

/// Prefix of ids of files in a container.
const CONTAINER_FILE_PREFIX: &str = "cfile_knack_";
/// Where OpenAI's API shows the files of a container; runs find them in their working directory.
const CONTAINER_FOLDER: &str = "/mnt/data/";
/// How often what is expired is removed without any request.
const SWEEP_EVERY: Duration = Duration::from_mins(5);

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Uploads and containers of all callers.
pub struct UserFiles {
    disk: Disk,
    clock: Clock,
    table: Mutex<Table>,
}

impl fmt::Debug for UserFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFiles").finish_non_exhaustive()
    }
}

impl UserFiles {
    /// An empty store with a temporary folder of its own. Must be called within a tokio runtime: what is expired is removed
    /// in the background.
    pub fn open(bounds: Bounds, clock: Clock) -> std::io::Result<Arc<Self>> {
        let store = Arc::new(Self {
            disk: Disk::open()?,
            clock,
            table: Mutex::new(Table::new(bounds)),
        });
        tokio::spawn(sweep(Arc::downgrade(&store)));
        Ok(store)
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// How long a container that asks for nothing else lives without use.
    pub fn idle(&self) -> SignedDuration {
        self.with(|table, _| table.bounds().idle)
    }

    /// Reads or changes the table as it is now. What left it leaves the disk outside of the lock.
    fn with<T>(&self, action: impl FnOnce(&mut Table, Timestamp) -> T) -> T {
        let now = self.now();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.prune(now);
        let done = action(&mut table, now);
        let dropped = table.take_dropped();
        drop(table);
        drop(dropped);
        done
    }

    /// Writes contents to the disk, in order.
    async fn write(self: &Arc<Self>, contents: Vec<Bytes>) -> Result<Vec<Stored>, Refusal> {
        let store = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let written: std::io::Result<Vec<Stored>> = contents.iter().map(|bytes| store.disk.write(bytes)).collect();
            written
        });
        match written.await {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a file could not be kept on disk");
                Err(Refusal::Failed)
            }
            // It panicked, or the process ends.
            Err(_) => Err(Refusal::Failed),
        }
    }

    /// A container for a request that names it, if it is there; counts as a use.
    pub fn use_container(&self, caller: &Key, id: &str) -> Option<Container> {
        self.with(|table, now| table.use_container(caller, id, now))
    }

    /// Files that runs of a request made, into its container. One that is not there is made. Returns how many had no room.
    pub async fn add_made(self: &Arc<Self>, caller: Key, id: &str, files: &[(FileEntry, Bytes)]) -> usize {
        let contents = files.iter().map(|(_, bytes)| bytes.clone()).collect();
        let Ok(stored) = self.write(contents).await else {
            return files.len();
        };
        let made = files.iter().zip(stored).map(|((entry, _), stored)| Made {
            id: new_id(CONTAINER_FILE_PREFIX),
            path: entry.name.clone(),
            mime: entry.mime_type.clone(),
            size: entry.size_bytes,
            stored,
        });
        self.with(|table, now| table.add_made(&caller, id, made.collect(), now))
    }
}

/// A UUIDv7 behind a prefix: sorts by time.
fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}

/// Removes what is expired until the store is gone.
async fn sweep(store: Weak<UserFiles>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        // An error means that the process ends, and its folder with it.
        let _ = tokio::task::spawn_blocking(move || store.with(|_, _| ())).await;
    }
}
