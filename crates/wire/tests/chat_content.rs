//! Chat Completions: what a content can have beside text, and what stands beside a content.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

#[path = "support/chat.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod bodies;
mod support;

use bodies::*;
use knack_wire::{Format, Injection};
use serde_json::{Value, json as value};
use support::*;

const STREAM: &str = r#"{"model":"gpt-x","messages":[{"role":"user","content":"2+3?"}],"stream":true}"#;

/// A round with text and a call of a skill, and one with an answer.
fn loop_answers() -> [Answer; 2] {
    let call = r#"{"tool_calls":[{"index":0,"id":"call_s","type":"function","function":{"name":"skill_run","arguments":"{}"}}]}"#;
    [
        stream(&[
            chunk("S1", r#"{"role":"assistant","content":""}"#, "null"),
            chunk("S1", r#"{"content":"Let me compute."}"#, "null"),
            chunk("S1", call, "null"),
            chunk("S1", "{}", "\"tool_calls\""),
        ]),
        stream(&[
            chunk("S2", r#"{"role":"assistant","content":""}"#, "null"),
            chunk("S2", r#"{"content":"The sum is 5."}"#, "null"),
            chunk("S2", "{}", "\"stop\""),
        ]),
    ]
}

/// As Mistral streams a reasoning model: `content` is a list of parts while it thinks, and a string afterwards.
#[test]
fn content_that_is_a_list_of_parts_stays_one_and_the_gap_is_before_the_text() {
    let thinking = |text: &str| {
        let parts = value!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]});
        chunk("S2", &parts.to_string(), "null")
    };
    let mut answers = loop_answers();
    answers[1] = stream(&[
        chunk("S2", r#"{"role":"assistant","content":""}"#, "null"),
        thinking("Two and "),
        thinking("three."),
        chunk("S2", r#"{"content":"It is "}"#, "null"),
        chunk(
            "S2",
            r#"{"content":[{"type":"reference","reference_ids":[1]},{"type":"text","text":"5."}]}"#,
            "null",
        ),
        chunk("S2", "{}", "\"stop\""),
    ]);
    let played = play(Format::Chat, STREAM, &answers);
    let shown: Vec<Value> = contents(&played);
    assert_eq!(
        shown,
        [
            value!(""),
            value!("Let me compute."),
            value!([{"type": "thinking", "thinking": [{"type": "text", "text": "Two and "}]}]),
            value!([{"type": "thinking", "thinking": [{"type": "text", "text": "three."}]}]),
            value!("\n\nIt is "),
            value!([{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "5."}]),
        ]
    );
    let visible: Value = serde_json::from_slice(&played.hidden.unwrap().visible[0]).unwrap();
    assert_eq!(visible["content"], "Let me compute.\n\nIt is 5.");
    // The first text of a round may be in a list too.
    answers[1] = stream(&[
        chunk(
            "S2",
            r#"{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"5"}]}"#,
            "null",
        ),
        chunk("S2", r#"{"content":"."}"#, "null"),
        chunk("S2", "{}", "\"stop\""),
    ]);
    let shown = contents(&play(Format::Chat, STREAM, &answers));
    assert_eq!(
        shown[2],
        value!([{"type": "thinking", "thinking": []}, {"type": "text", "text": "\n\n5"}])
    );
    assert_eq!(shown[3], ".");
}

/// What a hidden turn's content has goes back whole, in the order in which it came.
#[test]
fn content_in_parts_goes_back_whole() {
    let mut answers = loop_answers();
    answers[0] = stream(&[
        chunk("S1", r#"{"role":"assistant","content":""}"#, "null"),
        chunk(
            "S1",
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"I "}]}]}"#,
            "null",
        ),
        chunk(
            "S1",
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"run it."}]}]}"#,
            "null",
        ),
        chunk("S1", r#"{"content":"Let me "}"#, "null"),
        chunk("S1", r#"{"content":"see."}"#, "null"),
        chunk(
            "S1",
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"skill_run","arguments":"{}"}}]}"#,
            "null",
        ),
        chunk("S1", "{}", "\"tool_calls\""),
    ]);
    let played = play(Format::Chat, STREAM, &answers);
    assert_eq!(
        played.sent_value(1)["messages"][2]["content"],
        value!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "I run it."}]},
            {"type": "text", "text": "Let me see."},
        ])
    );
}

/// The contents of all shown chunks that have one.
fn contents(played: &ExchangeResult) -> Vec<Value> {
    let chunks = played.data().into_iter().filter(|data| data != "[DONE]");
    let chunks = chunks.map(|data| serde_json::from_str::<Value>(&data).expect("every chunk is JSON"));
    chunks
        .map(|chunk| chunk["choices"][0]["delta"]["content"].clone())
        .filter(|content| !content.is_null())
        .collect()
}

