//! Examples of the Chat rules.

use super::*;

fn chat_tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

fn chat_call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
}

fn chat_after_calls(ids: &[&str], rest: &[Value]) -> Value {
    let calls: Vec<Value> = ids.iter().map(|id| chat_call(id)).collect();
    let mut messages = vec![
        json!({"role": "user", "content": "go"}),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
    ];
    messages.extend(rest.iter().cloned());
    json!({"messages": messages})
}

fn chat_result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn base() -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn with_tools(more: Value) -> Value {
    patched(&json!({"tools": [chat_tool("f"), chat_tool("g")]}), &more)
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn tools(list: Vec<Value>) -> Value {
    json!({"tools": list})
}

fn many(count: usize) -> Vec<Value> {
    (0..count).map(|index| chat_tool(&format!("f{index}"))).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn message(one: Value) -> Value {
    json!({"messages": [one]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn function(more: Value) -> Value {
    json!({"tools": [{"type": "function", "function": patched(&json!({"name": "f"}), &more)}]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn assistant_with(calls: Value) -> Value {
    json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "a", "tool_calls": calls}]})
}

/// Calls and their results that every rule accepts.
fn ok() -> Value {
    chat_after_calls(
        &["a", "b"],
        &[
            chat_result("b"),
            chat_result("a"),
            json!({"role": "user", "content": "x"}),
        ],
    )
}

/// Members of the request.
fn requests() -> Vec<Example> {
    vec![
        ("model", json!({"model": "m"}), json!({"model": ""}), "model parameter"),
        ("n", json!({"n": 2}), json!({"n": 0}), "Invalid 'n'"),
        (
            "stream_flag",
            json!({"stream": false}),
            json!({"stream": "yes"}),
            "boolean",
        ),
        (
            "stream_options",
            json!({"stream": true, "stream_options": {"include_usage": true}}),
            json!({"stream_options": {"include_usage": true}}),
            "only allowed when 'stream'",
        ),
        (
            "token_limits",
            json!({"max_tokens": 5}),
            json!({"max_tokens": 0}),
            "at least 1",
        ),
        (
            "token_limits",
            json!({}),
            json!({"max_tokens": 5, "max_completion_tokens": 5}),
            "same time",
        ),
        (
            "legacy_functions",
            json!({"functions": [{"name": "f"}], "function_call": "auto"}),
            with_tools(json!({"functions": [{"name": "f"}]})),
            "cannot be combined",
        ),
        (
            "messages_members",
            json!({"odd_member": 1}),
            json!({"system": "a"}),
            "Unrecognized request argument",
        ),
        (
            "messages_members",
            json!({"container": {"skills": [{"skill_id": "skill_1"}]}}),
            json!({"container": {"skills": [{"skill_id": "litellm:x"}]}}),
            "container",
        ),
        (
            "parallel_flag",
            with_tools(json!({"parallel_tool_calls": false})),
            json!({"parallel_tool_calls": false}),
            "only allowed when 'tools'",
        ),
    ]
}

#[test]
fn rules_of_requests() {
    check_examples(FormatName::Chat, &base(), &requests());
}

/// Messages and their contents.
fn messages() -> Vec<Example> {
    vec![
        (
            "messages_list",
            json!({}),
            json!({"messages": null}),
            "Missing required",
        ),
        ("messages_list", json!({}), json!({"messages": []}), "empty array"),
        ("messages_list", json!({}), json!({"messages": ["hi"]}), "messages[0]"),
        (
            "roles",
            message(json!({"role": "user", "content": "a"})),
            message(json!({"role": "model", "content": "a"})),
            "Supported values",
        ),
        (
            "content_shape",
            message(json!({"role": "user", "content": [{"type": "text", "text": "a"}]})),
            message(json!({"role": "user", "content": null})),
            "got null",
        ),
        (
            "content_shape",
            ok(),
            message(json!({"role": "user", "content": []})),
            "empty array",
        ),
        (
            "content_shape",
            ok(),
            message(json!({"role": "user", "content": {"text": "a"}})),
            "string or array",
        ),
        (
            "content_shape",
            ok(),
            message(json!({"role": "user", "content": ["a"]})),
            "object with a type",
        ),
        (
            "part_types",
            message(json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]})),
            message(json!({"role": "system", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]})),
            "image_url",
        ),
        (
            "part_types",
            ok(),
            message(json!({"role": "user", "content": [{"type": "text", "text": 5}]})),
            "a string",
        ),
        (
            "system_place",
            json!({"messages": [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, {"role": "user", "content": "c"}]}),
            json!({"messages": [{"role": "user", "content": "c"}, {"role": "system", "content": "a"}]}),
            "at the beginning",
        ),
    ]
}

#[test]
fn rules_of_messages() {
    check_examples(FormatName::Chat, &base(), &messages());
}

