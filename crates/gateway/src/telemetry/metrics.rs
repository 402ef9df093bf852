//! Prometheus metrics of the gateway, registered once with their help texts.

use std::sync::{Arc, Mutex};

use knack_serving::ConnectionMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::log::RequestLog;
use super::skill_metrics::SkillMetrics;

/// Seconds; the buckets of the OpenTelemetry GenAI conventions (docs/design/wire-formats.md#telemetry-names).
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
/// Seconds until a sandbox runs: a warm one is handed over, a cold one is a new pod, whose image may have to be pulled.
const START_SECONDS: [f64; 12] = [0.002, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
/// Seconds of one execution: warm runs end within milliseconds.
const RUN_SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    format: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatLabel {
    format: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    status: &'static str,
    start: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabel {
    start: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReadLabels {
    what: &'static str,
    outcome: &'static str,
}

/// The outcome of writing a value for other replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The hub keeps it.
    Written,
    /// There was no link to the hub.
    Away,
    /// Too much was waiting.
    Dropped,
    /// Larger than what a hub keeps.
    TooLarge,
    /// The hub did not take it.
    Refused,
}

/// The kind of a value that another replica made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptValueKind {
    /// A hidden turn.
    Turn,
    /// A file, or a list of them.
    File,
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It was there.
    Found,
    /// It was there no more.
    Gone,
    /// It did not arrive in time.
    Late,
    /// The hub did not answer, or with a value that cannot be opened.
    Failed,
}

/// Counters of the exchange between the replicas of a gateway.
#[derive(Debug, Clone, Default)]
pub struct ReplicaMetrics {
    writes: Family<WriteLabels, Counter>,
    reads: Family<ReadLabels, Counter>,
    known: Gauge,
    linked: Gauge,
}

impl ReplicaMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "gateway_kept_writes",
            "Hidden turns and files written for other replicas, by outcome",
            self.writes.clone(),
        );
        registry.register(
            "gateway_kept_reads",
            "Hidden turns and files requested from the hub, by outcome",
            self.reads.clone(),
        );
        registry.register(
            "gateway_kept_known",
            "Hidden turns and files that the hub stores for this gateway's replicas",
            self.known.clone(),
        );
        registry.register(
            "gateway_kept_linked",
            "1 while the hub reports to this replica what other replicas store there",
            self.linked.clone(),
        );
    }

    /// Counts a value that other replicas should find.
    pub(crate) fn wrote(&self, outcome: WriteOutcome) {
        let outcome = match outcome {
            WriteOutcome::Written => "written",
            WriteOutcome::Away => "away",
            WriteOutcome::Dropped => "dropped",
            WriteOutcome::TooLarge => "too_large",
            WriteOutcome::Refused => "refused",
        };
        self.writes.get_or_create(&WriteLabels { outcome }).inc();
    }

    /// Counts a value that was requested.
    pub fn read(&self, what: KeptValueKind, outcome: ReadOutcome) {
        let what = match what {
            KeptValueKind::Turn => "record",
            KeptValueKind::File => "file",
        };
        let outcome = match outcome {
            ReadOutcome::Found => "found",
            ReadOutcome::Gone => "gone",
            ReadOutcome::Late => "late",
            ReadOutcome::Failed => "failed",
        };
        self.reads.get_or_create(&ReadLabels { what, outcome }).inc();
    }

    /// Sets whether the hub reports what other replicas keep.
    pub(crate) fn linked(&self, linked: bool) {
        self.linked.set(i64::from(linked));
    }

    /// Sets how many values are known.
    pub(crate) fn set_known_values(&self, values: usize) {
        self.known.set(i64::try_from(values).unwrap_or(i64::MAX));
    }
}

/// How old the catalog is, and where it is from.
#[derive(Debug, Clone, Default)]
pub struct CatalogMetrics {
    /// Seconds since the last message of the hub about the catalog; 0 where the catalog is not a hub's.
    pub(crate) age: Gauge,
    /// 1 while the catalog was read from the disk.
    pub(crate) saved: Gauge,
}

impl CatalogMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "gateway_catalog_age_seconds",
            "Time since the hub sent or confirmed the catalog",
            self.age.clone(),
        );
        registry.register(
            "gateway_catalog_saved",
            "1 while the catalog is the saved one of the process before, since no hub has sent one to this process",
            self.saved.clone(),
        );
    }
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    broken: Family<FormatLabel, Counter>,
    duration: Histograms<FormatLabel>,
    rounds: Family<FormatLabel, Counter>,
    first_again: Family<FormatLabel, Counter>,
    added_tokens: Family<FormatLabel, Counter>,
    runs: Family<RunLabels, Counter>,
    run_duration: Histograms<RunLabels>,
    starts: Histograms<StartLabel>,
    /// How old the catalog is.
    pub catalog: CatalogMetrics,
    /// Skills in the current snapshot.
    pub skills: Gauge,
    /// Sources that are broken in the current snapshot.
    pub broken_sources: Gauge,
    /// Bytes of remembered hidden turns.
    pub(crate) turn_store_bytes: Gauge,
    /// Bytes held of the memory budget.
    pub(crate) memory_bytes: Gauge,
    /// Execution records that are missing in the history.
    pub(crate) history_dropped: Counter,
    /// Connections of the listener.
    pub connections: ConnectionMetrics,
    /// Counters of the exchange between the replicas of this gateway.
    pub replicas: ReplicaMetrics,
    /// Uses of skills.
    pub(crate) skill_uses: Arc<SkillMetrics>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let run_seconds: fn() -> Histogram = || Histogram::new(RUN_SECONDS);
        let start_seconds: fn() -> Histogram = || Histogram::new(START_SECONDS);
        let mut registry = Registry::with_prefix("knack");
        let metrics = Self {
            registry: Mutex::default(),
            requests: Family::default(),
            broken: Family::default(),
            duration: Family::new_with_constructor(seconds),
            rounds: Family::default(),
            first_again: Family::default(),
            added_tokens: Family::default(),
            runs: Family::default(),
            run_duration: Family::new_with_constructor(run_seconds),
            starts: Family::new_with_constructor(start_seconds),
            catalog: CatalogMetrics::default(),
            skills: Gauge::default(),
            broken_sources: Gauge::default(),
            turn_store_bytes: Gauge::default(),
            memory_bytes: Gauge::default(),
            history_dropped: Counter::default(),
            connections: ConnectionMetrics::default(),
            replicas: ReplicaMetrics::default(),
            skill_uses: Arc::default(),
        };
        metrics.register_requests(&mut registry);
        metrics.register_executions(&mut registry);
        metrics.register_catalog(&mut registry);
        metrics.register_process(&mut registry);
        Self {
            registry: Mutex::new(registry),
            ..metrics
        }
    }
}

