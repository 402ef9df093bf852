//! The catalog of files as they are now: watched, so that a saved change is live for the next request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use knack_skill::catalog::Node;
use notify::{RecursiveMode, Watcher};
use tokio::sync::watch;

use super::assemble::{LastGood, Snapshot, assemble};
use super::discover::{Search, discover};

/// Editors write a file in several steps (truncate, write, rename): changes within this time are one reload.
const SETTLE: Duration = Duration::from_millis(15);
/// A request that comes while a change is being read waits at most this long for it, then takes what there is.
const RELOAD_WAIT: Duration = Duration::from_millis(500);

/// A snapshot that follows the files.
#[derive(Debug)]
pub struct LiveCatalog {
    current: ArcSwap<Snapshot>,
    /// Changes seen on disk so far.
    seen: AtomicU64,
    /// Changes that `current` contains.
    applied: watch::Sender<u64>,
}

/// Keeps the watch alive; dropping it ends it.
#[derive(Debug)]
pub struct Watching {
    _watcher: notify::RecommendedWatcher,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LiveCatalog {
    /// A catalog that stays as it is.
    pub fn fixed(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::from_pointee(snapshot),
            seen: AtomicU64::new(0),
            applied: watch::Sender::new(0),
        })
    }

    /// Reads what `search` finds and follows its changes. `on_change` gets every new snapshot, the first one included.
    pub async fn watch(
        search: Search,
        node: Node,
        on_change: impl Fn(&Snapshot) + Send + 'static,
    ) -> Result<(Arc<Self>, Watching), notify::Error> {
        let mut last = LastGood::default();
        let (wake, mut woken) = tokio::sync::mpsc::channel::<()>(1);
        let (snapshot, last_after) = { read(search.clone(), node, std::mem::take(&mut last)).await };
        last = last_after;
        on_change(&snapshot);
        let live = Self::fixed(snapshot);
        let marker = Arc::clone(&live);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let read_only = event.is_ok_and(|event| event.kind.is_access());
            if !read_only {
                marker.seen.fetch_add(1, Ordering::AcqRel);
                // A full channel means that a reload is already due: it will see this change too.
                let _ = wake.try_send(());
            }
        })?;
        for path in &search.paths {
            watcher.watch(watch_target(path), RecursiveMode::Recursive)?;
        }
        let follower = Arc::clone(&live);
        let task = tokio::spawn(async move {
            while woken.recv().await.is_some() {
                tokio::time::sleep(SETTLE).await;
                let seen = follower.seen.load(Ordering::Acquire);
                let (snapshot, last_after) = read(search.clone(), node, std::mem::take(&mut last)).await;
                last = last_after;
                if snapshot.revision != follower.current.load().revision
                    || snapshot.reports != follower.current.load().reports
                {
                    on_change(&snapshot);
                    follower.current.store(Arc::new(snapshot));
                }
                follower.applied.send_replace(seen);
            }
        });
        Ok((
            live,
            Watching {
                _watcher: watcher,
                task,
            },
        ))
    }

    /// Serves another snapshot from the next request on: for catalogs that do not come from files.
    pub fn replace(&self, snapshot: Snapshot) {
        self.current.store(Arc::new(snapshot));
    }

    /// The snapshot for a request that starts now: a change already seen on disk is waited for, briefly.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        let seen = self.seen.load(Ordering::Acquire);
        if *self.applied.borrow() < seen {
            let mut applied = self.applied.subscribe();
            // A timeout means a slow disk: serving the last snapshot beats serving nobody.
            let _ = tokio::time::timeout(RELOAD_WAIT, applied.wait_for(|applied| *applied >= seen)).await;
        }
        self.current.load_full()
    }

    /// The snapshot as it is, for health and metrics.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }
}

/// A single file is watched by its folder: editors replace files, and a watch on the old inode would go blind.
fn watch_target(path: &Path) -> &Path {
    if path.is_file() {
        path.parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    } else {
        path
    }
}

/// Reads the files outside the async runtime.
async fn read(search: Search, node: Node, mut last: LastGood) -> (Snapshot, LastGood) {
    let read = tokio::task::spawn_blocking(move || {
        let snapshot = assemble(discover(&search), node, &mut last);
        (snapshot, last)
    });
    match read.await {
        Ok(result) => result,
        // Only a panic in the pure crates could end here; an empty catalog with a report beats a dead gateway.
        Err(error) => {
            let mut last = LastGood::default();
            let mut found = super::Discovered::default();
            found.reports.push(super::Report::error(
                "knack",
                format!("reading skills failed: {error}; please report this"),
            ));
            (assemble(found, node, &mut last), last)
        }
    }
}
