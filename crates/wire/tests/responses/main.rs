//! Responses through the whole loop.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod client_tools;
mod previous;
#[path = "../support/mod.rs"]
mod support;

use bytes::Bytes;
use knack_wire::drive::EndKind;
use knack_wire::{CallKind, DriveSettings, Format, Injection, ModelRoute, Request};
use proptest::prelude::*;
use serde_json::{Value, json as value};
use support::*;

const ASK: &str = r#"{"model":"m","instructions":"Be brief.","input":"2+3?","tools":[{"type":"function","name":"get_weather","parameters":{}},{"type":"web_search"}],"metadata":{"a":"b"},"x":1}"#;

fn reasoning(id: &str) -> Value {
    value!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": format!("enc-{id}")})
}

fn message(id: &str, text: &str) -> Value {
    value!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(name: &str, id: &str) -> Value {
    value!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": id, "name": name, "arguments": "{\"command\":\"sum\"}"})
}

fn hosted(id: &str) -> Value {
    value!({"id": id, "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}})
}

fn snapshot(id: &str, status: &str, output: &[Value]) -> Value {
    value!({"id": id, "object": "response", "created_at": if id == "resp_1" { 1 } else { 2 }, "status": status, "error": null, "incomplete_details": null, "instructions": "Be brief.\n\n# Skills",
        "model": if id == "resp_2" { "m-2" } else { "m" }, "output": output, "tools": [{"type": "function", "name": "skill_run"}], "tool_choice": "auto", "parallel_tool_calls": true, "metadata": {}, "previous_response_id": null,
        "usage": if status == "in_progress" { Value::Null } else { value!({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}) }})
}

fn body(id: &str, output: &[Value]) -> Answer {
    json(&snapshot(id, "completed", output).to_string())
}

/// A stream of these items, each with its events.
fn stream(id: &str, output: &[Value]) -> Answer {
    let mut events = vec![
        value!({"type": "response.created", "response": snapshot(id, "in_progress", &[])}),
        value!({"type": "response.in_progress", "response": snapshot(id, "in_progress", &[])}),
    ];
    for (index, item) in output.iter().enumerate() {
        let mut opened = item.clone();
        let mut inner = Vec::new();
        match item["type"].as_str().unwrap() {
            "message" => {
                opened["content"] = value!([]);
                inner.push(value!({"type": "response.output_text.delta", "item_id": item["id"], "output_index": index, "content_index": 0, "delta": item["content"][0]["text"], "logprobs": []}));
            }
            "function_call" => {
                opened["arguments"] = "".into();
                inner.push(value!({"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": index, "delta": item["arguments"]}));
            }
            "web_search_call" => inner.push(
                value!({"type": "response.web_search_call.searching", "item_id": item["id"], "output_index": index}),
            ),
            _ => {}
        }
        events.push(value!({"type": "response.output_item.added", "output_index": index, "item": opened}));
        events.extend(inner);
        events.push(value!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(value!({"type": "response.completed", "response": snapshot(id, "completed", output)}));
    let text = events.into_iter().enumerate().map(|(number, mut event)| {
        event["sequence_number"] = number.into();
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    });
    sse(text.collect::<String>())
}

fn answer(streams: bool, id: &str, output: &[Value]) -> Answer {
    if streams { stream(id, output) } else { body(id, output) }
}

/// The response that the client holds at the end; a stream is checked for its numbers on the way.
fn response(played: &ExchangeResult) -> Value {
    if !played.text().starts_with("event: ") {
        return played.value();
    }
    let events: Vec<Value> = played
        .data()
        .iter()
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let mut added = 0;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        if event["type"] == "response.output_item.added" {
            assert_eq!(event["output_index"], added, "{event}");
            added += 1;
        }
    }
    let end = events.last().unwrap()["response"].clone();
    assert_eq!(end["output"].as_array().map(Vec::len), Some(added));
    end
}

fn play_with(body: &str, settings: DriveSettings, answers: &[Answer]) -> ExchangeResult {
    play_pieces(
        request(Format::Responses, body),
        injection(),
        settings,
        answers,
        usize::MAX,
    )
}

fn two_rounds(streams: bool) -> [Answer; 2] {
    [
        answer(
            streams,
            "resp_1",
            &[
                message("msg_1", "I compute."),
                hosted("ws_1"),
                reasoning("rs_1"),
                call("skill_run", "call_1"),
                call("skill_run", "call_2"),
            ],
        ),
        answer(streams, "resp_2", &[reasoning("rs_2"), message("msg_2", "5.")]),
    ]
}

/// What hosted tools use is beside the usage, and a last round without usage takes nothing of the earlier ones.
#[test]
fn what_hosted_tools_use_is_summed_and_usage_is_kept() {
    let uses = |searches: u32| value!({"web_search": {"num_requests": searches}, "image_gen": {"total_tokens": 7}});
    for (last, all) in [(Some(uses(2)), 3), (None, 1), (Some(Value::Null), 1)] {
        let mut first = snapshot("resp_1", "completed", &[call("skill_run", "call_1")]);
        first["tool_usage"] = uses(1);
        let mut second = snapshot("resp_2", "completed", &[message("msg_2", "5.")]);
        second.as_object_mut().unwrap().remove("usage");
        let times = if last.as_ref().is_some_and(Value::is_object) {
            2
        } else {
            1
        };
        if let Some(last) = last {
            second["tool_usage"] = last;
        }
        let answers = [json(&first.to_string()), json(&second.to_string())];
        let got = response(&play_with(ASK, settings(), &answers));
        assert_eq!(
            got["tool_usage"],
            value!({"web_search": {"num_requests": all}, "image_gen": {"total_tokens": 7 * times}})
        );
        assert_eq!(got["usage"]["total_tokens"], 12, "{got}");
    }
}

#[test]
fn a_loop_is_one_response_and_its_second_round_keeps_every_field() {
    for streams in [false, true] {
        let played = play_with(ASK, settings(), &two_rounds(streams));
        let got = response(&played);
        let kinds: Vec<&str> = got["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["msg_1", "ws_1", "rs_2", "msg_2"]);
        assert_eq!(
            (&got["id"], &got["created_at"], &got["model"], &got["status"]),
            (&value!("resp_1"), &value!(1), &value!("m"), &value!("completed"))
        );
        assert_eq!(
            got["usage"],
            value!({"input_tokens": 20, "output_tokens": 4, "total_tokens": 24})
        );
        assert_eq!(
            (&got["instructions"], got["tools"].as_array().map(Vec::len)),
            (&value!("Be brief."), Some(2))
        );
        assert!(
            !played.text().contains("skill_run") && !played.text().contains("# Skills"),
            "{}",
            played.text()
        );
        let (first, second) = (played.sent_value(0), played.sent_value(1));
        let input = second["input"].as_array().unwrap();
        assert_eq!(input[0], value!({"role": "user", "content": "2+3?"}));
        let types: Vec<&str> = input[1..].iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(
            types,
            [
                "message",
                "web_search_call",
                "reasoning",
                "function_call",
                "function_call",
                "function_call_output",
                "function_call_output"
            ]
        );
        assert_eq!(input[3], reasoning("rs_1"));
        assert_eq!(
            (&input[6]["call_id"], &input[6]["output"]),
            (&value!("call_1"), &value!("result of call_1"))
        );
        for field in ["instructions", "tools", "metadata", "x", "model"] {
            assert_eq!(first[field], second[field]);
        }
    }
}

#[test]
fn reasoning_is_hidden_with_the_call_behind_it_and_shown_with_anything_else() {
    for streams in [false, true] {
        let turn = [
            reasoning("rs_1"),
            call("get_weather", "call_w"),
            reasoning("rs_2"),
            call("skill_run", "call_s"),
            value!({"id": "x_1", "type": "brand_new", "n": 1.50}),
        ];
        let played = play_with(ASK, settings(), &[answer(streams, "resp_1", &turn)]);
        let got = response(&played);
        assert_eq!(got["output"], Value::from([&turn[..2], &turn[4..]].concat()));
        let hidden = played.hidden.unwrap();
        assert_eq!(
            (hidden.client_calls, hidden.state.as_str()),
            (vec!["call_w".to_owned()], "resp_1")
        );
        assert!(played.remembered_first);
    }
}

#[test]
fn nothing_of_ours_called_is_a_stream_of_the_same_events() {
    let one = stream(
        "resp_1",
        &[
            reasoning("rs_1"),
            message("msg_1", "Hi."),
            call("get_weather", "call_w"),
        ],
    );
    let played = play_with(ASK, settings(), std::slice::from_ref(&one));
    let upstream = String::from_utf8(one.body).unwrap();
    let names = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.starts_with("event: "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(names(&played.text()), names(&upstream));
    response(&played);
}

#[test]
fn a_call_of_ours_without_an_id_runs_hidden_too() {
    let mut bare = call("skill_run", "call_1");
    bare.as_object_mut().unwrap().remove("call_id");
    for streams in [false, true] {
        let answers = [
            answer(streams, "resp_1", std::slice::from_ref(&bare)),
            answer(streams, "resp_2", &[message("msg_2", "5.")]),
        ];
        let played = play_with(ASK, settings(), &answers);
        assert_eq!(response(&played)["output"], value!([message("msg_2", "5.")]));
        assert_eq!(played.calls.len(), 1);
    }
}

#[test]
fn a_namespaced_tool_of_the_same_name_is_the_clients() {
    let mut theirs = call("skill_run", "call_n");
    theirs["namespace"] = "crm".into();
    let played = play_with(ASK, settings(), &[body("resp_1", std::slice::from_ref(&theirs))]);
    assert!(played.calls.is_empty());
    assert_eq!(played.value()["output"], value!([theirs]));
}

#[test]
fn a_forced_choice_relaxes_if_it_was_ours_or_the_client_has_no_tools() {
    let bare = r#"{"input":"x","tool_choice":CHOICE}"#;
    for (body, choice, relaxed) in [
        (bare, r#""required""#, true),
        (bare, r#"{"type":"function","name":"skill_run"}"#, true),
        (ASK, r#""required""#, false),
        (ASK, r#"{"type":"function","name":"skill_run"}"#, true),
        (ASK, r#"{"type":"function","name":"get_weather"}"#, false),
        (ASK, r#"{"type":"web_search"}"#, false),
        (ASK, r#"{"type":"custom","name":"apply_patch"}"#, false),
        (ASK, r#"{"type":"mcp","server_label":"s"}"#, false),
        (ASK, r#"{"type":"shell"}"#, false),
        (
            ASK,
            r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"skill_run"}]}"#,
            false,
        ),
    ] {
        let body = body
            .replace("CHOICE", choice)
            .replacen("\"x\":1", &format!("\"tool_choice\":{choice}"), 1);
        let played = play_with(&body, settings(), &two_rounds(false));
        let wanted: Value = serde_json::from_str(choice).unwrap();
        assert_eq!(played.sent_value(0)["tool_choice"], wanted);
        assert_eq!(
            played.sent_value(1)["tool_choice"],
            if relaxed { value!("auto") } else { wanted },
            "{choice}"
        );
    }
}

#[test]
fn without_a_store_reasoning_goes_round_encrypted_and_is_not_shown() {
    let ask = r#"{"input":"x","store":false}"#;
    for streams in [false, true] {
        let played = play_with(ask, settings(), &two_rounds(streams));
        assert_eq!(played.sent_value(0)["include"], value!(["reasoning.encrypted_content"]));
        assert!(String::from_utf8_lossy(&played.sent[1]).contains("enc-rs_1"));
        assert!(!played.text().contains("encrypted_content"), "{}", played.text());
    }
    let count = ModelRoute::new(Format::Responses, CallKind::Count);
    let count = Request::parse(count, Bytes::from(ask)).unwrap();
    let played = play_pieces(count, injection(), settings(), &[json("{\"input_tokens\":3}")], 100);
    assert!(played.sent_value(0).get("include").is_none() && played.sent_value(0)["tools"][0]["name"] == "skill_run");
}

#[test]
fn a_conversation_that_the_upstream_keeps_is_sent_results_only() {
    let ask = r#"{"conversation":{"id":"conv_1"},"input":[{"role":"user","content":"x"}]}"#;
    let played = play_with(ask, settings(), &two_rounds(true));
    let input = played.sent_value(1)["input"].clone();
    assert_eq!(input.as_array().map(Vec::len), Some(2));
    assert!(
        input
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["type"] == "function_call_output")
    );
}

#[test]
fn the_limit_is_reported_in_the_formats_words() {
    for streams in [false, true] {
        let settings = DriveSettings {
            max_rounds: 1,
            ..settings()
        };
        let [first, _] = two_rounds(streams);
        let played = play_with(ASK, settings, &[first.clone(), first]);
        let got = response(&played);
        assert_eq!(
            (&got["status"], &got["incomplete_details"]["reason"]),
            (&value!("incomplete"), &value!("max_messages"))
        );
        assert_eq!(played.end(), &EndKind::Limit);
    }
}

#[test]
fn calls_run_only_if_the_response_and_the_call_are_complete() {
    let mut cut = call("skill_run", "call_1");
    cut["status"] = "incomplete".into();
    let whole = call("skill_run", "call_1");
    for (status, item) in [("completed", &cut), ("incomplete", &whole), ("failed", &whole)] {
        let one = json(&snapshot("resp_1", status, std::slice::from_ref(item)).to_string());
        let played = play_with(ASK, settings(), &[one]);
        assert!(played.calls.is_empty(), "{status}");
        assert_eq!(played.value()["status"], status);
    }
}

#[test]
fn errors_in_the_middle_have_the_formats_shape() {
    let text = String::from_utf8(stream("resp_1", &[message("msg_1", "Hi.")]).body).unwrap();
    let cut = text[..text.find("event: response.completed").unwrap()].to_owned();
    let played = play_with(ASK, settings(), &[sse(cut.clone())]);
    numbered(&played);
    let last: Value = serde_json::from_str(&played.data().pop().unwrap()).unwrap();
    assert_eq!(
        (&last["type"], &last["error"]["type"]),
        (&value!("error"), &value!("server_error"))
    );
    let said = r#"{"type":"error","sequence_number":99,"error":{"type":"server_error","code":null,"message":"m","param":null}}"#;
    let played = play_with(ASK, settings(), &[sse(format!("{cut}event: error\ndata: {said}\n\n"))]);
    numbered(&played);
    let last: Value = serde_json::from_str(&played.data().pop().unwrap()).unwrap();
    assert_eq!(last["error"]["message"], "m");
    let [first, _] = two_rounds(true);
    let played = play_with(
        ASK,
        settings(),
        &[
            first,
            error(400, r#"{"error":{"message":"late","type":"invalid_request_error"}}"#),
        ],
    );
    assert!(played.data().pop().unwrap().contains("late"));
    numbered(&played);
    // The number of an answer whose events pass as they come is not known.
    let passed = play_pieces(
        request(Format::Responses, ASK),
        Injection::default(),
        settings(),
        &[Answer {
            broken: true,
            ..sse(cut)
        }],
        usize::MAX,
    );
    assert!(passed.data().pop().unwrap().starts_with(r#"{"type":"error","error":"#));
}

/// The numbers of the events, that of an error at the end too, have no gap.
#[track_caller]
fn numbered(played: &ExchangeResult) {
    let numbers = played.data().into_iter().map(|data| {
        let event: Value = serde_json::from_str(&data).unwrap();
        event["sequence_number"].as_u64()
    });
    let numbers: Vec<Option<u64>> = numbers.collect();
    assert_eq!(numbers, (0..numbers.len() as u64).map(Some).collect::<Vec<_>>());
}

#[test]
fn structured_output_shows_the_last_turns_text_alone() {
    let ask = ASK.replacen(
        "\"x\":1",
        r#""text":{"format":{"type":"json_schema","name":"n","schema":{}}}"#,
        1,
    );
    for streams in [false, true] {
        let played = play_with(&ask, settings(), &two_rounds(streams));
        let got = response(&played);
        let texts: Vec<&Value> = got["output"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["type"] == "message")
            .collect();
        assert_eq!(texts, [&message("msg_2", "5.")]);
    }
}

/// A skill without tools has text of Knack in `instructions`, which every snapshot repeats.
#[test]
fn text_alone_is_not_shown_either() {
    let ask = r#"{"model":"m","instructions":"Mine.","input":"2+3?"}"#;
    let text = Injection::new("# Skills".to_owned(), Vec::new());
    for stream in [false, true] {
        let [_, answer] = two_rounds(stream);
        let played = play_pieces(
            request(Format::Responses, ask),
            text.clone(),
            settings(),
            &[answer],
            usize::MAX,
        );
        assert!(played.sent_value(0)["instructions"].to_string().contains("# Skills"));
        assert!(
            !played.text().contains("# Skills") && played.text().contains("Mine."),
            "{}",
            played.text()
        );
        let kept = played.hidden.expect("it is remembered for what is read by its id");
        assert!(
            kept.entries.is_empty()
                && kept
                    .stored
                    .is_some_and(|fields| fields.members["instructions"] == "\"Mine.\"")
        );
    }
}

proptest! {
    #[test]
    fn any_split_of_the_upstreams_bytes_gives_the_same_answer(piece in 1usize..300) {
        let whole = play_with(ASK, settings(), &two_rounds(true));
        let pieces = play_pieces(request(Format::Responses, ASK), injection(), settings(), &two_rounds(true), piece);
        prop_assert_eq!(pieces.text(), whole.text());
        prop_assert_eq!(pieces.sent, whole.sent);
    }

    #[test]
    fn no_damage_to_the_stream_makes_the_loop_panic(at in 0usize..6000, insert in "[\\[\\]{}\",:0-9a-z\r\n]{0,6}", drop in 0usize..60) {
        let mut answers = two_rounds(true).to_vec();
        let body = &mut answers[0].body;
        let at = at.min(body.len());
        let end = (at + drop).min(body.len());
        body.splice(at..end, insert.bytes());
        answers.push(answers[1].clone());
        let played = play_with(ASK, settings(), &answers);
        prop_assert!(played.summary.is_some());
    }
}

/// Reasoning that is not followed by an item that is shown would be refused in the client's next request.
#[test]
fn reasoning_before_a_text_that_is_dropped_or_at_the_end_of_a_hidden_turn_is_not_shown() {
    let structured = ASK.replace(
        r#""metadata""#,
        r#""text":{"format":{"type":"json_object"}},"metadata""#,
    );
    let hidden = call("skill_run", "call_1");
    for streams in [false, true] {
        for (ask, first) in [
            (
                structured.as_str(),
                vec![hidden.clone(), reasoning("rs_1"), message("msg_1", "Dropped.")],
            ),
            (ASK, vec![hidden.clone(), reasoning("rs_1")]),
        ] {
            let answers = [
                answer(streams, "resp_1", &first),
                answer(streams, "resp_2", &[reasoning("rs_2"), message("msg_2", "5.")]),
            ];
            let got = response(&play_with(ask, settings(), &answers));
            let ids: Vec<&str> = got["output"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["id"].as_str().unwrap())
                .collect();
            assert_eq!(ids, ["rs_2", "msg_2"], "stream {streams}: {got}");
        }
        // Text that was held goes out where it was.
        let held = [message("msg_1", "Held."), reasoning("rs_1")];
        let got = response(&play_with(&structured, settings(), &[answer(streams, "resp_1", &held)]));
        assert_eq!(got["output"][0]["id"], "msg_1", "stream {streams}: {got}");
        assert_eq!(got["output"][1]["id"], "rs_1", "stream {streams}: {got}");
    }
}

/// Where text is held, what follows it waits, so that reasoning stays before the item that it belongs to.
#[test]
fn an_answer_that_demands_a_form_keeps_the_order_of_its_items() {
    let ask = ASK.replace(
        r#""metadata""#,
        r#""text":{"format":{"type":"json_object"}},"metadata""#,
    );
    let output = [
        reasoning("rs_1"),
        message("msg_1", "First."),
        hosted("ws_1"),
        reasoning("rs_2"),
        call("get_weather", "call_w"),
    ];
    let ids = |got: &Value| {
        let items = got["output"].as_array().unwrap().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for streams in [false, true] {
        let got = response(&play_with(&ask, settings(), &[answer(streams, "resp_1", &output)]));
        assert_eq!(
            ids(&got),
            ["rs_1", "msg_1", "ws_1", "rs_2", "fc_call_w"],
            "stream {streams}"
        );
        // With a call of Knack the text is dropped, and the reasoning before it.
        let mut mixed = output.to_vec();
        mixed.extend([reasoning("rs_3"), call("skill_run", "call_1")]);
        let got = response(&play_with(&ask, settings(), &[answer(streams, "resp_1", &mixed)]));
        assert_eq!(ids(&got), ["ws_1", "rs_2", "fc_call_w"], "stream {streams}");
    }
}
