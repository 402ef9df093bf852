//! One executor for each SkillRuntime in a namespace that this hub may run code in.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::future::{Fuse, FusedFuture as _};
use futures::{FutureExt as _, StreamExt as _};
use knack_api::{SkillRuntime, SkillRuntimeSpec};
use knack_execution::Missing;
use knack_hub_api::RuntimeName;
use knack_vocabulary::FIELD_MANAGER_HUB;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::judged::{RuntimeState, StoppedReason, runtime_state};
use super::metrics::Metrics;
use super::settings::HubSettings;
use crate::api_call::CallError;
use crate::cluster_reader::fences::Fences;
use crate::cluster_reader::watch::Shared;
use crate::jobs::{Defaults, JobClients, JobExecutor, JobSettings, PoolCounts, ResolvedRuntime, RunnerSource};
use crate::status_write::Writer;

/// How often counts are written to a status, at most (docs/design/decisions.md#status-and-conditions).
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// Statuses that are written at once; each is a connection of the HTTP/1.1 client beside those of runs. A round ends with its slowest
/// call.
const STATUSES_AT_ONCE: usize = 8;
/// Checks after which counts that never settle are written nevertheless: half a minute.
const UNSETTLED_CHECKS_MAX: u32 = 6;
/// How often a stop checks whether the last runtime was handed over.
const HANDOVER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The executors.
pub struct Executors {
    clients: JobClients,
    job_settings: JobSettings,
    settings: Arc<HubSettings>,
    running: RwLock<HashMap<RuntimeName, Running>>,
    retiring: Arc<Retiring>,
}

/// Executors of runtimes that are gone, until they have released their Lease. The executor of a new runtime with the same name
/// would have the same Lease and holder, and could not be distinguished from the old one.
#[derive(Default)]
struct Retiring {
    names: Mutex<HashSet<RuntimeName>>,
    tasks: TaskTracker,
    /// Notified when one has released its Lease.
    ended: Notify,
}

impl Retiring {
    fn lock(&self) -> MutexGuard<'_, HashSet<RuntimeName>> {
        // The set is valid between any two statements.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, name: RuntimeName, executor: Arc<JobExecutor>) {
        self.lock().insert(name.clone());
        let retiring = Arc::clone(self);
        self.tasks.spawn(async move {
            executor.retire().await;
            retiring.lock().remove(&name);
            retiring.ended.notify_one();
        });
    }

    /// Whether one of this name has not released its Lease yet.
    fn holds(&self, name: &RuntimeName) -> bool {
        self.lock().contains(name)
    }

    async fn all_ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl std::fmt::Debug for Executors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Executors").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Running {
    uid: String,
    /// The spec of the last generation that was Ready, which is in use.
    spec: SkillRuntimeSpec,
    /// That generation: conditions are of it.
    generation: Option<i64>,
    /// While its view is stopped no new run starts and no warm pod is kept; running executions continue to their end.
    executor: Arc<JobExecutor>,
    written: WrittenCounts,
}

/// The counts that the status of a runtime has, and those observed since.
///
/// Replacing a used pod lowers a pool's count for a second. Writing every such dip would cost two status patches per
/// run, so counts are written when two checks in a row agree.
#[derive(Debug, Clone, Default)]
struct WrittenCounts {
    status: Option<PoolCounts>,
    last_counts: Option<PoolCounts>,
    /// Consecutive checks that differ from the status.
    differing: u32,
}

impl WrittenCounts {
    /// Takes the counts of a check; true if they are to be written to the status. The first check of an owner always
    /// is.
    fn is_due(&mut self, now: &PoolCounts) -> bool {
        let is_unchanged = self.last_counts.as_ref() == Some(now);
        self.last_counts = Some(now.clone());
        if self.status.as_ref() == Some(now) {
            self.differing = 0;
            return false;
        }
        self.differing += 1;
        let due = self.status.is_none() || is_unchanged || self.differing >= UNSETTLED_CHECKS_MAX;
        if due {
            self.status = Some(now.clone());
            self.differing = 0;
        }
        due
    }
}

impl Executors {
    /// None yet; [`Executors::follow`] opens them.
    pub fn new(clients: JobClients, job_settings: JobSettings, settings: Arc<HubSettings>) -> Arc<Self> {
        Arc::new(Self {
            clients,
            job_settings,
            settings,
            running: RwLock::default(),
            retiring: Arc::default(),
        })
    }

