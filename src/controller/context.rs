//! The state that reconcilers share: the client with its limits, the cluster state, memory, metrics.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use knack_api::SkillRuntime;
use knack_packages::EnvironmentStatuses;
use knack_vocabulary::{
    ANNOTATION_REQUESTED_AT, CONDITION_ACCEPTED, CONDITION_READY, CONDITION_RECONCILING, CONDITION_STALLED,
    FIELD_MANAGER,
};
use kube::core::ObjectMeta;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use tokio::sync::{Semaphore, mpsc};

use super::cluster_state::{ControllerState, WatchedRuntime, WatchedSkill};
use super::conditions::Verdict;
use super::error::ControllerError;
use super::index::Name;
use super::metrics::Metrics;
use super::pending_changes::PendingChanges;
use super::runtime::Evaluations;
use super::settings::{ARCHIVE_CACHE_BYTES, ControllerSettings, FENCE_CHECK_INTERVAL, RETRY_FIRST, RETRY_MAX};
use super::sidecar_trust::SidecarTrust;
use super::skill::ArchivePermits;
use crate::api_call;
use crate::selection::Scope;
use crate::sources::fetch::Fetcher;
use crate::status_write::Writer;

/// The state that reconcilers share.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) settings: ControllerSettings,
    pub(super) cluster_state: ControllerState,
    pub(super) recorder: Recorder,
    pub(super) metrics: Arc<Metrics>,
    pub(super) fetcher: Fetcher,
    /// Permits of archives that are being unpacked, judged and delivered: [`ARCHIVES_AT_ONCE`].
    pub(super) unpacking: Arc<Semaphore>,
    /// Permits of Skills whose content is an archive.
    pub(super) archive_permits: ArchivePermits,
    /// Says which runtimes have to be reconciled.
    pub(super) changes: Arc<PendingChanges>,
    /// Requests a reconcile of a skill; one sender per watch scope.
    pub(super) skill_triggers: Vec<mpsc::Sender<ObjectRef<WatchedSkill>>>,
    /// As above, for runtimes.
    pub(super) runtime_triggers: Vec<mpsc::Sender<ObjectRef<WatchedRuntime>>>,
    pub(super) memory: Memory,
    /// The last evaluations of runtimes with many skills.
    pub(super) evaluations: Evaluations,
    /// Where sidecars need the hub's authorities, and where they do not get them.
    pub(super) trust: Arc<SidecarTrust>,
    /// The last statuses of environments of packages, from the builders.
    pub(super) environments: ArcSwap<EnvironmentStatuses>,
}

/// Conditions that the controller alone writes; the others are the hub's.
const OWN_CONDITIONS: [&str; 4] = [
    CONDITION_READY,
    CONDITION_RECONCILING,
    CONDITION_STALLED,
    CONDITION_ACCEPTED,
];

impl Context {
    /// Writes the controller's part of a status.
    pub(super) fn status(&self) -> Writer<'_> {
        Writer {
            client: &self.client,
            manager: FIELD_MANAGER,
            conditions: &OWN_CONDITIONS,
        }
    }

    /// A call that ends.
    pub(super) async fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ControllerError> {
        Ok(api_call::call(what, call).await?)
    }

    /// Whether a runtime is the cluster default.
    pub(super) fn is_cluster_default(&self, namespace: &str, name: &str) -> bool {
        self.settings
            .default_runtime
            .as_ref()
            .is_some_and(|default| default.namespace == namespace && default.name == name)
    }

    /// The input of selection for a runtime.
    pub(super) fn scope<'a>(
        &'a self,
        namespaces: &'a crate::selection::NamespaceLabels,
        environments: Option<&'a EnvironmentStatuses>,
        runtime_namespace: &str,
        runtime_name: &str,
    ) -> Scope<'a> {
        Scope {
            cluster_default: self.is_cluster_default(runtime_namespace, runtime_name),
            namespaces,
            default_image: self.settings.default_image.as_deref(),
            allow_image_tags: self.settings.allow_image_tags,
            environments,
        }
    }

    /// The statuses of environments of packages; `None` where nothing builds them.
    pub(super) fn environments(&self) -> Option<Arc<EnvironmentStatuses>> {
        self.settings.packages.then(|| self.environments.load_full())
    }

    /// Requests a reconcile of a skill; only the watch scope that has it finds it.
    pub(super) async fn trigger_skill(&self, namespace: &str, name: &str) {
        for sender in &self.skill_triggers {
            let key = ObjectRef::new(name).within(namespace);
            // A closed queue means that the process is ending.
            let _ = sender.send(key).await;
        }
    }

    /// Requests a reconcile of runtimes, for a change that the cluster state has already.
    pub(super) async fn trigger_runtimes(&self, keys: Vec<ObjectRef<WatchedRuntime>>) {
        // Counted once, before the first of them is reconciled. Counted for each runtime, the request for the second would invalidate what
        // the first has just remembered, and the first would be reconciled again because of its own write.
        self.memory.triggers.fetch_add(1, Ordering::Relaxed);
        for key in keys {
            for sender in &self.runtime_triggers {
                let _ = sender.send(key.clone()).await;
            }
        }
    }
}

