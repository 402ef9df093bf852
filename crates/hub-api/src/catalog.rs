//! The catalog stream: an index, then changes.

use std::collections::BTreeMap;

use knack_skill::schema_text::SchemaText;
use serde::{Deserialize, Serialize};

/// One line of `GET /v1/catalog`.
///
/// Order: `hello`, `runtime`, one `skill` for each skill served, `synced`; with `watch=true` then, without end, changes
/// (`runtime`, `skill`, `removed`) each batch of which ends with `synced`, and `ping` when nothing happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CatalogLine {
    /// Opens the stream.
    Hello(Hello),
    /// Settings of the runtime; a later one replaces an earlier one.
    Runtime(Box<RuntimeLine>),
    /// A skill that is served, as it is now.
    Skill(Box<SkillLine>),
    /// A skill that is no longer served.
    Removed(Removed),
    /// The skills that the reader may see and that are not served; a later list replaces an earlier one, and a stream that has none
    /// yet says of none. For the answer to a request that names one: nothing else follows from it.
    Unserved(UnservedSkills),
    /// Everything up to here belongs together: now is the time to make a snapshot.
    Synced(Synced),
    /// The stream lives.
    Ping,
    /// A line of a newer hub.
    #[serde(other)]
    Unknown,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest [`super::PROTOCOL`] that both the hub and the reader speak, or the hub's newest if they have none in common. The
    /// reader says its own by [`super::HEADER_PROTOCOL`]; one that says none speaks 1, and takes no other.
    pub protocol: u32,
    /// The oldest that it speaks; absent: only that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_min: Option<u32>,
    /// Version of the hub's program.
    pub version: String,
    /// Highest resourceVersion of any Skill that this replica has seen: absence from the index proves a deletion only
    /// of what is not newer than this.
    pub resource_version: String,
    /// The namespace of the client that the catalog is for, as requested by [`knack_vocabulary::HEADER_FOR`]. A hub
    /// that does not support the header leaves this out; its catalog is not restricted to the namespace.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub client_namespace: Option<String>,
    /// The namespaces whose Skills this replica reads; absent: all. A Skill elsewhere is not served, however new it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_namespaces: Option<Vec<String>>,
}

/// A complete state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// As in [`Hello`], now.
    pub resource_version: String,
}

/// A skill that is no longer served here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the object.
    pub uid: String,
    /// resourceVersion at which the replica knew it to be gone from this view.
    pub resource_version: String,
}

/// Skills that are not served, by identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnservedSkills {
    /// At most [`UNSERVED_MAX`] of them; those of mode Never come last.
    pub skills: Vec<UnservedSkill>,
}

/// Most skills of [`UnservedSkills`]: a line of them stays below 200 KiB, and who has more reads the Skills.
pub const UNSERVED_MAX: usize = 256;

/// A skill that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnservedSkill {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The reason in the status of the Skill, and what is wrong with which field.
    pub why: String,
}

/// A skill: identity, content by digest, and what its spec sets over the frontmatter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the object.
    pub uid: String,
    /// resourceVersion of the object.
    pub resource_version: String,
    /// Digest of the tree that is served.
    pub digest: String,
    /// When the object was made, seconds since the Unix epoch; 0 if the hub does not say.
    #[serde(default)]
    pub created: i64,
    /// The fields that the spec sets.
    #[serde(default)]
    pub overrides: Overrides,
    /// The version of an uploaded skill that it is; absent: no version of one, or the hub does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadLine>,
    /// Names of tools that this runtime does not run, since values of their configuration are missing or do not fit. A
    /// gateway offers none of them; what holds is the hub's own check of each execution. No value is ever sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld_tools: Vec<String>,
}

impl SkillLine {
    /// Whether another line says the same, whatever the version of the object: a write of its status alone changes nothing.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Self {
            namespace,
            name,
            uid,
            resource_version: _,
            digest,
            created,
            overrides,
            upload,
            withheld_tools,
        } = self;
        (namespace, name, uid, digest, created)
            == (&other.namespace, &other.name, &other.uid, &other.digest, &other.created)
            && (overrides, upload, withheld_tools) == (&other.overrides, &other.upload, &other.withheld_tools)
    }
}

/// One version of a skill that a program uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadLine {
    /// Name of the skill, in the namespace of the version.
    pub of: String,
    /// Versions are numbered in the order of their making, from 1. 0: what is served is an earlier revision of the object.
    pub number: u32,
}

/// The fields that a Skill's spec sets; absent members are left to the frontmatter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// Semantic version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Activation mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationName>,
    /// Tags of AUTO scoring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Declared tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolLine>>,
    /// Template inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<InputLine>>,
    /// Ids of other systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Sandbox requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLine>,
}

