//! The pods of one runtime, by their Jobs and uids, from one watch.

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

use crate::api_client::WATCH_SECONDS;
use crate::jobs::cluster::pod_facts::PodFacts;

/// A pod as the watch shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) struct PodState {
    /// The last facts; `None` before the pod was seen.
    pub(in crate::jobs) facts: Option<PodFacts>,
    /// It was seen and no longer exists.
    pub(in crate::jobs) is_gone: bool,
}

impl PodState {
    /// Whether the pod is deleted, or its container has ended.
    pub(in crate::jobs) fn has_ended(&self) -> bool {
        self.is_gone || self.facts.as_ref().is_some_and(PodFacts::has_ended)
    }
}

/// A pod without its stream.
#[derive(Debug, Clone)]
pub(in crate::jobs) struct PodRef {
    /// The pod's Job.
    pub(in crate::jobs) job: String,
    /// The pod's name.
    pub(in crate::jobs) pod: String,
    /// The pod's uid.
    pub(in crate::jobs) uid: String,
    /// The watch's view of it.
    pub(in crate::jobs) state: watch::Receiver<PodState>,
}

/// The pods of one Job, in the order in which they were seen. A job controller whose cache is behind may make a second one.
#[derive(Debug, Default)]
struct JobPods {
    /// The uid of the Job, once it is known: the pods of another one of that name are ignored.
    job_uid: Option<String>,
    /// One for each pod; one without facts waits for its pod.
    pods: Vec<watch::Sender<PodState>>,
}

impl JobPods {
    fn is_of(&self, facts: &PodFacts) -> bool {
        self.job_uid.as_ref().is_none_or(|uid| *uid == facts.job_uid)
    }

    fn find(&self, pod_uid: &str) -> Option<&watch::Sender<PodState>> {
        let is_it = |state: &PodState| state.facts.as_ref().is_some_and(|facts| facts.uid == pod_uid);
        self.pods.iter().find(|pod| is_it(&pod.borrow()))
    }

    /// Takes a pod as the watch shows it. Only the first one becomes the pod that the Job's follower waits for.
    fn set(&mut self, facts: PodFacts, is_gone: bool) {
        let waits = || self.pods.iter().find(|pod| pod.borrow().facts.is_none());
        let known = self.find(&facts.uid).or_else(waits);
        let state = PodState {
            facts: Some(facts),
            is_gone,
        };
        if let Some(pod) = known {
            pod.send_replace(state);
        } else {
            self.pods.push(watch::Sender::new(state));
        }
    }

    /// Forgets those that are unused; whether none is left.
    fn forget_idle(&mut self) -> bool {
        self.pods.retain(|pod| !is_idle(pod));
        self.pods.is_empty()
    }
}

/// Whether nobody follows it, and the pod is gone or was never seen.
fn is_idle(pod: &watch::Sender<PodState>) -> bool {
    let state = pod.borrow();
    pod.receiver_count() == 0 && (state.facts.is_none() || state.is_gone)
}

/// The index; see the module.
#[derive(Debug)]
pub(in crate::jobs) struct PodIndex {
    pods: Mutex<BTreeMap<String, JobPods>>,
    synced: watch::Sender<bool>,
}

