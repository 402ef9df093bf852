//! Metrics of the hub, registered once with their help texts.

use std::sync::{Mutex, PoisonError};

use knack_serving::ConnectionMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::catalog_views::CatalogViewCounts;
use super::skill_metrics::SkillUses;
use crate::jobs::PoolCounts;

/// Seconds of an execution, from the POST to its last frame.
const SECONDS: [f64; 12] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];

/// Ends of executions that the alert `KnackQueueFull` counts. A counter that first appears with its first count shows no increase
/// to Prometheus, so these are there at 0 from when this replica owns a runtime.
const QUEUE_ENDS: [&str; 2] = ["queue_full", "queue_timeout"];

/// Labels of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// The route that refuses.
    pub route: &'static str,
    /// The code of its answer.
    pub code: &'static str,
}

/// Labels of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Execution {
    runtime: String,
    status: &'static str,
}

/// Labels of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuntimeLabels {
    runtime: String,
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    refusals: Family<RefusalLabels, Counter>,
    executions: Family<Execution, Counter>,
    duration: Histogram,
    warm: Family<RuntimeLabels, Gauge>,
    wanted: Family<RuntimeLabels, Gauge>,
    running: Family<RuntimeLabels, Gauge>,
    queued: Family<RuntimeLabels, Gauge>,
    /// Uses of skills, as gateways report them.
    pub skill_uses: SkillUses,
    /// Open catalog streams.
    pub streams: Gauge,
    /// How often views were made.
    pub views: CatalogViewCounts,
    /// Connections of the listener.
    pub listener: ConnectionMetrics,
    /// Values kept for gateways that made room for others.
    pub kept_evicted: Counter,
    kept_values: Gauge,
    kept_bytes: Gauge,
    summary_bytes: Gauge,
    memory_held: Gauge,
    memory_total: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("knack_hub");
        let metrics = Self {
            registry: Mutex::default(),
            refusals: Family::default(),
            executions: Family::default(),
            duration: Histogram::new(SECONDS),
            warm: Family::default(),
            wanted: Family::default(),
            running: Family::default(),
            queued: Family::default(),
            skill_uses: SkillUses::default(),
            streams: Gauge::default(),
            views: CatalogViewCounts::default(),
            listener: ConnectionMetrics::default(),
            kept_evicted: Counter::default(),
            kept_values: Gauge::default(),
            kept_bytes: Gauge::default(),
            summary_bytes: Gauge::default(),
            memory_held: Gauge::default(),
            memory_total: Gauge::default(),
        };
        metrics.register_executions(&mut registry);
        metrics.register_catalogs(&mut registry);
        metrics.register_memory(&mut registry);
        Self {
            registry: Mutex::new(registry),
            ..metrics
        }
    }
}

/// Their names and help texts.
impl Metrics {
    fn register_executions(&self, registry: &mut Registry) {
        registry.register("refusals", "Requests refused, by route and code", self.refusals.clone());
        registry.register(
            "executions",
            "Executions ended, by runtime and status",
            self.executions.clone(),
        );
        registry.register(
            "execution_duration_seconds",
            "Time from the POST of an execution to the end of its run",
            self.duration.clone(),
        );
        registry.register("warm_pods", "Warm pods that are ready, by runtime", self.warm.clone());
        registry.register(
            "warm_pods_wanted",
            "Warm pods that should be ready at this moment, by runtime",
            self.wanted.clone(),
        );
        registry.register("running", "Running executions, by runtime", self.running.clone());
        registry.register(
            "queued",
            "Executions that wait for a slot, by runtime",
            self.queued.clone(),
        );
    }

    fn register_catalogs(&self, registry: &mut Registry) {
        self.skill_uses.register(registry);
        registry.register("catalog_streams", "Open catalog streams", self.streams.clone());
        registry.register(
            "views_built",
            "Catalog views built from all skills",
            self.views.built.clone(),
        );
        registry.register(
            "views_patched",
            "Catalog views built from an earlier view and the changes since",
            self.views.patched.clone(),
        );
        self.listener.register(registry, "listener");
    }

