//! Prometheus metrics of the controller.

use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds of a reconcile: one that changes nothing takes microseconds, one that fetches an archive seconds.
const SECONDS: [f64; 12] = [
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// All metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Mutex<Registry>,
    reconciles: Family<ReconcileLabels, Counter>,
    seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    writes: Family<KindLabel, Counter>,
    /// 1 while this process leads.
    pub(super) leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("knack_controller");
        let metrics = Self {
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            writes: Family::default(),
            leader: Gauge::default(),
            registry: Mutex::default(),
        };
        registry.register(
            "reconciles",
            "Reconciles by kind and outcome",
            metrics.reconciles.clone(),
        );
        registry.register("reconcile_seconds", "Time of a reconcile", metrics.seconds.clone());
        registry.register(
            "writes",
            "Writes to the API server by kind of object",
            metrics.writes.clone(),
        );
        registry.register("leader", "1 while this process leads", metrics.leader.clone());
        Self {
            registry: Mutex::new(registry),
            ..metrics
        }
    }
}

impl Metrics {
    /// Counts a reconcile.
    pub(super) fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&ReconcileLabels { kind, outcome }).inc();
        self.seconds
            .get_or_create(&KindLabel { kind })
            .observe(took.as_secs_f64());
    }

    /// Counts a write.
    pub(super) fn wrote(&self, kind: &'static str) {
        self.writes.get_or_create(&KindLabel { kind }).inc();
    }

    /// The exposition text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Ok(registry) = self.registry.lock() {
            // Writing to a String cannot fail.
            let _ = encode(&mut text, &registry);
        }
        text
    }
}
