//! Gemini through the whole loop.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use bytes::Bytes;
use knack_wire::drive::EndKind;
use knack_wire::{CallKind, Drive, DriveSettings, Format, ModelRoute, Request};
use proptest::prelude::*;
use serde_json::{Value, json as value};
use support::*;

fn asked(kind: CallKind, stream: bool, vertex: bool, body: &str) -> Request {
    let route = ModelRoute {
        format: Format::Gemini,
        kind,
        model: Some("gemini-x".to_owned()),
        stream,
        vertex,
    };
    Request::parse(route, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn generate(body: &str) -> Request {
    asked(CallKind::Generate, true, false, body)
}

const ASK: &str = r#"{"contents":[{"role":"user","parts":[{"text":"2+3?"}]}],"tools":[{"functionDeclarations":[{"name":"get_weather"}]}],"generationConfig":{"temperature":0.5},"x":1}"#;

fn call(name: &str, id: &str, signature: &str) -> Value {
    let mut part = value!({"functionCall": {"id": id, "name": name, "args": {"command": "sum"}}});
    if !signature.is_empty() {
        part["thoughtSignature"] = signature.into();
    }
    part
}

fn frame(id: &str, parts: &[Value], reason: &str) -> Value {
    let mut candidate = value!({"content": {"role": "model", "parts": parts}, "index": 0});
    if !reason.is_empty() {
        candidate["finishReason"] = reason.into();
    }
    value!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 12,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}]}, "modelVersion": "gemini-x-1", "responseId": id})
}

fn stream(frames: &[Value]) -> Answer {
    sse(frames
        .iter()
        .map(|frame| format!("data: {frame}\r\n\r\n"))
        .collect::<String>())
}

