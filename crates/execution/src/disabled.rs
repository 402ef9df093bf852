//! The executor of a machine that cannot run code, or was told not to: it refuses every execution with the reason.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, Executor, Missing,
};

/// Answers every execution with the one line that says what is missing and what to do.
#[derive(Debug, Clone)]
pub struct DisabledExecutor {
    missing: Missing,
}

impl DisabledExecutor {
    /// An executor that answers with `missing`.
    #[must_use]
    pub const fn new(missing: Missing) -> Self {
        Self { missing }
    }

    /// The executor of `--no-local-executor`.
    #[must_use]
    pub fn by_flag() -> Self {
        Self::new(Missing::new(
            "this gateway was started with --no-local-executor",
            "start it without that flag on Linux x86_64 or aarch64 to run skill code",
        ))
    }

    /// The executor of an operating system without Landlock and seccomp.
    #[must_use]
    pub fn unsupported_platform() -> Self {
        Self::new(Missing::new(
            format!(
                "the local sandbox needs Linux on x86_64 or aarch64, this is {} on {}",
                std::env::consts::OS,
                std::env::consts::ARCH
            ),
            "run knack in a Linux virtual machine or container, or use a cluster",
        ))
    }
}

#[async_trait]
impl Executor for DisabledExecutor {
    async fn execute(
        &self,
        _request: ExecutionRequest,
        _cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        Err(ExecutionError::Unavailable(self.missing.clone()))
    }

    async fn get(&self, _caller: &str, _id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        Err(ExecutionError::NotFound)
    }

    async fn cancel(&self, _caller: &str, _id: ExecutionId) -> Result<(), ExecutionError> {
        Err(ExecutionError::NotFound)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            missing: Some(self.missing.clone()),
            ..Capabilities::default()
        }
    }
}
