//! The configuration of functions: tools without their values, and values that no tool declares.

use knack_api::Skill;
use knack_api::skill_runtime::SkillPin;
use knack_skill::config::{ConfigParam, plain_secrets, problems, undeclared};

use super::types::{Rejection, RejectionReason};

/// What status says about a skill of whose tools some are neither offered nor run here, or whose pin gives values for
/// nothing.
pub(super) fn reservation(skill: &Skill, pin: Option<&SkillPin>) -> Option<Rejection> {
    let status = skill.status.as_ref()?;
    let given = pin.and_then(|pin| pin.config_values(""));
    let entries = given.map(|config| config.entries).unwrap_or_default();
    let declared = status.tools.iter().filter(|tool| !tool.config.is_empty());
    let declared: Vec<(&str, Vec<ConfigParam>)> = declared
        .map(|tool| (tool.name.as_str(), tool.config.iter().map(Into::into).collect()))
        .collect();
    let tools = declared.iter().map(|(tool, params)| (*tool, params.as_slice()));
    let unknown = undeclared(&tools, &entries).join(", ");
    let plain = plain_secrets(&tools, &entries).join(", ");
    let missing: Vec<String> = tools
        .filter_map(|(tool, params)| Some(format!("{tool}: {}", problems(tool, params, &entries)?)))
        .collect();
    let notes = [
        (!missing.is_empty()).then(|| {
            let text = format!(
                "tools are neither offered nor run, since their configuration is not valid: {}; give values in \
                 spec.skillSelector.skills[].config of the runtime",
                missing.join("; ")
            );
            (RejectionReason::ToolsNotConfigured, text)
        }),
        (!unknown.is_empty()).then(|| {
            let text = format!(
                "no tool declares the configuration {unknown}, so it has no effect; correct spec.skillSelector.skills[].config"
            );
            (RejectionReason::ConfigUnknown, text)
        }),
        (!plain.is_empty()).then(|| {
            let text = format!(
                "the configuration {plain} is a secret, and everybody who may read the runtime reads it; use \
                 valueFrom.secretKeyRef in spec.skillSelector.skills[].config"
            );
            (RejectionReason::ConfigPlain, text)
        }),
    ];
    Rejection::of_notes(notes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::selection::tests::{runtime, scope, skill};
    use crate::selection::{Audience, NamespaceLabels, RejectionReason, select};

    #[test]
    fn tools_without_fitting_values_and_values_without_a_tool_are_reported_by_name() {
        let tools = json!([
            {"name": "look"},
            {"name": "build", "config": [
                {"name": "maxCost", "type": "number", "required": true, "min": 0, "max": 50},
                {"name": "quality", "type": "select", "options": ["draft", "high"]},
                {"name": "key", "type": "secret"},
            ]},
        ]);
        let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        for (config, expected) in [
            (
                json!([]),
                Some((RejectionReason::ToolsNotConfigured, "build: maxCost has no value;")),
            ),
            (json!([{"name": "maxCost", "value": "5"}]), None),
            (json!([{"name": "build.maxCost", "value": "5"}]), None),
            (json!([{"name": "maxCost", "valueFrom": secret}]), None),
            (
                json!([{"name": "maxCost", "value": "99"}, {"name": "quality", "value": "best"}]),
                Some((
                    RejectionReason::ToolsNotConfigured,
                    "build: maxCost must be at most 50, quality must be one of draft, high;",
                )),
            ),
            (
                json!([{"name": "maxCost", "value": "5"}, {"name": "look.maxCost", "value": "5"}]),
                Some((
                    RejectionReason::ConfigUnknown,
                    "declares the configuration look.maxCost,",
                )),
            ),
            (
                json!([{"name": "maxCost", "value": "5"}, {"name": "key", "valueFrom": secret}]),
                None,
            ),
            (
                json!([{"name": "maxCost", "value": "5"}, {"name": "build.key", "value": "top-secret"}]),
                Some((RejectionReason::ConfigPlain, "the configuration build.key is a secret,")),
            ),
            (
                json!([{"name": "key", "value": "top-secret"}]),
                Some((
                    RejectionReason::ToolsNotConfigured,
                    "the configuration key is a secret,",
                )),
            ),
            (
                json!([{"name": "cost", "value": "5"}]),
                Some((RejectionReason::ToolsNotConfigured, "declares the configuration cost,")),
            ),
        ] {
            let mut skill = skill("blue", "web", json!({}), json!({}));
            skill.status.as_mut().unwrap().tools = serde_json::from_value(tools.clone()).unwrap();
            let none = NamespaceLabels::new();
            let runtime = runtime(
                "blue",
                json!({"skillSelector": {"skills": [{"name": "web", "config": config}]}}),
            );
            let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
            let note = selected[0].accepted.as_ref().unwrap();
            assert_eq!(
                note.as_ref().map(|note| note.reason),
                expected.map(|(reason, _)| reason),
                "{config}"
            );
            if let Some((note, (_, expected_text))) = note.as_ref().zip(expected) {
                assert!(
                    note.reason.is_reservation()
                        && note.message.contains(expected_text)
                        && !note.message.contains("top-secret"),
                    "{}",
                    note.message
                );
            }
        }
    }
}
