//! The executor of one runtime: ownership, records, queue, pool and conversation in one path.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::settings::{JobClients, JobSettings};
use super::view::{PodResources, RuntimeView};
use crate::execution::records::Records;
use crate::execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, Executor,
};

/// An execution at a runtime: the request and what it asks of its pod.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// What to run.
    pub execution: ExecutionRequest,
    /// Namespace of the skill that the run belongs to; with [`JobRequest::skill`] the Job's labels.
    pub skill_namespace: Option<String>,
    /// Name of the skill.
    pub skill: Option<String>,
    /// Revision of the skill: what the artifact's name ends in.
    pub revision: Option<String>,
    /// Another image than the runtime's, if the runtime allows it. Goes cold.
    pub image: Option<String>,
    /// Other resources than the runtime's, under its ceiling. Goes cold.
    pub resources: Option<PodResources>,
}

impl From<ExecutionRequest> for JobRequest {
    /// As the runtime says, for the skill that the request names (`namespace/name`).
    fn from(execution: ExecutionRequest) -> Self {
        let parts = execution.skill.as_deref().and_then(|skill| skill.split_once('/'));
        let (skill_namespace, skill) = match parts {
            Some((namespace, name)) => (Some(namespace.to_owned()), Some(name.to_owned())),
            None => (None, execution.skill.clone()),
        };
        Self {
            execution,
            skill_namespace,
            skill,
            revision: None,
            image: None,
            resources: None,
        }
    }
}

/// Runs executions as Jobs of one SkillRuntime; see the module.
#[derive(Debug)]
pub struct JobExecutor {
    #[expect(dead_code, reason = "the pod path lands next")]
    clients: JobClients,
    view: ArcSwap<RuntimeView>,
    #[expect(dead_code, reason = "the pod path lands next")]
    settings: JobSettings,
    records: Arc<Records>,
}

/// Counts for status and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Pods that stand ready.
    pub ready: usize,
    /// Pods that shall stand ready.
    pub desired: usize,
    /// Executions that run.
    pub running: usize,
    /// Executions that wait for a place.
    pub queued: usize,
}

impl JobExecutor {
    /// Opens the executor of a runtime and starts to compete for its ownership. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(clients: JobClients, view: RuntimeView, settings: JobSettings) -> Arc<Self> {
        let records = Records::new(settings.records.clone());
        Arc::new(Self {
            clients,
            view: ArcSwap::from_pointee(view),
            settings,
            records,
        })
    }

    /// Takes changed settings over: for the next run, without a restart. Runs under way keep theirs.
    pub fn update(&self, view: RuntimeView) {
        self.view.store(Arc::new(view));
    }

    /// The settings in use.
    #[must_use]
    pub fn view(&self) -> Arc<RuntimeView> {
        self.view.load_full()
    }

    /// Whether this replica owns the runtime now.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        false
    }

    /// Where the owner answers, if another replica owns the runtime.
    #[must_use]
    pub fn owner(&self) -> Option<String> {
        None
    }

    /// Counts for status and metrics.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        PoolCounts::default()
    }

    /// Runs the request as [`Executor::execute`] does and tells what happens into `events`, from the beginning, also to
    /// those who ask again for an id that runs. A receiver that is slow slows nobody; one that is dropped ends nothing.
    pub async fn execute_streaming(
        &self,
        request: JobRequest,
        cancel: CancellationToken,
        events: mpsc::Sender<Event>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        drop((request, cancel, events));
        Err(ExecutionError::NotOwner { owner: self.owner() })
    }

    /// Hands the runtime over: takes no new runs, lets go of the Lease and leaves what runs to the next owner.
    pub async fn shutdown(&self) {
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Executor for JobExecutor {
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let (events, _) = mpsc::channel(1);
        self.execute_streaming(request.into(), cancel, events).await
    }

    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        self.records.get(crate::execution::now(), caller, id)
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        self.records.cancel(crate::execution::now(), caller, id)
    }

    fn capabilities(&self) -> Capabilities {
        let view = self.view();
        Capabilities {
            languages: view.languages.clone(),
            missing: None,
            notes: Vec::new(),
            concurrency: view.max_runs,
        }
    }
}
