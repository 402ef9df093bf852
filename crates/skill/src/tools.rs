//! Tool declarations: the `tools` list of a HUSK frontmatter or of a Skill manifest. See docs/design/dialects.md#husk.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::config::ConfigParam;
use crate::finding::{Finding, MAX_ENTRIES, bounded};
use crate::functions::entry;
use crate::inputs::{boolean, scalar_text, shortened};
use crate::model::{CallForm, Parameter, Tool};
use crate::problem::ProblemKind::{self, FieldInvalid, FieldUnknown, ToolInvalid, ToolRepeated};
use crate::risk::Risk;
use crate::schema;
use crate::schema_problem;
use crate::tool_env::{grantable, is_env_name, is_operational};

/// One declared tool before its schema is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolDeclaration {
    /// Name as declared.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Argv.
    pub command: Vec<String>,
    /// HUSK parameters.
    pub parameters: Vec<Parameter>,
    /// JSON Schema of the arguments; wins over `parameters`.
    pub input_schema: Option<Value>,
    /// Environment names it asks for.
    pub env: Vec<String>,
    /// Callable through `run_skill_tool` only.
    pub hidden: bool,
    /// How its program is called.
    pub call: CallForm,
    /// The risk of a call; `None`: not declared.
    pub risk: Option<Risk>,
    /// Configuration parameters of the function that it is.
    pub config: Vec<ConfigParam>,
    /// A Python file of the skill: the declaration is a tool for each of its functions, and of the other members
    /// only `env` and `hidden` are set. A load puts the functions in its place.
    pub python: Option<String>,
}

impl From<ToolDeclaration> for Tool {
    /// Repairs the declared schema, or makes one from the parameters.
    fn from(declared: ToolDeclaration) -> Self {
        let input_schema = match &declared.input_schema {
            Some(schema) => schema::normalize(schema),
            None => schema_of(&declared.parameters),
        };
        Self {
            name: declared.name,
            description: declared.description,
            command: declared.command,
            parameters: declared.parameters,
            input_schema,
            env: declared.env,
            hidden: declared.hidden,
            call: declared.call,
            risk: declared.risk.unwrap_or_default(),
            config: declared.config,
        }
    }
}

/// The JSON Schema of HUSK parameters: every one a string, since argv holds nothing else.
pub fn schema_of(parameters: &[Parameter]) -> Value {
    let mut properties = Map::new();
    for parameter in parameters {
        let mut property = json!({"type": "string"});
        if !parameter.description.is_empty() {
            property["description"] = Value::String(parameter.description.clone());
        }
        properties.insert(parameter.name.clone(), property);
    }
    let required: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.required)
        .map(|parameter| parameter.name.as_str())
        .collect();
    if required.is_empty() {
        return json!({"type": "object", "properties": properties});
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// Reads a `tools` list. Tools that cannot be called are left out and reported.
pub fn read(value: &Value) -> (Vec<ToolDeclaration>, Vec<Finding>) {
    let mut findings = Vec::new();
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Null => &[],
        _ => {
            findings.push(Finding::refused(
                FieldInvalid,
                "tools",
                "`tools` must be a list",
                "write one `- name: ..` per tool",
            ));
            &[]
        }
    };
    let entries = bounded("tools", items, &mut findings).iter().enumerate();
    let tools = entries.filter_map(|(index, item)| {
        let tool = read_one(index, item, &mut findings);
        if tool.is_none()
            && let Some(why) = findings.last_mut()
        {
            why.leaves_out_tool = true;
        }
        tool
    });
    (tools.collect(), findings)
}

/// What a tool with a command may have.
const TOOL_MEMBERS: [&str; 9] = [
    "name",
    "description",
    "command",
    "parameters",
    "inputSchema",
    "input_schema",
    "env",
    "hidden",
    "risk",
];

/// What one of its `parameters` may have.
const PARAMETER_MEMBERS: [&str; 3] = ["name", "description", "required"];