impl PodIndex {
    /// Starts the watch, which runs while the handle lives.
    pub(in crate::jobs) fn start(api: Api<Pod>, runtime: &str) -> (Arc<Self>, AbortOnDropHandle<()>) {
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
    pub(in crate::jobs) async fn wait_until_synced(&self) {
        // The sender lives as long as the index.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Follows the pod of a Job that is about to be made: the first one that is seen, and no other.
    pub(in crate::jobs) fn follow(&self, job: &str) -> watch::Receiver<PodState> {
        let mut jobs = self.lock();
        // Jobs that were refused, and those whose pod was deleted while it was followed.
        jobs.retain(|_, entry| !entry.forget_idle());
        let entry = jobs.entry(job.to_owned()).or_default();
        if let Some(pod) = entry.pods.first() {
            return pod.subscribe();
        }
        let pod = watch::Sender::default();
        let state = pod.subscribe();
        entry.pods.push(pod);
        state
    }

    /// A pod that was in the index. One that is in it no more is gone.
    pub(in crate::jobs) fn pod_ref(&self, pod: &PodFacts) -> PodRef {
        let jobs = self.lock();
        let known = jobs.get(&pod.job).and_then(|entry| entry.find(&pod.uid));
        let gone = || {
            let last = PodState {
                facts: Some(pod.clone()),
                is_gone: true,
            };
            watch::Sender::new(last).subscribe()
        };
        PodRef {
            job: pod.job.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            state: known.map_or_else(gone, watch::Sender::subscribe),
        }
    }

    /// From now on only pods that the Job of this uid controls are pods of a Job.
    pub(in crate::jobs) fn bind(&self, job: &str, uid: String) {
        let mut jobs = self.lock();
        let entry = jobs.entry(job.to_owned()).or_default();
        entry.job_uid = Some(uid);
        let followed = entry.pods.first().cloned().unwrap_or_default();
        let states = entry.pods.iter().map(|pod| pod.borrow().clone());
        let mut own: Vec<PodState> = states
            .filter(|state| state.facts.as_ref().is_some_and(|facts| entry.is_of(facts)))
            .collect();
        if own.len() == entry.pods.len() {
            return;
        }
        own.resize_with(own.len().max(1), PodState::default);
        let mut own = own.into_iter();
        followed.send_replace(own.next().unwrap_or_default());
        entry.pods = std::iter::once(followed).chain(own.map(watch::Sender::new)).collect();
    }

    /// Every pod that is there.
    pub(in crate::jobs) fn all(&self) -> Vec<PodFacts> {
        self.lock().values().flat_map(present).collect()
    }

    /// The pods of a Job that are there.
    pub(super) fn of_job(&self, job: &str) -> Vec<PodFacts> {
        self.lock().get(job).map(present).unwrap_or_default()
    }

    /// Whether this very pod is there, as far as the watch says.
    pub(in crate::jobs) fn has(&self, pod: &PodFacts) -> bool {
        let jobs = self.lock();
        let known = jobs.get(&pod.job).and_then(|entry| entry.find(&pod.uid));
        known.is_some_and(|state| !state.borrow().is_gone)
    }

    /// User ids in use.
    pub(in crate::jobs) fn uids(&self) -> BTreeSet<u32> {
        self.all().into_iter().filter_map(|facts| facts.run_as).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, JobPods>> {
        // The map is valid between any two statements.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pod that is there; returns its uid.
    fn apply(&self, pod: &Pod) -> Option<String> {
        let facts = PodFacts::of(pod)?;
        let uid = facts.uid.clone();
        let mut jobs = self.lock();
        let entry = jobs.entry(facts.job.clone()).or_default();
        if entry.is_of(&facts) {
            entry.set(facts, false);
        }
        Some(uid)
    }

    /// Marks a pod as gone and forgets it unless it has a follower.
    fn remove(&self, pod: &Pod) {
        let Some(facts) = PodFacts::of(pod) else { return };
        let mut jobs = self.lock();
        let job = facts.job.clone();
        let Some(entry) = jobs.get_mut(&job).filter(|entry| entry.is_of(&facts)) else {
            return;
        };
        entry.set(facts, true);
        if entry.forget_idle() {
            jobs.remove(&job);
        }
    }

    /// After a new list: pods whose uids are not in it are gone.
    fn keep_only(&self, listed: &BTreeSet<String>) {
        self.lock().retain(|_, entry| {
            for pod in &entry.pods {
                pod.send_if_modified(|state| {
                    let is_missing = state.facts.as_ref().is_some_and(|facts| !listed.contains(&facts.uid));
                    let changes = is_missing && !state.is_gone;
                    state.is_gone |= is_missing;
                    changes
                });
            }
            !entry.forget_idle()
        });
    }
}

/// The pods of a Job that are there.
fn present(entry: &JobPods) -> Vec<PodFacts> {
    let facts = |pod: &watch::Sender<PodState>| {
        let state = pod.borrow();
        state.facts.clone().filter(|_| !state.is_gone)
    };
    entry.pods.iter().filter_map(facts).collect()
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
            Err(error) => tracing::warn!(%error, "the watch of sandbox pods failed; retrying"),
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

    fn seen(index: &PodIndex, job: &str) -> Vec<String> {
        index.of_job(job).into_iter().map(|facts| facts.name).collect()
    }

    fn name(state: &watch::Receiver<PodState>) -> Option<String> {
        state.borrow().facts.as_ref().map(|facts| facts.name.clone())
    }

    #[test]
    fn a_label_alone_makes_no_pod_of_a_job() {
        let index = index();
        let mut labelled = pod("p", "job", "1");
        labelled.metadata.owner_references = None;
        index.apply(&labelled);
        assert!(seen(&index, "job").is_empty());
        index.apply(&pod("p", "job", "1"));
        assert_eq!(seen(&index, "job"), ["p"]);
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
            assert!(seen(&index, "job").is_empty());
            index.apply(&pod("ours", "job", "1"));
            index.apply(&pod("strange", "job", "another"));
            index.remove(&pod("strange", "job", "another"));
            assert_eq!(seen(&index, "job"), ["ours"]);
            assert_eq!(name(&state).as_deref(), Some("ours"));
            assert!(!state.borrow().is_gone);
        }
    }

    #[test]
    fn the_follower_of_a_job_has_its_own_pod_also_where_a_strange_one_was_seen_before() {
        let index = index();
        let state = index.follow("job");
        index.apply(&pod("strange", "job", "another"));
        index.apply(&pod("ours", "job", "1"));
        index.apply(&pod("second", "job", "1"));
        index.bind("job", "1".to_owned());
        assert_eq!(name(&state).as_deref(), Some("ours"));
        assert_eq!(seen(&index, "job"), ["ours", "second"]);
        index.remove(&pod("ours", "job", "1"));
        assert!(state.borrow().is_gone);
        assert_eq!(seen(&index, "job"), ["second"]);
    }

    /// A job controller whose cache is behind made two pods of one Job.
    #[test]
    fn what_is_known_of_a_pod_is_not_replaced_by_another_one_of_its_job() {
        let (first, second) = (pod("first", "job", "1"), pod("second", "job", "1"));
        let facts = |pod: &Pod| PodFacts::of(pod).unwrap();
        let gone_by: [fn(&PodIndex, &Pod); 2] = [PodIndex::remove, |index, pod| {
            let kept = index.all().into_iter().map(|facts| facts.uid);
            index.keep_only(&kept.filter(|uid| Some(uid) != pod.metadata.uid.as_ref()).collect());
        }];
        for go in gone_by {
            for is_first_gone in [true, false] {
                let index = index();
                let state = index.follow("job");
                index.bind("job", "1".to_owned());
                assert_eq!(index.apply(&first).as_deref(), Some("uid of first"));
                index.apply(&second);
                assert_eq!(name(&state).as_deref(), Some("first"));
                assert_eq!(seen(&index, "job"), ["first", "second"]);
                let other = index.pod_ref(&facts(&second));
                let (gone, left) = if is_first_gone {
                    (&first, "second")
                } else {
                    (&second, "first")
                };
                go(&index, gone);
                assert_eq!(seen(&index, "job"), [left]);
                assert_eq!(index.has(&facts(&first)), !is_first_gone);
                assert_eq!(index.has(&facts(&second)), is_first_gone);
                assert_eq!(state.borrow().is_gone, is_first_gone);
                assert_eq!(other.state.borrow().is_gone, !is_first_gone);
                assert_eq!(name(&state).as_deref(), Some("first"));
                assert_eq!(name(&other.state).as_deref(), Some("second"));
            }
        }
    }

    #[test]
    fn a_pod_that_the_index_has_forgotten_is_gone() {
        let index = index();
        let known = pod("p", "job", "1");
        index.apply(&known);
        let facts = PodFacts::of(&known).unwrap();
        assert!(!index.pod_ref(&facts).state.borrow().is_gone);
        index.remove(&known);
        let state = index.pod_ref(&facts).state.borrow().clone();
        assert!(state.is_gone && state.facts == Some(facts));
        assert!(index.lock().is_empty());
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