    /// The executor that runs code of a runtime as it is written now, or why none does.
    pub(super) fn serving(&self, runtime: &SkillRuntime, fences: &Fences) -> Result<Arc<JobExecutor>, StoppedReason> {
        let name = name_of(runtime);
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        let uid = runtime.uid().unwrap_or_default();
        let entry = running.get_mut(&name).filter(|entry| entry.uid == uid);
        let Some(entry) = entry else {
            return Err(match runtime_state(runtime, None, fences) {
                RuntimeState::Stops(reason) => reason,
                RuntimeState::Serves | RuntimeState::GoesOn => {
                    StoppedReason::for_now(format!("SkillRuntime {name} is not served yet; try again"))
                }
            });
        };
        // The request may be faster than the event that `follow` waits for.
        self.judge(entry, runtime, fences)?;
        Ok(Arc::clone(&entry.executor))
    }

    /// The executor of a runtime, for requests about executions that it has run.
    pub fn get(&self, runtime: &RuntimeName) -> Option<Arc<JobExecutor>> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.get(runtime).map(|running| Arc::clone(&running.executor))
    }

    /// Opens, updates and closes executors as runtimes come, change and go, until `stop`; then hands everything over.
    pub async fn follow(self: Arc<Self>, shared: Arc<Shared>, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut changes = shared.changes();
        let mut ticks = tokio::time::interval(STATUS_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut writing = pin!(Fuse::terminated());
        loop {
            // Before the state is read: what changes after that is seen in the next round.
            changes.mark_unchanged();
            let (runtimes, fences): (Vec<Arc<SkillRuntime>>, Arc<Fences>) = shared.read(|cluster_state| {
                let runtimes = cluster_state.runtimes.iter().map(Arc::clone).collect();
                (runtimes, Arc::clone(&cluster_state.fences))
            });
            self.settle(&runtimes, &fences, &metrics);
            tokio::select! {
                () = stop.cancelled() => break,
                changed = changes.changed() => if changed.is_err() { break },
                () = self.retiring.ended.notified() => {}
                // A write that hangs, as at a webhook, delays the next writes and nothing else.
                () = &mut writing => {}
                _ = ticks.tick(), if writing.is_terminated() => writing.set(self.publish(&metrics).fuse()),
            }
        }
        // The next owner writes its own.
        writing.set(Fuse::terminated());
        self.shutdown().await;
    }

    fn settle(&self, runtimes: &[Arc<SkillRuntime>], fences: &Fences, metrics: &Metrics) {
        {
            let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
            let mine = runtimes
                .iter()
                .filter(|runtime| self.is_served_here(runtime))
                .map(|runtime| (name_of(runtime), runtime));
            let wanted: HashMap<RuntimeName, &Arc<SkillRuntime>> = mine.collect();
            running.retain(|name, entry| {
                let keep = wanted
                    .get(name)
                    .is_some_and(|runtime| runtime.uid().unwrap_or_default() == entry.uid);
                if !keep {
                    metrics.forget(&name.to_string());
                    // Its Jobs are deleted with it, and the executor answers those who wait.
                    self.retiring.begin(name.clone(), Arc::clone(&entry.executor));
                }
                keep
            });
            for (name, runtime) in wanted {
                match running.get_mut(&name) {
                    Some(entry) => {
                        if let Err(reason) = self.judge(entry, runtime, fences) {
                            tracing::debug!(runtime = %name, why = %reason.why, "a runtime is not served");
                        }
                    }
                    None if runtime_state(runtime, None, fences) != RuntimeState::Serves => {}
                    None if self.retiring.holds(&name) => {}
                    None => {
                        tracing::info!(runtime = %name, "serving a runtime");
                        let executor =
                            JobExecutor::new(self.clients.clone(), self.resolved(runtime), self.job_settings.clone());
                        let entry = Running {
                            uid: runtime.uid().unwrap_or_default(),
                            spec: runtime.spec.clone(),
                            generation: runtime.metadata.generation,
                            executor,
                            written: WrittenCounts::default(),
                        };
                        running.insert(name, entry);
                    }
                }
            }
        }
    }

    /// Applies the state of a runtime to its executor. Errors: why no code runs.
    fn judge(&self, entry: &mut Running, runtime: &SkillRuntime, fences: &Fences) -> Result<(), StoppedReason> {
        let resolved = entry.executor.resolved();
        match runtime_state(runtime, Some(&entry.spec), fences) {
            RuntimeState::Serves => {
                let generation = runtime.metadata.generation;
                if resolved.stopped.is_some() || entry.spec != runtime.spec || entry.generation != generation {
                    entry.generation = generation;
                    entry.spec = runtime.spec.clone();
                    entry.executor.update(self.resolved(runtime));
                }
                Ok(())
            }
            RuntimeState::GoesOn => {
                if resolved.stopped.is_some() {
                    let mut judged = runtime.clone();
                    judged.spec = entry.spec.clone();
                    entry.executor.update(self.resolved(&judged));
                }
                Ok(())
            }
            RuntimeState::Stops(reason) => {
                // A request that was admitted a moment before gets the same answer.
                let stopped = Some(Missing::new(reason.why.clone(), reason.remedy));
                if resolved.stopped != stopped {
                    let resolved = ResolvedRuntime {
                        stopped,
                        ..(*resolved).clone()
                    };
                    entry.executor.update(resolved);
                }
                Err(reason)
            }
        }
    }

    /// Whether the hub may run code in the runtime's namespace, and the runtime is not being deleted.
    fn is_served_here(&self, runtime: &SkillRuntime) -> bool {
        let namespace = runtime.namespace().unwrap_or_default();
        self.settings.runtime_namespaces.contains(&namespace) && runtime.metadata.deletion_timestamp.is_none()
    }

    fn resolved(&self, runtime: &SkillRuntime) -> ResolvedRuntime {
        let image = self.settings.default_image.clone().unwrap_or_default();
        let mut defaults = Defaults::new(image);
        defaults.environments = self.settings.packages;
        defaults.priority_class.clone_from(&self.settings.priority_class);
        if let Some(image) = self.settings.runner_image.clone() {
            defaults.runner = RunnerSource::ImageVolume { image };
        }
        defaults.languages.clone_from(&self.settings.default_languages);
        ResolvedRuntime::of(runtime, &defaults)
    }

    /// Reports counts and owner to metrics and, where they changed, to the status of runtimes that this replica owns.
    async fn publish(&self, metrics: &Metrics) {
        let mut due = Vec::new();
        {
            let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
            for (name, entry) in running.iter_mut() {
                if !entry.executor.is_owner() {
                    entry.written = WrittenCounts::default();
                    metrics.forget(&name.to_string());
                    continue;
                }
                let counts = entry.executor.counts();
                metrics.pool(&name.to_string(), &counts);
                let stable = PoolCounts {
                    running: 0,
                    queued: 0,
                    ..counts
                };
                if entry.written.is_due(&stable) {
                    due.push((name.clone(), entry.executor.resolved(), stable));
                }
            }
        }
        let writes = due.into_iter().map(|(name, resolved, counts)| async move {
            let written = self.write_status(&resolved, &counts).await;
            (name, written)
        });
        let mut writes = futures::stream::iter(writes).buffer_unordered(STATUSES_AT_ONCE);
        while let Some((name, written)) = writes.next().await {
            let Err(error) = written else { continue };
            tracing::warn!(runtime = %name, %error, "the status cannot be written; trying again");
            let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = running.get_mut(&name) {
                entry.written = WrittenCounts::default();
            }
        }
    }

    async fn write_status(&self, resolved: &ResolvedRuntime, counts: &PoolCounts) -> Result<(), CallError> {
        let writer = Writer {
            client: &self.clients.api,
            manager: FIELD_MANAGER_HUB,
            conditions: &[],
        };
        // Fields that the isolation probe writes under the same manager stay.
        let status = json!({
            "warmPool": {"ready": counts.ready, "desired": counts.desired}, "owner": self.settings.replica,
        });
        // A removed one has no counts to report.
        writer
            .merge::<SkillRuntime>(&resolved.target(), &status)
            .await
            .map(|_| ())
    }

    /// Returns when this replica owns no runtime any more, and is not about to own one.
    pub async fn handed_over(&self) {
        let is_any_held = || {
            let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
            running.values().any(|entry| entry.executor.is_held())
        };
        while is_any_held() {
            tokio::time::sleep(HANDOVER_POLL_INTERVAL).await;
        }
    }

    async fn shutdown(&self) {
        let executors: Vec<Arc<JobExecutor>> = {
            let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
            running.drain().map(|(_, entry)| entry.executor).collect()
        };
        let shut_down = futures::future::join_all(executors.iter().map(|executor| executor.shutdown()));
        tokio::join!(shut_down, self.retiring.all_ended());
    }
}

