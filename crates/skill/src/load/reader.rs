//! Reads members of one frontmatter and keeps the problems, with file and line.

use serde_json::Value;

use super::inert::{PACKAGES_KEY, is_inert};
use super::reading::Fields;
use crate::agentskills::{self, MAX_COMPATIBILITY_CHARS, MAX_DESCRIPTION_CHARS};
use crate::finding::{Finding, MAX_ENTRIES};
use crate::inputs::{self, scalar_text};
use crate::model::Dialect;
use crate::names;
use crate::problem::{Problem, ProblemKind, Profile, Severity};
use crate::tools::{clean, clean_lines};

/// Claude Code's key for a skill that only users start.
pub(super) const DISABLE_MODEL_INVOCATION: &str = "disable-model-invocation";
/// Keys that some field of the skill takes.
pub(super) const USED_KEYS: [&str; 18] = [
    "name",
    "description",
    "display_name",
    "version",
    "tags",
    "activation",
    "mode",
    "enabled",
    DISABLE_MODEL_INVOCATION,
    "inputs",
    "model",
    "tools",
    "tool_env",
    "timeout_ms",
    "metadata",
    "license",
    "compatibility",
    PACKAGES_KEY,
];
/// Size over which a SKILL.md is reported as large: the limit of Agent Flow.
const LARGE_DOCUMENT_BYTES: usize = 51_200;

impl Fields<'_> {
    pub(super) fn report(&mut self, finding: Finding) {
        let severity = if self.profile == Profile::Strict {
            finding.strict
        } else {
            Severity::Warning
        };
        let line = self.document.line_of(&finding.field);
        let mut help = finding.help;
        if finding.leaves_out_tool && severity == Severity::Warning {
            help.push_str("; until then the tool is left out");
        }
        let problem = Problem::new(severity, finding.kind, finding.message, help);
        self.problems.push(
            problem
                .in_file(self.document.file.as_str())
                .at_line(line)
                .on(finding.field),
        );
    }

    /// Both profiles refuse it.
    pub(super) fn refuse(&mut self, kind: ProblemKind, field: &str, message: String, help: &str) {
        let problem = Problem::new(Severity::Error, kind, message, help);
        let line = self.document.line_of(field);
        self.problems
            .push(problem.in_file(self.document.file.as_str()).at_line(line).on(field));
    }

    pub(super) fn member(&self, key: &str) -> Option<&Value> {
        self.document.members.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn metadata(&self, key: &str) -> Option<&Value> {
        self.member("metadata")?.get(key).filter(|value| !value.is_null())
    }

    /// Text of a scalar as written; a list or mapping is reported and counts as absent.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let value = self.member(key)?;
        let is_text = value.is_string();
        let Some(text) = self.document.written(key) else {
            let message = format!("{key} must be text; it is left out");
            self.report(Finding::refused(
                ProblemKind::FieldInvalid,
                key,
                message,
                "write one line of text",
            ));
            return None;
        };
        if !is_text {
            let message = format!("{key} is not text; it is read as {text:?}");
            self.report(Finding::warned(
                ProblemKind::FieldInvalid,
                key,
                message,
                "put it in quotes",
            ));
        }
        Some(clean_lines(&text)).filter(|text| !text.is_empty())
    }

    pub(super) fn check_size(&mut self) {
        let bytes = self.document.text.len();
        if bytes > LARGE_DOCUMENT_BYTES {
            let message = format!("the file has {bytes} bytes; all of it goes to the model when the skill is loaded");
            let help = "move long material to other files of the skill and refer to them";
            self.report(Finding::warned(ProblemKind::FileTooLarge, "", message, help));
        }
        if self.document.text.trim().is_empty() {
            // An editor that truncates before it writes must not empty a skill that is in service.
            let help = "write name and description between --- lines, and instructions after them";
            self.refuse(ProblemKind::BodyEmpty, "", "the file is empty".to_owned(), help);
        } else if self.document.body.is_empty() {
            let message = "the body is empty, so the model gets no instructions";
            self.report(Finding::warned(
                ProblemKind::BodyEmpty,
                "",
                message,
                "write them after the frontmatter",
            ));
        }
    }

    pub(super) fn check_unknown_keys(&mut self) {
        let document = self.document;
        let unknown = document
            .members
            .keys()
            .map(String::as_str)
            .filter(|name| !USED_KEYS.contains(name) && !is_inert(name));
        for name in unknown.take(MAX_ENTRIES) {
            self.report(Finding::warned(
                ProblemKind::FieldUnknown,
                name,
                format!("unknown key {}; it is kept", inputs::shortened(name)),
                "remove it, or move it under metadata",
            ));
        }
    }

    /// Shown name; the frontmatter's name must be the identity if it is a legal one.
    pub(super) fn title(&mut self, id: &str) -> String {
        let name = self.text("name");
        if let Some(name) = &name
            && self.document.dialect != Dialect::Husk
            && agentskills::nfkc(name) != id
        {
            let message = format!("name {name:?} differs from the folder's or object's name {id:?}, which is used");
            let finding = Finding::refused(ProblemKind::NameMismatch, "name", message, "make the two equal");
            let legal = names::check(name).is_ok();
            self.report(if legal {
                finding
            } else {
                Finding {
                    strict: Severity::Warning,
                    ..finding
                }
            });
        }
        let shown = self.text("display_name").or(name).map(|text| clean(&text));
        shown.filter(|title| !title.is_empty()).unwrap_or_else(|| id.to_owned())
    }

    pub(super) fn description(&mut self, title: &str) -> String {
        if let Some(Value::String(text)) = self.member("compatibility")
            && text.chars().count() > MAX_COMPATIBILITY_CHARS
        {
            let message = format!("compatibility is longer than {MAX_COMPATIBILITY_CHARS} characters");
            self.report(Finding::refused(
                ProblemKind::CompatibilityTooLong,
                "compatibility",
                message,
                "shorten it",
            ));
        }
        let Some(description) = self.text("description") else {
            if self.document.node.is_some() {
                let finding = Finding::warned(
                    ProblemKind::DescriptionMissing,
                    "description",
                    "there is no description, so a model does not know when to use the skill; the name is used instead",
                    "say in one or two sentences what it does and when to use it",
                );
                self.report(finding);
            }
            return title.to_owned();
        };
        let chars = description.chars().count();
        if chars > MAX_DESCRIPTION_CHARS {
            let message = format!("description has {chars} characters, more than {MAX_DESCRIPTION_CHARS}");
            let help = "shorten it; listings cut it";
            self.report(Finding::refused(
                ProblemKind::DescriptionTooLong,
                "description",
                message,
                help,
            ));
        }
        description
    }
}

/// Texts of a list, or of one string with commas.
pub(super) fn list_of(value: &Value) -> Vec<String> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items.iter().filter_map(scalar_text).collect(),
        Value::String(text) => text.split(',').map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    texts
        .into_iter()
        .take(MAX_ENTRIES)
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}
