//! An executor that a test can watch: what it was asked to run, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use knack_execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, ExecutionStatus,
    Executor,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Passes everything on to a real executor, and remembers the requests.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn Executor>,
    requests: watch::Sender<Vec<ExecutionRequest>>,
}

impl Observed {
    /// Around the real sandbox.
    pub(crate) async fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(super::runner::executor(1).await),
            requests: watch::Sender::new(Vec::new()),
        })
    }

    /// Waits until the executor says that the run after this many others is running, and returns its request.
    pub(crate) async fn running_after(&self, others: usize) -> ExecutionRequest {
        let mut requests = self.requests.subscribe();
        let seen = requests.wait_for(|requests| requests.len() > others).await.unwrap();
        let request = seen.last().unwrap().clone();
        drop(seen);
        while self.status(&request).await != Some(ExecutionStatus::Running) {
            tokio::task::yield_now().await;
        }
        request
    }

    /// What the executor's record of a request says; `None`: there is none.
    pub(crate) async fn status(&self, request: &ExecutionRequest) -> Option<ExecutionStatus> {
        let record = self.inner.get(&request.caller, request.id).await;
        record.ok().map(|record| record.status)
    }

    /// The same once the run has ended.
    pub(crate) async fn ended(&self, request: &ExecutionRequest) -> Option<ExecutionStatus> {
        loop {
            match self.status(request).await {
                Some(ExecutionStatus::Running) => tokio::time::sleep(Duration::from_millis(5)).await,
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
        self.inner.execute(request, cancel).await
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
