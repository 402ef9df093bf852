//! Schemas of tools that are valid JSON Schema and that providers refuse all the same.
//!
//! The words are those of the providers' answers with status 400.

use std::fmt::Write as _;

use serde_json::Value;

use super::ProviderRefusal;

/// Keywords that hold a map of names to schemas.
const OF_MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords that hold a schema or a list of schemas.
const OF_SCHEMAS: [&str; 7] = [
    "items",
    "prefixItems",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
];
/// The longest name of a property in bytes (Anthropic).
const MAX_NAME_BYTES: usize = 64;

/// One step from a schema to one below it: a keyword, and the name or number of what it holds.
type Step = (&'static str, Option<String>);

/// OpenAI, of Chat and Responses alike: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
/// level".
pub(super) fn openai_top_level(param: String, name: &str, schema: &Value) -> Result<(), ProviderRefusal> {
    let refused = ["oneOf", "anyOf", "allOf", "enum", "not"];
    if refused.iter().all(|keyword| schema.get(keyword).is_none()) {
        return Ok(());
    }
    let message = format!(
        "Invalid schema for function '{name}': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    );
    Err(ProviderRefusal::at(param, "invalid_function_parameters", message))
}

/// OpenAI, of Chat and Responses alike: "In context=('properties', 'tags'), array schema missing items", at any depth.
pub(super) fn openai_arrays(param: String, name: &str, schema: &Value) -> Result<(), ProviderRefusal> {
    let Some(steps) = array_without_items(schema) else {
        return Ok(());
    };
    let words = steps
        .iter()
        .flat_map(|(keyword, below)| [Some(*keyword), below.as_deref()]);
    let words: Vec<String> = words.flatten().map(|word| format!("'{word}'")).collect();
    let message = format!(
        "Invalid schema for function '{name}': In context=({}), array schema missing items.",
        words.join(", ")
    );
    Err(ProviderRefusal::at(param, "invalid_function_parameters", message))
}

/// Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the top level". `not` and `enum` are taken.
pub(super) fn anthropic_top_level(index: usize, schema: &Value) -> Result<(), ProviderRefusal> {
    let refused = ["oneOf", "allOf", "anyOf"];
    if refused.iter().all(|keyword| schema.get(keyword).is_none()) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(format!(
        "tools.{index}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    )))
}

/// Anthropic: "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'", of the properties at the top and of none below them.
pub(super) fn anthropic_property_keys(index: usize, schema: &Value) -> Result<(), ProviderRefusal> {
    let is_taken = |name: &String| {
        (1..=MAX_NAME_BYTES).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let mut names = schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys);
    if names.all(is_taken) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(format!(
        "tools.{index}.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,{MAX_NAME_BYTES}}}$'"
    )))
}

/// Google: "parameters.properties[tags].items: missing field", at any depth. It is seen of `parameters`; a `parametersJsonSchema` is
/// held to it as well.
pub(super) fn google_arrays(at: usize, member: &str, schema: &Value) -> Result<(), ProviderRefusal> {
    let Some(steps) = array_without_items(schema) else {
        return Ok(());
    };
    let mut path = String::new();
    for (keyword, below) in steps.iter().filter(|(keyword, _)| *keyword != "type") {
        let _ = write!(path, ".{}", crate::received::snake(keyword));
        if let Some(below) = below {
            let _ = write!(path, "[{below}]");
        }
    }
    Err(ProviderRefusal::invalid(format!(
        "* GenerateContentRequest.tools[0].function_declarations[{at}].{member}{path}.items: missing field."
    )))
}

/// The way to the first array that says nothing of its items.
fn array_without_items(schema: &Value) -> Option<Vec<Step>> {
    let members = schema.as_object()?;
    if members.get("items").is_none() {
        let is_array = |kind: &Value| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("array"));
        match members.get("type") {
            Some(Value::Array(kinds)) => {
                if let Some(place) = kinds.iter().position(is_array) {
                    return Some(vec![("type", Some(place.to_string()))]);
                }
            }
            Some(kind) if is_array(kind) => return Some(Vec::new()),
            _ => {}
        }
    }
    let behind = |step: Step, below: &Value| {
        let mut steps = vec![step];
        steps.extend(array_without_items(below)?);
        Some(steps)
    };
    for keyword in OF_MAPS {
        let mut map = members.get(keyword).and_then(Value::as_object).into_iter().flatten();
        let found = map.find_map(|(name, below)| behind((keyword, Some(name.clone())), below));
        if found.is_some() {
            return found;
        }
    }
    OF_SCHEMAS.iter().find_map(|keyword| match members.get(*keyword)? {
        Value::Array(list) => {
            let mut list = list.iter().enumerate();
            list.find_map(|(place, below)| behind((keyword, Some(place.to_string())), below))
        }
        below => behind((keyword, None), below),
    })
}
