//! One call of these APIs, and files by their ids, wherever they are.

use bytes::Bytes;
use http::request::Parts;
use knack_registry::Dialect;
use knack_wire::history::Caller;

use super::Found;
use super::table::Refusal;
use crate::records::Key;
use crate::state::Gateway;

/// One call, with its parts.
pub(super) struct Asked<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) dialect: Dialect,
    pub(super) caller: Caller,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Asked<'_> {
    /// A file: uploaded, made by a run here, or made at another replica of this gateway.
    pub(super) async fn file(&self, id: &str) -> Result<Found, Refusal> {
        self.gateway.own_file(&self.caller, id).await
    }
}

impl Gateway {
    /// A file of a caller by an id of ours.
    pub(super) async fn own_file(&self, caller: &Caller, id: &str) -> Result<Found, Refusal> {
        let bucket = caller.bucket();
        let store = self.user_files.as_ref();
        let uploaded = store.and_then(|store| store.with(|table, _| table.file(&bucket, id).map(Found::of_upload)));
        if let Some(here) = uploaded.or_else(|| self.files.find(&bucket, id).map(Found::of_run)) {
            return Ok(here);
        }
        let elsewhere = match &self.replicas {
            Some(replicas) => replicas.file(caller, id).await,
            None => None,
        };
        let found = elsewhere.map(|(entry, made_at, bytes)| Found::of_replica(id, entry, made_at, bytes));
        found.ok_or_else(|| self.missing_file(&bucket, id))
    }

    /// Why an id of a file leads to nothing.
    pub(super) fn missing_file(&self, bucket: &Key, id: &str) -> Refusal {
        let store = self.user_files.as_ref();
        store.map_or_else(
            || Refusal::Missing("File", id.to_owned()),
            |store| store.with(|table, _| table.missing(bucket, "File", id)),
        )
    }
}
