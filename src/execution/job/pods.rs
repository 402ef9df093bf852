//! The pods of one runtime, by the name of their Job, from one watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::facts::PodFacts;
use crate::api::vocabulary::LABEL_RUNTIME;

/// Server-side end of one watch, seconds. Load balancers drop idle ones after 240 s and more; at the end the watch
/// starts again.
const WATCH_SECONDS: u32 = 200;

/// A pod as the watch shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodState {
    /// The last facts; `None` before the pod was seen.
    pub(super) facts: Option<PodFacts>,
    /// It was seen and is not there any more.
    pub(super) is_gone: bool,
}

/// The index; see the module.
#[derive(Debug)]
pub(super) struct PodIndex {
    pods: Mutex<BTreeMap<String, watch::Sender<PodState>>>,
    synced: watch::Sender<bool>,
}

impl PodIndex {
    /// Starts the watch; it goes on while the handle lives.
    pub(super) fn start(api: Api<Pod>, runtime: &str) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let index = Arc::new(Self {
            pods: Mutex::default(),
            synced: watch::Sender::new(false),
        });
        let config = watcher::Config::default()
            .labels(&format!("{LABEL_RUNTIME}={runtime}"))
            .timeout(WATCH_SECONDS);
        let task = tokio::spawn(run(Arc::clone(&index), api, config));
        (index, AbortOnDropHandle::new(task))
    }

    /// Waits for the first whole list.
    pub(super) async fn wait_until_synced(&self) {
        // The sender lives as long as the index.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Follows the pod of a Job, from before it exists.
    pub(super) fn follow(&self, job: &str) -> watch::Receiver<PodState> {
        self.lock().entry(job.to_owned()).or_default().subscribe()
    }

    /// What is known of the pod of a Job.
    pub(super) fn state(&self, job: &str) -> PodState {
        self.lock()
            .get(job)
            .map(|sender| sender.borrow().clone())
            .unwrap_or_default()
    }

    /// Every pod that is there.
    pub(super) fn all(&self) -> Vec<PodFacts> {
        let pods = self.lock();
        pods.values()
            .filter_map(|sender| {
                let state = sender.borrow();
                state.facts.clone().filter(|_| !state.is_gone)
            })
            .collect()
    }

    /// User ids in use.
    pub(super) fn uids(&self) -> BTreeSet<u32> {
        self.all().into_iter().filter_map(|facts| facts.run_as).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<PodState>>> {
        // The map is valid between any two statements.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, pod: &Pod) -> Option<String> {
        let facts = PodFacts::of(pod)?;
        let job = facts.job.clone();
        self.lock().entry(job.clone()).or_default().send_replace(PodState {
            facts: Some(facts),
            is_gone: false,
        });
        Some(job)
    }

    /// Marks a pod as gone and forgets it unless somebody follows it.
    fn remove(&self, pod: &Pod) {
        let Some(facts) = PodFacts::of(pod) else { return };
        let mut pods = self.lock();
        let Some(sender) = pods.get(&facts.job) else { return };
        let job = facts.job.clone();
        sender.send_replace(PodState {
            facts: Some(facts),
            is_gone: true,
        });
        if sender.receiver_count() == 0 {
            pods.remove(&job);
        }
    }

    /// After a new list: what is not in it is gone.
    fn keep_only(&self, listed: &BTreeSet<String>) {
        self.lock().retain(|job, sender| {
            if !listed.contains(job) && sender.borrow().facts.is_some() {
                sender.send_modify(|state| state.is_gone = true);
            }
            let state = sender.borrow();
            sender.receiver_count() > 0 || (state.facts.is_some() && !state.is_gone)
        });
    }
}

async fn run(index: Arc<PodIndex>, api: Api<Pod>, config: watcher::Config) {
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => listed.extend(index.apply(&pod)),
            Ok(Event::InitDone) => {
                index.keep_only(&listed);
                index.synced.send_replace(true);
            }
            Ok(Event::Apply(pod)) => {
                index.apply(&pod);
            }
            Ok(Event::Delete(pod)) => index.remove(&pod),
            Err(error) => tracing::warn!(%error, "the watch of sandbox pods failed; it is tried again"),
        }
    }
}
