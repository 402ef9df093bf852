//! What is wrong with the JSON Schema of a tool's arguments.
//!
//! A provider refuses every request with a schema that is none, of every caller, so a tool with one must not be served. The structure
//! is checked: what each keyword of JSON Schema may hold. Shapes that [`schema::normalize`] repairs are not reported.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::inputs::shortened;
use crate::schema::{self, TYPE_WORDS};

/// Deeper nodes are not checked, as in [`schema::normalize`]: the walk must not exhaust the stack.
const MAX_DEPTH: usize = 32;

/// What a keyword holds.
#[derive(Clone, Copy)]
enum Shape {
    Type,
    Schema,
    /// A schema, or a list of them as before the draft 2020-12.
    Items,
    Schemas,
    SchemaMap,
    Names,
    Values,
    Text,
    Number,
    Count,
    Flag,
}

/// The keywords whose values are checked. Others are annotations, or extensions of a provider.
const KEYWORDS: [(&str, Shape); 43] = [
    ("type", Shape::Type),
    ("properties", Shape::SchemaMap),
    ("patternProperties", Shape::SchemaMap),
    ("dependentSchemas", Shape::SchemaMap),
    ("$defs", Shape::SchemaMap),
    ("definitions", Shape::SchemaMap),
    ("required", Shape::Names),
    ("enum", Shape::Values),
    ("items", Shape::Items),
    ("additionalProperties", Shape::Schema),
    ("additionalItems", Shape::Schema),
    ("unevaluatedProperties", Shape::Schema),
    ("unevaluatedItems", Shape::Schema),
    ("propertyNames", Shape::Schema),
    ("contains", Shape::Schema),
    ("not", Shape::Schema),
    ("if", Shape::Schema),
    ("then", Shape::Schema),
    ("else", Shape::Schema),
    ("anyOf", Shape::Schemas),
    ("oneOf", Shape::Schemas),
    ("allOf", Shape::Schemas),
    ("prefixItems", Shape::Schemas),
    ("$ref", Shape::Text),
    ("title", Shape::Text),
    ("description", Shape::Text),
    ("pattern", Shape::Text),
    ("format", Shape::Text),
    ("minimum", Shape::Number),
    ("maximum", Shape::Number),
    ("exclusiveMinimum", Shape::Number),
    ("exclusiveMaximum", Shape::Number),
    ("multipleOf", Shape::Number),
    ("minLength", Shape::Count),
    ("maxLength", Shape::Count),
    ("minItems", Shape::Count),
    ("maxItems", Shape::Count),
    ("minProperties", Shape::Count),
    ("maxProperties", Shape::Count),
    ("uniqueItems", Shape::Flag),
    ("deprecated", Shape::Flag),
    ("readOnly", Shape::Flag),
    ("writeOnly", Shape::Flag),
];

/// Why a written schema cannot be that of a tool's arguments: where, and what must be there.
pub(crate) fn problem(written: &Value) -> Option<String> {
    let kind = written.get("type");
    if kind.is_some_and(|kind| (kind.is_string() || kind.is_array()) && !schema::is_of_object(kind)) {
        return Some("type must be object, since the arguments of a tool are one".to_owned());
    }
    // The repair drops it, and with it what the author requires.
    if written.get("required").is_some_and(Value::is_string) {
        return Some("required must be a list of names".to_owned());
    }
    let repaired = schema::with_properties(&schema::normalize(written));
    of_schema(&repaired, "", 0)
}

fn of_schema(schema: &Value, at: &str, depth: usize) -> Option<String> {
    match schema {
        Value::Bool(_) => None,
        Value::Object(_) if depth > MAX_DEPTH => None,
        Value::Object(members) => KEYWORDS.iter().find_map(|(keyword, shape)| {
            let value = members.get(*keyword)?;
            let at = if at.is_empty() {
                (*keyword).to_owned()
            } else {
                format!("{at}.{keyword}")
            };
            of_keyword(*shape, value, &at, depth + 1)
        }),
        _ => Some(format!("{at} must be a schema, which is a mapping or a boolean")),
    }
}