/// The name of a runtime object.
pub fn name_of(runtime: &SkillRuntime) -> RuntimeName {
    RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any())
}

#[cfg(test)]
mod tests {
    use knack_execution::{ExecutionRequest, Program};

    use super::*;

    /// The ready count at each check, and the checks at which the status is written.
    fn written(seen: &[usize]) -> Vec<usize> {
        let mut written = WrittenCounts::default();
        let checks = seen.iter().enumerate().filter(|(_, ready)| {
            written.is_due(&PoolCounts {
                ready: **ready,
                desired: 2,
                ..PoolCounts::default()
            })
        });
        checks.map(|(check, _)| check).collect()
    }

    #[test]
    fn counts_are_written_once_they_settle() {
        assert_eq!(written(&[0, 1, 2, 2, 2]), [0, 3], "a pool that fills");
        assert_eq!(written(&[2, 1, 2, 0, 2]), [0], "dips of single runs");
        assert_eq!(written(&[2, 1, 1, 2, 2]), [0, 2, 4], "less, and then all again");
    }

    #[test]
    fn counts_that_never_settle_are_written_every_half_minute() {
        let seen: Vec<usize> = (0..14).collect();
        assert_eq!(written(&seen), [0, 6, 12]);
    }

    /// A runtime whose status says whether it is ready.
    fn judged(ready: &str, message: &str) -> SkillRuntime {
        serde_json::from_value(json!({
            "metadata": {"namespace": "run", "name": "default", "uid": "u", "generation": 1},
            "spec": {},
            "status": {"observedGeneration": 1, "conditions": [{
                "type": "Ready", "status": ready, "reason": "NameConflict", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    fn executors() -> Arc<Executors> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Nothing listens there, and nothing needs to.
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        Executors::new(
            JobClients::new(config).unwrap(),
            JobSettings::new("r", "https://r:1", [0; 32]),
            Arc::new(crate::hub::catalog_views::tests::settings()),
        )
    }

    #[tokio::test]
    async fn a_runtime_that_is_made_anew_is_served_once_the_one_before_has_let_go() {
        let executors = executors();
        let (metrics, first) = (Metrics::default(), judged("True", ""));
        let mut second = first.clone();
        second.metadata.uid = Some("of the second".to_owned());
        let name = name_of(&first);
        executors.settle(&[Arc::new(first)], &Fences::default(), &metrics);
        let second = [Arc::new(second)];
        executors.settle(&second, &Fences::default(), &metrics);
        assert!(executors.get(&name).is_none(), "both would hold one Lease");
        let reason = executors.serving(&second[0], &Fences::default()).unwrap_err();
        assert!(reason.why.contains("try again"), "{}", reason.why);
        executors.retiring.ended.notified().await;
        executors.settle(&second, &Fences::default(), &metrics);
        assert_eq!(executors.get(&name).unwrap().resolved().uid, "of the second");
    }

    #[tokio::test]
    async fn request_that_a_judgement_overtakes_gets_its_outcome() {
        let executors = executors();
        let (metrics, ready) = (Metrics::default(), Arc::new(judged("True", "")));
        executors.settle(&[Arc::clone(&ready)], &Fences::default(), &metrics);
        let admitted = executors.serving(&ready, &Fences::default()).unwrap();
        for message in ["NetworkPolicy x is not ours", "NetworkPolicy y is not ours"] {
            executors.settle(&[Arc::new(judged("False", message))], &Fences::default(), &metrics);
            let program = Program::Command {
                argv: vec!["true".to_owned()],
            };
            let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let request = ExecutionRequest::new(id, "c", program).into();
            let events = tokio::sync::mpsc::channel(1).0;
            let refused = admitted
                .execute_streaming(request, CancellationToken::new(), events)
                .await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(message) && !refused.contains("suspend"), "{refused}");
        }
    }
}
