//! A tool's schema as every provider takes it, and the way back for the arguments of a call.
//!
//! A provider answers a whole request with 400 for one tool whose schema it does not take, so one skill would end the requests of all
//! callers. What the author wrote is valid JSON Schema and stays what arguments are checked by; only what is sent differs:
//!
//! - An array without `items` gets `items: {}`, which allows what it allowed. OpenAI: "array schema missing items".
//! - A list of schemas under `items`, as before the draft 2020-12, becomes `prefixItems`. Anthropic: "must match JSON Schema draft
//!   2020-12"; OpenAI: "is not of type 'object', 'boolean'".
//! - `anyOf`, `oneOf`, `allOf`, `not` and `enum` at the top are left out, and the properties of their branches stay. OpenAI and Anthropic:
//!   not supported at the top level. So is a `$ref` there: what it names can have them.
//! - A property at the top whose name is not of `[a-zA-Z0-9_.-]{1,64}` gets another name, and its own in its description. Anthropic:
//!   "Property keys should match pattern", of these properties and of none below them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::schema;

/// Deeper nodes are left as they are: the walk must not exhaust the stack. No JSON text is read that is deeper.
const MAX_DEPTH: usize = 128;
/// The longest name of a property that Anthropic takes.
const NAME_MAX: usize = 64;
/// Keywords that providers refuse at the top of a tool's schema, and the one that could bring them back.
const NOT_AT_THE_TOP: [&str; 6] = ["anyOf", "oneOf", "allOf", "not", "enum", "$ref"];
/// Keywords whose branches describe the same object as the schema around them.
pub(crate) const BRANCHES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords at the top that speak of properties by the names that the author wrote, beside `properties` and `required`.
const OF_NAMES: [&str; 7] = [
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
];
/// Keywords that hold a map of names to schemas.
const OF_MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "dependencies",
    "dependentSchemas",
    "$defs",
    "definitions",
];
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
    each_schema(&mut root, 0, &mut repair_array);
    without_lost_references(&mut root, written);
    root
}

/// The properties of an object and of its branches, by the names that the author wrote.
pub(crate) fn properties(written: &Value) -> Map<String, Value> {
    match without_branches(written).get_mut("properties") {
        Some(Value::Object(properties)) => std::mem::take(properties),
        _ => Map::new(),
    }
}

/// Arguments under the names that the author wrote, where a model used those that were sent.
pub(crate) fn written_names(written: &Value, mut arguments: Map<String, Value>) -> Map<String, Value> {
    let properties = properties(written);
    if properties.keys().all(|name| is_taken_by_providers(name)) {
        return arguments;
    }
    for (own, sent) in sent_names(&properties) {
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
    let whole = schema::with_properties(written);
    let mut found = Branches::new(&whole);
    found.read(&whole, true, 0);
    let Branches {
        properties, required, ..
    } = found;
    let Value::Object(mut root) = whole else {
        return Map::new();
    };
    root.retain(|keyword, _| !NOT_AT_THE_TOP.contains(&keyword.as_str()));
    // Names that are not the root's own are none of its arguments then.
    if root.get("additionalProperties") == Some(&Value::Bool(false)) {
        return root;
    }
    if let Some(Value::Object(own)) = root.get_mut("properties") {
        for (name, property) in properties {
            own.entry(name).or_insert(property);
        }
    }
    if !required.is_empty() {
        root.insert("required".to_owned(), required.into());
    }
    root
}

/// What branches of a schema say of the same object, which a model would not know of without them: branches of branches too, and what
/// they refer to within the whole schema.
struct Branches<'a> {
    whole: &'a Value,
    /// The properties by name; of two with one name the first stays.
    properties: Map<String, Value>,
    /// Names that are required whatever branch holds, in order and each once.
    required: Vec<Value>,
    seen: HashSet<&'a str>,
    /// Each is followed once: references can multiply, and go in a circle.
    followed: HashSet<&'a str>,
}

impl<'a> Branches<'a> {
    fn new(whole: &'a Value) -> Self {
        Self {
            whole,
            properties: Map::new(),
            required: Vec::new(),
            seen: HashSet::new(),
            followed: HashSet::new(),
        }
    }

