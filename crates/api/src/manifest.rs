//! YAML documents to objects: several per file, each judged by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_vocabulary::{API_VERSION, DEFAULT_NAMESPACE, KIND_SKILL, KIND_SKILL_RUNTIME, NAME_MAX_BYTES};
use serde::Deserialize;
use serde_json::Value;

use super::schema::unknown_field;
use super::skill::SkillSpec;
use super::skill_runtime::SkillRuntimeSpec;

/// The part of `metadata` that Knack reads; what kubectl and GitOps tools add is accepted and dropped.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Object name.
    pub name: String,
    /// Namespace; `default` when absent.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Labels, for selectors.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

/// A `Skill` object of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillManifest {
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: SkillSpec,
}

/// A `SkillRuntime` object of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillRuntimeManifest {
    /// Identity and labels.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: SkillRuntimeSpec,
}

/// One object of a manifest file.
#[derive(Debug, Clone)]
pub enum Manifest {
    /// A skill.
    Skill(Box<SkillManifest>),
    /// A runtime.
    SkillRuntime(Box<SkillRuntimeManifest>),
    /// A ConfigMap, which may hold the files of a Skill beside it.
    ConfigMap(Box<ConfigMap>),
    /// Any other object: not ours, left alone.
    Other {
        /// Its `apiVersion` and `kind`, for the log.
        what: String,
    },
}

/// Why a document was refused. The text names the object and the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("document {document}{}: {message}", object.as_ref().map(|o| format!(" ({o})")).unwrap_or_default())]
pub struct ManifestError {
    /// 1-based number of the document in its file.
    pub document: usize,
    /// `Kind namespace/name`, as far as known.
    pub object: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ManifestError {
    /// Whether the document is known to be a Skill, and thus no other object.
    pub fn is_of_skill(&self) -> bool {
        let kind = self.object.as_deref().and_then(|object| object.split(' ').next());
        kind == Some(KIND_SKILL)
    }
}

/// Reads every document of a YAML (or JSON) text. One broken document spoils no other.
pub fn parse_manifests(text: &str) -> Vec<Result<Manifest, ManifestError>> {
    split_documents(text)
        .into_iter()
        .enumerate()
        .filter(|(_, document)| !is_blank(document))
        .map(|(index, document)| parse_document(index + 1, document))
        .collect()
}

/// Splits at lines that are exactly `---` (with trailing blanks or a comment), as YAML streams do.
fn split_documents(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for line in text.split_inclusive('\n') {
        let marker = line.trim_end();
        if marker == "---" || marker.starts_with("--- #") {
            documents.push(&text[start..offset]);
            start = offset + line.len();
        }
        offset += line.len();
    }
    documents.push(&text[start..]);
    documents
}

fn is_blank(document: &str) -> bool {
    document
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn parse_document(document: usize, text: &str) -> Result<Manifest, ManifestError> {
    let fail = |object: Option<String>, message: String| ManifestError {
        document,
        object,
        message,
    };
    // To a value first, then to the type: the way the API server reads it, so enum errors name the field.
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| fail(None, format!("not valid YAML: {}", first_line(&error.to_string()))))?;
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(fail(
            None,
            format!("apiVersion and kind are required; write apiVersion: {API_VERSION} and kind: {KIND_SKILL}"),
        ));
    }
    if (api_version.as_str(), kind.as_str()) == ("v1", "ConfigMap")
        && let Ok(map) = ConfigMap::deserialize(&value)
    {
        return Ok(Manifest::ConfigMap(Box::new(map)));
    }
    if !api_version.starts_with("knack.dev/") {
        return Ok(Manifest::Other {
            what: format!("{api_version} {kind}"),
        });
    }
    let metadata = value.get("metadata");
    let part = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str);
    let object = Some(format!(
        "{kind} {}/{}",
        part("namespace").unwrap_or(DEFAULT_NAMESPACE),
        part("name").unwrap_or("?")
    ));
    if api_version != API_VERSION {
        return Err(fail(
            object,
            format!("apiVersion: {api_version} is not served; write {API_VERSION}"),
        ));
    }
    check_name(part("name").unwrap_or_default()).map_err(|message| fail(object.clone(), message))?;
    match kind.as_str() {
        KIND_SKILL => typed(KIND_SKILL, value).map(|m| Manifest::Skill(Box::new(m))),
        KIND_SKILL_RUNTIME => typed(KIND_SKILL_RUNTIME, value).map(|m| Manifest::SkillRuntime(Box::new(m))),
        _ => Err(format!("kind: {kind} is not one of {KIND_SKILL}, {KIND_SKILL_RUNTIME}")),
    }
    .map_err(|message| fail(object, message))
}

