//! `kubectl explain` says of a field what its declaration says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::definitions;

/// The files that declare fields of both kinds.
const SOURCES: [&str; 7] = [
    include_str!("../runtime_sandbox.rs"),
    include_str!("../runtime_status.rs"),
    include_str!("../shared.rs"),
    include_str!("../skill.rs"),
    include_str!("../skill_parts.rs"),
    include_str!("../skill_runtime.rs"),
    include_str!("../skill_status.rs"),
];
/// The sources of the enums that are not in [`SOURCES`].
const WORDS: [&str; 2] = [include_str!("../activation.rs"), include_str!("../risk.rs")];

/// What the declarations say: of fields by their name in Rust, and of enums.
#[derive(Default)]
struct Declared {
    fields: Vec<(String, String)>,
    enums: BTreeSet<String>,
}

/// Reads comments before fields and enums, as far as they are in schemas.
fn declared() -> Declared {
    let mut found = Declared::default();
    for source in SOURCES.iter().chain(&WORDS) {
        let (mut text, mut renamed, mut in_schema) = (String::new(), None, false);
        for line in source.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("///") {
                text = format!("{text} {}", comment.trim()).trim().to_owned();
                continue;
            }
            if line.starts_with("#[derive(") {
                in_schema = line.contains("JsonSchema");
            }
            if let Some((_, rest)) = line.split_once("rename = \"").filter(|_| line.starts_with("#[serde(")) {
                renamed = rest.split_once('"').map(|(name, _)| name.to_owned());
            }
            if line.starts_with("pub enum ") && in_schema {
                found.enums.insert(text.clone());
            } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": "))
                && in_schema
                && !name.contains(['(', ' '])
            {
                found
                    .fields
                    .push((renamed.take().unwrap_or_else(|| name.to_owned()), text.clone()));
            }
            // Attributes may stand on several lines between a comment and what it is of.
            if line.starts_with("pub ") || line == "}" || line.is_empty() {
                (text, renamed) = (String::new(), None);
            }
        }
    }
    found
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| {
        let (head, tail) = part.split_at(1);
        name + &head.to_uppercase() + tail
    })
}

/// The descriptions of all fields below a schema, by the name of the field, on one line each.
fn described(schema: &Value, into: &mut BTreeMap<String, Vec<String>>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let text = field["description"].as_str().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        into.entry(name.clone()).or_default().push(text);
        described(field, into);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            described(&schema[inner], into);
        }
    }
}

#[test]
fn fields_are_described_by_their_own_declaration_and_not_by_their_type() {
    let mut texts = BTreeMap::new();
    for definition in definitions() {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        described(&schema["properties"]["spec"], &mut texts);
        described(&schema["properties"]["status"], &mut texts);
    }
    let declared = declared();
    let defaults = declared.fields.iter().filter(|(_, text)| text.contains("Default:"));
    assert!(
        defaults.count() > 10 && declared.enums.len() > 8,
        "the sources are read"
    );
    let mut wrong = Vec::new();
    for (field, text) in &declared.fields {
        let shown = texts.get(&camel(field)).map(Vec::as_slice).unwrap_or_default();
        if !shown.iter().any(|shown| shown.starts_with(text.as_str())) {
            wrong.push(format!("{field}: {text:?} is nowhere, but {shown:?}"));
        }
    }
    for (field, shown) in texts
        .iter()
        .flat_map(|(field, shown)| shown.iter().map(move |shown| (field, shown)))
    {
        if declared.enums.iter().any(|remark| shown.starts_with(remark.as_str())) {
            wrong.push(format!("{field}: is described by its type: {shown:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
