//! Arguments of a call: from the model's text to a checked object.

use serde_json::{Map, Value};

use super::types::{Decision, Validate};
use crate::model::Tool;
use crate::plan::PlannedTool;
use crate::provider_schema::BRANCHES;
use crate::{argv, texts};

/// Reads and checks arguments. The error is the result for the model, which repeats the schema; nothing runs then.
///
/// Text that is not JSON, or not an object, counts as `{}` if the schema requires nothing (docs/design/dialects.md#where-they-contradict-each-other).
/// `declared` is the skill's tool that is called, if it is one.
pub(super) fn read(
    tool: &str,
    arguments: &str,
    (schema, declared): (&Value, Option<&Tool>),
    validate: Validate<'_>,
) -> Result<Map<String, Value>, Decision> {
    let parsed = match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("it is another kind of value".to_owned()),
        Err(_) if arguments.trim().is_empty() => Ok(Map::new()),
        Err(error) => Err(error.to_string()),
    };
    let members = match parsed {
        Ok(members) => members,
        Err(_) if !requires(schema) => Map::new(),
        Err(why) => return Err(error(texts::arguments_not_json(tool, &why, &schema.to_string()))),
    };
    let members = under_the_only_name(members, schema);
    let members = match declared {
        Some(declared) => argv::spelled(declared, members),
        None => members,
    };
    checked(tool, members, schema, validate).map_err(error)
}

/// One value under a name that is not declared is that of the only property, where that is required and no other name is taken
/// (docs/design/dialects.md#tukuy). A yes or no means what its name says, and nothing else.
fn under_the_only_name(members: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let mut names = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys);
    let (Some(only), None) = (names.next(), names.next()) else {
        return members;
    };
    let takes_others = schema
        .get("additionalProperties")
        .is_some_and(|others| *others != Value::Bool(false))
        || schema.get("patternProperties").is_some()
        // Names that are declared elsewhere than at the top.
        || BRANCHES.iter().chain(&["$ref", "if", "dependentSchemas"]).any(|keyword| schema.get(keyword).is_some());
    if takes_others || members.values().any(Value::is_boolean) {
        return members;
    }
    if members.len() != 1 || members.contains_key(only) || required(schema).all(|name| name != only) {
        return members;
    }
    members.into_iter().map(|(_, value)| (only.clone(), value)).collect()
}

/// The refusal of arguments that are not JSON, as a lone surrogate in a string is not.
pub(super) fn unreadable(tool: &PlannedTool, arguments: &str) -> Option<Decision> {
    let why = serde_json::from_str::<Value>(arguments)
        .err()
        .filter(|_| !arguments.trim().is_empty())?;
    Some(error(texts::arguments_not_json(
        &tool.name,
        &why.to_string(),
        &tool.schema_json,
    )))
}

/// Checks arguments that are an object already. A null for what is not required and is no null counts as not given, as models
/// write it where a tool has options.
///
/// Errors: one line for the model, with the schema.
pub(super) fn checked(
    tool: &str,
    members: Map<String, Value>,
    schema: &Value,
    validate: Validate<'_>,
) -> Result<Map<String, Value>, String> {
    let value = Value::Object(without_nulls(members, schema));
    let checked = validate(schema, &value);
    let Value::Object(members) = value else {
        return Ok(Map::new());
    };
    match checked.map_err(|why| (why, missing(schema, &members))) {
        Ok(()) => match missing(schema, &members) {
            // The closure may be lenient; a required argument never is.
            Some(name) => Err(mismatch(tool, &format!("\"{name}\" is required"), schema)),
            None => Ok(members),
        },
        Err((_, Some(name))) => Err(mismatch(tool, &format!("\"{name}\" is required"), schema)),
        Err((why, None)) => Err(mismatch(tool, &why, schema)),
    }
}

fn without_nulls(mut members: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let is_left_out = |name: &str| {
        let kind = schema
            .get("properties")
            .and_then(|properties| properties.get(name)?.get("type"));
        let is_other = match kind {
            Some(Value::String(kind)) => kind != "null",
            Some(Value::Array(kinds)) => kinds.iter().all(|kind| kind != "null"),
            // Not declared, or by something that only the check knows.
            _ => false,
        };
        is_other && required(schema).all(|wanted| wanted != name)
    };
    members.retain(|name, value| !value.is_null() || !is_left_out(name));
    members
}

fn mismatch(tool: &str, why: &str, schema: &Value) -> String {
    texts::arguments_mismatch(tool, why, &schema.to_string())
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn requires(schema: &Value) -> bool {
    required(schema).next().is_some()
}

fn missing<'a>(schema: &'a Value, members: &Map<String, Value>) -> Option<&'a str> {
    required(schema).find(|name| !members.contains_key(*name))
}

