//! Anthropic Messages: whole exchanges (docs/design/wire-formats.md#anthropic-messages, docs/design/conversation.md#what-is-streamed-when).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use knack_wire::drive::{DriveSettings, EndKind};
use knack_wire::json::Edits;
use knack_wire::{Format, Injection};
use serde_json::{Value, json as value};
use support::*;

const REQ: &str =
    r#"{"model":"claude-x","max_tokens":99,"messages":[{"role":"user","content":"2+3?"}],"metadata":{"user_id":"u"}}"#;
const REQ_STREAM: &str =
    r#"{"model":"claude-x","max_tokens":99,"messages":[{"role":"user","content":"2+3?"}],"stream":true}"#;
const TEXT: &str = "# Skills\nUse \"them\".";

fn applied(body: &str, injection: &Injection) -> Value {
    serde_json::from_slice(&request(Format::Messages, body).apply(injection, Edits::new())).unwrap()
}

fn named(lines: &[String]) -> Vec<u8> {
    events(&lines.join("\n"), true)
}

fn start(id: &str, input: u32) -> String {
    format!(
        r#"{{"type":"message_start","message":{{"id":"{id}","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{input},"output_tokens":1}}}}}}"#
    )
}
fn open(index: u32, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}
fn delta(index: u32, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}
fn close(index: u32) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}
fn end(reason: &str, output: u32) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#
    )
}
const STOP: &str = r#"{"type":"message_stop"}"#;
const EMPTY: &str = r#"{"type":"text","text":""}"#;

