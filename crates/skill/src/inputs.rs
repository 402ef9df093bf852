//! Template inputs as declared in frontmatter. See docs/design/dialects.md#inputs.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::finding::{Finding, bounded};
use crate::model::{Input, InputKind};
use crate::problem::ProblemKind::{FieldInvalid, InputInvalid, InputRepeated};
use crate::template::{MAX_INPUT_NAME_CHARS, is_input_name};

/// Longest label in characters.
const MAX_LABEL_CHARS: usize = 128;
/// Longest default in characters.
const MAX_DEFAULT_CHARS: usize = 1024;
/// Longest help text in characters.
const MAX_DESCRIPTION_CHARS: usize = 512;

/// Reads an `inputs` list. Entries that cannot be used are left out and reported.
pub fn read(value: &Value) -> (Vec<Input>, Vec<Finding>) {
    let mut findings = Vec::new();
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Null => &[],
        _ => {
            findings.push(Finding::refused(
                FieldInvalid,
                "inputs",
                "inputs must be a list",
                "write one `- name: ..` per input",
            ));
            &[]
        }
    };
    let entries = bounded("inputs", items, &mut findings).iter().enumerate();
    let inputs: Vec<Input> = entries
        .filter_map(|(index, item)| read_one(&format!("inputs[{index}]"), item, &mut findings))
        .collect();
    findings.extend(repeated(&inputs));
    (inputs, findings)
}

/// Whether a value counts as nothing, as Agent Flow reads it: `false`, zero, and what is empty.
pub(crate) fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Reports names that are declared more than once; the last declaration counts.
pub fn repeated(inputs: &[Input]) -> Vec<Finding> {
    let mut seen = HashSet::new();
    let twice = inputs
        .iter()
        .enumerate()
        .filter(|(_, input)| !seen.insert(input.name.as_str()));
    twice
        .map(|(index, input)| {
            let message = format!("input '{}' is declared twice", input.name);
            Finding::refused(
                InputRepeated,
                format!("inputs[{index}].name"),
                message,
                "remove one of the two",
            )
        })
        .collect()
}

fn read_one(path: &str, item: &Value, findings: &mut Vec<Finding>) -> Option<Input> {
    let Value::Object(members) = item else {
        let message = "an input must be a mapping; this one is left out";
        findings.push(Finding::warned(InputInvalid, path, message, "write `- name: ..`"));
        return None;
    };
    let written = members.get("name").filter(|name| !is_falsy(name));
    let name = written.and_then(scalar_text).unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        let message = "an input needs a name; this one is left out";
        // A blank text is a name that breaks the rules for names; without one, Agent Flow passes the entry over.
        let is_blank = written.is_some_and(Value::is_string);
        let found = if is_blank { Finding::refused } else { Finding::warned };
        let field = format!("{path}.name");
        findings.push(found(InputInvalid, field, message, "give it a name"));
        return None;
    }
    let help =
        format!("use 1 to {MAX_INPUT_NAME_CHARS} of the letters a to z and A to Z, digits, hyphens and underscores");
    let chars = name.chars().count();
    if chars > MAX_INPUT_NAME_CHARS {
        let message = format!(
            "input name '{}' has {chars} characters, more than {MAX_INPUT_NAME_CHARS}; the input is left out",
            shortened(&name)
        );
        findings.push(Finding::refused(InputInvalid, format!("{path}.name"), message, help));
        return None;
    }
    if !is_input_name(&name) {
        // It can be given and required all the same: Agent Flow knows no other rule for it than its length.
        let message = format!("no placeholder can have the input name '{}'", shortened(&name));
        findings.push(Finding::warned(InputInvalid, format!("{path}.name"), message, help));
    }
    let mut fields = Fields {
        path,
        members,
        findings,
    };
    let written = fields.members.get("label").filter(|label| !is_falsy(label));
    let label = written.and_then(scalar_text).unwrap_or_default().trim().to_owned();
    if label.is_empty() && written.is_some_and(Value::is_string) {
        let message = "label is blank; the name is used".to_owned();
        fields.refuse("label", message, "give it a text, or remove it");
    }
    Some(Input {
        label: if label.is_empty() {
            name.clone()
        } else {
            fields.limited("label", label, MAX_LABEL_CHARS)
        },
        kind: fields.kind(),
        required: fields.required(),
        default: fields.text("default", MAX_DEFAULT_CHARS),
        description: fields.text("description", MAX_DESCRIPTION_CHARS),
        name,
    })
}

/// The members of one entry while it is read.
struct Fields<'a> {
    path: &'a str,
    members: &'a Map<String, Value>,
    findings: &'a mut Vec<Finding>,
}

