//! Input mappings of a workflow's skill node (`seeds/2` section 7.3).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::model::Input;

/// What a skill node sees when it runs.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowNode<'a> {
    /// `inputMappings` of the node: input name to node id, template or direct value.
    pub mappings: &'a Map<String, Value>,
    /// Outputs of finished nodes, by id.
    pub step_outputs: &'a Map<String, Value>,
    /// The workflow's own input, known as `input`.
    pub workflow_input: &'a Value,
    /// Output of the node before this one.
    pub upstream: &'a Value,
}

/// Maps a node to the skill's inputs. Without mappings the previous node's output goes to the first required input, else the first.
/// A name that nothing resolves is a direct value; a placeholder that nothing resolves stays as written.
pub fn map_workflow(node: &WorkflowNode<'_>, inputs: &[Input]) -> BTreeMap<String, String> {
    if node.mappings.is_empty() {
        return super::map_text(inputs, &text(node.upstream));
    }
    node.mappings.iter().map(|(name, value)| (name.clone(), resolve(node, value))).collect()
}

fn resolve(node: &WorkflowNode<'_>, value: &Value) -> String {
    let Value::String(direct) = value else { return text(value) };
    if direct.contains("{{") {
        return fill(node, direct);
    }
    look_up(node, direct.trim()).map_or_else(|| direct.clone(), |value| text(&value))
}

/// Replaces every `{{path}}` that resolves; one pass, so values are never expanded again.
fn fill(node: &WorkflowNode<'_>, template: &str) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((path, tail)) = after.split_once("}}") else { break };
        filled.push_str(before);
        match look_up(node, path.trim()) {
            Some(value) => filled.push_str(&text(&value)),
            None => {
                filled.push_str("{{");
                filled.push_str(path);
                filled.push_str("}}");
            }
        }
        rest = tail;
    }
    filled.push_str(rest);
    filled
}

/// Resolves `input`, a node id, `<id>.output`, or a dotted path into either.
fn look_up(node: &WorkflowNode<'_>, path: &str) -> Option<Value> {
    if let Some(value) = node.step_outputs.get(path) {
        return Some(value.clone());
    }
    let mut parts = path.split('.');
    let root = parts.next()?;
    let mut value = match node.step_outputs.get(root) {
        Some(value) => value,
        None if root == "input" => node.workflow_input,
        None => return None,
    };
    for (depth, part) in parts.enumerate() {
        value = match value {
            Value::Object(members) if members.contains_key(part) => members.get(part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            // `<id>.output` is the node's whole output where that has no member of this name.
            _ if depth == 0 && part == "output" => value,
            _ => return None,
        };
    }
    Some(value.clone())
}

/// A string as it is, anything else as JSON; null is empty.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
