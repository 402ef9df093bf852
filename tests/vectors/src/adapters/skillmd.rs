//! Adapters of `skillmd.json`: SKILL.md in three dialects. This file has agentskills; the others are beside it.

use std::path::Path;

use knack_skill::agentskills;
use knack_skill::finding::Finding;
use knack_skill::frontmatter::{self, Delimiters, Split};
use knack_skill::problem::ProblemKind;
use knack_skill::tree::{self, PathProblem};
use knack_skill::yaml::{self, Content, Node};
use serde_json::{Map, Value, json};

use crate::facts::agentskills::{properties, to_prompt as prompt_of};
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("skillmd", "agentskills.parse", parse),
    Op::new("skillmd", "agentskills.read_properties", read_properties),
    Op::new("skillmd", "agentskills.find", find),
    Op::new("skillmd", "agentskills.validate", validate).compared(Compare::Custom(same_classes)),
    Op::new("skillmd", "agentskills.validate_path", validate_path).compared(Compare::Custom(same_classes)),
    Op::new("skillmd", "agentskills.to_prompt", to_prompt),
];

/// A finding as a failed call.
pub(super) fn failure(finding: Finding) -> Failure {
    Failure::new(finding.message).of_kind(finding.kind.as_str())
}

/// A parsed SKILL.md.
#[derive(Debug, Clone, PartialEq)]
struct Document {
    /// Frontmatter, scalars as text.
    metadata: Map<String, Value>,
    /// Trimmed body.
    body: String,
}

/// Reads SKILL.md as the reference library does. One leading byte order mark is tolerated.
fn read_document(text: &str) -> Result<Document, Finding> {
    let (yaml, body) = match frontmatter::split(text, Delimiters::Lenient) {
        Split::Found { yaml, body } => (yaml, body),
        Split::Absent { .. } => {
            let message = "SKILL.md must start with YAML frontmatter (---)";
            return Err(refused(
                ProblemKind::FrontmatterMissing,
                message,
                "begin the file with a line ---",
            ));
        }
        Split::Unclosed { .. } => {
            let message = "SKILL.md frontmatter not properly closed with ---";
            return Err(refused(
                ProblemKind::FrontmatterUnclosed,
                message,
                "end the frontmatter with a line ---",
            ));
        }
    };
    let node = yaml::parse(yaml).map_err(|error| invalid_yaml(&error.message))?;
    if let Some(reason) = agentskills::strict_form(&node, yaml) {
        return Err(invalid_yaml(&reason));
    }
    let Content::Mapping(members) = &node.content else {
        let message = "SKILL.md frontmatter must be a YAML mapping";
        return Err(refused(
            ProblemKind::FrontmatterNotMapping,
            message,
            "write key: value lines",
        ));
    };
    let metadata = members
        .iter()
        .map(|(key, node)| (key.clone(), as_text(node, yaml)))
        .collect();
    Ok(Document {
        metadata,
        body: body.to_owned(),
    })
}

fn as_text(node: &Node, yaml: &str) -> Value {
    match &node.content {
        Content::Scalar(_) => Value::String(node.plain_text(yaml).unwrap_or_default()),
        Content::Sequence(items) => items.iter().map(|item| as_text(item, yaml)).collect(),
        Content::Mapping(members) => Value::Object(
            members
                .iter()
                .map(|(key, node)| (key.clone(), as_text(node, yaml)))
                .collect(),
        ),
    }
}

fn refused(kind: ProblemKind, message: &str, help: &str) -> Finding {
    Finding::refused(kind, "", message, help)
}

fn invalid_yaml(reason: &str) -> Finding {
    let message = format!("Invalid YAML in frontmatter: {reason}");
    refused(
        ProblemKind::YamlInvalid,
        &message,
        "put texts with colons or special characters in quotes",
    )
}

fn parse(input: &Value) -> Outcome {
    let document = read_document(input["content"].as_str().unwrap_or_default()).map_err(failure)?;
    Ok(json!({"metadata": document.metadata, "body": document.body}))
}

fn read_properties(input: &Value) -> Outcome {
    let document = read_document(document_of(input)?).map_err(failure)?;
    Ok(Value::Object(properties(&document.metadata).map_err(failure)?))
}

