//! The pods of one runtime, by the name of their Job, from one watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use knack_vocabulary::LABEL_RUNTIME;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::facts::PodFacts;

/// Server-side end of one watch, seconds. Load balancers drop idle ones after 240 s and more; at the end the watch
/// starts again.
const WATCH_SECONDS: u32 = 200;

/// A pod as the watch shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodState {
    /// The last facts; `None` before the pod was seen.
    pub(super) facts: Option<PodFacts>,
    /// It was seen and no longer exists.
    pub(super) is_gone: bool,
}

/// A pod without its stream.
#[derive(Debug, Clone)]
pub(super) struct PodRef {
    /// Its Job.
    pub(super) job: String,
    /// Its name.
    pub(super) pod: String,
    /// Its uid.
    pub(super) uid: String,
    /// The watch's view of it.
    pub(super) state: watch::Receiver<PodState>,
}

impl PodRef {
    /// That of a pod in the index.
    pub(super) fn of(facts: &PodFacts, state: watch::Receiver<PodState>) -> Self {
        Self {
            job: facts.job.clone(),
            pod: facts.name.clone(),
            uid: facts.uid.clone(),
            state,
        }
    }
}

/// The state of one Job's pod.
#[derive(Debug, Default)]
struct KnownPod {
    state: watch::Sender<PodState>,
    /// The uid of the Job, once it is known: the pods of another one of that name are ignored.
    job_uid: Option<String>,
}

impl KnownPod {
    /// Whether the entry is unused: it has no follower, and its pod is gone or was never seen.
    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        self.state.receiver_count() == 0 && (state.facts.is_none() || state.is_gone)
    }

    fn is_of(&self, facts: &PodFacts) -> bool {
        self.job_uid.as_ref().is_none_or(|uid| *uid == facts.job_uid)
    }
}

/// The index; see the module.
#[derive(Debug)]
pub(super) struct PodIndex {
    pods: Mutex<BTreeMap<String, KnownPod>>,
    synced: watch::Sender<bool>,
}

impl PodIndex {
    /// Starts the watch, which runs while the handle lives.
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
        let mut pods = self.lock();
        // Jobs that were refused, and those whose pod was deleted while it was followed.
        pods.retain(|_, entry| !entry.is_idle());
        pods.entry(job.to_owned()).or_default().state.subscribe()
    }

    /// From now on only a pod that the Job of this uid controls is the pod of a Job.
    pub(super) fn bind(&self, job: &str, uid: String) {
        let mut pods = self.lock();
        let entry = pods.entry(job.to_owned()).or_default();
        entry.job_uid = Some(uid);
        let is_strange = |entry: &KnownPod| {
            entry
                .state
                .borrow()
                .facts
                .as_ref()
                .is_some_and(|facts| !entry.is_of(facts))
        };
        if is_strange(entry) {
            entry.state.send_replace(PodState::default());
        }
    }

    /// The state of a Job's pod.
    pub(super) fn state(&self, job: &str) -> PodState {
        self.lock()
            .get(job)
            .map(|entry| entry.state.borrow().clone())
            .unwrap_or_default()
    }

    /// Every pod that is there.
    pub(super) fn all(&self) -> Vec<PodFacts> {
        let pods = self.lock();
        pods.values()
            .filter_map(|entry| {
                let state = entry.state.borrow();
                state.facts.clone().filter(|_| !state.is_gone)
            })
            .collect()
    }

    /// Whether this very pod is there, as far as the watch says.
    pub(super) fn has(&self, pod: &PodFacts) -> bool {
        let state = self.state(&pod.job);
        !state.is_gone && state.facts.is_some_and(|facts| facts.uid == pod.uid)
    }

    /// User ids in use.
    pub(super) fn uids(&self) -> BTreeSet<u32> {
        self.all().into_iter().filter_map(|facts| facts.run_as).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownPod>> {
        // The map is valid between any two statements.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, pod: &Pod) -> Option<String> {
        let facts = PodFacts::of(pod)?;
        let job = facts.job.clone();
        let mut pods = self.lock();
        let entry = pods.entry(job.clone()).or_default();
        if entry.is_of(&facts) {
            entry.state.send_replace(PodState {
                facts: Some(facts),
                is_gone: false,
            });
        }
        Some(job)
    }

    /// Marks a pod as gone and forgets it unless it has a follower.
    fn remove(&self, pod: &Pod) {
        let Some(facts) = PodFacts::of(pod) else { return };
        let mut pods = self.lock();
        let Some(entry) = pods.get(&facts.job).filter(|entry| entry.is_of(&facts)) else {
            return;
        };
        let job = facts.job.clone();
        entry.state.send_replace(PodState {
            facts: Some(facts),
            is_gone: true,
        });
        if entry.is_idle() {
            pods.remove(&job);
        }
    }

    /// After a new list: pods that are not in it are gone.
    fn keep_only(&self, listed: &BTreeSet<String>) {
        self.lock().retain(|job, entry| {
            if !listed.contains(job) && entry.state.borrow().facts.is_some() {
                entry.state.send_modify(|state| state.is_gone = true);
            }
            !entry.is_idle()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index() -> PodIndex {
        PodIndex {
            pods: Mutex::default(),
            synced: watch::Sender::new(true),
        }
    }

    fn pod(name: &str, job: &str, job_uid: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {
            "name": name, "uid": format!("uid of {name}"), "labels": {"batch.kubernetes.io/job-name": job},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job_uid, "controller": true}],
        }}))
        .unwrap()
    }

    fn seen(index: &PodIndex, job: &str) -> Option<String> {
        index.state(job).facts.map(|facts| facts.name)
    }

    #[test]
    fn a_label_alone_makes_no_pod_of_a_job() {
        let index = index();
        let mut labelled = pod("p", "job", "1");
        labelled.metadata.owner_references = None;
        index.apply(&labelled);
        assert_eq!(seen(&index, "job"), None);
        index.apply(&pod("p", "job", "1"));
        assert_eq!(seen(&index, "job").as_deref(), Some("p"));
    }

    #[test]
    fn only_what_the_job_itself_controls_is_its_pod() {
        for strange_first in [true, false] {
            let index = index();
            let state = index.follow("job");
            if strange_first {
                index.apply(&pod("strange", "job", "another"));
            }
            index.bind("job", "1".to_owned());
            assert_eq!(seen(&index, "job"), None);
            index.apply(&pod("ours", "job", "1"));
            index.apply(&pod("strange", "job", "another"));
            index.remove(&pod("strange", "job", "another"));
            assert_eq!(seen(&index, "job").as_deref(), Some("ours"));
            assert!(!state.borrow().is_gone);
        }
    }

    #[test]
    fn nothing_stays_of_refused_jobs_and_of_pods_that_went_while_followed() {
        let index = index();
        drop(index.follow("refused"));
        let followed = index.follow("deleted");
        index.apply(&pod("p", "deleted", "1"));
        index.remove(&pod("p", "deleted", "1"));
        assert!(followed.borrow().is_gone);
        drop(followed);
        let _next = index.follow("next");
        assert_eq!(index.lock().keys().collect::<Vec<_>>(), ["next"]);
    }
}
