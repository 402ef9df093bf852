//! Examples of the Messages rules.

use super::*;

fn base() -> Value {
    json!({"model": "claude-x", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn message(one: Value) -> Value {
    json!({"messages": [one]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn user(content: Value) -> Value {
    message(json!({"role": "user", "content": content}))
}

fn tool(name: &str) -> Value {
    json!({"name": name, "input_schema": {"type": "object"}})
}

fn with_schema(schema: &Value) -> Value {
    json!({"name": "f", "input_schema": schema})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn tools(list: Vec<Value>) -> Value {
    json!({"tools": list})
}

fn code_tool() -> Value {
    json!({"type": "code_execution_20260521", "name": "code_execution"})
}

fn skills(id: &str) -> Value {
    json!({"skills": [{"type": "custom", "skill_id": id, "version": "latest"}]})
}

/// A user's message with so many cache markers.
fn marked(count: usize) -> Value {
    let blocks: Vec<Value> = (0..count)
        .map(|_| json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}))
        .collect();
    user(json!(blocks))
}

/// A tool turn that every rule accepts.
fn ok() -> Value {
    exchange(
        vec![text("a"), tool_use("t1"), tool_use("t2")],
        vec![tool_result("t2"), tool_result("t1"), text("b")],
    )
}

fn server_call() -> Value {
    json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})
}

fn server_result() -> Value {
    json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
}

/// The id of a call that follows the thinking "A".
fn behind_thinking(name: &str) -> String {
    format!("{name}{}", signature::mark(&[signature::sign("A")]))
}

fn own(name: &str) -> Value {
    tool_use(&behind_thinking(name))
}

fn result_of(name: &str) -> Value {
    tool_result(&behind_thinking(name))
}

fn sealed() -> Value {
    json!({"type": "redacted_thinking", "data": signature::seal("x")})
}

/// A tool turn that goes back with its thinking.
fn kept() -> Value {
    exchange(vec![thinking("A"), text("x"), own("t")], vec![result_of("t")])
}

/// Threads of a request.
fn threads() -> Vec<Example> {
    vec![("thread", json!({}), json!({"thread": {"type": "fork"}}), "'create'")]
}

/// Members of the request, and the order of its messages.
fn requests() -> Vec<Example> {
    vec![
        (
            "version",
            json!({"@version": "2026-10-21"}),
            json!({"@version": null}),
            "header is required",
        ),
        (
            "version",
            json!({}),
            json!({"@version": "yesterday"}),
            "not a valid version",
        ),
        ("model", json!({}), json!({"model": null}), "Field required"),
        ("model", json!({}), json!({"model": 5}), "valid string"),
        (
            "max_tokens",
            json!({"max_tokens": 1}),
            json!({"max_tokens": null}),
            "max_tokens: Field required",
        ),
        (
            "max_tokens",
            json!({}),
            json!({"max_tokens": 0}),
            "greater than or equal to 1",
        ),
        ("stream_flag", json!({"stream": true}), json!({"stream": 1}), "boolean"),
        (
            "chat_members",
            json!({"odd_member": 1}),
            json!({"n": 1}),
            "n: Extra inputs",
        ),
        (
            "chat_members",
            json!({}),
            json!({"functions": []}),
            "functions: Extra inputs",
        ),
        (
            "sampling",
            json!({"temperature": 1.0}),
            json!({"@version": "2026-10-21", "temperature": 1.0}),
            "temperature",
        ),
        (
            "container",
            json!({"container": skills("skill_01"), "tools": [code_tool()]}),
            json!({"container": skills("litellm:x"), "tools": [code_tool()]}),
            "not found",
        ),
        (
            "container",
            json!({"container": "container_01"}),
            json!({"container": "container_knack_1"}),
            "not found",
        ),
        (
            "container",
            json!({}),
            json!({"container": skills("skill_01")}),
            "code execution tool",
        ),
        (
            "thread",
            json!({"thread": {"type": "create"}}),
            json!({"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
            "No usable thread state",
        ),
        (
            "thread",
            json!({"thread": null}),
            json!({"thread": {"type": "continue"}}),
            "Field required",
        ),
        ("messages_list", json!({}), json!({"messages": []}), "at least one"),
        (
            "roles",
            json!({}),
            message(json!({"role": "tool", "content": "a"})),
            "Unexpected role",
        ),
        (
            "user_first",
            json!({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}),
            json!({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}),
            "first message",
        ),
    ]
}

#[test]
fn rules_of_requests() {
    check_examples(FormatName::Messages, &base(), &requests());
    check_examples(FormatName::Messages, &base(), &threads());
}

/// Contents of messages and of the system text.
fn contents() -> Vec<Example> {
    vec![
        (
            "system_shape",
            json!({"system": [text("a")]}),
            json!({"system": [text("")]}),
            "non-empty",
        ),
        (
            "system_shape",
            json!({"system": "a"}),
            json!({"system": {"text": "a"}}),
            "string or list",
        ),
        (
            "system_shape",
            json!({"system": null}),
            json!({"system": [{"type": "image"}]}),
            "'text'",
        ),
        (
            "content_shape",
            user(json!([text("a")])),
            user(json!([])),
            "non-empty content",
        ),
        ("content_shape", json!({}), user(json!("")), "non-empty content"),
        ("content_shape", json!({}), user(json!(null)), "string or list"),
        ("content_shape", json!({}), user(json!(["a"])), "type: Field required"),
        (
            "empty_text",
            user(json!([text("a")])),
            user(json!([text("")])),
            "must be non-empty",
        ),
        ("empty_text", json!({}), user(json!([text(" \n")])), "non-whitespace"),
        (
            "empty_text",
            ok(),
            exchange(
                vec![tool_use("t")],
                vec![json!({"type": "tool_result", "tool_use_id": "t", "content": [text("")]})],
            ),
            "must be non-empty",
        ),
        (
            "blocks_of_role",
            user(json!([{"type": "new_block"}])),
            user(json!([tool_use("t")])),
            "tool_use",
        ),
        (
            "blocks_of_role",
            json!({}),
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [tool_result("t")]}]}),
            "tool_result",
        ),
        (
            "version_blocks",
            user(json!([{"type": "text", "text": "a", "citations": [{"type": "x"}]}])),
            patched(
                &user(json!([{"type": "text", "text": "a", "citations": [{"type": "x"}]}])),
                &json!({"@version": "2026-10-21"}),
            ),
            "citations",
        ),
        ("cache_markers", marked(4), marked(5), "Found 5"),
        (
            "cache_markers",
            marked(4),
            patched(&marked(4), &json!({"cache_control": {"type": "ephemeral"}})),
            "Found 5",
        ),
        (
            "cache_markers",
            marked(1),
            user(json!([{"type": "text", "text": "a", "cache_control": {"type": "forever"}}])),
            "ephemeral",
        ),
        (
            "prefill",
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [server_call()]}]}),
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The"}]}),
            "prefill",
        ),
    ]
}

