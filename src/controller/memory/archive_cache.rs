//! Archives that were fetched.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::controller::settings::ARCHIVE_CACHE_BYTES;

/// The archives that were fetched last, by the key of their source.
#[derive(Debug, Default)]
pub(in crate::controller) struct ArchiveCache(Mutex<Archives>);

#[derive(Debug, Default)]
struct Archives {
    /// Oldest first: few entries, so that a list is enough.
    kept: Vec<(String, Bytes)>,
    bytes: usize,
}

impl ArchiveCache {
    /// A fetched archive.
    pub(in crate::controller) fn get(&self, key: &str) -> Option<Bytes> {
        let archives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = archives.kept.iter().find(|(kept, _)| kept == key);
        found.map(|(_, bytes)| bytes.clone())
    }

    /// Keeps a fetched archive, in place of the oldest ones.
    pub(in crate::controller) fn keep(&self, key: &str, bytes: Bytes) {
        let mut archives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() > ARCHIVE_CACHE_BYTES || archives.kept.iter().any(|(kept, _)| kept == key) {
            return;
        }
        archives.bytes += bytes.len();
        archives.kept.push((key.to_owned(), bytes));
        while archives.bytes > ARCHIVE_CACHE_BYTES {
            let (_, oldest) = archives.kept.remove(0);
            archives.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_kept_within_bounds() {
        let cache = ArchiveCache::default();
        for (name, megabytes) in [("a", 20), ("b", 10), ("c", 10), ("d", 40)] {
            cache.keep(name, vec![0; megabytes << 20].into());
        }
        let kept: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| cache.get(name).is_some())
            .collect();
        assert_eq!(kept, ["b", "c"]);
    }
}
