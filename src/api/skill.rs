//! `kind: Skill`.

use std::collections::BTreeMap;

use knack_skill::model::ActivationMode;
use serde::Deserialize;
use serde_json::Value;

use super::manifest::ObjectMeta;

/// A `Skill` object as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillManifest {
    /// `knack.dev/v1alpha1`.
    pub api_version: String,
    /// `Skill`.
    pub kind: String,
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: SkillSpec,
    /// Written by the controller; ignored on input.
    #[serde(default)]
    pub status: Option<Value>,
}

/// Desired state of a skill. What is left out comes from the frontmatter of SKILL.md.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillSpec {
    /// Where the files come from.
    pub source: Source,
    /// Semantic version; must equal the frontmatter's if both are set.
    #[serde(default)]
    pub version: Option<String>,
    /// When it reaches the model.
    #[serde(default)]
    pub activation: Option<Activation>,
    /// Takes the skill out of service without deleting it.
    #[serde(default)]
    pub suspend: bool,
    /// Declared tools; replace those of the frontmatter.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// Template inputs; replace those of the frontmatter.
    #[serde(default)]
    pub inputs: Option<Vec<Value>>,
    /// Limits that the skill asks for; the runtime caps them.
    #[serde(default)]
    pub sandbox: Option<SkillSandbox>,
    /// Which runtimes may serve it. Cluster only.
    #[serde(default)]
    pub allowed_runtimes: Option<Value>,
}

/// Where the files come from: exactly one member besides `path`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Files in the object itself.
    #[serde(default)]
    pub inline: Option<InlineSource>,
    /// Files in a ConfigMap. Cluster only.
    #[serde(default)]
    pub config_map: Option<Value>,
    /// Files in an archive behind a URL. Cluster only.
    #[serde(default)]
    pub archive: Option<Value>,
    /// Directory inside the source that holds SKILL.md.
    #[serde(default)]
    pub path: Option<String>,
}

/// Files in the object itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InlineSource {
    /// Text files by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Other files by path, base64.
    #[serde(default)]
    pub binary_files: BTreeMap<String, String>,
}

/// When a skill reaches the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Activation {
    /// The mode; the frontmatter's or `Listed` when absent.
    #[serde(default)]
    pub mode: Option<ActivationWord>,
    /// Tags that AUTO scoring matches; replace those of the frontmatter.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
}

/// The enum words of the API (`off` and `on` are YAML booleans and therefore not among them).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ActivationWord {
    /// See [`ActivationMode::Never`].
    Never,
    /// See [`ActivationMode::OnRequest`].
    OnRequest,
    /// See [`ActivationMode::Listed`].
    Listed,
    /// See [`ActivationMode::Auto`].
    Auto,
    /// See [`ActivationMode::Always`].
    Always,
}

impl From<ActivationWord> for ActivationMode {
    fn from(word: ActivationWord) -> Self {
        match word {
            ActivationWord::Never => Self::Never,
            ActivationWord::OnRequest => Self::OnRequest,
            ActivationWord::Listed => Self::Listed,
            ActivationWord::Auto => Self::Auto,
            ActivationWord::Always => Self::Always,
        }
    }
}

/// What a skill asks of its sandbox.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkillSandbox {
    /// Container image. Cluster only.
    #[serde(default)]
    pub image: Option<String>,
    /// Wall-clock limit of one run, seconds.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Cap of stdout and of stderr, bytes.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
    /// Kubernetes resources; `limits.memory` binds on a laptop too.
    #[serde(default)]
    pub resources: Option<Resources>,
}

/// Kubernetes resource requirements, as far as a sandbox reads them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Hard limits, Kubernetes quantities.
    #[serde(default)]
    pub limits: BTreeMap<String, Value>,
    /// Requests. Cluster only.
    #[serde(default)]
    pub requests: BTreeMap<String, Value>,
}

impl Resources {
    /// `limits.memory` in bytes; the error names the field and the accepted form.
    pub fn memory_bytes(&self) -> Result<Option<u64>, String> {
        let Some(value) = self.limits.get("memory") else {
            return Ok(None);
        };
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        quantity_bytes(&text).map(Some).ok_or_else(|| {
            format!("resources.limits.memory: {text:?} is not a Kubernetes quantity of bytes; write for example 256Mi")
        })
    }
}

/// A Kubernetes quantity as whole bytes: a decimal number with a suffix of `k M G T` (powers of 1000) or `Ki Mi Gi Ti`.
fn quantity_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kubernetes_quantities() {
        for (text, bytes) in [
            ("256Mi", Some(268_435_456)),
            ("1G", Some(1_000_000_000)),
            ("12", Some(12)),
            ("1.5Gi", None),
            ("x", None),
            ("9999999999Ti", None),
        ] {
            assert_eq!(quantity_bytes(text), bytes, "{text}");
        }
    }
}
