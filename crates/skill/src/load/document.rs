//! SKILL.md of a folder: found, decoded, split, its YAML read, its dialect recognised.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::frontmatter::{self, Delimiters, Split, YAML_LINE_OFFSET};
use crate::husk;
use crate::model::{Dialect, SkillFile};
use crate::problem::{Problem, ProblemKind, Profile, Severity};
use crate::template;
use crate::tree::{self, DOCUMENT_NAMES, MAX_SKILL_MD_BYTES};
use crate::yaml::{self, Node, YamlError};

/// The field of problems about the text as a whole, in the Agent Flow dialect.
const WHOLE_FILE: &str = "content";

/// A read SKILL.md.
#[derive(Debug)]
pub(super) struct Document {
    /// File name.
    pub(super) file: String,
    /// The whole text.
    pub(super) text: String,
    /// YAML text; empty without frontmatter.
    pub(super) yaml: String,
    /// YAML tree.
    pub(super) node: Option<Node>,
    /// The YAML tree as JSON members.
    pub(super) members: Map<String, Value>,
    /// Trimmed body.
    pub(super) body: String,
    /// Recognised dialect.
    pub(super) dialect: Dialect,
}

impl Document {
    /// The line of a field in the file; 0 if unknown. `body.<name>` is the first placeholder of that name in the body, and of what
    /// is no name the first such text.
    pub(super) fn line_of(&self, field: &str) -> u32 {
        if let Some(name) = field.strip_prefix("body.") {
            let written = if template::is_input_name(name) {
                format!("{{{{{name}}}}}")
            } else {
                name.to_owned()
            };
            let body = self.text.rfind(&self.body).unwrap_or(0);
            let at = self.text[body..].find(&written).map(|at| body + at);
            let line = at.map(|at| self.text[..at].split('\n').count());
            return line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        }
        match &self.node {
            Some(node) if !field.is_empty() && field != WHOLE_FILE => {
                node.line_of(field).saturating_add(YAML_LINE_OFFSET)
            }
            _ => 0,
        }
    }

    /// The text of a scalar as written: `1.0` stays `1.0`.
    pub(super) fn written(&self, key: &str) -> Option<String> {
        self.node.as_ref()?.get(key)?.plain_text(&self.yaml)
    }
}

/// The problem of a file without frontmatter.
fn without_frontmatter(demanded: Severity) -> Problem {
    let message = "the file has no frontmatter, so name and description are taken from the folder's name";
    let help = "begin the file with ---, name: and description: lines, and ---";
    Problem::new(demanded, ProblemKind::FrontmatterMissing, message, help).at_line(1)
}

/// The problem of a frontmatter without an end.
fn unclosed_frontmatter() -> Problem {
    let (message, help) = (
        "the frontmatter has no closing --- line",
        "end the frontmatter with a line ---",
    );
    Problem::new(Severity::Error, ProblemKind::FrontmatterUnclosed, message, help)
}

/// The problem of a frontmatter that holds nothing.
fn empty_frontmatter(demanded: Severity) -> Problem {
    let (message, help) = ("the frontmatter is empty", "write at least name: and description:");
    Problem::new(demanded, ProblemKind::FrontmatterNotMapping, message, help).at_line(1)
}

/// The problem of a frontmatter that is a list or a scalar.
fn frontmatter_of_another_type() -> Problem {
    let (message, help) = ("the frontmatter must be a mapping", "write key: value lines");
    Problem::new(Severity::Error, ProblemKind::FrontmatterNotMapping, message, help)
}

/// The help where a tab is in the indentation.
const INDENT: &str = "indent with spaces, not with tabs";

/// The problem of a frontmatter that is not YAML.
fn yaml_problem(error: &YamlError, yaml: &str) -> Problem {
    let message = format!("the frontmatter is not valid YAML: {}", error.message);
    let help = if error.is_bound {
        "make the frontmatter smaller and flatter"
    } else if error.message == yaml::TAB_INDENTATION {
        INDENT
    } else {
        let line = error.line.and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
        yaml_help(yaml, line)
    };
    let line = error.line.map_or(0, |line| line.saturating_add(YAML_LINE_OFFSET));
    Problem::new(Severity::Error, ProblemKind::YamlInvalid, message, help).at_line(line)
}

/// What to do about a line of YAML that cannot be read, by its indentation and that of the lines before.
fn yaml_help(yaml: &str, line: usize) -> &'static str {
    let indented = |text: &str| text.len() - text.trim_start().len();
    let before = || {
        let lines = yaml.lines().take(line.saturating_sub(1));
        lines.filter(|text| !text.trim().is_empty())
    };
    let mut here = yaml.lines().skip(line.saturating_sub(1));
    // A text that the tab ends begins one line before.
    if here.clone().take(2).any(|text| text[..indented(text)].contains('\t')) {
        return INDENT;
    }
    let width = here.next().map_or(0, indented);
    let opens = before().last().is_some_and(|text| text.trim_end().ends_with(':'));
    let is_new = !opens && !before().any(|text| indented(text) == width);
    let is_deeper = before().last().is_some_and(|text| indented(text) < width);
    if line > 1 && is_new && is_deeper {
        "check the indentation of this line; put texts that hold a colon, # or brackets in quotes"
    } else if line > 1 && is_new {
        "check the indentation of this line"
    } else {
        "put texts that hold a colon, # or brackets in quotes"
    }
}

