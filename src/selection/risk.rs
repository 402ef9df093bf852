//! Tools whose risk is above the runtime's limit.

use knack_api::{Skill, SkillRuntime};
use knack_skill::risk::Risk;

use super::types::{Rejection, RejectionReason};

/// What status says about a skill of whose tools some are neither offered nor run at this runtime.
pub(super) fn reservation(runtime: &SkillRuntime, skill: &Skill) -> Option<Rejection> {
    let max_risk = runtime.spec.max_risk();
    let tools = skill.status.iter().flat_map(|status| &status.tools);
    let above = tools.filter_map(|tool| {
        let risk = Risk::from(tool.risk?);
        (risk > max_risk).then(|| format!("{} ({})", tool.name, risk.as_str()))
    });
    let above: Vec<String> = above.collect();
    (!above.is_empty()).then(|| Rejection {
        reason: RejectionReason::ToolsAboveMaxRisk,
        message: format!(
            "the runtime runs tools up to {} (spec.maxRisk), and neither offers nor runs {}; raise it, or declare another risk",
            max_risk.as_str(),
            above.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::selection::tests::{runtime, scope, skill};
    use crate::selection::{Audience, NamespaceLabels, RejectionReason, select};

    #[test]
    fn tools_above_the_limit_of_risk_are_reported_by_name_and_the_skill_is_served() {
        let tools =
            json!([{"name": "look"}, {"name": "wipe", "risk": "Moderate"}, {"name": "melt", "risk": "Critical"}]);
        for (spec, expected) in [
            (json!({}), None),
            (json!({"maxRisk": "Critical"}), None),
            (json!({"maxRisk": "Dangerous"}), Some("melt (Critical)")),
            (json!({"maxRisk": "Safe"}), Some("wipe (Moderate), melt (Critical)")),
        ] {
            let mut skill = skill("blue", "disk", json!({}), json!({}));
            skill.status.as_mut().unwrap().tools = serde_json::from_value(tools.clone()).unwrap();
            let none = NamespaceLabels::new();
            let scope = scope(&none);
            let runtime = runtime("blue", spec.clone());
            let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
            let note = selected[0].accepted.as_ref().unwrap();
            assert_eq!(note.is_some(), expected.is_some(), "{spec}: {note:?}");
            let Some((note, names)) = note.as_ref().zip(expected) else {
                continue;
            };
            assert!(note.reason == RejectionReason::ToolsAboveMaxRisk && note.reason.is_reservation());
            let expected = format!("neither offers nor runs {names};");
            assert!(note.message.contains(&expected), "{}", note.message);
        }
    }
}
