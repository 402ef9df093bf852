//! Keeps the file as the catalog is, beside the requests: one write at a time, of the newest catalog.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::format::SavedLocation;
use super::read::{RestoredCatalog, Unusable};
use super::write::{Fingerprint, SaveError, Unsaved};
use crate::catalog::remote::age::CatalogAge;
use crate::catalog::remote::blobs::Blobs;

/// Longest reading at the start. 32 MiB take a fraction of a second; a disk that hangs must not keep applications waiting.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two writes. Writing 32 MiB takes about a tenth of it, and a restart misses the changes of two seconds at
/// most.
const WRITE_PAUSE: Duration = Duration::from_secs(2);
/// How often the time of the file follows the hub's messages, one of which comes every 10 s: a restart makes a catalog at
/// most this much older than it is.
const CONFIRM_EVERY: Duration = Duration::from_secs(15);

/// The task that saves; it ends with this value.
#[derive(Debug)]
pub(in crate::catalog::remote) struct Saver {
    next_save: Arc<NextSave>,
    _task: AbortOnDropHandle<()>,
}

/// The catalog that the disk should have and does not have yet.
#[derive(Debug)]
enum SaveRequest {
    Catalog(Box<Unsaved>),
    Nothing,
}

#[derive(Debug, Default)]
struct NextSave {
    next: Mutex<Option<SaveRequest>>,
    changed: Notify,
}

impl Saver {
    /// Reads what is there and begins to save. What cannot be used is reported, and replaced by the next catalog.
    pub(in crate::catalog::remote) async fn open(
        location: SavedLocation,
        blobs: &Blobs,
        age: &CatalogAge,
    ) -> (Self, Option<RestoredCatalog>) {
        let restored = read(&location, blobs).await.unwrap_or_else(|why| {
            tracing::warn!(file = %location.file().display(), %why, "the saved catalog is not used; the next one of the hub replaces it");
            None
        });
        let next_save = Arc::new(NextSave::default());
        let saving = SaverTask {
            location,
            age: age.clone(),
            written: restored.as_ref().and_then(|restored| restored.state.fingerprint().ok()),
            failed: None,
            logged: String::new(),
        };
        let task = tokio::spawn(saving.run(Arc::clone(&next_save)));
        let saver = Self {
            next_save,
            _task: AbortOnDropHandle::new(task),
        };
        (saver, restored)
    }

    /// The disk should have this catalog.
    pub(in crate::catalog::remote) fn save(&self, catalog: Unsaved) {
        self.next_save.request(SaveRequest::Catalog(Box::new(catalog)));
    }

    /// The disk should have none.
    pub(in crate::catalog::remote) fn forget(&self) {
        self.next_save.request(SaveRequest::Nothing);
    }
}

async fn read(location: &SavedLocation, blobs: &Blobs) -> Result<Option<RestoredCatalog>, Unusable> {
    let (location, blobs) = (location.clone(), blobs.clone());
    let reading = tokio::task::spawn_blocking(move || location.read(&blobs, SystemTime::now()));
    match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(read) => read.unwrap_or_else(|error| Err(std::io::Error::other(error).into())),
        Err(_) => Err(Unusable::Late),
    }
}

impl NextSave {
    fn request(&self, request: SaveRequest) {
        *self.lock() = Some(request);
        self.changed.notify_one();
    }

    async fn next(&self) -> SaveRequest {
        loop {
            let request = self.lock().take();
            if let Some(request) = request {
                return request;
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SaveRequest>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SaverTask {
    location: SavedLocation,
    age: CatalogAge,
    /// The catalog on the disk.
    written: Option<Fingerprint>,
    /// The last catalog that could not be written, such as to a full disk.
    failed: Option<Arc<SaveRequest>>,
    /// The last failure, which is reported once and not with every try.
    logged: String,
}

impl SaverTask {
    async fn run(mut self, next_save: Arc<NextSave>) {
        loop {
            match tokio::time::timeout(CONFIRM_EVERY, next_save.next()).await {
                Ok(request) => {
                    self.perform(Arc::new(request)).await;
                    tokio::time::sleep(WRITE_PAUSE).await;
                }
                Err(_) => match self.failed.take() {
                    Some(request) => self.perform(request).await,
                    None if self.written.is_some() => self.confirm().await,
                    None => {}
                },
            }
        }
    }

    async fn perform(&mut self, request: Arc<SaveRequest>) {
        let (location, confirmed_at, written) = (self.location.clone(), self.confirmation(), self.written);
        let requested = Arc::clone(&request);
        let done = tokio::task::spawn_blocking(move || perform(&location, &requested, confirmed_at, written)).await;
        let done = done.unwrap_or_else(|error| Err(SaveError::Write("the task", std::io::Error::other(error))));
        self.written = *done.as_ref().unwrap_or(&None);
        // A catalog that is too large stays too large until it changes: only failed writes are repeated.
        self.failed = matches!(done, Err(SaveError::Write(..))).then_some(request);
        match done {
            Ok(_) => self.logged.clear(),
            Err(why) => self.report(&why.to_string()),
        }
    }

    async fn confirm(&mut self) {
        let (location, confirmed_at) = (self.location.clone(), self.confirmation());
        let done = tokio::task::spawn_blocking(move || location.confirm(confirmed_at)).await;
        if let Err(error) = done.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            self.written = None;
            self.report(&error.to_string());
        }
    }

    fn confirmation(&self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.age.get()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn report(&mut self, why: &str) {
        if self.logged != why {
            tracing::warn!(file = %self.location.file().display(), why, "the catalog could not be saved; after a restart without the hub there is no catalog");
            why.clone_into(&mut self.logged);
        }
    }
}

/// Makes the disk as it should be; what it has then. After a failure it has nothing: an older catalog may have skills that
/// were removed.
fn perform(
    location: &SavedLocation,
    request: &SaveRequest,
    confirmed_at: SystemTime,
    written: Option<Fingerprint>,
) -> Result<Option<Fingerprint>, SaveError> {
    let done = match request {
        SaveRequest::Nothing => Ok(None),
        SaveRequest::Catalog(catalog) => save(location, catalog, confirmed_at, written).map(Some),
    };
    if matches!(done, Ok(Some(_))) {
        return done;
    }
    let forgotten = location.forget();
    let done = done?;
    forgotten.map_err(|error| SaveError::Write("the old file", error))?;
    Ok(done)
}

/// A hub that was replaced sends the same catalog again: then the time alone is new.
fn save(
    location: &SavedLocation,
    catalog: &Unsaved,
    confirmed_at: SystemTime,
    written: Option<Fingerprint>,
) -> Result<Fingerprint, SaveError> {
    let fingerprint = catalog.state.fingerprint();
    let fingerprint = fingerprint.map_err(|error| SaveError::Write("the index", error))?;
    if written != Some(fingerprint) || location.confirm(confirmed_at).is_err() {
        location.save(catalog, confirmed_at)?;
    }
    Ok(fingerprint)
}
