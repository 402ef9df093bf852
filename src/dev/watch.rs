//! The files as they are now: watched, so that a saved change is live for the next request.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use knack_gateway::catalog::{LastGood, LiveCatalog, Snapshot, SourceReport};
use knack_skill::catalog::Node;
use rustix::pipe::PipeFlags;

use super::assemble::assemble;
use super::discover::{DiscoveredSources, discover};
use super::file_changes::{FileChanges, WatchedFiles};
use super::search::Search;

/// Editors write a file in several steps (truncate, write, rename): changes within this time are one reload.
const SETTLE: Duration = Duration::from_millis(15);

/// Keeps the watch alive; dropping it ends it.
#[derive(Debug)]
pub struct WatchGuard {
    /// Ends the thread that waits for changes.
    _stop: OwnedFd,
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
) -> io::Result<(Arc<LiveCatalog>, WatchGuard)> {
    let changes = Arc::new(FileChanges::of(&search.paths)?);
    let search = search.watched_by(Arc::clone(&changes));
    let (wake, mut woken) = tokio::sync::mpsc::channel::<()>(1);
    let (snapshot, mut last) = read(search.clone(), node, LastGood::default()).await;
    on_change(&snapshot);
    let live = LiveCatalog::fixed(snapshot);
    live.follow(WatchedFiles {
        changes: Arc::clone(&changes),
        wake: wake.clone(),
    });
    let (stopped, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let reported = Arc::clone(&live);
    let report = move || {
        while changes.wait(&stopped) {
            // A request may have taken it, and has it read then.
            if reported.count_unreported() {
                // A full channel means that a reload is already due: it will see this change too.
                let _ = wake.try_send(());
            }
        }
    };
    std::thread::Builder::new()
        .name("knack-files".to_owned())
        .spawn(report)?;
    let follower = Arc::clone(&live);
    let task = tokio::spawn(async move {
        while woken.recv().await.is_some() {
            tokio::time::sleep(SETTLE).await;
            // What is still in the queue is read now, too.
            follower.count_unreported();
            let seen = follower.changes();
            let (snapshot, last_after) = read(search.clone(), node, std::mem::take(&mut last)).await;
            last = last_after;
            let current = follower.current();
            if snapshot.revision != current.revision || snapshot.reports != current.reports {
                on_change(&snapshot);
                follower.replace(snapshot);
            }
            follower.changes_read(seen);
        }
    });
    Ok((live, WatchGuard { _stop: stop, task }))
}

/// Reads the files outside the async runtime. What changes in the meantime is in the queue.
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
            let mut found = DiscoveredSources::default();
            found.reports.push(SourceReport::error(
                "knack",
                format!("reading skills failed: {error}; please report this"),
            ));
            (assemble(found, node, &mut last), last)
        }
    }
}
