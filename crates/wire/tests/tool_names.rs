//! By which names a model calls Knack's tools: in pieces, like the beginning of another name, and by other names.

#[path = "support/chat.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod bodies;
mod support;

use std::sync::Arc;

use bodies::*;
use knack_wire::drive::HiddenEntry;
use knack_wire::request::Material;
use knack_wire::{Format, Injection};
use support::*;

/// The client has a tool whose name begins like Knack's `skill_run`.
const LONGER: &str = r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"tools":[{"type":"function","function":{"name":"skill_run_all","parameters":{"type":"object"}}}]}"#;

fn done() -> Answer {
    stream(&[
        chunk("S2", r#"{"content":"done"}"#, "null"),
        chunk("S2", "{}", "\"stop\""),
    ])
}

#[test]
fn a_name_in_pieces_that_begins_like_ours_is_held_until_it_is_known() {
    let call = |members: &str| format!(r#"{{"tool_calls":[{{"index":0,{members}}}]}}"#);
    for (rest, own) in [("_all", 0), ("", 1)] {
        let first = [
            chunk(
                "S1",
                &call(r#""id":"a","type":"function","function":{"name":"skill_run","arguments":""}"#),
                "null",
            ),
            chunk("S1", &call(&format!(r#""function":{{"name":"{rest}"}}"#)), "null"),
            chunk("S1", &call(r#""function":{"arguments":"{}"}"#), "null"),
            chunk("S1", "{}", "\"tool_calls\""),
        ];
        let played = play(Format::Chat, LONGER, &[stream(&first), done()]);
        assert_eq!(played.calls.len(), own, "{rest:?}: {:?}", played.calls);
        let text = played.text();
        assert_eq!(text.contains("\"tool_calls\":["), own == 0, "{rest:?}: {text}");
        assert_eq!(text.contains(r#""name":"_all""#), own == 0, "{rest:?}: {text}");
    }
    // Without arguments the end of the turn completes the name.
    let first = [
        chunk(
            "S1",
            &call(r#""id":"a","type":"function","function":{"name":"skill_run"}"#),
            "null",
        ),
        chunk("S1", "{}", "\"tool_calls\""),
    ];
    let played = play(Format::Chat, LONGER, &[stream(&first), done()]);
    assert_eq!(played.calls.len(), 1);
    assert!(!played.text().contains("skill_run"), "{}", played.text());
    // A whole name in a whole body is known at once.
    let whole = LONGER.replace("\"stream\":true,", "");
    for (name, own) in [("skill_run", 1), ("skill_run_all", 0)] {
        let first = completion("c1", "null", &[self::call("a", name, "{}")], "tool_calls", 1);
        let second = completion("c2", "\"done\"", &[], "stop", 1);
        let played = play(Format::Chat, &whole, &[json(&first), json(&second)]);
        assert_eq!(played.calls.len(), own, "{name}");
    }
}

fn with_alias() -> Injection {
    let material = Material::new("# Skills".to_owned(), vec![tool("skill_run")]);
    let aliases = vec![("run@1.0".to_owned(), "skill_run".to_owned())];
    Injection {
        material: Arc::new(material.with_aliases(aliases)),
        ..Injection::default()
    }
}

/// A turn that calls these names, and the answer `done`, as bodies of the format.
fn bodies_of(format: Format, names: &[&str]) -> [String; 2] {
    let each = |one: &dyn Fn(&str) -> String| names.iter().map(|name| one(name)).collect::<Vec<_>>().join(",");
    match format {
        Format::Chat => {
            let calls: Vec<String> = names
                .iter()
                .map(|name| call(name, name, r#"{"name":"run@1.0"}"#))
                .collect();
            [
                completion("c1", "null", &calls, "tool_calls", 1),
                completion("c2", "\"done\"", &[], "stop", 1),
            ]
        }
        Format::Messages => {
            let blocks = each(&|name| {
                format!(r#"{{"type":"tool_use","id":"{name}","name":"{name}","input":{{"name":"run@1.0"}}}}"#)
            });
            let message = |content: &str, stop: &str| {
                format!(
                    r#"{{"id":"m","type":"message","role":"assistant","model":"m","content":[{content}],"stop_reason":"{stop}","usage":{{"output_tokens":1}}}}"#
                )
            };
            [
                message(&blocks, "tool_use"),
                message(r#"{"type":"text","text":"done"}"#, "end_turn"),
            ]
        }
        Format::Responses => {
            let items = each(&|name| {
                format!(
                    r#"{{"type":"function_call","id":"fc_{name}","call_id":"{name}","name":"{name}","arguments":"{{\"name\":\"run@1.0\"}}","status":"completed"}}"#
                )
            });
            let response = |output: &str| {
                format!(
                    r#"{{"id":"r","object":"response","status":"completed","model":"m","output":[{output}],"usage":{{"output_tokens":1}}}}"#
                )
            };
            [
                response(&items),
                response(
                    r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"done","annotations":[]}]}"#,
                ),
            ]
        }
        Format::Gemini => {
            let parts = each(&|name| format!(r#"{{"functionCall":{{"name":"{name}","args":{{"name":"run@1.0"}}}}}}"#));
            let response = |parts: &str| {
                format!(
                    r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"finishReason":"STOP"}}],"responseId":"r"}}"#
                )
            };
            [response(&parts), response(r#"{"text":"done"}"#)]
        }
    }
}

/// The request of a client that has a tool of this name.
fn request_of(format: Format, tool: &str) -> String {
    match format {
        Format::Chat => format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":{{"name":"{tool}"}}}}]}}"#
        ),
        Format::Messages => format!(
            r#"{{"model":"m","max_tokens":99,"messages":[{{"role":"user","content":"x"}}],"tools":[{{"name":"{tool}","input_schema":{{"type":"object"}}}}]}}"#
        ),
        Format::Responses => format!(
            r#"{{"model":"m","store":false,"input":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","name":"{tool}"}}]}}"#
        ),
        Format::Gemini => format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"text":"x"}}]}}],"tools":[{{"functionDeclarations":[{{"name":"{tool}"}}]}}]}}"#
        ),
    }
}

/// The call runs as the tool's, and goes back by its name: no provider takes a history with `@` in a name. Arguments stay as written.
#[test]
fn another_name_of_a_tool_is_ours_and_goes_back_as_the_tools() {
    for format in [Format::Chat, Format::Messages, Format::Responses, Format::Gemini] {
        let answers = bodies_of(format, &["run@1.0"]).map(|body| json(&body));
        let asked = request(format, &request_of(format, "weather"));
        let played = play_pieces(asked, with_alias(), settings(), &answers, usize::MAX);
        let named: Vec<&str> = played.calls.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["skill_run"], "{format:?}");
        assert!(played.text().contains("done"), "{format:?}: {}", played.text());
        for hidden in ["run@1.0", "skill_run"] {
            assert!(!played.text().contains(hidden), "{format:?}: {}", played.text());
        }
        let sent = String::from_utf8_lossy(&played.sent[1]).replace("\\\"", "\"");
        assert!(!sent.contains(r#"run@1.0","arguments"#), "{format:?}: {sent}");
        // Once in the arguments; the ids of this test are made of the name.
        assert_eq!(sent.matches(r#""name":"run@1.0"}"#).count(), 1, "{format:?}: {sent}");
        assert!(sent.matches(r#""name":"skill_run""#).count() >= 2, "{format:?}: {sent}");
    }
}

#[test]
fn another_name_that_is_not_a_tools_or_is_the_clients_own_stays_the_clients() {
    for format in [Format::Chat, Format::Messages, Format::Responses, Format::Gemini] {
        for (name, tool) in [("run@9.9", "weather"), ("run@1.0", "run@1.0")] {
            let answers = bodies_of(format, &[name]).map(|body| json(&body));
            let asked = request(format, &request_of(format, tool));
            let played = play_pieces(asked, with_alias(), settings(), &answers, usize::MAX);
            assert!(played.calls.is_empty(), "{format:?}: {:?}", played.calls);
            assert!(
                played.text().contains(&format!(r#""name":"{name}""#)),
                "{format:?}: {}",
                played.text()
            );
        }
    }
}

/// It is the client's, whatever it is called, and its name stays in the history.
#[test]
fn a_function_in_a_namespace_keeps_its_name_beside_a_call_of_ours() {
    let format = Format::Responses;
    let [first, _] = bodies_of(format, &["run@1.0", "skill_run"]);
    let first = first.replacen(r#""call_id""#, r#""namespace":"desk","call_id""#, 1);
    let asked = request(format, &request_of(format, "weather"));
    let played = play_pieces(asked, with_alias(), settings(), &[json(&first)], usize::MAX);
    assert_eq!(played.calls.len(), 1);
    let hidden = played.hidden.unwrap();
    let HiddenEntry::Turn(turn) = &hidden.entries[0] else {
        panic!("{:?}", hidden.entries)
    };
    let name = |at: usize| serde_json::from_slice::<serde_json::Value>(&turn[at]).unwrap()["name"].clone();
    assert_eq!((name(0), name(1)), ("run@1.0".into(), "skill_run".into()));
}