    fn read(&mut self, schema: &'a Value, always: bool, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_schema = |property: &Value| property.is_object() || property.is_boolean();
        for (name, property) in properties
            .into_iter()
            .flatten()
            .filter(|(_, property)| is_schema(property))
        {
            self.properties.entry(name.clone()).or_insert_with(|| property.clone());
        }
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|_| always) {
            if self.seen.insert(name) {
                self.required.push(name.into());
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(place) = reference.and_then(|reference| reference.strip_prefix('#'))
            && self.followed.insert(place)
            && let Some(named) = self.whole.pointer(place)
        {
            self.read(named, always, depth + 1);
        }
        for keyword in BRANCHES {
            let branches = schema.get(keyword).and_then(Value::as_array);
            for branch in branches.into_iter().flatten() {
                self.read(branch, always && keyword == "allOf", depth + 1);
            }
        }
    }
}

fn rename_properties(root: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = root.get("properties") else {
        return;
    };
    if properties.keys().all(|name| is_taken_by_providers(name)) {
        return;
    }
    let names = sent_names(properties);
    let described = names.iter().map(|(own, sent)| {
        let mut property = properties[own].clone();
        if own != sent {
            describe(&mut property, own);
        }
        (sent.clone(), property)
    });
    let described = described.collect();
    let names: HashMap<&str, &str> = names.iter().map(|(own, sent)| (own.as_str(), sent.as_str())).collect();
    if let Some(Value::Array(required)) = root.get_mut("required") {
        for name in required {
            if let Some(sent) = name.as_str().and_then(|name| names.get(name)) {
                *name = Value::from(*sent);
            }
        }
    }
    root.insert("properties".to_owned(), Value::Object(described));
    // They would speak of names that the model does not know, or forbid those that it does.
    root.retain(|keyword, _| !OF_NAMES.contains(&keyword.as_str()));
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
    let mut taken: HashSet<String> = properties
        .keys()
        .filter(|name| is_taken_by_providers(name))
        .cloned()
        .collect();
    // The next number of each name that several would get: trying them all takes long where there are many.
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut name_of = |own: &String| {
        if is_taken_by_providers(own) {
            return own.clone();
        }
        let base: String = own
            .chars()
            .take(NAME_MAX)
            .map(|each| if is_of_names(each) { each } else { '_' })
            .collect();
        let base = if base.is_empty() { "_".to_owned() } else { base };
        let mut name = base.clone();
        let number = numbers.entry(base.clone()).or_insert(2);
        while !taken.insert(name.clone()) {
            let suffix = format!("_{number}");
            name = format!("{}{suffix}", &base[..base.len().min(NAME_MAX - suffix.len())]);
            *number += 1;
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

/// Gives `items` to an array that says nothing of them, and its present name to a list of them.
fn repair_array(members: &mut Map<String, Value>) {
    if let Some(Value::Array(list)) = members.get("items").cloned() {
        members.shift_remove("items");
        if !list.is_empty() {
            members.entry("prefixItems").or_insert(Value::Array(list));
        }
        if let Some(others) = members.shift_remove("additionalItems") {
            members.insert("items".to_owned(), others);
        }
    }
    let is_array = members.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        kind => kind == "array",
    });
    if is_array {
        members.entry("items").or_insert_with(|| Value::Object(Map::new()));
    }
}

/// Leaves out references to places that what is sent does not have any more: a schema that names nothing is refused.
fn without_lost_references(root: &mut Value, written: &Value) {
    let mut references = HashSet::new();
    each_schema(root, 0, &mut |members| {
        if let Some(Value::String(reference)) = members.get("$ref") {
            references.insert(reference.clone());
        }
    });
    references.retain(|reference| {
        let place = reference.strip_prefix('#');
        place.is_some_and(|place| written.pointer(place).is_some() && root.pointer(place).is_none())
    });
    if !references.is_empty() {
        each_schema(root, 0, &mut |members| {
            if matches!(members.get("$ref"), Some(Value::String(reference)) if references.contains(reference)) {
                members.shift_remove("$ref");
            }
        });
    }
}

/// Visits a schema after all below it.
fn each_schema(schema: &mut Value, depth: usize, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(members) = schema else { return };
    if depth > MAX_DEPTH {
        return;
    }
    for keyword in OF_MAPS {
        let map = members.get_mut(keyword).and_then(Value::as_object_mut);
        for below in map.into_iter().flat_map(|map| map.values_mut()) {
            each_schema(below, depth + 1, visit);
        }
    }
    for keyword in OF_SCHEMAS {
        match members.get_mut(keyword) {
            Some(Value::Array(list)) => list.iter_mut().for_each(|below| each_schema(below, depth + 1, visit)),
            Some(below) => each_schema(below, depth + 1, visit),
            None => {}
        }
    }
    visit(members);
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
                json!({"type": "object", "properties": {"pair": {"type": "array", "items": [{"type": "array"}, true], "additionalItems": {"type": "array"}},
                    "none": {"type": "array", "items": []}, "grid": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}},
                    "additionalProperties": {"anyOf": [{"type": "array"}]}, "patternProperties": {"^x ": {"type": "array"}}}),
                json!({"type": "object", "properties": {"pair": {"type": "array", "prefixItems": [{"type": "array", "items": {}}, true], "items": {"type": "array", "items": {}}},
                    "none": {"type": "array", "items": {}}, "grid": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {}}}}},
                    "additionalProperties": {"anyOf": [{"type": "array", "items": {}}]}, "patternProperties": {"^x ": {"type": "array", "items": {}}}}),
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

    /// A model knows of an argument only where the top says so.
    #[test]
    fn properties_of_all_branches_are_at_the_top() {
        let a_b = json!({"A/B": {"properties": {"x": {}}, "required": ["x"], "oneOf": [{"$ref": "#/$defs/C"}]}, "C": {"properties": {"y": {}}, "required": ["y"]}});
        for (written, expected) in [
            (
                json!({"type": "object", "allOf": [{"anyOf": [{"properties": {"deep": {}}, "required": ["deep"]}], "required": ["deep", "x"]}, {"$ref": "#/$defs/A~1B"}],
                    "required": ["x"], "$defs": a_b}),
                json!({"type": "object", "properties": {"deep": {}, "x": {}, "y": {}}, "required": ["x", "deep"], "$defs": a_b}),
            ),
            (
                json!({"type": "object", "$ref": "#/$defs/C", "properties": {"own": {}}, "$defs": a_b}),
                json!({"type": "object", "properties": {"own": {}, "y": {}}, "required": ["y"], "$defs": a_b}),
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false, "oneOf": [{"properties": {"a": {"const": 1}, "b": {}}}]}),
                json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "$ref": "#", "allOf": [{"$ref": "#"}, {"$ref": "http://127.0.0.1:9/x"}, true, 5]}),
                schema::empty(),
            ),
            (
                json!({"type": "string", "anyOf": [{"properties": {"a": {}}}]}),
                schema::empty(),
            ),
        ] {
            let sent = sent(&written);
            assert_eq!(sent, expected, "{written}");
            assert_eq!(super::sent(&sent), sent, "again");
        }
    }

    /// Nothing that is sent speaks of a name that was replaced, and what is below the top stays.
    #[test]
    fn a_name_that_is_replaced_is_replaced_everywhere() {
        let written = json!({
            "type": "object", "properties": {"a b": {"type": "object", "properties": {"c d": {}}, "required": ["c d"]}, "e": {}}, "required": ["a b"],
            "if": {"required": ["a b"]}, "then": {"required": ["e"]}, "dependentRequired": {"a b": ["e"]}, "propertyNames": {"enum": ["a b", "e"]},
            "additionalProperties": false,
        });
        let expected = json!({
            "type": "object", "properties": {"a_b": {"type": "object", "properties": {"c d": {}}, "required": ["c d"], "description": "a b"}, "e": {}},
            "required": ["a_b"], "additionalProperties": false,
        });
        assert_eq!(sent(&written), expected);
        let kept = json!({"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}, "propertyNames": {"maxLength": 9}});
        assert_eq!(sent(&kept), kept);
    }

    #[test]
    fn names_that_collide_stay_apart_and_come_back() {
        let cut = "n".repeat(64);
        let (cut_1, cut_2) = (format!("{cut}1"), format!("{cut}2"));
        let names = [
            "a b",
            "a_b",
            "a?b",
            "a_b_2",
            "",
            " ",
            "_",
            "größe",
            "große",
            cut_1.as_str(),
            cut_2.as_str(),
            &cut,
            "äöü",
        ];
        let properties: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let branch = properties.clone();
        for written in [
            json!({"type": "object", "properties": properties}),
            json!({"type": "object", "properties": {"_": {}}, "anyOf": [{"properties": branch}]}),
        ] {
            let sent = sent(&written);
            let given: Map<String, Value> = sent["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(|name| (name.clone(), name.as_str().into()))
                .collect();
            assert_eq!(given.len(), names.len(), "{sent}");
            assert!(given.keys().all(|name| is_taken_by_providers(name)), "{sent}");
            let back = written_names(&written, given);
            let own: HashSet<&str> = back.keys().map(String::as_str).collect();
            assert_eq!(own, names.into_iter().collect());
            for name in ["a_b", "a_b_2", "_", &cut] {
                assert_eq!(back[name], name, "a name that providers take is its own");
            }
        }
    }

    /// A reference into a place that was renamed, left out or moved would be refused; others stay.
    #[test]
    fn references_to_what_is_not_sent_are_left_out() {
        let written = json!({
            "type": "object", "$defs": {"D": {"type": "object", "properties": {"again": {"$ref": "#/$defs/D"}, "up": {"$ref": "#"}}}},
            "properties": {"a b": {"type": "string"}, "same": {"$ref": "#/properties/a b", "title": "t"}, "in": {"$ref": "#/anyOf/0"},
                "pair": {"type": "array", "items": [{"type": "string"}]}, "first": {"$ref": "#/properties/pair/items/0"}, "d": {"$ref": "#/$defs/D"},
                "far": {"$ref": "http://127.0.0.1:9/x"}, "data": {"const": {"$ref": "#/anyOf/0"}}},
            "anyOf": [{"required": ["a b"]}, true],
        });
        let sent = sent(&written);
        for (name, expected) in [
            ("same", json!({"title": "t"})),
            ("in", json!({})),
            ("first", json!({})),
            ("d", json!({"$ref": "#/$defs/D"})),
            ("far", json!({"$ref": "http://127.0.0.1:9/x"})),
            ("data", json!({"const": {"$ref": "#/anyOf/0"}})),
        ] {
            assert_eq!(sent["properties"][name], expected, "{name}");
        }
        assert_eq!(sent["$defs"], written["$defs"]);
    }

    /// Names that all become one, by the thousand: a call waits for them.
    #[test]
    fn many_names_that_collide_are_replaced_soon() {
        let properties: Map<String, Value> = (0..20_000_u32)
            .map(|at| (char::from_u32(0x4E00 + at).unwrap().to_string(), json!({})))
            .collect();
        let required: Vec<&String> = properties.keys().collect();
        let written = json!({"type": "object", "properties": properties, "required": required});
        let begun = std::time::Instant::now();
        let sent = sent(&written);
        assert_eq!(sent["properties"].as_object().unwrap().len(), 20_000);
        assert_eq!(sent["required"][19_999], "__20000");
        // By a wide margin: it is minutes where each number is tried for each name.
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
    }

    /// References that double in each step, and schemas as deep as a text of JSON can be.
    #[test]
    fn a_schema_that_multiplies_or_is_deep_is_sent_soon() {
        let defs: Map<String, Value> = (0..2_000)
            .map(|at| {
                let next = json!({"$ref": format!("#/$defs/{}", at + 1)});
                (
                    at.to_string(),
                    json!({"properties": {at.to_string(): {}}, "anyOf": [next.clone(), next]}),
                )
            })
            .collect();
        let doubled = json!({"type": "object", "allOf": [{"$ref": "#/$defs/0"}], "$defs": defs});
        let properties = sent(&doubled)["properties"].as_object().unwrap().len();
        assert!((MAX_DEPTH / 2 - 1..MAX_DEPTH).contains(&properties), "{properties}");

        let deep = format!(
            r#"{{"type":"object","properties":{{"a":{}{{"type":"array"}}{}}}}}"#,
            r#"{"items":"#.repeat(120),
            "}".repeat(120)
        );
        let deep: Value = serde_json::from_str(&deep).unwrap();
        let innermost = format!("/properties/a{}", "/items".repeat(121));
        assert_eq!(sent(&deep).pointer(&innermost), Some(&json!({})));
    }
}
