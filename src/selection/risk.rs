//! Tools whose risk is above the runtime's limit.

use knack_api::{Skill, SkillRuntime};
use knack_skill::risk::Risk;

use super::types::{Reason, Rejection};

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
        reason: Reason::ToolsAboveMaxRisk,
        message: format!(
            "the runtime runs tools up to {} (spec.maxRisk), and neither offers nor runs {}; raise it, or declare another risk",
            max_risk.as_str(),
            above.join(", ")
        ),
    })
}
