//! Inputs of templates: what a pin gives them, and which required ones have no other source.

use knack_api::Skill;
use knack_api::skill_runtime::SkillPin;
use knack_skill::model::ActivationMode;

use super::types::{Rejection, RejectionReason};

/// What status says about a template that is served with these inputs in this mode. A request that names or loads a skill can give inputs;
/// modes that put the body into requests by themselves have those of the pin only.
pub(super) fn reservation(skill: &Skill, pin: Option<&SkillPin>, mode: ActivationMode) -> Option<Rejection> {
    let inputs = &skill.status.as_ref()?.inputs;
    let unknown = pin.map(|pin| {
        let known = |name: &&str| !inputs.iter().any(|input| input.name == *name);
        let names: Vec<&str> = pin.inputs.keys().map(String::as_str).filter(known).collect();
        names.join(", ")
    });
    if let Some(unknown) = unknown.filter(|names| !names.is_empty()) {
        return Some(Rejection {
            reason: RejectionReason::InputsUnknown,
            message: format!(
                "the pin sets inputs that the skill does not declare: {unknown}; they have no effect; correct spec.skillSelector.skills[].inputs"
            ),
        });
    }
    if !matches!(mode, ActivationMode::Always | ActivationMode::Auto) {
        return None;
    }
    let given = |name: &str| {
        pin.and_then(|pin| pin.inputs.get(name))
            .is_some_and(|value| !value.is_empty())
    };
    let missing: Vec<&str> = inputs
        .iter()
        .filter(|input| input.required && !given(&input.name))
        .map(|input| input.name.as_str())
        .collect();
    (!missing.is_empty()).then(|| Rejection {
        reason: RejectionReason::InputsMissing,
        message: format!(
            "required inputs have no value in mode {}: {}; the model is asked for them and gets the instructions only then; give values in \
             spec.skillSelector.skills[].inputs of the runtime, or serve the skill as Listed or OnRequest",
            mode.as_str(),
            missing.join(", ")
        ),
    })
}
