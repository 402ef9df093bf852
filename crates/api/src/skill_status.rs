//! `status` of a `Skill`, written by the controller only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use knack_skill::config::ConfigParam;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activation::ActivationWord;
use super::risk::RiskWord;
use super::shared::is_false;

/// Most entries of `status.runtimes`: fan-out lists in objects are bounded.
pub const STATUS_RUNTIMES_MAX: usize = 16;

/// Most entries of `status.earlier` that were in `artifact` before. Runtimes whose environments come at different times serve
/// different revisions; an edit every few seconds makes no more of them than this.
pub const STATUS_EARLIER_MAX: usize = 4;

/// Most entries of `status.earlier` that are versions of an uploaded skill: each is a copy of its files in ConfigMaps, which pins
/// of any runtime ask for.
pub const STATUS_CHOSEN_MAX: usize = 4;

/// Most entries of `status.tools`.
pub const STATUS_TOOLS_MAX: usize = 64;

/// Most entries of `status.tools[].env`, and the longest of them.
pub const STATUS_TOOL_ENV_MAX: usize = 16;
/// See [`STATUS_TOOL_ENV_MAX`].
pub const STATUS_TOOL_ENV_BYTES: usize = 128;

/// The observed state of a skill. While a newer source fails, all fields but the conditions describe the last good
/// artifact, which stays in service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillStatus {
    /// Generation of the spec to which the conditions refer; -1 before the controller saw the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Last value of annotation `knack.dev/requestedAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_handled_reconcile_at: Option<String>,
    /// kstatus conditions `Ready`, `Reconciling`, `Stalled`, and `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
    /// Shown name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub name: Option<String>,
    /// What the model reads in the listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// Version, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// Activation that the skill requests; a runtime may limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationWord>,
    /// What is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactStatus>,
    /// ConfigMaps that hold it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub config_maps: Vec<ConfigMapStatus>,
    /// Version of Knack that judged this content. A newer one judges it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub judged_by: Option<String>,
    /// Declared tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tools: Vec<ToolStatus>,
    /// Template inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub inputs: Vec<InputStatus>,
    /// Ids of other systems by which requests may name it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 128)))]
    pub ids: Vec<String>,
    /// Its cost in a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenStatus>,
    /// Packages that it declares, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<PackagesStatus>,
    /// Revisions that runtimes serve in place of the one in `artifact`: first those before it, newest first, whose packages or version
    /// runtimes require, then the versions of an uploaded skill that pins choose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub earlier: Vec<EarlierRevision>,
    /// State at the runtimes that select it; the first 16 by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub runtimes: Vec<RuntimeVerdict>,
    /// When a gateway last reported that a request carried the skill, or that a model loaded or ran it. Moves only if it is more than 5
    /// minutes old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_time: Option<Time>,
}

/// An artifact in service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStatus {
    /// Short name of this content and these settings: 10 hex digits, as in label `knack.dev/revision`.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// Hex SHA-256 of the canonical file tree.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// Bytes of all files.
    pub size: i64,
    /// Number of files.
    pub file_count: i64,
}

/// One ConfigMap of the artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapStatus {
    /// Its name, in the skill's namespace.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Hex SHA-256 of its canonical content.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// The object whose content was compared; it is immutable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A revision other than the one in `artifact` that is served somewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EarlierRevision {
    /// Short name of its content and settings.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// Hex SHA-256 of the canonical file tree.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// ConfigMaps that hold it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub config_maps: Vec<ConfigMapStatus>,
    /// Version, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// Activation that it requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationWord>,
    /// Packages that it declares, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<PackagesStatus>,
    /// Number of the version of an uploaded skill that it is, while the registry keeps that version beside the default one and a
    /// pin chooses it. Absent: it was in `artifact` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub upload_version: Option<u32>,
}

