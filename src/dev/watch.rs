//! The files as they are now: watched, so that a saved change is live for the next request.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use knack_gateway::catalog::{LastGood, LiveCatalog, Snapshot, SourceReport};
use knack_skill::catalog::Node;
use notify::{RecursiveMode, Watcher};

use super::assemble::assemble;
use super::discover::{DiscoveredSources, discover};
use super::search::Search;
use super::unreported::{ChangeQueue, Unreported};

/// Editors write a file in several steps (truncate, write, rename): changes within this time are one reload.
const SETTLE: Duration = Duration::from_millis(15);

/// Keeps the watch alive; dropping it ends it.
#[derive(Debug)]
pub struct WatchGuard {
    _watcher: notify::RecommendedWatcher,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads what `search` finds and follows its changes. `on_change` gets every new snapshot, the first one included.
pub async fn watch(
    search: Search,
    node: Node,
    on_change: impl Fn(&Snapshot) + Send + 'static,
) -> Result<(Arc<LiveCatalog>, WatchGuard), notify::Error> {
    let mut last = LastGood::default();
    let (wake, mut woken) = tokio::sync::mpsc::channel::<()>(1);
    let queue = ChangeQueue::new().map(Arc::new);
    let (snapshot, last_after) = { read(search.clone(), queue.clone(), node, std::mem::take(&mut last)).await };
    last = last_after;
    on_change(&snapshot);
    let live = LiveCatalog::fixed(snapshot);
    if let Some(queue) = queue.clone() {
        let wake = wake.clone();
        live.follow(Unreported { queue, wake });
    }
    let marker = Arc::clone(&live);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let read_only = event.is_ok_and(|event| event.kind.is_access());
        if !read_only {
            marker.change_seen();
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
            // What is still in the queue is read now, too.
            follower.count_unreported();
            let seen = follower.changes();
            let (snapshot, last_after) = read(search.clone(), queue.clone(), node, std::mem::take(&mut last)).await;
            last = last_after;
            let current = follower.current();
            if snapshot.revision != current.revision || snapshot.reports != current.reports {
                on_change(&snapshot);
                follower.replace(snapshot);
            }
            follower.changes_read(seen);
        }
    });
    Ok((
        live,
        WatchGuard {
            _watcher: watcher,
            task,
        },
    ))
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

/// Reads the files outside the async runtime. What changes in the meantime, also in new folders, is in the queue.
async fn read(search: Search, queue: Option<Arc<ChangeQueue>>, node: Node, mut last: LastGood) -> (Snapshot, LastGood) {
    let read = tokio::task::spawn_blocking(move || {
        if let Some(queue) = queue {
            queue.watch(&search.paths);
        }
        let snapshot = assemble(discover(&search), node, &mut last);
        (snapshot, last)
    });
    match read.await {
        Ok(result) => result,
        // Only a panic in the pure crates could end here; an empty catalog with a report beats a dead gateway.
        Err(error) => {
            let mut last = LastGood::default();
            let mut found = DiscoveredSources::default();
            found.reports.push(SourceReport::error(
                "knack",
                format!("reading skills failed: {error}; please report this"),
            ));
            (assemble(found, node, &mut last), last)
        }
    }
}
