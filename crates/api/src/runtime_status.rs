//! `status` of a `SkillRuntime`. The controller (field manager `knack`) and the hub (`knack-hub`) write disjoint parts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most entries of `status.rejectedSkills`.
pub const STATUS_REJECTED_MAX: usize = 20;

/// Status of a runtime, by controller and hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillRuntimeStatus {
    /// Generation of the spec to which the conditions refer; -1 before the controller saw the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Last value of annotation `knack.dev/requestedAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_handled_reconcile_at: Option<String>,
    /// kstatus conditions `Ready`, `Reconciling`, `Stalled`; `Isolated` by the hub.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
    /// How many skills it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillCounts>,
    /// Selected skills that it does not serve, or not as requested; the first 20 by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub rejected_skills: Vec<RejectedSkill>,
    /// How the list of skills in requests fits into `maxListingTokens`, for all served skills; a caller that sees fewer skills has a
    /// shorter list. Absent when nothing is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingStatus>,
    /// Changes with every change of what is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub catalog_revision: Option<String>,
    /// Warm pods, by the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<WarmPoolStatus>,
    /// Result of the isolation probe, by the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationStatus>,
    /// The hub replica that owns its executions, by the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub owner: Option<String>,
    /// The environment of packages whose image a node could not pull last, by the hub: builders make it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpulled_environment: Option<UnpulledEnvironment>,
}

/// How many skills a runtime selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillCounts {
    /// Served.
    pub accepted: i64,
    /// Selected, and not served.
    pub rejected: i64,
}

/// Number of lines in the list of skills, by how complete they are. A list that is too long is shortened evenly: descriptions are cut in
/// proportion, down to 60 bytes; then those at the end of the alphabet are removed; then names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListingStatus {
    /// Lines with their whole description.
    pub whole: i64,
    /// Lines with the beginning of it.
    pub cut: i64,
    /// Lines with the name only.
    pub bare: i64,
    /// Skills without a line; a model finds them by `load_skill` with a few words.
    pub left_out: i64,
}

/// A selected skill and why it is not served, or served differently.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedSkill {
    /// Namespace of the skill.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the skill.
    #[schemars(length(max = 63))]
    pub name: String,
    /// CamelCase word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What is wrong and what to do.
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// Warm pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmPoolStatus {
    /// Attached, locked and waiting.
    pub ready: i64,
    /// Wanted.
    pub desired: i64,
}

/// An environment of packages whose image could not be pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnpulledEnvironment {
    /// The image, by digest.
    #[schemars(length(max = 1024))]
    pub image: String,
    /// When a pull of it failed; moves at most every ten minutes.
    pub failed_at: Time,
}

/// Result of the isolation probe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolationStatus {
    /// Whether the runner's own locks were effective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<bool>,
    /// Whether the network plugin enforces policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<bool>,
    /// Time of the probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Time>,
}
