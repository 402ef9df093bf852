//! The loop's clock and bounds: keep-alives, silence, deadline, sizes, odd inputs (docs/design/conversation.md#what-is-streamed-when).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use knack_wire::drive::{
    AnswerHead, BodyKind, CallOutcome, Drive, DriveAction, DriveSettings, EndKind, ToolCall, UpstreamFailure,
};
use knack_wire::json::Edits;
use knack_wire::{CallKind, DriveInput, Format, Injection, ModelRoute, Request};
use proptest::prelude::*;
use support::*;

const CHAT: &str = r#"{"messages":[{"role":"user","content":"x"}],"stream":true}"#;
const GOOD: AnswerHead = AnswerHead {
    status: 200,
    stream: true,
    retry_after: None,
};
const CALLS: &str = concat!(
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"skill_run\",\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: [DONE]\n\n"
);

const RESPONSES_CALL: &str = concat!(
    "data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\"}}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"skill_run\",\"arguments\":\"{}\"}}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[]}}\n\n"
);
const MESSAGES_CALL: &str = concat!(
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"skill_run\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
);
const GEMINI_CALL: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"skill_run\"}}]},\"finishReason\":\"STOP\"}]}\r\n\r\n";

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn started(body: &str, settings: DriveSettings) -> Drive {
    let mut drive = Drive::new(request(Format::Chat, body), injection(), settings).unwrap();
    drive.start(Edits::new(), Vec::new(), at(0), &mut Vec::new());
    drive
}

fn fed(drive: &mut Drive, input: DriveInput, now: Duration) -> Vec<DriveAction> {
    let mut out = Vec::new();
    drive.feed(input, now, &mut out);
    out
}

fn client(out: &[DriveAction]) -> String {
    out.iter()
        .filter_map(|out| {
            if let DriveAction::ClientBytes(bytes) = out {
                std::str::from_utf8(bytes).ok()
            } else {
                None
            }
        })
        .collect()
}

fn running() -> (Drive, ToolCall) {
    let mut drive = started(CHAT, settings());
    fed(&mut drive, DriveInput::Head(GOOD), at(1));
    let out = fed(
        &mut drive,
        DriveInput::Body(Bytes::from_static(CALLS.as_bytes())),
        at(10),
    );
    let call = out.into_iter().find_map(|out| {
        if let DriveAction::Run(call) = out {
            Some(call)
        } else {
            None
        }
    });
    (drive, call.unwrap())
}

/// What a stream of each format says while a call of Knack runs.
#[test]
fn signs_of_life_have_the_formats_form() {
    for (format, stream, sign) in [
        (Format::Chat, CALLS, ": keepalive\n\n"),
        (Format::Responses, RESPONSES_CALL, ": keepalive\n\n"),
        (
            Format::Messages,
            MESSAGES_CALL,
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ),
        (Format::Gemini, GEMINI_CALL, "\r\n"),
    ] {
        let mut drive = Drive::new(request(format, "{}"), injection(), settings()).unwrap();
        drive.start(Edits::new(), Vec::new(), at(0), &mut Vec::new());
        fed(&mut drive, DriveInput::Head(GOOD), at(1));
        let mut out = fed(
            &mut drive,
            DriveInput::Body(Bytes::from_static(stream.as_bytes())),
            at(1),
        );
        if format == Format::Gemini {
            out.extend(fed(&mut drive, DriveInput::End, at(1)));
        }
        assert!(out.iter().any(|one| matches!(one, DriveAction::Run(_))), "{format:?}");
        assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(4))), sign, "{format:?}");
    }
}

#[test]
fn keep_alives_come_after_two_seconds_and_then_every_ten() {
    let (mut drive, call) = running();
    assert_eq!(drive.wake(), Some(at(12)));
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(11))), "");
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(12))), ": keepalive\n\n");
    assert_eq!(drive.wake(), Some(at(22)));
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(21))), "");
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(45))), ": keepalive\n\n");
    assert_eq!(drive.wake(), Some(at(52)));
    // They go on while the next round is awaited, and end with its first text.
    let outcome = CallOutcome {
        token: call.token,
        text: "r".into(),
        ..CallOutcome::default()
    };
    assert!(matches!(
        fed(&mut drive, DriveInput::Result(outcome), at(46))[..],
        [DriveAction::Send { round: 2, .. }]
    ));
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(52))), ": keepalive\n\n");
    fed(&mut drive, DriveInput::Head(GOOD), at(53));
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";
    fed(
        &mut drive,
        DriveInput::Body(Bytes::from_static(text.as_bytes())),
        at(54),
    );
    assert_eq!(client(&fed(&mut drive, DriveInput::Tick, at(70))), "");
}

