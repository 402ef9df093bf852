//! State between reconciles; losing it costs work, never correctness.

mod archive_cache;
mod bounded_map;
mod fence_checks;
mod own_writes;
mod quota_locks;
mod retries;
mod undelivered;
mod uploads;

use archive_cache::ArchiveCache;
use fence_checks::FenceChecks;
use own_writes::OwnWrites;
use quota_locks::QuotaLocks;
use retries::Retries;
use undelivered::Undelivered;
use uploads::Uploads;
pub(super) use uploads::Versions;

/// What reconciles leave for later ones.
#[derive(Debug, Default)]
pub(super) struct ReconcileMemory {
    pub(super) retries: Retries,
    pub(super) archives: ArchiveCache,
    pub(super) uploads: Uploads,
    pub(super) undelivered: Undelivered,
    pub(super) writes: OwnWrites,
    pub(super) fences: FenceChecks,
    pub(super) quota_locks: QuotaLocks,
}

impl ReconcileMemory {
    /// A runtime of a namespace is gone: the others share its quota and are reconciled again.
    pub(super) fn forget_namespace(&self, namespace: &str) {
        self.fences.forget(namespace);
        self.quota_locks.forget(namespace);
    }
}
