//! `kind: Skill`: the object and its `spec`.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a name and a type of its own"
)]

use std::collections::BTreeMap;

use knack_skill::model::AskedPackages;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::ActivationWord;
use super::shared::{LabelSelector, Resources, is_false};
use super::skill_parts::{InputSpec, ToolSpec};
use super::skill_status::SkillStatus;

/// Desired state of a skill. Omitted fields are taken from the frontmatter of SKILL.md.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "knack.dev",
    version = "v1alpha1",
    kind = "Skill",
    plural = "skills",
    shortname = "sk",
    category = "knack",
    namespaced,
    status = "SkillStatus",
    derive = "PartialEq",
    doc = "A skill: instructions and code that models can use. See https://github.com/knack-dev/knack.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Mode", type_ = "string", json_path = ".status.activation"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Last-Used", type_ = "date", json_path = ".status.lastUsedTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Accepted-Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Accepted-Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SkillSpec {
    /// Where the files come from.
    pub source: Source,
    /// Semantic version; must equal the frontmatter's if both are set. Quote it: 1.10 is 1.1 to YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub version: Option<String>,
    /// When it reaches the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// Takes the skill out of service without deleting it; its content is not read either.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Declared tools; replace those of the frontmatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tools: Option<Vec<ToolSpec>>,
    /// Template inputs; replace those of the frontmatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub inputs: Option<Vec<InputSpec>>,
    /// Ids that other systems gave the skill, such as LiteLLM's `litellm_skill_<uuid>`: requests may name it by them. Replace
    /// `metadata.skill_id` of the frontmatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 128)))]
    pub ids: Option<Vec<String>>,
    /// Limits that the skill requests; it may only tighten those of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SkillSandbox>,
    /// Packages that its code imports. Python packages here replace all declarations of Python packages in its files, except
    /// `requirements.lock`; a list of Node packages replaces those of Node, except `package-lock.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<SkillPackages>,
    /// Which runtimes may serve it. Default: those of its own namespace and the cluster default. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_runtimes: Option<AllowedRuntimes>,
}

/// Where the files come from: exactly one of `inline`, `configMap`, `archive`, `upload`, besides `path`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Files in the object itself, 120 KiB together at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineSource>,
    /// Files in a ConfigMap of the same namespace. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// Files in an archive behind a URL. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveSource>,
    /// Files that a program uploaded through a Skills API. Written by the registry. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadSource>,
    /// Folder inside the source that holds SKILL.md; needed when there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
}

/// Files in the object itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineSource {
    /// Text files by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub files: BTreeMap<String, String>,
    /// Other files by path, base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub binary_files: BTreeMap<String, String>,
}

/// Files in a ConfigMap of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which keys become which files; without it every key becomes a file of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub items: Option<Vec<ConfigMapItem>>,
}

/// One key of a ConfigMap as a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapItem {
    /// Key in `data` or `binaryData`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Path of the file in the skill's folder.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// File mode, decimal as in Kubernetes (493 is 0755); only the owner's execute bit counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 511))]
    pub mode: Option<i32>,
}

/// Files in an archive behind a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveSource {
    /// `https://` (or `http://`) address of a .tar.gz, .tgz, .tar or .zip.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// `sha256:` and 64 hex digits of the archive's bytes: only the reviewed content is served.
    #[schemars(length(min = 71, max = 71))]
    pub digest: String,
}

/// Most ConfigMaps of one upload. A skill of the largest size takes about a third of them.
pub const UPLOAD_CONFIG_MAPS_MAX: usize = 32;

/// Files that a program uploaded through a Skills API, in ConfigMaps of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadSource {
    /// Hex SHA-256 of the canonical file tree, as in `status.artifact.digest`: no other files are served.
    #[schemars(length(min = 64, max = 64))]
    pub digest: String,
    /// Names of the ConfigMaps that hold the files, each with the label `knack.dev/upload`.
    #[schemars(length(min = 1, max = UPLOAD_CONFIG_MAPS_MAX), inner(length(min = 1, max = 253)))]
    pub config_maps: Vec<String>,
}

/// When a skill reaches the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activation {
    /// The mode. Default: the frontmatter's, else `Listed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ActivationWord>,
    /// Tags that AUTO scoring matches; replace those of the frontmatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    pub tags: Option<Vec<String>>,
}

