//! Objects that this process has written: their events tell nothing new.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bounded_map::BoundedMap;

/// The last writes of this process, by the uid of the object.
#[derive(Debug, Default)]
pub(in crate::controller) struct OwnWrites {
    /// The version of each object before the last write.
    superseded: BoundedMap<String, String>,
    /// How often a reconcile of any runtime was requested.
    triggers: AtomicU64,
    /// The version of each runtime after the last write of its status, and [`OwnWrites::triggers`] when that reconcile began.
    written: BoundedMap<String, (String, u64)>,
}

impl OwnWrites {
    /// Counts a request for reconciles of runtimes.
    pub(in crate::controller) fn count_trigger(&self) {
        self.triggers.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers that an object was changed by this process: the event of that change comes, and what came before it is old.
    pub(in crate::controller) fn remember_change(&self, uid: &str, seen: Option<String>) {
        if let Some(version) = seen {
            self.superseded.remember(uid.to_owned(), version);
        }
    }

    /// Whether a watched object is older than this process's last change to it.
    pub(in crate::controller) fn is_superseded(&self, uid: &str, version: Option<&str>) -> bool {
        let mut superseded = self.superseded.lock();
        if version.is_some() && superseded.get(uid).map(String::as_str) == version {
            return true;
        }
        superseded.remove(uid);
        false
    }

    /// How often a reconcile of any runtime was requested until now.
    pub(in crate::controller) fn triggers(&self) -> u64 {
        self.triggers.load(Ordering::Relaxed)
    }

    /// Remembers the version of a runtime that a reconcile wrote. `triggers`: [`OwnWrites::triggers`] when that reconcile began.
    pub(in crate::controller) fn remember_written(&self, uid: &str, version: String, triggers: u64) {
        self.written.remember(uid.to_owned(), (version, triggers));
    }

    /// Whether a runtime is as this process's last write left it, and no reconcile was requested since that one began: another one would
    /// have the same result.
    pub(in crate::controller) fn is_as_written(&self, uid: &str, version: Option<&str>) -> bool {
        let written = self.written.lock();
        let known = written.get(uid);
        known.is_some_and(|(made, triggers)| Some(made.as_str()) == version && *triggers == self.triggers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_not_looked_at_for_our_own_write_unless_requested() {
        let writes = OwnWrites::default();
        assert!(!writes.is_as_written("u", Some("1")));
        writes.remember_written("u", "2".to_owned(), writes.triggers());
        let as_written = |version| writes.is_as_written("u", version);
        assert_eq!(
            [Some("1"), Some("2"), Some("3"), None].map(as_written),
            [false, true, false, false]
        );
        assert!(!writes.is_as_written("v", Some("2")));
        // A change that comes while the look is under way.
        let began = writes.triggers();
        writes.count_trigger();
        writes.remember_written("u", "3".to_owned(), began);
        assert!(!writes.is_as_written("u", Some("3")));
    }
}