/// State between reconciles; losing it costs work, never correctness.
#[derive(Debug, Default)]
pub(super) struct Memory {
    attempts: Mutex<HashMap<String, u32>>,
    archives: Mutex<Archives>,
    stalled: Mutex<HashMap<String, Failure>>,
    uploads: Mutex<HashMap<String, Versions>>,
    superseded: Mutex<HashMap<String, String>>,
    /// By uid of a skill and number of a version: the last reported reason why the version is not served.
    undelivered: Mutex<HashMap<(String, u32), String>>,
    fences: Mutex<HashMap<Name, Fence>>,
    /// By namespace: the lock for writing the quota. As many as there are namespaces with runtimes:
    /// [`Memory::forget_fences`].
    quota_locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// How often a reconcile of any runtime was requested.
    triggers: AtomicU64,
    /// The version of each runtime after this process's last write of its status, and [`Memory::triggers`] when that reconcile began.
    written: Mutex<HashMap<String, (String, u64)>>,
}

/// The result of the last check of a runtime's fence.
#[derive(Debug)]
struct Fence {
    uid: Option<String>,
    generation: Option<i64>,
    at: Instant,
    verdict: Option<Verdict>,
}

/// Why an object failed, with its generation and its reconcile request at that time.
#[derive(Debug)]
struct Failure {
    generation: Option<i64>,
    requested: Option<String>,
    verdict: Verdict,
}

/// ConfigMaps by name, each with its `resourceVersion`.
pub(super) type Versions = Vec<(String, Option<String>)>;

/// Most failures and changes that are remembered; beyond that all are forgotten, which costs one reconcile each.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Archives {
    /// Oldest first: few entries, so that a list is enough.
    kept: Vec<(String, Bytes)>,
    bytes: usize,
}

impl Memory {
    /// The pause before the next attempt for an object: it doubles with each failure and is reset by a success.
    pub(super) fn retry_after(&self, uid: &str) -> Duration {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= REMEMBERED_MAX && !attempts.contains_key(uid) {
            attempts.clear();
        }
        let attempt = attempts.entry(uid.to_owned()).or_default();
        let pause = RETRY_FIRST.saturating_mul(1 << (*attempt).min(16)).min(RETRY_MAX);
        *attempt += 1;
        pause
    }

    /// Failures of an object in a row.
    pub(super) fn failures(&self, uid: &str) -> u32 {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(uid).copied().unwrap_or(0)
    }

