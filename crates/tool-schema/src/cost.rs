//! The cost of checking a value against a JSON Schema, counted before it is checked.
//!
//! References make small schemas expensive: two references to the next of forty definitions are 2^40 checks. A schema is
//! written by a skill's author and a value by a model, so neither may hold a thread. This counts the checks that a
//! validator makes, each pair of schema and value once, and gives up at a bound.

use std::collections::HashMap;

use serde_json::Value;

/// Checks that a validator may make for one call: about 0.2 s. A tool's schema with 100 members needs a few hundred.
pub(super) const MAX_CHECKS: u64 = 200_000;
/// Pairs of schema and value that are visited at most, and the depth of references and members.
const MAX_PAIRS: usize = 50_000;
/// See [`MAX_PAIRS`]; a validator descends as deep.
const MAX_DEPTH: usize = 256;

/// Keywords whose schemas are for the members or elements of a value.
const CHILD_KEYWORDS: [&str; 10] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold schemas for references only.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords that hold values.
const VALUES: [&str; 7] = ["const", "default", "enum", "examples", "required", "title", "type"];
/// Keywords that make references mean something else than a place in this document.
const FOREIGN: [&str; 4] = ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"];

/// Whether checking `value` against `schema` is cheap enough.
///
/// Errors: why not, as a clause.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), &'static str> {
    let mut count = Count {
        root: schema,
        known: HashMap::new(),
    };
    match count.of(schema, value, 0)? {
        0..=MAX_CHECKS => Ok(()),
        _ => Err(TOO_MANY),
    }
}

const TOO_MANY: &str = "its references multiply";

