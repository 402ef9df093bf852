//! `{{name}}` templates: substitution, placeholder checks, input values, and the templates of workflows.
//!
//! A placeholder is `{{[a-zA-Z0-9_-]+}}`, the same for checking and substituting. One pass: inserted text is not
//! searched again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::model::Input;

/// Longest input name in characters (Agent Flow).
pub const MAX_INPUT_NAME_CHARS: usize = 64;

/// A required input without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Missing required input: '{name}'")]
pub struct MissingInput {
    /// The first one in declared order.
    pub name: String,
}

/// Replaces every placeholder: the given value, else the declared default, else nothing.
///
/// A name that is not declared becomes nothing, even if a value was given for it. Of two declarations of one name the
/// last one counts.
pub fn substitute(body: &str, inputs: &[Input], given: &BTreeMap<String, String>) -> String {
    let values: BTreeMap<&str, &str> = inputs
        .iter()
        .map(|input| {
            let given = given.get(&input.name).map(String::as_str);
            (
                input.name.as_str(),
                given.or(input.default.as_deref()).unwrap_or_default(),
            )
        })
        .collect();
    replace(body, is_input_byte, |name| {
        Some(values.get(name).copied().unwrap_or_default().to_owned())
    })
}

/// Whether an input needs a value and has none that is not empty. A default does not count: the author asks for a value.
pub fn is_missing(input: &Input, given: &BTreeMap<String, String>) -> bool {
    input.required && given.get(&input.name).is_none_or(String::is_empty)
}

/// Whether every required input has a value.
pub fn validate_inputs(inputs: &[Input], given: &BTreeMap<String, String>) -> Result<(), MissingInput> {
    match inputs.iter().find(|input| is_missing(input, given)) {
        Some(input) => Err(MissingInput {
            name: input.name.clone(),
        }),
        None => Ok(()),
    }
}

/// Names of placeholders in `body` that are not in `declared`, sorted.
pub fn undeclared<'a>(body: &'a str, declared: &BTreeSet<&str>) -> Vec<&'a str> {
    let mut names = BTreeSet::new();
    scan(body, is_input_byte, |name, _| {
        if !declared.contains(name) {
            names.insert(name);
        }
    });
    names.into_iter().collect()
}

/// Whether a text is legal between the braces.
pub fn is_input_name(name: &str) -> bool {
    (1..=MAX_INPUT_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_input_byte)
}

/// Fills a workflow template: `{{name}}`, `{{path.to.member}}` and `{{<step>.output}}`; what has no value stays as it is.
///
/// Values that are not text become JSON text.
pub fn fill_workflow(template: &str, variables: &Map<String, Value>, step_outputs: &Map<String, Value>) -> String {
    let lookup = |name: &str| workflow_value(name.trim(), variables, step_outputs).map(text_of);
    replace(template, |byte| !matches!(byte, b'{' | b'}'), lookup)
}

/// The value of a name in a workflow: a variable, a member of one by dotted path, or the output of a step.
pub fn workflow_value<'a>(
    name: &str,
    variables: &'a Map<String, Value>,
    step_outputs: &'a Map<String, Value>,
) -> Option<&'a Value> {
    let known = |value: &&Value| !value.is_null();
    if let Some(value) = variables.get(name).filter(known) {
        return Some(value);
    }
    if let Some(value) = name
        .strip_suffix(".output")
        .and_then(|step| step_outputs.get(step))
        .filter(known)
    {
        return Some(value);
    }
    let mut steps = name.split('.');
    let mut value = variables.get(steps.next()?)?;
    for step in steps {
        value = value.get(step)?;
    }
    Some(value).filter(known)
}

/// The values of inputs, given as JSON. A null is no value, as in the arguments of a tool.
pub fn given(members: &Map<String, Value>) -> BTreeMap<String, String> {
    let given = members.iter().filter(|(_, value)| !value.is_null());
    given.map(|(name, value)| (name.clone(), text_of(value))).collect()
}

/// A value as text: strings as they are, everything else as JSON.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_input_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Replaces placeholders whose name consists of `legal` bytes; `None` leaves one unchanged.
fn replace(text: &str, legal: impl Fn(u8) -> bool, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    scan(text, legal, |name, range| {
        if let Some(value) = value(name) {
            out.push_str(&text[copied..range.start]);
            out.push_str(&value);
            copied = range.end;
        }
    });
    out.push_str(&text[copied..]);
    out
}

