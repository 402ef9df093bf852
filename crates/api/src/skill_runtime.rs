//! `kind: SkillRuntime`: which skills a gateway serves, and under which limits their code runs.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a name and a type of its own"
)]

use std::collections::BTreeMap;

use knack_skill::config::{ConfigEntry, ConfigSource, ConfiguredSkill, SkillConfig};
use knack_skill::model::{ActivationMode, SkillRef};
use knack_skill::risk::Risk;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activation::ActivationWord;
use super::risk::RiskWord;
use super::runtime_sandbox::{EnvGrant, EnvSource, RuntimeSandbox};
use super::runtime_status::SkillRuntimeStatus;
use super::shared::is_false;
use super::shared::{LabelRequirement, LabelSelector, Labels};

/// Desired state of a runtime.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "knack.dev",
    version = "v1alpha1",
    kind = "SkillRuntime",
    plural = "skillruntimes",
    shortname = "skrt",
    category = "knack",
    namespaced,
    status = "SkillRuntimeStatus",
    derive = "PartialEq",
    doc = "Which skills gateways serve, and under which limits their code runs. See https://github.com/knack-dev/knack.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Skills", type_ = "integer", json_path = ".status.skills.accepted"),
    printcolumn(name = "Rejected", type_ = "integer", json_path = ".status.skills.rejected"),
    printcolumn(name = "Warm", type_ = "integer", json_path = ".status.warmPool.ready"),
    printcolumn(
        name = "Isolated",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Isolated\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Sandboxes",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"SandboxesReady\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SkillRuntimeSpec {
    /// Whether `knack dev` uses this SkillRuntime if its files have several. It has no effect on a cluster, where
    /// gateways name their runtime.
    #[serde(default, skip_serializing_if = "is_false")]
    pub default: bool,
    /// Which skills it serves. Default: all of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_selector: Option<SkillSelector>,
    /// The highest activation a skill may have here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_activation: Option<ActivationWord>,
    /// The highest risk of declared tools that are offered and run; calls of others are refused. Critical allows every tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_risk: Option<RiskWord>,
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
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// The ServiceAccounts whose gateways may use it, besides those with the RBAC verb `use`. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_callers: Option<AllowedCallers>,
    /// Environment grants from Secrets of the runtime's namespace. Cluster only; `knack dev` grants by `--allow-env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env: Vec<EnvGrant>,
    /// Requirements for the packages that its skills declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<RuntimePackages>,
    /// Superseded revisions that are kept of every skill served here. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub revision_history_limit: Option<u32>,
}

/// A runtime's rules for the packages of its skills.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimePackages {
    /// Which packages skills may have. Skills that declare others are not served, and nothing is installed for them.
    #[serde(default, skip_serializing_if = "AllowedPackages::is_default")]
    pub allowed: AllowedPackages,
    /// Versions of Python packages that may be chosen, as in a constraints file of pip: `mcp<2`. They add no package; a skill
    /// that pins another version is not served. Packages of Node have the versions of their lock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(length(min = 1, max = 512)))]
    pub constraints: Vec<String>,
    /// A day, such as `2026-07-01`: of packages of Python without a lock, versions are chosen among the files that the index got by
    /// the end of that day in UTC. The index must say when it got a file (PEP 700).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub exclude_newer: Option<String>,
    /// Serves skills that declare Python packages only with a lock (`requirements.lock` or `pylock.toml`). Packages of Node always
    /// need a lock.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_lock: bool,
    /// Provides the standard environment to skills that declare no packages. They are served without it until it exists.
    #[serde(default, skip_serializing_if = "is_false")]
    pub standard: bool,
}

/// Packages that skills may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllowedPackages {
    /// The packages that they declare.
    #[default]
    Declared,
    /// The standard environment only.
    Standard,
    /// None. Skills that declare nothing are served without packages.
    None,
}

impl AllowedPackages {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which skills a runtime serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillSelector {
    /// Labels that a Skill must have; folders without a manifest have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: Labels,
    /// Further requirements on the Skill's labels; all must hold. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<LabelRequirement>,
    /// Labels of the namespaces whose skills it serves. Default: its own only, or all for the cluster default. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Pins: these skills, in this way, whatever the labels say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub skills: Vec<SkillPin>,
}

/// One pinned skill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillPin {
    /// Namespace. Default: the runtime's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the Skill.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The version that the skill must have here: `1.2.0`, or a constraint such as `^1`, `~1.2` or `>=1`. A revision with another
    /// version, or with none, is not served; the last one before it that matches stays in service. Of an uploaded skill the highest
    /// version that matches is served, whether it is the default one or not. Default: any version, of an uploaded skill the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub version: Option<String>,
    /// Activation, may go above `maxActivation`. Default: what the skill asks for, up to `maxActivation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ActivationWord>,
    /// Values of the skill's template inputs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub inputs: BTreeMap<String, String>,
    /// Values of the configuration parameters of the skill's functions. They reach the runs of these functions only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub config: Vec<ConfigValue>,
}

