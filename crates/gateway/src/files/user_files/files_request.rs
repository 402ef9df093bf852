//! One call of these APIs, and files by their ids, wherever they are.

use bytes::Bytes;
use http::request::Parts;
use knack_registry::Dialect;

use super::files_caller::FilesCaller;
use super::info::{Content, FoundFile};
use super::refusal::FilesRefusal;
use crate::http_server::budget::Holding;
use crate::state::Gateway;

/// One call, with its parts.
pub(super) struct FilesRequest<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) dialect: Dialect,
    pub(super) who: FilesCaller,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Gateway {
    /// A content's share of the memory, until it is sent or put where it goes.
    pub(super) fn hold_content(&self, who: &FilesCaller, bytes: u64) -> Result<Holding, FilesRefusal> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.requests.hold(&who.counted, bytes).map_err(|_| FilesRefusal::Busy)
    }

    /// A file of a caller by an id of Knack: made by a run here, uploaded, or made at another replica of this gateway.
    pub(super) async fn own_file(&self, who: &FilesCaller, id: &str) -> Result<FoundFile, FilesRefusal> {
        if let Some(made) = self.files.find(&who.bucket(), id) {
            return Ok(FoundFile::of_run(made));
        }
        let uploaded = match &self.user_files {
            Some(store) => store.file(who, id).await,
            None => Err(FilesRefusal::Missing("File", id.to_owned())),
        };
        let refusal = match uploaded {
            Ok(info) => return Ok(FoundFile::uploaded(info)),
            Err(refusal) => refusal,
        };
        let elsewhere = match &self.replicas {
            Some(replicas) => replicas.file(&who.caller, id).await,
            None => None,
        };
        let found = elsewhere.map(|(entry, made_at, bytes)| FoundFile::of_replica(id, entry, made_at, bytes));
        found.ok_or(refusal)
    }

    /// The content of a file that was found.
    pub(super) async fn content_of(&self, who: &FilesCaller, found: &FoundFile) -> Result<Bytes, FilesRefusal> {
        match (&found.content, &self.user_files) {
            (Content::Here(stored), _) => stored.read().await.ok_or(FilesRefusal::Failed),
            (Content::Read(bytes), _) => Ok(bytes.clone()),
            (Content::Uploaded, Some(store)) => store.file_content(who, &found.info.id).await,
            (Content::Uploaded, None) => Err(FilesRefusal::Missing("File", found.info.id.clone())),
        }
    }
}
