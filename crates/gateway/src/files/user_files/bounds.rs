//! The bounds on kept files and containers.

use jiff::SignedDuration;

use super::refusal::FilesRefusal;
use crate::files::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES};

/// Uploads of an installation. Each is about half a kilobyte of memory of the process that keeps them.
const CLUSTER_FILES: usize = 20_000;
/// Containers of an installation: most answers with runs open one, and it is kept for 20 minutes.
const CLUSTER_CONTAINERS: usize = 8_192;

/// Files in all containers of an installation: each takes a block of the disk, however small it is.
const CLUSTER_CONTAINED: usize = 50_000;

/// Bounds of what is kept. All are those of one process.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes of one file: a request body, which is at most 32 MiB, has parts and boundaries beside it.
    pub file_bytes: u64,
    /// Bytes of the uploads and containers of one caller: half of what there is.
    pub caller_bytes: u64,
    /// Uploads of one caller: a page of the largest size.
    pub caller_files: usize,
    /// Containers of one caller; the one that was used least recently goes for a new one.
    pub caller_containers: usize,
    /// Bytes of all callers of one account.
    pub account_bytes: u64,
    /// Uploads of all callers of one account.
    pub account_files: usize,
    /// Containers of all callers of one account.
    pub account_containers: usize,
    /// Files in all containers of one account.
    pub account_contained: usize,
    /// Bytes of all callers, on disk.
    pub bytes: u64,
    /// Uploads of all callers.
    pub files: usize,
    /// Containers of all callers.
    pub containers: usize,
    /// Files in all containers.
    pub contained: usize,
    /// How long an upload is kept at most.
    pub kept: SignedDuration,
    /// How long a container is kept without use at most: as long as OpenAI keeps one.
    pub idle: SignedDuration,
    /// Files of one container: as many as one run may be given.
    pub container_files: usize,
    /// Bytes of one container: as many as one request may be given of earlier turns.
    pub container_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            file_bytes: 30 << 20,
            caller_bytes: 128 << 20,
            caller_files: 1000,
            caller_containers: 64,
            account_bytes: 256 << 20,
            account_files: 4000,
            account_containers: 256,
            account_contained: 256 * MADE_MAX_FILES,
            bytes: 256 << 20,
            files: 4000,
            containers: 256,
            contained: 256 * MADE_MAX_FILES,
            kept: SignedDuration::from_hours(24),
            idle: SignedDuration::from_mins(20),
            container_files: MADE_MAX_FILES,
            container_bytes: STAGED_MAX_BYTES as u64,
        }
    }
}

impl Bounds {
    /// Whether one file may be so large.
    pub(super) fn admit_file(&self, size: u64) -> Result<(), FilesRefusal> {
        if size <= self.file_bytes {
            return Ok(());
        }
        let text = format!("a file has at most {} bytes", self.file_bytes);
        Err(FilesRefusal::TooLarge(text))
    }

    /// The bounds of a registry, which stores at most `bytes` for all gateways of an installation, each object for `kept`. One
    /// account gets at most half of everything, and one caller a quarter of the bytes.
    pub fn of_cluster(bytes: u64, kept: SignedDuration) -> Self {
        Self {
            caller_bytes: bytes / 4,
            account_bytes: bytes / 2,
            account_files: CLUSTER_FILES / 2,
            account_containers: CLUSTER_CONTAINERS / 2,
            account_contained: CLUSTER_CONTAINED / 2,
            bytes,
            files: CLUSTER_FILES,
            containers: CLUSTER_CONTAINERS,
            contained: CLUSTER_CONTAINED,
            kept,
            ..Self::default()
        }
    }
}
