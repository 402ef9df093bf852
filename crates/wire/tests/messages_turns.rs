//! Anthropic Messages: turns that the API would refuse as they came, and requests that would name what was taken out.

mod support;

use knack_wire::json::Edits;
use knack_wire::{Format, Injection};
use serde_json::{Value, json as value};
use support::*;

const ASK: &str = r#"{"model":"claude-x","max_tokens":99,"messages":[{"role":"user","content":"2+3?"}]}"#;

fn message(content: &Value, reason: &str) -> Answer {
    let message = value!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}});
    json(&message.to_string())
}

/// "text content blocks must contain non-whitespace text", says the API of what it wrote itself.
#[test]
fn texts_of_white_space_do_not_go_back() {
    let turn = value!([
        {"type": "text", "text": "\n\n"},
        {"type": "text", "text": " \u{a0}\t"},
        {"type": "tool_use", "id": "toolu_1", "name": "skill_run", "input": {}},
    ]);
    let first = message(&turn, "tool_use");
    let last = message(&value!([{"type": "text", "text": "5"}]), "end_turn");
    let played = play(Format::Messages, ASK, &[first.clone(), last.clone()]);
    assert_eq!(played.sent_value(1)["messages"][1]["content"], value!([turn[2]]));
    // Written with escapes, and in pieces.
    let mut escaped = first;
    escaped.body = String::from_utf8(escaped.body)
        .unwrap()
        .replace("\\t", "\\u0020\\u0009")
        .into();
    let played = play(Format::Messages, ASK, &[escaped, last]);
    assert_eq!(played.sent_value(1)["messages"][1]["content"], value!([turn[2]]));
}

/// A skill of Knack is all that the container has, so the vendor's tool goes, and a choice that names it is free.
#[test]
fn a_choice_of_a_tool_that_was_taken_out_is_free() {
    let injection = Injection {
        own_skills: vec!["litellm_skill_1".into()],
        ..injection()
    };
    let body = |choice: &str| {
        format!(
            r#"{{"container":{{"skills":[{{"type":"custom","skill_id":"litellm_skill_1","version":"latest"}}]}},
            "tools":[{{"type":"code_execution_20260521","name":"code_execution"}}],"tool_choice":{choice},"messages":[]}}"#
        )
    };
    let named = r#"{"type":"tool","name":"code_execution","disable_parallel_tool_use":true}"#;
    for (choice, sent) in [
        (named, value!({"type": "auto", "disable_parallel_tool_use": true})),
        (r#"{"type":"any"}"#, value!({"type": "any"})),
        (
            r#"{"type":"tool","name":"skill_run"}"#,
            value!({"type": "tool", "name": "skill_run"}),
        ),
    ] {
        let request = request(Format::Messages, &body(choice));
        let body: Value = serde_json::from_slice(&request.apply(&injection, Edits::new())).unwrap();
        assert_eq!(body["tools"].as_array().unwrap().len(), 1, "{body}");
        assert_eq!(body["tool_choice"], sent, "{body}");
    }
}

/// A text that is held does not change its place among the blocks.
#[test]
fn an_answer_that_demands_a_form_keeps_the_order_of_its_blocks() {
    let ask = ASK.replace(
        r#""messages""#,
        r#""output_config":{"format":{"type":"json_schema","schema":{}}},"tools":[{"name":"get_weather","input_schema":{}}],"messages""#,
    );
    let content = value!([
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "First."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}},
    ]);
    let whole = play(Format::Messages, &ask, &[message(&content, "tool_use")]).value();
    assert_eq!(whole["content"], content);
    let mut events = vec![
        value!({"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 1}}}),
    ];
    for (index, block) in content.as_array().unwrap().iter().enumerate() {
        events.push(value!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(value!({"type": "content_block_stop", "index": index}));
    }
    events.push(value!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}));
    events.push(value!({"type": "message_stop"}));
    let text = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    let played = play(Format::Messages, &ask, &[sse(text.collect::<String>())]);
    let shown: Vec<Value> = played
        .data()
        .iter()
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(shown, events);
}
