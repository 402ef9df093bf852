//! Anthropic Messages: turns that the API would refuse as they came, and requests that would name what was taken out.

mod support;

use std::sync::Arc;

use knack_wire::drive::{Drive, EndKind, HiddenEntry};
use knack_wire::json::Edits;
use knack_wire::request::Material;
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

/// A thread goes on with the system text and the tools that it was created with; what the provider calls its errors is what the SDKs
/// read, which send the whole conversation then.
#[test]
fn a_thread_is_kept_by_nobody_while_skills_are_active() {
    let with = |thread: &str| ASK.replace(r#""max_tokens""#, &format!(r#""thread":{thread},"max_tokens""#));
    let create = with(r#"{"type":"create"}"#);
    let last = message(&value!([{"type": "text", "text": "5"}]), "end_turn");
    let call = message(
        &value!([{"type": "tool_use", "id": "toolu_1", "name": "skill_run", "input": {}}]),
        "tool_use",
    );
    let played = play(Format::Messages, &create, &[call, last.clone()]);
    for round in [0, 1] {
        assert!(played.sent_value(round).get("thread").is_none(), "{round}");
    }
    let goes_on = with(r#"{"type":"continue","previous_message_id":"msg_1"}"#);
    let text_alone = || Injection::new("# Skills".to_owned(), Vec::new());
    for injection in [injection(), text_alone()] {
        let refused = Drive::new(request(Format::Messages, &goes_on), injection, settings()).unwrap_err();
        let body: Value = serde_json::from_slice(&refused.body(Format::Messages)).unwrap();
        assert_eq!(
            (refused.status, &body["error"]["type"]),
            (404, &value!("not_found_error"))
        );
        assert_eq!(body["error"]["details"], value!({"error_code": "thread_not_found"}));
    }
    // Without skills it is the provider's.
    for body in [create.as_str(), &goes_on] {
        let asked = request(Format::Messages, body);
        let played = play_pieces(asked, Injection::default(), settings(), std::slice::from_ref(&last), 9);
        assert_eq!(played.sent[0], body.as_bytes());
    }
    // A thread that is none, or of a type that is not known, is the provider's to refuse.
    for odd in ["null", r#""create""#, r#"{"type":"fork"}"#] {
        let played = play(Format::Messages, &with(odd), std::slice::from_ref(&last));
        assert_eq!(
            played.sent_value(0)["thread"],
            serde_json::from_str::<Value>(odd).unwrap()
        );
    }
}

/// Wherever they are in the body, and whatever is added beside them.
#[test]
fn a_thread_and_a_container_are_taken_out_together() {
    let members = [
        r#""thread":{"type":"create"}"#,
        r#""container":"container_knack_1""#,
        r#""messages":[]"#,
        r#""model":"m""#,
    ];
    for first in 0..4 {
        for second in (0..4).filter(|at| *at != first) {
            let rest = (0..4).filter(|at| *at != first && *at != second);
            let order: Vec<&str> = [first, second].into_iter().chain(rest).map(|at| members[at]).collect();
            let body = format!("{{{}}}", order.join(","));
            let sent = request(Format::Messages, &body).apply(&injection(), Edits::new());
            let sent: Value = serde_json::from_slice(&sent).unwrap_or_else(|error| panic!("{error}: {body}"));
            assert!(
                sent.get("thread").is_none() && sent.get("container").is_none(),
                "{body}"
            );
            assert!(sent["tools"].is_array() && sent["system"].is_string(), "{body}");
        }
    }
}

/// Whole and streamed, also where the tool of a toolset has one of the other names of Knack's.
#[test]
fn a_call_of_the_clients_toolset_is_the_clients() {
    let injection = || Injection {
        material: Arc::new(
            Material::new("# Skills".to_owned(), vec![tool("skill_run"), tool("look")])
                .with_aliases(vec![("screenshot".to_owned(), "skill_run".to_owned())]),
        ),
        ..Injection::default()
    };
    let ask = ASK.replace(
        r#""max_tokens""#,
        r#""tools":[{"type":"browser_toolset_20260801"}],"max_tokens""#,
    );
    for name in ["skill_run", "screenshot"] {
        let theirs =
            value!({"type": "tool_use", "id": "toolu_1", "name": name, "toolset_name": "browser", "input": {}});
        let whole = message(&value!([theirs]), "tool_use");
        let streamed = stream(&theirs);
        for answer in [whole, streamed] {
            let played = play_pieces(request(Format::Messages, &ask), injection(), settings(), &[answer], 9);
            assert!(played.calls.is_empty(), "{name}: {:?}", played.calls);
            assert!(played.text().contains("toolu_1"), "{name}: {}", played.text());
        }
        // Beside a call of ours it goes back as it came.
        let ours = value!({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}});
        let both = message(&value!([theirs, ours]), "tool_use");
        let played = play_pieces(request(Format::Messages, &ask), injection(), settings(), &[both], 9);
        assert_eq!(played.calls.len(), 1, "{name}");
        assert_eq!(played.value()["content"], value!([theirs]));
        let hidden = played.hidden.unwrap();
        assert!(matches!(&hidden.entries[0], HiddenEntry::Turn(turn)
            if serde_json::from_slice::<Value>(&turn[0]).unwrap()["content"] == value!([theirs, ours])));
    }
}

/// One block, as a stream.
fn stream(block: &Value) -> Answer {
    let lines = [
        value!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [], "usage": {"input_tokens": 10, "output_tokens": 1}}}),
        value!({"type": "content_block_start", "index": 0, "content_block": block}),
        value!({"type": "content_block_stop", "index": 0}),
        value!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}),
        value!({"type": "message_stop"}),
    ];
    sse(events(&lines.map(|line| line.to_string()).join("\n"), true))
}

