//! What the API server refuses by the rules of a definition, for objects of files.

use serde_json::Value;

use super::rules::{Check, RULES, Rule};

/// What is wrong with an object by the rules of its kind, each with the path of the field.
pub fn broken_rules(kind: &str, object: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.kind == kind) {
        each(object, rule.at, "", &mut |path, value| {
            problems.extend(broken(rule, path, value));
        });
    }
    problems
}

/// Visits the values at a position of a rule.
fn each(value: &Value, at: &str, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    if at.is_empty() {
        return visit(path, value);
    }
    let (part, rest) = at.split_once('.').unwrap_or((at, ""));
    let name = part.trim_end_matches("[]").trim_end_matches("{}");
    let Some(value) = value.get(name).filter(|value| !value.is_null()) else {
        return;
    };
    let path = super::unknown::join(path, name);
    if part.ends_with("[]") {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            each(item, rest, &format!("{path}[{index}]"), visit);
        }
    } else if part.ends_with("{}") {
        for (key, item) in value.as_object().into_iter().flatten() {
            each(item, rest, &super::unknown::join(&path, key), visit);
        }
    } else {
        each(value, rest, &path, visit);
    }
}

fn broken(rule: &Rule, path: &str, value: &Value) -> Option<String> {
    let message = rule.message;
    match rule.check? {
        Check::Keys(is_legal) => {
            let key = value.as_object()?.keys().find(|key| !is_legal(key))?;
            Some(format!("{path}: `{key}`: {message}"))
        }
    }
}
