//! A tool's schema as every provider takes it, and the way back for the arguments of a call.
//!
//! A provider answers a whole request with 400 for one tool whose schema it does not take, so one skill would end the requests of all
//! callers. What the author wrote is valid JSON Schema and stays what arguments are checked by; only what is sent differs:
//!
//! - An array without `items` gets `items: {}`, which allows what it allowed. OpenAI: "array schema missing items".
//! - `anyOf`, `oneOf`, `allOf`, `not` and `enum` at the top are left out, and the properties of their branches stay. OpenAI and Anthropic:
//!   not supported at the top level.
//! - A property at the top whose name is not of `[a-zA-Z0-9_.-]{1,64}` gets another name, and its own in its description. Anthropic:
//!   "Property keys should match pattern".

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::schema;

/// Deeper nodes are left as they are, as in [`schema::normalize`]: the walk must not exhaust the stack.
const MAX_DEPTH: usize = 32;
/// The longest name of a property that Anthropic takes.
const NAME_MAX: usize = 64;
/// Keywords that providers refuse at the top of a tool's schema.
const NOT_AT_THE_TOP: [&str; 5] = ["anyOf", "oneOf", "allOf", "not", "enum"];
/// Those of them whose branches describe the same object.
const BRANCHES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold a map of names to schemas.
const OF_MAPS: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
/// Keywords that hold a schema, or a list of schemas.
const OF_SCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];

/// The schema that is sent for a tool whose arguments have the schema `written`.
pub(crate) fn sent(written: &Value) -> Value {
    let mut root = without_branches(written);
    rename_properties(&mut root);
    let mut root = Value::Object(root);
    fill_items(&mut root, 0);
    root
}

/// Arguments under the names that the author wrote, where a model used those that were sent.
pub(crate) fn written_names(written: &Value, mut arguments: Map<String, Value>) -> Map<String, Value> {
    let root = without_branches(written);
    let Some(properties) = root.get("properties").and_then(Value::as_object) else {
        return arguments;
    };
    if properties.keys().all(|name| is_taken_by_providers(name)) {
        return arguments;
    }
    for (own, sent) in sent_names(properties) {
        if own != sent
            && !arguments.contains_key(&own)
            && let Some(value) = arguments.remove(&sent)
        {
            arguments.insert(own, value);
        }
    }
    arguments
}

/// The schema of an object without the keywords that providers refuse at the top.
fn without_branches(written: &Value) -> Map<String, Value> {
    let Value::Object(mut root) = schema::with_properties(written) else {
        return Map::new();
    };
    keep_properties_of_branches(&mut root);
    root.retain(|keyword, _| !NOT_AT_THE_TOP.contains(&keyword.as_str()));
    root
}

/// Adds the properties of branches, which a model would not know of without them. Of two with one name the first stays.
fn keep_properties_of_branches(root: &mut Map<String, Value>) {
    let mut found = Map::new();
    for branch in BRANCHES.iter().filter_map(|keyword| root.get(*keyword)?.as_array()).flatten() {
        let branch = branch.get("$ref").and_then(|reference| local(root, reference)).unwrap_or(branch);
        let properties = branch.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            found.entry(name.clone()).or_insert_with(|| property.clone());
        }
    }
    if let Some(Value::Object(properties)) = root.get_mut("properties") {
        for (name, property) in found {
            properties.entry(name).or_insert(property);
        }
    }
}

/// What a reference names within the schema itself.
fn local<'a>(root: &'a Map<String, Value>, reference: &Value) -> Option<&'a Value> {
    let (map, name) = reference.as_str()?.strip_prefix("#/")?.split_once('/')?;
    root.get(map)?.get(name)
}

fn rename_properties(root: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = root.get("properties") else { return };
    if properties.keys().all(|name| is_taken_by_providers(name)) {
        return;
    }
    let names = sent_names(properties);
    let sent = names.iter().map(|(own, sent)| {
        let mut property = properties[own].clone();
        if own != sent {
            describe(&mut property, own);
        }
        (sent.clone(), property)
    });
    let sent = sent.collect();
    if let Some(Value::Array(required)) = root.get_mut("required") {
        for name in required {
            if let Some((_, sent)) = names.iter().find(|(own, _)| name == own) {
                *name = Value::from(sent.as_str());
            }
        }
    }
    root.insert("properties".to_owned(), Value::Object(sent));
}

/// Puts the name that the author wrote before the description.
fn describe(property: &mut Value, own: &str) {
    if property.is_boolean() {
        *property = Value::Object(Map::new());
    }
    if let Value::Object(property) = property {
        let described = match property.get("description").and_then(Value::as_str) {
            Some(description) => format!("{own}: {description}"),
            None => own.to_owned(),
        };
        property.insert("description".to_owned(), described.into());
    }
}

