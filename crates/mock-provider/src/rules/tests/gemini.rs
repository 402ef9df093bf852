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

fn base() -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
}

fn signed() -> String {
    signature::thought("mock0x1")
}

/// A signed call, and what follows it.
#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn one(rest: Value) -> Value {
    let mut list = vec![said(json!([call("f", "fc_mock0x1x0", &signed())]))];
    list.extend(rest.as_array().unwrap().iter().cloned());
    contents(Value::from(list))
}

fn answered() -> Value {
    one(json!([{"role": "user", "parts": [answer("f")]}]))
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn function(more: Value) -> Value {
    json!({"tools": [{"functionDeclarations": [patched(&json!({"name": "f"}), &more)]}]})
}

#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn config(calling: Value) -> Value {
    json!({"tools": [{"function_declarations": [{"name": "f"}]}], "tool_config": {"function_calling_config": calling}})
}

/// Members of the request.
fn requests() -> Vec<Example> {
    vec![
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
    ]
}

#[test]
fn rules_of_requests() {
    check_examples(FormatName::Gemini, &base(), &requests());
}

/// Functions that are offered, and how they may be called.
fn functions() -> Vec<Example> {
    vec![
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
            "function_arrays",
            function(json!({"parametersJsonSchema": object(json!({"a": {"type": "array", "items": {}}}))})),
            function(json!({"parametersJsonSchema": object(json!({"a": {"anyOf": [{"type": ["array"]}]}}))})),
            "function_declarations[0].parameters_json_schema.properties[a].any_of[0].items: missing field.",
        ),
        (
            "function_arrays",
            json!({}),
            function(json!({"parameters": {"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}}})),
            "function_declarations[0].parameters.properties[a].items: missing field.",
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
    ]
}

#[test]
fn rules_of_functions() {
    check_examples(FormatName::Gemini, &base(), &functions());
}

/// Contents and their parts.
fn conversations() -> Vec<Example> {
    vec![
        (
            "contents_given",
            base(),
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
            json!({"contents": [{"parts": [{"text": "", "thoughtSignature": signed()}, {"text": "a"}]}]}),
            json!({"contents": [{"role": "user", "parts": [{"text": ""}, {"text": "a"}]}]}),
            "empty text parameter",
        ),
        (
            "user_last",
            answered(),
            contents(json!([said(json!([{"text": "a"}]))])),
            "end with a user role",
        ),
    ]
}

#[test]
fn rules_of_conversations() {
    check_examples(FormatName::Gemini, &base(), &conversations());
}

/// Code that ran at the provider.
fn code_parts() -> Vec<Example> {
    vec![
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
    ]
}

#[test]
fn rules_of_code_parts() {
    check_examples(FormatName::Gemini, &base(), &code_parts());
}

/// Calls, their answers, and signatures.
fn calls() -> Vec<Example> {
    vec![
        (
            "call_place",
            answered(),
            json!({"contents": [said(json!([call("f", "a", &signed())])), {"role": "user", "parts": [answer("f")]}]}),
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
            answered(),
            one(json!([{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "text"}}]}])),
            "an object is expected",
        ),
        (
            "thought_signature",
            one(
                json!([{"role": "user", "parts": [answer("f")]}, said(json!([{"text": "a", "thought_signature": signed().replace('/', "_")}])), {"role": "user", "parts": [{"text": "b"}]}]),
            ),
            contents(
                json!([said(json!([call("f", "fc_mock0x2x0", &signed())])), {"role": "user", "parts": [answer("f")]}]),
            ),
            "missing a thought_signature",
        ),
    ]
}

#[test]
fn rules_of_calls() {
    check_examples(FormatName::Gemini, &base(), &calls());
}

#[test]
fn every_rule_has_an_example() {
    check_names(
        FormatName::Gemini,
        &[requests(), functions(), conversations(), code_parts(), calls()].concat(),
    );
}

#[test]
fn answers_of_other_calls_and_forged_signatures_are_refused() {
    let wrong = one(json!([{"role": "user", "parts": [answer("g")]}]));
    assert!(refusal(FormatName::Gemini, &base(), &wrong, None).is_some());
    let forged = contents(
        json!([said(json!([{"text": "a", "thoughtSignature": "c2ln"}])), {"role": "user", "parts": [{"text": "b"}]}]),
    );
    let refused = refusal(FormatName::Gemini, &base(), &forged, None).unwrap();
    assert_eq!(refused.message, "Thought signature is not valid.");
}

#[test]
fn a_token_count_holds_contents_or_a_whole_request() {
    use crate::rules::gemini_fields::counted;
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
