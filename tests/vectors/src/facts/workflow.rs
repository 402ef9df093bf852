//! Templates and input mappings of a workflow's skill node (docs/design/dialects.md#workflow-mappings). The product has no
//! workflows: a node calls the route of runs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use knack_skill::at_skill::map_text;
use knack_skill::model::Input;
use knack_skill::template::text_of;
use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// What a skill node sees when it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkflowNode<'a> {
    /// `inputMappings` of the node: input name to node id, template or direct value.
    pub(crate) mappings: &'a Map<String, Value>,
    /// Outputs of finished nodes, by id.
    pub(crate) step_outputs: &'a Map<String, Value>,
    /// The workflow's own input, known as `input`.
    pub(crate) workflow_input: &'a Value,
    /// Output of the node before this one.
    pub(crate) upstream: &'a Value,
}

/// Maps a node to the skill's inputs. Without mappings the previous node's output goes to the first required input, else the first.
/// A name that nothing resolves is a direct value; a placeholder that nothing resolves stays as written.
pub(crate) fn map(node: &WorkflowNode<'_>, inputs: &[Input]) -> BTreeMap<String, String> {
    if node.mappings.is_empty() {
        return map_text(inputs, &text(node.upstream));
    }
    let mut variables = node.step_outputs.clone();
    variables.entry("input").or_insert_with(|| node.workflow_input.clone());
    let resolve = |value: &Value| {
        let Value::String(direct) = value else {
            return text(value);
        };
        if direct.contains("{{") {
            return fill(direct, &variables, node.step_outputs);
        }
        let name = direct.trim();
        // The output of a finished node may be null, which is no text; its name is not one either.
        let is_null = variables.contains_key(name.strip_suffix(".output").unwrap_or(name));
        match value_of(name, &variables, node.step_outputs) {
            Some(value) => text(value),
            None if is_null => String::new(),
            None => direct.clone(),
        }
    };
    node.mappings
        .iter()
        .map(|(name, value)| (name.clone(), resolve(value)))
        .collect()
}

/// A string as it is, anything else as JSON; null is empty.
fn text(value: &Value) -> String {
    if value.is_null() { String::new() } else { text_of(value) }
}

/// Fills a template: `{{name}}`, `{{path.to.member}}` and `{{<step>.output}}`, each step of letters, digits, `_` and `-`; what has
/// no value stays as it is. Values that are not text become JSON text.
pub(crate) fn fill(template: &str, variables: &Map<String, Value>, step_outputs: &Map<String, Value>) -> String {
    let Ok(placeholder) = Regex::new(r"\{\{([\w-]+(?:\.[\w-]+)*)\}\}") else {
        return template.to_owned();
    };
    let filled = placeholder.replace_all(template, |found: &Captures<'_>| {
        value_of(&found[1], variables, step_outputs).map_or_else(|| found[0].to_owned(), text_of)
    });
    Cow::into_owned(filled)
}

/// The value of a name: a variable, a member of one by dotted path, or the output of a step.
fn value_of<'a>(
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workflow_templates_keep_what_has_no_value() {
        let variables = json!({"cfg": {"a": {"b": 7}}, "x": "1", "node-1.output": "v"});
        let outputs = json!({"node-1": "O1", "n2": {"k": [1]}});
        let filled = |text: &str| fill(text, variables.as_object().unwrap(), outputs.as_object().unwrap());
        assert_eq!(
            filled("{{cfg.a.b}} {{x}} {{node-1}} {{n2.output}} {{no}}"),
            "7 1 {{node-1}} {\"k\":[1]} {{no}}"
        );
        let variables = json!({"a b": "v", " x ": "v", "x": "v", "a.": "v"});
        let filled = |text: &str| fill(text, variables.as_object().unwrap(), &Map::new());
        // What is no name is no placeholder, whatever a variable is called.
        assert_eq!(filled("{{a b}} {{ x }} {{a.}} {{x}}"), "{{a b}} {{ x }} {{a.}} v");
    }

    #[test]
    fn an_output_that_is_null_is_empty_text_and_an_unknown_name_is_a_direct_value() {
        let (mappings, outputs) = (
            json!({"a": "n1", "b": "n1.output", "c": "input", "d": "n2", "e": " n1 "}),
            json!({"n1": null}),
        );
        let node = WorkflowNode {
            mappings: mappings.as_object().unwrap(),
            step_outputs: outputs.as_object().unwrap(),
            workflow_input: &Value::Null,
            upstream: &Value::Null,
        };
        let mapped = map(&node, &[]);
        assert_eq!(json!(mapped), json!({"a": "", "b": "", "c": "", "d": "n2", "e": ""}));
    }
}