fn of_keyword(shape: Shape, value: &Value, at: &str, depth: usize) -> Option<String> {
    let must = |good: bool, be: &str| (!good).then(|| format!("{at} must be {be}"));
    match shape {
        Shape::Schema => of_schema(value, at, depth),
        Shape::Items if !value.is_array() => of_schema(value, at, depth),
        Shape::Items => of_list(value, at, depth),
        Shape::Schemas => {
            must(is_filled(value), "a list of schemas, and not empty").or_else(|| of_list(value, at, depth))
        }
        Shape::SchemaMap => match value.as_object() {
            Some(schemas) => of_map(schemas, at, depth),
            None => must(false, "a mapping of names to schemas"),
        },
        Shape::Type => {
            let be = format!("one of {}, or a list of them", TYPE_WORDS.join(", "));
            must(
                is_type(value) || (is_filled(value) && all_different(value, is_type)),
                &be,
            )
        }
        Shape::Names => must(
            all_different(value, Value::is_string),
            "a list of names, none of them twice",
        ),
        Shape::Values => must(is_filled(value), "a list of values, and not empty"),
        Shape::Text => must(value.is_string(), "a text"),
        Shape::Number => must(value.is_number(), "a number"),
        Shape::Count => must(
            value
                .as_f64()
                .is_some_and(|number| number >= 0.0 && number.fract() == 0.0),
            "a whole number that is not negative",
        ),
        Shape::Flag => must(value.is_boolean(), "true or false"),
    }
}

fn of_list(list: &Value, at: &str, depth: usize) -> Option<String> {
    let mut schemas = list.as_array()?.iter().enumerate();
    schemas.find_map(|(index, schema)| of_schema(schema, &format!("{at}[{index}]"), depth))
}

fn of_map(schemas: &Map<String, Value>, at: &str, depth: usize) -> Option<String> {
    let mut schemas = schemas.iter();
    schemas.find_map(|(name, schema)| of_schema(schema, &format!("{at}.{}", shortened(name)), depth))
}

fn is_filled(value: &Value) -> bool {
    value.as_array().is_some_and(|values| !values.is_empty())
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|word| TYPE_WORDS.contains(&word))
}

/// Whether a value is a list of such texts, and none is there twice.
fn all_different(value: &Value, is_right: fn(&Value) -> bool) -> bool {
    let Some(values) = value.as_array() else { return false };
    let mut seen = HashSet::new();
    values
        .iter()
        .all(|value| is_right(value) && seen.insert(value.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_that_a_provider_would_refuse_is_reported_with_its_place() {
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"x": {"type": "bogus"}}, "required": ["x"]}),
                "properties.x.type must be one of string, ",
            ),
            (
                json!({"type": "object", "required": "x"}),
                "required must be a list of names",
            ),
            (
                json!({"type": "object", "required": ["x", "x"]}),
                "required must be a list",
            ),
            (json!({"type": "string"}), "type must be object"),
            (json!({"type": ["string", "null"]}), "type must be object"),
            (
                json!({"type": "object", "properties": {"x": {"type": "array", "items": 5}}}),
                "properties.x.items must be a schema",
            ),
            (
                json!({"type": "object", "properties": {"x": {"enum": []}}}),
                "properties.x.enum must be a list",
            ),
            (
                json!({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "text"}]}}}),
                "properties.x.anyOf[1].type must be one of",
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string", "minLength": -1}}}),
                "properties.x.minLength must be a whole number",
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": ["string", "string"]}}}),
                "properties.x.type must be one of",
            ),
        ] {
            let found = problem(&schema);
            assert!(
                found.as_deref().is_some_and(|found| found.starts_with(expected)),
                "{schema}: {found:?}"
            );
        }
    }

    /// Schemas that the load repairs are among them.
    #[test]
    fn schemas_of_arguments_have_no_problem() {
        for schema in [
            json!({}),
            json!({"type": "object"}),
            json!({"type": ["object", "null"], "properties": {}}),
            json!({"topic": "string", "depth": {"type": "integer", "required": true}}),
            json!({"type": "object", "properties": {"city": null}, "anything": [1, {"two": 3}]}),
            json!({"type": "object", "properties": {"x": true, "type": {"type": "string"}}, "required": [],
                "additionalProperties": false}),
            json!({"type": "object", "properties": {
                "x": {"type": "array", "items": [{"type": "string"}], "minItems": 2.0, "default": {"type": "any"}},
                "y": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"enum": [1, null], "x-note": 5}}}),
        ] {
            assert_eq!(problem(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_deep_schema_ends_the_walk_and_not_the_process() {
        let deep = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"not": inner}));
        assert_eq!(problem(&json!({"type": "object", "properties": {"x": deep}})), None);
    }
}
