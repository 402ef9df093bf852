//! One call of these APIs, and files by their ids, wherever they are.

use bytes::Bytes;
use http::request::Parts;
use knack_registry::Dialect;
use knack_wire::history::Caller;

use super::info::{Content, FoundFile};
use super::refusal::Refusal;
use crate::records::KeyedHash;
use crate::state::Gateway;

/// One call, with its parts.
pub(super) struct FilesRequest<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) dialect: Dialect,
    pub(super) caller: Caller,
    /// Who its memory counts for.
    pub(super) counted: KeyedHash,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Gateway {
    /// A file of a caller by an id of ours: made by a run here, uploaded, or made at another replica of this gateway.
    pub(super) async fn own_file(&self, caller: &Caller, id: &str) -> Result<FoundFile, Refusal> {
        let bucket = caller.bucket();
        if let Some(made) = self.files.find(&bucket, id) {
            return Ok(FoundFile::of_run(made));
        }
        let uploaded = match &self.user_files {
            Some(store) => store.file(&bucket, id).await,
            None => Err(Refusal::Missing("File", id.to_owned())),
        };
        let refusal = match uploaded {
            Ok(info) => return Ok(FoundFile::uploaded(info)),
            Err(refusal) => refusal,
        };
        let elsewhere = match &self.replicas {
            Some(replicas) => replicas.file(caller, id).await,
            None => None,
        };
        let found = elsewhere.map(|(entry, made_at, bytes)| FoundFile::of_replica(id, entry, made_at, bytes));
        found.ok_or(refusal)
    }

    /// The content of a file that was found.
    pub(super) async fn content_of(&self, caller: &Caller, found: &FoundFile) -> Result<Bytes, Refusal> {
        match (&found.content, &self.user_files) {
            (Content::Here(stored), _) => stored.read().await.ok_or(Refusal::Failed),
            (Content::Read(bytes), _) => Ok(bytes.clone()),
            (Content::Uploaded, Some(store)) => store.file_content(&caller.bucket(), &found.info.id).await,
            (Content::Uploaded, None) => Err(Refusal::Missing("File", found.info.id.clone())),
        }
    }
}
