//! `kind: SkillRuntime`: which skills a gateway serves, under which limits.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::manifest::ObjectMeta;
use super::skill::{ActivationWord, Resources};

/// A `SkillRuntime` object as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillRuntimeManifest {
    /// `knack.dev/v1alpha1`.
    pub api_version: String,
    /// `SkillRuntime`.
    pub kind: String,
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: SkillRuntimeSpec,
    /// Written by controller and hub; ignored on input.
    #[serde(default)]
    pub status: Option<Value>,
}

/// Desired state of a runtime.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillRuntimeSpec {
    /// The one that `knack dev` takes when several are given.
    #[serde(default)]
    pub default: bool,
    /// Which skills it serves; all when absent.
    #[serde(default)]
    pub skill_selector: Option<SkillSelector>,
    /// The highest activation a skill may have here; `Listed` when absent.
    #[serde(default)]
    pub max_activation: Option<ActivationWord>,
    /// How code runs.
    #[serde(default)]
    pub sandbox: RuntimeSandbox,
    /// Back-pressure.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Interpreters started ahead.
    #[serde(default)]
    pub warm_pool: WarmPool,
    /// The gateway's behaviour.
    #[serde(default)]
    pub gateway: GatewaySettings,
    /// The master switch: nothing is injected and executions answer 503.
    #[serde(default)]
    pub suspend: bool,
    /// Whose gateways may use it. Cluster only.
    #[serde(default)]
    pub allowed_callers: Option<Value>,
    /// Environment grants from Secrets. Cluster only; `knack dev` grants by `--allow-env`.
    #[serde(default)]
    pub env: Option<Value>,
    /// Revisions kept. Cluster only.
    #[serde(default)]
    pub revision_history_limit: Option<u32>,
}

/// Which skills a runtime serves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillSelector {
    /// Labels a Skill must have; bare folders have none.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    /// Pins: these skills, in this way, whatever the labels say.
    #[serde(default)]
    pub skills: Vec<SkillPin>,
    /// Namespaces. Cluster only.
    #[serde(default)]
    pub namespace_selector: Option<Value>,
}

/// One pinned skill.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillPin {
    /// Namespace; the runtime's own when absent.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Name of the Skill.
    pub name: String,
    /// Activation, may go above `maxActivation`.
    #[serde(default)]
    pub mode: Option<ActivationWord>,
}

/// How code runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeSandbox {
    /// Default wall-clock limit of one run, seconds; 10 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Highest wall-clock limit a skill may ask for, seconds; 60 when absent.
    #[serde(default)]
    pub max_timeout_seconds: Option<u64>,
    /// Whether the model may run code of its own.
    #[serde(default)]
    pub model_code: ModelCode,
    /// `limits.memory` binds on a laptop too.
    #[serde(default)]
    pub resources: Option<Resources>,
    /// Settings that only a cluster honours.
    #[serde(default)]
    pub image: Option<String>,
    /// Cluster only.
    #[serde(default)]
    pub allowed_images: Option<Value>,
    /// Cluster only.
    #[serde(default)]
    pub max_resources: Option<Value>,
    /// Cluster only.
    #[serde(default)]
    pub ttl_seconds_after_finished: Option<u64>,
    /// Cluster only.
    #[serde(default)]
    pub run_as_user_range: Option<Value>,
    /// Cluster only.
    #[serde(default)]
    pub runtime_class_name: Option<String>,
    /// Cluster only.
    #[serde(default)]
    pub enforcement: Option<String>,
}

/// Whether the model may run code of its own; declared tools stay either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ModelCode {
    /// `run_code` is offered.
    #[default]
    Allow,
    /// Only declared tools run.
    Deny,
}

/// Back-pressure of executions.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Concurrency {
    /// Runs at once; the number of CPUs when absent.
    #[serde(default)]
    pub max_runs: Option<usize>,
    /// Runs that may wait.
    #[serde(default)]
    pub max_queued: Option<usize>,
    /// How long one may wait, seconds.
    #[serde(default)]
    pub queue_timeout_seconds: Option<u64>,
}

/// Interpreters started ahead.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WarmPool {
    /// How many of each interpreter stand ready.
    #[serde(default)]
    pub replicas: Option<usize>,
    /// When an idle one is let go, seconds.
    #[serde(default)]
    pub max_idle_seconds: Option<u64>,
}

/// The gateway's behaviour.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewaySettings {
    /// Provider addresses by API: `openai`, `anthropic`, `gemini`.
    #[serde(default)]
    pub upstreams: BTreeMap<String, UpstreamRef>,
    /// What is injected, and how far the loop goes.
    #[serde(default)]
    pub injection: InjectionSettings,
    /// Cluster only.
    #[serde(default)]
    pub max_snapshot_age_seconds: Option<u64>,
    /// Cluster only.
    #[serde(default)]
    pub resources: Option<Value>,
}

/// One provider address.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamRef {
    /// Base URL without the API's own path, for example `https://api.openai.com`.
    pub url: String,
    /// Where the key is. Cluster only.
    #[serde(default)]
    pub auth_secret_ref: Option<Value>,
}

/// What is injected, and how far the loop goes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InjectionSettings {
    /// Budget of the listing; 4,000 tokens when absent.
    #[serde(default)]
    pub max_listing_tokens: Option<usize>,
    /// Rounds of skill execution in one request; 10 when absent.
    #[serde(default)]
    pub max_tool_rounds: Option<u32>,
    /// Deadline of the whole loop, seconds; 540 when absent.
    #[serde(default)]
    pub deadline_seconds: Option<u64>,
    /// Models that get skills, `*` as a wildcard at the end; all when absent.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// Requests with a lower `max_tokens` get no skills; 64 when absent.
    #[serde(default)]
    pub min_max_tokens: Option<u64>,
}

impl SkillRuntimeSpec {
    /// Names of the fields that are set and that `knack dev` cannot honour, for one warning.
    pub fn cluster_only_fields(&self) -> Vec<&'static str> {
        let sandbox = &self.sandbox;
        let set = [
            ("spec.allowedCallers", self.allowed_callers.is_some()),
            ("spec.env", self.env.is_some()),
            ("spec.revisionHistoryLimit", self.revision_history_limit.is_some()),
            (
                "spec.skillSelector.namespaceSelector",
                self.skill_selector
                    .as_ref()
                    .is_some_and(|s| s.namespace_selector.is_some()),
            ),
            ("spec.sandbox.image", sandbox.image.is_some()),
            ("spec.sandbox.allowedImages", sandbox.allowed_images.is_some()),
            ("spec.sandbox.maxResources", sandbox.max_resources.is_some()),
            (
                "spec.sandbox.ttlSecondsAfterFinished",
                sandbox.ttl_seconds_after_finished.is_some(),
            ),
            ("spec.sandbox.runAsUserRange", sandbox.run_as_user_range.is_some()),
            ("spec.sandbox.runtimeClassName", sandbox.runtime_class_name.is_some()),
            ("spec.sandbox.enforcement", sandbox.enforcement.is_some()),
            (
                "spec.gateway.maxSnapshotAgeSeconds",
                self.gateway.max_snapshot_age_seconds.is_some(),
            ),
            ("spec.gateway.resources", self.gateway.resources.is_some()),
        ];
        set.into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
            .collect()
    }
}