/// A stream may wait for minutes, and ten thousand of them at once: the injected texts, which are most of a small request, are
/// not kept for each. A second round begins with the bytes of the first.
#[test]
fn the_body_of_round_one_is_let_go_when_its_answer_begins_and_is_the_beginning_of_round_two() {
    let mut drive = Drive::new(request(Format::Chat, CHAT), injection(), settings()).unwrap();
    let mut out = Vec::new();
    drive.start(Edits::new(), Vec::new(), at(0), &mut out);
    let Some(DriveAction::Send { body: first, .. }) = out.pop() else {
        panic!("nothing is sent")
    };
    assert!(!first.is_unique(), "it may have to be sent in another form");
    fed(&mut drive, DriveInput::Head(GOOD), at(1));
    assert!(first.is_unique());
    let calls = DriveInput::Body(Bytes::from_static(CALLS.as_bytes()));
    let out = fed(&mut drive, calls, at(2));
    let token = out.iter().find_map(|action| match action {
        DriveAction::Run(call) => Some(call.token),
        _ => None,
    });
    let outcome = CallOutcome {
        token: token.unwrap(),
        text: "r".into(),
        ..CallOutcome::default()
    };
    let out = fed(&mut drive, DriveInput::Result(outcome), at(3));
    let [DriveAction::Send { body: second, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    let question = br#"{"role":"user","content":"x"}"#;
    let end = first
        .windows(question.len())
        .position(|window| window == question)
        .unwrap()
        + question.len();
    assert_eq!(second[..end], first[..end]);
}

/// An upstream says that it lives by comments, and items of reasoning are held until it is known whose they are: neither is shown.
#[test]
fn what_comes_and_is_not_shown_gives_signs_of_life() {
    let held = concat!(
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\"}}\n\n",
        "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,",
        "\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[]}}\n\n",
    );
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";
    for (format, body, first, then) in [
        (Format::Chat, CHAT, text, ": OPENROUTER PROCESSING\n\n"),
        (Format::Responses, "{}", held, ": alive\n\n"),
    ] {
        let mut drive = Drive::new(request(format, body), injection(), settings()).unwrap();
        drive.start(Edits::new(), Vec::new(), at(0), &mut Vec::new());
        fed(&mut drive, DriveInput::Head(GOOD), at(1));
        for (bytes, now) in [(first, 1), (then, 20)] {
            fed(
                &mut drive,
                DriveInput::Body(Bytes::from_static(bytes.as_bytes())),
                at(now),
            );
        }
        assert_eq!(
            client(&fed(&mut drive, DriveInput::Tick, at(22))),
            ": keepalive\n\n",
            "{format:?}"
        );
    }
}

#[test]
fn a_silent_stream_ends_after_five_minutes() {
    let mut drive = started(CHAT, settings());
    assert_eq!(
        client(&fed(&mut drive, DriveInput::Tick, at(200))),
        "",
        "waiting for a head is bounded by the deadline only"
    );
    fed(&mut drive, DriveInput::Head(GOOD), at(200));
    assert_eq!(drive.wake(), Some(at(500)));
    let out = fed(&mut drive, DriveInput::Tick, at(500));
    assert!(matches!(&out[0], DriveAction::ClientHead(head) if head.status == 504 && head.body == BodyKind::Json));
    assert!(matches!(out.last(), Some(DriveAction::Finish(summary)) if matches!(summary.end, EndKind::Fault(_))));
}

#[test]
fn the_deadline_ends_a_running_loop_well_formed() {
    let (mut drive, call) = running();
    let out = fed(&mut drive, DriveInput::Tick, at(540));
    assert!(client(&out).contains("\"type\":\"server_error\""));
    assert!(drive.finished());
    assert!(
        fed(
            &mut drive,
            DriveInput::Result(CallOutcome {
                token: call.token,
                ..CallOutcome::default()
            }),
            at(541)
        )
        .is_empty()
    );
    assert_eq!(drive.wake(), None);
    // Not streamed: a status, and no automatic retry, whether code has run or not: it would take as long again.
    let body = CHAT.replace(",\"stream\":true", "");
    let mut drive = started(&body, settings());
    fed(
        &mut drive,
        DriveInput::Head(AnswerHead { stream: false, ..GOOD }),
        at(1),
    );
    let turn = r#"{"id":"c","choices":[{"index":0,"message":{"tool_calls":[{"id":"a","function":{"name":"skill_run","arguments":""}}]},"finish_reason":"tool_calls"}]}"#;
    fed(&mut drive, DriveInput::Body(Bytes::from_static(turn.as_bytes())), at(1));
    assert!(matches!(
        fed(&mut drive, DriveInput::End, at(1))[..],
        [DriveAction::Run(_)]
    ));
    let out = fed(&mut drive, DriveInput::Tick, at(600));
    assert!(
        matches!(&out[0], DriveAction::ClientHead(head) if head.status == 504 && head.no_retry && !head.upstream_headers)
    );
    let mut drive = started(&body, settings());
    let out = fed(&mut drive, DriveInput::Tick, at(600));
    assert!(matches!(&out[0], DriveAction::ClientHead(head) if head.status == 504 && head.no_retry));
}

#[test]
fn no_connection_is_a_502_in_round_one_and_retried_later() {
    let mut drive = started(CHAT, settings());
    let out = fed(&mut drive, DriveInput::Failed(UpstreamFailure::Connect), at(1));
    assert!(matches!(&out[0], DriveAction::ClientHead(head) if head.status == 502));
    let (mut drive, call) = running();
    fed(
        &mut drive,
        DriveInput::Result(CallOutcome {
            token: call.token,
            ..CallOutcome::default()
        }),
        at(11),
    );
    for _ in 0..2 {
        assert!(
            matches!(fed(&mut drive, DriveInput::Failed(UpstreamFailure::Connect), at(12))[..], [DriveAction::Send { round: 2, delay, .. }] if !delay.is_zero())
        );
    }
    assert!(
        client(&fed(&mut drive, DriveInput::Failed(UpstreamFailure::Connect), at(13)))
            .contains("The provider could not be reached; the gateway's log has the cause.")
    );
    // A retry-after that is too long is not waited for.
    let (mut drive, call) = running();
    fed(
        &mut drive,
        DriveInput::Result(CallOutcome {
            token: call.token,
            ..CallOutcome::default()
        }),
        at(11),
    );
    let head = AnswerHead {
        status: 429,
        stream: false,
        retry_after: Some(at(11)),
    };
    assert!(fed(&mut drive, DriveInput::Head(head), at(12)).is_empty());
    assert!(client(&fed(&mut drive, DriveInput::End, at(12))).contains("429"));
}

#[test]
fn a_turn_is_bounded() {
    let mut drive = started(CHAT, settings());
    fed(&mut drive, DriveInput::Head(GOOD), at(1));
    let piece = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(1 << 20)
    );
    let mut out = Vec::new();
    for _ in 0..9 {
        out.extend(fed(&mut drive, DriveInput::Body(Bytes::from(piece.clone())), at(1)));
    }
    assert!(client(&out).contains("larger than"));
    assert!(drive.finished());
    let mut drive = started(CHAT, settings());
    fed(&mut drive, DriveInput::Head(GOOD), at(1));
    let out = fed(&mut drive, DriveInput::Body(Bytes::from(vec![b'x'; 9 << 20])), at(1));
    assert!(matches!(out.last(), Some(DriveAction::Finish(_))));
}

#[test]
fn changes_of_the_conversation_are_applied_before_anything_is_sent() {
    let request = request(Format::Chat, r#"{"messages":[{"role":"user","content":"x"}]}"#);
    let place = request.conversation()[0].end;
    let mut drive = Drive::new(request, injection(), settings()).unwrap();
    let mut edits = Edits::new();
    edits.insert(place, ",{\"role\":\"user\",\"content\":\"y\"}");
    let mut out = Vec::new();
    drive.start(edits, Vec::new(), at(0), &mut out);
    assert!(
        matches!(&out[..], [DriveAction::Send { body, .. }] if body.windows(12).any(|window| window == b"\"content\":\"y"))
    );
}

#[test]
fn counts_get_the_injection_and_their_answer_passes() {
    let route = ModelRoute::new(Format::Messages, CallKind::Count);
    let request = Request::parse(route, Bytes::from_static(br#"{"messages":[]}"#)).unwrap();
    let played = play_pieces(request, injection(), settings(), &[json("{\"input_tokens\": 5}")], 3);
    assert_eq!(played.sent_value(0)["tools"][0]["name"], "skill_run");
    assert_eq!(played.text(), "{\"input_tokens\": 5}");
}

#[test]
fn calls_beyond_the_bound_of_a_turn_are_answered_without_a_run() {
    let calls: Vec<String> = (0..5)
        .map(|id| format!(r#"{{"id":"c{id}","function":{{"name":"skill_run","arguments":"{{}}"}}}}"#))
        .collect();
    let first = format!(
        r#"{{"id":"c","choices":[{{"message":{{"tool_calls":[{}]}},"finish_reason":"tool_calls"}}]}}"#,
        calls.join(",")
    );
    let settings = DriveSettings {
        max_calls: 2,
        calls_text: "fewer please",
        ..settings()
    };
    let last = r#"{"id":"d","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    let played = play_pieces(
        request(Format::Chat, CHAT),
        injection(),
        settings,
        &[json(&first), json(last)],
        100,
    );
    assert_eq!(played.calls.len(), 2);
    let sent = played.sent_value(1);
    let results: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(results.len(), 5, "each call is answered");
    assert!(
        results[2..].iter().all(|text| text.contains("fewer please")),
        "{results:?}"
    );
}

#[test]
fn a_caller_that_cannot_go_on_ends_the_loop_with_its_error() {
    let mut drive = started(CHAT, settings());
    let refused = DriveInput::Refused(knack_wire::Fault::new(503, "no memory"));
    let out = fed(&mut drive, refused, at(1));
    assert!(matches!(&out[0], DriveAction::ClientHead(head) if head.status == 503));
    assert!(matches!(out.last(), Some(DriveAction::Finish(_))));
    assert!(drive.finished());
}

#[test]
fn parallel_calls_run_at_once_and_answer_in_order() {
    let call = |id: &str| format!(r#"{{"id":"{id}","function":{{"name":"skill_run","arguments":"{{}}"}}}}"#);
    let first = format!(
        r#"{{"id":"c","choices":[{{"message":{{"tool_calls":[{},{},{}]}},"finish_reason":"tool_calls"}}]}}"#,
        call("a"),
        call("b"),
        call("c")
    );
    let last = r#"{"id":"d","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    let request = r#"{"messages":[{"role":"user","content":"go"}]}"#;
    let played = play(Format::Chat, request, &[json(&first), json(last)]);
    let ids: Vec<String> = played.sent_value(1)["messages"].as_array().unwrap()[3..]
        .iter()
        .map(|message| message["tool_call_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
}

#[test]
fn duplicate_members_and_bad_bodies_are_refused() {
    let route = |format| ModelRoute::new(format, CallKind::Generate);
    for body in [
        r#"{"messages":[],"messages":[]}"#,
        r#"{"tools":[],"t\u006fols":[]}"#,
        r#"{"system":"","system":""}"#,
        "[]",
        "{",
        "{}x",
        "\u{1}",
    ] {
        let fault = Request::parse(route(Format::Messages), Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
        assert_eq!(fault.status, 400, "{body}");
        let value: serde_json::Value = serde_json::from_slice(&fault.body(Format::Messages)).unwrap();
        assert_eq!(value["error"]["type"], "invalid_request_error");
    }
    assert!(Request::parse(route(Format::Chat), Bytes::from_static(b"{\"a\":\"\xff\"}")).is_err());
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    assert!(Request::parse(route(Format::Chat), Bytes::from(deep)).is_err());
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::Chat),
        Just(Format::Messages),
        Just(Format::Responses),
        Just(Format::Gemini)
    ]
}

/// Bytes that look like what upstreams send, torn and mixed.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "chat-sse-tools",
        "chat-sse-loop",
        "msg-sse-tools",
        "msg-sse-loop",
        "resp-sse-tools",
        "resp-sse-loop",
        "gem-sse-tools",
        "gem-sse-loop",
    ];
    let pieces: Vec<String> = names
        .iter()
        .flat_map(|name| {
            fixture(&format!("{name}.events"))
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let line = prop::sample::select(pieces)
        .prop_map(|line| format!("data: {}\n\n", line.replace("get_weather", "skill_run")).into_bytes());
    let torn = (line.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut line, at, byte)| {
        let at = at.index(line.len());
        line[at] = byte;
        line
    });
    prop::collection::vec(
        prop_oneof![4 => line, 2 => torn, 1 => prop::collection::vec(any::<u8>(), 0..20)],
        0..12,
    )
    .prop_map(|lines| lines.concat())
}

/// Whether the bytes have the grammar of JSON; numbers of any size and lone surrogates have it.
fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// An upstream may write a control character into any string; what goes to the next round is JSON all the same.
#[test]
fn a_control_character_of_an_answer_is_in_no_request() {
    for (format, stream) in [
        (Format::Chat, CALLS),
        (Format::Messages, MESSAGES_CALL),
        (Format::Responses, RESPONSES_CALL),
        (Format::Gemini, GEMINI_CALL),
    ] {
        for byte in 0..stream.len() {
            let mut answer = stream.as_bytes().to_vec();
            answer[byte] = 0x19;
            let mut drive = Drive::new(request(format, CHAT), injection(), settings()).unwrap();
            let mut out = Vec::new();
            drive.start(Edits::new(), Vec::new(), at(0), &mut out);
            for input in [
                DriveInput::Head(GOOD),
                DriveInput::Body(answer.into()),
                DriveInput::End,
                DriveInput::Result(CallOutcome {
                    text: "r".into(),
                    ..CallOutcome::default()
                }),
            ] {
                drive.feed(input, at(1), &mut out);
            }
            for action in &out {
                if let DriveAction::Send { body, .. } = action {
                    assert!(
                        is_json(body),
                        "{format:?}, byte {byte}: {}",
                        String::from_utf8_lossy(body)
                    );
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_of_an_upstream_make_the_loop_panic(format in formats(), bytes in soup(), stream in any::<bool>(), piece in 1..50usize, native in any::<bool>()) {
        let mut drive = Drive::new(request(format, CHAT), injection(), DriveSettings { native, ..settings() }).unwrap();
        let mut out = Vec::new();
        drive.start(Edits::new(), Vec::new(), at(0), &mut out);
        for _ in 0..3 {
            drive.feed(DriveInput::Head(AnswerHead { stream, ..GOOD }), at(1), &mut out);
            for piece in bytes.chunks(piece) {
                drive.feed(DriveInput::Body(Bytes::copy_from_slice(piece)), at(1), &mut out);
            }
            drive.feed(DriveInput::End, at(1), &mut out);
            for token in 0..4 {
                drive.feed(DriveInput::Result(CallOutcome { token, text: "r".into(), ..CallOutcome::default() }), at(2), &mut out);
            }
            drive.feed(DriveInput::Tick, at(30), &mut out);
        }
        let finishes = out.iter().filter(|out| matches!(out, DriveAction::Finish(_))).count();
        let heads = out.iter().filter(|out| matches!(out, DriveAction::ClientHead(_))).count();
        prop_assert!(finishes <= 1 && heads <= 1);
        for one in &out {
            if let DriveAction::Send { body, .. } = one {
                prop_assert!(is_json(body));
            }
        }
    }

    #[test]
    fn no_bytes_of_a_client_make_a_request_panic(format in formats(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let route = ModelRoute::new(format, CallKind::Generate);
        if let Ok(request) = Request::parse(route, Bytes::from(bytes)) {
            let _ = (request.fields(), request.messages(), request.attachments(), request.tools_json().len());
            let _ = request.apply(&injection(), Edits::new());
        }
    }

    #[test]
    fn an_injected_body_is_json_and_keeps_every_member(
        format in formats(),
        system in prop_oneof![Just("null"), Just("\"a\""), Just("[]"), Just("[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}}]"), Just("7")],
        tools in prop_oneof![Just("null"), Just("[]"), Just("[{\"name\":\"w\"}]"), Just("{}"), Just("[ 1 , 2 ]")],
        messages in prop_oneof![Just("[]"), Just("[ ]"), Just("null"), Just("[{\"role\":\"system\",\"content\":null}]"), Just("[{\"role\":\"system\",\"content\":[]}]"), Just("[1]")],
        extra in "[a-z]{1,5}",
    ) {
        let body = format!("{{\"{extra}x\":1.50,\"system\":{system},\"tools\":{tools} ,\n\"messages\":{messages},\"stream\":true}}");
        let route = ModelRoute::new(format, CallKind::Generate);
        let request = Request::parse(route, Bytes::from(body.clone())).unwrap();
        let sent = request.apply(&injection(), Edits::new());
        let value: serde_json::Value = serde_json::from_slice(&sent).unwrap();
        for member in request.top() {
            prop_assert!(value.get(std::str::from_utf8(member.key.of(body.as_bytes())).unwrap()).is_some());
        }
        prop_assert_eq!(&request.apply(&Injection::default(), Edits::new())[..], body.as_bytes());
    }
}
