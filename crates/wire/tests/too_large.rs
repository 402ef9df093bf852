//! An answer beyond the bound of a turn ends with an error of its format that names the bound; it is not cut. A request with far too
//! many values is refused before an index of it takes many times its bytes.

mod support;

use knack_wire::drive::DriveSettings;
use knack_wire::request::Request;
use knack_wire::{CallKind, Format, ModelRoute};
use serde_json::Value;
use support::*;

const ROWS: [(Format, &str, &str); 4] = [
    (
        Format::Chat,
        r#"{"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"choices":[{"message":{"content":"TEXT"}}]}"#,
    ),
    (
        Format::Messages,
        r#"{"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"content":[{"type":"text","text":"TEXT"}]}"#,
    ),
    (
        Format::Responses,
        r#"{"input":[{"role":"user","content":"x"}]}"#,
        r#"{"output":[{"type":"message","content":"TEXT"}]}"#,
    ),
    (
        Format::Gemini,
        r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"TEXT"}]}}]}"#,
    ),
];

/// An upstream that sends what no model says may not keep a thread of the gateway: what is compared with all that came before it is bounded.
#[test]
fn an_event_of_far_too_many_parts_is_an_error_within_seconds() {
    let many = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<Vec<_>>().join(",");
    let members = many(150_000, &|at| format!("\"{at:x}\":0"));
    let calls = many(60_000, &|at| {
        format!(r#"{{"index":{at},"id":"c{at}","function":{{"name":"f"}}}}"#)
    });
    let indexed = many(150_000, &|at| format!(r#"{{"index":{at}}}"#));
    let parts = many(200_000, &|at| format!(r#"{{"text":"{}"}}"#, at % 10));
    let chat = |delta: &str| format!(r#"data: {{"choices":[{{"index":0,"delta":{{{delta}}}}}]}}"#);
    let nested = chat(&format!(r#""content":"a","x":{{{members}}}"#));
    let list = chat(&format!(r#""content":"a","x":[{indexed}]"#));
    for (row, events, problem) in [
        (0, chat(&members), "more than 256 members"),
        (0, chat(&format!(r#""tool_calls":[{calls}]"#)), "more than 1024 calls"),
        (
            0,
            format!("{nested}\n\n{nested}"),
            "ended before its answer was complete",
        ),
        (0, format!("{list}\n\n{list}"), "ended before its answer was complete"),
        (
            3,
            format!(r#"data: {{"candidates":[{{"content":{{"parts":[{parts}]}}}}]}}"#),
            "more than 4096 parts",
        ),
    ] {
        let (format, body, _) = ROWS[row];
        let began = std::time::Instant::now();
        let answer = sse(format!("{events}\n\n"));
        let played = play_pieces(request(format, body), injection(), settings(), &[answer], 1 << 20);
        // Far above what an unoptimised build needs; comparing all with all takes minutes.
        assert!(began.elapsed().as_secs() < 60, "{problem}: {:?}", began.elapsed());
        assert!(played.text().contains(problem), "{problem}: {:.300}", played.text());
    }
}

#[test]
fn an_answer_beyond_the_bound_is_an_error_of_every_format() {
    let named = DriveSettings {
        request_id: Some("req_1".to_owned()),
        ..settings()
    };
    let long = "x".repeat(9 << 20);
    for (format, body, answer) in ROWS {
        for stream in [false, true] {
            let answer = answer.replace("TEXT", &long);
            let answer = if stream {
                sse(format!("data: {answer}\n\n"))
            } else {
                json(&answer)
            };
            let played = play_pieces(request(format, body), injection(), named.clone(), &[answer], 1 << 20);
            let error: Value = serde_json::from_str(&played.text()).unwrap();
            let said = error["error"]["message"].as_str().unwrap();
            let expected = if stream {
                "is too large"
            } else {
                "is larger than 8388608 bytes"
            };
            assert!(said.contains(expected), "{format:?}, stream {stream}: {said}");
            let id = &error["request_id"];
            assert_eq!(id == "req_1", format == Format::Messages, "{format:?}: {id}");
            assert_eq!(played.head.unwrap().status, 502, "{format:?}, stream {stream}");
        }
    }
}

/// The refusal of a request, or its top-level members.
fn parsed(body: String) -> Result<usize, String> {
    let chat = ModelRoute::new(Format::Chat, CallKind::Generate);
    let request = Request::parse(chat, body.into()).map_err(|fault| format!("{} {}", fault.status, fault.message))?;
    Ok(request.top().len())
}

#[test]
fn a_request_of_far_too_many_values_is_refused() {
    let members = |count: usize| format!("{{{}\"messages\":[]}}", "\"\":0,".repeat(count));
    let messages = |count: usize| format!("{{\"messages\":[{}{{}}],\"x\":\"knack_\"}}", "{},".repeat(count - 1));
    let of_message = |count: usize| format!("{{\"messages\":[{{\"content\":[{}0]}}]}}", "0,".repeat(count));
    let values = "400 The request body has more than 1000000 values; send large data as text.";
    let entries = "400 \"messages\" has more than 100000 entries; send fewer.";
    for (body, expected) in [
        (members(6_000_000), Err(values)),
        (members(1_000), Ok(1_001)),
        (messages(10_000_000), Err(values)),
        (messages(100_001), Err(entries)),
        (messages(100_000), Ok(2)),
        (of_message(1_000_001), Err(values)),
        (of_message(200_000), Ok(1)),
        // Text, also with quotes in it, is one value.
        (
            format!("{{\"messages\":[{{\"content\":\"{}\"}}]}}", "\\\",".repeat(2_000_000)),
            Ok(1),
        ),
    ] {
        let shown: String = body.chars().take(60).collect();
        assert_eq!(parsed(body), expected.map_err(str::to_owned), "{shown}");
    }
}