/// The value of a configuration parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigValue {
    /// `PARAMETER`, for every function of the skill that declares it, or `TOOL.PARAMETER`, which takes precedence.
    #[schemars(length(min = 1, max = 192))]
    pub name: String,
    /// The value. Numbers, booleans, lists and maps are written as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub value: Option<String>,
    /// Source of the value. Cluster only; on a laptop use `--set-env`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

impl SkillPin {
    /// The namespace and the name of the skill that it names, seen from the runtime's namespace.
    pub fn skill<'a>(&'a self, runtime_namespace: &'a str) -> (&'a str, &'a str) {
        (self.namespace.as_deref().unwrap_or(runtime_namespace), &self.name)
    }

    /// The values of configuration, as they are resolved; `None`: there are none.
    pub fn config_values(&self, runtime_namespace: &str) -> Option<SkillConfig> {
        let entries = self.config.iter().map(|given| ConfigEntry {
            name: given.name.clone(),
            source: match (&given.value_from, &given.value) {
                (None, Some(value)) => ConfigSource::Value(value.clone()),
                // Neither is refused by the schema; on a laptop such a value is missing.
                (Some(_), _) | (None, None) => ConfigSource::Secret(None),
            },
        });
        let (namespace, name) = self.skill(runtime_namespace);
        (!self.config.is_empty()).then(|| SkillConfig {
            skill: ConfiguredSkill::Pinned(SkillRef {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            entries: entries.collect(),
        })
    }
}

/// The ServiceAccounts whose gateways may use a runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedCallers {
    /// ServiceAccounts of these namespaces.
    pub namespaces: CallerNamespaces,
}

/// Namespaces by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerNamespaces {
    /// Labels of the namespaces; an empty selector is every namespace.
    pub selector: LabelSelector,
}

/// Back-pressure of executions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Concurrency {
    /// Runs at once; on a laptop the number of CPUs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_runs: Option<usize>,
    /// Runs that may wait. Default: 8 for each of `maxRuns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_queued: Option<usize>,
    /// How long a run may wait, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 600))]
    pub queue_timeout_seconds: Option<u64>,
}

/// Interpreters started ahead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmPool {
    /// How many pods of each interpreter are kept ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: Option<usize>,
    /// Seconds after which an idle one is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 86_400))]
    pub max_idle_seconds: Option<u64>,
    /// Environments of packages, named images and sets of granted values, together, that pods are kept ready for after their last run:
    /// the most recently used ones, with twice `replicas` pods in total, but at least one for each. 0 keeps none. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub environments: Option<usize>,
}

/// The gateway's behaviour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySettings {
    /// Provider addresses by API: `openai`, `anthropic`, `gemini`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub upstreams: BTreeMap<String, UpstreamRef>,
    /// What is injected, and the limits of the loop.
    #[serde(default)]
    pub injection: InjectionSettings,
    /// Maximum age of a gateway's catalog without the hub, after which nothing is injected, seconds.
    /// Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub max_snapshot_age_seconds: Option<u64>,
}

/// One provider address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamRef {
    /// Base URL without the API's own path, for example `https://api.openai.com`.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
}

/// What is injected, and the limits of the loop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionSettings {
    /// Budget of the listing, tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 200_000))]
    pub max_listing_tokens: Option<usize>,
    /// Rounds of skill execution in one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_tool_rounds: Option<u32>,
    /// Deadline of the whole loop, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub deadline_seconds: Option<u64>,
    /// Models that get skills; `*` matches any characters. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub models: Option<Vec<String>>,
    /// Requests with a lower `max_tokens` get no skills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub min_max_tokens: Option<u64>,
}

impl SkillRuntime {
    /// Its own namespace, which pins and grants mean that name none; empty for a value that is no object of a cluster.
    pub fn own_namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Whether it names the callers of a namespace with these labels: by `allowedCallers`, and without that its own namespace.
    /// Besides them may call whoever has the RBAC verb `use`.
    pub fn names_callers_of(&self, namespace: &str, labels: Option<&Labels>) -> bool {
        match &self.spec.allowed_callers {
            Some(allowed) => allowed.namespaces.selector.matches(labels.unwrap_or(&Labels::new())),
            None => self.metadata.namespace.as_deref() == Some(namespace),
        }
    }
}

impl SkillRuntimeSpec {
    /// `maxActivation` of a runtime that names none.
    pub const MAX_ACTIVATION: ActivationWord = ActivationWord::Listed;
    /// `maxRisk` of a runtime that names none.
    pub const MAX_RISK: RiskWord = RiskWord::Critical;