/// A warning for each key of a `tools` list that is not read, such as a misspelt one. [`read`] refuses those beside `python`.
pub(crate) fn unknown_keys(value: &Value) -> Vec<Finding> {
    let unknown = |item: &Value, position: &str, known: &[&str]| -> Vec<Finding> {
        let members = item.as_object().into_iter().flatten();
        let others = members.filter(|(key, _)| !known.contains(&key.as_str()));
        let findings = others.map(|(key, _)| {
            let key = shortened(key);
            let message = format!("unknown key {key} of {position}; it has no effect");
            let help = format!("write one of {}", known.join(", "));
            Finding::warned(FieldUnknown, format!("{position}.{key}"), message, help)
        });
        findings.collect()
    };
    let mut findings = Vec::new();
    for (index, tool) in items(Some(value)).iter().enumerate() {
        if tool.get("python").is_some() {
            continue;
        }
        let position = format!("tools[{index}]");
        findings.extend(unknown(tool, &position, &TOOL_MEMBERS));
        for (index, parameter) in items(tool.get("parameters")).iter().enumerate() {
            findings.extend(unknown(
                parameter,
                &format!("{position}.parameters[{index}]"),
                &PARAMETER_MEMBERS,
            ));
        }
    }
    findings.truncate(MAX_ENTRIES);
    findings
}

/// The items that are read of a list.
fn items(list: Option<&Value>) -> &[Value] {
    let items = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    &items[..items.len().min(MAX_ENTRIES)]
}

/// Checks declarations wherever they come from: names and commands given, no name twice, schemas valid and of an object, names legal.
pub fn check(tools: &[ToolDeclaration]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        if let Some(path) = &tool.python {
            findings.extend(check_functions(index, tool, path));
        } else {
            findings.extend(check_name(index, tool, &mut seen));
            findings.extend(check_command(index, tool));
            findings.extend(check_schema(index, tool));
        }
    }
    for (index, tool) in tools.iter().enumerate() {
        findings.extend(check_env(&format!("tools[{index}].env"), &tool.env));
    }
    findings
}

/// A finding about a member of one declaration.
fn refused(kind: ProblemKind, index: usize, member: &str, message: String, help: &str) -> Finding {
    Finding::refused(kind, format!("tools[{index}]{member}"), message, help)
}

/// The findings of functions of a Python file.
fn check_functions(index: usize, tool: &ToolDeclaration, path: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((message, help)) = entry::problem(index, path) {
        findings.push(refused(ToolInvalid, index, ".python", message, help));
    }
    if !tool.name.is_empty() || !tool.command.is_empty() || tool.risk.is_some() {
        let message = format!("tools[{index}] has `python`, and `name`, `command` or `risk` besides");
        let help = "remove them, or remove `python`";
        findings.push(refused(ToolInvalid, index, ".command", message, help));
    }
    findings
}

fn check_name<'t>(index: usize, tool: &'t ToolDeclaration, seen: &mut HashSet<&'t str>) -> Option<Finding> {
    if tool.name.trim().is_empty() {
        let message = format!("tools[{index}] needs a `name`");
        return Some(refused(ToolInvalid, index, ".name", message, "give it a name"));
    }
    if seen.insert(tool.name.as_str()) {
        return None;
    }
    let message = format!("tool \"{}\" is declared twice", shortened(&tool.name));
    Some(refused(ToolRepeated, index, ".name", message, "rename one of the two"))
}

fn check_command(index: usize, tool: &ToolDeclaration) -> Option<Finding> {
    let (problem, help) = if tool.command.is_empty() {
        ("must not be empty", "write program and arguments as a list")
    } else {
        let problem = program_problem(&tool.command)?;
        (problem, "name an interpreter or a file of the skill")
    };
    let message = format!("`tool \"{}\" command` {problem}", shortened(&tool.name));
    Some(refused(ToolInvalid, index, ".command", message, help))
}

fn check_schema(index: usize, tool: &ToolDeclaration) -> Option<Finding> {
    let schema = tool.input_schema.as_ref()?;
    let problem = if schema.is_object() {
        format!(
            "is not a valid JSON Schema for arguments: {}",
            schema_problem::problem(schema)?
        )
    } else {
        "must be a mapping".to_owned()
    };
    let message = format!("tool \"{}\" `inputSchema` {problem}", shortened(&tool.name));
    let help = "write a JSON Schema of an object, with properties and required";
    Some(refused(ToolInvalid, index, ".inputSchema", message, help))
}

