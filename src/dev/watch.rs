//! The files as they are now: watched, so that a saved change is live for the next request.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use knack_gateway::catalog::{LastGood, LiveCatalog, Snapshot, SourceReport};
use knack_skill::catalog::Node;
use rustix::pipe::PipeFlags;
use tokio_util::task::AbortOnDropHandle;

use super::assemble::assemble;
use super::file_changes::{FileChanges, WatchedFiles};
use super::find_sources::discover;
use super::search_settings::Search;

/// Editors write a file in several steps (truncate, write, rename): changes within this time are one reload.
const SETTLE: Duration = Duration::from_millis(15);

/// Keeps the watch alive; dropping it ends it.
#[derive(Debug)]
pub struct WatchGuard {
    /// Ends the thread that waits for changes.
    _stop: OwnedFd,
    task: tokio::task::JoinHandle<()>,
    /// Reads the files again when packages that a new revision waits for are there, or cannot be had.
    _installed: Option<AbortOnDropHandle<()>>,
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
    let ready = search.flags.ready.clone();
    let installed = ready.and_then(|ready| ready.on_installed(wake.clone()));
    let (snapshot, mut last) = read(search.clone(), node, LastGood::default())
        .await
        .map_err(|report| io::Error::other(report.text))?;
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
            let current = follower.current();
            let snapshot = match read(search.clone(), node, last.clone()).await {
                Ok((snapshot, last_after)) => {
                    last = last_after;
                    snapshot
                }
                Err(report) => with_report(&current, report),
            };
            if snapshot.revision != current.revision || snapshot.reports != current.reports {
                follower.replace(snapshot);
                // The console tells what is served.
                on_change(&follower.current());
            }
            follower.changes_read(seen);
        }
    });
    let guard = WatchGuard {
        _stop: stop,
        task,
        _installed: installed,
    };
    Ok((live, guard))
}

/// Reads the files outside the async runtime. What changes in the meantime is in the queue.
async fn read(search: Search, node: Node, last: LastGood) -> Result<(Snapshot, LastGood), SourceReport> {
    on_blocking_thread(last, move |last| assemble(discover(&search), node, last)).await
}

/// Makes a snapshot on a thread of its own. Errors: it panicked, which only a fault of the pure crates could cause.
async fn on_blocking_thread(
    mut last: LastGood,
    make: impl FnOnce(&mut LastGood) -> Snapshot + Send + 'static,
) -> Result<(Snapshot, LastGood), SourceReport> {
    let made = tokio::task::spawn_blocking(move || (make(&mut last), last));
    made.await.map_err(|error| {
        SourceReport::error(
            "knack",
            format!("reading skills failed: {error}; what was read before is served; please report this"),
        )
    })
}

/// What is served where nothing new could be read: the same, and the report. The defaults of a SkillRuntime would allow more than the
/// one that was read.
fn with_report(current: &Snapshot, report: SourceReport) -> Snapshot {
    let mut snapshot = current.clone();
    if !snapshot.reports.contains(&report) {
        snapshot.reports.push(report);
    }
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::find_sources::{DiscoveredSources, discover_text};

    #[tokio::test]
    async fn a_panic_while_reading_keeps_what_is_served_with_its_limits() {
        let strict =
            "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: main}\nspec: {maxRisk: Safe}\n";
        let made = on_blocking_thread(LastGood::default(), move |last| {
            assemble(discover_text("all.yaml", strict), Node::Absent, last)
        });
        let (current, last) = made.await.unwrap();
        let failed = on_blocking_thread(last.clone(), |_| panic!("a fault")).await;
        let report = failed.unwrap_err();
        assert!(
            report.text.contains("a fault") || report.text.contains("panicked"),
            "{report}"
        );
        let kept = with_report(&current, report.clone());
        assert_eq!(kept.reports.last(), Some(&report));
        assert_eq!(
            with_report(&kept, report.clone()).reports,
            kept.reports,
            "it is reported once"
        );
        assert_eq!(kept.runtime.max_risk, knack_skill::risk::Risk::Safe);
        assert_eq!(kept.revision, current.revision);
        let again = on_blocking_thread(last, |last| assemble(DiscoveredSources::default(), Node::Absent, last));
        let (snapshot, _) = again.await.unwrap();
        assert!(!snapshot.reports.contains(&report));
    }
}
