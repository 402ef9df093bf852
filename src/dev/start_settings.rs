//! The settings of a runtime that are read once, when the program starts.

use knack_gateway::catalog::RuntimeSettings;
use knack_packages::Rules;

/// What was read of the runtime at the start.
#[derive(Debug)]
pub(super) struct StartSettings {
    pub(super) runtime: RuntimeSettings,
    pub(super) rules: Rules,
}

impl StartSettings {
    /// The fields of a SkillRuntime that say something else now.
    pub(super) fn changed(&self, now: &RuntimeSettings, rules: &Rules) -> Vec<&'static str> {
        let then = &self.runtime;
        let fields = [
            ("spec.gateway.upstreams", then.upstreams != now.upstreams),
            ("spec.concurrency.maxRuns", then.max_runs != now.max_runs),
            ("spec.concurrency.maxQueued", then.max_queued != now.max_queued),
            (
                "spec.concurrency.queueTimeoutSeconds",
                then.queue_timeout != now.queue_timeout,
            ),
            ("spec.warmPool.replicas", then.warm_replicas != now.warm_replicas),
            ("spec.warmPool.maxIdleSeconds", then.warm_idle != now.warm_idle),
            ("spec.sandbox.resources", then.max_memory_bytes != now.max_memory_bytes),
            ("spec.packages", self.rules != *rules),
        ];
        let changed = fields.into_iter().filter(|(_, is_other)| *is_other);
        changed.map(|(field, _)| field).collect()
    }
}
