//! Uploads on their way in and out: read, validated and packed beside the threads that serve requests, few at once.

use knack_skill::problem::Profile;
use tokio::sync::Semaphore;

use crate::Files;
use crate::answer::{Refusal, RefusalKind};
use crate::check::check;
use crate::draft::Draft;
use crate::upload::{Folder, Unpack, zipped};

/// Uploads that are unpacked and checked at once: each may hold an unpacked archive, 64 MiB, in memory.
const UPLOADS_AT_ONCE: usize = 2;

/// Reads, validates and packs uploads, few at once; the APIs over several stores may share one.
#[derive(Debug)]
pub struct Reader {
    unpack: Unpack,
    one: Semaphore,
}

impl Reader {
    /// One with a reader of archives.
    pub fn new(unpack: Unpack) -> Self {
        Self {
            unpack,
            one: Semaphore::new(UPLOADS_AT_ONCE),
        }
    }

    /// Reads a folder, few at once, and validates it.
    pub(crate) async fn checked(
        &self,
        profile: Profile,
        folder: impl FnOnce(Unpack) -> Result<Folder, Refusal> + Send + 'static,
    ) -> Result<Draft, Refusal> {
        let unpack = self.unpack;
        self.aside(move || {
            let folder = folder(unpack)?;
            check(&folder.name, folder.files, profile)
        })
        .await
    }

    /// Does work on skills beside the threads that serve requests, few at once.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _one = self.one.acquire().await;
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
            Err(Refusal::new(
                RefusalKind::Failed,
                "",
                format!("the skill could not be read: {error}"),
            ))
        })
    }

    /// A skill's folder as a zip.
    pub(crate) async fn zipped(&self, name: String, files: Files) -> Result<Vec<u8>, Refusal> {
        let _one = self.one.acquire().await;
        let zip = tokio::task::spawn_blocking(move || zipped(&name, &files)).await;
        let zip = zip
            .map_err(|error| error.to_string())
            .and_then(|zip| zip.map_err(|error| error.to_string()));
        zip.map_err(|error| Refusal::new(RefusalKind::Failed, "", format!("the zip could not be made: {error}")))
    }
}
