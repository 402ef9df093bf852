//! Descriptions of fields that are enums, for `kubectl explain`.
//!
//! kube makes the schema of an optional enum by putting that of the type over that of the field, so the field has the
//! description of its type and says neither what it is for nor what holds without it. And it drops what the type says of each
//! word. Both are in the schema that the types derive, before kube's changes.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// What stands between the description of a field and the words that it can have.
pub(super) const WORDS: &str = "\nPossible values:";

/// The schema of a type as it is derived, but with the types inside it in the places of references to them.
pub(super) fn derived<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}

/// Gives every part of a schema the description of its own declaration, and the words of its type.
pub(super) fn explain(schema: &mut Value, derived: &Value) {
    for (name, derived) in derived["properties"].as_object().into_iter().flatten() {
        if let Some(field) = schema.get_mut("properties").and_then(|fields| fields.get_mut(name)) {
            describe(field, derived);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get_mut(inner) {
            describe(schema, &derived[inner]);
        }
    }
}

fn describe(schema: &mut Value, derived: &Value) {
    if let Some(description) = derived["description"].as_str() {
        schema["description"] = format!("{description}{}", words(derived)).into();
    }
    explain(schema, derived);
}

/// The words of an enum with their meanings; empty: it is no enum.
fn words(derived: &Value) -> String {
    let optional = derived["anyOf"].get(0).unwrap_or(derived);
    let words = optional["oneOf"].as_array().into_iter().flatten().filter_map(|word| {
        let name = word["enum"].get(0).unwrap_or(&word["const"]).as_str()?;
        Some(format!("\n- `{name}`: {}", word["description"].as_str()?))
    });
    let words: String = words.collect();
    if words.is_empty() {
        words
    } else {
        format!("{WORDS}{words}")
    }
}
