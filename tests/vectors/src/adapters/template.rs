//! Adapters of `template.json`: `{{name}}` templates and inputs.

use std::collections::BTreeMap;

use knack_skill::inputs;
use knack_skill::model::Input;
use knack_skill::template;
use serde_json::{Map, Value, json};

use crate::facts::workflow;
use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("template", "substitute", substitute),
    Op::new("template", "validate_inputs", validate_inputs),
    Op::new("template", "workflow_template", workflow_template),
];

fn substitute(input: &Value) -> Outcome {
    let prompt = input["prompt"].as_str().unwrap_or_default();
    let provided = provided(input);
    let filled = template::substitute(prompt, &declared(input), |name| provided.get(name).map(String::as_str));
    Ok(filled.map_err(too_large)?.into())
}

fn validate_inputs(input: &Value) -> Outcome {
    match template::validate_inputs(&declared(input), &provided(input)) {
        Ok(()) => Ok("ok".into()),
        Err(missing) => Err(Failure::new(missing.to_string())),
    }
}

fn workflow_template(input: &Value) -> Outcome {
    let text = input["template"].as_str().unwrap_or_default();
    Ok(workflow::fill(text, &members(&input["variables"]), &members(&input["step_outputs"])).into())
}

pub(super) fn too_large(error: template::FilledTooLarge) -> Failure {
    Failure::new(error.to_string())
}

/// Input declarations as a frontmatter would hold them. Names that no placeholder can hold are left out there too.
pub(super) fn declared(input: &Value) -> Vec<Input> {
    inputs::read(&input["inputs"]).0
}

pub(super) fn provided(input: &Value) -> BTreeMap<String, String> {
    template::given(&members(&input["provided"]))
}

fn members(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// An input as the Agent Flow API shows it.
pub(super) fn input_json(input: &Input) -> Value {
    let kind = match input.kind {
        knack_skill::model::InputKind::Text => "text",
        knack_skill::model::InputKind::Textarea => "textarea",
    };
    json!({
        "name": input.name, "label": input.label, "type": kind, "required": input.required,
        "default": input.default, "description": input.description,
    })
}
