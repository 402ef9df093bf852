//! What the Files APIs show of a file, whoever made it.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::table::Upload;
use crate::disk::Stored;
use crate::files::{FILES_KEPT, FileEntry, MadeFile};

/// OpenAI's word for what a file that a run made is for.
const MADE_BY_RUNS: &str = "assistants_output";

/// One file.
#[derive(Debug, Clone)]
pub struct FileInfo {
    /// Its id.
    pub id: String,
    /// Its name; of a file that a run made, its path.
    pub name: String,
    /// Its media type.
    pub mime: String,
    /// Its length, bytes.
    pub size: u64,
    /// What it is for, in OpenAI's words.
    pub purpose: String,
    /// When it came.
    pub created: Timestamp,
    /// When it goes.
    pub expires: Timestamp,
}

/// A file, and where its content is.
#[derive(Debug)]
pub struct Found {
    /// What is shown of it.
    pub info: FileInfo,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Here(Stored),
    /// It came from another replica of this gateway.
    Read(Bytes),
}

impl Found {
    /// The content; `None` if the disk does not give it.
    pub async fn content(&self) -> Option<Bytes> {
        match &self.content {
            Content::Here(stored) => stored.read().await,
            Content::Read(bytes) => Some(bytes.clone()),
        }
    }

    /// Where the content is, if that is here.
    pub(super) fn stored(&self) -> Option<Stored> {
        match &self.content {
            Content::Here(stored) => Some(stored.clone()),
            Content::Read(_) => None,
        }
    }

    pub(super) fn of_upload(file: &Upload) -> Self {
        Self {
            info: FileInfo::from(file),
            content: Content::Here(file.stored.clone()),
        }
    }

    pub(super) fn of_run(file: MadeFile) -> Self {
        Self {
            content: Content::Here(file.stored.clone()),
            info: FileInfo::from(file),
        }
    }

    /// A file that another replica has.
    pub(super) fn of_replica(id: &str, entry: FileEntry, made_at: Timestamp, bytes: Bytes) -> Self {
        Self {
            info: FileInfo::made(id.to_owned(), entry, made_at),
            content: Content::Read(bytes),
        }
    }
}

impl FileInfo {
    fn made(id: String, entry: FileEntry, made_at: Timestamp) -> Self {
        Self {
            id,
            name: entry.name,
            mime: entry.mime_type,
            size: entry.size_bytes,
            purpose: MADE_BY_RUNS.to_owned(),
            created: made_at,
            expires: kept_until(made_at),
        }
    }
}

impl From<&Upload> for FileInfo {
    fn from(file: &Upload) -> Self {
        Self {
            id: file.id.clone(),
            name: file.name.clone(),
            mime: file.mime.clone(),
            size: file.size,
            purpose: file.purpose.clone(),
            created: file.created,
            expires: file.expires,
        }
    }
}

impl From<MadeFile> for FileInfo {
    fn from(file: MadeFile) -> Self {
        Self::made(file.id, file.entry, file.made_at)
    }
}

fn kept_until(made: Timestamp) -> Timestamp {
    let kept = SignedDuration::try_from(FILES_KEPT).unwrap_or(SignedDuration::ZERO);
    made.saturating_add(kept).unwrap_or(Timestamp::MAX)
}
