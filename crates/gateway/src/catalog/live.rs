//! The catalog as it is now: one immutable snapshot, replaced as a whole.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::snapshot::Snapshot;

/// A request that arrives while a change is being read waits at most this long for it, then takes the current snapshot.
const RELOAD_WAIT: Duration = Duration::from_millis(500);

/// The files that a catalog is made of. Their watcher reports a change when its thread gets a processor; the kernel knows it as soon as it
/// is written.
pub trait Files: Debug + Send + Sync {
    /// Whether anything has changed since this was asked last. It does not block.
    fn have_changed(&self) -> bool;
    /// Has them read again.
    fn read_again(&self);
}

/// The current snapshot. The maker of snapshots reports when a change was seen, so that a request that arrives while
/// the change is being read waits for it.
#[derive(Debug)]
pub struct LiveCatalog {
    current: ArcSwap<Snapshot>,
    /// Changes seen so far.
    seen: AtomicU64,
    /// Changes that `current` contains.
    applied: watch::Sender<u64>,
    files: OnceLock<Box<dyn Files>>,
    /// Held from the question whether files have changed until the answer is counted.
    asking: Mutex<()>,
}

impl LiveCatalog {
    /// A catalog that stays as it is.
    pub fn fixed(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::from_pointee(snapshot),
            seen: AtomicU64::new(0),
            applied: watch::Sender::new(0),
            files: OnceLock::new(),
            asking: Mutex::new(()),
        })
    }

    /// From now on each request asks these files for changes; once.
    pub fn follow(&self, files: impl Files + 'static) {
        // A second call is a mistake of the program: the first files stay.
        let _ = self.files.set(Box::new(files));
    }

    /// Counts a change that only the files know. Returns whether there was one.
    pub fn count_unreported(&self) -> bool {
        let Some(files) = self.files.get() else { return false };
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = files.have_changed();
        if changed {
            self.change_seen();
        }
        changed
    }

    /// Counts a change that is about to be read; requests wait for it, briefly.
    pub(crate) fn change_seen(&self) {
        self.seen.fetch_add(1, Ordering::AcqRel);
    }

    /// The changes seen so far, for [`LiveCatalog::changes_read`].
    pub fn changes(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// The current snapshot has the first `changes` changes.
    pub fn changes_read(&self, changes: u64) {
        self.applied.send_replace(changes);
    }

    /// Serves another snapshot from the next request on.
    pub fn replace(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
    }

    /// The snapshot for a request that starts now: a change that was written before is waited for, briefly.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        if self.count_unreported()
            && let Some(files) = self.files.get()
        {
            files.read_again();
        }
        let seen = self.seen.load(Ordering::Acquire);
        if *self.applied.borrow() < seen {
            let mut applied = self.applied.subscribe();
            // A timeout means a slow disk: serving the last snapshot is better than failing.
            let _ = tokio::time::timeout(RELOAD_WAIT, applied.wait_for(|applied| *applied >= seen)).await;
        }
        self.current.load_full()
    }

    /// The snapshot as it is, for health and metrics.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::sync::mpsc;

    use super::*;
    use crate::catalog::RuntimeSettings;

    /// Files of which a test writes one.
    #[derive(Debug)]
    struct Written {
        changed: Arc<AtomicBool>,
        asked: mpsc::UnboundedSender<()>,
    }

    impl Files for Written {
        fn have_changed(&self) -> bool {
            self.changed.swap(false, Ordering::AcqRel)
        }

        fn read_again(&self) {
            self.asked.send(()).unwrap();
        }
    }

    fn snapshot(revision: &str) -> Snapshot {
        let mut snapshot = Snapshot::without_catalog(RuntimeSettings::default(), "");
        revision.clone_into(&mut snapshot.revision);
        snapshot
    }

    #[tokio::test]
    async fn a_request_waits_for_a_change_that_no_watcher_has_reported() {
        let live = LiveCatalog::fixed(snapshot("before"));
        let changed = Arc::new(AtomicBool::new(false));
        let (asked, mut is_asked) = mpsc::unbounded_channel();
        live.follow(Written {
            changed: Arc::clone(&changed),
            asked,
        });
        assert_eq!(live.snapshot().await.revision, "before");
        changed.store(true, Ordering::Release);
        let reader = async {
            is_asked.recv().await.unwrap();
            let seen = live.changes();
            live.replace(snapshot("after"));
            live.changes_read(seen);
        };
        let (got, ()) = tokio::join!(live.snapshot(), reader);
        assert_eq!(got.revision, "after");
        assert!(is_asked.try_recv().is_err(), "read once");
    }
}
