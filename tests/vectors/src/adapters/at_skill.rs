//! Adapters of `at_skill.json`: `@skill text` and input mapping.

use knack_skill::at_skill;
use serde_json::{Map, Value, json};

use super::omniroute::{inputs, items, text};
use crate::facts::workflow::{self, WorkflowNode};
use crate::registry::{Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("at_skill", "parse", parse),
    Op::new("at_skill", "map_text", map_text),
    Op::new("at_skill", "workflow_map", workflow_map),
];

fn parse(input: &Value) -> Outcome {
    let message = text(input, "message");
    Ok(match at_skill::parse(message) {
        Some(mention) => json!({"skill": mention.skill, "text": mention.text}),
        None => json!({"skill": null, "text": message}),
    })
}

fn map_text(input: &Value) -> Outcome {
    Ok(json!(at_skill::map_text(
        &inputs(items(input, "inputs")),
        text(input, "text")
    )))
}

fn workflow_map(input: &Value) -> Outcome {
    let empty = Map::new();
    let node = WorkflowNode {
        mappings: input["node_data"]["inputMappings"].as_object().unwrap_or(&empty),
        step_outputs: input["step_outputs"].as_object().unwrap_or(&empty),
        workflow_input: &input["workflow_input"],
        upstream: &input["upstream"],
    };
    let mapped = workflow::map(&node, &inputs(items(input, "skill_inputs")));
    Ok(json!(mapped))
}
