//! What the API server refuses, for objects of files: the bounds of a definition, then its rules.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::patterns::{LABEL_KEY, LABEL_NAME, LABEL_VALUE, pattern_words};
use super::rules::{Check, RULES, Rule};
use super::unknown::join;

/// Problems that are reported of one object.
const PROBLEMS_MAX: usize = 8;

/// The metadata that Knack reads, as the API server checks it; a definition has no schema of it.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string", "maxLength": 63, "pattern": LABEL_NAME},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "pattern": LABEL_VALUE}},
    }})
});

/// What is wrong with an object by the definition of its kind, each with the path of the field. As at the API server, the rules of an
/// object are checked once it is within bounds.
pub fn problems(kind: &str, object: &Value) -> Vec<String> {
    let mut found = Problems::default();
    let schema = super::schema_of(kind).unwrap_or(&Value::Null);
    found.compare(&METADATA, &object["metadata"], "metadata");
    found.label_keys(&object["metadata"]["labels"]);
    match object.get("spec").filter(|spec| !spec.is_null()) {
        Some(spec) => found.compare(&schema["properties"]["spec"], spec, "spec"),
        None => found.tell("spec", "required"),
    }
    if found.0.is_empty() {
        for rule in RULES.iter().filter(|rule| rule.kind == kind) {
            each(object, rule.at, "", &mut |path, value| {
                found.0.extend(broken(rule, path, value));
            });
        }
    }
    found.0.truncate(PROBLEMS_MAX);
    found.0
}

/// Removes what the API server does, too: a field without a value, such as `env:`, where the definition has no null.
pub(crate) fn without_nulls(kind: &str, object: &mut Value) {
    if let (Some(schema), Some(spec)) = (super::schema_of(kind), object.get_mut("spec")) {
        remove_nulls(&schema["properties"]["spec"], spec);
    }
    if let Some(metadata) = object.get_mut("metadata") {
        remove_nulls(&METADATA, metadata);
    }
}

fn remove_nulls(schema: &Value, value: &mut Value) {
    // What a definition does not describe stays as it is.
    if schema.is_null() {
        return;
    }
    match value {
        Value::Object(members) => {
            let of_member = |name: &str| &schema["properties"][name];
            members.retain(|name, member| {
                let schema = of_member(name);
                !(member.is_null() && schema.is_object() && schema["nullable"] != true)
            });
            for (name, member) in members {
                let of_all = &schema["additionalProperties"];
                remove_nulls(if of_all.is_object() { of_all } else { of_member(name) }, member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_nulls(&schema["items"], item)),
        _ => {}
    }
}

/// Largest whole number that every floating point number below it is exact for: 2^53.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Whole numbers that were written as `1e9` or `2.0` are whole numbers, as kubectl sends them.
pub(crate) fn whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() < WHOLE_MAX);
            if let Some(written) = number.and_then(|number| format!("{number:.0}").parse::<i64>().ok()) {
                *value = written.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(members) => members.values_mut().for_each(whole),
        _ => {}
    }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn tell(&mut self, path: &str, text: impl std::fmt::Display) {
        self.0.push(format!("{path}: {text}"));
    }

    fn compare(&mut self, schema: &'static Value, value: &Value, path: &str) {
        // The bound keeps a long list that is wrong in the same way everywhere from filling the report.
        if self.0.len() >= PROBLEMS_MAX || (value.is_null() && schema["nullable"] == true) {
            return;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return self.quantity(schema, value, path);
        }
        match (schema["type"].as_str(), value) {
            (Some("object"), Value::Object(members)) => self.mapping(schema, members, path),
            (Some("array"), Value::Array(items)) => self.list(schema, items, path),
            (Some("string"), Value::String(text)) => self.text(schema, text, path),
            (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => {
                self.number(schema, value, path);
            }
            (Some("boolean"), Value::Bool(_)) | (None, _) => {}
            (Some(wanted), _) => self.tell(path, write_instead(wanted, schema, value, path)),
        }
    }

    fn mapping(&mut self, schema: &'static Value, members: &Map<String, Value>, path: &str) {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if members.get(name).is_none_or(Value::is_null) {
                self.tell(&join(path, name), "required");
            }
        }
        self.count(
            schema,
            ["minProperties", "maxProperties"],
            members.len(),
            "entries",
            path,
        );
        for (name, member) in members {
            let of_all = &schema["additionalProperties"];
            let of_member = if of_all.is_object() {
                of_all
            } else {
                &schema["properties"][name]
            };
            if !member.is_null() || of_all.is_object() {
                self.compare(of_member, member, &join(path, name));
            }
        }
    }

    fn list(&mut self, schema: &'static Value, items: &[Value], path: &str) {
        self.count(schema, ["minItems", "maxItems"], items.len(), "items", path);
        for (index, item) in items.iter().enumerate() {
            self.compare(&schema["items"], item, &format!("{path}[{index}]"));
        }
        let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate().filter(|_| !keys.is_empty()) {
            let key: Vec<String> = keys.iter().map(|key| item[*key].to_string()).collect();
            if !seen.insert(key.clone()) {
                let (keys, values) = (keys.join(", "), key.join(", "));
                self.tell(
                    &format!("{path}[{index}]"),
                    format!("an earlier item has {keys} {values}, too; remove one"),
                );
            }
        }
    }

    fn text(&mut self, schema: &'static Value, text: &str, path: &str) {
        if let Some(words) = schema["enum"].as_array() {
            if !words.iter().any(|word| word == text) {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                self.tell(path, format!("`{text}` must be one of {}", words.join(", ")));
            }
            return;
        }
        let length = text.chars().count();
        self.count(schema, ["minLength", "maxLength"], length, "characters", path);
        if let Some(pattern) = schema["pattern"].as_str()
            && length > 0
            && !matches(pattern, text)
        {
            self.tell(path, pattern_words(pattern));
        }
    }

    fn number(&mut self, schema: &'static Value, value: &Value, path: &str) {
        // Bounds are whole numbers, written as floating point ones.
        let bound = |name: &str| schema[name].as_f64();
        let number = value.as_f64().unwrap_or_default();
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            self.tell(path, format!("must be at least {least}"));
        }
        if let Some(most) = bound("maximum").filter(|most| number > *most) {
            self.tell(path, format!("must be at most {most}"));
        }
    }

    fn quantity(&mut self, schema: &'static Value, value: &Value, path: &str) {
        match value {
            Value::String(text) => self.text(schema, text, path),
            Value::Number(number) if number.is_i64() || number.is_u64() => self.number(schema, value, path),
            _ => self.tell(path, "write a quantity, such as 512Mi or \"0.5\""),
        }
    }

    fn count(&mut self, schema: &'static Value, bounds: [&str; 2], count: usize, of: &str, path: &str) {
        let [least, most] = bounds.map(|name| schema[name].as_u64());
        if let Some(least) = least.filter(|least| (count as u64) < *least) {
            if least == 1 {
                self.tell(path, "must not be empty");
            } else {
                self.tell(path, format!("must have at least {least} {of}"));
            }
        }
        if let Some(most) = most.filter(|most| (count as u64) > *most) {
            self.tell(path, format!("must have at most {most} {of}"));
        }
    }

    /// A schema has no pattern for the keys of a mapping.
    fn label_keys(&mut self, labels: &Value) {
        for key in labels.as_object().into_iter().flat_map(Map::keys) {
            if !matches(LABEL_KEY, key) {
                self.tell("metadata.labels", format!("`{key}`: {}", pattern_words(LABEL_KEY)));
            }
        }
    }
}