    /// Whether the runtime is switched off: nothing is injected, and no code runs. Whoever has a SkillRuntime asks here; gateways get
    /// the answer with their settings. It decides nothing about skills: those that would be served are selected, counted and
    /// judged all the same, so that a status says what comes back.
    pub fn is_suspended(&self) -> bool {
        self.suspend
    }

    /// The highest activation of a skill that is not pinned.
    pub fn max_activation(&self) -> ActivationMode {
        self.max_activation.unwrap_or(Self::MAX_ACTIVATION).into()
    }

    /// The highest risk of a declared tool that runs.
    pub fn max_risk(&self) -> Risk {
        self.max_risk.unwrap_or(Self::MAX_RISK).into()
    }

    /// Names of the fields that are set and that `knack dev` cannot honour, for one warning.
    pub fn cluster_only_fields(&self) -> Vec<String> {
        let sandbox = &self.sandbox;
        let selector = self.skill_selector.as_ref();
        let set = [
            ("spec.allowedCallers", self.allowed_callers.is_some()),
            ("spec.env", !self.env.is_empty()),
            ("spec.revisionHistoryLimit", self.revision_history_limit.is_some()),
            ("spec.warmPool.environments", self.warm_pool.environments.is_some()),
            (
                "spec.skillSelector.namespaceSelector",
                selector.is_some_and(|s| s.namespace_selector.is_some()),
            ),
            (
                "spec.skillSelector.matchExpressions",
                selector.is_some_and(|s| !s.match_expressions.is_empty()),
            ),
            ("spec.sandbox.image", sandbox.image.is_some()),
            ("spec.sandbox.allowedImages", !sandbox.allowed_images.is_empty()),
            ("spec.sandbox.images", !sandbox.images.is_empty()),
            ("spec.sandbox.imageName", sandbox.image_name.is_some()),
            (
                "spec.sandbox.ttlSecondsAfterFinished",
                sandbox.ttl_seconds_after_finished.is_some(),
            ),
            ("spec.sandbox.runAsUserRange", sandbox.run_as_user_range.is_some()),
            ("spec.sandbox.runtimeClassName", sandbox.runtime_class_name.is_some()),
            ("spec.sandbox.nodeSelector", !sandbox.node_selector.is_empty()),
            ("spec.sandbox.tolerations", !sandbox.tolerations.is_empty()),
            ("spec.sandbox.imagePullSecrets", !sandbox.image_pull_secrets.is_empty()),
            ("spec.sandbox.enforcement", sandbox.enforcement.is_some()),
            ("spec.sandbox.landlock", sandbox.landlock.is_some()),
            ("spec.sandbox.sharedMemory", sandbox.shared_memory.is_some()),
            ("spec.sandbox.languages", !sandbox.languages.is_empty()),
            ("spec.sandbox.hostUsers", sandbox.host_users.is_some()),
            ("spec.sandbox.podMetadata", !sandbox.pod_metadata.is_empty()),
            ("spec.sandbox.logs", sandbox.logs.is_some()),
            (
                "spec.gateway.maxSnapshotAgeSeconds",
                self.gateway.max_snapshot_age_seconds.is_some(),
            ),
        ];
        let set = set.into_iter().filter(|(_, is_set)| *is_set);
        let set = set.map(|(name, _)| name.to_owned());
        set.chain(sandbox.cluster_only_resources()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_names_whom_it_lets_in_and_without_names_its_own_namespace() {
        let map = |labels: &[(&str, &str)]| -> Labels {
            let labels = labels.iter();
            labels
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        for (allowed, namespace, labels, expected) in [
            (None, "run", None, true),
            (None, "team", None, false),
            (Some(&[("a", "b")][..]), "team", Some(&[("a", "b")][..]), true),
            (Some(&[("a", "b")]), "team", Some(&[("a", "c")]), false),
            (Some(&[("a", "b")]), "team", None, false),
            (Some(&[("a", "b")]), "run", None, false),
            (Some(&[]), "team", None, true),
        ] {
            let spec = SkillRuntimeSpec {
                allowed_callers: allowed.map(|labels| AllowedCallers {
                    namespaces: CallerNamespaces {
                        selector: LabelSelector {
                            match_labels: map(labels),
                            ..LabelSelector::default()
                        },
                    },
                }),
                ..SkillRuntimeSpec::default()
            };
            let mut runtime = SkillRuntime::new("default", spec);
            runtime.metadata.namespace = Some("run".to_owned());
            let labels = labels.map(map);
            assert_eq!(
                runtime.names_callers_of(namespace, labels.as_ref()),
                expected,
                "{allowed:?} {namespace}"
            );
        }
    }
}