/// Reports environment names that no grant can give.
pub fn check_env(field: &str, names: &[String]) -> Vec<Finding> {
    let actual = names.iter().enumerate().filter_map(|(index, name)| {
        // Programs get these without asking.
        let reason = grantable(name).err().filter(|_| !is_operational(name))?;
        let (message, help) = if is_env_name(name) {
            (
                format!("{name} {reason} and is never passed on"),
                "remove it, or choose another name".to_owned(),
            )
        } else {
            (format!("'{}' {reason}", shortened(name)), name_help(name))
        };
        Some(Finding::warned(
            FieldInvalid,
            format!("{field}[{index}]"),
            message,
            help,
        ))
    });
    actual.collect()
}

/// What to write for `${NAME}`, `$NAME` and `NAME=value`.
fn name_help(written: &str) -> String {
    let name = written.trim_start_matches(['$', '{']).split(['}', '=', ':']).next();
    match name.filter(|name| is_env_name(name)) {
        Some(name) => format!("write {name}; its value comes from a grant"),
        None => "use letters, digits and underscores".to_owned(),
    }
}

/// The finding about environment names that are not a list, such as a mapping of names to values.
pub(crate) fn env_is_no_list(field: &str) -> Finding {
    let message = format!("{field} must be a list of names; it is left out");
    Finding::warned(
        FieldInvalid,
        field,
        message,
        "write names only; their values come from grants",
    )
}

fn program_problem(command: &[String]) -> Option<&'static str> {
    let program = &command[0];
    if program.trim().is_empty() {
        Some("must name a program")
    } else if command.iter().any(|word| word.contains('\0')) {
        Some("must not contain a NUL character")
    } else if program.split('/').any(|step| step == "..") {
        Some("must not leave the skill's folder")
    } else {
        None
    }
}

fn read_one(index: usize, item: &Value, findings: &mut Vec<Finding>) -> Option<ToolDeclaration> {
    let path = format!("tools[{index}]");
    if item.get("env").is_some_and(|env| !env.is_array() && !env.is_null()) {
        findings.push(env_is_no_list(&format!("{path}.env")));
    }
    let mut refuse = |member: &str, message: String, help: &str| {
        findings.push(refused(ToolInvalid, index, member, message, help));
    };
    let Value::Object(members) = item else {
        refuse("", format!("{path} must be a mapping"), "write `- name: ..`");
        return None;
    };
    if let Some(python) = text_of(members, "python") {
        for (member, message, help) in entry::ignored(index, members) {
            refuse(&member, message, help);
        }
        return Some(functions_of(&python, members));
    }
    let Some(name) = text_of(members, "name") else {
        refuse(".name", format!("{path} needs a `name`"), "give it a name");
        return None;
    };
    let shown = shortened(&name);
    // The model reads it, line by line as the author wrote it.
    let description = text_cleaned_by(clean_lines, members, "description").unwrap_or_else(|| {
        let message = format!("tool \"{shown}\" needs a `description`");
        refuse(".description", message, "tell the model what it does and returns");
        name.clone()
    });
    let written = members.get("command").filter(|command| !command.is_null());
    let command = words(written.unwrap_or(&Value::Null), &format!("tool \"{shown}\" command"));
    let help = match written {
        Some(_) => "write program and arguments as a list",
        None => "add `command:` with program and arguments, or `python:` instead of `name:`",
    };
    let command = command.map_err(|message| refuse(".command", message, help)).ok()?;
    let risk = members.get("risk").map(read_risk).transpose();
    let risk = risk
        .map_err(|help| refuse(".risk", format!("tool \"{shown}\" `risk` is not a level"), &help))
        .ok()?;
    let parameters = members.get("parameters").unwrap_or(&Value::Null);
    let parameters = read_parameters(&path, &name, parameters, findings);
    let input_schema = members.get("inputSchema").or_else(|| members.get("input_schema"));
    Some(ToolDeclaration {
        name,
        description,
        command,
        parameters,
        input_schema: input_schema.cloned(),
        env: env_names(members),
        hidden: is_hidden(members),
        call: CallForm::Words,
        risk,
        config: Vec::new(),
        python: None,
    })
}