    /// Forgets the failures of an object.
    pub(super) fn succeeded(&self, uid: &str) {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// The failure of the object of this metadata, if it failed at this generation and reconcile request: a retry would fail in the
    /// same way.
    pub(super) fn stalled(&self, meta: &ObjectMeta) -> Option<Verdict> {
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = stalled.get(meta.uid.as_deref()?)?;
        let is_same = failure.generation == meta.generation && failure.requested.as_ref() == request_of(meta);
        is_same.then(|| failure.verdict.clone())
    }

    /// Remembers a failure.
    pub(super) fn remember_stalled(&self, meta: &ObjectMeta, verdict: &Verdict) {
        if let Some(uid) = meta.uid.clone() {
            let failure = Failure {
                generation: meta.generation,
                requested: request_of(meta).cloned(),
                verdict: verdict.clone(),
            };
            remember(&self.stalled, uid, failure);
        }
    }

    /// Remembers which ConfigMaps a skill's upload was read from.
    pub(super) fn remember_upload(&self, uid: &str, versions: Versions) {
        remember(&self.uploads, uid.to_owned(), versions);
    }

    /// The ConfigMaps that a skill's upload was read from.
    pub(super) fn upload(&self, uid: &str) -> Option<Versions> {
        let uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.get(uid).cloned()
    }

    /// True once per version and cause, and remembers the report.
    pub(super) fn first_report(&self, uid: &str, version: u32, cause: &str) -> bool {
        let key = (uid.to_owned(), version);
        let undelivered = self.undelivered.lock().unwrap_or_else(PoisonError::into_inner);
        if undelivered.get(&key).is_some_and(|known| known == cause) {
            return false;
        }
        drop(undelivered);
        remember(&self.undelivered, key, cause.to_owned());
        true
    }

    /// Forgets the failures of versions that are not chosen: once one is chosen again, its failure is reported again.
    pub(super) fn forget_unchosen(&self, uid: &str, chosen: &[u32]) {
        let mut undelivered = self.undelivered.lock().unwrap_or_else(PoisonError::into_inner);
        if !undelivered.is_empty() {
            undelivered.retain(|(of, version), _| of != uid || chosen.contains(version));
        }
    }

    /// A version of a skill is served: its next failure is reported again.
    pub(super) fn forget_undelivered(&self, uid: &str, version: u32) {
        let mut undelivered = self.undelivered.lock().unwrap_or_else(PoisonError::into_inner);
        undelivered.remove(&(uid.to_owned(), version));
    }

    /// Remembers that an object was changed by this process: the event of that change comes, and what came before it is old.
    pub(super) fn remember_change(&self, uid: &str, seen: Option<String>) {
        if let Some(version) = seen {
            remember(&self.superseded, uid.to_owned(), version);
        }
    }

    /// Whether a watched object is older than this process's last change to it.
    pub(super) fn is_superseded(&self, uid: &str, version: Option<&str>) -> bool {
        let mut superseded = self.superseded.lock().unwrap_or_else(PoisonError::into_inner);
        if version.is_some() && superseded.get(uid).map(String::as_str) == version {
            return true;
        }
        superseded.remove(uid);
        false
    }

    /// How often a reconcile of any runtime was requested until now.
    pub(super) fn triggers(&self) -> u64 {
        self.triggers.load(Ordering::Relaxed)
    }

    /// Remembers the version of a runtime that a reconcile wrote. `triggers`: [`Memory::triggers`] when that reconcile began.
    pub(super) fn remember_written(&self, uid: &str, version: String, triggers: u64) {
        remember(&self.written, uid.to_owned(), (version, triggers));
    }

    /// Whether a runtime is as this process's last write left it, and no reconcile was requested since that one began: another one would
    /// have the same result.
    pub(super) fn is_as_written(&self, uid: &str, version: Option<&str>) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let known = written.get(uid);
        known.is_some_and(|(made, triggers)| Some(made.as_str()) == version && *triggers == self.triggers())
    }

    /// The result of the last check of a runtime's fence, while it is of this generation and no older than
    /// [`FENCE_CHECK_INTERVAL`], and how long it stays valid.
    pub(super) fn fence(&self, runtime: &SkillRuntime) -> Option<(Option<Verdict>, Duration)> {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        let fence = fences.get(&name_of(runtime)).filter(|fence| fence.is_of(runtime))?;
        let left = FENCE_CHECK_INTERVAL.checked_sub(fence.at.elapsed())?;
        Some((fence.verdict.clone(), left))
    }

    /// Whether this generation of a runtime was reconciled before.
    pub(super) fn has_seen(&self, runtime: &SkillRuntime) -> bool {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.get(&name_of(runtime)).is_some_and(|fence| fence.is_of(runtime))
    }

    /// Stores the result of a check of a runtime's fence.
    pub(super) fn remember_fence(&self, runtime: &SkillRuntime, verdict: Option<Verdict>) {
        let fence = Fence {
            uid: runtime.metadata.uid.clone(),
            generation: runtime.metadata.generation,
            at: Instant::now(),
            verdict,
        };
        remember(&self.fences, name_of(runtime), fence);
    }

    /// The lock for reading and writing the quota of a namespace.
    pub(super) fn quota_lock(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.quota_locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(namespace.to_owned()).or_default())
    }

    /// A runtime of a namespace is gone: the others share its quota and are reconciled again.
    pub(super) fn forget_fences(&self, namespace: &str) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.retain(|(of, _), _| of != namespace);
        drop(fences);
        // Those that wait for the lock keep it; one that comes between gets a conflict, and reads the quota again.
        let mut locks = self.quota_locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.remove(namespace);
    }

    /// A fetched archive.
    pub(super) fn archive(&self, key: &str) -> Option<Bytes> {
        let archives = self.archives.lock().unwrap_or_else(PoisonError::into_inner);
        let found = archives.kept.iter().find(|(kept, _)| kept == key);
        found.map(|(_, bytes)| bytes.clone())
    }

    /// Keeps a fetched archive, in place of the oldest ones.
    pub(super) fn keep_archive(&self, key: &str, bytes: Bytes) {
        let mut archives = self.archives.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() > ARCHIVE_CACHE_BYTES || archives.kept.iter().any(|(kept, _)| kept == key) {
            return;
        }
        archives.bytes += bytes.len();
        archives.kept.push((key.to_owned(), bytes));
        while archives.bytes > ARCHIVE_CACHE_BYTES {
            let (_, oldest) = archives.kept.remove(0);
            archives.bytes -= oldest.len();
        }
    }
}

