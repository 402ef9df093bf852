//! The wire examples of Gemini through the dialect and the codec.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::format::{Ending, RequestDialect as _, fixture};
use crate::frame::SseEvent;
use crate::json::Edits;
use crate::request::{Injection, Tool, ToolChoice};
use crate::route::Format;

fn request(body: &str) -> Request {
    fixture::request(Format::Gemini, body)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn applied(body: &str) -> Value {
    let injection = Injection::new(
        "Skill.".to_owned(),
        vec![Tool {
            name: "skill_run".to_owned(),
            description: "Runs a skill script.".to_owned(),
            schema: r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#.to_owned(),
        }],
    );
    let request = request(body);
    let mut edits = Edits::new();
    Gemini.apply(&request, &injection, &mut edits);
    value(&String::from_utf8(edits.apply(request.raw())).unwrap())
}

/// All parts of a stream in order, texts of neighbours joined, and the frames.
fn accumulated(stream: &[String]) -> (Vec<Value>, Vec<Value>) {
    let frames: Vec<Value> = stream.iter().map(|frame| value(frame)).collect();
    let mut parts: Vec<Value> = Vec::new();
    for part in frames.iter().flat_map(|frame| {
        frame["candidates"][0]["content"]["parts"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }) {
        match (parts.last_mut(), part.get("text")) {
            (Some(Value::Object(last)), Some(text))
                if last.len() == 1
                    && last.contains_key("text")
                    && part.as_object().is_some_and(|part| part.len() == 1) =>
            {
                let joined = format!("{}{}", last["text"].as_str().unwrap(), text.as_str().unwrap());
                last.insert("text".to_owned(), joined.into());
            }
            _ => parts.push(part),
        }
    }
    (parts, frames)
}

/// What every client stream must hold: one finish reason, in the last frame; one id; usage that ends as `usage`.
fn check_frames(frames: &[Value], id: &str, usage: &Value) {
    let (last, rest) = frames.split_last().unwrap();
    assert!(
        rest.iter()
            .all(|frame| frame["candidates"][0].get("finishReason").is_none()),
        "{frames:?}"
    );
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    assert!(
        frames
            .iter()
            .all(|frame| frame["responseId"] == id && frame["modelVersion"] == "gemini-x")
    );
    assert_eq!(&last["usageMetadata"], usage);
}

#[test]
fn view_reads_the_example_request_in_both_spellings() {
    let asked = request(&fixture::text("gem-req.json"));
    let fields = Gemini.fields(&asked).unwrap();
    assert_eq!(
        (fields.model.as_str(), fields.max_tokens, fields.candidates),
        ("m", Some(500), 1)
    );
    assert_eq!(fields.client_tools, ["get_weather"]);
    assert_eq!(fields.tool_choice, ToolChoice::Auto);
    let texts: Vec<_> = Gemini
        .messages(&asked)
        .into_iter()
        .map(|one| (one.role.into_owned(), one.text.into_owned()))
        .collect();
    assert_eq!(
        texts,
        [
            ("system".into(), "Be brief.".into()),
            ("user".into(), "Weather in Oslo and Rome?".to_owned())
        ]
    );
    let snake = r#"{"contents":[],"generation_config":{"max_output_tokens":7,"response_mime_type":"application/json"},"tool_config":{"function_calling_config":{"mode":"ANY"}},"cached_content":"c"}"#;
    let fields = Gemini.fields(&request(snake)).unwrap();
    assert_eq!(
        (fields.max_tokens, fields.structured, fields.tool_choice, fields.closed),
        (Some(7), true, ToolChoice::Required, Some("cachedContent"))
    );
}

#[test]
fn injection_adds_one_part_and_one_entry() {
    let before = value(&fixture::text("gem-req.json"));
    let got = applied(&fixture::text("gem-req.json"));
    assert_eq!(
        got["systemInstruction"],
        json!({"parts": [{"text": "Be brief."}, {"text": "Skill."}]})
    );
    assert_eq!(got["tools"][0], before["tools"][0]);
    assert_eq!(
        got["tools"][1],
        value(fixture::text("inject-tools.jsonl").lines().nth(3).unwrap())
    );
    assert_eq!(got["contents"], before["contents"]);
    assert_eq!(
        applied(r#"{"contents":[]}"#)["systemInstruction"],
        json!({"parts": [{"text": "Skill."}]})
    );
    assert_eq!(
        applied(r#"{"contents":[],"systemInstruction":"A"}"#)["systemInstruction"],
        "A\n\nSkill."
    );
    assert_eq!(
        applied(r#"{"contents":[],"system_instruction":{"parts":[{"text":"A"}]}}"#)["system_instruction"],
        json!({"parts": [{"text": "A"}, {"text": "Skill."}]})
    );
}

#[test]
fn a_system_instruction_that_is_a_list_gets_one_more_element_and_one_of_another_type_closes_the_request() {
    for key in ["systemInstruction", "system_instruction"] {
        for (system, want) in [
            (json!([]), json!([{"text": "Skill."}])),
            (json!([{"text": "A"}]), json!([{"text": "A"}, {"text": "Skill."}])),
            (
                json!([{"role": "user", "parts": [{"text": "A"}]}]),
                json!([{"role": "user", "parts": [{"text": "A"}]}, {"parts": [{"text": "Skill."}]}]),
            ),
        ] {
            let body = json!({"contents": [], key: system}).to_string();
            assert_eq!(applied(&body)[key], want, "{body}");
            let asked = request(&body);
            assert_eq!(Gemini.fields(&asked).unwrap().closed, None, "{body}");
            let text = Gemini.messages(&asked).swap_remove(0).text.into_owned();
            assert_eq!(text, if want[1].is_null() { "" } else { "A" }, "{body}");
        }
        for odd in ["7", "true", r#"["A"]"#, r#"{"parts":"A"}"#] {
            let asked = request(&format!(
                r#"{{"contents":[],"{key}":{odd},"tools":[{{"codeExecution":{{}}}}]}}"#
            ));
            let fields = Gemini.fields(&asked).unwrap();
            assert_eq!(fields.closed, Some("a system text of an unknown type"), "{odd}");
            assert!(!fields.code_tool.unwrap().closes, "{odd}");
        }
    }
}

#[test]
fn the_turn_and_its_results_are_the_follow_up_of_the_example() {
    let body = fixture::text("gem-res-tools.json");
    let (shown, codec) = fixture::bodies(
        &Gemini,
        &request(r#"{"contents":[]}"#),
        std::slice::from_ref(&body),
        "ours",
    );
    assert_eq!(value(&shown), value(&body));
    let want = value(&fixture::text("gem-req-results.json"))["contents"].clone();
    let turn: Value = serde_json::from_slice(&codec.turn()[0]).unwrap();
    assert_eq!(
        turn["parts"].as_array().unwrap()[1..],
        want[1]["parts"].as_array().unwrap()[..]
    );
    let results =
        [("fc1", "-3 C, snow", false), ("fc2", "station offline", true)].map(|(id, text, is_error)| CallResult {
            id: id.to_owned(),
            name: "get_weather".to_owned(),
            text: text.to_owned(),
            is_error,
            ..CallResult::default()
        });
    let got: Value = serde_json::from_slice(&Gemini.results(&results)[0]).unwrap();
    assert_eq!(got, want[2]);
    assert_eq!(codec.shown_calls(), ["fc1", "fc2"]);
}

#[test]
fn a_stream_without_calls_of_ours_keeps_every_part() {
    let events = fixture::events("gem-sse-tools.events");
    let (out, codec) = fixture::stream(
        &Gemini,
        &request(r#"{"contents":[]}"#),
        std::slice::from_ref(&events),
        "ours",
    );
    let text = String::from_utf8(out.clone()).unwrap();
    assert!(
        text.split("\r\n\r\n")
            .filter(|frame| !frame.is_empty())
            .all(|frame| frame.starts_with("data: {")),
        "{text}"
    );
    let (parts, frames) = accumulated(&fixture::data(&out));
    let (want, wanted_frames) = accumulated(&events);
    assert_eq!(parts, want);
    check_frames(&frames, "r3", &wanted_frames[2]["usageMetadata"]);
    assert_eq!(codec.turn().len(), 1);
}

#[test]
fn a_loop_looks_like_one_response() {
    let call = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"skill_run","args":{}},"thoughtSignature":"cw=="}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":90,"candidatesTokenCount":12,"totalTokenCount":102},"modelVersion":"gemini-x","responseId":"r4"}"#;
    let last = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"The sum is 5."}]},"finishReason":"STOP","index":0,"safetyRatings":[]}],"usageMetadata":{"promptTokenCount":111,"candidatesTokenCount":19,"totalTokenCount":130},"modelVersion":"gemini-y","responseId":"r5"}"#;
    let wanted = fixture::events("gem-sse-loop.events");
    let rounds = [vec![wanted[0].clone(), call.to_owned()], vec![last.to_owned()]];
    let (out, codec) = fixture::stream(&Gemini, &request(r#"{"contents":[]}"#), &rounds, "skill_run");
    let (parts, frames) = accumulated(&fixture::data(&out));
    let (want, wanted_frames) = accumulated(&wanted);
    assert_eq!(parts, want);
    check_frames(&frames, "r4", &wanted_frames[1]["usageMetadata"]);
    assert_eq!(frames.last().unwrap()["candidates"][0]["safetyRatings"], json!([]));
    assert!(!String::from_utf8(out).unwrap().contains("skill_run"));
    let visible: Value = serde_json::from_slice(&codec.visible()[0]).unwrap();
    assert_eq!(
        accumulated(&[json!({"candidates": [{"content": visible}]}).to_string()]).0,
        want
    );
}

#[test]
fn a_hidden_calls_signature_moves_to_the_next_shown_part() {
    let body = fixture::text("gem-res-tools.json").replacen("get_weather", "skill_run", 1);
    let (shown, codec) = fixture::bodies(&Gemini, &request(r#"{"contents":[]}"#), &[body], "skill_run");
    let parts = value(&shown)["candidates"][0]["content"]["parts"].clone();
    assert_eq!(parts.as_array().unwrap().len(), 2);
    assert_eq!(
        (&parts[1]["functionCall"]["id"], &parts[1]["thoughtSignature"]),
        (&json!("fc2"), &json!("c2lnbmF0dXJl"))
    );
    assert_eq!(codec.shown_calls(), ["fc2"]);
}

#[test]
fn arguments_in_pieces_become_one_call() {
    let frames: Vec<String> = fixture::text("gem-partial.jsonl")
        .lines()
        .map(|part| format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{part}]}},"index":0}}]}}"#))
        .collect();
    let mut codec = Gemini.codec(&request(r#"{"contents":[]}"#), CodecOptions::default());
    codec.begin_round();
    let units: usize = frames
        .into_iter()
        .map(|frame| {
            codec
                .frame(SseEvent {
                    name: Bytes::new(),
                    data: Bytes::from(frame),
                })
                .unwrap()
        })
        .map(|frame| {
            frame
                .parts
                .iter()
                .filter(|part| matches!(part, crate::format::FramePart::Unit { .. }))
                .count()
        })
        .sum();
    assert_eq!(units, 1);
    let call = codec.call(0).unwrap();
    assert_eq!(
        (call.name, call.id, codec.arguments(0).as_str()),
        ("get_weather", "fc1", r#"{"city":"Oslo"}"#)
    );
    let turn: Value = serde_json::from_slice(&codec.turn()[0]).unwrap();
    assert_eq!(
        turn["parts"],
        json!([{"functionCall": {"id": "fc1", "name": "get_weather", "args": {"city": "Oslo"}}}])
    );
}

#[test]
fn a_blocked_prompt_and_the_limit_end_as_they_should() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}"#;
    let (shown, _) = fixture::bodies(&Gemini, &request(r#"{"contents":[]}"#), &[blocked.to_owned()], "ours");
    assert_eq!(shown, blocked);
    let mut codec = Gemini.codec(&request(r#"{"contents":[]}"#), CodecOptions::default());
    codec.body(Bytes::from(fixture::text("gem-res-final.json"))).unwrap();
    let mut out = Vec::new();
    codec.finish(Ending::Limit, &[], &mut out);
    assert_eq!(
        value(&String::from_utf8(out).unwrap())["candidates"][0]["finishReason"],
        "TOO_MANY_TOOL_CALLS"
    );
}

#[test]
fn errors_have_the_shape_of_the_examples() {
    for line in fixture::text("gem-err.jsonl").lines() {
        let want = value(line);
        let code = u16::try_from(want["error"]["code"].as_u64().unwrap()).unwrap();
        let got = value(
            &String::from_utf8(Gemini.error_body(&Fault::new(code, want["error"]["message"].as_str().unwrap())))
                .unwrap(),
        );
        assert_eq!(
            (&got["error"]["code"], &got["error"]["status"]),
            (&want["error"]["code"], &want["error"]["status"])
        );
        for upstream in [line.to_owned(), format!("[{line}]")] {
            let frame = String::from_utf8(Gemini.upstream_error_frame(code, upstream.as_bytes(), None)).unwrap();
            assert_eq!(frame, format!("data: {line}\r\n\r\n"));
        }
    }
}

proptest! {
    #[test]
    fn no_stream_makes_the_codec_panic(picks in proptest::collection::vec((0usize..8, 0usize..400, "[\\[\\]{}\",:0-9a-z$.]{0,6}"), 1..12)) {
        let mut events = fixture::events("gem-sse-tools.events");
        events.extend(fixture::text("gem-partial.jsonl").lines().map(|part| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}}}}]}}"#)));
        let mut codec = Gemini.codec(&request(r#"{"contents":[]}"#), CodecOptions::default());
        let mut out = Vec::new();
        codec.begin_round();
        for (index, at, insert) in picks {
            let mut event = events[index % events.len()].clone();
            let at = at % event.len();
            event.replace_range(at..at, &insert);
            if let Ok(frame) = codec.frame(SseEvent { name: Bytes::new(), data: Bytes::from(event) }) {
                codec.show(&frame, &vec![true; frame.parts.len()], &mut out);
            }
        }
        codec.finish(Ending::AsCame, &[], &mut out);
        codec.turn();
    }
}
