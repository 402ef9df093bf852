//! Examples of the Responses rules.

use super::*;

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}})
}

fn with_parameters(parameters: &Value) -> Value {
    let mut function = function("f");
    function["parameters"] = parameters.clone();
    function
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "ok"})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": signature::seal("t")})
}

fn input(items: &[Value]) -> Value {
    json!({"input": items})
}

fn base() -> Value {
    json!({"model": "gpt-x", "input": "hi"})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn tools(list: Vec<Value>) -> Value {
    json!({"tools": list})
}

fn user() -> Value {
    json!({"role": "user", "content": [{"type": "input_text", "text": "a"}]})
}

/// A call that follows the reasoning `rs_1`.
fn behind() -> Value {
    let mut behind = call("c1");
    behind["id"] = json!(format!("fc_1{}", signature::mark(&["rs_1".to_owned()])));
    behind
}

/// Reasoning, its call and the output of that.
fn pair() -> Value {
    input(&[reasoning("rs_1"), behind(), output("c1")])
}

/// Reasoning that is not encrypted.
fn bare() -> Value {
    let mut bare = reasoning("rs_1");
    bare.as_object_mut().unwrap().shift_remove("encrypted_content");
    bare
}

fn strict() -> Value {
    let mut strict = function("f");
    strict["strict"] = json!(true);
    strict
}

fn strict_whole() -> Value {
    let mut strict_whole = strict();
    strict_whole["parameters"] =
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    strict_whole
}

/// Members of the request.
fn requests() -> Vec<Example> {
    vec![
        (
            "known_fields",
            json!({"user": "u"}),
            json!({"messages": []}),
            "Unknown parameter",
        ),
        ("model_given", json!({"model": "m"}), json!({"model": ""}), "'model'"),
        (
            "instructions_text",
            json!({"instructions": null}),
            json!({"instructions": []}),
            "'instructions'",
        ),
        (
            "one_state",
            json!({"conversation": "conv_1"}),
            json!({"conversation": "conv_1", "previous_response_id": "resp_1"}),
            "Mutually exclusive",
        ),
        ("flags", json!({"store": false}), json!({"stream": "yes"}), "'stream'"),
        (
            "include_known",
            json!({"include": ["reasoning.encrypted_content"]}),
            json!({"include": ["everything"]}),
            "Supported values",
        ),
        (
            "input_given",
            input(std::slice::from_ref(&user())),
            json!({"input": null}),
            "must be provided",
        ),
    ]
}

#[test]
fn rules_of_requests() {
    check_examples(FormatName::Responses, &base(), &requests());
}

/// Tools that are offered, and the choice of one.
fn tool_lists() -> Vec<Example> {
    vec![
        (
            "tool_type",
            tools(vec![function("f"), json!({"type": "web_search"})]),
            tools(vec![json!({"type": "retrieval"})]),
            "'retrieval'",
        ),
        (
            "tool_name",
            tools(vec![function("f")]),
            tools(vec![function("f g")]),
            "does not match pattern",
        ),
        (
            "tool_name_once",
            tools(vec![function("f"), function("g")]),
            tools(vec![function("f"), function("f")]),
            "Duplicate",
        ),
        (
            "tool_parameters",
            tools(vec![strict_whole()]),
            tools(vec![strict()]),
            "additionalProperties",
        ),
        (
            "tool_top_level",
            tools(vec![with_parameters(&object(json!({"a": {"oneOf": [true]}})))]),
            tools(vec![with_parameters(
                &json!({"type": "object", "properties": {}, "allOf": [true]}),
            )]),
            "at the top level",
        ),
        (
            "tool_arrays",
            tools(vec![with_parameters(&object(
                json!({"a": {"type": "array", "items": {}}}),
            ))]),
            tools(vec![with_parameters(&object(json!({"a": {"type": "array"}})))]),
            "function 'f': In context=('properties', 'a'), array schema missing items.",
        ),
        (
            "tool_choice",
            json!({"tools": [function("f"), {"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
            json!({"tools": [function("f")], "tool_choice": {"type": "function", "name": "g"}}),
            "not found in 'tools'",
        ),
    ]
}

#[test]
fn rules_of_tool_lists() {
    check_examples(FormatName::Responses, &base(), &tool_lists());
}

/// Messages, calls and outputs.
fn items() -> Vec<Example> {
    vec![
        (
            "message_role",
            input(&[json!({"role": "developer", "content": "a"})]),
            input(&[json!({"role": "tool", "content": "a"})]),
            "'tool'",
        ),
        (
            "message_content",
            input(&[json!({"role": "assistant", "content": [{"type": "output_text", "text": "a"}]})]),
            input(&[json!({"role": "user", "content": [{"type": "text", "text": "a"}]})]),
            "input_text",
        ),
        (
            "item_id",
            input(&[call("c1"), output("c1")]),
            input(&[json!({"type": "reasoning", "id": "msg_1", "summary": []})]),
            "begins with 'rs'",
        ),
        (
            "call_fields",
            input(&[call("c1"), output("c1")]),
            input(&[json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": {}})]),
            "as a string",
        ),
        (
            "call_id_once",
            input(&[call("c1"), output("c1"), call("c2"), output("c2")]),
            input(&[call("c1"), call("c1"), output("c1")]),
            "Duplicate",
        ),
        (
            "output_fields",
            input(&[
                call("c1"),
                json!({"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]}),
            ]),
            input(&[
                call("c1"),
                json!({"type": "function_call_output", "call_id": "c1", "output": {}}),
            ]),
            "a string or a list",
        ),
        (
            "output_of_call",
            input(&[call("c1"), output("c1")]),
            input(&[output("c1")]),
            "No tool call found",
        ),
        (
            "call_output",
            input(&[call("c1"), output("c1")]),
            input(&[call("c1")]),
            "No tool output found",
        ),
        (
            "call_output",
            input(&[
                patch("c1"),
                json!({"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"}),
            ]),
            input(&[patch("c1"), call("c2"), output("c2")]),
            "No tool output found for apply_patch_call c1",
        ),
    ]
}

#[test]
fn rules_of_items() {
    check_examples(FormatName::Responses, &base(), &items());
}

/// Reasoning.
fn reasoning_items() -> Vec<Example> {
    vec![
        (
            "reasoning_pair",
            pair(),
            input(&[behind(), output("c1")]),
            "without its required 'reasoning' item",
        ),
        (
            "reasoning_kept",
            patched(&pair(), &json!({"store": false})),
            patched(
                &input(&[bare(), json!({"role": "assistant", "content": "a"})]),
                &json!({"store": false}),
            ),
            "not persisted",
        ),
    ]
}

#[test]
fn rules_of_reasoning_items() {
    check_examples(FormatName::Responses, &base(), &reasoning_items());
}

/// Shells, their calls and outputs.
fn shells() -> Vec<Example> {
    vec![
        (
            "shell_environment",
            shell(&json!({"type": "container_auto", "skills": [{"type": "skill_reference", "skill_id": "skill_1"}]})),
            shell(
                &json!({"type": "container_auto", "skills": [{"type": "skill_reference", "skill_id": "skill_knack_1"}]}),
            ),
            "not found",
        ),
        (
            "shell_call_fields",
            input(&[ran("c1"), ran_output("c1")]),
            input(&[
                json!({"type": "shell_call", "call_id": "c1", "action": {"commands": []}}),
                ran_output("c1"),
            ]),
            "a list of strings",
        ),
        (
            "shell_output_fields",
            input(&[ran("c1"), ran_output("c1")]),
            input(&[
                ran("c1"),
                json!({"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "", "stderr": ""}]}),
            ]),
            "'outcome'",
        ),
        (
            "shell_pairs",
            input(&[ran("c1"), ran("c2"), ran_output("c2"), ran_output("c1")]),
            input(&[ran("c1"), ran_output("c1"), ran_output("c1")]),
            "No shell call output",
        ),
    ]
}

#[test]
fn rules_of_shells() {
    check_examples(FormatName::Responses, &base(), &shells());
}

#[test]
fn every_rule_has_an_example() {
    check_names(
        FormatName::Responses,
        &[requests(), tool_lists(), items(), reasoning_items(), shells()].concat(),
    );
}

#[test]
fn reasoning_alone_is_refused() {
    let alone = input(&[reasoning("rs_1"), user()]);
    let refused = refusal(FormatName::Responses, &base(), &alone, None).unwrap();
    assert!(refused.message.contains("without its required following item"));
}

fn patch(id: &str) -> Value {
    json!({"type": "apply_patch_call", "call_id": id, "status": "completed", "operation": {"type": "delete_file", "path": "a"}})
}

fn shell(environment: &Value) -> Value {
    json!({"tools": [{"type": "shell", "environment": environment}]})
}

fn ran(id: &str) -> Value {
    json!({"type": "shell_call", "call_id": id, "action": {"commands": ["ls"]}})
}

fn ran_output(id: &str) -> Value {
    json!({"type": "shell_call_output", "call_id": id, "output": [{"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]})
}
