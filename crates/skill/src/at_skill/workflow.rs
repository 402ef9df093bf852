//! Input mappings of a workflow's skill node (docs/design/dialects.md#workflow-mappings).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::model::Input;
use crate::template::{self, FilledTooLarge};

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
pub fn map_workflow(node: &WorkflowNode<'_>, inputs: &[Input]) -> Result<BTreeMap<String, String>, FilledTooLarge> {
    if node.mappings.is_empty() {
        return Ok(super::map_text(inputs, &text(node.upstream)));
    }
    let mut variables = node.step_outputs.clone();
    variables.entry("input").or_insert_with(|| node.workflow_input.clone());
    let resolve = |value: &Value| {
        let Value::String(direct) = value else {
            return Ok(text(value));
        };
        if direct.contains("{{") {
            return template::fill_workflow(direct, &variables, node.step_outputs);
        }
        let known = template::workflow_value(direct.trim(), &variables, node.step_outputs);
        Ok(known.map_or_else(|| direct.clone(), text))
    };
    node.mappings
        .iter()
        .map(|(name, value)| Ok((name.clone(), resolve(value)?)))
        .collect()
}

/// A string as it is, anything else as JSON; null is empty.
fn text(value: &Value) -> String {
    if value.is_null() {
        String::new()
    } else {
        template::text_of(value)
    }
}
