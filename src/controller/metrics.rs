//! Prometheus metrics of the controller.

use std::sync::Mutex;
use std::time::Duration;

use knack_serving::ConnectionMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::reconciled::ReconcileOutcome;

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
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabel {
    secret: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
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
    reviews: Family<OutcomeLabel, Counter>,
    sidecars: Family<StateLabel, Gauge>,
    stale_sidecars: Gauge,
    objects: Family<ObjectLabels, Gauge>,
    not_isolated: Gauge,
    certificates: Family<SecretLabel, Gauge>,
    /// Connections of the webhook.
    pub(super) webhook_connections: ConnectionMetrics,
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
            reviews: Family::default(),
            sidecars: Family::default(),
            stale_sidecars: Gauge::default(),
            objects: Family::default(),
            not_isolated: Gauge::default(),
            certificates: Family::default(),
            webhook_connections: ConnectionMetrics::default(),
            leader: Gauge::default(),
            registry: Mutex::default(),
        };
        metrics.register_reconciles(&mut registry);
        metrics.register_objects(&mut registry);
        Self {
            registry: Mutex::new(registry),
            ..metrics
        }
    }
}

/// Their names and help texts.
impl Metrics {
    fn register_reconciles(&self, registry: &mut Registry) {
        registry.register("reconciles", "Reconciles by kind and outcome", self.reconciles.clone());
        registry.register("reconcile_seconds", "Time of a reconcile", self.seconds.clone());
        registry.register(
            "writes",
            "Writes to the API server by kind of object",
            self.writes.clone(),
        );
        registry.register(
            "webhook_reviews",
            "Reviews of pods by the webhook that injects sidecars, by outcome",
            self.reviews.clone(),
        );
    }

    fn register_objects(&self, registry: &mut Registry) {
        registry.register(
            "objects",
            "Skills and SkillRuntimes by state: ready, stalled (needs a change by a person) or reconciling",
            self.objects.clone(),
        );
        registry.register(
            "runtimes_not_isolated",
            "SkillRuntimes whose sandboxes can reach the network, according to the last probe",
            self.not_isolated.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "Expiry time of the serving certificate, by Secret; only of those that the controller creates",
            self.certificates.clone(),
        );
        registry.register(
            "sidecar_pods",
            "Pods that ask for the sidecar: injected, stale (another image than this installation's), partly (an API does not go through it), ignored (an annotation of it is), untrusting (it does not have the hub's authorities), refused (by the hub) or without; each counts once, as the worst",
            self.sidecars.clone(),
        );
        registry.register(
            "stale_sidecars",
            "Pods with a sidecar of another image than this installation's, in namespaces with the label knack.dev/roll: enabled; 0 without injection.rollStale",
            self.stale_sidecars.clone(),
        );
        self.webhook_connections.register(registry, "webhook");
        registry.register("leader", "1 while this process leads", self.leader.clone());
    }
}

impl Metrics {
    /// Counts a reconcile.
    pub(super) fn reconciled(&self, kind: &'static str, outcome: ReconcileOutcome, took: Duration) {
        let outcome = outcome.as_str();
        self.reconciles.get_or_create(&ReconcileLabels { kind, outcome }).inc();
        self.seconds
            .get_or_create(&KindLabel { kind })
            .observe(took.as_secs_f64());
    }

    /// Counts a write.
    pub(super) fn wrote(&self, kind: &'static str) {
        self.writes.get_or_create(&KindLabel { kind }).inc();
    }

    /// Sets how many of the pods that ask for the sidecar are in a state.
    pub(super) fn sidecars(&self, state: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.sidecars.get_or_create(&StateLabel { state }).set(count);
    }

    /// Sets how many pods have an older sidecar.
    pub(super) fn stale_sidecars(&self, count: usize) {
        self.stale_sidecars.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets how many objects of a kind are in a state.
    pub(super) fn objects(&self, kind: &'static str, state: &'static str, count: usize) {
        let gauge = self.objects.get_or_create(&ObjectLabels { kind, state });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets how many runtimes are not isolated.
    pub(super) fn not_isolated(&self, count: usize) {
        self.not_isolated.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Where the end of a certificate is written, seconds since the Unix epoch.
    pub(super) fn certificate(&self, secret: &'static str) -> Gauge {
        self.certificates.get_or_create(&SecretLabel { secret }).clone()
    }

    /// Counts a review of the webhook.
    pub(super) fn reviewed(&self, outcome: &'static str) {
        self.reviews.get_or_create(&OutcomeLabel { outcome }).inc();
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