/// Calls of tools, and their results.
fn calls() -> Vec<Example> {
    vec![
        ("call_shape", ok(), assistant_with(json!([])), "minimum length 1"),
        (
            "call_shape",
            ok(),
            assistant_with(json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}])),
            "a string",
        ),
        (
            "call_shape",
            ok(),
            assistant_with(json!([{"id": "a", "type": "function", "function": {"name": "f.g", "arguments": "{}"}}])),
            "pattern",
        ),
        (
            "call_shape",
            ok(),
            message(json!({"role": "user", "content": "a", "tool_calls": [chat_call("a")]})),
            "Unknown parameter",
        ),
        (
            "call_ids",
            ok(),
            chat_after_calls(&["a", "a"], &[chat_result("a")]),
            "Duplicate tool call id",
        ),
        (
            "call_ids",
            ok(),
            assistant_with(json!([{"type": "function", "function": {"name": "f", "arguments": "{}"}}])),
            "1 to 64",
        ),
        (
            "results_follow_calls",
            ok(),
            chat_after_calls(&["a", "b"], &[chat_result("a")]),
            "did not have response messages: b",
        ),
        (
            "results_follow_calls",
            ok(),
            chat_after_calls(&["a"], &[json!({"role": "user", "content": "wait"}), chat_result("a")]),
            "must be followed by tool messages",
        ),
        (
            "results_follow_calls",
            ok(),
            chat_after_calls(&["a"], &[chat_result("a"), chat_result("a")]),
            "Duplicate tool message",
        ),
        (
            "results_follow_calls",
            ok(),
            chat_after_calls(&["a", "b"], &[chat_result("z"), chat_result("a")]),
            "not found in 'tool_calls'",
        ),
        (
            "results_follow_calls",
            ok(),
            message(chat_result("a")),
            "preceeding message",
        ),
    ]
}

#[test]
fn rules_of_calls() {
    check_examples(FormatName::Chat, &base(), &calls());
}

/// Schemas of tools that are valid and refused all the same.
fn tool_schemas() -> Vec<Example> {
    vec![
        (
            "tool_top_level",
            function(json!({"parameters": object(json!({"a": {"anyOf": [{"type": "string"}]}}))})),
            function(json!({"parameters": {"type": "object", "properties": {}, "not": {"required": ["a"]}}})),
            "function 'f': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level",
        ),
        (
            "tool_arrays",
            function(
                json!({"parameters": object(json!({"a": {"type": "array", "items": {}}, "b": {"enum": [{"type": "array"}]}}))}),
            ),
            function(json!({"parameters": object(json!({"a": {"type": "array", "items": {"type": "array"}}}))})),
            "In context=('properties', 'a', 'items'), array schema missing items.",
        ),
        (
            "tool_arrays",
            json!({}),
            function(json!({"parameters": object(json!({"a": {"anyOf": [{"type": ["null", "array"]}]}}))})),
            "In context=('properties', 'a', 'anyOf', '0', 'type', '1'), array schema missing items.",
        ),
    ]
}

/// Tools that are offered, and the choice of one.
fn tool_lists() -> Vec<Example> {
    vec![
        ("tools_list", tools(vec![chat_tool("f")]), tools(vec![]), "empty array"),
        ("tool_count", tools(many(128)), tools(many(129)), "maximum length 128"),
        (
            "tool_type",
            json!({"tools": [{"type": "custom", "custom": {"name": "c"}}]}),
            json!({"tools": [{"name": "f", "input_schema": {}}]}),
            "expected a type",
        ),
        (
            "tool_name",
            tools(vec![chat_tool(&"f".repeat(64))]),
            tools(vec![chat_tool(&"f".repeat(65))]),
            "maximum length 64",
        ),
        (
            "tool_name",
            tools(vec![chat_tool("a-b_C9")]),
            tools(vec![chat_tool("a.b")]),
            "does not match pattern",
        ),
        (
            "tool_name_once",
            with_tools(json!({})),
            tools(vec![chat_tool("f"), chat_tool("f")]),
            "Duplicate tool name: 'f'",
        ),
        (
            "tool_description",
            function(json!({"description": "d".repeat(1024)})),
            function(json!({"description": "d".repeat(1025)})),
            "maximum length 1024",
        ),
        (
            "tool_parameters",
            function(json!({})),
            function(json!({"parameters": "object"})),
            "JSON Schema",
        ),
        (
            "tool_parameters",
            function(json!({"parameters": {}})),
            function(json!({"parameters": {"type": "string"}})),
            "JSON Schema",
        ),
        (
            "tool_parameters",
            function(json!({"strict": true})),
            function(json!({"strict": "no"})),
            "boolean",
        ),
        (
            "tool_choice",
            with_tools(json!({"tool_choice": "required"})),
            json!({"tool_choice": "auto"}),
            "only allowed when 'tools'",
        ),
        (
            "tool_choice",
            with_tools(json!({"tool_choice": {"type": "function", "function": {"name": "g"}}})),
            with_tools(json!({"tool_choice": {"type": "function", "function": {"name": "h"}}})),
            "not found in 'tools'",
        ),
        (
            "tool_choice",
            with_tools(
                json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}}}),
            ),
            with_tools(
                json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}]}}}),
            ),
            "not found in 'tools'",
        ),
    ]
}

#[test]
fn rules_of_tool_lists() {
    check_examples(FormatName::Chat, &base(), &tool_lists());
    check_examples(FormatName::Chat, &base(), &tool_schemas());
}

#[test]
fn every_rule_has_an_example() {
    check_names(
        FormatName::Chat,
        &[requests(), messages(), calls(), tool_lists(), tool_schemas()].concat(),
    );
}