struct Count<'v> {
    root: &'v Value,
    /// Checks by the addresses of schema and value; 0 while they are being counted, which ends a cycle.
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'v> Count<'v> {
    fn of(&mut self, schema: &'v Value, value: &'v Value, depth: usize) -> Result<u64, &'static str> {
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&pair) {
            return Ok(*known);
        }
        if self.known.len() >= MAX_PAIRS {
            return Err(TOO_MANY);
        }
        if depth >= MAX_DEPTH {
            return Err("it is nested too deep");
        }
        self.known.insert(pair, 0);
        let checks = match schema {
            Value::Object(members) => {
                let mut checks: u64 = 1;
                for (keyword, inner) in members {
                    checks = checks.saturating_add(self.keyword(keyword, inner, value, depth + 1)?);
                }
                checks
            }
            _ => 1,
        };
        self.known.insert(pair, checks);
        Ok(checks)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        inner: &'v Value,
        value: &'v Value,
        depth: usize,
    ) -> Result<u64, &'static str> {
        if DEFINITIONS.contains(&keyword) {
            return Ok(0);
        }
        if VALUES.contains(&keyword) {
            return Ok(inner.as_array().map_or(1, |list| list.len() as u64));
        }
        if FOREIGN.contains(&keyword) || (matches!(keyword, "$id" | "id") && depth > 1 && inner.is_string()) {
            return Err("it has anchors or identifiers of its own; use references such as #/$defs/name");
        }
        if keyword == "$ref" {
            return match self.target(inner)? {
                Some(target) => self.of(target, value, depth),
                None => Ok(1),
            };
        }
        if CHILD_KEYWORDS.contains(&keyword) {
            return self.children(keyword, inner, value, depth);
        }
        self.in_place(inner, value, depth)
    }

    /// Schemas for the same value: those of `allOf`, `if`, `dependentSchemas` and of every other keyword that holds
    /// objects.
    fn in_place(&mut self, inner: &'v Value, value: &'v Value, depth: usize) -> Result<u64, &'static str> {
        match inner {
            Value::Object(_) => self.of(inner, value, depth),
            Value::Array(list) => self.sum(list.iter().map(|schema| (schema, value)), depth),
            _ => Ok(0),
        }
    }

    fn children(
        &mut self,
        keyword: &str,
        inner: &'v Value,
        value: &'v Value,
        depth: usize,
    ) -> Result<u64, &'static str> {
        if keyword == "properties" {
            let (Some(schemas), Some(members)) = (inner.as_object(), value.as_object()) else {
                return Ok(0);
            };
            let pairs = schemas
                .iter()
                .filter_map(|(name, schema)| Some((schema, members.get(name)?)));
            return self.sum(pairs, depth);
        }
        let schemas: Vec<&'v Value> = match inner {
            Value::Array(list) => list.iter().collect(),
            Value::Object(by_pattern) if keyword == "patternProperties" => by_pattern.values().collect(),
            schema => vec![schema],
        };
        let values: Vec<&'v Value> = match value {
            Value::Array(elements) => elements.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        };
        let pairs = schemas
            .iter()
            .flat_map(|schema| values.iter().map(move |value| (*schema, *value)));
        self.sum(pairs, depth)
    }

    fn sum(&mut self, pairs: impl Iterator<Item = (&'v Value, &'v Value)>, depth: usize) -> Result<u64, &'static str> {
        let mut checks: u64 = 0;
        for (schema, value) in pairs {
            checks = checks.saturating_add(self.of(schema, value, depth)?);
            if checks > MAX_CHECKS {
                return Err(TOO_MANY);
            }
        }
        Ok(checks)
    }

    /// Where a reference leads. `None`: out of this document, where a validator does not follow it.
    fn target(&self, reference: &Value) -> Result<Option<&'v Value>, &'static str> {
        let text = reference.as_str().unwrap_or_default();
        match text.strip_prefix('#') {
            _ if text.contains("://") => Ok(None),
            Some(pointer) if !pointer.contains('%') && (pointer.is_empty() || pointer.starts_with('/')) => {
                Ok(self.root.pointer(pointer))
            }
            _ => Err("it has references that are not JSON pointers; use references such as #/$defs/name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Definitions that each refer twice to the next one.
    fn doubling(levels: usize, keyword: &str) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
            definitions.insert(format!("a{level}"), json!({keyword: [next.clone(), next]}));
        }
        definitions.insert(format!("a{levels}"), json!({"type": "object"}));
        json!({"$defs": definitions, "$ref": "#/$defs/a0"})
    }

    #[test]
    fn schemas_that_multiply_are_found_without_doing_the_work() {
        let chain: Map<String, Value> = (0..5_000)
            .map(|level| (format!("a{level}"), json!({"$ref": format!("#/$defs/a{}", level + 1)})))
            .collect();
        // Twice for each level of the value.
        let member = json!({"properties": {"x": {"$ref": "#/$defs/a"}}});
        let tree = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [member.clone(), member]}}});
        let deep = (0..60).fold(json!({}), |inner, _| json!({"x": inner}));
        for (schema, value) in [
            (doubling(40, "allOf"), json!({})),
            (doubling(40, "anyOf"), json!({})),
            (doubling(120, "oneOf"), json!({"a": 1})),
            (json!({"$ref": "#/$defs/a0", "$defs": chain}), json!({})),
            (tree, deep),
            (json!({"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}}), json!({})),
            (json!({"allOf": [{"$dynamicRef": "#a"}]}), json!({})),
            (json!({"$ref": "#/%24defs/a"}), json!({})),
        ] {
            assert!(check(&schema, &value).is_err(), "{}", schema.to_string().len());
        }
    }

    #[test]
    fn schemas_of_tools_pass() {
        let tree = json!({"$id": "tree", "$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
        let wide: Map<String, Value> = (0..500).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        let long: Vec<Value> = (0..5_000).map(|n| json!({"n": n})).collect();
        for (schema, value) in [
            (tree, json!({"children": [{"children": []}, {"children": [{}]}]})),
            (
                json!({"properties": wide, "required": ["p1"]}),
                json!({"p1": "a", "p2": "b"}),
            ),
            (
                json!({"properties": {"rows": {"items": {"properties": {"n": {"type": "integer"}}}}}}),
                json!({"rows": long}),
            ),
            (
                json!({"properties": {"unit": {"enum": ["C", "F"]}}, "additionalProperties": false}),
                json!({"unit": "C"}),
            ),
            (json!({"$ref": "#"}), json!({})),
            (
                json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
                json!({}),
            ),
            (doubling(10, "allOf"), json!({})),
            (json!(true), json!({})),
        ] {
            assert_eq!(check(&schema, &value), Ok(()), "{schema}");
        }
    }
}