/// A toolset has no name, and its tools can meet the choice as well.
#[test]
fn a_forced_choice_stays_where_the_client_has_a_toolset() {
    let call = message(
        &value!([{"type": "tool_use", "id": "toolu_1", "name": "skill_run", "input": {}}]),
        "tool_use",
    );
    let last = message(&value!([{"type": "text", "text": "5"}]), "end_turn");
    for (tools, kind) in [
        ("[]", "auto"),
        (r#"[{"type":"computer_toolset_20260801"}]"#, "any"),
        (r#"[{"type":"mcp_toolset","mcp_server_name":"docs"}]"#, "any"),
    ] {
        let ask = ASK.replace(
            r#""max_tokens""#,
            &format!(r#""tools":{tools},"tool_choice":{{"type":"any"}},"max_tokens""#),
        );
        let played = play(Format::Messages, &ask, &[call.clone(), last.clone()]);
        assert_eq!(played.sent_value(1)["tool_choice"]["type"], kind, "{tools}");
    }
    // A refusal of tools is of the client's too.
    let none =
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"This model does not support tools"}}"#;
    let ask = ASK.replace(
        r#""max_tokens""#,
        r#""tools":[{"type":"computer_toolset_20260801"}],"max_tokens""#,
    );
    assert_eq!(play(Format::Messages, &ask, &[error(400, none)]).text(), none);
}

/// Before the first event is shown it is a status, after it a stream error; never a normal end.
#[test]
fn an_end_without_a_reason_to_stop_is_an_error() {
    let ask = ASK.replace(r#""max_tokens""#, r#""stream":true,"max_tokens""#);
    let good = stream(&value!({"type": "text", "text": "5"}));
    let text = String::from_utf8(good.body).unwrap();
    let events: Vec<&str> = text.split_inclusive("\n\n").collect();
    let alone = play(Format::Messages, &ask, &[sse(events[4])]);
    assert_eq!(
        (alone.head.as_ref().unwrap().status, &alone.value()["type"]),
        (502, &value!("error"))
    );
    let cut = play(
        Format::Messages,
        &ask,
        &[sse([&events[..3], &events[4..]].concat().concat())],
    );
    assert!(cut.text().contains("event: error\n"), "{}", cut.text());
    assert!(!cut.text().contains("message_stop"), "{}", cut.text());
    assert_eq!(
        *cut.end(),
        EndKind::Fault("The upstream's stream ended before its answer was complete.".into())
    );
}
