//! The table from a wire name to what a call means.

use std::collections::{BTreeMap, BTreeSet};

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
    // A declared tool's arguments are checked by the schema that its author wrote.
    let read_as = match declared {
        Some((_, declared)) => (&declared.input_schema, Some(declared)),
        None => (&tool.schema, None),
    };
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
/// Every other name is the client's. [`aliases`] lists the names of the older spelling.
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

/// The names of the form `name@version` that mean a tool of this plan by the rule of [`owner`], each with the tool's wire name.
pub fn aliases(plan: &Plan) -> Vec<(String, String)> {
    let mut meanings: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for tool in &*plan.tools {
        let Action::Declared { skill, .. } = &tool.action else {
            continue;
        };
        let current = skill.version.as_deref().filter(|version| !version.contains('@'));
        let versions: BTreeSet<&str> = ["latest"].into_iter().chain(current).collect();
        let names = BTreeSet::from([skill.id.name.as_str(), &skill.title, &tool.name]);
        for name in names {
            for version in &versions {
                let meaning = meanings.entry(format!("{name}@{version}")).or_default();
                meaning.push(&tool.name);
            }
        }
    }
    let one = meanings.into_iter().filter_map(|(alias, tools)| match tools[..] {
        [tool] => Some((alias, tool.to_owned())),
        _ => None,
    });
    one.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::planned;
    use crate::fixture::{mk_catalog, mk_skill, mk_tool};
    use crate::model::{ActivationMode, Skill};

    #[test]
    fn aliases_are_the_names_with_a_version_that_have_one_owner() {
        let skill = |name: &str, title: &str, version: Option<&str>, tools: &[&str]| Skill {
            title: title.to_owned(),
            version: version.map(str::to_owned),
            tools: tools.iter().map(|tool| mk_tool(tool)).collect(),
            ..mk_skill(name, ActivationMode::Always)
        };
        let catalog = mk_catalog([
            skill("lookup", "Look Up", Some("1.2.0"), &["lookup"]),
            skill("pair", "pair", Some("2.0.0"), &["left", "right"]),
            skill("plain", "plain", None, &["plain"]),
            skill("odd", "odd", Some("1@2"), &["odd"]),
        ]);
        let plan = planned(&catalog, &[], &[], &[]);
        let all = aliases(&plan);
        let names: Vec<&str> = all.iter().map(|(alias, _)| alias.as_str()).collect();
        assert_eq!(
            names,
            [
                "Look Up@1.2.0",
                "Look Up@latest",
                "lookup@1.2.0",
                "lookup@latest",
                "odd@latest",
                "pair__left@2.0.0",
                "pair__left@latest",
                "pair__right@2.0.0",
                "pair__right@latest",
                "plain@latest",
            ]
        );
        for (alias, tool) in &all {
            assert_eq!(owner(&plan, alias).map(|owner| &owner.name), Some(tool), "{alias}");
        }
    }
}
