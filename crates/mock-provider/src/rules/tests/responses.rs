//! Examples of the Responses rules.

use super::*;

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}})
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

#[test]
#[expect(clippy::too_many_lines, reason = "one table of examples")]
fn responses_rules_accept_and_refuse() {
    let base = json!({"model": "gpt-x", "input": "hi"});
    let tools = |list: Vec<Value>| json!({"tools": list});
    let user = json!({"role": "user", "content": [{"type": "input_text", "text": "a"}]});
    let marked = format!("fc_1{}", signature::mark(&["rs_1".to_owned()]));
    let mut behind = call("c1");
    behind["id"] = json!(marked);
    let pair = input(&[reasoning("rs_1"), behind.clone(), output("c1")]);
    let mut bare = reasoning("rs_1");
    bare.as_object_mut().unwrap().shift_remove("encrypted_content");
    let mut strict = function("f");
    strict["strict"] = json!(true);
    let mut strict_whole = strict.clone();
    strict_whole["parameters"] =
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    let examples: Vec<Example> = vec![
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
            tools(vec![strict_whole]),
            tools(vec![strict]),
            "additionalProperties",
        ),
        (
            "tool_choice",
            json!({"tools": [function("f"), {"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
            json!({"tools": [function("f")], "tool_choice": {"type": "function", "name": "g"}}),
            "not found in 'tools'",
        ),
        (
            "input_given",
            input(std::slice::from_ref(&user)),
            json!({"input": null}),
            "must be provided",
        ),
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
        (
            "reasoning_pair",
            pair.clone(),
            input(&[behind, output("c1")]),
            "without its required 'reasoning' item",
        ),
        (
            "reasoning_kept",
            patched(&pair, &json!({"store": false})),
            patched(
                &input(&[bare, json!({"role": "assistant", "content": "a"})]),
                &json!({"store": false}),
            ),
            "not persisted",
        ),
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
    ];
    check_examples(FormatName::Responses, &base, &examples);
    let alone = input(&[reasoning("rs_1"), user]);
    let refused = refusal(FormatName::Responses, &base, &alone, None).unwrap();
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
