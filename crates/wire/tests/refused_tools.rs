//! Providers that refuse Knack's tools (docs/design/wire-formats.md#members-that-are-left-out).

mod support;

use knack_wire::drive::EndKind;
use knack_wire::{Format, Injection};
use support::*;

const REFUSED: &str = r#"{"error":{"message":"json mode cannot be combined with tool/function calling","type":"invalid_request_error","param":null,"code":null}}"#;
const ANSWER: &str = r#"{"as":"it came"}"#;

/// A tool of the client, in place of its wish for a stream.
const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"get_weather"}}],"stream":true"#;

/// Requests that demand a form of the answer, without tools.
const ASKS: [(Format, &str); 4] = [
    (
        Format::Chat,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"},"stream":true}"#,
    ),
    (
        Format::Responses,
        r#"{"model":"m","input":"x","text":{"format":{"type":"json_object"}},"store":false}"#,
    ),
    (
        Format::Messages,
        r#"{"model":"m","max_tokens":9,"messages":[],"output_config":{"format":{"type":"json_schema","schema":{}}}}"#,
    ),
    (
        Format::Gemini,
        r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"responseMimeType":"application/json"}}"#,
    ),
];

#[test]
fn a_request_goes_as_it_came_where_its_form_excludes_our_tools() {
    for (format, ask) in ASKS {
        for status in [400, 422] {
            for good in [json(ANSWER), sse(format!("data: {ANSWER}\n\n"))] {
                let passed = String::from_utf8(good.body.clone()).unwrap();
                let played = play(format, ask, &[error(status, REFUSED), good]);
                assert_eq!(played.sent.len(), 2, "{format:?}");
                assert!(played.sent_value(0).to_string().contains("skill_run"), "{format:?}");
                assert_eq!(played.sent[1], ask.as_bytes(), "{format:?}");
                assert_eq!((played.text(), played.end()), (passed, &EndKind::Passed), "{format:?}");
            }
        }
        // The second refusal is the client's.
        let played = play(format, ask, &[error(400, REFUSED), error(400, REFUSED)]);
        assert_eq!(
            (played.text().as_str(), played.end()),
            (REFUSED, &EndKind::Upstream(400))
        );
        assert_eq!(played.head.unwrap().status, 400);
    }
}

/// What the gateway adds for its loop alone may be refused first.
#[test]
fn a_member_is_left_out_before_the_tools_are() {
    let (format, ask) = ASKS[0];
    let options = r#"{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#;
    let played = play(format, ask, &[error(422, options), error(400, REFUSED), json(ANSWER)]);
    let has = |at: usize, key: &str| played.sent_value(at).get(key).is_some();
    assert_eq!((has(1, "stream_options"), has(1, "tools")), (false, true));
    assert_eq!(played.sent[2], ask.as_bytes());
}

/// The refusals of a model without tools, and of more tools than a provider takes.
#[test]
fn a_request_goes_as_it_came_where_the_model_takes_no_tools_or_not_so_many() {
    let none = r#"{"error":{"message":"registry.ollama.ai/library/gemma3 does not support tools","type":"api_error"}}"#;
    let many =
        r#"{"error":{"message":"Invalid 'tools': array too long.","param":"tools","code":"array_above_max_length"}}"#;
    let (format, ask) = ASKS[0];
    let free = ask.replace("json_object", "text");
    let own = free.replace(r#""stream":true"#, TOOLS);
    let flag = r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#;
    for (ask, status, refusal) in [
        (&free, 400, none),
        (&free, 404, none),
        (&free, 500, flag),
        (&own, 400, many),
    ] {
        let played = play(format, ask, &[error(status, refusal), json(ANSWER)]);
        assert_eq!((&*played.sent[1], &*played.text()), (ask.as_bytes(), ANSWER));
    }
    assert_eq!(play(format, &own, &[error(400, none)]).text(), none);
    // Any other failure is the client's to try again.
    let played = play(format, &free, &[error(500, "{}")]);
    assert_eq!((played.text().as_str(), played.end()), ("{}", &EndKind::Upstream(500)));
}

/// The refusal of a model without system texts, which the gateway alone sent.
#[test]
fn a_request_goes_as_it_came_where_the_model_takes_no_system_text() {
    let refusal = r#"{"error":{"code":400,"message":"Developer instruction is not enabled for models/gemma-3-27b-it","status":"INVALID_ARGUMENT"}}"#;
    let ask = r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#;
    let played = play(Format::Gemini, ask, &[error(400, refusal), json(ANSWER)]);
    assert_eq!((&*played.sent[1], &*played.text()), (ask.as_bytes(), ANSWER));
    let own =
        r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#;
    assert_eq!(play(Format::Gemini, own, &[error(400, refusal)]).text(), refusal);
}

#[test]
fn any_other_refusal_is_passed_as_it_came() {
    let schema =
        r#"{"error":{"message":"Invalid schema for response_format 'answer'","type":"invalid_request_error"}}"#;
    for (format, ask) in ASKS {
        let played = play(format, ask, &[error(400, schema)]);
        assert_eq!(
            (played.text().as_str(), played.end()),
            (schema, &EndKind::Upstream(400)),
            "{format:?}"
        );
    }
    let (format, ask) = ASKS[0];
    // The client knows of its own tools.
    let own = ask.replace(r#""stream":true"#, TOOLS);
    // Nothing demands a form, so this is no refusal of Knack.
    let free = ask.replace("json_object", "text");
    for ask in [own, free] {
        assert_eq!(play(format, &ask, &[error(400, REFUSED)]).text(), REFUSED);
    }
    // A skill that the request names is served or refused, and never left out.
    let of_container = Injection {
        own_skills: vec!["litellm:x".to_owned()],
        ..injection()
    };
    let named = Injection {
        is_named: true,
        ..injection()
    };
    for injection in [of_container, named] {
        let played = play_pieces(request(format, ask), injection, settings(), &[error(400, REFUSED)], 9);
        assert_eq!(played.text(), REFUSED);
    }
}
