//! The request for an execution at a runtime, and the contents of its pool.

use std::sync::Arc;

use knack_execution::ExecutionRequest;
use knack_memory::MemoryShare;
use knack_packages::environment::EnvironmentImage;
use knack_serving::bodies::Holding;
use knack_skill::model::SkillRef;

use super::resolved_runtime::PodResources;

/// The skill that a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSkill {
    /// Namespace and name.
    pub id: SkillRef,
    /// Its revision, where it is known: what the artifact's name ends in.
    pub revision: Option<String>,
}

/// An execution at a runtime: the request and its requirements for the pod.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// The execution to run.
    pub execution: ExecutionRequest,
    /// The skill that the run belongs to. It decides about the Job's labels, and nothing else: a right to values has only
    /// `execution.tool`.
    pub skill: Option<RunSkill>,
    /// Another image than the runtime's, if the runtime allows it. One that the runtime does not name goes cold.
    pub image: Option<String>,
    /// The environment of the skill's packages, in an image of its own.
    pub packages: Option<EnvironmentImage>,
    /// Other resources than the runtime's, under its ceiling. Goes cold.
    pub resources: Option<PodResources>,
    /// The name under which it waits in the queue: capacity is shared evenly between names.
    pub sharer: String,
    /// Its share of the process's memory, held until the run has ended.
    pub memory: Option<Arc<Holding>>,
    /// The shares of the contents that it mounts, which others may use too; held as long.
    pub content: Vec<Arc<MemoryShare>>,
}

impl From<ExecutionRequest> for JobRequest {
    /// The runtime's settings, for the skill that the request names.
    fn from(execution: ExecutionRequest) -> Self {
        Self {
            sharer: execution.caller.clone(),
            memory: None,
            content: Vec::new(),
            skill: execution.skill.clone().map(|id| RunSkill { id, revision: None }),
            execution,
            image: None,
            packages: None,
            resources: None,
        }
    }
}

/// Counts for status and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Pods that are ready.
    pub ready: usize,
    /// Pods that should be ready.
    pub desired: usize,
    /// Executions that run.
    pub running: usize,
    /// Executions that wait for a permit.
    pub queued: usize,
}
