//! Repairs the malformed tool schemas that skill files carry, so that strict providers accept them.
//!
//! Three shapes are repaired at every depth: a bare map of properties without `type: object`, a type word in place of a schema
//! (`"topic": "string"`), and a boolean `required` on a property. Everything else stays as written.
//! Source: the later OmniRoute releases' behaviour, `tests/vectors/cases/injection.json` op `normalize_tool_schema`.

use serde_json::{Map, Value};

/// Deeper nodes are left as they are: no tool schema needs more, and the walk must not exhaust the stack.
const MAX_DEPTH: usize = 32;

/// The types of JSON Schema.
pub(crate) const TYPE_WORDS: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// The type of what tools take.
const OBJECT: &str = "object";

/// Members whose value maps names to schemas.
const SCHEMA_MAPS: [&str; 4] = ["properties", "$defs", "definitions", "patternProperties"];

/// Members that only a schema node has, besides `x-` extensions, a `type` word or list, and a `required` list.
const NODE_MEMBERS: [&str; 21] = [
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "enum",
    "const",
    "additionalProperties",
    "additionalItems",
    "contains",
    "default",
    "dependencies",
    "discriminator",
    "else",
    "example",
    "examples",
    "if",
    "patternProperties",
    "propertyNames",
    "then",
];

/// Returns the JSON Schema object for a tool's stored input schema. A value that is no object becomes the schema of an empty object.
pub fn normalize(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return empty() };
    let mut root = if members.get("type").is_some_and(Value::is_string) {
        members.clone()
    } else {
        wrap(members)
    };
    repair(&mut root, NodePosition::Root, 0);
    Value::Object(root)
}

/// The schema as tools must have it: of an object, with `properties` that are schemas. What is no schema says nothing, and a
/// schema of something else takes no arguments; providers refuse the whole request for one such tool.
pub fn with_properties(schema: &Value) -> Value {
    let Value::Object(mut root) = schema.clone() else {
        return empty();
    };
    if root.get("type").is_some_and(|kind| !is_of_object(kind)) {
        return empty();
    }
    root.insert("type".to_owned(), OBJECT.into());
    match root.get_mut("properties") {
        Some(Value::Object(properties)) => {
            let wrong = |value: &&mut Value| !value.is_object() && !value.is_boolean();
            properties
                .values_mut()
                .filter(wrong)
                .for_each(|value| *value = Value::Object(Map::new()));
        }
        _ => drop(root.insert("properties".to_owned(), Value::Object(Map::new()))),
    }
    Value::Object(root)
}

/// Whether a `type` has objects among its values.
pub(crate) fn is_of_object(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => kind == OBJECT,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == OBJECT),
        _ => false,
    }
}

/// The schema of a tool without arguments.
pub fn empty() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}

/// Makes an object schema whose properties are the members, unless they have another keyword that describes a value.
fn wrap(members: &Map<String, Value>) -> Map<String, Value> {
    let mut root = Map::new();
    root.insert("type".to_owned(), Value::from("object"));
    if members.get("properties").is_some_and(Value::is_object) {
        // `{properties, required}` without a type: only the type is missing. A type that is no list either (`null`) is none.
        let kept = members
            .iter()
            .filter(|(name, value)| *name != "type" || value.is_array());
        root.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        return root;
    }
    let mut properties = members.clone();
    for value in properties.values_mut() {
        expand(value, |_| true);
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    root
}

/// The position of a node, as far as repairs depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodePosition {
    /// The schema itself: its own string members are keywords.
    Root,
    /// The value of `properties` or another schema map.
    Map,
    /// Anything else.
    Other,
}