/// A client joins the log probabilities of all chunks, as it does the texts.
#[test]
fn log_probabilities_of_a_stream_are_shown_once() {
    let body = r#"{"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,"response_format":{"type":"json_object"}}"#;
    let plain = body.replace(r#","response_format":{"type":"json_object"}"#, "");
    let said = |text: &str, finish: &str| {
        let probability = value!({"content": [{"token": text, "logprob": -0.1}], "refusal": null});
        let choice = value!({"index": 0, "delta": {"content": text}, "logprobs": probability, "finish_reason": null});
        let chunk = value!({"id": "c", "choices": [choice]}).to_string();
        chunk.replace(r#""finish_reason":null"#, &format!(r#""finish_reason":{finish}"#))
    };
    let answer = stream(&[said("{", "null"), said("1", "null"), said("}", "\"stop\"")]);
    for body in [body, plain.as_str()] {
        let played = play(Format::Chat, body, std::slice::from_ref(&answer));
        let chunks: Vec<Value> = played
            .data()
            .iter()
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect();
        let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let texts: String = choices
            .clone()
            .filter_map(|choice| choice["delta"]["content"].as_str())
            .collect();
        let tokens = choices
            .clone()
            .filter_map(|choice| choice["logprobs"]["content"].as_array())
            .flatten();
        let tokens: String = tokens.filter_map(|token| token["token"].as_str()).collect();
        assert_eq!((texts.as_str(), tokens.as_str()), ("{1}", "{1}"), "{}", played.text());
    }
}

/// The saved turn of an answer has what the client sends back, or its hidden turns are never found.
#[test]
fn a_refusal_is_part_of_the_visible_answer() {
    let request = STREAM.replace(r#","stream":true"#, "");
    let calls = [call("a", "skill_run", "{}")];
    let refused = completion("c2", "null", &[], "stop", 1).replace(r#""odd":1"#, r#""refusal":"I \u0063annot.""#);
    let whole = play(
        Format::Chat,
        &request,
        &[json(&completion("c1", "null", &calls, "tool_calls", 1)), json(&refused)],
    );
    let [first, _] = loop_answers();
    let streamed = stream(&[
        chunk("S2", r#"{"role":"assistant","content":null,"refusal":""}"#, "null"),
        chunk("S2", r#"{"refusal":"I "}"#, "null"),
        chunk("S2", r#"{"refusal":"cannot."}"#, "null"),
        chunk("S2", "{}", "\"stop\""),
    ]);
    let streamed = play(Format::Chat, STREAM, &[first, streamed]);
    for played in [whole, streamed] {
        let visible: Value = serde_json::from_slice(&played.hidden.unwrap().visible[0]).unwrap();
        assert_eq!(visible["refusal"], "I cannot.", "{visible}");
    }
}

/// What a round says beside its text, whole: `more` are members of its message.
fn whole_round(id: &str, text: &str, more: &Value, calls: &[String], logprobs: &Value) -> Answer {
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut body: Value =
        serde_json::from_str(&completion(id, &Value::from(text).to_string(), calls, finish, 1)).unwrap();
    let choice = &mut body["choices"][0];
    choice["logprobs"] = logprobs.clone();
    let message = choice["message"].as_object_mut().unwrap();
    message.extend(more.as_object().unwrap().clone());
    // Some servers write an empty list so.
    json(&body.to_string().replace("[]", "[ ]"))
}

/// What a round says beside its text, as a stream: each member in a chunk of its own.
fn streamed_round(id: &str, text: &str, more: &Value, calls: &[String], logprobs: &Value) -> Answer {
    let mut chunks = vec![chunk(id, r#"{"role":"assistant","content":""}"#, "null")];
    let mut said: Value = serde_json::from_str(&chunk(id, &value!({ "content": text }).to_string(), "null")).unwrap();
    said["choices"][0]["logprobs"] = logprobs.clone();
    chunks.push(said.to_string());
    for (key, own) in more.as_object().unwrap() {
        chunks.push(chunk(id, &value!({ key: own }).to_string(), "null"));
    }
    for call in calls {
        let mut call: Value = serde_json::from_str(call).unwrap();
        call["index"] = value!(0);
        chunks.push(chunk(id, &value!({ "tool_calls": [call] }).to_string(), "null"));
    }
    let finish = if calls.is_empty() { "\"stop\"" } else { "\"tool_calls\"" };
    chunks.push(chunk(id, "{}", finish));
    stream(&chunks)
}

fn annotation(start: usize, end: usize) -> Value {
    value!({"type": "url_citation", "url_citation": {"start_index": start, "end_index": end, "url": "u"}})
}

/// The characters that an annotation names.
fn named(text: &str, annotation: &Value) -> String {
    let place = |key: &str| usize::try_from(annotation["url_citation"][key].as_u64().unwrap()).unwrap();
    let (start, end) = (place("start_index"), place("end_index"));
    text.chars().skip(start).take(end - start).collect()
}

/// The message and the log probabilities that a client makes of a stream.
fn joined(played: &ExchangeResult) -> (Value, Vec<Value>) {
    let (mut text, mut reasoning, mut annotations, mut logprobs) = (String::new(), String::new(), vec![], vec![]);
    for data in played.data().iter().filter(|data| *data != "[DONE]") {
        let chunk: Value = serde_json::from_str(data).unwrap();
        let delta = &chunk["choices"][0]["delta"];
        text += delta["content"].as_str().unwrap_or_default();
        reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        annotations.extend(delta["annotations"].as_array().into_iter().flatten().cloned());
        let content = chunk["choices"][0]["logprobs"]["content"].as_array();
        logprobs.extend(content.into_iter().flatten().cloned());
    }
    let message = value!({"content": text, "reasoning_content": reasoning, "annotations": annotations});
    (message, logprobs)
}

/// A client that does not stream gets of two rounds what one that does makes of them.
#[test]
fn a_whole_answer_says_what_a_stream_of_its_rounds_says() {
    let ours = [call("call_s", "skill_run", "{}")];
    let token = |text: &str| value!({"content": [{"token": text, "logprob": -0.5}], "refusal": null});
    let more = value!({"reasoning_content": "I look \u{e9}. ", "annotations": [annotation(4, 8)]});
    for (second, tokens) in [
        (
            value!({"reasoning_content": "I add.", "annotations": [annotation(0, 3)]}),
            token("b"),
        ),
        (value!({"annotations": []}), Value::Null),
        (value!({}), value!({"content": null, "refusal": null})),
    ] {
        let rounds = |round: fn(&str, &str, &Value, &[String], &Value) -> Answer| {
            [
                round("S1", "\u{e9}\u{1f600}: read", &more, &ours, &token("a")),
                round("S2", "Sum is 5.", &second, &[], &tokens),
            ]
        };
        let whole = play(
            Format::Chat,
            &STREAM.replace(",\"stream\":true", ""),
            &rounds(whole_round),
        )
        .value();
        let (streamed, streamed_tokens) = joined(&play(Format::Chat, STREAM, &rounds(streamed_round)));
        let choice = &whole["choices"][0];
        for key in ["content", "reasoning_content", "annotations"] {
            assert_eq!(choice["message"][key], streamed[key], "{key} with {second}");
        }
        assert_eq!(choice["logprobs"]["content"], Value::from(streamed_tokens));
        let said = choice["message"]["content"].as_str().unwrap();
        let places = choice["message"]["annotations"].as_array().unwrap();
        let places: Vec<String> = places.iter().map(|annotation| named(said, annotation)).collect();
        let expected = ["read", "Sum"];
        assert_eq!(places, expected[..places.len()]);
    }
}

/// Also in a later round. Some servers send text and no reason, which is an answer.
#[test]
fn an_end_marker_alone_is_an_error() {
    let end = || sse("data: [DONE]\n\n");
    let alone = play(Format::Chat, STREAM, &[end()]);
    assert_eq!(alone.head.as_ref().unwrap().status, 502);
    assert!(alone.value()["error"]["message"].is_string(), "{}", alone.text());
    let [first, _] = loop_answers();
    let later = play(Format::Chat, STREAM, &[first, end()]);
    assert!(!later.text().contains("[DONE]"), "{}", later.text());
    assert!(later.data().last().unwrap().contains("\"error\""), "{}", later.text());
    let text = play(
        Format::Chat,
        STREAM,
        &[stream(&[chunk("S1", r#"{"content":"Hi"}"#, "null")])],
    );
    assert!(text.text().ends_with("data: [DONE]\n\n"), "{}", text.text());
}

/// A container of a vendor means nothing here without a skill of that vendor; Messages keeps its id.
#[test]
fn a_container_without_a_vendors_skill_goes_whole() {
    let injection = Injection {
        own_skills: vec!["litellm_skill_1".into()],
        ..injection()
    };
    let ours = r#"{"type":"custom","skill_id":"litellm_skill_1"}"#;
    let theirs = r#"{"type":"custom","skill_id":"skill_01"}"#;
    let sent = |format: Format, container: &str| -> Value {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"container":{container}}}"#);
        let body = request(format, &body).apply(&injection, knack_wire::json::Edits::new());
        serde_json::from_slice(&body).unwrap()
    };
    let only_ours = format!(r#"{{"id":"c1","expires":1,"skills":[{ours}]}}"#);
    assert!(sent(Format::Chat, &only_ours).get("container").is_none());
    assert_eq!(
        sent(Format::Messages, &only_ours)["container"],
        value!({"id": "c1", "expires": 1})
    );
    let both = format!(r#"{{"id":"c1","skills":[{ours},{theirs}]}}"#);
    let left = value!({"id": "c1", "skills": [{"type": "custom", "skill_id": "skill_01"}]});
    assert_eq!(sent(Format::Chat, &both)["container"], left);
    for untouched in [value!({"id": "c1"}), value!({"id": "c1", "skills": []})] {
        assert_eq!(sent(Format::Chat, &untouched.to_string())["container"], untouched);
    }
}
