//! Inputs, tools and environment names of a skill.

use std::collections::HashSet;

use serde_json::Value;

use super::functions::{FunctionSource, Functions};
use super::reader::list_of;
use super::reading::Fields;
use super::types::{LoadInput, SpecOverrides};
use crate::finding::{Finding, MAX_ENTRIES};
use crate::ids;
use crate::inputs;
use crate::model::{ActivationMode, Dialect, Input, Tool};
use crate::open_command::is_open_tool;
use crate::placeholder;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::template;
use crate::tools::{self, ToolDeclaration};

impl Fields<'_> {
    pub(super) fn inputs(&mut self, overrides: &SpecOverrides) -> Vec<Input> {
        let (inputs, findings) = match &overrides.inputs {
            Some(inputs) => (inputs.clone(), inputs::repeated(inputs)),
            None => inputs::read(self.document.members.get("inputs").unwrap_or(&Value::Null)),
        };
        for finding in findings {
            self.report(finding);
        }
        self.check_placeholders(&inputs, overrides.inputs.is_some());
        for finding in placeholder::in_body(&self.document.body, &inputs) {
            self.report(finding);
        }
        inputs
    }

    /// Agent Flow refuses a placeholder that is no declared input, and a manifest's author wrote for Knack: both profiles
    /// refuse it there. In other dialects it becomes nothing, if the body is a template at all.
    fn check_placeholders(&mut self, inputs: &[Input], from_spec: bool) {
        let document = self.document;
        let refused = document.dialect == Dialect::AgentFlow || from_spec;
        if inputs.is_empty() && !refused {
            return;
        }
        let declared = inputs.iter().map(|input| input.name.as_str()).collect();
        let undeclared = template::undeclared(&document.body, &declared);
        for name in undeclared.into_iter().take(MAX_ENTRIES) {
            let (kind, field) = (ProblemKind::PlaceholderUndeclared, format!("body.{name}"));
            let help = "declare it under inputs, or remove it";
            if refused {
                let message = format!("placeholder {{{{{name}}}}} is not a declared input");
                self.refuse(kind, &field, message, help);
            } else {
                let message =
                    format!("placeholder {{{{{name}}}}} is not a declared input and is replaced by an empty text");
                self.report(Finding::warned(kind, field, message, help));
            }
        }
    }

    /// In these modes the body enters requests by itself, and only a pin can give it values.
    pub(super) fn check_unfilled(&mut self, mode: ActivationMode, inputs: &[Input]) {
        if !matches!(mode, ActivationMode::Always | ActivationMode::Auto) {
            return;
        }
        for (index, input) in inputs.iter().enumerate().filter(|(_, input)| input.required) {
            let message = format!(
                "input {} is required, and mode {} gives it no value; the model is asked for it and gets the instructions only then",
                input.name,
                mode.as_str()
            );
            let help = "give it in a pin of the SkillRuntime, or use Listed or OnRequest";
            let field = format!("inputs[{index}].required");
            self.report(Finding::warned(ProblemKind::InputUnfilled, field, message, help));
        }
    }

    pub(super) fn tools(&mut self, input: &LoadInput, source: &FunctionSource<'_>) -> (Vec<Tool>, Functions) {
        let declared = match &input.overrides.tools {
            Some(tools) => tools.clone(),
            None => self.own_tools(),
        };
        let mut findings = tools::check(&declared);
        let commands = declared.iter().enumerate();
        findings.extend(commands.flat_map(|(index, tool)| placeholder::in_command(index, tool)));
        // A manifest's author wrote for Knack: there is nothing to be lenient about.
        let from_spec = input.overrides.tools.is_some();
        let broken: Vec<String> = findings
            .iter()
            .filter(|finding| finding.is_refused())
            .map(|finding| finding.field.clone())
            .collect();
        for finding in findings {
            if from_spec {
                let severity = if finding.is_refused() {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                let problem = Problem::new(severity, finding.kind, finding.message, finding.help);
                self.problems.push(problem.on(format!("spec.{}", finding.field)));
            } else {
                let leaves_out_tool = finding.is_refused();
                self.report(Finding {
                    leaves_out_tool,
                    ..finding
                });
            }
        }
        let usable = declared.into_iter().enumerate().filter(|(index, _)| {
            let path = format!("tools[{index}].");
            !broken.iter().any(|field| field.starts_with(&path))
        });
        let (usable, functions) = self.expand(usable.collect(), source);
        self.check_programs(&usable, input);
        let usable: Vec<Tool> = usable.into_iter().map(Tool::from).collect();
        self.check_open(&usable, input);
        (usable, functions)
    }

    /// The frontmatter's declarations. A `tools` of plain words (other products' allow-lists) declares nothing.
    pub(super) fn own_tools(&mut self) -> Vec<ToolDeclaration> {
        let value = self.document.members.get("tools").unwrap_or(&Value::Null);
        let declares = match value {
            Value::Array(items) => items.iter().any(Value::is_object),
            Value::Null => return Vec::new(),
            _ => false,
        };
        if !declares && self.document.dialect != Dialect::Husk {
            let message = "tools holds no declarations (name, description, command), so it has no effect here";
            self.report(Finding::warned(
                ProblemKind::FieldHasNoEffect,
                "tools",
                message,
                "use allowed-tools for such a list",
            ));
            return Vec::new();
        }
        let (tools, findings) = tools::read(value);
        for finding in findings.into_iter().chain(tools::unknown_keys(value)) {
            self.report(finding);
        }
        tools
    }

    /// A tool whose arguments choose the program can run model-written code.
    fn check_open(&mut self, tools: &[Tool], input: &LoadInput) {
        for tool in tools
            .iter()
            .filter(|tool| is_open_tool(tool, |path| input.files.contains_key(path)))
        {
            let message = format!(
                "the arguments of tool \"{}\" choose which program its command runs, so it gets no environment values and does not run where model-written code is denied",
                tool.name
            );
            self.report(Finding::warned(
                ProblemKind::ToolInvalid,
                format!("tools.{}", tool.name),
                message,
                "name a file of the skill in the command",
            ));
        }
    }

    /// Ids of other systems: the manifest's, else those of `metadata.skill_id`.
    pub(super) fn ids(&mut self, from_spec: Option<Vec<String>>) -> Vec<String> {
        let mut ids = if let Some(ids) = from_spec {
            ids.iter().map(|id| ids::bare(id).to_owned()).collect()
        } else {
            let (ids, findings) = ids::read(self.metadata("skill_id").unwrap_or(&Value::Null));
            for finding in findings {
                self.report(finding);
            }
            ids
        };
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        for id in ids.iter().filter(|id| !ids::is_legal(id)) {
            let message = format!("spec.ids: {:?} is not a valid id", crate::inputs::shortened(id));
            let help = "write letters, digits, `_`, `-`, `.` and `:`, 128 at most";
            let problem = Problem::new(Severity::Error, ProblemKind::FieldInvalid, message, help);
            self.problems.push(problem.on("spec.ids"));
        }
        ids
    }

    pub(super) fn env(&mut self) -> Vec<String> {
        let names = self.member("tool_env").map(list_of).unwrap_or_default();
        if self.member("tool_env").is_some_and(Value::is_object) {
            self.report(tools::env_is_no_list("tool_env"));
        }
        let findings = tools::check_env("tool_env", &names);
        let bad: Vec<String> = findings.iter().map(|finding| finding.field.clone()).collect();
        for finding in findings {
            self.report(finding);
        }
        let usable = names
            .into_iter()
            .enumerate()
            .filter(|(index, _)| !bad.contains(&format!("tool_env[{index}]")));
        usable.map(|(_, name)| name).collect()
    }
}
