//! Gemini: fields, tools and their configuration.

use serde_json::Value;

use super::chat_tools::is_object_schema;
use super::schemas::google_arrays;
use super::values::{first_double, is_given, items};
use super::{ProviderRefusal, Rule, RuleInput};
use crate::received::{field, snake};

/// Longest function name in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The members of a request. Unknown ones are refused.
const MEMBERS: [&str; 10] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
];
/// The members of one entry of `tools`.
const TOOLS: [&str; 9] = [
    "functionDeclarations",
    "googleSearch",
    "googleSearchRetrieval",
    "codeExecution",
    "urlContext",
    "googleMaps",
    "fileSearch",
    "computerUse",
    "enterpriseWebSearch",
];
const MODES: [&str; 5] = ["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "known_fields",
        check: known_fields,
    },
    Rule {
        name: "system_instruction",
        check: system_instruction,
    },
    Rule {
        name: "cached_content",
        check: cached_content,
    },
    Rule {
        name: "tools_known",
        check: tools_known,
    },
    Rule {
        name: "tools_not_mixed",
        check: tools_not_mixed,
    },
    Rule {
        name: "json_mode",
        check: json_mode,
    },
    Rule {
        name: "function_name",
        check: function_name,
    },
    Rule {
        name: "function_once",
        check: function_once,
    },
    Rule {
        name: "function_schema",
        check: function_schema,
    },
    Rule {
        name: "function_arrays",
        check: function_arrays,
    },
    Rule {
        name: "calling_mode",
        check: calling_mode,
    },
    Rule {
        name: "allowed_names",
        check: allowed_names,
    },
];

/// The request that a token count holds: the body's own `contents`, or a whole request with its model.
///
/// Errors: another member than these two, both, or a request without the model's full name.
pub(crate) fn counted(body: &Value) -> Result<Value, ProviderRefusal> {
    let whole = field(body, "generateContentRequest");
    for key in body.as_object().into_iter().flat_map(serde_json::Map::keys) {
        if !["contents", "generateContentRequest", "generate_content_request"].contains(&key.as_str()) {
            return Err(unknown(key));
        }
    }
    if !is_given(whole) {
        return Ok(body.clone());
    }
    if is_given(&body["contents"]) {
        return Err(ProviderRefusal::invalid(
            "Only one of contents and generateContentRequest can be set.",
        ));
    }
    let mut whole = whole.clone();
    let model = whole.as_object_mut().and_then(|members| members.shift_remove("model"));
    if !model
        .as_ref()
        .and_then(Value::as_str)
        .is_some_and(|name| name.starts_with("models/") || name.starts_with("tunedModels/"))
    {
        return Err(ProviderRefusal::invalid(
            "* GenerateContentRequest.model: unexpected model name format",
        ));
    }
    Ok(whole)
}

fn unknown(key: &str) -> ProviderRefusal {
    ProviderRefusal::invalid(format!(
        "Invalid JSON payload received. Unknown name \"{key}\": Cannot find field."
    ))
}

/// True for a member in either spelling.
fn is_one_of(known: &[&str], key: &str) -> bool {
    known.iter().any(|name| *name == key || snake(name) == key)
}

fn known_fields(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let members = rule_input.body.as_object().into_iter().flatten();
    members
        .map(|(key, _)| key)
        .find(|key| !is_one_of(&MEMBERS, key))
        .map_or(Ok(()), |key| Err(unknown(key)))
}

/// A content with at least one text, if there is one.
fn system_instruction(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let system = field(rule_input.body, "systemInstruction");
    if !is_given(system) {
        return Ok(());
    }
    let parts = system["parts"].as_array();
    if parts.is_some_and(|parts| !parts.is_empty() && parts.iter().all(|part| part["text"].is_string())) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "Invalid value at 'system_instruction': a content with text parts is expected.",
    ))
}

fn cached_content(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if !is_given(field(rule_input.body, "cachedContent")) {
        return Ok(());
    }
    let refused = ["systemInstruction", "tools", "toolConfig"];
    if refused.iter().all(|name| !is_given(field(rule_input.body, name))) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config.",
    ))
}

/// Known members; compatible servers have no code execution.
fn tools_known(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let tools = &rule_input.body["tools"];
    let is_missing = |key: &str| !rule_input.provider.code_tools && is_one_of(&["codeExecution"], key);
    let is_tool = |key: &str| is_one_of(&TOOLS, key) && !is_missing(key);
    if is_given(tools) && !tools.is_array() {
        return Err(ProviderRefusal::invalid(
            "Invalid value at 'tools': a list is expected.",
        ));
    }
    for (at, tool) in items(tools).enumerate() {
        let members = tool.as_object().into_iter().flatten();
        if let Some((key, _)) = members.into_iter().find(|(key, _)| !is_tool(key)) {
            return Err(ProviderRefusal::invalid(format!(
                "Invalid JSON payload received. Unknown name \"{key}\" at 'tools[{at}]': Cannot find field."
            )));
        }
    }
    Ok(())
}

fn functions<'a>(rule_input: &RuleInput<'a>) -> Vec<&'a Value> {
    let tools = items(&rule_input.body["tools"]);
    tools
        .flat_map(|tool| items(field(tool, "functionDeclarations")))
        .collect()
}

