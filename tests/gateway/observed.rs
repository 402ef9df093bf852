//! An executor that a test can watch: what it was asked to run, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use knack_execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, ExecutionStatus,
    Executor,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Passes everything on to a real executor, and remembers the requests.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn Executor>,
    requests: watch::Sender<Vec<ExecutionRequest>>,
    /// How many results may be given.
    given: Semaphore,
}

impl Observed {
    /// Around the real sandbox.
    pub(crate) async fn new() -> Arc<Self> {
        Self::giving(Semaphore::MAX_PERMITS).await
    }

    /// Around the real sandbox, and no result is given before it is let go: who asked for a run waits for it as long as the test needs, however slow
    /// the machine is.
    pub(crate) async fn holding() -> Arc<Self> {
        Self::giving(0).await
    }

    async fn giving(results: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(super::runner::executor(1).await),
            requests: watch::Sender::new(Vec::new()),
            given: Semaphore::new(results),
        })
    }

    /// Gives so many more results.
    pub(crate) fn let_go(&self, results: usize) {
        self.given.add_permits(results);
    }

    /// Waits until the run after this many others is asked for, and returns its request.
    pub(crate) async fn asked_after(&self, others: usize) -> ExecutionRequest {
        let mut requests = self.requests.subscribe();
        let seen = requests.wait_for(|requests| requests.len() > others).await.unwrap();
        seen.last().unwrap().clone()
    }

    /// Waits until the executor says that the run after this many others is running, and returns its request.
    pub(crate) async fn running_after(&self, others: usize) -> ExecutionRequest {
        let request = self.asked_after(others).await;
        loop {
            match self.status(&request).await {
                Some(ExecutionStatus::Running) => return request,
                None | Some(ExecutionStatus::Pending) => tokio::task::yield_now().await,
                ended => panic!("it was never seen running: {ended:?}"),
            }
        }
    }

    /// What the executor's record of a request says; `None`: there is none.
    pub(crate) async fn status(&self, request: &ExecutionRequest) -> Option<ExecutionStatus> {
        let record = self.inner.get(&request.caller, request.id).await;
        record.ok().map(|record| record.status)
    }

    /// What the record says once the run has ended.
    pub(crate) async fn ended(&self, request: &ExecutionRequest) -> Option<ExecutionStatus> {
        loop {
            match self.status(request).await {
                Some(ExecutionStatus::Pending | ExecutionStatus::Running) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                ended => return ended,
            }
        }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<ExecutionRequest> {
        self.requests.borrow().clone()
    }
}

#[async_trait]
impl Executor for Observed {
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        self.requests.send_modify(|requests| requests.push(request.clone()));
        let result = self.inner.execute(request, cancel).await;
        self.given.acquire().await.unwrap().forget();
        result
    }

    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        self.inner.get(caller, id).await
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        self.inner.cancel(caller, id).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
