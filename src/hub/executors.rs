//! One executor for each SkillRuntime in a namespace that this hub may run code in.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::judged::{Standing, standing};
use super::metrics::Metrics;
use super::settings::HubSettings;
use super::watch::Shared;
use crate::api::vocabulary::FIELD_MANAGER_HUB;
use crate::api::{SkillRuntime, SkillRuntimeSpec};
use crate::execution::job::{Defaults, JobClients, JobExecutor, JobSettings, PoolCounts, RunnerSource, RuntimeView};
use crate::hub_api::RuntimeName;

/// How often counts are written to a status, at most (docs/design/decisions.md#status-and-conditions).
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// Looks after which counts that never stand still are written all the same: half a minute.
const RESTLESS_LOOKS: u32 = 6;
/// One call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// The executors.
pub struct Executors {
    clients: JobClients,
    job_settings: JobSettings,
    settings: Arc<HubSettings>,
    running: RwLock<HashMap<RuntimeName, Running>>,
}

impl std::fmt::Debug for Executors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Executors").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Running {
    uid: String,
    /// The spec of the last generation seen Ready, which is what runs.
    spec: SkillRuntimeSpec,
    /// Nothing new runs and nothing stands ready; what runs goes on to its end.
    is_stopped: bool,
    executor: Arc<JobExecutor>,
    told: Told,
}

/// What the status of a runtime was told, and what has been seen since.
///
/// A pool that replaces a used pod dips for a second. Told at once, each run would cost two writes that nobody reads, so
/// counts are told when two looks in a row see the same.
#[derive(Debug, Clone, Default)]
struct Told {
    status: Option<PoolCounts>,
    last_look: Option<PoolCounts>,
    /// Looks in a row that saw something else than the status tells.
    differing: u32,
}

