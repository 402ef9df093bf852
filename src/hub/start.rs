//! The start of a replica.
//!
//! A gateway drops the skills that a replica's index does not name. So a replica that has just started sends no index, and is not
//! ready, before it has read everything that the cluster serves by now, and not only the lists: a skill whose ConfigMaps are
//! not read yet, or whose environment of packages is not known yet, is in no catalog. And while the fences of a namespace are not
//! listed, a run would start behind one that is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::{HubRefusal, RefusalCode};
use tokio::sync::watch;

use super::artifacts::Artifacts;
use super::served_revision::ServedRevision;
use crate::cluster_reader::watch::{Shared, WatchSettings};

/// How long the first reading may take once the lists are there: 10,000 ConfigMaps, 32 at once, from an API server that takes
/// 0.1 s for each. Content that the API server returns later is served from then on. Fences that may not be read are not waited for
/// longer.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// First pause between polls of the first reading; doubled up to [`POLL_LAST`]: a poll with thousands of Skills takes
/// milliseconds.
const POLL_FIRST: Duration = Duration::from_millis(10);
/// See [`POLL_FIRST`].
const POLL_LAST: Duration = Duration::from_millis(250);

/// What a replica that has just started still reads.
#[derive(Debug, Clone)]
pub struct Start {
    shared: Arc<Shared>,
    /// Watches per kind.
    lists: usize,
    whole: watch::Receiver<bool>,
}

impl Start {
    /// What is still being read, if anything.
    pub fn waiting_for(&self) -> Option<&'static str> {
        if *self.whole.borrow() {
            return None;
        }
        let list = self.shared.read(|cluster_state| cluster_state.waiting_for(self.lists));
        Some(list.unwrap_or("the content of Skills, or NetworkPolicies"))
    }

    /// Resolves once everything is read.
    pub async fn over(&self) {
        // An error means that the hub is gone.
        let _ = self.whole.clone().wait_for(|whole| *whole).await;
    }
}

/// Begins to wait for everything that the cluster serves by now: the lists of the watches, the content of the Skills that they
/// name, and with packages the statuses of environments. The future ends when it is read.
pub fn begin(
    shared: &Arc<Shared>,
    artifacts: Artifacts,
    watching: &WatchSettings,
) -> (Start, impl Future<Output = ()> + use<>) {
    let (sender, whole) = watch::channel(false);
    let (lists, packages) = (crate::cluster_reader::watch::lists(watching), watching.packages);
    let fenced = watching.fences.then(|| watching.runtime_namespaces.clone());
    let fenced = fenced.unwrap_or_default();
    let start = Start {
        shared: Arc::clone(shared),
        lists,
        whole,
    };
    let shared = Arc::clone(shared);
    let read = async move {
        let mut changes = shared.changes();
        // An error means that the hub is gone.
        let _ = changes
            .wait_for(|_| shared.read(|cluster_state| cluster_state.waiting_for(lists).is_none()))
            .await;
        if tokio::time::timeout(READ_WITHIN, read_all(&shared, &artifacts, packages, &fenced))
            .await
            .is_err()
        {
            tracing::warn!(
                unlisted = ?unlisted(&shared, &fenced),
                "not everything could be read within {} s: catalogs are served without the content of Skills that is not read, and \
                 runs start in namespaces whose NetworkPolicies are not listed (unlisted) if the controller says that they may",
                READ_WITHIN.as_secs()
            );
        }
        sender.send_replace(true);
    };
    (start, read)
}

/// The answer of a replica that has just started: it has no data yet, which is no reason to refuse.
pub(super) fn starting() -> HubRefusal {
    let text = "this replica of the hub has just started; try again";
    HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1)
}

/// The namespaces whose fences are not listed yet.
fn unlisted<'a>(shared: &Shared, fenced: &'a BTreeSet<String>) -> Vec<&'a String> {
    let fences = shared.read(|cluster_state| Arc::clone(&cluster_state.fences));
    fenced.iter().filter(|namespace| !fences.is_known(namespace)).collect()
}

/// `fenced`: the namespaces whose fences are watched.
async fn read_all(shared: &Shared, artifacts: &Artifacts, packages: bool, fenced: &BTreeSet<String>) {
    let skills = shared.read(|cluster_state| cluster_state.skills.iter().cloned().collect::<Vec<_>>());
    let mut unread: Vec<ServedRevision> = skills.iter().flat_map(|skill| ServedRevision::all(skill)).collect();
    let mut pause = POLL_FIRST;
    loop {
        unread.retain(|wanted| !artifacts.is_settled(wanted));
        let are_listed = !packages || shared.read(|cluster_state| cluster_state.environments_listed);
        if unread.is_empty() && are_listed && unlisted(shared, fenced).is_empty() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_LAST);
    }
}