/// A declared tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStatus {
    /// Name as declared.
    #[schemars(length(max = 64))]
    pub name: String,
    /// The file of the skill that it runs, if its command names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// Its level of risk; absent: Safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<RiskWord>,
    /// Environment variables that it asks for; at most the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 128)))]
    pub env: Vec<String>,
    /// Its configuration parameters, whose values a runtime gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub config: Vec<ConfigParamStatus>,
}

/// A configuration parameter of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigParamStatus {
    /// The parameter's name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// The word of its type.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub kind: String,
    /// Whether a runtime has to give a value: it has no default.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// Lowest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<serde_json::Number>,
    /// Highest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<serde_json::Number>,
    /// What can be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 128)))]
    pub options: Option<Vec<String>>,
    /// Fewest entries of a list or map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// Most entries of a list or map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
}

impl From<&ConfigParam> for ConfigParamStatus {
    fn from(param: &ConfigParam) -> Self {
        Self {
            name: param.name.clone(),
            kind: param.kind.chars().take(64).collect(),
            required: param.default.is_none(),
            min: param.min.clone(),
            max: param.max.clone(),
            options: param.options.clone(),
            min_items: param.min_items,
            max_items: param.max_items,
        }
    }
}

impl From<&ConfigParamStatus> for ConfigParam {
    /// For judging values: a default is there or not.
    fn from(status: &ConfigParamStatus) -> Self {
        Self {
            name: status.name.clone(),
            kind: status.kind.clone(),
            default: (!status.required).then_some(serde_json::Value::Null),
            min: status.min.clone(),
            max: status.max.clone(),
            options: status.options.clone(),
            min_items: status.min_items,
            max_items: status.max_items,
            ..Self::default()
        }
    }
}

/// A template input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputStatus {
    /// Name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// Whether a value must be given.
    #[serde(default)]
    pub required: bool,
}

/// Estimated tokens: bytes divided by 4, rounded up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenStatus {
    /// Name and description in the listing of every request.
    pub listing: i64,
    /// The body, when it is loaded.
    pub body: i64,
}

/// Packages that a skill declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackagesStatus {
    /// The declaration that is used.
    #[schemars(length(max = 256))]
    pub source: String,
    /// Whether locks pin all their versions.
    #[serde(default)]
    pub locked: bool,
    /// Python packages: names and versions of the lock, or requirements without one. Entries for other systems are
    /// omitted; if a package's version depends on the Python of the image, each version is listed with its marker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(length(max = 512)))]
    pub python: Vec<String>,
    /// Node packages: names and versions of the lock, such as `docx@9.5.1`, or what is declared without one, sorted; at
    /// most the first 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), inner(length(max = 512)))]
    pub node: Vec<String>,
    /// Whether packages of Node have no package-lock.json, so that none of the skill's packages can be installed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub node_unlocked: bool,
    /// Hex SHA-256 of what decides about an environment: the locks, and the requirements without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,
    /// Why the declaration is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub refused: Option<String>,
}

/// The state of a skill's packages at a runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimePackagesStatus {
    /// CamelCase word: `Ready`, `Building`, `NoWheel`, `PackagesOff` and the like (docs/packages.md).
    #[schemars(length(max = 64))]
    pub state: String,
    /// The reason for the state, and what to do.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// `standard environment, by the runtime` where the skill declares nothing and the runtime provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub source: Option<String>,
    /// The image, by digest, with the environment that runs of the revision in service use there; absent without an environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub environment: Option<String>,
}

/// State of a skill at one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeVerdict {
    /// Namespace of the runtime.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the runtime.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Whether it serves the skill.
    pub accepted: bool,
    /// Why not, or with what reservation; `Accepted` if there is none.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The revision that it serves instead of the one in `artifact`; absent if it serves that or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub serves: Option<String>,
    /// The state of the packages there of the revision in `artifact`, or of the one that is served where a pin excludes that one or
    /// chooses another version; absent if it declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<RuntimePackagesStatus>,
}
