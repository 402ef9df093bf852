//! Calls in the shapes of servers that imitate the API: name and arguments beside the id, arguments as an object, no id, or at the root of the
//! body. Knack's are run and hidden all the same; what goes back upstream has the API's own shape.

#[path = "support/chat.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod bodies;
mod support;

use bodies::*;
use knack_wire::Format;
use knack_wire::drive::EndKind;
use serde_json::{Value, json as value};
use support::*;

const REQ: &str = r#"{"model":"m","messages":[{"role":"user","content":"2+3?"}],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]}"#;
const REQ_STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"2+3?"}],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]}"#;
const ARGUMENTS: &str = r#"{"command":"sum"}"#;

/// One element of `tool_calls` in each shape, and the id that it is called by.
fn shapes(name: &str) -> Vec<(String, &'static str)> {
    let text = Value::from(ARGUMENTS);
    vec![
        (
            format!(r#"{{"id":"c1","type":"function","name":"{name}","arguments":{text}}}"#),
            "c1",
        ),
        (
            format!(r#"{{"id":"c1","name":"{name}","arguments":{ARGUMENTS},"x":1}}"#),
            "c1",
        ),
        (
            format!(r#"{{"id":"c1","function":{{"name":"{name}","arguments":{ARGUMENTS}}}}}"#),
            "c1",
        ),
        (
            format!(r#"{{"function":{{"name":"{name}","arguments":{text}}}}}"#),
            "call_1",
        ),
        (format!(r#"{{"name":"{name}","arguments":{text}}}"#), "call_1"),
    ]
}

fn body(call: &str) -> String {
    format!(
        r#"{{"id":"r","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"Let me see.","tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}"#
    )
}

fn at_root(call: &str) -> String {
    format!(
        r#"{{"id":"r","model":"m","created":1,"content":"Let me see.","tool_calls":[{call}],"usage":{{"prompt_tokens":1}}}}"#
    )
}

fn chunks(call: &str) -> Answer {
    let call = call.replacen('{', "{\"index\":0,", 1);
    stream(&[
        chunk("r", r#"{"role":"assistant","content":"Let me see."}"#, "null"),
        chunk("r", &format!(r#"{{"tool_calls":[{call}]}}"#), "null"),
        chunk("r", "{}", r#""tool_calls""#),
    ])
}

/// The messages that the second round adds.
fn added(played: &ExchangeResult) -> Vec<Value> {
    let sent = played.sent_value(1);
    sent["messages"]
        .as_array()
        .map_or_else(Vec::new, |messages| messages.iter().skip(2).cloned().collect())
}

#[test]
fn a_flat_call_of_ours_runs_hidden_and_goes_back_in_the_apis_own_shape() {
    for (call, id) in shapes("skill_run") {
        for (request, first, last) in [
            (
                REQ,
                json(&body(&call)),
                json(&completion("r2", "\"5\"", &[], "stop", 1)),
            ),
            (
                REQ,
                json(&at_root(&call)),
                json(&completion("r2", "\"5\"", &[], "stop", 1)),
            ),
            (
                REQ_STREAM,
                chunks(&call),
                stream(&[
                    chunk("r2", r#"{"role":"assistant","content":"5"}"#, "null"),
                    chunk("r2", "{}", r#""stop""#),
                ]),
            ),
        ] {
            let played = play(Format::Chat, request, &[first, last]);
            assert_eq!(played.calls, [("skill_run".to_owned(), ARGUMENTS.to_owned())], "{call}");
            assert!(!played.text().contains("skill_run"), "{call}: {}", played.text());
            assert!(played.text().contains("Let me see."), "{call}: {}", played.text());
            let added = added(&played);
            assert_eq!(added[0]["role"], "assistant", "{call}");
            assert_eq!(added[0]["content"], "Let me see.", "{call}");
            assert_eq!(added[0].as_object().unwrap().len(), 3, "{call}: {}", added[0]);
            let sent = &added[0]["tool_calls"][0];
            assert_eq!(sent["id"], id, "{call}");
            assert_eq!(
                sent["function"],
                value!({"name": "skill_run", "arguments": ARGUMENTS}),
                "{call}"
            );
            assert_eq!(
                added[1],
                value!({"role": "tool", "tool_call_id": id, "content": format!("result of {id}")}),
                "{call}"
            );
        }
    }
}

#[test]
fn a_flat_call_of_the_client_reaches_it_as_it_came() {
    for (call, _) in shapes("weather") {
        let answer = body(&call);
        let played = play(Format::Chat, REQ, &[json(&answer)]);
        assert_eq!(played.text(), answer);
        let answer = at_root(&call);
        let played = play(Format::Chat, REQ, &[json(&answer)]);
        assert_eq!(played.text(), answer);
        let played = play(Format::Chat, REQ_STREAM, &[chunks(&call)]);
        assert!(
            played.text().contains("weather") && played.calls.is_empty(),
            "{}",
            played.text()
        );
    }
}

#[test]
fn a_body_without_choices_and_calls_is_an_error_of_the_upstream_as_before() {
    let answer = r#"{"error":{"message":"no"},"tool_calls":[]}"#;
    let played = play(Format::Chat, REQ, &[json(answer)]);
    assert_eq!(played.text(), answer);
    assert!(!matches!(played.end(), EndKind::Answer), "{:?}", played.end());
}