/// A loop of two rounds: text, a call of Knack with a signature in a frame of its own; then text.
fn two_rounds() -> [Answer; 2] {
    [
        stream(&[
            frame("r1", &[value!({"text": "Let me see.", "thought": true})], ""),
            frame("r1", &[value!({"text": "I compute."})], ""),
            frame("r1", &[call("skill_run", "fc1", "c2lnKys/")], "STOP"),
        ]),
        stream(&[
            frame("r2", &[value!({"text": "It is "})], ""),
            value!({"candidates": [{"groundingMetadata": {"webSearchQueries": ["q"]}, "index": 0}], "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 12}, "responseId": "r2"}),
            frame("r2", &[value!({"text": "5."})], "STOP"),
        ]),
    ]
}

fn frames(played: &ExchangeResult) -> Vec<Value> {
    played
        .data()
        .iter()
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn parts(frames: &[Value]) -> Vec<Value> {
    let lists = frames
        .iter()
        .filter_map(|frame| frame["candidates"][0]["content"]["parts"].as_array());
    lists.flatten().cloned().collect()
}

fn play_with(request: Request, settings: DriveSettings, answers: &[Answer]) -> ExchangeResult {
    play_pieces(request, injection(), settings, answers, usize::MAX)
}

#[test]
fn a_streamed_loop_is_one_answer_and_its_second_round_keeps_every_field() {
    let played = play_with(generate(ASK), settings(), &two_rounds());
    let text = played.text();
    assert!(
        text.split("\r\n\r\n")
            .all(|one| one.is_empty() || one.starts_with("data: {")),
        "{text}"
    );
    let frames = frames(&played);
    assert_eq!(
        parts(&frames),
        [
            value!({"text": "Let me see.", "thought": true}),
            value!({"text": "I compute."}),
            value!({"text": "\n\nIt is "}),
            value!({"text": "5."})
        ]
    );
    assert!(frames.iter().all(|frame| frame["responseId"] == "r1"));
    let ends: Vec<bool> = frames
        .iter()
        .map(|frame| frame["candidates"][0].get("finishReason").is_some())
        .collect();
    assert_eq!(ends, [false, false, false, false, true], "{text}");
    assert_eq!(
        frames[3]["candidates"][0]["groundingMetadata"]["webSearchQueries"],
        value!(["q"])
    );
    let usage = &frames[4]["usageMetadata"];
    assert_eq!(
        (
            &usage["totalTokenCount"],
            &usage["promptTokensDetails"][0]["tokenCount"]
        ),
        (&value!(24), &value!(20))
    );
    let (first, second) = (played.sent_value(0), played.sent_value(1));
    assert_eq!(second["contents"][1]["parts"][2], call("skill_run", "fc1", "c2lnKys/"));
    assert_eq!(
        second["contents"][2]["parts"][0]["functionResponse"]["response"]["output"],
        "result of fc1"
    );
    for field in ["systemInstruction", "tools", "generationConfig", "x"] {
        assert_eq!(first[field], second[field]);
    }
    assert!(!text.contains("skill_run") && played.remembered_first);
}

#[test]
fn a_whole_body_holds_all_rounds() {
    let first = frame(
        "r1",
        &[
            value!({"text": "I compute."}),
            call("skill_run", "", "c2ln"),
            call("skill_run", "", ""),
        ],
        "STOP",
    );
    let last = frame("r2", &[value!({"text": "5."})], "STOP");
    let played = play_with(
        generate(ASK),
        settings(),
        &[json(&first.to_string()), json(&last.to_string())],
    );
    let got = played.value();
    assert_eq!(
        got["candidates"][0]["content"]["parts"],
        value!([{"text": "I compute."}, {"text": "\n\n5."}])
    );
    assert_eq!(
        (&got["responseId"], &got["usageMetadata"]["promptTokenCount"]),
        (&value!("r1"), &value!(20))
    );
    // Calls without ids are answered without, as many as there are.
    let answers = played.sent_value(1)["contents"][2]["parts"].clone();
    assert_eq!(answers.as_array().map(Vec::len), Some(2));
    assert!(answers[0]["functionResponse"].get("id").is_none());
}

#[test]
fn a_mixed_turn_shows_the_clients_call_with_the_signature_and_remembers_ours() {
    let turn = [call("skill_run", "fc1", "c2ln"), call("get_weather", "fc2", "")];
    let played = play_with(
        generate(ASK),
        settings(),
        &[json(&frame("r1", &turn, "STOP").to_string())],
    );
    assert_eq!(
        played.value()["candidates"][0]["content"]["parts"],
        value!([call("get_weather", "fc2", "c2ln")])
    );
    let hidden = played.hidden.unwrap();
    assert_eq!((hidden.client_calls, hidden.entries.len()), (vec!["fc2".to_owned()], 2));
    // Streamed in one frame each, the answer ends in a frame that a client can keep.
    let frames_of = [frame("r1", &turn[..1], ""), frame("r1", &turn[1..], "STOP")];
    for answer in [
        stream(&frames_of),
        stream(&[frame("r1", &turn, "STOP")]),
        stream(&[frame("r1", &[turn[1].clone(), turn[0].clone()], "STOP")]),
    ] {
        let played = play_with(generate(ASK), settings(), &[answer]);
        let frames = frames(&played);
        let calls: Vec<Value> = parts(&frames)
            .into_iter()
            .filter(|part| part.get("functionCall").is_some())
            .collect();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["functionCall"]["name"], "get_weather");
        let (last, rest) = frames.split_last().unwrap();
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
        assert!(
            rest.iter()
                .all(|frame| frame["candidates"][0].get("finishReason").is_none())
        );
        assert!(
            frames
                .iter()
                .all(|frame| frame["candidates"][0]["content"]["parts"] != value!([])),
            "{frames:?}"
        );
    }
}

#[test]
fn a_forced_choice_relaxes_in_both_spellings_unless_the_client_has_tools() {
    let bare = r#"{"contents":[],"KEY":{"CALLING":{"mode":"ANY"}}}"#;
    let with_tools = bare.replacen('{', r#"{"tools":[{"function_declarations":[{"name":"f"}]}],"#, 1);
    for (key, calling) in [
        ("toolConfig", "functionCallingConfig"),
        ("tool_config", "function_calling_config"),
    ] {
        for (body, relaxed) in [(bare, "AUTO"), (with_tools.as_str(), "ANY")] {
            let body = body.replace("KEY", key).replace("CALLING", calling);
            let played = play_with(generate(&body), settings(), &two_rounds());
            assert_eq!(played.sent_value(0)[key][calling]["mode"], "ANY");
            assert_eq!(played.sent_value(1)[key][calling]["mode"], relaxed, "{body}");
        }
    }
}

#[test]
fn the_limit_is_reported_in_the_formats_words() {
    let settings = DriveSettings {
        max_rounds: 1,
        ..settings()
    };
    let [first, _] = two_rounds();
    let played = play_with(generate(ASK), settings.clone(), &[first.clone(), first]);
    let frames = frames(&played);
    assert_eq!(
        frames.last().unwrap()["candidates"][0]["finishReason"],
        "TOO_MANY_TOOL_CALLS"
    );
    assert_eq!(played.end(), &EndKind::Limit);
    let turn = frame("r1", &[call("skill_run", "a", "")], "STOP").to_string();
    let got = play_with(generate(ASK), settings, &[json(&turn), json(&turn)]).value();
    assert_eq!(got["candidates"][0]["finishReason"], "TOO_MANY_TOOL_CALLS");
    assert_eq!(got["candidates"][0]["content"]["parts"], value!([{"text": ""}]));
}

#[test]
fn calls_run_only_after_a_normal_stop() {
    for reason in ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"] {
        let turn = frame("r1", &[value!({"text": "x"}), call("skill_run", "a", "")], reason);
        for answer in [json(&turn.to_string()), stream(&[turn])] {
            let played = play_with(generate(ASK), settings(), &[answer]);
            assert!(
                played.calls.is_empty() && played.text().contains(reason),
                "{}",
                played.text()
            );
        }
    }
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}"#;
    assert_eq!(play_with(generate(ASK), settings(), &[json(blocked)]).text(), blocked);
}

#[test]
fn a_reason_in_every_frame_and_usage_behind_the_last_are_one_answer() {
    let answer = stream(&[
        frame("r1", &[value!({"text": "a"})], "STOP"),
        frame("r1", &[value!({"text": "b"})], "STOP"),
        value!({"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 7}}),
    ]);
    let played = play_with(generate(ASK), settings(), &[answer]);
    let frames = frames(&played);
    assert_eq!(parts(&frames), [value!({"text": "a"}), value!({"text": "b"})]);
    let last = frames.last().unwrap();
    assert_eq!(
        (
            &last["candidates"][0]["finishReason"],
            &last["usageMetadata"]["candidatesTokenCount"]
        ),
        (&value!("STOP"), &value!(7))
    );
    assert!(frames[0]["candidates"][0].get("finishReason").is_none());
}

#[test]
fn errors_in_the_middle_have_the_formats_shape() {
    let error = r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#;
    let said = frame("r1", &[value!({"text": "a"})], "");
    let cut = play_with(generate(ASK), settings(), &[stream(std::slice::from_ref(&said))]);
    let last: Value = frames(&cut).pop().unwrap();
    assert_eq!(
        (&last["error"]["code"], &last["error"]["status"]),
        (&value!(502), &value!("INTERNAL"))
    );
    let played = play_with(
        generate(ASK),
        settings(),
        &[stream(&[said, serde_json::from_str(error).unwrap()])],
    );
    assert_eq!(played.data().pop().unwrap(), error);
    let [first, _] = two_rounds();
    let late = [first, support::error(400, error)];
    let played = play_with(generate(ASK), settings(), &late);
    assert_eq!(played.data().pop().unwrap(), error);
    let played = play_with(
        generate(ASK),
        DriveSettings {
            array: true,
            ..settings()
        },
        &late,
    );
    let list: Value = played.value();
    assert_eq!(list.as_array().unwrap().last().unwrap()["error"]["code"], 503);
}

#[test]
fn structured_output_shows_the_last_turns_text_alone() {
    let body = ASK.replacen(
        "\"temperature\"",
        "\"responseMimeType\":\"application/json\",\"temperature\"",
        1,
    );
    let played = play_with(generate(&body), settings(), &two_rounds());
    let text: String = parts(&frames(&played))
        .iter()
        .filter(|part| part.get("thought").is_none())
        .map(|part| part["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, "It is 5.");
    // A call of the client's behind a text that is held stays behind it.
    let said = [value!({"text": "First."}), call("get_weather", "fc1", "c2ln")];
    let apart = [frame("r1", &said[..1], ""), frame("r1", &said[1..], "STOP")];
    for frames_of in [&[frame("r1", &said, "STOP")][..], &apart] {
        let played = play_with(generate(&body), settings(), &[stream(frames_of)]);
        let shown = frames(&played);
        assert_eq!(parts(&shown), said, "{shown:?}");
        assert_eq!(shown.last().unwrap()["candidates"][0]["finishReason"], "STOP");
    }
}

#[test]
fn what_may_not_be_injected_is_closed() {
    let closed = |body: &str| generate(body).fields().unwrap().closed;
    assert_eq!(closed(r#"{"cachedContent":"c"}"#), Some("cachedContent"));
    let form = r#""generationConfig":{"responseMimeType":"application/json"}"#;
    assert_eq!(closed(&format!("{{{form}}}")), Some("JSON mode"));
    assert_eq!(
        closed(&format!(
            r#"{{{form},"tools":{{"functionDeclarations":{{"name":"f"}}}}}}"#
        )),
        None
    );
    assert_eq!(closed(r#"{"tools":{"googleSearch":{}}}"#), Some("built-in tools"));
    assert_eq!(closed(r#"{"tools":[{"googleSearch":{}}]}"#), Some("built-in tools"));
    assert_eq!(
        closed(r#"{"tools":[{"codeExecution":{}},{"googleSearch":null}]}"#),
        Some("built-in tools")
    );
    // Whether only the code tool closes it.
    for (body, closes) in [
        (r#"{"tools":[{"googleSearch":{}}]}"#, None),
        (r#"{"tools":[{"codeExecution":null}]}"#, None),
        (r#"{"tools":[{"codeExecution":{}},{"googleSearch":null}]}"#, Some(true)),
        (r#"{"tools":[{"code_execution":{}},{"googleSearch":{}}]}"#, Some(false)),
        (
            r#"{"tools":[{"code_execution":{},"functionDeclarations":[]}]}"#,
            Some(false),
        ),
        (r#"{"cachedContent":"c","tools":[{"codeExecution":{}}]}"#, Some(false)),
    ] {
        let tool = generate(body).fields().unwrap().code_tool;
        assert_eq!(tool.map(|tool| tool.closes), closes, "{body}");
    }
    for body in [
        r#"{"tools":[]}"#,
        r#"{"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]}"#,
        r#"{"tools":[{"google_search":{}}],"tool_config":{"include_server_side_tool_invocations":true}}"#,
    ] {
        assert_eq!(closed(body), None, "{body}");
    }
}

#[test]
fn a_token_count_counts_what_the_real_request_would_send() {
    let count = |vertex, body: &str| {
        let request = asked(CallKind::Count, false, vertex, body);
        let played = play_pieces(request, injection(), settings(), &[json("{\"totalTokens\": 5}")], 3);
        assert_eq!(played.text(), "{\"totalTokens\": 5}");
        played.sent_value(0)
    };
    let contents = value!([{"parts": [{"text": "hi"}]}]);
    let bare = count(false, &value!({ "contents": contents }).to_string());
    let whole = count(
        false,
        &value!({"generateContentRequest": {"model": "models/gemini-x", "contents": contents}}).to_string(),
    );
    assert_eq!(bare, whole);
    assert_eq!(
        bare["generateContentRequest"]["tools"][0]["functionDeclarations"][0]["name"],
        "skill_run"
    );
    let vertex = count(true, &value!({ "contents": contents }).to_string());
    assert_eq!(
        (&vertex["contents"], &vertex["tools"]),
        (&contents, &bare["generateContentRequest"]["tools"])
    );
    assert_eq!(count(false, "{}")["generateContentRequest"]["model"], "models/gemini-x");
    // Nothing injected: the same bytes.
    for body in [
        r#"{ "contents":[]}"#,
        r#"{"x":1, "generateContentRequest": {"contents":[]} }"#,
    ] {
        let request = asked(CallKind::Count, false, false, body);
        let mut out = Vec::new();
        Drive::new(request, knack_wire::Injection::default(), settings())
            .unwrap()
            .start(
                knack_wire::json::Edits::new(),
                Vec::new(),
                std::time::Duration::ZERO,
                &mut out,
            );
        assert!(matches!(&out[..], [knack_wire::DriveAction::Send { body: sent, .. }] if sent == body));
    }
}

#[test]
fn a_client_without_events_gets_one_array() {
    let array = DriveSettings {
        array: true,
        ..settings()
    };
    let played = play_with(generate(ASK), array.clone(), &two_rounds());
    let as_events = play_with(generate(ASK), settings(), &two_rounds());
    assert_eq!(played.value(), Value::from(frames(&as_events)));
    assert_eq!(played.head.unwrap().body, knack_wire::drive::BodyKind::Json);
    // An error before the first byte is no list.
    let refused = support::error(429, r#"{"error":{"code":429}}"#);
    assert_eq!(
        play_with(generate(ASK), array, &[refused]).text(),
        r#"{"error":{"code":429}}"#
    );
}

proptest! {
    #[test]
    fn any_split_of_the_upstreams_bytes_gives_the_same_answer(piece in 1usize..200, array in any::<bool>()) {
        let settings = DriveSettings { array, ..settings() };
        let whole = play_with(generate(ASK), settings.clone(), &two_rounds());
        let pieces = play_pieces(generate(ASK), injection(), settings, &two_rounds(), piece);
        prop_assert_eq!(pieces.text(), whole.text());
        prop_assert_eq!(pieces.sent, whole.sent);
    }

    #[test]
    fn no_damage_to_the_stream_makes_the_loop_panic(at in 0usize..1400, insert in "[\\[\\]{}\",:0-9a-z\r\n]{0,6}", drop in 0usize..60) {
        let mut answers = two_rounds().to_vec();
        let body = &mut answers[0].body;
        let at = at.min(body.len());
        let end = (at + drop).min(body.len());
        body.splice(at..end, insert.bytes());
        answers.push(answers[1].clone());
        let played = play_with(generate(ASK), settings(), &answers);
        prop_assert!(played.summary.is_some());
    }
}

/// A later round may end without text: its content has no parts, or there is none.
#[test]
fn a_body_whose_content_has_no_parts_keeps_the_text_of_earlier_rounds() {
    let first = frame(
        "r1",
        &[value!({"text": "I compute."}), call("skill_run", "a", "")],
        "STOP",
    );
    let contents = [
        r#""content":{"role":"model"},"#,
        r#""content":{},"#,
        r#""content":null,"#,
        "",
    ];
    for content in contents {
        let last =
            format!(r#"{{"candidates":[{{{content}"finishReason":"MAX_TOKENS","index":0}}],"responseId":"r2"}}"#);
        let played = play_with(generate(ASK), settings(), &[json(&first.to_string()), json(&last)]);
        let text = played.text();
        assert_eq!(text.matches("\"content\"").count(), 1, "{text}");
        assert_eq!(
            played.value()["candidates"][0]["content"],
            value!({"role": "model", "parts": [{"text": "I compute."}]}),
            "{text}"
        );
        // A stream whose calls are all hidden ends in a frame that has a part.
        let over = format!(r#"{{"candidates":[{{{content}"finishReason":"STOP","index":0}}],"responseId":"r1"}}"#);
        let hidden = frame("r1", &[call("skill_run", "a", "")], "");
        let limit = DriveSettings {
            max_rounds: 0,
            ..settings()
        };
        let answer = stream(&[hidden, serde_json::from_str(&over).unwrap()]);
        let end = frames(&play_with(generate(ASK), limit, &[answer])).pop().unwrap();
        assert_eq!(
            end["candidates"][0]["content"]["parts"],
            value!([{"text": ""}]),
            "{content}"
        );
    }
}

#[test]
fn a_blocked_round_keeps_the_text_of_earlier_ones() {
    let first = frame(
        "r1",
        &[value!({"text": "I compute."}), call("skill_run", "a", "")],
        "STOP",
    );
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}"#;
    let got = play_with(generate(ASK), settings(), &[json(&first.to_string()), json(blocked)]).value();
    assert_eq!(got["promptFeedback"]["blockReason"], "SAFETY");
    assert_eq!(
        got["candidates"][0]["content"]["parts"],
        value!([{"text": "I compute."}])
    );
}

/// The frame that ends an answer goes out last, so it says the usage that came behind it.
#[test]
fn usage_behind_a_last_frame_that_has_none_reaches_the_client() {
    let mut end = frame("r1", &[value!({"text": "a"})], "STOP");
    end.as_object_mut().unwrap().remove("usageMetadata");
    let usage = value!({"promptTokenCount": 10, "candidatesTokenCount": 7});
    let answer = stream(&[end, value!({ "usageMetadata": usage })]);
    let frames = frames(&play_with(generate(ASK), settings(), &[answer]));
    let usages: Vec<&Value> = frames.iter().filter_map(|frame| frame.get("usageMetadata")).collect();
    assert_eq!(usages, [&usage], "{frames:?}");
}

/// Vertex AI refuses a text part without text, and every API a part without anything.
#[test]
fn empty_texts_of_a_hidden_turn_do_not_go_back() {
    let parts = [
        value!({"text": ""}),
        value!({"text": "", "thoughtSignature": "c2ln"}),
        value!({}),
        value!({"text": "I compute."}),
        call("skill_run", "a", ""),
    ];
    let last = frame("r2", &[value!({"text": "5."})], "STOP");
    let played = play_with(
        generate(ASK),
        settings(),
        &[stream(&[frame("r1", &parts, "STOP")]), stream(&[last])],
    );
    let sent = played.sent_value(1)["contents"][1]["parts"].clone();
    assert_eq!(sent, value!([parts[1], parts[3], parts[4]]));
}