#[test]
fn rules_of_contents() {
    check_examples(FormatName::Messages, &base(), &contents());
}

/// Calls of tools.
fn calls() -> Vec<Example> {
    vec![
        ("call_shape", ok(), exchange(vec![tool_use("a.b")], vec![]), "id"),
        (
            "call_shape",
            ok(),
            exchange(
                vec![json!({"type": "tool_use", "id": "t", "name": "f g", "input": {}})],
                vec![],
            ),
            "pattern",
        ),
        (
            "call_shape",
            ok(),
            exchange(
                vec![json!({"type": "tool_use", "id": "t", "name": "f", "input": "{}"})],
                vec![],
            ),
            "dictionary",
        ),
        (
            "call_shape",
            exchange(vec![server_call(), server_result(), text("a")], vec![text("b")]),
            exchange(
                vec![json!({"type": "server_tool_use", "id": "srvtoolu_knack_1", "name": "f", "input": {}})],
                vec![],
            ),
            "id",
        ),
        (
            "call_ids_once",
            ok(),
            exchange(vec![tool_use("t"), tool_use("t")], vec![tool_result("t")]),
            "unique",
        ),
    ]
}

#[test]
fn rules_of_calls() {
    check_examples(FormatName::Messages, &base(), &calls());
}

/// Results of tools.
fn results() -> Vec<Example> {
    vec![
        (
            "result_content",
            exchange(
                vec![tool_use("t")],
                vec![json!({"type": "tool_result", "tool_use_id": "t", "is_error": true})],
            ),
            exchange(
                vec![tool_use("t")],
                vec![json!({"type": "tool_result", "tool_use_id": "t", "content": {"a": 1}})],
            ),
            "string or list",
        ),
        (
            "result_content",
            ok(),
            exchange(
                vec![tool_use("t")],
                vec![json!({"type": "tool_result", "tool_use_id": "t", "content": [thinking("a")]})],
            ),
            "expected tags",
        ),
        (
            "results_follow_calls",
            ok(),
            exchange(vec![tool_use("t1"), tool_use("t2")], vec![tool_result("t1")]),
            "immediately after: t2",
        ),
        (
            "results_first",
            json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": [tool_use("t")]},
                {"role": "user", "content": [tool_result("t")]}, {"role": "user", "content": "and"}]}),
            exchange(vec![tool_use("t")], vec![text("b"), tool_result("t")]),
            "must come first",
        ),
        (
            "results_known",
            ok(),
            exchange(vec![tool_use("t")], vec![tool_result("t"), tool_result("z")]),
            "unexpected `tool_use_id`",
        ),
        (
            "results_known",
            ok(),
            user(json!([tool_result("z")])),
            "unexpected `tool_use_id`",
        ),
        (
            "results_once",
            ok(),
            exchange(vec![tool_use("t")], vec![tool_result("t"), tool_result("t")]),
            "single result",
        ),
        (
            "server_results_known",
            ok(),
            exchange(vec![server_result()], vec![text("b")]),
            "without a `server_tool_use`",
        ),
    ]
}

