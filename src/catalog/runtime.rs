//! The settings of the runtime that a gateway serves, with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use knack_skill::catalog::{DEFAULT_LISTING_TOKENS, DEFAULT_MIN_MAX_TOKENS, ModelCode, Pin};
use knack_skill::model::{ActivationMode, SkillRef};

use super::source::{Report, SkillSource};
use crate::api::vocabulary::DEFAULT_NAMESPACE;
use crate::api::{Resources, SkillRuntimeManifest};

/// What a `SkillRuntime` says, or would say if there were one.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// `namespace/name`, or `default/knack-dev` without a manifest.
    pub name: SkillRef,
    /// The master switch.
    pub suspend: bool,
    /// Cap of activation: `Always` without a manifest (docs/design/decisions.md#laptop-and-cluster), else `Listed` unless set.
    pub max_activation: ActivationMode,
    /// Labels that skills must have.
    pub match_labels: BTreeMap<String, String>,
    /// Pinned skills.
    pub pins: Vec<Pin>,
    /// Model-written code.
    pub model_code: ModelCode,
    /// Default limit of a run.
    pub timeout: Duration,
    /// Highest limit of a run.
    pub max_timeout: Duration,
    /// Memory limit of a run, if set.
    pub memory_bytes: Option<u64>,
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

/// Default of `spec.gateway.injection.maxToolRounds`.
const MAX_TOOL_ROUNDS: u32 = 10;
/// Default of `spec.gateway.injection.deadlineSeconds`: below the 600 s after which the SDKs give up.
const DEADLINE_SECONDS: u64 = 540;

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            name: SkillRef {
                namespace: DEFAULT_NAMESPACE.to_owned(),
                name: "knack-dev".to_owned(),
            },
            suspend: false,
            max_activation: ActivationMode::Always,
            match_labels: BTreeMap::new(),
            pins: Vec::new(),
            model_code: ModelCode::Allow,
            timeout: Duration::from_secs(crate::selection::DEFAULT_TIMEOUT_SECONDS),
            max_timeout: Duration::from_secs(crate::selection::DEFAULT_MAX_TIMEOUT_SECONDS),
            memory_bytes: None,
            max_tool_rounds: MAX_TOOL_ROUNDS,
            deadline: Duration::from_secs(DEADLINE_SECONDS),
            max_listing_tokens: DEFAULT_LISTING_TOKENS,
            models: Vec::new(),
            min_max_tokens: DEFAULT_MIN_MAX_TOKENS,
            upstreams: BTreeMap::new(),
            max_runs: None,
            max_queued: None,
            queue_timeout: None,
            warm_replicas: None,
            warm_idle: None,
        }
    }
}

impl RuntimeSettings {
    /// The settings of a manifest.
    pub fn from_manifest(manifest: &SkillRuntimeManifest) -> Result<Self, String> {
        let (spec, base) = (&manifest.spec, Self::default());
        let injection = &spec.gateway.injection;
        let selector = spec.skill_selector.clone().unwrap_or_default();
        let namespace = manifest.metadata.namespace.clone();
        let pins = selector.skills.iter().map(|pin| Pin {
            skill: SkillRef {
                namespace: pin.namespace.clone().unwrap_or_else(|| namespace.clone()),
                name: pin.name.clone(),
            },
            mode: pin.mode.map(Into::into),
            inputs: pin.inputs.clone(),
        });
        Ok(Self {
            pins: pins.collect(),
            name: SkillRef {
                namespace,
                name: manifest.metadata.name.clone(),
            },
            suspend: spec.suspend,
            max_activation: spec.max_activation.map_or(ActivationMode::Listed, Into::into),
            match_labels: selector.match_labels,
            model_code: match spec.sandbox.model_code {
                crate::api::runtime_sandbox::ModelCode::Allow => ModelCode::Allow,
                crate::api::runtime_sandbox::ModelCode::Deny => ModelCode::Deny,
            },
            timeout: spec.sandbox.timeout_seconds.map_or(base.timeout, Duration::from_secs),
            max_timeout: spec
                .sandbox
                .max_timeout_seconds
                .map_or(base.max_timeout, Duration::from_secs),
            memory_bytes: spec.sandbox.resources.as_ref().and_then(Resources::memory_bytes),
            max_tool_rounds: injection.max_tool_rounds.unwrap_or(base.max_tool_rounds),
            deadline: injection.deadline_seconds.map_or(base.deadline, Duration::from_secs),
            max_listing_tokens: injection.max_listing_tokens.unwrap_or(base.max_listing_tokens),
            models: injection.models.clone().unwrap_or_default(),
            min_max_tokens: injection.min_max_tokens.unwrap_or(base.min_max_tokens),
            upstreams: spec
                .gateway
                .upstreams
                .iter()
                .map(|(api, upstream)| (api.clone(), upstream.url.clone()))
                .collect(),
            max_runs: spec.concurrency.max_runs,
            max_queued: spec.concurrency.max_queued,
            queue_timeout: spec.concurrency.queue_timeout_seconds.map(Duration::from_secs),
            warm_replicas: spec.warm_pool.replicas,
            warm_idle: spec.warm_pool.max_idle_seconds.map(Duration::from_secs),
        })
    }

    /// Chooses among the runtimes found: the one marked default, else the only one, else the first with a warning.
    pub fn choose(found: &[(String, SkillRuntimeManifest)]) -> (Option<Result<Self, Report>>, Vec<Report>) {
        let marked: Vec<_> = found.iter().filter(|(_, manifest)| manifest.spec.default).collect();
        let candidates = if marked.is_empty() {
            found.iter().collect()
        } else {
            marked
        };
        let Some((origin, manifest)) = candidates.first() else {
            return (None, Vec::new());
        };
        let mut reports = Vec::new();
        if candidates.len() > 1 {
            let names: Vec<_> = candidates.iter().map(|(_, m)| m.metadata.name.as_str()).collect();
            let text = format!(
                "several SkillRuntimes ({}); {} is used; set spec.default: true on one of them",
                names.join(", "),
                names[0]
            );
            reports.push(Report::warning(origin.clone(), text));
        }
        let settings = Self::from_manifest(manifest).map_err(|text| {
            Report::error(
                origin.clone(),
                format!("SkillRuntime {}: {text}", manifest.metadata.name),
            )
        });
        (Some(settings), reports)
    }

    /// Whether this runtime serves a skill; the reason if not. Pins win over labels.
    pub fn accepts(&self, source: &SkillSource) -> Result<(), String> {
        if source.suspend {
            return Err("suspended by its manifest".to_owned());
        }
        let Some(labels) = &source.labels else {
            return if self.match_labels.is_empty() {
                Ok(())
            } else {
                Err("the runtime selects by labels, and a bare folder has none".to_owned())
            };
        };
        if self.pins.iter().any(|pin| pin.skill == source.id) {
            return Ok(());
        }
        // Without a manifest there is no namespace to be bound to.
        let without_manifest = self.name == Self::default().name;
        if !without_manifest && source.id.namespace != self.name.namespace {
            return Err(format!(
                "in namespace {}, the runtime serves {}",
                source.id.namespace, self.name.namespace
            ));
        }
        match self
            .match_labels
            .iter()
            .find(|(key, value)| labels.get(*key) != Some(value))
        {
            Some((key, value)) => Err(format!("label {key}={value} is missing")),
            None => Ok(()),
        }
    }
}
