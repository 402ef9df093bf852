//! The wire examples of Responses through the dialect and the codec.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::format::{RequestDialect as _, fixture};
use crate::frame::SseEvent;
use crate::json::Edits;
use crate::request::{Injection, Tool, ToolChoice};
use crate::route::Format;

const BRIEF: &str = r#"{"model":"gpt-x","instructions":"Be brief.","input":"hi","store":false,"include":["reasoning.encrypted_content"]}"#;

fn request(body: &str) -> Request {
    fixture::request(Format::Responses, body)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn injection() -> Injection {
    Injection::new(
        "Skill.".to_owned(),
        vec![Tool {
            name: "skill_run".to_owned(),
            description: "Runs a skill script.".to_owned(),
            schema: r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#.to_owned(),
        }],
    )
}

fn applied(body: &str) -> Value {
    let request = request(body);
    let mut edits = Edits::new();
    Responses.apply(&request, &injection(), &mut edits);
    value(&String::from_utf8(edits.apply(request.raw())).unwrap())
}

#[test]
fn view_reads_the_example_request() {
    let fields = Responses.fields(&request(&fixture::text("resp-req.json"))).unwrap();
    assert_eq!(fields.model, "gpt-x");
    assert_eq!(fields.client_tools, ["get_weather"]);
    assert_eq!(fields.tool_choice, ToolChoice::Auto);
    assert!(!fields.stream && !fields.structured && fields.closed.is_none());
    let asked = request(&fixture::text("resp-req.json"));
    let texts: Vec<_> = Responses
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
    for (choice, want) in [
        (r#""none""#, ToolChoice::None),
        (r#""required""#, ToolChoice::Required),
        (r#"{"type":"function","name":"f"}"#, ToolChoice::Named("f".to_owned())),
        (
            r#"{"type":"allowed_tools","mode":"auto","tools":[]}"#,
            ToolChoice::Allowed,
        ),
    ] {
        let fields = Responses
            .fields(&request(&format!(r#"{{"input":"x","tool_choice":{choice}}}"#)))
            .unwrap();
        assert_eq!(fields.tool_choice, want);
    }
    assert!(Responses.fields(&request(r#"{"input":1}"#)).is_err());
    assert_eq!(
        Responses.fields(&request(r#"{"background":true}"#)).unwrap().closed,
        Some("background")
    );
}

#[test]
fn injection_extends_each_form_of_the_request() {
    let example = value(fixture::text("inject-tools.jsonl").lines().nth(1).unwrap());
    let got = applied(&fixture::text("resp-req.json"));
    let before = value(&fixture::text("resp-req.json"));
    assert_eq!(got["instructions"], "Be brief.\n\nSkill.");
    assert_eq!(got["tools"][0], before["tools"][0]);
    assert_eq!(got["tools"][1], example);
    assert_eq!(got["input"], before["input"]);
    assert_eq!(got["include"], before["include"]);
    let got = applied(r#"{"instructions":null,"input":"hi","store":false}"#);
    assert_eq!(got["instructions"], "Skill.");
    assert_eq!(got["input"], json!([{"role": "user", "content": "hi"}]));
    assert_eq!(got["include"], json!(["reasoning.encrypted_content"]));
    let got = applied(r#"{"input":[]}"#);
    assert_eq!(
        (got["instructions"].as_str(), got.get("include")),
        (Some("Skill."), None)
    );
}

#[test]
fn instructions_that_are_a_list_get_one_more_item_and_those_of_another_type_close_the_request() {
    let ours = json!({"role": "developer", "content": "Skill."});
    let client = json!({"role": "developer", "content": "Be brief."});
    for (instructions, want) in [(json!([]), json!([ours])), (json!([client]), json!([client, ours]))] {
        let body = json!({"instructions": instructions, "input": "hi"}).to_string();
        assert_eq!(applied(&body)["instructions"], want, "{body}");
        assert_eq!(Responses.fields(&request(&body)).unwrap().closed, None, "{body}");
    }
    let listed = request(r#"{"instructions":[{"role":"developer","content":"Be brief."}],"input":"hi"}"#);
    let texts = Responses.messages(&listed);
    assert_eq!((&*texts[0].role, &*texts[0].text), ("system", "Be brief."));
    for odd in [
        "7",
        "true",
        r#"["Be brief."]"#,
        r#"{"role":"developer","content":"Be brief."}"#,
    ] {
        let body = format!(r#"{{"instructions":{odd},"input":"hi"}}"#);
        let closed = Responses.fields(&request(&body)).unwrap().closed;
        assert_eq!(closed, Some("a system text of an unknown type"), "{body}");
    }
}

#[test]
fn the_turn_and_its_results_are_the_follow_up_of_the_example() {
    let body = fixture::text("resp-res-tools.json");
    let (shown, codec) = fixture::bodies(&Responses, &request(BRIEF), std::slice::from_ref(&body), "ours");
    assert_eq!(value(&shown), value(&body));
    let results: Vec<CallResult> = [("call_a", "-3 C, snow"), ("call_b", "18 C, clear")]
        .map(|(id, text)| CallResult {
            id: id.to_owned(),
            text: text.to_owned(),
            ..CallResult::default()
        })
        .into();
    let appended: Vec<Value> = codec
        .turn()
        .iter()
        .chain(&Responses.results(&results))
        .map(|raw| serde_json::from_slice(raw).unwrap())
        .collect();
    let mut want = value(&fixture::text("resp-req-results.json"))["input"]
        .as_array()
        .unwrap()
        .clone();
    want[5]["output"] = "18 C, clear".into();
    assert_eq!(appended, want[1..]);
    assert_eq!(codec.shown_calls(), ["call_a", "call_b"]);
    assert_eq!(codec.response_id(), "resp_1");
}

#[test]
fn a_stream_without_calls_of_ours_is_byte_equal() {
    let events = fixture::events("resp-sse-tools.events");
    let (out, _) = fixture::stream(&Responses, &request(BRIEF), std::slice::from_ref(&events), "ours");
    assert_eq!(fixture::data(&out), events);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("event: response.created\ndata: {"));
}

/// Round 1 of the loop example: reasoning and a call of Knack.
fn hidden_round() -> Vec<String> {
    let mut events = fixture::events("resp-sse-tools.events");
    events.retain(|event| !event.contains("fc_4\"") || event.contains("response.completed"));
    for event in &mut events {
        *event = event
            .replace("resp_3", "resp_5")
            .replace("\"Be brief.\"", "\"Be brief. Skill.\"")
            .replace("get_weather", "skill_run")
            .replace("\"input_tokens\":81,", "\"input_tokens\":100,")
            .replace("\"output_tokens\":35,", "\"output_tokens\":10,")
            .replace("\"total_tokens\":116", "\"total_tokens\":110");
    }
    events
}

/// Round 2: the message of the loop example, in the ids and numbers of its own response.
fn last_round() -> Vec<String> {
    let events = fixture::events("resp-sse-loop.events").into_iter();
    events
        .map(|event| {
            event
                .replace("resp_5", "resp_6")
                .replace("\"created_at\":1763760000", "\"created_at\":1763760009")
                .replace("\"input_tokens\":201,", "\"input_tokens\":101,")
                .replace("\"output_tokens\":31,", "\"output_tokens\":21,")
                .replace("\"reasoning_tokens\":12", "\"reasoning_tokens\":0")
                .replace("\"total_tokens\":232", "\"total_tokens\":122")
                .replace(
                    "\"tools\":[]",
                    "\"tools\":[{\"type\":\"function\",\"name\":\"skill_run\"}]",
                )
        })
        .collect()
}

#[test]
fn a_loop_looks_like_one_response() {
    let (out, codec) = fixture::stream(
        &Responses,
        &request(r#"{"input":"hi"}"#),
        &[hidden_round(), last_round()],
        "skill_run",
    );
    assert_eq!(fixture::data(&out), fixture::events("resp-sse-loop.events"));
    assert!(!String::from_utf8(out).unwrap().contains("skill_run"));
    assert_eq!(codec.visible().len(), 1);
}

#[test]
fn the_turn_of_a_stream_holds_the_final_items() {
    let mut codec = Responses.codec(&request(BRIEF), CodecOptions::default());
    codec.begin_round();
    for event in fixture::events("resp-sse-tools.events") {
        codec
            .frame(SseEvent {
                name: Bytes::new(),
                data: Bytes::from(event),
            })
            .unwrap();
    }
    let turn: Vec<Value> = codec
        .turn()
        .iter()
        .map(|raw| serde_json::from_slice(raw).unwrap())
        .collect();
    assert_eq!(
        turn[0],
        json!({"id": "rs_3", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAC"})
    );
    assert_eq!(
        codec.call(1).map(|call| (call.name.to_owned(), codec.arguments(1))),
        Some(("get_weather".into(), r#"{"city":"Oslo"}"#.into()))
    );
    assert_eq!(turn.len(), 3);
}

#[test]
fn encrypted_reasoning_that_the_gateway_asked_for_is_taken_out() {
    let events = fixture::events("resp-sse-tools.events");
    let (out, codec) = fixture::stream(
        &Responses,
        &request(r#"{"instructions":"Be brief.","input":"hi","store":false}"#),
        &[events],
        "ours",
    );
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("encrypted_content") && text.contains("rs_3"), "{text}");
    assert!(String::from_utf8_lossy(&codec.turn()[0]).contains("gAAAAC"));
}

/// The stream as LiteLLM's proxy sends it: only the last event has the encrypted content.
fn sealed_at_the_end(mut events: Vec<String>) -> Vec<String> {
    for event in &mut events {
        if event.contains("response.output_item.") {
            *event = event.replace(r#","encrypted_content":"gAAAAC""#, "");
        }
    }
    assert!(events.last().unwrap().contains("gAAAAC") && !events[3].contains("gAAAAC"));
    events
}

#[test]
fn encrypted_reasoning_that_only_the_last_event_has_is_shown_there_and_goes_back_with_the_turn() {
    let shown = sealed_at_the_end(fixture::events("resp-sse-tools.events"));
    let (out, codec) = fixture::stream(&Responses, &request(BRIEF), std::slice::from_ref(&shown), "ours");
    assert_eq!(fixture::data(&out), shown);
    assert!(String::from_utf8_lossy(&codec.turn()[0]).contains("gAAAAC"));
    let hidden = sealed_at_the_end(hidden_round());
    let (out, codec) = fixture::stream(&Responses, &request(BRIEF), &[hidden], "skill_run");
    assert!(String::from_utf8_lossy(&codec.turn()[0]).contains("gAAAAC"));
    assert!(!String::from_utf8(out).unwrap().contains("gAAAAC"));
}

/// A provider refuses reasoning that is not followed by the item that it belongs to.
#[test]
fn reasoning_that_only_the_last_event_has_is_taken_before_an_item_that_is_new_too_and_skipped_elsewhere() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": []});
    let message = json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": []});
    let call = json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "f", "arguments": "{}"});
    let (r, m, c) = (&reasoning, &message, &call);
    for (sent, output, taken) in [
        // The message behind it has its place already.
        (&[m][..], &[r, m][..], &[m][..]),
        (&[m, c], &[m, r, c], &[m, c]),
        // Nothing is behind it.
        (&[m], &[m, r], &[m]),
        (&[], &[r], &[]),
        (&[m], &[m, r, c], &[m, r, c]),
        (&[], &[r, m, c], &[r, m, c]),
    ] {
        let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_1", "output": []}})];
        for (index, item) in sent.iter().enumerate() {
            let mut begun = (*item).clone();
            begun["status"] = "in_progress".into();
            events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
            events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
        let end = json!({"id": "resp_1", "status": "completed", "output": output});
        events.push(json!({"type": "response.completed", "response": end}));
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        let (out, codec) = fixture::stream(&Responses, &request(BRIEF), &[events], "ours");
        let turn: Vec<Value> = codec
            .turn()
            .iter()
            .map(|raw| serde_json::from_slice(raw).unwrap())
            .collect();
        assert_eq!(turn.iter().collect::<Vec<_>>(), taken, "{output:?}");
        let shown = fixture::data(&out).into_iter().map(|event| value(&event));
        let done = shown.filter(|event| event["type"] == "response.output_item.done");
        let done: Vec<Value> = done.map(|event| event["item"].clone()).collect();
        assert_eq!(done.iter().collect::<Vec<_>>(), taken, "{output:?}");
    }
}

#[test]
fn ends_keep_their_status_and_the_limit_is_incomplete() {
    for (index, kind) in ["response.incomplete", "response.failed"].into_iter().enumerate() {
        let event = fixture::text("resp-ends.jsonl").lines().nth(index).unwrap().to_owned();
        let (out, _) = fixture::stream(
            &Responses,
            &request(r#"{"input":"hi"}"#),
            &[vec![event.clone()]],
            "ours",
        );
        let got = fixture::data(&out);
        assert_eq!(value(&got[0])["type"], kind);
        assert_eq!(value(&got[0])["response"], value(&event)["response"]);
    }
    let mut codec = Responses.codec(&request(BRIEF), CodecOptions::default());
    codec.body(Bytes::from(fixture::text("resp-res-final.json"))).unwrap();
    let mut out = Vec::new();
    codec.finish(crate::format::Ending::Limit, &[], &mut out);
    let got = value(&String::from_utf8(out).unwrap());
    assert_eq!(
        (&got["status"], &got["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_messages"))
    );
}

#[test]
fn a_fault_is_a_nested_error_event() {
    let fault = Fault::new(500, "Skill execution is unavailable.");
    let frame = String::from_utf8(Responses.error_frame(&fault)).unwrap();
    let got = value(frame.strip_prefix("event: error\ndata: ").unwrap().trim());
    assert_eq!(
        (&got["type"], &got["error"]["message"]),
        (&json!("error"), &json!("Skill execution is unavailable."))
    );
    let frame = Responses.upstream_error_frame(429, br#"{"error":{"message":"m","type":"requests"}}"#, None);
    assert!(
        String::from_utf8(frame)
            .unwrap()
            .contains(r#""error":{"message":"m","type":"requests"}"#)
    );
}

proptest! {
    #[test]
    fn no_stream_makes_the_codec_panic(picks in proptest::collection::vec((0usize..14, 0usize..400, "[\\[\\]{}\",:0-9a-z]{0,6}"), 1..12)) {
        let events = fixture::events("resp-sse-tools.events");
        let mut codec = Responses.codec(&request(BRIEF), CodecOptions::default());
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
        codec.finish(crate::format::Ending::AsCame, &[], &mut out);
        codec.turn();
    }
}
