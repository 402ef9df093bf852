//! The executor of this machine, as the runtime's settings size it.

use std::sync::Arc;

use knack_execution::environments::Environments;
use knack_execution::{DisabledExecutor, Executor};
use knack_gateway::catalog::RuntimeSettings;

/// Opens the local sandbox, or an executor that says why there is none.
#[cfg(target_os = "linux")]
pub(crate) async fn executor(runtime: &RuntimeSettings, environments: &Environments) -> Arc<dyn Executor> {
    use knack_execution::local::{LocalExecutor, LocalSettings, find_runner};
    use knack_execution::queue::QueueSettings;

    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Arc::new(DisabledExecutor::unsupported_platform());
    }
    let runner = match find_runner() {
        Ok(runner) => runner,
        Err(missing) => return Arc::new(DisabledExecutor::new(missing)),
    };
    let mut settings = LocalSettings::new(runner);
    if let Some(runs) = runtime.max_runs {
        settings.queue = QueueSettings::for_concurrency(runs.max(1));
    }
    settings.queue.max_queued = runtime.max_queued.unwrap_or(settings.queue.max_queued);
    settings.queue.queue_timeout = runtime.queue_timeout.unwrap_or(settings.queue.queue_timeout);
    settings.records.admission = settings.records.admission.max(runtime.deadline);
    settings.memory_bytes = runtime.max_memory_bytes.unwrap_or(settings.memory_bytes);
    settings.warm = runtime.warm_replicas.unwrap_or(settings.warm);
    settings.environments = environments.clone();
    settings.max_idle = runtime.warm_idle.unwrap_or(settings.max_idle);
    LocalExecutor::open_or_disabled(settings).await
}

/// Elsewhere than on Linux there is no sandbox, and without a sandbox nothing runs.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn executor(_: &RuntimeSettings, _: &Environments) -> Arc<dyn Executor> {
    Arc::new(DisabledExecutor::unsupported_platform())
}