/// Their names and help texts.
impl Metrics {
    fn register_requests(&self, registry: &mut Registry) {
        registry.register(
            "gateway_requests",
            "Requests answered, by wire format and HTTP status",
            self.requests.clone(),
        );
        registry.register(
            "gateway_broken_answers",
            "Answers that ended with an error after a head with a status of success; they are in gateway_requests with that status",
            self.broken.clone(),
        );
        registry.register(
            "gateway_request_duration_seconds",
            "Time from the head of a request to the end of its answer",
            self.duration.clone(),
        );
        registry.register(
            "gateway_upstream_rounds",
            "Rounds of model requests with providers, without retries of a round and without requests that are passed on untouched",
            self.rounds.clone(),
        );
        registry.register(
            "gateway_first_rounds_again",
            "First rounds that were sent once more in another form, since the provider refused what the gateway had added, or a call whose saved turn is lost",
            self.first_again.clone(),
        );
        registry.register(
            "gateway_added_tokens",
            "Estimated tokens (bytes / 4) that injection added",
            self.added_tokens.clone(),
        );
    }

    fn register_executions(&self, registry: &mut Registry) {
        registry.register(
            "executions",
            "Executions, by status and kind of start",
            self.runs.clone(),
        );
        registry.register(
            "execution_duration_seconds",
            "Time from the request for an execution to its result",
            self.run_duration.clone(),
        );
        registry.register(
            "execution_start_seconds",
            "Time of an execution without its wait for a slot and without its program: start of the sandbox, files, result",
            self.starts.clone(),
        );
    }

    fn register_catalog(&self, registry: &mut Registry) {
        self.catalog.register(registry);
        registry.register("catalog_skills", "Skills in service", self.skills.clone());
        registry.register(
            "catalog_errors",
            "Errors reported about skill sources",
            self.broken_sources.clone(),
        );
    }

    fn register_process(&self, registry: &mut Registry) {
        registry.register(
            "gateway_record_bytes",
            "Bytes of remembered hidden turns",
            self.turn_store_bytes.clone(),
        );
        registry.register(
            "gateway_memory_bytes",
            "Bytes held of the process's memory budget: bodies, files, runs, skill content",
            self.memory_bytes.clone(),
        );
        registry.register(
            "executions_history_dropped",
            "Execution records that are missing in the history",
            self.history_dropped.clone(),
        );
        self.connections.register(registry, "gateway");
        self.replicas.register(registry);
        self.skill_uses.register(registry);
    }
}

impl Metrics {
    /// Counts one finished request.
    pub fn request(&self, log: &RequestLog) {
        let format = FormatLabel { format: log.format };
        self.requests
            .get_or_create(&RequestLabels {
                format: log.format,
                status: log.status,
            })
            .inc();
        self.broken.get_or_create(&format).inc_by(u64::from(log.broken));
        self.duration.get_or_create(&format).observe(log.duration.as_secs_f64());
        if log.is_own {
            return;
        }
        self.rounds.get_or_create(&format).inc_by(u64::from(log.rounds));
        self.first_again
            .get_or_create(&format)
            .inc_by(u64::from(log.sent_first_again));
        self.added_tokens.get_or_create(&format).inc_by(log.added_tokens as u64);
        self.skill_uses.count(&log.request_id, &log.uses);
        for run in &log.executions {
            let labels = RunLabels {
                status: run.status,
                start: run.start,
            };
            self.runs.get_or_create(&labels).inc();
            self.run_duration
                .get_or_create(&labels)
                .observe(run.duration.as_secs_f64());
            if let (Some(queued), Some(program)) = (run.queued, run.program) {
                let started = run.duration.saturating_sub(queued).saturating_sub(program);
                self.starts
                    .get_or_create(&StartLabel { start: run.start })
                    .observe(started.as_secs_f64());
            }
        }
    }

    /// Sets what a catalog says, each time that there is a new one: the skills of it, as `namespace/name`, and the number of its
    /// broken sources.
    pub fn of_catalogs(&self) -> impl Fn(Vec<String>, usize) + Send + Sync + 'static {
        let (skills, broken) = (self.skills.clone(), self.broken_sources.clone());
        let uses = Arc::clone(&self.skill_uses);
        move |served, errors| {
            skills.set(i64::try_from(served.len()).unwrap_or(i64::MAX));
            broken.set(i64::try_from(errors).unwrap_or(i64::MAX));
            uses.serve(served);
        }
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}
