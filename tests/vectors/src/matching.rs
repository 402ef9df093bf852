//! Compares what an adapter gave with what a case expects.

use regex::Regex;
use serde_json::{Map, Value};

use crate::registry::{By, Compare, Failure, Outcome};

/// Members that an expected failure may have; an object with `error` and others is an ordinary value.
const FAILURE_MEMBERS: [&str; 4] = ["error", "field", "http", "names"];

/// `Ok` if the outcome is what `expected` says, else the first difference in one line.
pub(crate) fn check(compare: Compare, expected: &Value, outcome: &Outcome) -> Result<(), String> {
    if let Some(failure) = expected_failure(expected) {
        return match outcome {
            Err(actual) => check_failure(failure, actual),
            Ok(Value::Object(actual)) if actual.get("error").is_some_and(|error| !error.is_null()) => {
                check_failure(failure, &Failure::from_members(actual))
            }
            Ok(actual) => Err(format!("must fail, gave {}", short(actual))),
        };
    }
    match (compare, outcome) {
        (_, Err(failure)) => Err(format!("failed: {}", failure.message)),
        (Compare::Custom(check), Ok(actual)) => check(expected, actual),
        (Compare::Trimmed, Ok(actual)) => values("", expected, actual, Mode::Trimmed),
        (Compare::Named, Ok(actual)) => values("", expected, actual, Mode::Named),
        (Compare::Whole, Ok(actual)) => {
            let named = expected.get("http").is_some();
            values("", expected, actual, if named { Mode::Named } else { Mode::Whole })
        }
    }
}

/// How objects and texts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Objects whole, texts exactly.
    Whole,
    /// Only the members that `expected` names.
    Named,
    /// Objects whole, texts after trimming both ends.
    Trimmed,
}

fn expected_failure(expected: &Value) -> Option<&Map<String, Value>> {
    let members = expected.as_object()?;
    let is_failure = members.get("error").is_some_and(Value::is_string)
        && members.keys().all(|key| FAILURE_MEMBERS.contains(&key.as_str()));
    is_failure.then_some(members)
}

/// The wording of a failure is informative; `field`, `http`, `names` and a kind such as `name-too-long` are not.
fn check_failure(expected: &Map<String, Value>, actual: &Failure) -> Result<(), String> {
    if actual.by == By::Adapter {
        return Err(format!("the adapter failed: {}", actual.message));
    }
    for member in ["field", "http", "names"] {
        if let Some(wanted) = expected.get(member) {
            let got = actual.members.get(member).unwrap_or(&Value::Null);
            values(member, wanted, got, Mode::Whole)?;
        }
    }
    let wanted = expected.get("error").and_then(Value::as_str).unwrap_or_default();
    match &actual.kind {
        Some(kind) if is_kind(wanted) && kind != wanted => Err(format!("error: expected kind {wanted}, got {kind}")),
        _ => Ok(()),
    }
}

/// Kinds are lower-case words joined by hyphens; everything else is prose.
fn is_kind(text: &str) -> bool {
    text.contains('-') && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn values(path: &str, expected: &Value, actual: &Value, mode: Mode) -> Result<(), String> {
    if let Some(pattern) = expected.get("$regex").and_then(Value::as_str) {
        return check_pattern(path, pattern, actual);
    }
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(got)) => objects(path, wanted, got, mode),
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                return Err(format!(
                    "{path}: expected {} items, got {}: {}",
                    wanted.len(),
                    got.len(),
                    short(actual)
                ));
            }
            let mut pairs = wanted.iter().zip(got).enumerate();
            pairs.try_for_each(|(index, (want, got))| values(&format!("{path}[{index}]"), want, got, mode))
        }
        (Value::String(wanted), Value::String(got)) if same_text(wanted, got, mode) => Ok(()),
        (Value::Number(wanted), Value::Number(got)) if wanted == got || wanted.as_f64() == got.as_f64() => Ok(()),
        _ if expected == actual => Ok(()),
        _ => Err(format!("{path}: expected {}, got {}", short(expected), short(actual))),
    }
}