/// What to write in place of a value of another type.
fn write_instead(wanted: &str, schema: &Value, value: &Value, path: &str) -> String {
    match wanted {
        "object" => {
            let name = path.rsplit('.').next().unwrap_or_default();
            let fields = schema["properties"].as_object();
            let holds = |field: &Value| field["enum"].as_array().is_some_and(|words| words.contains(value));
            if let Some((field, _)) = fields.into_iter().flatten().find(|(_, field)| holds(field)) {
                let word = value.as_str().unwrap_or_default();
                return format!("write a mapping, such as `{name}: {{{field}: {word}}}`");
            }
            match fields.map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>()) {
                Some(fields) if !fields.is_empty() => {
                    format!("write a mapping with fields of {name}: {}", fields.join(", "))
                }
                _ => "write a mapping".to_owned(),
            }
        }
        "array" => "write a list".to_owned(),
        "integer" => "write a whole number".to_owned(),
        "boolean" => "write true or false".to_owned(),
        "string" if value.is_number() || value.is_boolean() => "write a string: put the value in quotes".to_owned(),
        _ => "write a string".to_owned(),
    }
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
    let path = join(path, name);
    if part.ends_with("[]") {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            each(item, rest, &format!("{path}[{index}]"), visit);
        }
    } else if part.ends_with("{}") {
        for (key, item) in value.as_object().into_iter().flatten() {
            each(item, rest, &join(&path, key), visit);
        }
    } else {
        each(value, rest, &path, visit);
    }
}

/// The problem with a value at the place of a rule, if it breaks it.
fn broken(rule: &Rule, path: &str, value: &Value) -> Option<String> {
    let message = rule.message;
    let of_keys = |value: &Value, is_legal: &dyn Fn(&str) -> bool| {
        let key = value.as_object()?.keys().find(|key| !is_legal(key))?;
        Some(format!("{path}: `{key}`: {message}"))
    };
    let is_kept = match rule.check()? {
        Check::Keys(is_legal) => return of_keys(value, &is_legal),
        Check::KeysOf(field, is_legal) => return of_keys(&value[field], &is_legal),
        Check::KeysMatch(pattern) => return of_keys(value, &|key| matches(pattern, key)),
        Check::Matches(pattern) => matches(pattern, value.as_str()?),
        Check::MatchesNot(pattern) => !matches(pattern, value.as_str()?),
        Check::Of(is_kept) => is_kept(value),
    };
    let text = if path.is_empty() {
        message.to_owned()
    } else {
        format!("{path}: {message}")
    };
    (!is_kept).then_some(text)
}

/// Whether a text matches a pattern of the definitions, each of which is compiled once. One that does not compile refuses nothing; a
/// test compiles all.
fn matches(pattern: &'static str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<&'static str, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_none_or(|regex| regex.is_match(text))
}
