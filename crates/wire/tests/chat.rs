//! Chat Completions: whole exchanges (docs/design/wire-formats.md#chat-completions, docs/design/conversation.md#what-is-streamed-when).

#![expect(
    clippy::format_collect,
    clippy::needless_raw_string_hashes,
    reason = "test data reads better so"
)]

#[path = "support/chat.rs"]
mod bodies;
mod support;

use bodies::*;
use knack_wire::drive::{BodyKind, DriveSettings, EndKind, HiddenEntry};
use knack_wire::{Format, Injection};
use serde_json::{Value, json as value};
use support::*;

const REQ: &str = r#"{"model":"gpt-x","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"2+3?"}],"temperature":0.50,"x":{"y":[1]}}"#;
const REQ_STREAM: &str = r#"{"model":"gpt-x","messages":[{"role":"user","content":"2+3?"}],"stream":true}"#;

#[test]
fn nothing_injected_is_byte_equal_both_ways() {
    let answer = fixture("chat-res-tools.json");
    let played = play_pieces(
        request(Format::Chat, REQ),
        Injection::default(),
        settings(),
        &[json(&answer)],
        7,
    );
    assert_eq!(played.sent[0], REQ.as_bytes());
    assert_eq!(played.text(), answer);
    assert_eq!(played.head.unwrap().body, BodyKind::AsUpstream);
}

#[test]
fn injection_extends_system_text_and_tools_and_leaves_the_rest() {
    let played = play(Format::Chat, REQ, &[json(&completion("c1", "\"5\"", &[], "stop", 1))]);
    let sent = String::from_utf8(played.sent[0].to_vec()).unwrap();
    assert_eq!(
        sent,
        r##"{"model":"gpt-x","tools":[{"type":"function","function":{"name":"skill_run","description":"Runs a skill script.","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}],"messages":[{"role":"system","content":"Be brief.\n\n# Skills\nUse \"them\"."},{"role":"user","content":"2+3?"}],"temperature":0.50,"x":{"y":[1]}}"##
    );
}