fn typed<T: serde::de::DeserializeOwned>(kind: &str, value: Value) -> Result<T, String> {
    // An API server prunes unknown fields; in a file such a field is a mistake that would go unnoticed.
    if let Some(message) = unknown_field(kind, &value) {
        return Err(message);
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        format!("{path}: {inner}")
    })
}

/// DNS-1123 label, as `metadata.name` of both kinds must be.
fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() {
        Err("metadata.name: required".to_owned())
    } else if name.len() > NAME_MAX_BYTES {
        Err(format!(
            "metadata.name: {} characters, at most {NAME_MAX_BYTES}",
            name.len()
        ))
    } else if !name.chars().all(legal) || name.starts_with('-') || name.ends_with('-') {
        Err(format!(
            "metadata.name: {name:?} must be lower-case letters, digits and hyphens, with a letter or digit at both ends"
        ))
    } else {
        Ok(())
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let got: Vec<String> = parse_manifests(text)
            .into_iter()
            .map(|result| match result {
                Ok(Manifest::Skill(skill)) => format!("skill {}/{}", skill.metadata.namespace, skill.metadata.name),
                Ok(Manifest::SkillRuntime(runtime)) => format!("runtime {}", runtime.metadata.name),
                Ok(Manifest::ConfigMap(map)) => format!("map {}", map.metadata.name.unwrap_or_default()),
                Ok(Manifest::Other { what }) => format!("other {what}"),
                Err(error) => format!("error {error}"),
            })
            .collect();
        assert_eq!(got.len(), expected.len(), "{got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.contains(expected), "{got:?} should contain {expected:?}");
        }
    }

    const SKILL: &str = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: a}\nspec: {source: {inline: {files: {SKILL.md: x}}}}\n";

    #[test]
    fn one_broken_document_spoils_no_other() {
        check(
            &format!("{SKILL}---\na: [\n---\n{SKILL}"),
            &["skill default/a", "error document 2: not valid YAML", "skill default/a"],
        );
    }

    #[test]
    fn an_unknown_field_is_named_with_its_path() {
        check(
            &SKILL.replace("spec: {", "spec: {actvation: {}, "),
            &["error document 1 (Skill default/a): spec.actvation: unknown field `actvation`"],
        );
    }

    #[test]
    fn wrong_enum_words_and_names_are_named() {
        check(
            &SKILL.replace("spec: {", "spec: {activation: {mode: Sometimes}, "),
            &["spec.activation.mode: unknown variant `Sometimes`"],
        );
        check(
            &SKILL.replace("name: a", "name: A_b"),
            &["metadata.name: \"A_b\" must be lower-case"],
        );
        check(&SKILL.replace("name: a", "name: "), &["metadata.name: required"]);
    }

    #[test]
    fn other_groups_are_left_alone_and_other_versions_refused() {
        check("apiVersion: v1\nkind: Secret\n", &["other v1 Secret"]);
        check("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n", &["map m"]);
        // Not ours to judge, whatever is wrong with it.
        check("apiVersion: v1\nkind: ConfigMap\ndata: 1\n", &["other v1 ConfigMap"]);
        check(
            &SKILL.replace("v1alpha1", "v1"),
            &["apiVersion: knack.dev/v1 is not served"],
        );
        check("# nothing\n---\n", &[]);
    }
}
