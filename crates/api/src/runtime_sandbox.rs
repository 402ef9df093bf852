//! `spec.sandbox` and `spec.env` of a `SkillRuntime`: how code runs and what it is given.

use std::collections::BTreeMap;

use knack_vocabulary::defaults;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::Quantity;
use super::shared::{Labels, ResourceList, Resources};

/// How code runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeSandbox {
    /// Default wall-clock limit of one run, seconds. Default: 10, or `maxTimeoutSeconds` where that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<u64>,
    /// Highest wall-clock limit that a skill may request, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub max_timeout_seconds: Option<u64>,
    /// Whether models may run code that they write.
    #[serde(default)]
    pub model_code: ModelCode,
    /// Resources of a sandbox; `limits.memory` binds on a laptop too. Default: requests of cpu 10m, memory 32Mi and
    /// ephemeral-storage 16Mi, limits of cpu 1, memory 512Mi and ephemeral-storage 64Mi. A quarter of the memory is for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Highest limits that a skill may request; that of `memory` binds on a laptop too. Default: those of `resources`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub max_resources: ResourceList,
    /// Container image, with a digest. Default: the installation's (chart value `sandbox.images.python`). Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Images that skills may request, besides `image`: `registry/repository`, without tag or digest. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512)))]
    pub allowed_images: Vec<String>,
    /// Images by name, with digests: a skill requests one of them by `sandbox.imageName`. All images in this list are allowed. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub images: Vec<NamedImage>,
    /// Entry of `images` used by skills that request no image. Mutually exclusive with `image`. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub image_name: Option<String>,
    /// How long a result can be requested again, seconds. Its Job and the log of its pod are kept a minute longer. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 86_400))]
    pub ttl_seconds_after_finished: Option<u64>,
    /// User ids that sandboxes run as. Default: 200000 to 265535. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user_range: Option<UserRange>,
    /// RuntimeClass of the pods. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
    /// Labels of the nodes that sandboxes may run on. Cluster only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: Labels,
    /// Taints that sandboxes tolerate. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Secrets for pulling images, in the runtime's namespace. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<LocalObjectRef>,
    /// Whether runs are refused on nodes where enforcement of network policies was not verified. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// Whether nothing runs without Landlock. seccomp is never optional. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landlock: Option<LandlockDemand>,
    /// Whether runs may write to the `/dev/shm` of their pod, which semaphores, pools and shared memory of Python's
    /// `multiprocessing` need. It counts as memory of the pod. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<bool>,
    /// Interpreters in the image, most used first; the first one is kept ready. Default: those of the installation's
    /// image if `image` is absent too, else python. Cluster only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub languages: Vec<SandboxLanguage>,
    /// `false`: sandboxes run in separate user namespaces (Kubernetes 1.33 and later). Default: true. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// Labels and annotations of the pods, for autoscalers and accounting. Cluster only.
    #[serde(default, skip_serializing_if = "PodMetadata::is_empty")]
    pub pod_metadata: PodMetadata,
    /// Whether results in the container log are sealed. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogsMode>,
}

/// An image that skills request by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedImage {
    /// Its name: lower-case letters, digits and hyphens.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Container image, with a digest.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

/// The time limits of a runtime's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// The limit of a run whose skill asks for none.
    pub default_seconds: u64,
    /// The highest limit that a skill may ask for.
    pub max_seconds: u64,
}

impl RuntimeSandbox {
    /// The image of a name.
    pub fn named(&self, name: &str) -> Option<&str> {
        let found = self.images.iter().find(|named| named.name == name);
        found.map(|named| named.image.as_str())
    }

    /// The image of skills that ask for none, if the runtime says which: `imageName`, else `image`. A name that is not among
    /// `images`, which the definition refuses, is no image.
    pub fn own_image(&self) -> Option<&str> {
        match &self.image_name {
            Some(name) => self.named(name),
            None => self.image.as_deref(),
        }
    }