/// The entry of a Python file, whose functions are tools.
fn functions_of(python: &str, members: &Map<String, Value>) -> ToolDeclaration {
    ToolDeclaration {
        python: Some(entry::path(python)),
        env: env_names(members),
        hidden: is_hidden(members),
        ..ToolDeclaration::default()
    }
}

/// A member that is a text of one line which is not blank.
fn text_of(members: &Map<String, Value>, key: &str) -> Option<String> {
    text_cleaned_by(clean, members, key)
}

fn text_cleaned_by(clean: fn(&str) -> String, members: &Map<String, Value>, key: &str) -> Option<String> {
    let text = members.get(key).and_then(Value::as_str).map(clean);
    text.filter(|text| !text.is_empty())
}

fn is_hidden(members: &Map<String, Value>) -> bool {
    members.get("hidden").and_then(boolean).unwrap_or_default()
}

/// Errors: what to write.
fn read_risk(value: &Value) -> Result<Risk, String> {
    value
        .as_str()
        .and_then(Risk::from_word)
        .ok_or_else(|| format!("write one of {}", Risk::ALL.map(Risk::as_str).join(", ")))
}

fn env_names(members: &Map<String, Value>) -> Vec<String> {
    let names = members.get("env").and_then(Value::as_array).map(Vec::as_slice);
    let names = names.unwrap_or_default().iter().take(MAX_ENTRIES);
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_parameters(path: &str, tool: &str, value: &Value, findings: &mut Vec<Finding>) -> Vec<Parameter> {
    let tool = shortened(tool);
    let items = match value {
        Value::Null => return Vec::new(),
        Value::Array(items) => bounded(&format!("{path}.parameters"), items, findings),
        _ => {
            let message = format!("tool \"{tool}\" `parameters` must be a list");
            let help = "write one `- name: ..` per parameter";
            findings.push(Finding::refused(
                ToolInvalid,
                format!("{path}.parameters"),
                message,
                help,
            ));
            return Vec::new();
        }
    };
    let mut parameters: Vec<Parameter> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        // A number may not be the name that was written: 1.50 reads as 1.5.
        let name = item.get("name").and_then(Value::as_str).map(clean).unwrap_or_default();
        let problem = if name.is_empty() {
            "needs a `name`"
        } else if parameters.iter().any(|other| other.name == name) {
            "is declared twice"
        } else {
            parameters.push(Parameter {
                description: item.get("description").and_then(scalar_text).unwrap_or_default(),
                required: item.get("required").is_none_or(is_truthy),
                name,
            });
            continue;
        };
        let message = format!("tool \"{tool}\" parameters[{index}] {problem}");
        let field = format!("{path}.parameters[{index}].name");
        findings.push(Finding::refused(
            ToolInvalid,
            field,
            message,
            "give it a name of its own",
        ));
    }
    parameters
}

/// A command: a list of strings, or one string split at blanks.
pub fn words(value: &Value, label: &str) -> Result<Vec<String>, String> {
    let words: Option<Vec<String>> = match value {
        Value::String(line) => Some(line.split_whitespace().map(str::to_owned).collect()),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    match words {
        Some(words) if words.is_empty() => Err(format!("`{label}` must not be empty")),
        Some(words) => Ok(words),
        None => Err(format!("`{label}` must be a string or a list of strings")),
    }
}

/// Text of several lines: no control characters but line ends and tabs, trimmed.
pub fn clean_lines(text: &str) -> String {
    let kept = |character: &char| !character.is_control() || matches!(character, '\n' | '\t');
    text.chars().filter(kept).collect::<String>().trim().to_owned()
}

/// Text of one line, trimmed: what reaches a terminal must not move its cursor.
pub fn clean(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .collect::<String>()
        .trim()
        .to_owned()
}

/// As JavaScript has it, and so HUSK: any text but the empty one is true, also `no`.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests;
