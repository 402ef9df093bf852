//! `{{name}}` templates: substitution, placeholder checks and input values.
//!
//! A placeholder is `{{[a-zA-Z0-9_-]+}}`, the same for checking and substituting. One pass: inserted text is not
//! searched again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::model::Input;

/// Longest input name in characters (Agent Flow).
pub const MAX_INPUT_NAME_CHARS: usize = 64;
/// Longest filled text in bytes: a million tokens, which is what the largest models read. A template repeats a value wherever
/// it names its input, so a filled text may be far longer than all that was sent; its length is known before it is made.
pub const MAX_FILLED_BYTES: usize = 4 << 20;

/// A template that would become too long with these values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text with these values would have {bytes} bytes, above the limit of {MAX_FILLED_BYTES}; give shorter values, or name them less often in the text"
)]
pub struct FilledTooLarge {
    /// The length of the filled text.
    pub bytes: usize,
}

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
/// last one counts. Refused, before it is made, if the text would be longer than [`MAX_FILLED_BYTES`].
pub fn substitute<'v>(
    body: &str,
    inputs: &'v [Input],
    given: impl Fn(&str) -> Option<&'v str>,
) -> Result<String, FilledTooLarge> {
    let values = values(inputs, given);
    replace(body, |name| value_of(&values, name))
}

/// The length of what [`substitute`] would make, which may be more than there is memory for.
pub fn filled_bytes<'v>(body: &str, inputs: &'v [Input], given: impl Fn(&str) -> Option<&'v str>) -> usize {
    let values = values(inputs, given);
    replaced_bytes(body, |name| value_of(&values, name))
}

fn values<'v>(inputs: &'v [Input], given: impl Fn(&str) -> Option<&'v str>) -> BTreeMap<&'v str, &'v str> {
    let value = |input: &'v Input| {
        let given = given(&input.name);
        given.or(input.default.as_deref()).unwrap_or_default()
    };
    inputs.iter().map(|input| (input.name.as_str(), value(input))).collect()
}

fn value_of<'v>(values: &BTreeMap<&str, &'v str>, name: &str) -> &'v str {
    values.get(name).copied().unwrap_or_default()
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
    scan(body, |name, _| {
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

/// Replaces every placeholder.
fn replace<'v>(text: &str, value: impl Fn(&str) -> &'v str) -> Result<String, FilledTooLarge> {
    let bytes = replaced_bytes(text, &value);
    if bytes > MAX_FILLED_BYTES {
        return Err(FilledTooLarge { bytes });
    }
    let mut out = String::with_capacity(bytes);
    let mut copied = 0;
    scan(text, |name, range| {
        out.push_str(&text[copied..range.start]);
        out.push_str(value(name));
        copied = range.end;
    });
    out.push_str(&text[copied..]);
    Ok(out)
}

/// The length of what [`replace`] makes.
fn replaced_bytes<'v>(text: &str, value: impl Fn(&str) -> &'v str) -> usize {
    let (mut removed, mut added) = (0, 0_usize);
    scan(text, |name, range| {
        removed += range.len();
        added = added.saturating_add(value(name).len());
    });
    added.saturating_add(text.len() - removed)
}

/// Calls `found` for every placeholder from the left: its name and the range with its braces. Linear in the text.
fn scan<'a>(text: &'a str, mut found: impl FnMut(&'a str, std::ops::Range<usize>)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if &bytes[at..at + 2] != b"{{" {
            at += 1;
            continue;
        }
        let start = at + 2;
        let length = bytes[start..].iter().take_while(|byte| is_input_byte(**byte)).count();
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

    fn substitute(body: &str, inputs: &[Input], given: &BTreeMap<String, String>) -> String {
        super::substitute(body, inputs, |name| given.get(name).map(String::as_str)).unwrap()
    }

    /// A few kilobytes with a thousand placeholders name gigabytes: the length is known, and nothing is made.
    #[test]
    fn a_text_that_repeats_a_value_too_often_is_refused_by_its_length() {
        let inputs = [input("a", false, None)];
        let long = "x".repeat(32 << 20);
        let filled = |times: usize, value: &str| {
            super::substitute(&"{{a}}".repeat(times), &inputs, |_| Some(value)).map(|text| text.len())
        };
        for (times, value, expected) in [
            (1_000, &long[..], Err(FilledTooLarge { bytes: 1_000 << 25 })),
            (1, &long[..MAX_FILLED_BYTES], Ok(MAX_FILLED_BYTES)),
            (
                1,
                &long[..=MAX_FILLED_BYTES],
                Err(FilledTooLarge {
                    bytes: MAX_FILLED_BYTES + 1,
                }),
            ),
        ] {
            assert_eq!(filled(times, value), expected, "{times}");
        }
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
}
