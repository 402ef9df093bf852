//! The settings of the runtime that a gateway serves, with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use knack_hub_api::RuntimeName;
use knack_skill::catalog::{ConfigValues, ModelCode, Pin, Unserved};
use knack_skill::model::ActivationMode;
use knack_skill::risk::Risk;
use knack_vocabulary::{DEFAULT_NAMESPACE, defaults};

/// The settings of a `SkillRuntime`, or the defaults without one.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// `namespace/name`, or `default/knack-dev` without a manifest.
    pub name: RuntimeName,
    /// The master switch.
    pub suspend: bool,
    /// Cap of activation: `Always` without a manifest (docs/design/decisions.md#laptop-and-cluster), else `Listed` unless set.
    pub max_activation: ActivationMode,
    /// Labels that skills must have.
    pub match_labels: BTreeMap<String, String>,
    /// Pinned skills.
    pub pins: Vec<Pin>,
    /// Values of the configuration of functions.
    pub config: ConfigValues,
    /// Skills that requests may name and that are not served.
    pub unserved: Vec<Unserved>,
    /// Model-written code.
    pub model_code: ModelCode,
    /// The highest risk of a declared tool that is offered and run.
    pub max_risk: Risk,
    /// Default limit of a run.
    pub timeout: Duration,
    /// Highest limit of a run.
    pub max_timeout: Duration,
    /// Memory limit of a run whose skill asks for none, if set.
    pub memory_bytes: Option<u64>,
    /// Highest memory limit of a run, if the gateway has one; in a cluster the hub judges what skills ask for.
    pub max_memory_bytes: Option<u64>,
    /// Rounds of skill execution in one request.
    pub max_tool_rounds: u32,
    /// Deadline of a whole loop.
    pub deadline: Duration,
    /// Budget of the listing.
    pub max_listing_tokens: usize,
    /// Models that get skills; empty: all.
    pub models: Vec<String>,
    /// Requests with fewer output tokens get none.
    pub min_max_tokens: u64,
    /// Provider addresses by API word.
    pub upstreams: BTreeMap<String, String>,
    /// Runs at once.
    pub max_runs: Option<usize>,
    /// Runs that may wait.
    pub max_queued: Option<usize>,
    /// How long one may wait.
    pub queue_timeout: Option<Duration>,
    /// Interpreters started ahead.
    pub warm_replicas: Option<usize>,
    /// When an idle one is let go.
    pub warm_idle: Option<Duration>,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            name: RuntimeName::new(DEFAULT_NAMESPACE, "knack-dev"),
            suspend: false,
            max_activation: ActivationMode::Always,
            match_labels: BTreeMap::new(),
            pins: Vec::new(),
            config: ConfigValues::Here(Vec::new()),
            unserved: Vec::new(),
            model_code: ModelCode::Allow,
            max_risk: Risk::Critical,
            timeout: Duration::from_secs(defaults::TIMEOUT_SECONDS),
            max_timeout: Duration::from_secs(defaults::MAX_TIMEOUT_SECONDS),
            memory_bytes: None,
            max_memory_bytes: None,
            max_tool_rounds: defaults::MAX_TOOL_ROUNDS,
            deadline: Duration::from_secs(defaults::DEADLINE_SECONDS),
            max_listing_tokens: defaults::MAX_LISTING_TOKENS,
            models: Vec::new(),
            min_max_tokens: defaults::MIN_MAX_TOKENS,
            upstreams: BTreeMap::new(),
            max_runs: None,
            max_queued: None,
            queue_timeout: None,
            warm_replicas: None,
            warm_idle: None,
        }
    }
}