fn find(input: &Value) -> Outcome {
    let names = input["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    Ok(json!(tree::find_document(names)))
}

fn validate(input: &Value) -> Outcome {
    let kinds = match document_of(input) {
        Err(missing) => vec![missing.kind.unwrap_or_default()],
        Ok(text) => match read_document(text) {
            Err(finding) => vec![finding.kind.as_str().to_owned()],
            Ok(Document { metadata, .. }) => {
                let findings = agentskills::validate(&metadata, input["dir"].as_str().unwrap_or_default());
                findings
                    .iter()
                    .map(|finding| finding.kind.as_str().to_owned())
                    .collect()
            }
        },
    };
    Ok(json!(kinds))
}

/// Something at the path that the case names: nothing, or a file where it speaks of one.
fn validate_path(input: &Value) -> Outcome {
    let folder = tempfile::tempdir().map_err(|error| Failure::of_adapter(error.to_string()))?;
    let words = input["path"].as_str().unwrap_or_default().replace("<ROOT>", "");
    let path = folder.path().join("named");
    let is_file =
        Path::new(&words).extension().is_some() || ["file", "not a", "not-a"].iter().any(|word| words.contains(word));
    if is_file && !MISSING.iter().any(|word| words.contains(word)) {
        std::fs::write(&path, "x").map_err(|error| Failure::of_adapter(error.to_string()))?;
    }
    let kinds = PathProblem::of(&std::fs::metadata(&path)).map(|problem| match problem {
        PathProblem::Missing => "path-missing",
        PathProblem::NotFolder => "path-not-folder",
    });
    Ok(kinds.into_iter().collect())
}

/// Words for a path at which nothing is.
const MISSING: [&str; 3] = ["missing", "nonexist", "not-exist"];

/// Compares lists of kinds by their classes, in any order.
fn same_classes(expected: &Value, actual: &Value) -> Result<(), String> {
    let classes = |kinds: &Value| {
        let kinds = kinds.as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut classes: Vec<String> = kinds.map(|kind| class(kind).to_owned()).collect();
        classes.sort();
        classes
    };
    if expected.is_array() && classes(expected) == classes(actual) {
        return Ok(());
    }
    Err(format!("expected {expected}, got {actual}"))
}

/// The class of a kind. The public cases show no spelling of some kinds, so another word for one of them is the same.
fn class(kind: &str) -> &str {
    let begins = |starts: &[&str]| starts.iter().any(|start| kind.starts_with(start));
    let has = |parts: &[&str]| parts.iter().any(|part| kind.contains(part));
    if begins(&["name", "dir", "folder"]) && has(&["mismatch"]) {
        "name-dir-mismatch"
    } else if begins(&["frontmatter", "parse", "invalid-frontmatter"]) || has(&["yaml"]) {
        "unreadable"
    } else if begins(&["compatibility"]) && has(&["not", "type", "invalid"]) {
        "compatibility-not-text"
    } else if has(&["not-a-", "not-dir", "not-folder"]) {
        "path-not-folder"
    } else if begins(&["path", "dir", "folder", "no-such"]) {
        "path-missing"
    } else {
        kind
    }
}

fn to_prompt(input: &Value) -> Outcome {
    let mut entries = Vec::new();
    for skill in input["skills"].as_array().into_iter().flatten() {
        let document = read_document(skill["SKILL.md"].as_str().unwrap_or_default()).map_err(failure)?;
        let found = properties(&document.metadata).map_err(failure)?;
        let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let location = format!("<ROOT>/{}/SKILL.md", skill["dir"].as_str().unwrap_or_default());
        entries.push((text("name"), text("description"), location));
    }
    let borrowed = entries
        .iter()
        .map(|(name, description, location)| (name.as_str(), description.as_str(), location.as_str()));
    // The test directory is a path without markup; only the rest of a location is escaped.
    Ok(prompt_of(borrowed).replace("&lt;ROOT&gt;", "<ROOT>").into())
}

fn document_of(input: &Value) -> Result<&str, Failure> {
    let files = input["files"].as_object();
    let names = files.into_iter().flat_map(|files| files.keys().map(String::as_str));
    let found = tree::find_document(names).and_then(|name| input["files"][name].as_str());
    found.ok_or_else(|| Failure::new("no SKILL.md").of_kind("no-skill-md"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_a_public_spelling_are_compared_by_class() {
        for (one, other, same) in [
            ("name-dir-mismatch", "name-mismatch", true),
            ("name-dir-mismatch", "dir-name-mismatch", true),
            ("yaml-invalid", "frontmatter-invalid-yaml", true),
            ("compatibility-not-text", "compatibility-not-string", true),
            ("path-not-folder", "not-a-directory", true),
            ("path-missing", "path-not-found", true),
            ("path-missing", "path-not-a-directory", false),
            ("name-missing", "name-empty", false),
            ("description-missing", "path-missing", false),
            ("compatibility-too-long", "compatibility-not-text", false),
            ("no-skill-md", "frontmatter-missing", false),
        ] {
            assert_eq!(
                same_classes(&json!([one]), &json!([other])).is_ok(),
                same,
                "{one} {other}"
            );
        }
        assert!(same_classes(&json!(["a", "b"]), &json!(["b", "a"])).is_ok());
        assert!(same_classes(&json!(["a", "a"]), &json!(["a"])).is_err());
    }

    #[test]
    fn a_path_is_missing_or_a_file() {
        for (path, expected) in [
            ("<ROOT>/nonexistent", json!(["path-missing"])),
            ("<ROOT>/missing/file.txt", json!(["path-missing"])),
            ("<ROOT>/file.txt", json!(["path-not-folder"])),
            ("a file", json!(["path-not-folder"])),
        ] {
            assert_eq!(validate_path(&json!({"path": path})).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn merge_keys_are_refused() {
        let text = |member: &str| format!("---\nname: a\ndescription: d\n{member}\n---\nB");
        for member in ["<<: {a: b}", "<<:\n  a: b"] {
            assert_eq!(
                read_document(&text(member)).unwrap_err().kind,
                ProblemKind::YamlInvalid,
                "{member}"
            );
        }
    }
}