/// Activation words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivationName {
    /// Only when named.
    OnRequest,
    /// One line.
    Listed,
    /// Scored.
    Auto,
    /// In every request.
    Always,
    /// Never injected, never executed. Also how a reader decodes a value of a newer hub: a mode that it does not
    /// support is left out.
    #[serde(other)]
    Never,
}

/// Levels of risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RiskName {
    /// Reads only.
    Safe,
    /// Changes state.
    Moderate,
    /// Changes files or the network.
    Dangerous,
    /// Set by hand.
    Critical,
    /// How a reader decodes a level of a newer hub: as a tool's the highest, as a limit the lowest.
    #[serde(other)]
    Unknown,
}

/// A declared tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolLine {
    /// Name.
    pub name: String,
    /// For the model.
    pub description: String,
    /// Argv.
    pub command: Vec<String>,
    /// A Python file whose functions are tools, in the place of name and argv.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<SchemaText>,
    /// Arguments in declared order.
    pub parameters: Vec<ParameterLine>,
    /// Environment names asked for.
    pub env: Vec<String>,
    /// Callable through `run_skill_tool` only.
    pub hidden: bool,
    /// The risk of a call; absent: not declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<RiskName>,
}

/// A parameter of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParameterLine {
    /// Name.
    pub name: String,
    /// For the model.
    pub description: String,
    /// Whether it must be given.
    pub required: bool,
}

/// A template input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InputLine {
    /// Name.
    pub name: String,
    /// Shown name.
    pub label: String,
    /// Several lines; else one.
    pub(crate) textarea: bool,
    /// Whether a value must be given.
    pub required: bool,
    /// Default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Help text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A skill's demands on its sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxLine {
    /// Container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Container image by the name that the runtime gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Bytes of stdout and stderr each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// The settings of a runtime that a gateway acts on. Keys, environment values and upstream credentials never are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeLine {
    /// uid of the object.
    pub uid: String,
    /// resourceVersion of the object: an older one of the same uid is ignored.
    pub resource_version: String,
    /// The master switch.
    #[serde(default)]
    pub suspend: bool,
    /// Cap of activation.
    pub max_activation: ActivationName,
    /// Whether the model may run code of its own.
    pub model_code: bool,
    /// The highest risk of a declared tool that runs; absent: any, of an older hub. A gateway offers no other; what holds
    /// is the hub's own check of each execution, also against a gateway that does not read this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_risk: Option<RiskName>,
    /// Whether the sandbox image has node.
    #[serde(default)]
    pub node: bool,
    /// Default limit of a run, seconds.
    pub timeout_seconds: u64,
    /// Highest limit of a run, seconds.
    pub max_timeout_seconds: u64,
    /// Memory limit of a run, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Rounds of skill execution in one request.
    pub max_tool_rounds: u32,
    /// Deadline of a whole loop, seconds.
    pub deadline_seconds: u64,
    /// Budget of the listing, tokens.
    pub max_listing_tokens: u64,
    /// Models that get skills; empty: all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Requests with fewer output tokens get none.
    pub min_max_tokens: u64,
    /// A gateway that receives nothing from any hub for longer than this drops its snapshot.
    pub max_snapshot_age_seconds: u64,
    /// Pinned skills.
    #[serde(default)]
    pub pins: Vec<PinLine>,
    /// Provider addresses by API word, for gateways that were given none.
    #[serde(default)]
    pub upstreams: BTreeMap<String, String>,
}

/// One pinned skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinLine {
    /// Namespace of the skill.
    pub namespace: String,
    /// Name of the skill.
    pub name: String,
    /// Mode, which may be above the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ActivationName>,
    /// Values of template inputs.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_members_of_a_newer_hub_are_ignored() {
        let line: CatalogLine = serde_json::from_str(r#"{"type":"weather","sun":true}"#).unwrap();
        assert_eq!(line, CatalogLine::Unknown);
        let line: CatalogLine = serde_json::from_str(
            r#"{"type":"skill","namespace":"a","name":"b","uid":"u","resource_version":"7","digest":"d","shine":1,
                "overrides":{"activation":"Telepathic","tools":[{"name":"t","command":["x"],"colour":"red"}]}}"#,
        )
        .unwrap();
        let CatalogLine::Skill(skill) = line else {
            panic!("{line:?}")
        };
        assert_eq!(skill.overrides.activation, Some(ActivationName::Never));
        assert_eq!(skill.overrides.tools.unwrap()[0].command, ["x"]);
    }

    #[test]
    fn a_ping_is_one_short_line() {
        assert_eq!(serde_json::to_string(&CatalogLine::Ping).unwrap(), r#"{"type":"ping"}"#);
    }
}
