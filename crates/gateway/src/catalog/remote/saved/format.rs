//! The format of the file, its path, and its limits.

use std::path::PathBuf;
use std::time::Duration;

use knack_hub_api::{ContentIndex, ProtocolRange, RuntimeName};
use serde::{Deserialize, Serialize};

use crate::catalog::remote::mirror::MirrorState;

/// Longest file. Twice this, the file and the next one, beside the 576 MiB for generated files, is within the 704 MiB of a
/// gateway's volume. It is also twice what a sidecar with the default limit of memory holds.
pub(super) const SAVED_MAX_BYTES: u64 = 32 << 20;
/// Longest head: a URL, three names, numbers.
pub(super) const HEAD_MAX_BYTES: u64 = 4 << 10;
/// Formats that are understood; the last one is written. Members of the lines follow the rules of the protocol.
pub(super) const FORMATS: ProtocolRange = ProtocolRange::new(1, 1);
/// The largest set-back of a clock that leaves the age of a file known.
pub(super) const CLOCK_SLACK: Duration = Duration::from_mins(1);
/// The file, and the one that is being written.
pub(super) const NAME: &str = "catalog";
pub(super) const NAME_NEW: &str = "catalog.new";

/// The origin of a catalog: one of another runtime, hub or namespace is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::catalog::remote) struct Identity {
    pub(in crate::catalog::remote) runtime: RuntimeName,
    pub(in crate::catalog::remote) hub: String,
    pub(in crate::catalog::remote) client_namespace: Option<String>,
}

/// A folder with the catalog of one gateway.
#[derive(Debug, Clone)]
pub(in crate::catalog::remote) struct SavedLocation {
    pub(in crate::catalog::remote) folder: PathBuf,
    pub(in crate::catalog::remote) identity: Identity,
}

impl SavedLocation {
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(NAME)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedHead {
    pub(super) format: u32,
    #[serde(default)]
    pub(super) protocol: u32,
    /// The version of the program that wrote the file, for people.
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) identity: Option<Identity>,
    #[serde(default)]
    pub(super) index_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedIndex {
    pub(super) state: MirrorState,
    pub(super) trees: Vec<ContentIndex>,
}

/// [`SavedIndex`], of a catalog that is in use.
#[derive(Debug, Serialize)]
pub(super) struct IndexRef<'a> {
    pub(super) state: &'a MirrorState,
    pub(super) trees: Vec<ContentIndex>,
}