    fn register_memory(&self, registry: &mut Registry) {
        registry.register(
            "kept_evicted",
            "Hidden turns and files of gateways that were evicted for newer ones",
            self.kept_evicted.clone(),
        );
        registry.register(
            "kept_values",
            "Hidden turns and files that replicas of gateways store here for each other",
            self.kept_values.clone(),
        );
        registry.register(
            "kept_bytes",
            "Bytes of hidden turns and files that are stored for replicas of gateways",
            self.kept_bytes.clone(),
        );
        registry.register(
            "skill_summary_bytes",
            "Bytes of the lists of files and tools of all Skills, estimated; a quarter of the memory budget at most is counted in it",
            self.summary_bytes.clone(),
        );
        registry.register(
            "memory_held_bytes",
            "Bytes of the memory budget in use: request bodies, waiting runs, results, content and lists of skills",
            self.memory_held.clone(),
        );
        registry.register(
            "memory_budget_bytes",
            "Memory budget in bytes, derived from the memory limit",
            self.memory_total.clone(),
        );
    }
}

impl Metrics {
    /// Counts a refusal.
    pub fn refused(&self, labels: RefusalLabels) {
        self.refusals.get_or_create(&labels).inc();
    }

    /// Counts an execution that ended here.
    pub fn executed(&self, runtime: &str, status: &'static str, seconds: f64) {
        let labels = Execution {
            runtime: runtime.to_owned(),
            status,
        };
        self.executions.get_or_create(&labels).inc();
        self.duration.observe(seconds);
    }

    /// Sets the counts of a runtime that this replica owns.
    pub fn pool(&self, runtime: &str, counts: &PoolCounts) {
        let labels = RuntimeLabels {
            runtime: runtime.to_owned(),
        };
        let set = |family: &Family<RuntimeLabels, Gauge>, value: usize| {
            family
                .get_or_create(&labels)
                .set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.warm, counts.ready);
        set(&self.wanted, counts.desired);
        set(&self.running, counts.running);
        set(&self.queued, counts.queued);
        for status in QUEUE_ENDS {
            let runtime = runtime.to_owned();
            drop(self.executions.get_or_create(&Execution { runtime, status }));
        }
    }

    /// Sets the bytes that are kept for gateways.
    pub fn kept(&self, values: usize, bytes: usize) {
        self.kept_values.set(i64::try_from(values).unwrap_or(i64::MAX));
        self.kept_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the bytes that summaries of skills take.
    pub fn summaries(&self, bytes: usize) {
        self.summary_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the bytes that are held of the memory budget.
    pub fn memory(&self, held_bytes: usize, total_bytes: usize) {
        self.memory_held.set(i64::try_from(held_bytes).unwrap_or(i64::MAX));
        self.memory_total.set(i64::try_from(total_bytes).unwrap_or(i64::MAX));
    }

    /// Forgets a runtime.
    pub fn forget(&self, runtime: &str) {
        let labels = RuntimeLabels {
            runtime: runtime.to_owned(),
        };
        for family in [&self.warm, &self.wanted, &self.running, &self.queued] {
            family.remove(&labels);
        }
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use knack_execution::{ExecutionError, ExecutionStatus, StartKind};

    use super::*;

    #[test]
    fn alerts_and_dashboard_know_how_runs_end_and_start() {
        let ends = [QUEUE_ENDS.as_slice(), &[ExecutionStatus::Success.as_str()]].concat();
        for word in crate::fixture::monitored_words("knack_hub_executions_total", "status") {
            assert!(ends.contains(&word.as_str()), "{word}");
        }
        let starts = [StartKind::Warm, StartKind::Cold].map(StartKind::as_str);
        for word in crate::fixture::monitored_words("knack_execution_start_seconds_bucket", "start") {
            assert!(starts.contains(&word.as_str()), "{word}");
        }
    }

    #[test]
    fn a_runtime_has_its_refusals_for_want_of_a_place_before_the_first() {
        let metrics = Metrics::default();
        metrics.pool("team/small", &PoolCounts::default());
        let retry_after = Duration::ZERO;
        for error in [
            ExecutionError::QueueFull { retry_after },
            ExecutionError::QueueTimeout { retry_after },
        ] {
            let status = error.metric_label();
            let series = format!("knack_hub_executions_total{{runtime=\"team/small\",status=\"{status}\"}}");
            let there = |count: u32| metrics.text().lines().any(|line| line == format!("{series} {count}"));
            assert!(there(0), "{series}: {}", metrics.text());
            metrics.executed("team/small", status, 0.1);
            metrics.pool("team/small", &PoolCounts::default());
            assert!(there(1), "{series}: {}", metrics.text());
        }
    }
}
