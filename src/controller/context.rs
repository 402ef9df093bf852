//! The state that reconcilers share: the client with its limits, the cluster state, memory, metrics.

use std::sync::Arc;

use arc_swap::ArcSwap;
use knack_memory::MemoryBudget;
use knack_packages::EnvironmentStatuses;
use knack_vocabulary::{CONDITION_ACCEPTED, CONDITION_READY, CONDITION_RECONCILING, CONDITION_STALLED, FIELD_MANAGER};
use kube::Client;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{Semaphore, mpsc};

use super::cluster_state::{ControllerState, WatchedRuntime, WatchedSkill};
use super::error::ControllerError;
use super::memory::ReconcileMemory;
use super::metrics::Metrics;
use super::pending_changes::PendingChanges;
use super::runtime::Evaluations;
use super::settings::ControllerSettings;
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
    /// Memory of other Skills that are judged and delivered: [`JUDGED_MAX_BYTES`].
    ///
    /// [`JUDGED_MAX_BYTES`]: super::settings::JUDGED_MAX_BYTES
    pub(super) judged: MemoryBudget,
    /// Permits of Skills whose content is an archive.
    pub(super) archive_permits: ArchivePermits,
    /// Says which runtimes have to be reconciled.
    pub(super) changes: Arc<PendingChanges>,
    /// Requests a reconcile of a skill; one sender per watch scope.
    pub(super) skill_triggers: Vec<mpsc::Sender<ObjectRef<WatchedSkill>>>,
    /// Requests a reconcile of a runtime; one sender per watch scope.
    pub(super) runtime_triggers: Vec<mpsc::Sender<ObjectRef<WatchedRuntime>>>,
    pub(super) memory: ReconcileMemory,
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
        self.memory.writes.count_trigger();
        for key in keys {
            for sender in &self.runtime_triggers {
                let _ = sender.send(key.clone()).await;
            }
        }
    }
}