/// Remembers a value; where [`REMEMBERED_MAX`] are known, all of them are forgotten first.
fn remember<K: Eq + Hash, V>(known: &Mutex<HashMap<K, V>>, key: K, value: V) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    known.insert(key, value);
}

impl Fence {
    fn is_of(&self, runtime: &SkillRuntime) -> bool {
        self.uid == runtime.metadata.uid && self.generation == runtime.metadata.generation
    }
}

/// The reconcile request of an object.
fn request_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(ANNOTATION_REQUESTED_AT)
}

fn name_of(runtime: &SkillRuntime) -> Name {
    (runtime.namespace().unwrap_or_default(), runtime.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_version_is_reported_once_per_cause() {
        let memory = Memory::default();
        assert!(memory.first_report("u", 1, "no ConfigMap"));
        assert!(!memory.first_report("u", 1, "no ConfigMap"));
        assert!(memory.first_report("u", 2, "no ConfigMap"), "another version");
        assert!(memory.first_report("u", 1, "too large"), "another cause");
        memory.forget_undelivered("u", 1);
        assert!(memory.first_report("u", 1, "too large"), "it was served in between");
        memory.forget_unchosen("u", &[2]);
        assert!(memory.first_report("u", 1, "too large"), "it was not chosen in between");
        assert!(!memory.first_report("u", 2, "no ConfigMap"));
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_are_reset() {
        let memory = Memory::default();
        let pauses: Vec<_> = (0..12).map(|_| memory.retry_after("a").as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!((memory.failures("a"), memory.failures("b")), (12, 0));
        memory.succeeded("a");
        assert_eq!(memory.failures("a"), 0);
        assert_eq!(memory.retry_after("a").as_secs(), 1);
    }

    #[test]
    fn a_fence_is_checked_once_per_generation_and_pause() {
        let memory = Memory::default();
        let runtime = |uid: &str, generation: i64| -> SkillRuntime {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "spec": {},
                "metadata": {"name": "main", "namespace": "n", "uid": uid, "generation": generation},
            }))
            .unwrap()
        };
        let first = runtime("u", 1);
        assert!(memory.fence(&first).is_none() && !memory.has_seen(&first));
        memory.remember_fence(&first, None);
        let mut evaluations = 0;
        for _ in 0..1_000 {
            evaluations += usize::from(memory.fence(&first).is_none());
        }
        assert_eq!(evaluations, 0, "an evaluation of skills asks for no fence");
        assert!(memory.fence(&runtime("u", 2)).is_none(), "an edit");
        assert!(memory.fence(&runtime("v", 1)).is_none(), "another one of the name");
        memory.forget_fences("n");
        assert!(memory.fence(&first).is_none());
    }

    #[test]
    fn nothing_is_kept_of_a_namespace_whose_runtimes_are_gone() {
        let memory = Memory::default();
        for number in 0..100 {
            let namespace = format!("review-{number}");
            drop(memory.quota_lock(&namespace));
            memory.forget_fences(&namespace);
        }
        let kept = memory.quota_lock("n");
        assert!(Arc::ptr_eq(&kept, &memory.quota_lock("n")), "one lock for all runtimes");
        assert_eq!(memory.quota_locks.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_runtime_is_not_reconciled_for_our_own_write_unless_requested() {
        let memory = Memory::default();
        assert!(!memory.is_as_written("u", Some("1")));
        memory.remember_written("u", "2".to_owned(), memory.triggers());
        let as_written = |version| memory.is_as_written("u", version);
        assert_eq!(
            [Some("1"), Some("2"), Some("3"), None].map(as_written),
            [false, true, false, false]
        );
        assert!(!memory.is_as_written("v", Some("2")));
        // A change that comes while the reconcile is under way.
        let began = memory.triggers();
        memory.triggers.fetch_add(1, Ordering::Relaxed);
        memory.remember_written("u", "3".to_owned(), began);
        assert!(!memory.is_as_written("u", Some("3")));
    }

    #[test]
    fn failures_of_ever_new_objects_take_no_more_than_the_bound() {
        let memory = Memory::default();
        for number in 0..REMEMBERED_MAX + 5 {
            memory.retry_after(&number.to_string());
        }
        assert_eq!(memory.attempts.lock().unwrap().len(), 5);
    }

    #[test]
    fn archives_are_kept_within_bounds() {
        let memory = Memory::default();
        for (name, megabytes) in [("a", 20), ("b", 10), ("c", 10), ("d", 40)] {
            memory.keep_archive(name, vec![0; megabytes << 20].into());
        }
        let kept: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| memory.archive(name).is_some())
            .collect();
        assert_eq!(kept, ["b", "c"]);
    }
}