fn repair(node: &mut Map<String, Value>, position: NodePosition, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let is_type_word = |word: &str| TYPE_WORDS.contains(&word);
    match position {
        NodePosition::Map => node
            .values_mut()
            .for_each(|value| expand(value, |word| !word.is_empty())),
        NodePosition::Other if !is_schema(node) => node.values_mut().for_each(|value| expand(value, is_type_word)),
        NodePosition::Root | NodePosition::Other => {}
    }
    for (name, value) in node.iter_mut() {
        let below = if SCHEMA_MAPS.contains(&name.as_str()) {
            NodePosition::Map
        } else {
            NodePosition::Other
        };
        repair_value(value, below, depth + 1);
    }
    if position != NodePosition::Map && is_bare_map(node) {
        let properties = std::mem::take(node);
        node.insert("type".to_owned(), Value::from("object"));
        node.insert("properties".to_owned(), Value::Object(properties));
    }
    lift_required(node);
}

fn repair_value(value: &mut Value, position: NodePosition, depth: usize) {
    match value {
        Value::Object(node) => repair(node, position, depth),
        Value::Array(items) if depth <= MAX_DEPTH => {
            for item in items {
                repair_value(item, position, depth + 1);
            }
        }
        _ => {}
    }
}

/// Turns a type word into a schema.
fn expand(value: &mut Value, accepted: impl Fn(&str) -> bool) {
    if let Value::String(word) = value
        && accepted(word)
    {
        *value = serde_json::json!({"type": word});
    }
}

fn is_schema(node: &Map<String, Value>) -> bool {
    node.keys()
        .any(|name| name.starts_with("x-") || NODE_MEMBERS.contains(&name.as_str()))
        || node.get("type").is_some_and(|kind| kind.is_string() || kind.is_array())
        || node.get("required").is_some_and(Value::is_array)
}

fn is_bare_map(node: &Map<String, Value>) -> bool {
    !node.is_empty() && !is_schema(node) && node.values().all(Value::is_object)
}

/// Moves `required: true` of properties into the list of their parent; any other value that is no list just goes.
fn lift_required(node: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = node.get_mut("properties") else {
        return;
    };
    let mut lifted = Vec::new();
    for (name, property) in properties.iter_mut() {
        let Value::Object(property) = property else { continue };
        if property
            .get("required")
            .is_some_and(|required| !required.is_array() && !required.is_object())
            && property.shift_remove("required") == Some(Value::Bool(true))
        {
            lifted.push(name.clone());
        }
    }
    let mut required: Vec<Value> = match node.get("required") {
        Some(Value::Array(names)) => names.iter().filter(|name| name.is_string()).cloned().collect(),
        _ => Vec::new(),
    };
    for name in lifted {
        if !required.iter().any(|known| *known == name) {
            required.push(Value::String(name));
        }
    }
    if !required.is_empty() {
        node.insert("required".to_owned(), Value::Array(required));
    } else if node.get("required").is_some_and(|required| !required.is_array()) {
        node.shift_remove("required");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_type_that_is_no_type_is_replaced() {
        for kind in [json!(null), json!(7), json!({})] {
            let schema = normalize(&json!({"type": kind, "properties": {}, "required": ["a"]}));
            assert_eq!(
                schema,
                json!({"type": "object", "properties": {}, "required": ["a"]}),
                "{kind}"
            );
        }
        let listed = json!({"type": ["object", "null"], "properties": {}});
        assert_eq!(normalize(&listed), listed);
    }

    /// One tool that a provider refuses ends every request that it is in.
    #[test]
    fn a_tool_takes_an_object_whatever_is_stored() {
        let empty = json!({"type": "object", "properties": {}});
        for (stored, expected) in [
            (
                json!({"a": 5, "b": null, "c": ["x"], "d": "string"}),
                json!({
                    "type": "object", "properties": {"a": {}, "b": {}, "c": {}, "d": {"type": "string"}},
                }),
            ),
            (json!({"type": "object"}), empty.clone()),
            (json!({"type": "object", "properties": []}), empty.clone()),
            (json!({"type": "string"}), empty.clone()),
            (json!({"type": ["object", "null"], "properties": {}}), empty.clone()),
            (json!({"type": ["string", "null"], "properties": {}}), empty.clone()),
            (
                json!({"anyOf": [{"type": "object"}]}),
                json!({"type": "object", "properties": {"anyOf": {}}}),
            ),
            (json!([]), empty),
        ] {
            assert_eq!(with_properties(&normalize(&stored)), expected, "{stored}");
        }
    }
}
