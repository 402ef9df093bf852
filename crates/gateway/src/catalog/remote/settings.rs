//! The settings of a runtime, as the hub's line has them.

use std::time::Duration;

use knack_hub_api::convert::{activation_from_name, limit_from_name};
use knack_hub_api::{RuntimeLine, RuntimeName, UnservedSkill};
use knack_skill::catalog::{ConfigValues, ModelCode, Node, Pin, Unserved};
use knack_skill::model::SkillRef;
use knack_skill::risk::Risk;

use crate::catalog::RuntimeSettings;

/// The settings of a runtime with the skills that it does not serve, and whether its sandboxes have node.
pub(super) fn settings_from_line(
    name: &RuntimeName,
    line: &RuntimeLine,
    unserved: &[UnservedSkill],
) -> (RuntimeSettings, Node) {
    let settings = RuntimeSettings {
        name: name.clone(),
        suspend: line.suspend,
        max_activation: activation_from_name(line.max_activation),
        model_code: if line.model_code {
            ModelCode::Allow
        } else {
            ModelCode::Deny
        },
        max_risk: line.max_risk.map_or(Risk::Critical, limit_from_name),
        timeout: Duration::from_secs(line.timeout_seconds),
        max_timeout: Duration::from_secs(line.max_timeout_seconds),
        memory_bytes: line.memory_bytes,
        max_memory_bytes: line.memory_bytes,
        max_tool_rounds: line.max_tool_rounds,
        deadline: Duration::from_secs(line.deadline_seconds),
        max_listing_tokens: usize::try_from(line.max_listing_tokens).unwrap_or(usize::MAX),
        models: line.models.clone(),
        min_max_tokens: line.min_max_tokens,
        pins: line
            .pins
            .iter()
            .map(|pin| Pin {
                skill: SkillRef {
                    namespace: pin.namespace.clone(),
                    name: pin.name.clone(),
                },
                mode: pin.mode.map(activation_from_name),
                inputs: pin.inputs.clone(),
                version: None,
            })
            .collect(),
        config: ConfigValues::AtHub,
        unserved: unserved.iter().map(unserved_from_line).collect(),
        upstreams: line.upstreams.clone(),
        ..RuntimeSettings::default()
    };
    (settings, if line.node { Node::Present } else { Node::Absent })
}

fn unserved_from_line(line: &UnservedSkill) -> Unserved {
    Unserved {
        skill: SkillRef {
            namespace: line.namespace.clone(),
            name: line.name.clone(),
        },
        why: line.why.clone(),
    }
}
