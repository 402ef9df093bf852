//! The table from a wire name to what a call means.

use super::types::{CallContext, Decision};
use super::{arguments, load, run};
use crate::plan::{Action, Plan, PlannedTool};

/// Resolves a call. `None`: no tool of Knack has this name in this request, so the call is the client's.
/// `arguments` is the JSON text that the model wrote; anything else in it becomes an error text, never a run.
pub fn resolve(context: &CallContext<'_>, wire_name: &str, arguments: &str) -> Option<Decision> {
    let tool = owner(context.plan, wire_name)?;
    let declared = match &tool.action {
        Action::Declared { skill, tool: place } => {
            let entry = context.catalog.get(&skill.id);
            entry.and_then(|entry| Some((entry, entry.skill.tools.get(*place)?)))
        }
        _ => None,
    };
    let read_as = (&tool.schema, declared.map(|(_, tool)| tool));
    let written = arguments;
    let arguments = match arguments::read(&tool.name, arguments, read_as, context.validate) {
        Ok(arguments) => arguments,
        Err(refusal) => return Some(refusal),
    };
    Some(match &tool.action {
        Action::LoadSkill => load::load(context, &arguments),
        Action::RunSkillTool => run::skill_tool(context, &arguments),
        // Its schema requires nothing, and it does nothing without arguments: those that cannot be read are named.
        Action::RunCode
            if arguments.is_empty()
                && let Some(refusal) = arguments::unreadable(tool, written) =>
        {
            refusal
        }
        Action::RunCode => run::code(context, &tool.name, &arguments),
        Action::Declared { .. } => run::declared(context, declared, arguments),
        Action::LitellmSkill { skill } => match context.catalog.get(&skill.id) {
            Some(entry) => load::instructions(context.plan, entry, load::inputs_of(entry, &arguments)),
            None => arguments::error(crate::texts::SKILL_CHANGED.to_owned()),
        },
        Action::LitellmCode => run::litellm_code(context, &arguments),
    })
}

/// The tool of Knack that a name means: its wire name, or `name@version` of an injected tool's skill (OmniRoute's older spelling).
/// Every other name is the client's.
pub fn owner<'a>(plan: &'a Plan, wire_name: &str) -> Option<&'a PlannedTool> {
    if let Some(tool) = plan.tool(wire_name) {
        return Some(tool);
    }
    let (name, version) = wire_name.rsplit_once('@')?;
    let mut found = plan.tools.iter().filter(|tool| match &tool.action {
        Action::Declared { skill, .. } => {
            let current = skill.version.as_deref();
            (skill.id.name == name || skill.title == name || tool.name == name)
                && (version == "latest" || current == Some(version))
        }
        _ => false,
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