/// The problem of a key that appears twice, if one does.
fn repeated_key(node: &Node, demanded: Severity) -> Option<Problem> {
    let (key, line) = node.repeated_key()?;
    let message = format!("key {key} appears twice; the last one is used");
    let problem = Problem::new(demanded, ProblemKind::KeyRepeated, message, "remove one of the two");
    Some(problem.at_line(line.saturating_add(YAML_LINE_OFFSET)).on(key))
}

/// Reads the document, or reports why it cannot be read.
pub(super) fn read(
    files: &BTreeMap<String, SkillFile>,
    profile: Profile,
) -> Result<(Document, Vec<Problem>), Vec<Problem>> {
    let (file, text) = decode(files).map_err(|problem| vec![problem])?;
    let demanded = if profile == Profile::Strict {
        Severity::Error
    } else {
        Severity::Warning
    };
    let (yaml, body) = match frontmatter::split(&text, Delimiters::Lenient) {
        Split::Found { yaml, body } => (yaml, body),
        Split::Unclosed { .. } => return Err(vec![unclosed_frontmatter().in_file(file.as_str())]),
        Split::Absent { body } => {
            // For an empty file one message says it all.
            let lacks = (!body.trim().is_empty()).then(|| without_frontmatter(demanded).in_file(file.as_str()));
            return Ok((plain(&file, &text, body), lacks.into_iter().collect()));
        }
    };
    let node = yaml::parse(yaml).map_err(|error| vec![yaml_problem(&error, yaml).in_file(file.as_str())])?;
    let mut problems = Vec::new();
    let members = match node.to_json() {
        Value::Object(members) => members,
        Value::Null => {
            problems.push(empty_frontmatter(demanded).in_file(file.as_str()));
            Map::new()
        }
        _ => return Err(vec![frontmatter_of_another_type().in_file(file.as_str())]),
    };
    problems.extend(repeated_key(&node, demanded).map(|problem| problem.in_file(file.as_str())));
    let dialect = recognise(&members);
    let document = Document {
        yaml: yaml.to_owned(),
        body: body.to_owned(),
        node: Some(node),
        file: file.clone(),
        text: text.clone(),
        members,
        dialect,
    };
    Ok((document, problems))
}

/// Keys that HUSK alone has.
const HUSK_KEYS: [&str; 9] = [
    "tool_env",
    "max_tool_rounds",
    "provider",
    "run",
    "serve",
    "proxy",
    "proxy_url",
    "proxy_method",
    "forward_headers",
];
/// Keys of HUSK that are common words: they decide only if no key of another dialect is present.
const HUSK_WORDS: [&str; 9] = [
    "route",
    "method",
    "headers",
    "input",
    "output",
    "input_mime",
    "output_mime",
    "max_tokens",
    "timeout_ms",
];

/// The dialect by its own keys; agentskills has no key that the others do not have.
fn recognise(members: &Map<String, Value>) -> Dialect {
    let has = |key: &str| members.get(key).is_some_and(|value| !value.is_null());
    let mode = members.get("mode").and_then(Value::as_str);
    let declares_tools = members
        .get("tools")
        .and_then(Value::as_array)
        .is_some_and(|tools| tools.iter().any(Value::is_object));
    let is_husk = mode.and_then(husk::Mode::from_word).is_some() || declares_tools;
    if is_husk || HUSK_KEYS.into_iter().any(has) {
        return Dialect::Husk;
    }
    let is_flow =
        has("inputs") || has("knowledge_base") || has("user_id") || members.get("model").is_some_and(Value::is_object);
    if is_flow {
        return Dialect::AgentFlow;
    }
    if HUSK_WORDS.into_iter().any(has) {
        return Dialect::Husk;
    }
    Dialect::AgentSkills
}

/// Name and text of the document.
fn decode(files: &BTreeMap<String, SkillFile>) -> Result<(String, String), Problem> {
    let error = |kind, message: String, help: &str| Problem::new(Severity::Error, kind, message, help);
    let Some(name) = tree::find_document(files.keys().map(String::as_str)) else {
        let message = format!("the folder has no {}", DOCUMENT_NAMES[0]);
        return Err(error(
            ProblemKind::NoSkillMd,
            message,
            "add one, or name the folder that has it",
        ));
    };
    let bytes = &files[name].bytes;
    if bytes.len() > MAX_SKILL_MD_BYTES {
        let message = format!(
            "{name} has {} bytes, more than {MAX_SKILL_MD_BYTES} (1 MiB)",
            bytes.len()
        );
        let help = "move long material to other files of the skill and refer to them";
        return Err(error(ProblemKind::FileTooLarge, message, help).in_file(name));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok((name.to_owned(), text.to_owned())),
        Err(problem) => {
            let line = bytes[..problem.valid_up_to()].split(|byte| *byte == b'\n').count();
            let message = format!(
                "{name} is not UTF-8 text (byte {} is the first that is not)",
                problem.valid_up_to()
            );
            let help = "save the file as UTF-8";
            let problem = error(ProblemKind::NotUtf8, message, help).in_file(name);
            Err(problem.at_line(u32::try_from(line).unwrap_or(u32::MAX)))
        }
    }
}

fn plain(file: &str, text: &str, body: &str) -> Document {
    Document {
        file: file.to_owned(),
        text: text.to_owned(),
        yaml: String::new(),
        node: None,
        members: Map::new(),
        body: body.to_owned(),
        dialect: Dialect::AgentSkills,
    }
}
