//! Requests into which nothing is injected, since they have no place for a system text, and those that are refused instead.

mod support;

use knack_wire::Format;
use knack_wire::drive::Drive;
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

/// Some servers read a text or a fraction as the number that is meant.
#[test]
fn what_may_ask_for_several_answers_is_refused_while_tools_are_injected() {
    let refused = |format, body: &str| Drive::new(request(format, body), injection(), settings()).err();
    for (said, is_refused) in [
        ("null", false),
        ("1", false),
        ("1.0", false),
        ("1e0", false),
        ("2", true),
        ("2.0", true),
        ("1.5", true),
        ("\"2\"", true),
        ("\"1\"", true),
        ("-1", true),
        ("[2]", true),
    ] {
        let chat = format!(r#"{{"n":{said},"messages":[{{"role":"user","content":"x"}}]}}"#);
        let gemini = format!(r#"{{"contents":[],"generationConfig":{{"candidateCount":{said}}}}}"#);
        for (format, body, param) in [
            (Format::Chat, chat, "n"),
            (Format::Gemini, gemini, "generationConfig.candidateCount"),
        ] {
            let fault = refused(format, &body).map(|fault| (fault.status, fault.param.unwrap_or_default()));
            assert_eq!(fault, is_refused.then(|| (400, param.to_owned())), "{body}");
        }
    }
}
