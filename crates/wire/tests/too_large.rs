//! An answer beyond the bound of a turn ends with an error of its format that names the bound; it is not cut.

mod support;

use knack_wire::Format;
use knack_wire::drive::DriveSettings;
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
