//! A file of a caller, uploaded or written by a run, and where its content is.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::objects::FileInfo;
use crate::files::contents::StoredContent;
use crate::files::{FILES_KEPT, FileEntry, MadeFile};

/// OpenAI's word for what a file that a run made is for.
const MADE_BY_RUNS: &str = "assistants_output";

/// A file, and where its content is.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// The part that clients see.
    pub(crate) info: FileInfo,
    pub(super) content: Content,
}

/// Where a content is.
#[derive(Debug)]
pub(super) enum Content {
    /// In the store of uploads.
    Uploaded,
    /// On the disk of this process.
    Here(StoredContent),
    /// It came from another replica of this gateway.
    Read(Bytes),
}

impl FoundFile {
    pub(super) const fn uploaded(info: FileInfo) -> Self {
        Self {
            info,
            content: Content::Uploaded,
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

impl From<MadeFile> for FileInfo {
    fn from(file: MadeFile) -> Self {
        Self::made(file.id, file.entry, file.made_at)
    }
}

fn kept_until(made: Timestamp) -> Timestamp {
    let kept = SignedDuration::try_from(FILES_KEPT).unwrap_or(SignedDuration::ZERO);
    made.saturating_add(kept).unwrap_or(Timestamp::MAX)
}
