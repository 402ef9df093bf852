//! The snapshot that requests get, by how old it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::age::CatalogAge;
use crate::catalog::{LiveCatalog, Snapshot};

/// How often the age of the snapshot is checked.
const AGE_CHECK: Duration = Duration::from_secs(1);
/// Why there is no catalog any more.
const TOO_OLD: &str = "the hub has not confirmed it for too long";

/// The catalog that requests get, and its observers.
pub(super) struct Serving {
    pub(super) live: Arc<LiveCatalog>,
    pub(super) age: CatalogAge,
    pub(super) on_change: Box<dyn Fn(&Snapshot) + Send + Sync>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Serving")
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}

impl Serving {
    /// Serves a snapshot from now on; one of a catalog that is too old goes without its skills, at once.
    pub(super) fn serve(&self, snapshot: Snapshot) {
        let is_too_old = snapshot.absent.is_none() && self.age.too_old().is_some();
        let snapshot = if is_too_old {
            Snapshot::without_catalog(snapshot.runtime, TOO_OLD)
        } else {
            snapshot
        };
        (self.on_change)(&snapshot);
        self.live.replace(snapshot);
    }

    /// Whether requests get a catalog: there is one, and it is not too old.
    pub(super) fn has_catalog(&self) -> bool {
        self.live.current().absent.is_none()
    }

    /// Says why there is no catalog, where there is none.
    pub(super) fn explain_absence(&self, why: &str) {
        let current = self.live.current();
        if current.absent.as_deref().is_some_and(|known| known != why) {
            self.serve(Snapshot::without_catalog(current.runtime.clone(), why));
        }
    }

    /// Drops a snapshot that the hub has not confirmed for too long: skills that were revoked meanwhile must not be
    /// injected.
    pub(super) async fn watch_age(&self) {
        loop {
            tokio::time::sleep(AGE_CHECK).await;
            let current = self.live.current();
            if current.absent.is_none()
                && let Some(age) = self.age.too_old()
            {
                tracing::warn!(
                    age_seconds = age.as_secs(),
                    "the catalog is dropped: the hub has not confirmed it for longer than maxSnapshotAgeSeconds"
                );
                self.serve(Snapshot::without_catalog(current.runtime.clone(), TOO_OLD));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{LastGood, RuntimeSettings, Selected, UnreadSources, assemble};
    use knack_skill::catalog::Node;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn what_is_too_old_is_never_served_and_its_settings_are() {
        tokio::time::pause();
        let catalog = |deadline| {
            let runtime = RuntimeSettings {
                deadline: Duration::from_secs(deadline),
                ..RuntimeSettings::default()
            };
            let selected = Selected {
                sources: &[],
                names: &BTreeMap::new(),
                unread: UnreadSources::default(),
            };
            assemble(&selected, runtime, Node::Absent, &mut LastGood::default(), Vec::new())
        };
        let serving = Arc::new(Serving {
            live: LiveCatalog::fixed(catalog(1)),
            age: CatalogAge::starting(),
            on_change: Box::new(|_| {}),
        });
        let served = || {
            let current = serving.live.current();
            (current.runtime.deadline.as_secs(), current.absent.clone())
        };
        serving.age.set_limit(Duration::from_mins(1));
        serving.age.restored(Duration::from_secs(61));
        serving.serve(catalog(2));
        assert_eq!(served(), (2, Some(TOO_OLD.to_owned())));
        serving.age.restored(Duration::from_secs(50));
        serving.serve(catalog(3));
        assert_eq!(served(), (3, None));
        let watching = tokio::spawn({
            let serving = Arc::clone(&serving);
            async move { serving.watch_age().await }
        });
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(served(), (3, Some(TOO_OLD.to_owned())));
        watching.abort();
    }
}
