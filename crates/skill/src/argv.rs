//! From a tool declaration and the model's arguments to an argv, without a shell.
//!
//! HUSK's rules (docs/design/dialects.md#command-lines-of-tools): the first declared parameter is positional if it is required, every other one becomes `--name value`,
//! in declared order. A value that begins with `-` is refused, so a model cannot pass a flag. What is not declared is dropped.

use serde_json::{Map, Value};

use crate::model::{CallForm, Parameter, Tool};
use crate::provider_schema;
use crate::tools::schema_of;

/// Bytes of one argument, at most: Linux's `MAX_ARG_STRLEN`, 32 pages of 4 KiB, with the NUL that ends it (execve(2)).
pub const ARGUMENT_MAX: usize = 32 * 4096 - 1;
/// Bytes of all arguments, at most: half of the 2 MiB that Linux has for arguments and environment under the usual stack
/// limit of 8 MiB; the rest is for the environment and the pointers.
pub const ARGUMENTS_MAX: usize = 1 << 20;

/// Arguments that no argv can be made of. The text goes back to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgvError {
    /// A value could be taken for a flag.
    #[error("tool \"{tool}\" argument \"{parameter}\" must not begin with \"-\"")]
    LeadingHyphen {
        /// Tool name.
        tool: String,
        /// Parameter name.
        parameter: String,
    },
    /// A required parameter has no value; null counts as none.
    #[error("tool \"{tool}\" argument \"{parameter}\" is required")]
    Missing {
        /// Tool name.
        tool: String,
        /// Parameter name.
        parameter: String,
    },
    /// A value holds a NUL byte, which no argv can carry.
    #[error("tool \"{tool}\" argument \"{parameter}\" must not contain a NUL character")]
    Nul {
        /// Tool name.
        tool: String,
        /// Parameter name.
        parameter: String,
    },
    /// A value is longer than one argument of a program may be.
    #[error(
        "tool \"{tool}\" argument \"{parameter}\" has {bytes} bytes, at most {ARGUMENT_MAX} fit one argument; pass less at a time"
    )]
    TooLong {
        /// Tool name.
        tool: String,
        /// Parameter name.
        parameter: String,
        /// Bytes of the value as text.
        bytes: usize,
    },
    /// The arguments of a function are longer than one argument of a program may be.
    #[error(
        "the arguments of tool \"{tool}\" have {bytes} bytes as JSON, at most {ARGUMENT_MAX} fit; pass less at a time"
    )]
    ObjectTooLong {
        /// Tool name.
        tool: String,
        /// Bytes of all arguments as JSON.
        bytes: usize,
    },
    /// The values together are longer than a program's arguments may be.
    #[error(
        "the arguments of tool \"{tool}\" have {bytes} bytes in all, at most {ARGUMENTS_MAX} fit; pass less at a time"
    )]
    TooLongInAll {
        /// Tool name.
        tool: String,
        /// Bytes of the command and the values as text.
        bytes: usize,
    },
}

/// The whole argv: the declared command, then the arguments. Arguments that are not an object count as none.
///
/// # Errors
///
/// A value that is missing, that could be taken for a flag, or that no command line can carry.
pub fn build(tool: &Tool, arguments: &Value) -> Result<Vec<String>, ArgvError> {
    let mut argv = tool.command.clone();
    if matches!(tool.call, CallForm::Function { .. }) {
        argv.push(object(tool, arguments)?);
        return Ok(argv);
    }
    for (index, parameter) in parameters(tool).iter().enumerate() {
        match arguments.get(&parameter.name) {
            None | Some(Value::Null) if parameter.required => return Err(missing(tool, parameter)),
            None | Some(Value::Null) => {}
            Some(value) => {
                let text = checked(tool, parameter, text_of(value))?;
                if index > 0 || !parameter.required {
                    argv.push(format!("--{}", parameter.name));
                }
                argv.push(text);
            }
        }
    }
    let bytes = argv.iter().map(|argument| argument.len() + 1).sum();
    if bytes > ARGUMENTS_MAX {
        let tool = tool.name.clone();
        return Err(ArgvError::TooLongInAll { tool, bytes });
    }
    Ok(argv)
}