/// An error result.
pub(super) fn error(text: String) -> Decision {
    Decision::Text {
        text,
        is_error: true,
        loaded: None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;
    use crate::call::tests::{argv, planned, ran};
    use crate::call::{CallContext, resolve};
    use crate::fixture::{mk_catalog, mk_skill, mk_tool};
    use crate::model::{ActivationMode, Parameter};
    use crate::tools::schema_of;

    /// A check of the members of an object that `properties` says are strings.
    fn strings(schema: &Value, arguments: &Value) -> Result<(), String> {
        let members = arguments.as_object().unwrap().iter();
        let wrong = members
            .filter(|(name, value)| schema["properties"][name.as_str()]["type"] == "string" && !value.is_string());
        wrong
            .map(|(name, value)| format!("/{name}: {value} is not of type \"string\""))
            .next()
            .map_or(Ok(()), Err)
    }

    #[test]
    fn values_of_husk_parameters_are_text_and_a_schema_of_the_author_is_kept() {
        let parameter = |name: &str| Parameter {
            name: name.to_owned(),
            description: String::new(),
            required: name == "q",
        };
        let mut tool = mk_tool("echo");
        tool.parameters = ["q", "n", "list"].map(parameter).to_vec();
        tool.input_schema = schema_of(&tool.parameters);
        let given = r#"{"q": 0, "n": 2.5, "list": ["a", 1], "other": 3}"#;
        let read = |tool: &Tool, given: &str| super::read("echo", given, (&tool.input_schema, Some(tool)), &strings);
        let expected = json!({"q": "0", "n": "2.5", "list": "[\"a\",1]", "other": 3});
        assert_eq!(Value::Object(read(&tool, given).unwrap()), expected);
        assert_eq!(
            Value::Object(read(&tool, r#"{"q": true, "n": null}"#).unwrap()),
            json!({"q": "true"})
        );
        assert!(read(&tool, r#"{"q": null}"#).is_err());
        tool.input_schema["properties"]["q"]["minLength"] = json!(1);
        assert!(read(&tool, given).is_err());
    }

    #[test]
    fn one_value_under_another_name_is_that_of_the_only_required_property() {
        let one = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
        let optional = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let two = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "n": {}}});
        let open =
            json!({"type": "object", "required": ["text"], "properties": {"text": {}}, "additionalProperties": {}});
        let consent =
            json!({"type": "object", "required": ["confirm"], "properties": {"confirm": {"type": "boolean"}}});
        let branch = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}},
            "anyOf": [{"properties": {"email": {}}}]});
        for (schema, given, expected) in [
            (&one, json!({"wrong": "hi"}), Some(json!({"text": "hi"}))),
            (&one, json!({"text": "hi"}), Some(json!({"text": "hi"}))),
            (
                &one,
                json!({"text": "hi", "more": 1}),
                Some(json!({"text": "hi", "more": 1})),
            ),
            (&one, json!({"wrong": 1}), None),
            (&one, json!({"wrong": "hi", "more": 1}), None),
            (&one, json!({}), None),
            (&optional, json!({"wrong": "hi"}), Some(json!({"wrong": "hi"}))),
            (&two, json!({"wrong": "hi"}), None),
            (&open, json!({"wrong": "hi"}), None),
            (&consent, json!({"dry_run": true}), None),
            (&branch, json!({"email": "hi"}), None),
        ] {
            let read = super::read("t", &given.to_string(), (schema, None), &strings);
            assert_eq!(read.ok().map(Value::Object), expected, "{given} {schema}");
        }
    }

    #[test]
    fn a_null_for_an_option_counts_as_not_given() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]}, "d": {}, "e": {"type": "null"},
            "f": {"type": ["string", "integer"]}}});
        let strict = |_: &Value, arguments: &Value| {
            if arguments["a"].is_null() {
                Err("/a: null is not of type \"string\"".to_owned())
            } else {
                Ok(())
            }
        };
        let read = |arguments: Value| {
            let members = arguments.as_object().unwrap().clone();
            super::checked("t", members, &schema, &strict).map(Value::Object)
        };
        let given = json!({"a": "x", "b": null, "c": null, "d": null, "e": null, "f": null, "g": null});
        assert_eq!(
            read(given).unwrap(),
            json!({"a": "x", "c": null, "d": null, "e": null, "g": null})
        );
        let refused = read(json!({"a": null, "b": null})).unwrap_err();
        assert!(refused.contains("/a: null is not of type"), "{refused}");
    }

    /// The model has the names that providers take; the check and the command have the author's.
    #[test]
    fn a_call_by_the_names_that_were_sent_is_checked_by_what_the_author_wrote() {
        let written = json!({
            "type": "object", "properties": {"größe": {"type": "integer"}}, "anyOf": [{"required": ["größe"]}],
        });
        let mut skill = mk_skill("scale", ActivationMode::Always);
        skill.tools = vec![Tool {
            input_schema: written.clone(),
            ..mk_tool("scale")
        }];
        let catalog = mk_catalog([skill]);
        let plan = planned(&catalog, &[], &[], &[]);
        let sent = json!({"type": "object", "properties": {"gr__e": {"type": "integer", "description": "größe"}}});
        assert_eq!(plan.tool("scale").unwrap().schema, sent);
        let checked = RefCell::new(Vec::new());
        let validate = |schema: &Value, value: &Value| {
            checked.borrow_mut().push((schema.clone(), value.clone()));
            Ok(())
        };
        let context = CallContext {
            plan: &plan,
            catalog: &catalog,
            loaded: &[],
            validate: &validate,
        };
        let run = ran(resolve(&context, "scale", r#"{"gr__e": 3}"#).unwrap());
        assert_eq!(checked.take(), [(written, json!({"größe": 3}))]);
        assert_eq!(argv(&run), ["python3", "scale.py", "--größe", "3"]);
    }
}
