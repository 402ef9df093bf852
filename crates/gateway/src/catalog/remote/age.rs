//! When the hub last sent or confirmed a catalog, and so how old the catalog is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How old a catalog is, and whether a hub has confirmed it since the start. Clones share it.
#[derive(Debug, Clone)]
pub struct CatalogAge(Arc<Mutex<LastContact>>);

#[derive(Debug, Clone, Copy)]
struct LastContact {
    /// The last message of a hub that is followed; before the first one, the start.
    at: Instant,
    /// Age that the catalog had at `at`: that of a saved one. A clock of this process cannot say when the one before it
    /// heard the hub.
    before: Duration,
    /// `maxSnapshotAgeSeconds` of the runtime.
    max_age: Duration,
    /// Whether the served catalog was read from the disk.
    is_saved: bool,
}

impl CatalogAge {
    /// The age in a process that starts.
    pub(super) fn starting() -> Self {
        Self(Arc::new(Mutex::new(LastContact {
            at: Instant::now(),
            before: Duration::ZERO,
            max_age: Duration::from_secs(knack_vocabulary::defaults::MAX_SNAPSHOT_AGE_SECONDS),
            is_saved: false,
        })))
    }

    /// Time since the hub sent or confirmed the catalog, also to the process before this one; since the start if it never did.
    pub fn get(&self) -> Duration {
        self.lock().age()
    }

    /// Whether the catalog was read from the disk, and no hub has sent one since.
    pub(crate) fn is_saved(&self) -> bool {
        self.lock().is_saved
    }

    /// The age, if it is beyond what the runtime allows.
    pub(super) fn too_old(&self) -> Option<Duration> {
        let last = *self.lock();
        Some(last.age()).filter(|age| *age > last.max_age)
    }

    /// Sets the greatest age that the runtime allows.
    pub(super) fn set_limit(&self, max_age: Duration) {
        self.lock().max_age = max_age;
    }

    /// The hub sent the whole catalog, or something after it: it is as the hub has it.
    pub(super) fn confirm(&self) {
        let mut last = self.lock();
        last.at = Instant::now();
        last.before = Duration::ZERO;
    }

    /// A saved catalog of this age is served from now on.
    pub(super) fn restored(&self, age: Duration) {
        let mut last = self.lock();
        last.at = Instant::now();
        last.before = age;
        last.is_saved = true;
    }

    /// A catalog of the hub's is served from now on.
    pub(super) fn confirmed(&self) {
        self.lock().is_saved = false;
    }

    fn lock(&self) -> MutexGuard<'_, LastContact> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LastContact {
    fn age(&self) -> Duration {
        self.before.saturating_add(self.at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_saved_catalog_ages_on_until_the_hub_speaks() {
        tokio::time::pause();
        let age = CatalogAge::starting();
        age.set_limit(Duration::from_mins(10));
        age.restored(Duration::from_mins(9));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(age.get(), Duration::from_secs(590));
        assert_eq!((age.too_old(), age.is_saved()), (None, true));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(age.too_old(), Some(Duration::from_secs(610)));
        age.confirm();
        assert_eq!((age.get(), age.too_old(), age.is_saved()), (Duration::ZERO, None, true));
        age.confirmed();
        assert!(!age.is_saved());
    }
}