/// A skill's requirements for its sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillSandbox {
    /// Container image; the runtime must allow it. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Name of an image of the runtime's `sandbox.images`, instead of `image`; a runtime without that name does not serve
    /// the skill. Cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub image_name: Option<String>,
    /// Wall-clock limit of one run, seconds. Default: the runtime's `timeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<u64>,
    /// Cap of stdout and of stderr, bytes. Default: 1048576; a higher one has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 4_194_304))]
    pub max_output_bytes: Option<u64>,
    /// Kubernetes resources; `limits.memory` binds on a laptop too. Default: the runtime's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// Packages that a skill's code imports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillPackages {
    /// Requirements as pip writes them: `pillow>=10`. An empty list means no Python packages.
    #[serde(default)]
    #[schemars(length(max = 200), inner(length(min = 1, max = 512)))]
    pub python: Vec<String>,
    /// Packages of Node as npm writes them: `docx@^9`. A cluster installs them only from the skill's `package-lock.json`, which must
    /// be generated for them (`knack skill lock`). An empty list means no packages; without a list, the skill's files decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200), inner(length(min = 1, max = 512)))]
    pub node: Option<Vec<String>>,
    /// The standard environment, instead of a list of Python packages: about thirty packages such as numpy, pandas, pillow and openpyxl
    /// (docs/packages.md).
    #[serde(default, skip_serializing_if = "is_false")]
    pub standard: bool,
}

impl SkillPackages {
    /// As the judgement of skills takes them.
    fn to_asked(&self) -> AskedPackages {
        AskedPackages {
            python: self.python.clone(),
            node: self.node.clone(),
            standard: self.standard,
        }
    }
}

/// Which runtimes may serve a skill: its owner's consent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedRuntimes {
    /// Runtimes of which namespaces.
    pub namespaces: RuntimeNamespaces,
}

/// Runtimes of which namespaces may serve a skill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeNamespaces {
    /// The namespaces whose runtimes may serve it.
    pub from: RuntimesFrom,
    /// With `from: Selector` only: labels of the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The words of `allowedRuntimes.namespaces.from`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuntimesFrom {
    /// The skill's own namespace.
    Same,
    /// The skill's own namespace, and the cluster default for callers of that namespace.
    #[default]
    SameOrClusterDefault,
    /// Every namespace, and every caller of the cluster default.
    All,
    /// Namespaces whose labels match, and the skill's own.
    Selector,
}

/// The fields of a spec that override the frontmatter: everything of it that is served, besides the files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillOverrides {
    /// See [`SkillSpec::version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// See [`SkillSpec::activation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// See [`SkillSpec::tools`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolSpec>>,
    /// See [`SkillSpec::inputs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<InputSpec>>,
    /// See [`SkillSpec::ids`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// See [`SkillSpec::sandbox`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SkillSandbox>,
    /// See [`SkillSpec::packages`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<SkillPackages>,
}

impl Source {
    /// The ConfigMaps that hold the files: they can change or go without the object.
    pub fn config_maps(&self) -> impl Iterator<Item = &str> {
        let named = self.config_map.iter().map(|source| source.name.as_str());
        let uploaded = self.upload.iter().flat_map(|source| &source.config_maps);
        named.chain(uploaded.map(String::as_str))
    }
}

impl SkillSpec {
    /// Whether its author has taken the skill out of service. Whoever has a Skill asks here: selection, the controller, which does
    /// not read the content either, and `knack dev`.
    pub fn is_suspended(&self) -> bool {
        self.suspend
    }

    /// The fields that override the frontmatter.
    pub fn overrides(&self) -> SkillOverrides {
        // Without a rest: a member that is forgotten here is written by authors and has no effect.
        let Self {
            source: _,
            version,
            activation,
            suspend: _,
            tools,
            inputs,
            ids,
            sandbox,
            packages,
            allowed_runtimes: _,
        } = self;
        SkillOverrides {
            version: version.clone(),
            activation: activation.clone(),
            tools: tools.clone(),
            inputs: inputs.clone(),
            ids: ids.clone(),
            sandbox: sandbox.clone(),
            packages: packages.clone(),
        }
    }
}

impl SkillOverrides {
    /// As the judgement of skills takes it.
    pub fn to_load(&self) -> knack_skill::SpecOverrides {
        let activation = self.activation.as_ref();
        let sandbox = self.sandbox.clone().unwrap_or_default();
        knack_skill::SpecOverrides {
            version: self.version.clone(),
            activation: activation.and_then(|a| a.mode).map(Into::into),
            tags: activation.and_then(|a| a.tags.clone()),
            tools: self.tools.as_ref().map(|tools| tools.iter().map(Into::into).collect()),
            inputs: self
                .inputs
                .as_ref()
                .map(|inputs| inputs.iter().map(Into::into).collect()),
            ids: self.ids.clone(),
            sandbox: Some(knack_skill::model::SandboxRequest {
                image: sandbox.image,
                image_name: sandbox.image_name,
                timeout_seconds: sandbox.timeout_seconds,
                max_output_bytes: sandbox.max_output_bytes,
                memory_bytes: sandbox.resources.as_ref().and_then(Resources::memory_bytes),
            }),
            packages: self.packages.as_ref().map(SkillPackages::to_asked),
        }
    }

    /// Canonical JSON: members in the order of this type, none that is absent.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
