//! Adapters of `skillmd.json`: SKILL.md in three dialects. This file has agentskills; the others are beside it.

use knack_skill::agentskills::{self, Document};
use knack_skill::finding::Finding;
use knack_skill::tree;
use serde_json::{Value, json};

use crate::facts::agentskills::{properties, to_prompt as prompt_of};
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("skillmd", "agentskills.parse", parse),
    Op::new("skillmd", "agentskills.read_properties", read_properties),
    Op::new("skillmd", "agentskills.find", find),
    Op::new("skillmd", "agentskills.validate", validate).compared(Compare::Unordered),
    Op::new("skillmd", "agentskills.to_prompt", to_prompt),
];

/// A finding as a failed call.
pub(super) fn failure(finding: Finding) -> Failure {
    Failure::new(finding.message).of_kind(finding.kind.as_str())
}

fn parse(input: &Value) -> Outcome {
    let document = agentskills::parse(input["content"].as_str().unwrap_or_default()).map_err(failure)?;
    Ok(json!({"metadata": document.metadata, "body": document.body}))
}

fn read_properties(input: &Value) -> Outcome {
    let document = agentskills::parse(document_of(input)?).map_err(failure)?;
    Ok(Value::Object(properties(&document).map_err(failure)?))
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
        Ok(text) => match agentskills::parse(text) {
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

fn to_prompt(input: &Value) -> Outcome {
    let mut entries = Vec::new();
    for skill in input["skills"].as_array().into_iter().flatten() {
        let document = agentskills::parse(skill["SKILL.md"].as_str().unwrap_or_default()).map_err(failure)?;
        let found = properties(&document).map_err(failure)?;
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
