//! Additions to the derived schema: status default, list types, rules, bounds, formats of Kubernetes.

use serde_json::{Map, Value, json};

use super::defaults::defaults;
use super::explain::{WORDS, explain};
use super::patterns::{PATTERNS, Pattern};
use super::rules::RULES;

/// Bound of strings that name none: values of labels and inputs, keys.
const STRING_MAX: u64 = 16_384;
/// Bound of files in an object; the sum is bounded by a rule, whose message helps more.
const FILE_TEXT_MAX: u64 = 1_048_576;
/// Lists whose order has no meaning and whose items have a key each.
const KEYED_LISTS: [(&str, &[&str]); 2] = [("conditions", &["type"]), ("runtimes", &["namespace", "name"])];

/// Completes a definition as kube makes it; `derived` is the schema of its type.
pub(super) fn finish(kind: &str, definition: &mut Value, derived: &Value) {
    if let Some(object) = definition.as_object_mut() {
        object.remove("status");
    }
    let Some(schema) = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") else {
        return;
    };
    explain(schema, derived);
    tidy(schema, "");
    if let Some(status) = schema.pointer_mut("/properties/status").and_then(Value::as_object_mut) {
        // A new object must not look current before a controller saw it.
        status.insert("default".to_owned(), json!({"observedGeneration": -1}));
        status.remove("nullable");
    }
    for (path, value) in defaults(kind) {
        if let Some(field) = locate(schema, path) {
            tell_default(field, &value);
            field.insert("default".to_owned(), value);
        }
    }
    for Pattern { at, regex, .. } in PATTERNS.iter().filter(|pattern| pattern.kind == kind) {
        if let Some(node) = locate(schema, at) {
            node.insert("pattern".to_owned(), json!(regex));
        }
    }
    for rule in RULES.iter().filter(|rule| rule.kind == kind) {
        if let Some(node) = locate(schema, rule.at) {
            let list = node.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(json!({"rule": rule.rule, "message": rule.message}));
            }
        }
    }
}

/// Adds a default to a field's description: `kubectl explain` prints no other.
fn tell_default(field: &mut Map<String, Value>, value: &Value) {
    if let Some(Value::String(description)) = field.get_mut("description") {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), |word| format!("`{word}`"));
        let end = description.find(WORDS).unwrap_or(description.len());
        description.insert_str(end, &format!(" Default: {value}."));
    }
}

/// Walks a schema: drops defaults and unknown formats, sets bounds and list types.
fn tidy(schema: &mut Value, name: &str) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    // The derived schema's default; the table of defaults has the ones that are meant.
    object.remove("default");
    if object
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint") || format == "int" || format == "uint")
    {
        object.insert("format".to_owned(), json!("int64"));
    }
    match object.get("type").and_then(Value::as_str) {
        Some("string") if !object.contains_key("enum") && !object.contains_key("format") => {
            object.entry("maxLength").or_insert(json!(STRING_MAX));
        }
        Some("array") => list_type(object, name),
        _ => {}
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if name != "metadata" {
                tidy(property, name);
            }
        }
    }
    if let Some(items) = object.get_mut("items") {
        tidy(items, "");
    }
    if let Some(values) = object
        .get_mut("additionalProperties")
        .filter(|values| values.is_object())
    {
        tidy(values, "");
        if (name == "files" || name == "binaryFiles")
            && let Some(values) = values.as_object_mut()
        {
            values.insert("maxLength".to_owned(), json!(FILE_TEXT_MAX));
        }
    }
}

fn list_type(object: &mut Map<String, Value>, name: &str) {
    let keyed = KEYED_LISTS.iter().find(|(list, _)| *list == name);
    if let Some((_, keys)) = keyed {
        object.insert("x-kubernetes-list-type".to_owned(), json!("map"));
        object.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
    } else {
        object
            .entry("x-kubernetes-list-type")
            .or_insert_with(|| json!("atomic"));
    }
}

/// The schema at a rule's path.
fn locate<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut node = schema;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches("[]").trim_end_matches("{}");
        node = node.get_mut("properties")?.get_mut(name)?;
        if part.ends_with("[]") {
            node = node.get_mut("items")?;
        } else if part.ends_with("{}") {
            node = node.get_mut("additionalProperties")?;
        }
    }
    node.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_and_every_pattern_has_a_place() {
        for rule in RULES {
            let mut schema = crate::schema::schema_of(rule.kind).unwrap().clone();
            assert!(locate(&mut schema, rule.at).is_some(), "{} {}", rule.kind, rule.at);
        }
        for Pattern { kind, at, .. } in PATTERNS {
            let mut schema = crate::schema::schema_of(kind).unwrap().clone();
            let node = locate(&mut schema, at);
            assert!(
                node.is_some_and(|node| node["type"] == "string" && node.contains_key("maxLength")),
                "{kind} {at}"
            );
        }
    }
}
