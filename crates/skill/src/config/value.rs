//! Texts as values of a parameter, and its rules.

use serde_json::{Map, Number, Value};

use super::param::{ConfigParam, ParamKind};

/// The value that a text means for a parameter: numbers, booleans, lists and maps are JSON, everything else is the text.
///
/// Errors: the rule that it breaks, one clause without the value, which may be a secret.
pub fn read(param: &ConfigParam, text: &str) -> Result<Value, String> {
    let value = match param.value_kind() {
        ParamKind::Text | ParamKind::Select => Value::String(text.to_owned()),
        _ => serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    check(param, &value)?;
    Ok(value)
}

/// Whether a value fits a parameter.
///
/// Errors: the rule that it breaks, one clause.
pub fn check(param: &ConfigParam, value: &Value) -> Result<(), String> {
    match (param.value_kind(), value) {
        (ParamKind::Text, Value::String(_)) | (ParamKind::Boolean, Value::Bool(_)) => Ok(()),
        (ParamKind::Select, Value::String(chosen)) => option(param, chosen),
        (ParamKind::Number, Value::Number(number)) => bounds(param, number),
        (ParamKind::MultiSelect | ParamKind::Texts | ParamKind::Numbers | ParamKind::List, Value::Array(items)) => {
            count(param, items.len())?;
            items.iter().try_for_each(|item| element(param, item))
        }
        (ParamKind::Map, Value::Object(members)) => {
            count(param, members.len())?;
            map(members)
        }
        (kind, _) => Err(format!("must be {}", wanted(kind))),
    }
}

fn wanted(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Text | ParamKind::Select => "a text",
        ParamKind::Number => "a number",
        ParamKind::Boolean => "true or false",
        ParamKind::MultiSelect | ParamKind::Texts => "a list of texts, as JSON: [\"a\", \"b\"]",
        ParamKind::Numbers => "a list of numbers, as JSON: [1, 2]",
        ParamKind::List => "a list, as JSON: [\"a\", 1]",
        ParamKind::Map => "a map of texts, as JSON: {\"name\": \"text\"}",
    }
}

fn element(param: &ConfigParam, item: &Value) -> Result<(), String> {
    match (param.value_kind(), item) {
        (ParamKind::MultiSelect, Value::String(chosen)) => option(param, chosen),
        (ParamKind::Numbers, Value::Number(number)) => bounds(param, number),
        (ParamKind::Texts, Value::String(_)) | (ParamKind::List, _) => Ok(()),
        (kind, _) => Err(format!("must be {}", wanted(kind))),
    }
}

fn map(members: &Map<String, Value>) -> Result<(), String> {
    if members.values().all(Value::is_string) {
        Ok(())
    } else {
        Err(format!("must be {}", wanted(ParamKind::Map)))
    }
}

fn option(param: &ConfigParam, chosen: &str) -> Result<(), String> {
    let options = param.options.as_deref().unwrap_or_default();
    if options.iter().any(|option| option == chosen) {
        Ok(())
    } else {
        Err(format!("must be one of {}", options.join(", ")))
    }
}

fn bounds(param: &ConfigParam, number: &Number) -> Result<(), String> {
    // Both sides as the floating-point numbers that Python's declaration means.
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    let value = float(number);
    match (&param.min, &param.max) {
        (Some(min), _) if value < float(min) => Err(format!("must be at least {min}")),
        (_, Some(max)) if value > float(max) => Err(format!("must be at most {max}")),
        _ => Ok(()),
    }
}

fn count(param: &ConfigParam, items: usize) -> Result<(), String> {
    let items = items as u64;
    match (param.min_items, param.max_items) {
        (Some(min), _) if items < min => Err(format!("must have at least {min} entries")),
        (_, Some(max)) if items > max => Err(format!("must have at most {max} entries")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::param::fixture::param;

    #[test]
    fn a_text_becomes_a_value_of_the_type_or_names_the_rule_that_it_breaks() {
        for (declared, text, expected) in [
            (json!({}), "", Ok(json!(""))),
            (json!({"type": "text"}), "5", Ok(json!("5"))),
            (json!({"type": "path"}), "/a b", Ok(json!("/a b"))),
            (json!({"type": "banana"}), "x", Ok(json!("x"))),
            (json!({"type": "secret"}), "{", Ok(json!("{"))),
            (json!({"type": "number"}), " 5 ", Ok(json!(5))),
            (json!({"type": "number", "min": 0, "max": 50}), "0.5", Ok(json!(0.5))),
            (json!({"type": "number", "min": 0, "max": 50}), "50", Ok(json!(50))),
            (
                json!({"type": "number", "min": 0, "max": 50}),
                "99",
                Err("must be at most 50"),
            ),
            (json!({"type": "number", "min": 0.5}), "0", Err("must be at least 0.5")),
            (json!({"type": "number"}), "many", Err("must be a number")),
            (json!({"type": "number"}), "", Err("must be a number")),
            (json!({"type": "number"}), "NaN", Err("must be a number")),
            (json!({"type": "boolean"}), "false", Ok(json!(false))),
            (json!({"type": "boolean"}), "yes", Err("must be true or false")),
            (json!({"type": "select", "options": ["a", "5"]}), "5", Ok(json!("5"))),
            (
                json!({"type": "select", "options": ["a", "b"]}),
                "c",
                Err("must be one of a, b"),
            ),
            (
                json!({"type": "multiselect", "options": ["a", "b"]}),
                "[\"b\"]",
                Ok(json!(["b"])),
            ),
            (
                json!({"type": "multiselect", "options": ["a"]}),
                "[\"b\"]",
                Err("must be one of a"),
            ),
            (json!({"type": "string[]"}), "[\"a\", \"b\"]", Ok(json!(["a", "b"]))),
            (json!({"type": "string[]"}), "a, b", Err("must be a list of texts")),
            (json!({"type": "string[]"}), "[1]", Err("must be a list of texts")),
            (
                json!({"type": "string[]", "maxItems": 1}),
                "[\"a\", \"b\"]",
                Err("must have at most 1 entries"),
            ),
            (
                json!({"type": "string[]", "minItems": 1}),
                "[]",
                Err("must have at least 1 entries"),
            ),
            (json!({"type": "number[]", "max": 2}), "[1, 2]", Ok(json!([1, 2]))),
            (json!({"type": "number[]", "max": 2}), "[3]", Err("must be at most 2")),
            (json!({"type": "list"}), "[1, \"a\"]", Ok(json!([1, "a"]))),
            (json!({"type": "map"}), "{\"a\": \"b\"}", Ok(json!({"a": "b"}))),
            (json!({"type": "map"}), "{\"a\": 1}", Err("must be a map of texts")),
            (
                json!({"type": "map", "maxItems": 0}),
                "{\"a\": \"b\"}",
                Err("must have at most 0 entries"),
            ),
        ] {
            let read = read(&param(&declared), text);
            match expected {
                Ok(value) => assert_eq!(read, Ok(value), "{declared} {text}"),
                Err(rule) => {
                    let message = read.unwrap_err();
                    assert!(message.contains(rule), "{declared} {text}: {message}");
                }
            }
        }
    }
}