/// Calls `found` for every placeholder from the left: its name and the range with its braces. Linear in the text.
fn scan<'a>(text: &'a str, legal: impl Fn(u8) -> bool, mut found: impl FnMut(&'a str, std::ops::Range<usize>)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if &bytes[at..at + 2] != b"{{" {
            at += 1;
            continue;
        }
        let start = at + 2;
        let length = bytes[start..].iter().take_while(|byte| legal(**byte)).count();
        let end = start + length;
        if length > 0 && bytes[end..].starts_with(b"}}") {
            found(&text[start..end], at..end + 2);
            at = end + 2;
        } else {
            // The name cannot hold a brace, so nothing before `end` opens another placeholder, except `{{{`.
            at = if length == 0 { at + 1 } else { end };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::InputKind;

    fn input(name: &str, required: bool, default: Option<&str>) -> Input {
        Input {
            name: name.to_owned(),
            label: name.to_owned(),
            kind: InputKind::Text,
            required,
            default: default.map(str::to_owned),
            description: None,
        }
    }

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn given_beats_default_beats_nothing() {
        let inputs = [
            input("a", false, Some("A")),
            input("b", false, Some("B")),
            input("c", false, None),
        ];
        assert_eq!(
            substitute("{{a}}{{b}}{{c}}{{d}}.", &inputs, &texts(&[("a", ""), ("d", "x")])),
            "B."
        );
    }

    #[test]
    fn values_are_not_expanded_again() {
        let inputs = [input("a", false, None), input("b", false, None)];
        assert_eq!(
            substitute("{{a}}", &inputs, &texts(&[("a", "{{b}}"), ("b", "x")])),
            "{{b}}"
        );
    }

    #[test]
    fn what_is_not_a_placeholder_stays() {
        let inputs = [input("a", false, Some("X"))];
        for (body, expected) in [
            ("{{ a }}", "{{ a }}"),
            ("{{{a}}}", "{X}"),
            ("{{a.b}}", "{{a.b}}"),
            ("{{a}", "{{a}"),
            ("{{a{{a}}", "{{aX"),
        ] {
            assert_eq!(substitute(body, &inputs, &texts(&[])), expected, "{body}");
        }
    }

    #[test]
    fn a_default_does_not_satisfy_required() {
        let inputs = [input("x", false, None), input("a", true, Some("D"))];
        let missing = Err(MissingInput { name: "a".to_owned() });
        assert_eq!(validate_inputs(&inputs, &texts(&[])), missing);
        assert_eq!(validate_inputs(&inputs, &texts(&[("a", "")])), missing);
        assert_eq!(validate_inputs(&inputs, &texts(&[("a", " ")])), Ok(()));
    }

    #[test]
    fn a_null_is_no_value() {
        let inputs = [
            input("a", true, Some("D")),
            input("b", false, Some("E")),
            input("c", false, None),
        ];
        let members = serde_json::json!({"a": null, "b": null, "c": false});
        let given = given(members.as_object().unwrap());
        assert_eq!(substitute("{{a}}{{b}}{{c}}", &inputs, &given), "DEfalse");
        assert!(is_missing(&inputs[0], &given));
    }

    #[test]
    fn undeclared_names_are_sorted_and_reported_once() {
        assert_eq!(
            undeclared("{{z}}{{my-var}}{{z}}{{a}}", &BTreeSet::from(["a"])),
            ["my-var", "z"]
        );
    }

    #[test]
    fn workflow_templates_keep_what_has_no_value() {
        let variables = json!({"cfg": {"a": {"b": 7}}, "x": "1", "node-1.output": "v"});
        let outputs = json!({"node-1": "O1", "n2": {"k": [1]}});
        let fill = |text: &str| fill_workflow(text, variables.as_object().unwrap(), outputs.as_object().unwrap());
        assert_eq!(
            fill("{{cfg.a.b}} {{x}} {{node-1}} {{n2.output}} {{no}}"),
            "7 1 {{node-1}} {\"k\":[1]} {{no}}"
        );
    }
}