/// Arguments under the names that the author wrote, with every value of a declared parameter as the text that its command gets, where
/// the schema is the one that is made of HUSK parameters: it says `string` of each, and models write numbers all the same. A schema of
/// the author's own is what counts for its tool.
pub fn spelled(tool: &Tool, arguments: Map<String, Value>) -> Map<String, Value> {
    let mut arguments = provider_schema::written_names(&tool.input_schema, arguments);
    if tool.call != CallForm::Words || tool.input_schema != schema_of(&tool.parameters) {
        return arguments;
    }
    for parameter in &tool.parameters {
        if let Some(value) = arguments.get_mut(&parameter.name)
            && !value.is_null()
        {
            *value = Value::String(text_of(value));
        }
    }
    arguments
}

/// The arguments of a function, as one argument of the program that calls it.
fn object(tool: &Tool, arguments: &Value) -> Result<String, ArgvError> {
    let text = if arguments.is_object() {
        arguments.to_string()
    } else {
        "{}".to_owned()
    };
    if text.len() > ARGUMENT_MAX {
        let (tool, bytes) = (tool.name.clone(), text.len());
        return Err(ArgvError::ObjectTooLong { tool, bytes });
    }
    Ok(text)
}

/// The declared parameters; of a tool that has a schema only, the schema's properties in their order, and behind them those of its
/// branches, which models know of as well.
pub fn parameters(tool: &Tool) -> Vec<Parameter> {
    if !tool.parameters.is_empty() {
        return tool.parameters.clone();
    }
    let required = tool.input_schema["required"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    provider_schema::properties(&tool.input_schema)
        .into_iter()
        .map(|(name, schema)| Parameter {
            description: schema["description"].as_str().unwrap_or_default().to_owned(),
            required: required.iter().any(|wanted| *wanted == name),
            name,
        })
        .collect()
}

fn missing(tool: &Tool, parameter: &Parameter) -> ArgvError {
    ArgvError::Missing {
        tool: tool.name.clone(),
        parameter: parameter.name.clone(),
    }
}

fn checked(tool: &Tool, parameter: &Parameter, text: String) -> Result<String, ArgvError> {
    let (tool, parameter) = (tool.name.clone(), parameter.name.clone());
    if text.starts_with('-') {
        return Err(ArgvError::LeadingHyphen { tool, parameter });
    }
    if text.contains('\0') {
        return Err(ArgvError::Nul { tool, parameter });
    }
    let bytes = text.len();
    if bytes > ARGUMENT_MAX {
        return Err(ArgvError::TooLong { tool, parameter, bytes });
    }
    Ok(text)
}

/// Strings as they are, numbers as JavaScript writes them, lists and objects as compact JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().map(number_text).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// A float without a useless fraction, with an exponent where JavaScript writes one: `1e+21`, `1e-7`, `0.5`, `3`.
fn number_text(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let size = number.abs();
    if !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return if text.contains("e-") {
            text
        } else {
            text.replace('e', "e+")
        };
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::risk::Risk;

    fn tool(parameters: &[(&str, bool)], schema: Value) -> Tool {
        Tool {
            name: "t".to_owned(),
            description: "d".to_owned(),
            command: vec!["python3".to_owned(), "t.py".to_owned()],
            parameters: parameters
                .iter()
                .map(|(name, required)| Parameter {
                    name: (*name).to_owned(),
                    description: String::new(),
                    required: *required,
                })
                .collect(),
            input_schema: schema,
            env: Vec::new(),
            hidden: false,
            call: CallForm::Words,
            risk: Risk::Safe,
            config: Vec::new(),
        }
    }

    #[track_caller]
    fn check(arguments: &Value, expected: &[&str]) {
        let tool = tool(&[("a", true), ("b", false), ("c", true)], Value::Null);
        let mut whole = vec!["python3", "t.py"];
        whole.extend(expected);
        assert_eq!(build(&tool, arguments).unwrap(), whole);
    }

    #[test]
    fn only_the_first_required_parameter_is_positional() {
        check(
            &json!({"c": "3", "a": "1", "b": "2", "x": "4"}),
            &["1", "--b", "2", "--c", "3"],
        );
        let optional = tool(&[("a", false)], Value::Null);
        assert_eq!(
            build(&optional, &json!({"a": "v"})).unwrap(),
            ["python3", "t.py", "--a", "v"]
        );
        assert_eq!(build(&optional, &json!([1])).unwrap(), ["python3", "t.py"]);
    }

    #[test]
    fn properties_of_branches_follow_those_at_the_top() {
        let branches = tool(
            &[],
            json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "oneOf": [{"$ref": "#/$defs/B"}],
                "$defs": {"B": {"properties": {"b": {"description": "d"}, "a": {}}, "required": ["b"]}}}),
        );
        assert_eq!(
            build(&branches, &json!({"b": "2", "a": "1", "c": "3"})).unwrap(),
            ["python3", "t.py", "1", "--b", "2"]
        );
        assert_eq!(parameters(&tool(&[], Value::Null)), Vec::new());
    }

    #[test]
    fn values_become_text() {
        check(
            &json!({"a": 1e21, "b": 3.0, "c": {"k": [1]}}),
            &["1e+21", "--b", "3", "--c", "{\"k\":[1]}"],
        );
        check(&json!({"a": true, "b": null, "c": 1e-7}), &["true", "--c", "1e-7"]);
    }

    #[test]
    fn flags_and_gaps_are_refused() {
        let tool = tool(&[("a", true)], Value::Null);
        for (arguments, expected) in [
            (
                json!({"a": "-rf"}),
                "tool \"t\" argument \"a\" must not begin with \"-\"",
            ),
            (json!({"a": -1}), "tool \"t\" argument \"a\" must not begin with \"-\""),
            (json!({}), "tool \"t\" argument \"a\" is required"),
            (
                json!({"a": "x\0"}),
                "tool \"t\" argument \"a\" must not contain a NUL character",
            ),
        ] {
            assert_eq!(build(&tool, &arguments).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn what_no_command_line_can_carry_is_refused() {
        let one = tool(&[("a", true)], Value::Null);
        let longest = "x".repeat(ARGUMENT_MAX);
        assert_eq!(build(&one, &json!({"a": longest})).unwrap()[2].len(), ARGUMENT_MAX);
        assert_eq!(
            build(&one, &json!({"a": format!("{longest}x")}))
                .unwrap_err()
                .to_string(),
            "tool \"t\" argument \"a\" has 131072 bytes, at most 131071 fit one argument; pass less at a time"
        );

        let names: Vec<String> = (0..9).map(|index| format!("p{index}")).collect();
        let many = tool(
            &names.iter().map(|name| (name.as_str(), false)).collect::<Vec<_>>(),
            Value::Null,
        );
        let values: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| (name.clone(), longest.clone().into()))
            .collect();
        assert!(
            matches!(build(&many, &values.into()), Err(ArgvError::TooLongInAll { bytes, .. }) if bytes > ARGUMENTS_MAX)
        );
    }

    #[test]
    fn a_function_gets_one_object() {
        let function = Tool {
            call: CallForm::Function { retryable: false },
            ..tool(
                &[],
                json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}),
            )
        };
        let mapped = |arguments: Value| build(&function, &arguments).map(|argv| argv[2..].join(" "));
        let object = json!({"a": "-rf\0", "b": [1.5, null]});
        assert_eq!(mapped(object).unwrap(), r#"{"a":"-rf\u0000","b":[1.5,null]}"#);
        assert_eq!(mapped(json!([1])).unwrap(), "{}");
        let fits = "x".repeat(ARGUMENT_MAX - r#"{"a":""}"#.len());
        assert_eq!(mapped(json!({"a": fits})).unwrap().len(), ARGUMENT_MAX);
        assert_eq!(
            mapped(json!({"a": format!("{fits}x")})).unwrap_err().to_string(),
            "the arguments of tool \"t\" have 131072 bytes as JSON, at most 131071 fit; pass less at a time"
        );
    }

    #[test]
    fn a_schema_alone_maps_like_parameters() {
        let schema = json!({"type": "object", "properties": {"url": {}, "depth": {}}, "required": ["url"]});
        let argv = build(&tool(&[], schema), &json!({"depth": 2, "url": "u"})).unwrap();
        assert_eq!(argv, ["python3", "t.py", "u", "--depth", "2"]);
    }
}