/// Functions beside built-in tools: refused unless the request says that both may be called.
fn tools_not_mixed(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let config = field(rule_input.body, "toolConfig");
    if field(config, "includeServerSideToolInvocations") == true || functions(rule_input).is_empty() {
        return Ok(());
    }
    let built_in = items(&rule_input.body["tools"])
        .filter_map(Value::as_object)
        .flatten()
        .find(|(key, value)| is_given(value) && !is_one_of(&["functionDeclarations"], key));
    built_in.map_or(Ok(()), |(key, _)| {
        Err(ProviderRefusal::invalid(format!(
            "Built-in tools ({{{key}}}) and Function Calling cannot be combined in the same request."
        )))
    })
}

/// Functions beside JSON mode: models before the third generation refuse them, and so does one whose name has no
/// generation.
fn json_mode(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let kind = field(field(rule_input.body, "generationConfig"), "responseMimeType");
    let form = kind.as_str().filter(|kind| *kind != "text/plain");
    let name = rule_input.model.strip_prefix("gemini-").unwrap_or_default();
    let number = name.split(|char: char| !char.is_ascii_digit()).next();
    let takes_both = number.and_then(|number| number.parse::<u32>().ok()) >= Some(3);
    match form {
        Some(form) if !takes_both && !functions(rule_input).is_empty() => Err(ProviderRefusal::invalid(format!(
            "Function calling with a response mime type: '{form}' is unsupported"
        ))),
        _ => Ok(()),
    }
}

fn function_name(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, function) in functions(rule_input).into_iter().enumerate() {
        let name = function["name"].as_str().unwrap_or_default();
        let starts = name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if !starts || !name.bytes().all(inner) || name.len() > MAX_NAME_BYTES {
            return Err(ProviderRefusal::invalid(format!(
                "* GenerateContentRequest.tools[0].function_declarations[{at}].name: Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of {MAX_NAME_BYTES}."
            )));
        }
    }
    Ok(())
}

fn function_once(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let functions = functions(rule_input);
    let names = functions.iter().filter_map(|function| function["name"].as_str());
    first_double(names).map_or(Ok(()), |name| {
        Err(ProviderRefusal::invalid(format!(
            "Duplicate function declaration found: {name}"
        )))
    })
}

fn function_schema(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for function in functions(rule_input) {
        let name = function["name"].as_str().unwrap_or_default();
        let (own, json) = (field(function, "parameters"), field(function, "parametersJsonSchema"));
        if is_given(own) && is_given(json) {
            return Err(ProviderRefusal::invalid(format!(
                "Function {name}: only one of parameters and parameters_json_schema can be set."
            )));
        }
        // The words of types are upper case in the description of the API, and lower case in its own examples.
        let is_object = |kind: &str| kind.eq_ignore_ascii_case("OBJECT");
        let own_holds = !is_given(own) || own["type"].as_str().is_some_and(is_object);
        if !own_holds || (is_given(json) && !is_object_schema(json)) {
            return Err(ProviderRefusal::invalid(format!(
                "Function {name}: parameters schema should be of type OBJECT."
            )));
        }
    }
    Ok(())
}

fn function_arrays(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (at, function) in functions(rule_input).into_iter().enumerate() {
        for member in ["parameters", "parametersJsonSchema"] {
            google_arrays(at, &snake(member), field(function, member))?;
        }
    }
    Ok(())
}

fn calling<'a>(rule_input: &RuleInput<'a>) -> &'a Value {
    field(field(rule_input.body, "toolConfig"), "functionCallingConfig")
}

/// The API reads its words in any case, as its own examples have `auto`, and their numbers.
fn is_mode(mode: &Value, word: &str) -> bool {
    let number = MODES.iter().position(|known| *known == word);
    mode.as_str().is_some_and(|mode| mode.eq_ignore_ascii_case(word))
        || mode
            .as_u64()
            .is_some_and(|mode| Some(mode) == number.map(|at| at as u64))
}

fn calling_mode(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let mode = &calling(rule_input)["mode"];
    let known = mode.is_null() || MODES.iter().any(|known| is_mode(mode, known));
    if !known {
        return Err(ProviderRefusal::invalid(format!(
            "Invalid value at 'tool_config.function_calling_config.mode': {mode}"
        )));
    }
    if is_mode(mode, "ANY") && functions(rule_input).is_empty() {
        return Err(ProviderRefusal::invalid(
            "Function calling config is set without function_declarations.",
        ));
    }
    Ok(())
}

fn allowed_names(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let config = calling(rule_input);
    let allowed = field(config, "allowedFunctionNames");
    if items(allowed).next().is_none() {
        return Ok(());
    }
    let offered = functions(rule_input);
    let known = |name: &Value| offered.iter().any(|function| function["name"] == *name);
    let narrows = ["ANY", "VALIDATED"].iter().any(|mode| is_mode(&config["mode"], mode));
    if narrows && items(allowed).all(known) {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "allowed_function_names: only names of declared functions, and only in mode ANY or VALIDATED.",
    ))
}