#[test]
fn rules_of_results() {
    check_examples(FormatName::Messages, &base(), &results());
}

/// Thinking, and what its budget may be.
fn thinking_blocks() -> Vec<Example> {
    vec![
        (
            "thinking_budget",
            json!({"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
            json!({"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 5}}),
            "1024",
        ),
        (
            "thinking_budget",
            json!({"thinking": {"type": "adaptive"}}),
            json!({"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
            "must be greater",
        ),
        (
            "thinking_signature",
            kept(),
            exchange(
                vec![
                    json!({"type": "thinking", "thinking": "B", "signature": signature::sign("A")}),
                    text("x"),
                ],
                vec![text("b")],
            ),
            "Invalid `signature`",
        ),
        (
            "thinking_signature",
            exchange(vec![sealed(), text("x")], vec![text("b")]),
            exchange(
                vec![json!({"type": "redacted_thinking", "data": "abc"}), text("x")],
                vec![text("b")],
            ),
            "redacted_thinking",
        ),
        (
            "thinking_not_last",
            kept(),
            exchange(vec![text("x"), thinking("A")], vec![text("b")]),
            "final block",
        ),
        (
            "thinking_kept",
            kept(),
            exchange(vec![text("x"), own("t")], vec![result_of("t")]),
            "found `text`",
        ),
        (
            "thinking_kept",
            kept(),
            exchange(vec![thinking("B"), own("t")], vec![result_of("t")]),
            "cannot be modified",
        ),
        (
            "thinking_kept",
            kept(),
            exchange(vec![thinking("B"), thinking("A"), own("t")], vec![result_of("t")]),
            "cannot be modified",
        ),
        (
            "thinking_kept",
            kept(),
            exchange(
                vec![thinking("B"), text("x"), thinking("A"), own("t")],
                vec![result_of("t")],
            ),
            "cannot be modified",
        ),
        (
            "thinking_kept",
            kept(),
            exchange(vec![own("t"), thinking("A"), text("x")], vec![result_of("t")]),
            "found `tool_use`",
        ),
    ]
}

#[test]
fn rules_of_thinking_blocks() {
    check_examples(FormatName::Messages, &base(), &thinking_blocks());
}

/// Schemas of tools that are valid and refused all the same.
fn tool_schemas() -> Vec<Example> {
    let keys = "tool_property_keys";
    let with = |properties| tools(vec![with_schema(&object(properties))]);
    vec![
        (
            "tool_top_level",
            tools(vec![with_schema(
                &json!({"type": "object", "not": {"required": ["a"]}, "properties": {"a": {"anyOf": [true]}}}),
            )]),
            tools(vec![
                tool("e"),
                with_schema(&json!({"type": "object", "anyOf": [{"required": ["a"]}]})),
            ]),
            "tools.1.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        ),
        (
            keys,
            with(json!({"a.b-C_9": {"type": "object", "properties": {"größe": {}}}, "a".repeat(64): {}})),
            with(json!({"a".repeat(65): {}})),
            "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
        ),
        (keys, json!({}), with(json!({"a b": {}})), "Property keys"),
        (keys, json!({}), with(json!({"": {}})), "Property keys"),
    ]
}

/// Tools that are offered, and the choice of one.
fn tool_lists() -> Vec<Example> {
    vec![
        ("tools_list", tools(vec![]), json!({"tools": {}}), "valid list"),
        (
            "tool_name",
            tools(vec![tool(&"f".repeat(128))]),
            tools(vec![tool(&"f".repeat(129))]),
            "{1,128}",
        ),
        (
            "tool_name",
            tools(vec![code_tool()]),
            tools(vec![json!({"input_schema": {"type": "object"}})]),
            "name: Field required",
        ),
        (
            "tool_name_once",
            tools(vec![tool("f"), tool("g")]),
            tools(vec![tool("f"), tool("f")]),
            "unique",
        ),
        (
            "tool_schema",
            tools(vec![tool("f")]),
            tools(vec![json!({"name": "f"})]),
            "input_schema: Field required",
        ),
        (
            "tool_schema",
            json!({}),
            tools(vec![json!({"name": "f", "input_schema": []})]),
            "'object'",
        ),
        (
            "tool_schema",
            json!({}),
            tools(vec![json!({"name": "f", "type": "function", "function": {}})]),
            "Input tag 'function'",
        ),
        (
            "tool_choice",
            json!({"tools": [tool("f")], "tool_choice": {"type": "tool", "name": "f"}}),
            json!({"tools": [tool("f")], "tool_choice": {"type": "tool", "name": "g"}}),
            "not found in provided tools",
        ),
        (
            "tool_choice",
            json!({"tool_choice": {"type": "none"}}),
            json!({"tool_choice": {"type": "auto"}}),
            "while providing tools",
        ),
        (
            "tool_choice",
            json!({}),
            json!({"tools": [tool("f")], "tool_choice": "auto"}),
            "an object with a type",
        ),
        (
            "tool_choice",
            json!({"tools": [tool("f")], "tool_choice": {"type": "any"}}),
            json!({"tools": [tool("f")], "tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"}}),
            "forces tool use",
        ),
    ]
}

#[test]
fn rules_of_tool_lists() {
    check_examples(FormatName::Messages, &base(), &tool_lists());
    check_examples(FormatName::Messages, &base(), &tool_schemas());
}

#[test]
fn every_rule_has_an_example() {
    check_names(
        FormatName::Messages,
        &[
            threads(),
            requests(),
            contents(),
            calls(),
            results(),
            thinking_blocks(),
            tool_lists(),
            tool_schemas(),
        ]
        .concat(),
    );
}