fn text(index: u32, text: &str) -> Vec<String> {
    vec![
        open(index, EMPTY),
        delta(index, &format!(r#"{{"type":"text_delta","text":"{text}"}}"#)),
        close(index),
    ]
}
fn use_of(index: u32, id: &str, name: &str, input: &str) -> Vec<String> {
    let json = Value::from(input);
    vec![
        open(
            index,
            &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#),
        ),
        delta(
            index,
            &format!(r#"{{"type":"input_json_delta","partial_json":{json}}}"#),
        ),
        close(index),
    ]
}

fn loop_answers() -> Vec<Answer> {
    let thinking = vec![
        open(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"Sum \u00fc"}"#),
        delta(0, r#"{"type":"signature_delta","signature":"EqQBCgIYAhIk"}"#),
        close(0),
    ];
    let first = [
        vec![start("msg_1", 400)],
        thinking,
        text(1, "Running it."),
        use_of(2, "toolu_1", "skill_run", r#"{"command":"sum"}"#),
        vec![end("tool_use", 20), STOP.into()],
    ]
    .concat();
    let second = [
        vec![start("msg_2", 500)],
        text(0, "The sum is 5."),
        vec![end("end_turn", 40), STOP.into()],
    ]
    .concat();
    vec![sse(named(&first)), sse(named(&second))]
}

fn message(id: &str, content: &str, reason: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"message","role":"assistant","model":"claude-x","content":{content},"stop_reason":"{reason}","stop_sequence":null,"usage":{{"input_tokens":10,"output_tokens":5,"server_tool_use":{{"web_search_requests":1}}}}}}"#
    )
}
const USE: &str = r#"{"type":"tool_use","id":"toolu_1","name":"skill_run","input":{"command":"sum"}}"#;

#[test]
fn nothing_injected_is_byte_equal_both_ways() {
    let answer = fixture("msg-res-tools.json");
    let played = play_pieces(
        request(Format::Messages, &fixture("msg-req.json")),
        Injection::default(),
        settings(),
        &[json(&answer)],
        9,
    );
    assert_eq!(played.sent[0], fixture("msg-req.json").as_bytes());
    assert_eq!(played.text(), answer);
}

#[test]
fn system_in_every_form() {
    let block = value!({"type":"text","text":TEXT});
    for (system, expected) in [
        ("", value!(TEXT)),
        (r#""system":null,"#, value!(TEXT)),
        (r#""system":"","#, value!(TEXT)),
        (r#""system":"Be brief.","#, value!(format!("Be brief.\n\n{TEXT}"))),
        (r#""system":[],"#, value!([block])),
        (
            r#""system":[{"type":"text","text":"a"}],"#,
            value!([{"type":"text","text":"a"}, block]),
        ),
    ] {
        assert_eq!(
            applied(&format!("{{{system}\"messages\":[]}}"), &injection())["system"],
            expected,
            "{system}"
        );
    }
}

#[test]
fn place_among_cache_markers() {
    let mark = value!({"type":"ephemeral"});
    let a = value!({"type":"text","text":"a"});
    let marked = value!({"type":"text","text":"m","cache_control":mark});
    let ours = value!({"type":"text","text":TEXT});
    let ours_marked = value!({"type":"text","text":TEXT,"cache_control":mark});
    let plain = value!([{"role":"user","content":"say \"cache_control\": 1"}]);
    let with_marker = value!([{"role":"user","content":[marked]}]);
    let tools =
        value!([{"name":"a","cache_control":mark},{"name":"b","cache_control":mark},{"name":"c","cache_control":mark}]);
    for (body, expected) in [
        (
            value!({"system":[a,marked],"messages":plain}),
            value!([a, ours, marked]),
        ),
        (
            value!({"system":[marked],"messages":plain}),
            value!([marked, ours_marked]),
        ),
        (
            value!({"system":[marked],"messages":plain,"tools":tools}),
            value!([marked, ours]),
        ),
        (
            value!({"system":[a,marked],"messages":with_marker}),
            value!([a, marked, ours]),
        ),
        (value!({"system":[a],"messages":plain}), value!([a, ours])),
    ] {
        assert_eq!(applied(&body.to_string(), &injection())["system"], expected, "{body}");
    }
}

#[test]
fn tools_in_every_form() {
    for (tools, names) in [
        ("", vec!["skill_run"]),
        (r#""tools":null,"#, vec!["skill_run"]),
        (r#""tools":[],"#, vec!["skill_run"]),
        (r#""tools":[{"name":"w"}],"#, vec!["w", "skill_run"]),
    ] {
        let sent = applied(&format!("{{{tools}\"messages\":[]}}"), &injection());
        let found: Vec<&str> = sent["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(found, names);
    }
}

#[test]
fn own_skills_leave_the_container_and_native_ones_stay() {
    let injection = Injection {
        own_skills: vec!["litellm_skill_1".into()],
        ..injection()
    };
    let ours = r#"{"type":"custom","skill_id":"litellm_skill_1","version":"latest"}"#;
    let theirs = r#"{"type":"anthropic","skill_id":"xlsx","version":"latest"}"#;
    let tools = r#""tools":[{"type":"code_execution_20260521","name":"code_execution"},{"name":"w"}]"#;
    let sent = applied(
        &format!(r#"{{"container":{{"skills":[{ours}]}},{tools},"messages":[]}}"#),
        &injection,
    );
    assert!(sent.get("container").is_none());
    assert_eq!(sent["tools"][0]["name"], "w");
    assert_eq!(sent["tools"][1]["name"], "skill_run");
    let sent = applied(
        &format!(r#"{{"container":{{"id":"container_knack_1","skills":[{ours},{theirs}]}},{tools},"messages":[]}}"#),
        &injection,
    );
    assert_eq!(
        sent["container"],
        value!({"skills":[{"type":"anthropic","skill_id":"xlsx","version":"latest"}]})
    );
    assert_eq!(sent["tools"].as_array().unwrap().len(), 3);
    let sent = applied(
        r#"{"container":"container_knack_1","messages":[]}"#,
        &Injection::default(),
    );
    assert!(sent.get("container").is_none());
    let untouched = format!(r#"{{"container":{{"id":"container_9","skills":[{theirs}]}},"messages":[]}}"#);
    assert_eq!(applied(&untouched, &Injection::default()).to_string(), untouched);
}

#[test]
fn view_has_what_is_routed_on() {
    let request = request(
        Format::Messages,
        r#"{"model":"m","max_tokens":7,"stream":true,"container":{"skills":[{"type":"custom","skill_id":"s","version":"1"}]},"tool_choice":{"type":"tool","name":"w"},"tools":[{"name":"w"}],"output_config":{"format":{"type":"json_schema"}},"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user","content":[{"type":"text","text":"@x hi"},{"type":"document","title":"t.csv","source":{"type":"base64","media_type":"text/csv","data":"YSxi"}}]}]}"#,
    );
    let fields = request.fields().unwrap();
    assert_eq!(
        (
            fields.model.as_str(),
            fields.max_tokens,
            fields.stream,
            fields.structured,
            fields.code_execution
        ),
        ("m", Some(7), true, true, true)
    );
    assert_eq!(fields.container_skills[0].id, "s");
    assert_eq!(fields.tool_choice, knack_wire::request::ToolChoice::Named("w".into()));
    let texts: Vec<_> = request
        .messages()
        .into_iter()
        .map(|message| (message.role.into_owned(), message.text.into_owned()))
        .collect();
    assert_eq!(
        texts,
        [
            ("system".to_owned(), "a\nb".to_owned()),
            ("user".to_owned(), "@x hi".to_owned())
        ]
    );
    assert_eq!(request.attachments()[0].bytes, b"a,b");
}

#[test]
fn streams_without_our_calls_go_through_as_they_came() {
    for name in ["msg-sse-text.events", "msg-sse-tools.events", "msg-sse-loop.events"] {
        let upstream = events(&fixture(name), true);
        let played = play(Format::Messages, REQ_STREAM, &[sse(upstream.clone())]);
        assert_eq!(played.text(), String::from_utf8(upstream).unwrap(), "{name}");
    }
}

#[test]
fn missing_event_lines_are_made_up() {
    let upstream = events(&fixture("msg-sse-text.events"), false);
    let played = play(Format::Messages, REQ_STREAM, &[sse(upstream)]);
    assert_eq!(
        played.text(),
        String::from_utf8(events(&fixture("msg-sse-text.events"), true)).unwrap()
    );
}

#[test]
fn streamed_loop_is_one_message() {
    let played = play(Format::Messages, REQ_STREAM, &loop_answers());
    let expected = [
        vec![
            start("msg_1", 400),
            open(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
            delta(0, r#"{"type":"thinking_delta","thinking":"Sum \u00fc"}"#),
            delta(0, r#"{"type":"signature_delta","signature":"EqQBCgIYAhIk"}"#),
            close(0),
        ],
        text(1, "Running it."),
        text(2, "The sum is 5."),
        vec![
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":900,"output_tokens":60}}"#.to_owned(),
            STOP.to_owned(),
        ],
    ]
    .concat();
    assert_eq!(played.data(), expected);
    assert_eq!(played.text(), String::from_utf8(named(&expected)).unwrap());
    let sent = String::from_utf8(played.sent[1].to_vec()).unwrap();
    assert!(
        sent.contains(r#",{"role":"assistant","content":[{"type":"thinking","thinking":"Sum \u00fc","signature":"EqQBCgIYAhIk"},{"type":"text","text":"Running it."},{"type":"tool_use","id":"toolu_1","name":"skill_run","input":{"command":"sum"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"result of toolu_1"}]}]"#),
        "{sent}"
    );
    assert!(played.remembered_first);
}

#[test]
fn any_split_of_the_upstream_bytes_gives_the_same_answer() {
    let whole = play(Format::Messages, REQ_STREAM, &loop_answers());
    for piece in [1, 2, 3, 7, 31, 100] {
        let split = play_pieces(
            request(Format::Messages, REQ_STREAM),
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
fn two_rounds_whole() {
    let first = message(
        "msg_1",
        &format!(
            r#"[{{"type":"thinking","thinking":"t","signature":"s"}},{{"type":"text","text":""}},{{"type":"text","text":"Running."}},{USE}]"#
        ),
        "tool_use",
    );
    let second = message("msg_2", r#"[{"type":"text","text":"5"}]"#, "end_turn");
    let played = play(Format::Messages, REQ, &[json(&first), json(&second)]);
    let answer = played.value();
    assert_eq!(answer["id"], "msg_1");
    let kinds: Vec<&str> = answer["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "text", "text", "text"]);
    assert_eq!(
        answer["usage"],
        value!({"input_tokens":20,"output_tokens":10,"server_tool_use":{"web_search_requests":2}})
    );
    assert_eq!(answer["stop_reason"], "end_turn");
    // Empty text blocks are refused as input, so they are not sent back.
    assert_eq!(
        played.sent_value(1)["messages"][1]["content"].as_array().unwrap().len(),
        3
    );
    let (one, two) = (&played.sent[0], &played.sent[1]);
    let end = one.windows(12).position(|window| window == b"],\"metadata\"").unwrap();
    assert_eq!(one[..end], two[..end]);
}

#[test]
fn mixed_turn_hides_ours_and_renumbers_theirs() {
    let turn = [
        vec![start("msg_1", 1)],
        use_of(0, "toolu_1", "skill_run", "{}"),
        use_of(1, "toolu_2", "get_weather", r#"{"city":"Oslo"}"#),
        vec![end("tool_use", 2), STOP.into()],
    ]
    .concat();
    let played = play(Format::Messages, REQ_STREAM, &[sse(named(&turn))]);
    let expected = [
        vec![start("msg_1", 1)],
        use_of(0, "toolu_2", "get_weather", r#"{"city":"Oslo"}"#),
        vec![end("tool_use", 2), STOP.into()],
    ]
    .concat();
    assert_eq!(played.data(), expected);
    let hidden = played.hidden.unwrap();
    assert_eq!(hidden.client_calls, ["toolu_2"]);
    assert_eq!(hidden.visible[0], &br#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_2","name":"get_weather","input":{"city":"Oslo"}}]}"#[..]);
    let whole = message(
        "msg_1",
        &format!(r#"[{USE},{{"type":"tool_use","id":"toolu_2","name":"w","input":{{}}}}]"#),
        "tool_use",
    );
    let played = play(Format::Messages, REQ, &[json(&whole)]);
    assert_eq!(
        played.value()["content"],
        value!([{"type":"tool_use","id":"toolu_2","name":"w","input":{}}])
    );
}

#[test]
fn only_a_normal_stop_runs_calls() {
    for reason in [
        "max_tokens",
        "model_context_window_exceeded",
        "refusal",
        "pause_turn",
        "end_turn",
    ] {
        let played = play(
            Format::Messages,
            REQ,
            &[json(&message("m", &format!("[{USE}]"), reason))],
        );
        assert!(played.calls.is_empty());
        assert_eq!(
            (
                played.value()["stop_reason"].as_str().unwrap(),
                played.value()["content"].as_array().unwrap().len()
            ),
            (reason, 0)
        );
    }
}

#[test]
fn broken_arguments_go_to_the_caller_and_an_object_goes_back() {
    let turn = [
        vec![start("msg_1", 1)],
        use_of(0, "toolu_1", "skill_run", "{\"comm"),
        vec![end("tool_use", 2), STOP.into()],
    ]
    .concat();
    let played = play(
        Format::Messages,
        REQ_STREAM,
        &[sse(named(&turn)), loop_answers().remove(1)],
    );
    assert_eq!(played.calls[0].1, "{\"comm");
    assert_eq!(played.sent_value(1)["messages"][1]["content"][0]["input"], value!({}));
}

#[test]
fn structured_output_goes_out_in_one_piece() {
    let body = REQ_STREAM.replacen(
        '{',
        r#"{"output_config":{"format":{"type":"json_schema","schema":{}}},"#,
        1,
    );
    let event = |index: u32, text: &str| {
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":"{text}"}}}}"#)
    };
    let mut turn = vec![start("msg_1", 1)];
    turn.push(r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned());
    turn.extend([r#"{\"a\":"#, r#"\"\u00e9"#, r#"x\"}"#].map(|text| event(0, text)));
    turn.push(r#"{"type":"content_block_stop","index":0}"#.to_owned());
    turn.extend([end("end_turn", 2), STOP.into()]);
    let played = play(Format::Messages, &body, &[sse(named(&turn))]);
    let whole = event(0, r#"{\"a\":\"\u00e9x\"}"#);
    let kept = [&turn[0], &turn[1], &whole, &turn[5], &turn[6], &turn[7]];
    assert_eq!(played.data().iter().collect::<Vec<_>>(), kept);
}

#[test]
fn the_limit_ends_as_pause_turn() {
    let answers = vec![json(&message("m", &format!("[{USE}]"), "tool_use")); 2];
    let played = play_pieces(
        request(Format::Messages, REQ),
        injection(),
        DriveSettings {
            max_rounds: 1,
            ..settings()
        },
        &answers,
        64,
    );
    assert_eq!(*played.end(), EndKind::Limit);
    assert_eq!(played.value()["stop_reason"], "pause_turn");
    assert_eq!(played.calls.len(), 1);
    assert!(
        played.sent_value(1)["messages"][2]["content"][0]["content"]
            .as_str()
            .unwrap()
            .ends_with("answer now.")
    );
}

#[test]
fn forced_choice_relaxes_when_it_was_met_by_ours() {
    let body = r#"{"tool_choice":{"type":"tool","name":"skill_run","disable_parallel_tool_use":true},"messages":[]}"#;
    let answers = [
        json(&message("m", &format!("[{USE}]"), "tool_use")),
        json(&message("m", "[]", "end_turn")),
    ];
    let played = play(Format::Messages, body, &answers);
    assert_eq!(played.sent_value(0)["tool_choice"]["type"], "tool");
    assert_eq!(
        played.sent_value(1)["tool_choice"],
        value!({"type":"auto","disable_parallel_tool_use":true})
    );
}

#[test]
fn errors_in_the_stream_end_it() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#.to_owned();
    let body = [vec![start("msg_1", 1)], text(0, "x"), vec![error.clone()]].concat();
    let played = play(Format::Messages, REQ_STREAM, &[sse(named(&body))]);
    assert_eq!(played.data().last().unwrap(), &error);
    let cut = [vec![start("msg_1", 1)], text(0, "x")].concat();
    let played = play(Format::Messages, REQ_STREAM, &[sse(named(&cut))]);
    assert!(
        played
            .text()
            .contains("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""),
        "{}",
        played.text()
    );
    let mut answers = loop_answers();
    answers.truncate(1);
    answers.push(knack_error());
    let played = play(Format::Messages, REQ_STREAM, &answers);
    assert_eq!(
        played.data().last().unwrap(),
        fixture("msg-err.jsonl").lines().next().unwrap()
    );
}

fn knack_error() -> Answer {
    error(400, fixture("msg-err.jsonl").lines().next().unwrap())
}

#[test]
fn native_form_shows_calls_and_results() {
    let container = r#"{"id":"container_knack_1","expires_at":"2026-12-01T00:00:00Z","skills":[{"type":"custom","skill_id":"s","version":"1"}]}"#;
    let settings = || DriveSettings {
        native: true,
        container: Some(container.to_owned()),
        ..settings()
    };
    let played = play_pieces(
        request(Format::Messages, REQ_STREAM),
        injection(),
        settings(),
        &loop_answers(),
        50,
    );
    let lines: Vec<Value> = played
        .data()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let starts: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "content_block_start")
        .collect();
    let kinds: Vec<&str> = starts
        .iter()
        .map(|line| line["content_block"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "thinking",
            "text",
            "server_tool_use",
            "bash_code_execution_tool_result",
            "text"
        ]
    );
    let indices: Vec<u64> = starts.iter().map(|line| line["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
    assert_eq!(starts[2]["content_block"]["id"], "srvtoolu_knack_msg_1_2_toolu_1");
    assert_eq!(
        starts[3]["content_block"]["tool_use_id"],
        "srvtoolu_knack_msg_1_2_toolu_1"
    );
    assert_eq!(
        starts[3]["content_block"]["content"],
        value!({"type":"bash_code_execution_result","stdout":"result of toolu_1","stderr":"","return_code":0,"content":[]})
    );
    let last = &lines[lines.len() - 2];
    assert_eq!(last["delta"]["container"]["id"], "container_knack_1");
    assert!(
        played.hidden.is_some(),
        "what the model read of a run is more than the form says"
    );
    let first = message("msg_1", &format!("[{USE}]"), "tool_use");
    let second = message("msg_2", r#"[{"type":"text","text":"5"}]"#, "end_turn");
    let played = play_pieces(
        request(Format::Messages, REQ),
        injection(),
        settings(),
        &[json(&first), json(&second)],
        50,
    );
    assert_eq!(
        played.value()["content"][0],
        value!({"type":"server_tool_use","id":"srvtoolu_knack_msg_1_0_toolu_1","name":"bash_code_execution","input":{"command":"sum"}})
    );
    assert_eq!(played.value()["content"][1]["type"], "bash_code_execution_tool_result");
    assert_eq!(played.value()["container"]["skills"][0]["skill_id"], "s");
}