    /// The time limits of runs.
    pub fn time_limits(&self) -> TimeLimits {
        let ceiling = self.max_timeout_seconds.unwrap_or(defaults::MAX_TIMEOUT_SECONDS);
        let limit = self.timeout_seconds.unwrap_or(defaults::TIMEOUT_SECONDS.min(ceiling));
        // The schema refuses a default above the ceiling; a manifest on a laptop is not judged by it.
        TimeLimits {
            default_seconds: limit,
            max_seconds: ceiling.max(limit),
        }
    }

    /// The highest memory limit that a skill may ask for, bytes.
    pub fn max_memory_bytes(&self) -> u64 {
        let own = self.resources.as_ref().and_then(Resources::memory_bytes);
        let default = || Quantity::parse(defaults::MEMORY.1).map_or(0, |default| default.units());
        let own = own.unwrap_or_else(default);
        let most = self.max_resources.get(Resources::MEMORY).map(Quantity::units);
        // The controller refuses a ceiling below the limit; a manifest on a laptop is not judged by it.
        most.map_or(own, |most| most.max(own))
    }

    /// The resources that are set and have an effect only on a cluster, with their fields.
    pub(crate) fn cluster_only_resources(&self) -> Vec<String> {
        let mut fields = self
            .resources
            .as_ref()
            .map_or_else(Vec::new, Resources::cluster_only_fields);
        let most = self.max_resources.keys().filter(|name| *name != Resources::MEMORY);
        fields.extend(most.map(|name| format!("spec.sandbox.maxResources.{name}")));
        fields
    }
}

/// Whether models may run code that they write; declared tools are not affected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelCode {
    /// `run_code` is offered.
    #[default]
    Allow,
    /// Only declared tools run.
    Deny,
}

/// Network isolation that is required before code runs. The runner's own lock is always required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enforcement {
    /// The condition `Isolated` reports the result; runs are not blocked.
    #[default]
    BestEffort,
    /// Code runs only on nodes whose isolation was verified.
    Required,
}

/// Kernel features that a node must have before code runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LandlockDemand {
    /// Results say whether Landlock was active; runs do not require it.
    #[default]
    BestEffort,
    /// Nothing runs on a node without Landlock.
    Required,
}

/// An interpreter of a sandbox image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLanguage {
    /// `/usr/bin/python3`.
    Python,
    /// `/usr/bin/node`.
    Node,
}

/// Labels and annotations of the pods in which code runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: Labels,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub annotations: Labels,
}

impl PodMetadata {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What a container log shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogsMode {
    /// Payloads are encrypted for the hub.
    #[default]
    Sealed,
    /// Payloads are readable: for debugging.
    Plain,
}

/// User ids, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserRange {
    /// Lowest.
    #[schemars(range(min = 1000, max = 2_147_483_647))]
    pub min: i64,
    /// Highest.
    #[schemars(range(min = 1000, max = 2_147_483_647))]
    pub max: i64,
}

/// A taint that sandboxes tolerate, as in a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint. Default: every key, with operator `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// How key and value are compared. Default: `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint, with operator `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// The effect. Default: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// How a toleration relates to a taint's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Same key and value.
    Equal,
    /// Same key, any value.
    Exists,
}

/// Effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// No new pods.
    NoSchedule,
    /// New pods only if nothing else fits.
    PreferNoSchedule,
    /// Running pods leave too.
    NoExecute,
}

/// An object of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// An environment variable for skills that request it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvGrant {
    /// Name of the variable, as skills request it.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Source of the value.
    pub value_from: EnvSource,
    /// Skills that get it: `name` (of the runtime's namespace) or `namespace/name`.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 127)))]
    pub skills: Vec<String>,
}

impl EnvGrant {
    /// Whether the grant names a skill, seen from the runtime's namespace.
    pub fn names(&self, runtime_namespace: &str, skill_namespace: &str, skill_name: &str) -> bool {
        self.named(runtime_namespace)
            .any(|named| named == (skill_namespace, skill_name))
    }

    /// The skills that the grant names, as namespace and name, seen from the runtime's namespace.
    pub fn named<'a>(&'a self, runtime_namespace: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.skills
            .iter()
            .map(move |granted| granted.split_once('/').unwrap_or((runtime_namespace, granted)))
    }
}

/// Where a value is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvSource {
    /// A key of a Secret in the runtime's namespace.
    pub secret_key_ref: SecretKeyRef,
}

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