fn objects(path: &str, wanted: &Map<String, Value>, got: &Map<String, Value>, mode: Mode) -> Result<(), String> {
    for (key, value) in wanted {
        match got.get(key) {
            Some(found) => values(&format!("{path}.{key}"), value, found, mode)?,
            None if value.is_null() => {}
            None => return Err(format!("{path}.{key}: missing, expected {}", short(value))),
        }
    }
    if mode == Mode::Named {
        return Ok(());
    }
    match got
        .iter()
        .find(|(key, value)| !wanted.contains_key(*key) && !value.is_null())
    {
        Some((key, value)) => Err(format!("{path}.{key}: not expected, got {}", short(value))),
        None => Ok(()),
    }
}

fn same_text(wanted: &str, got: &str, mode: Mode) -> bool {
    let (wanted, got) = if mode == Mode::Trimmed {
        (wanted.trim(), got.trim())
    } else {
        (wanted, got)
    };
    wanted == got || same_json(wanted, got)
}

/// JSON inside texts is compared as JSON. Scalars are left out: `1` and `1.0` are different texts.
fn same_json(wanted: &str, got: &str) -> bool {
    if !wanted.starts_with(['{', '[']) {
        return false;
    }
    match (
        serde_json::from_str::<Value>(wanted),
        serde_json::from_str::<Value>(got),
    ) {
        (Ok(wanted), Ok(got)) => wanted == got,
        _ => false,
    }
}

fn check_pattern(path: &str, pattern: &str, actual: &Value) -> Result<(), String> {
    let Some(text) = actual.as_str() else {
        return Err(format!(
            "{path}: expected a text like /{pattern}/, got {}",
            short(actual)
        ));
    };
    let regex = Regex::new(pattern).map_err(|error| format!("{path}: pattern: {error}"))?;
    if regex.is_match(text) {
        Ok(())
    } else {
        Err(format!("{path}: {} is not like /{pattern}/", short(actual)))
    }
}

/// A value in at most 160 characters.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(compare: Compare, expected: &Value, outcome: &Outcome) -> bool {
        check(compare, expected, outcome).is_ok()
    }

    #[test]
    fn objects_are_compared_whole_unless_named() {
        let (expected, actual) = (json!({"a": 1}), Ok(json!({"b": 2, "a": 1})));
        assert!(!holds(Compare::Whole, &expected, &actual));
        assert!(holds(Compare::Named, &expected, &actual));
        assert!(!holds(Compare::Named, &json!({"c": 1}), &actual));
    }

    #[test]
    fn a_failure_is_compared_by_field_and_kind_not_by_wording() {
        let failure = Err(Failure::new("some other words").with("field", "name").with("http", 400));
        assert!(holds(
            Compare::Whole,
            &json!({"error": "Words", "field": "name", "http": 400}),
            &failure
        ));
        assert!(!holds(
            Compare::Whole,
            &json!({"error": "Words", "field": "content"}),
            &failure
        ));
        let kind = Err(Failure::new("w").of_kind("name-missing"));
        assert!(!holds(Compare::Whole, &json!({"error": "name-empty"}), &kind));
        assert!(!holds(Compare::Whole, &json!({"error": "any"}), &Ok(json!("fine"))));
    }

    #[test]
    fn a_failure_of_an_adapter_is_never_what_a_case_expects() {
        let expected = json!({"error": "No answer"});
        assert!(holds(Compare::Whole, &expected, &Err(Failure::new("any"))));
        assert!(!holds(Compare::Whole, &expected, &Err(Failure::of_adapter("any"))));
    }

    #[test]
    fn patterns_and_json_texts_match() {
        assert!(holds(
            Compare::Whole,
            &json!([{"$regex": "^a+$", "$and": "words"}]),
            &Ok(json!(["aa"]))
        ));
        assert!(holds(Compare::Whole, &json!("{\"a\": 1}"), &Ok(json!("{\"a\":1}"))));
        assert!(!holds(Compare::Whole, &json!("a"), &Ok(json!("a "))));
        assert!(holds(Compare::Trimmed, &json!("a"), &Ok(json!("a "))));
    }

    #[test]
    fn array_order_matters() {
        assert!(!holds(Compare::Whole, &json!(["a", "b"]), &Ok(json!(["b", "a"]))));
    }
}