impl Told {
    /// Takes what a look sees; true if the status is to be told. The first look of an owner always is.
    fn look(&mut self, now: &PoolCounts) -> bool {
        let stands = self.last_look.as_ref() == Some(now);
        self.last_look = Some(now.clone());
        if self.status.as_ref() == Some(now) {
            self.differing = 0;
            return false;
        }
        self.differing += 1;
        let due = self.status.is_none() || stands || self.differing >= RESTLESS_LOOKS;
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
        })
    }

    /// The executor that runs code of a runtime as it is written now, or why none does.
    pub fn serving(&self, runtime: &SkillRuntime) -> Result<Arc<JobExecutor>, String> {
        let name = name_of(runtime);
        let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let uid = runtime.uid().unwrap_or_default();
        let entry = running.get_mut(&name).filter(|entry| entry.uid == uid);
        let Some(entry) = entry else {
            return Err(match standing(runtime, None) {
                Standing::Stops(why) => why,
                Standing::Serves | Standing::GoesOn => format!("SkillRuntime {name} is not served yet; try again"),
            });
        };
        // The request may be faster than the event that `follow` waits for.
        self.judge(entry, runtime)?;
        Ok(Arc::clone(&entry.executor))
    }

    /// The executor of a runtime, for asking about what it has run.
    pub fn get(&self, runtime: &RuntimeName) -> Option<Arc<JobExecutor>> {
        let running = self.running.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        running.get(runtime).map(|running| Arc::clone(&running.executor))
    }

    /// Opens, updates and closes executors as runtimes come, change and go, until `stop`; then hands everything over.
    pub async fn follow(self: Arc<Self>, shared: Arc<Shared>, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut changes = shared.changes();
        let mut ticks = tokio::time::interval(STATUS_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let runtimes: Vec<Arc<SkillRuntime>> = shared.read(|world| world.runtimes.iter().map(Arc::clone).collect());
            changes.mark_unchanged();
            self.settle(&runtimes, &metrics);
            tokio::select! {
                () = stop.cancelled() => break,
                changed = changes.changed() => if changed.is_err() { break },
                _ = ticks.tick() => self.tell(&metrics).await,
            }
        }
        self.shutdown().await;
    }

    fn settle(&self, runtimes: &[Arc<SkillRuntime>], metrics: &Metrics) {
        let mut closed = Vec::new();
        {
            let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mine = runtimes
                .iter()
                .filter(|runtime| self.is_mine(runtime))
                .map(|runtime| (name_of(runtime), runtime));
            let wanted: HashMap<RuntimeName, &Arc<SkillRuntime>> = mine.collect();
            running.retain(|name, entry| {
                let keep = wanted
                    .get(name)
                    .is_some_and(|runtime| runtime.uid().unwrap_or_default() == entry.uid);
                if !keep {
                    metrics.forget(&name.to_string());
                    closed.push(Arc::clone(&entry.executor));
                }
                keep
            });
            for (name, runtime) in wanted {
                match running.get_mut(&name) {
                    Some(entry) => {
                        if let Err(why) = self.judge(entry, runtime) {
                            tracing::debug!(runtime = %name, %why, "a runtime is not served now");
                        }
                    }
                    None if standing(runtime, None) != Standing::Serves => {}
                    None => {
                        tracing::info!(runtime = %name, "a runtime is served");
                        let executor =
                            JobExecutor::new(self.clients.clone(), self.view(runtime), self.job_settings.clone());
                        let entry = Running {
                            uid: runtime.uid().unwrap_or_default(),
                            spec: runtime.spec.clone(),
                            is_stopped: false,
                            executor,
                            told: Told::default(),
                        };
                        running.insert(name, entry);
                    }
                }
            }
        }
        for executor in closed {
            // The runtime is gone: its Jobs go with it, and whoever waits is told by the executor.
            tokio::spawn(async move { executor.retire().await });
        }
    }

    /// Brings an executor to what its runtime's standing says. Errors: why no code runs.
    fn judge(&self, entry: &mut Running, runtime: &SkillRuntime) -> Result<(), String> {
        match standing(runtime, Some(&entry.spec)) {
            Standing::Serves => {
                if entry.is_stopped || entry.spec != runtime.spec {
                    entry.spec = runtime.spec.clone();
                    entry.is_stopped = false;
                    entry.executor.update(self.view(runtime));
                }
                Ok(())
            }
            Standing::GoesOn => {
                if entry.is_stopped {
                    let mut judged = runtime.clone();
                    judged.spec = entry.spec.clone();
                    entry.is_stopped = false;
                    entry.executor.update(self.view(&judged));
                }
                Ok(())
            }
            Standing::Stops(why) => {
                if !entry.is_stopped {
                    entry.is_stopped = true;
                    let view = RuntimeView {
                        suspended: true,
                        ..(*entry.executor.view()).clone()
                    };
                    entry.executor.update(view);
                }
                Err(why)
            }
        }
    }

    /// Only in namespaces that the hub has rights in, and only with an image to run.
    fn is_mine(&self, runtime: &SkillRuntime) -> bool {
        let namespace = runtime.namespace().unwrap_or_default();
        self.settings.runtime_namespaces.contains(&namespace) && runtime.metadata.deletion_timestamp.is_none()
    }

    fn view(&self, runtime: &SkillRuntime) -> RuntimeView {
        let image = self.settings.default_image.clone().unwrap_or_default();
        let mut defaults = Defaults::new(image);
        defaults.priority_class.clone_from(&self.settings.priority_class);
        if let Some(image) = self.settings.runner_image.clone() {
            defaults.runner = RunnerSource::ImageVolume { image };
        }
        defaults.languages.clone_from(&self.settings.default_languages);
        RuntimeView::of(runtime, &defaults)
    }

    /// Tells counts and owner to metrics and, where they changed, to the status of runtimes that this replica owns.
    async fn tell(&self, metrics: &Metrics) {
        let mut due = Vec::new();
        {
            let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            for (name, entry) in running.iter_mut() {
                if !entry.executor.is_owner() {
                    entry.told = Told::default();
                    metrics.forget(&name.to_string());
                    continue;
                }
                let counts = entry.executor.counts();
                metrics.pool(&name.to_string(), counts.ready, counts.running, counts.queued);
                let stable = PoolCounts {
                    running: 0,
                    queued: 0,
                    ..counts
                };
                if entry.told.look(&stable) {
                    due.push((name.clone(), stable));
                }
            }
        }
        for (name, counts) in due {
            if let Err(error) = self.write_status(&name, &counts).await {
                tracing::warn!(runtime = %name, %error, "the status cannot be written; trying again");
                let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some(entry) = running.get_mut(&name) {
                    entry.told = Told::default();
                }
            }
        }
    }

    async fn write_status(&self, name: &RuntimeName, counts: &PoolCounts) -> Result<(), String> {
        let api: Api<SkillRuntime> = Api::namespaced(self.clients.api.clone(), &name.namespace);
        // A merge, not an apply: what the isolation probe writes under the same manager must stay.
        let body = json!({
            "status": {"warmPool": {"ready": counts.ready, "desired": counts.desired}, "owner": self.settings.replica},
        });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER_HUB.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&body);
        let call = api.patch_status(&name.name, &params, &patch);
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn shutdown(&self) {
        let executors: Vec<Arc<JobExecutor>> = {
            let mut running = self.running.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            running.drain().map(|(_, entry)| entry.executor).collect()
        };
        futures::future::join_all(executors.iter().map(|executor| executor.shutdown())).await;
    }
}

/// The name of a runtime object.
pub fn name_of(runtime: &SkillRuntime) -> RuntimeName {
    RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each look sees as ready, and at which looks the status is told.
    fn told(seen: &[usize]) -> Vec<usize> {
        let mut told = Told::default();
        let looks = seen.iter().enumerate().filter(|(_, ready)| {
            told.look(&PoolCounts {
                ready: **ready,
                desired: 2,
                ..PoolCounts::default()
            })
        });
        looks.map(|(look, _)| look).collect()
    }

    #[test]
    fn counts_are_told_once_they_stand() {
        assert_eq!(told(&[0, 1, 2, 2, 2]), [0, 3], "a pool that fills");
        assert_eq!(told(&[2, 1, 2, 0, 2]), [0], "dips of single runs");
        assert_eq!(told(&[2, 1, 1, 2, 2]), [0, 2, 4], "less, and then all again");
    }

    #[test]
    fn counts_that_never_stand_are_told_every_half_minute() {
        let seen: Vec<usize> = (0..14).collect();
        assert_eq!(told(&seen), [0, 6, 12]);
    }
}
