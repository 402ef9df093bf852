//! The one interface between the gateway and the executors of code.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, Language, Missing};

/// Runs executions: locally, in a pod, or through a hub.
#[async_trait]
pub trait Executor: Send + Sync + Debug {
    /// Runs the request at most once per (caller, id) and returns its result; a repeated call, also a concurrent one,
    /// returns the same result without a second run.
    ///
    /// Cancelling `cancel`, or dropping the future, ends the run within 100 ms once no other call waits for the same
    /// id.
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError>;

    /// Returns the record of an execution.
    ///
    /// Errors: [`ExecutionError::Gone`] for an id older than the retention, [`ExecutionError::NotFound`] for an
    /// unknown one and for another caller's.
    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError>;

    /// Ends a pending or running execution; one that has ended stays as it is. Errors as [`Executor::get`].
    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError>;

    /// The time that ids of new executions carry, since the Unix epoch: by the clock that judges their age.
    fn now(&self) -> Duration {
        crate::now()
    }

    /// The abilities of this executor; fixed for its lifetime.
    fn capabilities(&self) -> Capabilities;
}

/// The abilities of an executor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Languages of `run_code`, in the order of the tool's enum; empty if nothing can be run.
    pub languages: Vec<Language>,
    /// Why nothing can be run, if so.
    pub missing: Option<Missing>,
    /// Lines for the console at start: interpreters chosen and passed over, degraded locks.
    pub notes: Vec<String>,
    /// Runs at once; 0 if nothing can be run.
    pub concurrency: usize,
}
