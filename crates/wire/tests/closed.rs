//! Requests into which nothing is injected, since they have no place for a system text.

mod support;

use knack_wire::Format;
use support::*;

#[test]
fn a_system_of_another_type_and_a_chat_without_messages_close_the_request() {
    for (format, body, closed) in [
        (
            Format::Messages,
            r#"{"system":{"type":"text","text":"a"},"messages":[]}"#,
            Some("a system text of an unknown type"),
        ),
        (
            Format::Messages,
            r#"{"system":7,"messages":[]}"#,
            Some("a system text of an unknown type"),
        ),
        (Format::Messages, r#"{"system":[],"messages":[]}"#, None),
        (Format::Chat, r#"{"messages":[]}"#, Some("no messages")),
        (Format::Chat, "{}", Some("no messages")),
        (Format::Chat, r#"{"messages":[{"role":"user","content":"a"}]}"#, None),
    ] {
        assert_eq!(request(format, body).fields().unwrap().closed, closed, "{body}");
    }
}
