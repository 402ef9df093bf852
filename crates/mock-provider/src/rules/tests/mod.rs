//! Every rule has an accepted and a refused example, in a table of its family; `every_rule_has_an_example` of a format finds a rule without.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::script::{FormatName, Provider};
use crate::signature;

mod chat;
mod gemini;
mod messages;
mod responses;

/// One example: the rule, a change of the base body that is accepted, one that this rule refuses, and a part of the
/// refusal's text.
type Example = (&'static str, Value, Value, &'static str);

/// Members of `patch` replace those of `base`; `null` stays a `null` member, as on the wire.
fn patched(base: &Value, patch: &Value) -> Value {
    let mut body = base.clone();
    for (key, value) in patch.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The header list of an example: a patch may hold `"@version"` for the version header (`null`: none).
fn headers_of(body: &mut Value) -> Vec<(String, String)> {
    match body.as_object_mut().unwrap().shift_remove("@version") {
        None => vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())],
        Some(Value::String(version)) => vec![("anthropic-version".to_owned(), version)],
        Some(_) => Vec::new(),
    }
}

fn refusal(format: FormatName, base: &Value, patch: &Value, rule: Option<&str>) -> Option<ProviderRefusal> {
    let mut body = patched(base, patch);
    let headers = headers_of(&mut body);
    let provider = Provider::default();
    let rule_input = RuleInput {
        headers: &headers,
        body: &body,
        model: "",
        provider: &provider,
        counting: false,
        vertex: true,
    };
    match rule {
        None => check(format, &rule_input).err(),
        Some(name) => {
            let rule = rules(format)
                .into_iter()
                .find(|rule| rule.name == name)
                .unwrap_or_else(|| panic!("no rule {name}"));
            (rule.check)(&rule_input).err()
        }
    }
}

fn check_examples(format: FormatName, base: &Value, examples: &[Example]) {
    assert_eq!(
        refusal(format, base, &json!({}), None),
        None,
        "the base body is accepted"
    );
    for (rule, accepted, refused, text) in examples {
        assert_eq!(refusal(format, base, accepted, None), None, "{rule} accepts {accepted}");
        let refusal_of_rule =
            refusal(format, base, refused, Some(rule)).unwrap_or_else(|| panic!("{rule} refuses {refused}"));
        assert!(
            refusal_of_rule.message.contains(text),
            "{rule}: {:?} has {text:?}",
            refusal_of_rule.message
        );
        assert!(
            refusal(format, base, refused, None).is_some(),
            "the table refuses {refused}"
        );
    }
}

fn check_names(format: FormatName, examples: &[Example]) {
    let shown: BTreeSet<&str> = examples.iter().map(|(rule, ..)| *rule).collect();
    let all: BTreeSet<&str> = rules(format).iter().map(|rule| rule.name).collect();
    assert_eq!(shown, all, "every rule has an example");
    assert_eq!(all.len(), rules(format).len(), "names of rules are unique");
}

/// The schema of an object.
#[expect(clippy::needless_pass_by_value, reason = "examples read better with json! arguments")]
fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn tool_result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thinking(thought: &str) -> Value {
    json!({"type": "thinking", "thinking": thought, "signature": signature::sign(thought)})
}

/// A tool turn: the assistant's blocks, then the user's.
#[expect(
    clippy::needless_pass_by_value,
    reason = "examples read better with plain vec! arguments"
)]
fn exchange(said: Vec<Value>, answered: Vec<Value>) -> Value {
    json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": said}, {"role": "user", "content": answered}]})
}

#[test]
fn flags_of_the_provider_lift_their_rules() {
    let lenient = Provider {
        prefill: true,
        late_system: true,
        foreign_thinking: true,
        ..Provider::default()
    };
    let accepts = |format: FormatName, body: Value| {
        let headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
        check(
            format,
            &RuleInput {
                headers: &headers,
                body: &body,
                model: "",
                provider: &lenient,
                counting: false,
                vertex: true,
            },
        )
    };
    let two = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "The"}]);
    assert_eq!(
        accepts(
            FormatName::Messages,
            json!({"model": "m", "max_tokens": 1, "messages": two})
        ),
        Ok(())
    );
    let late = json!([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]);
    assert_eq!(
        accepts(FormatName::Chat, json!({"model": "m", "messages": late})),
        Ok(())
    );
    let mark = signature::mark(&[signature::sign("A")]);
    let foreign = exchange(
        vec![thinking("B"), text("x"), thinking("A"), tool_use(&format!("t{mark}"))],
        vec![tool_result(&format!("t{mark}"))],
    );
    assert_eq!(
        accepts(
            FormatName::Messages,
            patched(&json!({"model": "m", "max_tokens": 1}), &foreign)
        ),
        Ok(())
    );
}

#[test]
fn older_deployments_have_shorter_names() {
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
        "tools": [{"name": "f".repeat(65), "input_schema": {"type": "object"}}]});
    let headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    let older = Provider {
        messages_tool_name_bytes: 64,
        ..Provider::default()
    };
    let rule_input = RuleInput {
        headers: &headers,
        body: &body,
        model: "",
        provider: &older,
        counting: false,
        vertex: true,
    };
    assert!(
        check(FormatName::Messages, &rule_input)
            .unwrap_err()
            .message
            .contains("{1,64}")
    );
}

#[test]
fn a_server_without_code_tools_refuses_them() {
    let user = json!([{"role": "user", "content": "a"}]);
    let headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    for (format, body) in [
        (
            FormatName::Responses,
            json!({"model": "m", "input": user, "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
        ),
        (
            FormatName::Messages,
            json!({"model": "m", "max_tokens": 1, "messages": user, "tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}),
        ),
        (
            FormatName::Gemini,
            json!({"contents": [{"parts": [{"text": "a"}]}], "tools": [{"code_execution": {}}]}),
        ),
        (
            FormatName::Gemini,
            json!({"contents": [{"parts": [{"text": "a"}]}, {"role": "model", "parts": [
                {"executableCode": {"language": "PYTHON", "code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}]}, {"parts": [{"text": "a"}]}]}),
        ),
    ] {
        for code_tools in [true, false] {
            let provider = Provider {
                code_tools,
                ..Provider::default()
            };
            let rule_input = RuleInput {
                headers: &headers,
                body: &body,
                model: "",
                provider: &provider,
                counting: false,
                vertex: true,
            };
            assert_eq!(check(format, &rule_input).is_ok(), code_tools, "{body}");
        }
    }
}

#[test]
fn counting_asks_for_no_answer_length() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
    let headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    let provider = Provider::default();
    let rule_input = RuleInput {
        headers: &headers,
        body: &body,
        model: "",
        provider: &provider,
        counting: true,
        vertex: true,
    };
    assert_eq!(check(FormatName::Messages, &rule_input), Ok(()));
}

#[test]
fn members_are_counted_with_doubles() {
    assert_eq!(member_count(br#"{"a":1,"b":{"a":2},"a":3}"#), 3);
    assert_eq!(member_count(b"[]"), 0);
}
