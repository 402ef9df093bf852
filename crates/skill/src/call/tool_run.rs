//! A call of a declared tool, resolved. The one place that says what a run with environment grants is.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::arguments;
use super::types::{ToolRun, Validate};
use crate::argv;
use crate::catalog::ModelCode;
use crate::config::{self, ConfigEntry};
use crate::model::{Skill, Tool};
use crate::open_command::is_open_tool;
use crate::risk::Risk;
use crate::texts;
use crate::tool_env::grantable;

/// The environment names that a declared tool asks for and that can be granted, sorted.
fn requested_env(skill: &Skill, tool: &Tool) -> Vec<String> {
    let asked = skill.env.iter().chain(&tool.env);
    let mut env: Vec<String> = asked.filter(|name| grantable(name).is_ok()).cloned().collect();
    env.sort_unstable();
    env.dedup();
    env
}

/// The environment values that runs of a tool can be granted: those that it asks for, and none if its arguments choose the program.
pub fn grantable_env(skill: &Skill, tool: &Tool) -> Vec<String> {
    if is_open_tool(tool, |path| skill.files.contains_key(path)) {
        return Vec::new();
    }
    requested_env(skill, tool)
}

impl ToolRun {
    /// Maps arguments that were checked already.
    ///
    /// Errors: one line for the model.
    pub fn new(skill: &Skill, tool: &Tool, arguments: Map<String, Value>) -> Result<Self, String> {
        // A tool that declares only an input schema is mapped by HUSK's rule as well: its properties, in declared order, are the parameters.
        let arguments = Value::Object(arguments);
        let argv = argv::build(tool, &arguments).map_err(|refused| texts::argument_refused(&refused.to_string()))?;
        let Value::Object(arguments) = arguments else {
            return Err(texts::argument_refused("the arguments are not an object"));
        };
        Ok(Self {
            skill: skill.id.clone(),
            tool: tool.name.clone(),
            arguments,
            argv,
            env: requested_env(skill, tool),
            is_open: is_open_tool(tool, |path| skill.files.contains_key(path)),
            risk: tool.risk,
            config: tool.config.clone(),
        })
    }

    /// Gives it the values of its configuration: what is known here, to be added to its environment. The variables that a
    /// cluster fills are among the names that it asks for, and no others of configuration do.
    ///
    /// Errors: why it is not run, without a mark of an error. The rules that are broken are for whoever gives the values.
    pub fn configure(&mut self, entries: &[ConfigEntry]) -> Result<BTreeMap<String, String>, String> {
        if self.config.is_empty() {
            return Ok(BTreeMap::new());
        }
        let resolved = config::resolve(&self.tool, &self.config, entries)
            .map_err(|_| texts::not_configured(&self.skill.name, &self.tool))?;
        let environment = resolved.environment();
        let names = resolved
            .variables()
            .map(str::to_owned)
            .chain(environment.keys().cloned());
        self.env.extend(names);
        self.env.sort_unstable();
        self.env.dedup();
        Ok(environment)
    }

    /// Finds a tool by its declared name, checks the arguments against its schema, and maps them: from a call's words to the
    /// run, with the rules that the gateway has.
    ///
    /// Errors: one line for the model.
    pub fn resolve(
        skill: &Skill,
        tool: &str,
        arguments: Map<String, Value>,
        validate: Validate<'_>,
    ) -> Result<Self, String> {
        let Some(tool) = skill.tools.iter().find(|declared| declared.name == tool) else {
            let names: Vec<&str> = skill.tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(texts::no_tool(&skill.id.name, tool, &names));
        };
        let arguments = argv::spelled(tool, arguments);
        let arguments = arguments::checked(&tool.name, arguments, &tool.input_schema, validate)?;
        Self::new(skill, tool, arguments)
    }

    /// Whether it may run where tools up to a level run, with, or without, granted values where model-written code is
    /// allowed or denied.
    ///
    /// Errors: why not, without a mark of an error.
    pub fn admit(&self, has_grants: bool, model_code: ModelCode, max_risk: Risk) -> Result<(), String> {
        let name = &self.skill.name;
        if self.risk > max_risk {
            return Err(texts::above_max_risk(name, &self.tool, self.risk, max_risk));
        }
        if !self.is_open {
            return Ok(());
        }
        if has_grants {
            Err(texts::open_command_with_grants(name, &self.tool))
        } else if model_code == ModelCode::Deny {
            Err(texts::open_command_denied(name, &self.tool))
        } else {
            Ok(())
        }
    }
}