/// Each property's own name and the one that is sent, in their order. Names that providers take stay; no two that are sent are equal.
fn sent_names(properties: &Map<String, Value>) -> Vec<(String, String)> {
    let mut taken: HashSet<String> = properties.keys().filter(|name| is_taken_by_providers(name)).cloned().collect();
    let mut name_of = |own: &String| {
        if is_taken_by_providers(own) {
            return own.clone();
        }
        let base: String = own.chars().take(NAME_MAX).map(|each| if is_of_names(each) { each } else { '_' }).collect();
        let base = if base.is_empty() { "_".to_owned() } else { base };
        let mut name = base.clone();
        let mut number = 2_usize;
        while !taken.insert(name.clone()) {
            let suffix = format!("_{number}");
            name = format!("{}{suffix}", &base[..base.len().min(NAME_MAX - suffix.len())]);
            number += 1;
        }
        name
    };
    properties.keys().map(|own| (own.clone(), name_of(own))).collect()
}

fn is_taken_by_providers(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_of_names)
}

const fn is_of_names(each: char) -> bool {
    each.is_ascii_alphanumeric() || matches!(each, '_' | '.' | '-')
}

/// Gives `items` to each array that says nothing of them.
fn fill_items(schema: &mut Value, depth: usize) {
    let Value::Object(members) = schema else { return };
    if depth > MAX_DEPTH {
        return;
    }
    let is_array = members.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        kind => kind == "array",
    });
    for keyword in OF_MAPS {
        let map = members.get_mut(keyword).and_then(Value::as_object_mut);
        map.into_iter().flat_map(|map| map.values_mut()).for_each(|below| fill_items(below, depth + 1));
    }
    for keyword in OF_SCHEMAS {
        match members.get_mut(keyword) {
            Some(Value::Array(list)) => list.iter_mut().for_each(|below| fill_items(below, depth + 1)),
            Some(below) => fill_items(below, depth + 1),
            None => {}
        }
    }
    if is_array {
        members.entry("items").or_insert_with(|| Value::Object(Map::new()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a provider would refuse, beside what is sent.
    #[test]
    fn providers_get_what_they_take() {
        let long = "n".repeat(70);
        let cut = "n".repeat(64);
        for (written, expected) in [
            (
                json!({"type": "object", "properties": {"tags": {"type": "array"}, "rows": {"type": ["array", "null"],
                    "items": {"type": "array"}}, "pair": {"type": "array", "prefixItems": [{"type": "array"}]}}}),
                json!({"type": "object", "properties": {"tags": {"type": "array", "items": {}}, "rows": {"type": ["array", "null"],
                    "items": {"type": "array", "items": {}}}, "pair": {"type": "array", "prefixItems": [{"type": "array", "items": {}}], "items": {}}}}),
            ),
            (
                json!({"type": "object", "properties": {"id": {"type": "string"}}, "anyOf": [{"required": ["id"]}, {"required": ["email"],
                    "properties": {"email": {"type": "string"}, "id": true}}], "not": {"required": ["x"]}}),
                json!({"type": "object", "properties": {"id": {"type": "string"}, "email": {"type": "string"}}}),
            ),
            (
                json!({"type": "object", "oneOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"properties": {"a": {"type": "integer"}}}}}),
                json!({"type": "object", "$defs": {"A": {"properties": {"a": {"type": "integer"}}}}, "properties": {"a": {"type": "integer"}}}),
            ),
            (
                json!({"type": "object", "properties": {"größe": {"type": "integer", "description": "In cm."}, "a b": true, "a_b": {}, "": {}, long.clone(): {}},
                    "required": ["größe", "a_b"]}),
                json!({"type": "object", "properties": {"gr__e": {"type": "integer", "description": "größe: In cm."}, "a_b_2": {"description": "a b"}, "a_b": {},
                    "_": {"description": ""}, cut: {"description": long}}, "required": ["gr__e", "a_b"]}),
            ),
        ] {
            let sent = sent(&written);
            assert_eq!(sent, expected, "{written}");
            assert_eq!(super::sent(&sent), sent, "again");
        }
    }

    #[test]
    fn arguments_come_back_under_the_authors_names() {
        let written = json!({"type": "object", "properties": {"größe": {}, "a b": {}, "a_b": {}}});
        let back = |given: Value| Value::Object(written_names(&written, given.as_object().unwrap().clone()));
        let own = json!({"größe": 1, "a b": 2, "a_b": 3});
        assert_eq!(back(json!({"gr__e": 1, "a_b_2": 2, "a_b": 3})), own);
        assert_eq!(back(own.clone()), own);
        assert_eq!(back(json!({"x": 1})), json!({"x": 1}));
    }
}
