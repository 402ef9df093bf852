//! Metrics of the registry.

use std::sync::{Mutex, PoisonError};

use knack_gateway::files::user_files::StoreUsage;
use knack_serving::ConnectionMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the durations, seconds: a read is of milliseconds, an upload of many ConfigMaps of seconds.
const SECONDS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    api: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReportLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

/// All metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    duration: Histogram,
    /// Leftovers of ended changes that were removed.
    pub(super) swept: Counter,
    /// Sweeps that failed.
    pub(super) sweep_failures: Counter,
    reported: Family<ReportLabels, Counter>,
    dropped: Counter,
    files: FileMetrics,
    /// Connections of the listener.
    pub(super) listener: ConnectionMetrics,
    memory_held: Gauge,
    memory_total: Gauge,
}

/// Metrics of uploads and containers.
#[derive(Debug)]
struct FileMetrics {
    bytes: Gauge,
    uploads: Gauge,
    containers: Gauge,
    refused: Family<RefusalLabels, Counter>,
}

impl FileMetrics {
    fn register(registry: &mut Registry) -> Self {
        let made = Self {
            bytes: Gauge::default(),
            uploads: Gauge::default(),
            containers: Gauge::default(),
            refused: Family::default(),
        };
        let help = "Bytes of uploads and of files in containers that are stored for gateways";
        registry.register("files_bytes", help, made.bytes.clone());
        let help = "Uploads that are stored for gateways";
        registry.register("files_uploads", help, made.uploads.clone());
        let help = "Containers that are stored for gateways";
        registry.register("files_containers", help, made.containers.clone());
        let help = "Refused file operations: storage limit reached, disk error, or too many at once";
        registry.register("files_refused", help, made.refused.clone());
        made
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("knack_registry");
        let requests = Family::default();
        registry.register("requests", "Requests answered, by API and status", requests.clone());
        let duration = Histogram::new(SECONDS);
        let help = "Time from the head of a request to its answer";
        registry.register("request_duration_seconds", help, duration.clone());
        let swept = Counter::default();
        let help = "ConfigMaps removed that changes of skills had left behind, as when the registry ended meanwhile";
        registry.register("leftovers_removed", help, swept.clone());
        let sweep_failures = Counter::default();
        let help = "Cleanups of what changes of skills had left behind that failed";
        registry.register("sweep_failures", help, sweep_failures.clone());
        let reported = Family::default();
        let help = "Execution records that gateways reported, by outcome";
        registry.register("executions_reported", help, reported.clone());
        let dropped = Counter::default();
        let help = "Execution records that could not be written to disk, or that arrived faster than it could write them; gateways report them again";
        registry.register("executions_dropped", help, dropped.clone());
        let files = FileMetrics::register(&mut registry);
        let listener = ConnectionMetrics::default();
        listener.register(&mut registry, "listener");
        let memory_held = Gauge::default();
        let help = "Bytes of the memory budget in use: request bodies, content of skills";
        registry.register("memory_held_bytes", help, memory_held.clone());
        let memory_total = Gauge::default();
        let help = "Memory budget in bytes, derived from the memory limit";
        registry.register("memory_budget_bytes", help, memory_total.clone());
        Self {
            registry: Mutex::new(registry),
            requests,
            duration,
            swept,
            sweep_failures,
            reported,
            dropped,
            files,
            listener,
            memory_held,
            memory_total,
        }
    }
}

impl Metrics {
    /// Counts an answer.
    pub(super) fn answered(&self, api: &'static str, status: u16, seconds: f64) {
        self.requests.get_or_create(&RequestLabels { api, status }).inc();
        self.duration.observe(seconds);
    }

    /// Counts a note of an execution.
    pub(super) fn reported(&self, is_taken: bool) {
        let outcome = if is_taken { "taken" } else { "refused" };
        self.reported.get_or_create(&ReportLabels { outcome }).inc();
    }

    /// Sets how many notes were dropped since the start.
    pub(super) fn dropped(&self, count: u64) {
        // Two scrapes at once must not count twice.
        self.dropped
            .inner()
            .fetch_max(count, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets how much is kept of uploads and containers.
    pub(super) fn files(&self, held: StoreUsage) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.files.bytes.set(i64::try_from(held.bytes).unwrap_or(i64::MAX));
        self.files.uploads.set(number(held.files));
        self.files.containers.set(number(held.containers));
    }

    /// Counts a call about files that was refused.
    pub(super) fn files_refused(&self, reason: &'static str) {
        self.files.refused.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// Sets what is held of the memory budget.
    pub(super) fn memory(&self, held: usize, total: usize) {
        let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.memory_held.set(bytes(held));
        self.memory_total.set(bytes(total));
    }

    /// The text of all.
    pub(super) fn text(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}