impl Fields<'_> {
    fn refuse(&mut self, member: &str, message: String, help: &str) {
        self.findings.push(Finding::refused(
            InputInvalid,
            format!("{}.{member}", self.path),
            message,
            help,
        ));
    }

    fn kind(&mut self) -> InputKind {
        match self.members.get("type").unwrap_or(&Value::Null) {
            Value::String(word) if word == "textarea" => InputKind::Textarea,
            Value::String(word) if word == "text" => InputKind::Text,
            Value::Null => InputKind::Text,
            other => {
                let message = format!("unknown input type {}; text is used", shortened(&other.to_string()));
                let field = format!("{}.type", self.path);
                self.findings
                    .push(Finding::warned(InputInvalid, field, message, "write text or textarea"));
                InputKind::Text
            }
        }
    }

    fn required(&mut self) -> bool {
        let Some(value) = self.members.get("required") else {
            return false;
        };
        boolean(value).filter(|_| !value.is_null()).unwrap_or_else(|| {
            self.refuse(
                "required",
                "required must be true or false; false is used".to_owned(),
                "write true or false",
            );
            false
        })
    }

    fn text(&mut self, member: &str, max_chars: usize) -> Option<String> {
        let value = self.members.get(member)?;
        let text = match value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => {
                self.refuse(member, format!("{member} must be text"), "put it in quotes");
                scalar_text(other)?
            }
        };
        Some(self.limited(member, text, max_chars))
    }

    /// Reports a text that is too long; it is used nevertheless.
    fn limited(&mut self, member: &str, text: String, max_chars: usize) -> String {
        let chars = text.chars().count();
        if chars > max_chars {
            self.refuse(
                member,
                format!("{member} has {chars} characters, more than {max_chars}"),
                "shorten it",
            );
        }
        text
    }
}

/// Booleans and the words for them that YAML writers use. Absent is false.
pub fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Null => Some(false),
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            _ => None,
        },
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "t" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "f" | "n" => Some(false),
            _ => None,
        },
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// A whole number, written with or without a fraction of zero.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    // Through text: a cast would hide sign and size.
    format!("{number:.0}").parse().ok()
}

/// Text of a string, number or boolean.
pub fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// At most 40 characters of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_filled_in() {
        let (inputs, findings) = read(&json!([{"name": " a "}, {"name": 5, "type": "TEXTAREA", "required": "yes"}]));
        assert_eq!(
            (inputs[0].name.as_str(), inputs[0].label.as_str(), inputs[0].required),
            ("a", "a", false)
        );
        assert_eq!(
            (inputs[1].name.as_str(), inputs[1].kind, inputs[1].required),
            ("5", InputKind::Text, true)
        );
        assert_eq!(findings.len(), 1);
        assert!(!findings[0].is_refused());
    }

    #[test]
    fn every_problem_names_its_field() {
        let (inputs, findings) = read(&json!([
            "text",
            {"label": "no name"},
            {"name": "a b"},
            {"name": "c", "required": "maybe", "default": 5, "description": "d".repeat(513), "label": "l".repeat(129)},
            {"name": "c"},
            {"name": "文".repeat(65)},
            {"name": "d", "required": null}
        ]));
        let names: Vec<_> = inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["a b", "c", "c", "d"]);
        assert_eq!(inputs[1].default.as_deref(), Some("5"));
        let fields: Vec<_> = findings.iter().map(|finding| finding.field.as_str()).collect();
        let expected = [
            "inputs[0]",
            "inputs[1].name",
            "inputs[2].name",
            "inputs[3].label",
            "inputs[3].required",
            "inputs[3].default",
            "inputs[3].description",
            "inputs[5].name",
            "inputs[6].required",
            "inputs[2].name",
        ];
        assert_eq!(fields, expected);
        let refused = findings.iter().filter(|finding| finding.is_refused());
        let refused: Vec<_> = refused.map(|finding| finding.field.as_str()).collect();
        assert_eq!(refused, expected[3..], "what has no placeholder is kept with a warning");
    }

    #[test]
    fn a_blank_name_or_label_is_refused_and_one_that_is_not_there_is_not() {
        for (entry, left, refused) in [
            (json!({"name": "  "}), 0, Some("inputs[0].name")),
            (json!({"name": "a", "label": " \t"}), 1, Some("inputs[0].label")),
            (json!({"name": ""}), 0, None),
            (json!({"name": null}), 0, None),
            (json!({"label": "L"}), 0, None),
            (json!({"name": "a", "label": ""}), 1, None),
        ] {
            let (inputs, findings) = read(&json!([entry]));
            let actual = findings.iter().find(|finding| finding.is_refused());
            assert_eq!(actual.map(|finding| finding.field.as_str()), refused, "{entry}");
            assert_eq!(inputs.len(), left, "{entry}");
            assert!(inputs.iter().all(|input| input.label == "a"), "{entry}");
        }
    }

    #[test]
    fn inputs_must_be_a_list() {
        assert_eq!(read(&json!("text")).1.len(), 1);
        assert_eq!(read(&Value::Null), (Vec::new(), Vec::new()));
    }
}