#[test]
fn system_text_in_every_form() {
    for (messages, place, expected) in [
        (
            r#"[{"role":"user","content":"x"}]"#,
            0,
            value!({"role":"system","content":"# Skills\nUse \"them\"."}),
        ),
        (
            r#"[{"role":"developer","content":""}]"#,
            0,
            value!({"role":"developer","content":"# Skills\nUse \"them\"."}),
        ),
        (
            r#"[{"role":"system","content":[{"type":"text","text":"a"}]}]"#,
            0,
            value!({"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"# Skills\nUse \"them\"."}]}),
        ),
    ] {
        for tools in [
            "",
            r#","tools":null"#,
            r#","tools":[]"#,
            r#","tools":[{"type":"function","function":{"name":"w"}}]"#,
        ] {
            let body = format!(r#"{{"messages":{messages}{tools}}}"#);
            let sent: Value = serde_json::from_slice(
                &request(Format::Chat, &body).apply(&injection(), knack_wire::json::Edits::new()),
            )
            .unwrap();
            assert_eq!(sent["messages"][place], expected, "{body}");
            let names: Vec<&str> = sent["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["function"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(
                names,
                if tools.contains("\"w\"") {
                    vec!["w", "skill_run"]
                } else {
                    vec!["skill_run"]
                },
                "{body}"
            );
        }
    }
}

#[test]
fn two_rounds_whole() {
    let first = completion(
        "c1",
        "\"Let me see.\"",
        &[call("call_s", "skill_run", r#"{"command":"sum"}"#)],
        "tool_calls",
        3,
    );
    let second = completion("c2", "\"5\"", &[], "stop", 4);
    let played = play(Format::Chat, REQ, &[json(&first), json(&second)]);
    assert_eq!(
        played.calls,
        [("skill_run".to_owned(), r#"{"command":"sum"}"#.to_owned())]
    );
    let answer = played.value();
    assert_eq!(answer["id"], "c1");
    assert_eq!(answer["created"], 3);
    assert_eq!(
        answer["choices"][0]["message"],
        value!({"role":"assistant","content":"Let me see.\n\n5","odd":1})
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        answer["usage"],
        value!({"prompt_tokens":7,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}})
    );
    // The second body is the first one with more messages, and nothing else changed.
    let (one, two) = (played.sent[0].to_vec(), played.sent[1].to_vec());
    let rest = br#"],"temperature":0.50,"x":{"y":[1]}}"#;
    let shared = one.strip_suffix(rest).unwrap();
    let added = two.strip_prefix(shared).unwrap().strip_suffix(rest).unwrap();
    assert!(
        added.starts_with(br#",{"role":"assistant","#),
        "{}",
        String::from_utf8_lossy(added)
    );
    let messages = played.sent_value(1)["messages"].clone();
    assert_eq!(messages[2]["odd"], 1);
    assert_eq!(
        messages[3],
        value!({"role":"tool","tool_call_id":"call_s","content":"result of call_s"})
    );
    assert!(played.remembered_first);
    let hidden = played.hidden.unwrap();
    assert_eq!(hidden.entries.len(), 3);
    assert_eq!(
        hidden.visible[0],
        &br#"{"role":"assistant","content":"Let me see.\n\n5"}"#[..]
    );
    assert_eq!(
        played.summary.unwrap().usage.unwrap(),
        br#"{"prompt_tokens":7,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}"#
    );
}

#[test]
fn plain_stream_goes_through_as_it_came() {
    let body = r#"{"model":"gpt-x","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let upstream = events(&fixture("chat-sse-text.events"), false);
    let played = play(Format::Chat, body, &[sse(upstream.clone())]);
    assert_eq!(played.text(), String::from_utf8(upstream).unwrap());
}

#[test]
fn usage_is_asked_for_and_dropped_if_the_client_did_not() {
    let upstream = events(&fixture("chat-sse-text.events"), false);
    let played = play(Format::Chat, REQ_STREAM, &[sse(upstream)]);
    assert_eq!(played.sent_value(0)["stream_options"], value!({"include_usage":true}));
    assert!(!played.text().contains("usage"), "{}", played.text());
    assert_eq!(played.data().len(), 5);
    assert!(played.summary.unwrap().usage.is_some());
}

#[test]
fn client_calls_stream_through() {
    let body = r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let upstream = events(&fixture("chat-sse-tools.events"), false);
    let played = play(Format::Chat, body, &[sse(upstream.clone())]);
    assert_eq!(played.text(), String::from_utf8(upstream).unwrap());
    assert!(played.hidden.is_none());
}

fn loop_answers() -> Vec<Answer> {
    vec![
        stream(&[
            chunk("S1", r#"{"role":"assistant","content":""}"#, "null"),
            chunk("S1", r#"{"content":"Let me compute."}"#, "null"),
            chunk(
                "S1",
                r#"{"tool_calls":[{"index":0,"id":"call_s","type":"function","function":{"name":"skill_run","arguments":""}}]}"#,
                "null",
            ),
            chunk(
                "S1",
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":"}}]}"#,
                "null",
            ),
            chunk(
                "S1",
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"sum\"}"}}]}"#,
                "null",
            ),
            chunk("S1", "{}", "\"tool_calls\""),
            usage_chunk("S1", 100),
        ]),
        stream(&[
            chunk("S2", r#"{"role":"assistant","content":""}"#, "null"),
            chunk("S2", r#"{"content":"The sum is 5."}"#, "null"),
            chunk("S2", "{}", "\"stop\""),
            usage_chunk("S2", 101),
        ]),
    ]
}

const USAGE_STREAM: &str =
    r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}}"#;

#[test]
fn streamed_loop_is_one_answer() {
    let played = play(Format::Chat, USAGE_STREAM, &loop_answers());
    let expected = [
        chunk("S1", r#"{"role":"assistant","content":""}"#, "null"),
        chunk("S1", r#"{"content":"Let me compute."}"#, "null"),
        chunk("S1", r#"{"content":"\n\nThe sum is 5."}"#, "null"),
        chunk("S1", "{}", "\"stop\""),
        usage_chunk("S1", 201),
        "[DONE]".to_owned(),
    ];
    assert_eq!(played.data(), expected);
    assert_eq!(played.calls[0].1, r#"{"command":"sum"}"#);
    assert_eq!(
        played.sent_value(1)["messages"][2],
        value!({"role":"assistant","content":"Let me compute.","tool_calls":[{"id":"call_s","type":"function","function":{"name":"skill_run","arguments":"{\"command\":\"sum\"}"}}]})
    );
}

#[test]
fn any_split_of_the_upstream_bytes_gives_the_same_answer() {
    let whole = play(Format::Chat, USAGE_STREAM, &loop_answers());
    for piece in [1, 2, 3, 5, 17, 64] {
        let split = play_pieces(
            request(Format::Chat, USAGE_STREAM),
            injection(),
            settings(),
            &loop_answers(),
            piece,
        );
        assert_eq!(split.text(), whole.text());
        assert_eq!(split.sent, whole.sent);
    }
}

#[test]
fn mixed_turn_hides_ours_and_renumbers_theirs() {
    let answers = [stream(&[
        chunk(
            "S1",
            r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_s","type":"function","function":{"name":"skill_run","arguments":"{}"}},{"index":1,"id":"call_w","type":"function","function":{"name":"get_weather","arguments":""}}]}"#,
            "null",
        ),
        chunk(
            "S1",
            r#"{"tool_calls":[{"index":1,"function":{"arguments":"{\"city\":\"Oslo\"}"}}]}"#,
            "null",
        ),
        chunk("S1", "{}", "\"tool_calls\""),
    ])];
    let played = play(Format::Chat, USAGE_STREAM, &answers);
    assert_eq!(
        played.data()[..3],
        [
            chunk(
                "S1",
                r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_w","type":"function","function":{"name":"get_weather","arguments":""}}]}"#,
                "null"
            ),
            chunk(
                "S1",
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Oslo\"}"}}]}"#,
                "null"
            ),
            chunk("S1", "{}", "\"tool_calls\""),
        ]
    );
    assert!(!played.text().contains("skill_run"));
    assert!(played.remembered_first);
    let hidden = played.hidden.unwrap();
    assert_eq!(hidden.client_calls, ["call_w"]);
    assert!(
        matches!(&hidden.entries[..], [HiddenEntry::Turn(_), HiddenEntry::Results(results)] if results[0].text == "result of call_s")
    );
}

#[test]
fn mixed_turn_whole() {
    let first = completion(
        "c1",
        "null",
        &[call("call_s", "skill_run", "{}"), call("call_w", "get_weather", "{}")],
        "tool_calls",
        3,
    );
    let played = play(Format::Chat, REQ, &[json(&first)]);
    assert_eq!(
        played.value()["choices"][0]["message"]["tool_calls"],
        value!([{"id":"call_w","type":"function","function":{"name":"get_weather","arguments":"{}"}}])
    );
    assert_eq!(played.value()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_name_in_pieces_is_held_until_it_is_known() {
    let answers = |rest: &str| {
        [
            stream(&[
                chunk("S1", r#"{"role":"assistant"}"#, "null"),
                chunk(
                    "S1",
                    r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"skill_","arguments":""}}]}"#,
                    "null",
                ),
                chunk(
                    "S1",
                    &format!(r#"{{"tool_calls":[{{"index":0,"function":{{"name":"{rest}"}}}}]}}"#),
                    "null",
                ),
                chunk(
                    "S1",
                    r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#,
                    "null",
                ),
                chunk("S1", "{}", "\"tool_calls\""),
            ]),
            stream(&[
                chunk("S2", r#"{"content":"done"}"#, "null"),
                chunk("S2", "{}", "\"stop\""),
            ]),
        ]
    };
    let ours = play(Format::Chat, USAGE_STREAM, &answers("run"));
    assert_eq!(ours.calls.len(), 1);
    assert!(!ours.text().contains("tool_calls"), "{}", ours.text());
    let theirs = play(Format::Chat, USAGE_STREAM, &answers("other"));
    assert!(theirs.calls.is_empty());
    assert!(theirs.text().contains(r#""name":"skill_""#) && theirs.text().contains(r#""name":"other""#));
}

#[test]
fn cut_calls_never_run() {
    for reason in ["length", "content_filter"] {
        let first = completion("c1", "\"x\"", &[call("call_s", "skill_run", r#"{"comm"#)], reason, 3);
        let played = play(Format::Chat, REQ, &[json(&first)]);
        assert!(played.calls.is_empty());
        assert_eq!(played.value()["choices"][0]["finish_reason"], reason);
        assert!(played.value()["choices"][0]["message"].get("tool_calls").is_none());
    }
}

#[test]
fn calls_under_stop_run_and_empty_arguments_are_an_object() {
    let first = completion("c1", "null", &[call("call_s", "skill_run", "")], "stop", 3);
    let played = play(
        Format::Chat,
        REQ,
        &[json(&first), json(&completion("c2", "\"5\"", &[], "stop", 4))],
    );
    assert_eq!(played.calls, [("skill_run".to_owned(), "{}".to_owned())]);
}

#[test]
fn unknown_names_and_broken_arguments() {
    let first = completion("c1", "null", &[call("a", "nobody_knows", "{}")], "tool_calls", 3);
    let played = play(Format::Chat, REQ, &[json(&first)]);
    assert_eq!(
        played.value()["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "nobody_knows"
    );
    let first = completion("c1", "null", &[call("a", "skill_run", "{not json")], "tool_calls", 3);
    let played = play(
        Format::Chat,
        REQ,
        &[json(&first), json(&completion("c2", "\"5\"", &[], "stop", 4))],
    );
    assert_eq!(played.calls[0].1, "{not json");
}

#[test]
fn the_last_round_is_marked_and_the_next_one_ends_as_length() {
    let again = completion("c1", "null", &[call("a", "skill_run", "{}")], "tool_calls", 1);
    let answers = vec![json(&again); 3];
    let settings = DriveSettings {
        max_rounds: 2,
        ..settings()
    };
    let played = play_pieces(request(Format::Chat, REQ), injection(), settings, &answers, 50);
    assert_eq!(played.calls.len(), 2);
    assert_eq!(*played.end(), EndKind::Limit);
    assert_eq!(played.value()["choices"][0]["finish_reason"], "length");
    assert!(played.value()["choices"][0]["message"].get("tool_calls").is_none());
    let last = played.sent_value(2);
    assert_eq!(
        last["messages"][5]["content"],
        "result of a\nLast skill call available for this request; answer now."
    );
    assert_eq!(last["messages"][3]["content"], "result of a");
}

#[test]
fn forced_choice_relaxes_only_when_it_was_met_by_ours() {
    let first = completion("c1", "null", &[call("a", "skill_run", "{}")], "tool_calls", 1);
    for (choice, tools, relaxed) in [
        (r#""required""#, "", true),
        (
            r#""required""#,
            r#","tools":[{"type":"function","function":{"name":"w"}}]"#,
            false,
        ),
        (r#""required""#, r#","tools":[{"type":"web_search"}]"#, false),
        (
            r#"{"type":"function","function":{"name":"skill_run"}}"#,
            r#","tools":[{"type":"function","function":{"name":"w"}}]"#,
            true,
        ),
        (r#""auto""#, "", false),
    ] {
        let body = format!(r#"{{"tool_choice":{choice},"messages":[]{tools}}}"#);
        let played = play(
            Format::Chat,
            &body,
            &[json(&first), json(&completion("c2", "\"5\"", &[], "stop", 4))],
        );
        let expected: Value = if relaxed {
            value!("auto")
        } else {
            serde_json::from_str(choice).unwrap()
        };
        assert_eq!(played.sent_value(1)["tool_choice"], expected, "{body}");
    }
}

#[test]
fn structured_output_is_held_and_dropped_before_skill_calls() {
    let body = r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"response_format":{"type":"json_object"}}"#;
    let played = play(Format::Chat, body, &loop_answers());
    assert!(!played.text().contains("Let me compute."));
    assert!(
        played.text().contains(r#""content":"The sum is 5.""#),
        "{}",
        played.text()
    );
    let first = completion("c1", "\"prose\"", &[call("a", "skill_run", "{}")], "tool_calls", 1);
    let body = body.replace(",\"stream\":true", "");
    let played = play(
        Format::Chat,
        &body,
        &[json(&first), json(&completion("c2", "\"{}\"", &[], "stop", 4))],
    );
    assert_eq!(played.value()["choices"][0]["message"]["content"], "{}");
}

#[test]
fn structured_output_goes_out_in_one_piece() {
    let body = r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"response_format":{"type":"json_schema","json_schema":{}}}"#;
    let chunk = |delta: &str, reason: &str| {
        format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]}}"#)
    };
    let chunks = [
        chunk(r#"{"role":"assistant","content":"{\"a\":"}"#, "null"),
        chunk(r#"{"content":"\"\u00e9"}"#, "null"),
        chunk(r#"{"content":"x\"}"}"#, "null"),
        chunk("{}", r#""stop""#),
        "[DONE]".to_owned(),
    ];
    let played = play(Format::Chat, body, &[sse(events(&chunks.join("\n"), false))]);
    let deltas: Vec<Value> = played
        .data()
        .iter()
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let texts: Vec<&Value> = deltas
        .iter()
        .map(|chunk: &Value| &chunk["choices"][0]["delta"]["content"])
        .filter(|text| !text.is_null())
        .collect();
    assert_eq!(texts, [&value!("{\"a\":\"\u{e9}x\"}")], "{}", played.text());
    assert_eq!(deltas[0]["choices"][0]["delta"]["role"], "assistant");
}

#[test]
fn several_answers_are_refused_with_tools() {
    let request = request(Format::Chat, r#"{"messages":[],"n":2}"#);
    let fault = knack_wire::drive::Drive::new(request, injection(), settings()).unwrap_err();
    assert_eq!((fault.status, fault.param.as_deref()), (400, Some("n")));
}

#[test]
fn errors_of_round_one_pass_through() {
    let text = fixture("chat-err.jsonl");
    let body = text.lines().next().unwrap();
    let played = play(Format::Chat, REQ, &[error(429, body)]);
    assert_eq!((played.head.unwrap().status, played.text().as_str()), (429, body));
    assert_eq!(played.sent.len(), 1);
}

#[test]
fn later_rounds_retry_and_then_pass_the_error_on() {
    let first = completion("c1", "null", &[call("a", "skill_run", "{}")], "tool_calls", 1);
    let wait = Answer {
        retry_after: Some(std::time::Duration::from_secs(3)),
        ..error(429, "{}")
    };
    let played = play(
        Format::Chat,
        REQ,
        &[json(&first), wait, json(&completion("c2", "\"5\"", &[], "stop", 4))],
    );
    assert_eq!(played.delays[2], std::time::Duration::from_secs(3));
    assert_eq!(played.sent[1], played.sent[2]);
    let bad = error(503, r#"{"error":{"message":"no"}}"#);
    let played = play(
        Format::Chat,
        REQ,
        &[json(&first), bad.clone(), bad.clone(), bad.clone()],
    );
    assert_eq!(played.head.unwrap().status, 503);
    assert!(played.head.unwrap().no_retry);
    assert_eq!(played.text(), r#"{"error":{"message":"no"}}"#);
    let mut answers = loop_answers();
    answers.truncate(1);
    answers.extend([bad.clone(), bad.clone(), bad]);
    let played = play(Format::Chat, REQ_STREAM, &answers);
    assert!(played.text().ends_with("data: {\"error\":{\"message\":\"no\"}}\n\n"));
    assert!(!played.text().contains("[DONE]"));
}

#[test]
fn a_broken_stream_ends_as_an_error() {
    let whole = loop_answers().remove(0);
    for (body, broken) in [
        (whole.body[..300].to_vec(), true),
        (whole.body[..300].to_vec(), false),
        (b"data: {oops\n\n".to_vec(), false),
    ] {
        let played = play(
            Format::Chat,
            REQ_STREAM,
            &[Answer {
                body,
                broken,
                ..whole.clone()
            }],
        );
        assert!(matches!(played.end(), EndKind::Fault(_)));
        assert!(played.text().contains(r#""type":"server_error""#), "{}", played.text());
        assert!(!played.text().contains("[DONE]"));
        assert!(played.calls.is_empty());
    }
}

#[test]
fn litellm_files_are_in_the_body() {
    let first = completion("c1", "null", &[call("a", "skill_run", "{}")], "tool_calls", 1);
    let settings = DriveSettings {
        litellm: true,
        ..settings()
    };
    let played = play_pieces(
        request(Format::Chat, REQ),
        injection(),
        settings,
        &[json(&first), json(&completion("c2", "\"5\"", &[], "stop", 4))],
        99,
    );
    assert_eq!(
        played.value()["_litellm_generated_files"],
        value!([{"name":"a.txt","mime_type":"text/plain","content_base64":"aGk=","size":2}])
    );
}
