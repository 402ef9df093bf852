//! Examples of the Gemini rules.

use super::*;

#[expect(
    clippy::needless_pass_by_value,
    reason = "the examples read better with json! arguments"
)]
fn said(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn call(name: &str, id: &str, signature: &str) -> Value {
    json!({"functionCall": {"name": name, "id": id, "args": {}}, "thoughtSignature": signature})
}

fn answer(name: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"output": "ok"}}})
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the examples read better with json! arguments"
)]
fn contents(list: Value) -> Value {
    let mut all = vec![json!({"role": "user", "parts": [{"text": "go"}]})];
    all.extend(list.as_array().unwrap().iter().cloned());
    json!({"contents": all})
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of examples")]
fn gemini_rules_accept_and_refuse() {
    let base = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    let signed = signature::thought("mock0x1");
    let one = |rest: Value| {
        let mut list = vec![said(json!([call("f", "fc_mock0x1x0", &signed)]))];
        list.extend(rest.as_array().unwrap().iter().cloned());
        contents(Value::from(list))
    };
    let answered = one(json!([{"role": "user", "parts": [answer("f")]}]));
    let function = |more: Value| json!({"tools": [{"functionDeclarations": [patched(&json!({"name": "f"}), &more)]}]});
    let config = |calling: Value| json!({"tools": [{"function_declarations": [{"name": "f"}]}], "tool_config": {"function_calling_config": calling}});
    let examples: Vec<Example> = vec![
        (
            "known_fields",
            json!({"generation_config": {}, "safetySettings": []}),
            json!({"model": "m"}),
            "Unknown name \"model\"",
        ),
        (
            "system_instruction",
            json!({"system_instruction": {"parts": [{"text": "a"}]}}),
            json!({"systemInstruction": "a"}),
            "system_instruction",
        ),
        (
            "cached_content",
            json!({"cachedContent": "c"}),
            json!({"cached_content": "c", "tools": [{"functionDeclarations": []}]}),
            "CachedContent",
        ),
        (
            "tools_known",
            json!({"tools": [{"google_search": {}}]}),
            json!({"tools": [{"type": "function"}]}),
            "\"type\" at 'tools[0]'",
        ),
        (
            "tools_not_mixed",
            json!({"tools": [{"functionDeclarations": [{"name": "f"}]}, {"googleSearch": {}}], "toolConfig": {"includeServerSideToolInvocations": true}}),
            json!({"tools": [{"functionDeclarations": [{"name": "f"}]}, {"googleSearch": {}}]}),
            "cannot be combined",
        ),
        (
            "json_mode",
            patched(
                &function(json!({})),
                &json!({"generationConfig": {"responseMimeType": "text/plain"}}),
            ),
            patched(
                &function(json!({})),
                &json!({"generation_config": {"response_mime_type": "application/json"}}),
            ),
            "'application/json' is unsupported",
        ),
        (
            "function_name",
            function(json!({"name": "a.b:c-d_1"})),
            function(json!({"name": "1a"})),
            "Invalid function name",
        ),
        (
            "function_once",
            json!({"tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]}),
            json!({"tools": [{"functionDeclarations": [{"name": "f"}]}, {"functionDeclarations": [{"name": "f"}]}]}),
            "Duplicate function",
        ),
        (
            "function_schema",
            function(json!({"parameters_json_schema": {"type": "object"}})),
            function(json!({"parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"type": "object"}})),
            "only one of",
        ),
        (
            "function_schema",
            function(json!({"parameters": {"type": "object"}})),
            function(json!({"parameters": {"type": "string"}})),
            "of type OBJECT",
        ),
        (
            "calling_mode",
            config(json!({"mode": "ANY"})),
            json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
            "without function_declarations",
        ),
        (
            "allowed_names",
            config(json!({"mode": "ANY", "allowed_function_names": ["f"]})),
            config(json!({"mode": "AUTO", "allowedFunctionNames": ["f"]})),
            "allowed_function_names",
        ),
        (
            "contents_given",
            base.clone(),
            json!({"contents": []}),
            "contents is not specified",
        ),
        (
            "content_role",
            json!({"contents": [{"parts": [{"text": "a"}]}]}),
            json!({"contents": [{"role": "assistant", "parts": [{"text": "a"}]}]}),
            "valid role",
        ),
        (
            "part_data",
            json!({"contents": [{"parts": [{"inline_data": {"data": ""}}]}]}),
            json!({"contents": [{"role": "user", "parts": [{}]}]}),
            "initialized field 'data'",
        ),
        (
            "empty_text",
            json!({"contents": [{"parts": [{"text": "", "thoughtSignature": signed}, {"text": "a"}]}]}),
            json!({"contents": [{"role": "user", "parts": [{"text": ""}, {"text": "a"}]}]}),
            "empty text parameter",
        ),
        (
            "code_fields",
            ran(&json!([code("a"), result("a")])),
            ran(
                &json!([{"executableCode": {"language": "NODE", "code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}]),
            ),
            "language PYTHON",
        ),
        (
            "code_fields",
            ran(
                &json!([{"executable_code": {"language": "PYTHON", "code": "1"}}, {"code_execution_result": {"outcome": "OUTCOME_DEADLINE_EXCEEDED"}}]),
            ),
            ran(&json!([code("a"), {"codeExecutionResult": {"id": "a", "outcome": "ok"}}])),
            "an outcome",
        ),
        (
            "code_pairs",
            ran(&json!([code("a"), code("b"), result("a"), result("b"), {"text": "done"}])),
            ran(&json!([result("a"), code("a")])),
            "follows the executable code",
        ),
        (
            "code_pairs",
            ran(&json!([code("a"), result("a"), code("b"), result("b")])),
            ran(&json!([code("a")])),
            "follows the executable code",
        ),
        (
            "user_last",
            answered.clone(),
            contents(json!([said(json!([{"text": "a"}]))])),
            "end with a user role",
        ),
        (
            "call_place",
            answered.clone(),
            json!({"contents": [said(json!([call("f", "a", &signed)])), {"role": "user", "parts": [answer("f")]}]}),
            "immediately after a user turn",
        ),
        (
            "call_answers",
            one(json!([{"role": "function", "parts": [answer("f")]}])),
            one(json!([{"role": "user", "parts": [{"text": "never mind"}]}])),
            "number of function response parts",
        ),
        (
            "answer_object",
            answered.clone(),
            one(json!([{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "text"}}]}])),
            "an object is expected",
        ),
        (
            "thought_signature",
            one(
                json!([{"role": "user", "parts": [answer("f")]}, said(json!([{"text": "a", "thought_signature": signed.replace('/', "_")}])), {"role": "user", "parts": [{"text": "b"}]}]),
            ),
            contents(
                json!([said(json!([call("f", "fc_mock0x2x0", &signed)])), {"role": "user", "parts": [answer("f")]}]),
            ),
            "missing a thought_signature",
        ),
    ];
    check_examples(FormatName::Gemini, &base, &examples);
    let wrong = one(json!([{"role": "user", "parts": [answer("g")]}]));
    assert!(refusal(FormatName::Gemini, &base, &wrong, None).is_some());
    let forged = contents(
        json!([said(json!([{"text": "a", "thoughtSignature": "c2ln"}])), {"role": "user", "parts": [{"text": "b"}]}]),
    );
    let refused = refusal(FormatName::Gemini, &base, &forged, None).unwrap();
    assert_eq!(refused.message, "Thought signature is not valid.");
}

#[test]
fn a_token_count_holds_contents_or_a_whole_request() {
    use super::super::gemini_fields::counted;
    let contents = json!([{"parts": [{"text": "a"}]}]);
    assert!(counted(&json!({"contents": contents})).is_ok());
    let whole = json!({"generateContentRequest": {"model": "models/m", "contents": contents, "tools": []}});
    assert_eq!(counted(&whole).unwrap(), json!({"contents": contents, "tools": []}));
    for refused in [
        json!({"contents": contents, "tools": []}),
        json!({"generateContentRequest": {"model": "m", "contents": contents}}),
        json!({"contents": contents, "generateContentRequest": {"model": "models/m"}}),
    ] {
        assert!(counted(&refused).is_err(), "{refused}");
    }
}

fn code(id: &str) -> Value {
    json!({"executableCode": {"id": id, "language": "PYTHON", "code": "1"}})
}

fn result(id: &str) -> Value {
    json!({"codeExecutionResult": {"id": id, "outcome": "OUTCOME_OK", "output": "1"}})
}

/// A model's turn of these parts between two of the user's.
fn ran(parts: &Value) -> Value {
    let user = json!({"role": "user", "parts": [{"text": "a"}]});
    json!({"contents": [user, {"role": "model", "parts": parts}, user]})
}
