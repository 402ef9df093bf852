//! Inputs, tools and environment names of a skill.

use serde_json::Value;

use super::reader::{Fields, list_of};
use super::types::{LoadInput, SpecOverrides};
use crate::finding::{Finding, MAX_ENTRIES};
use crate::inputs;
use crate::model::{Dialect, Input, Tool};
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
            self.tell(finding);
        }
        if !inputs.is_empty() {
            let declared = inputs.iter().map(|input| input.name.as_str()).collect();
            let document = self.document;
            for name in template::undeclared(&document.body, &declared)
                .into_iter()
                .take(MAX_ENTRIES)
            {
                let message = format!("placeholder {{{{{name}}}}} is not a declared input and becomes nothing");
                let finding = Finding::refused(
                    ProblemKind::PlaceholderUndeclared,
                    format!("body.{name}"),
                    message,
                    "declare it under inputs, or remove it",
                );
                self.tell(Finding {
                    strict: if document.dialect == Dialect::AgentFlow {
                        Severity::Error
                    } else {
                        Severity::Warning
                    },
                    ..finding
                });
            }
        }
        inputs
    }

    pub(super) fn tools(&mut self, input: &LoadInput) -> Vec<Tool> {
        let declared = match &input.overrides.tools {
            Some(tools) => tools.clone(),
            None => self.own_tools(),
        };
        let findings = tools::check(&declared);
        // A manifest's author wrote for Knack: there is nothing to be lenient about.
        let from_spec = input.overrides.tools.is_some();
        let broken: Vec<String> = findings
            .iter()
            .filter(|finding| finding.is_refused())
            .map(|finding| finding.field.clone())
            .collect();
        for finding in findings {
            if from_spec && finding.is_refused() {
                let problem = Problem::new(Severity::Error, finding.kind, finding.message, finding.help);
                self.problems.push(problem.on(format!("spec.{}", finding.field)));
            } else {
                self.tell(finding);
            }
        }
        let usable = declared.into_iter().enumerate().filter(|(index, _)| {
            let path = format!("tools[{index}].");
            !broken.iter().any(|field| field.starts_with(&path))
        });
        let usable: Vec<ToolDeclaration> = usable.map(|(_, tool)| tool).collect();
        self.check_programs(&usable, input);
        usable.into_iter().map(Tool::from).collect()
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
            self.tell(Finding::warned(
                ProblemKind::FieldHasNoEffect,
                "tools",
                message,
                "use allowed-tools for such a list",
            ));
            return Vec::new();
        }
        let (tools, findings) = tools::read(value);
        for finding in findings {
            self.tell(finding);
        }
        tools
    }

    /// A program given as a path must be a file of the skill.
    pub(super) fn check_programs(&mut self, tools: &[ToolDeclaration], input: &LoadInput) {
        for tool in tools {
            let program = tool.command[0].trim_start_matches("./");
            let is_path = tool.command[0].contains('/') && !tool.command[0].starts_with('/');
            if is_path && !input.files.contains_key(program) {
                let message = format!(
                    "tool \"{}\" runs {program}, which is not a file of the skill",
                    tool.name
                );
                let help = "add the file or correct the path";
                self.tell(Finding::warned(
                    ProblemKind::ToolFileMissing,
                    format!("tools.{}", tool.name),
                    message,
                    help,
                ));
            }
        }
    }

    pub(super) fn env(&mut self) -> Vec<String> {
        let names = self.member("tool_env").map(list_of).unwrap_or_default();
        let findings = tools::check_env("tool_env", &names);
        let bad: Vec<String> = findings.iter().map(|finding| finding.field.clone()).collect();
        for finding in findings {
            self.tell(finding);
        }
        let usable = names
            .into_iter()
            .enumerate()
            .filter(|(index, _)| !bad.contains(&format!("tool_env[{index}]")));
        usable.map(|(_, name)| name).collect()
    }
}
