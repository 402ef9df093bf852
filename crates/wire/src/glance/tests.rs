use super::*;

fn facts(id: &str, model: &str, reasons: &[&str], usage: [Option<u64>; 5]) -> AnswerFacts {
    let [input, output, cache_read, cache_write, reasoning] = usage;
    AnswerFacts {
        id: Some(id.to_owned()),
        model: Some(model.to_owned()),
        finish_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        error: None,
        usage: Usage {
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
        },
    }
}

/// Read whole, byte by byte, and in pieces of seven.
fn read(format: Format, stream: bool, body: &str) -> AnswerFacts {
    let of_pieces = |size: usize| {
        let mut glance = Glance::new(format, stream);
        for piece in body.as_bytes().chunks(size) {
            glance.push(piece);
        }
        glance.finish()
    };
    let whole = of_pieces(body.len().max(1));
    assert_eq!(of_pieces(1), whole, "{body}");
    assert_eq!(of_pieces(7), whole, "{body}");
    whole
}

#[test]
fn whole_answers_of_each_format_give_id_model_reason_and_usage() {
    let cases = [
        (
            Format::Chat,
            r#"{"id":"c1","model":"gpt-x-1","choices":[{"finish_reason":"stop"},{"finish_reason":"length"}],
                "usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2},
                "completion_tokens_details":{"reasoning_tokens":1}}}"#,
            facts(
                "c1",
                "gpt-x-1",
                &["stop", "length"],
                [Some(7), Some(3), Some(2), None, Some(1)],
            ),
        ),
        (
            Format::Messages,
            r#"{"id":"msg_1","type":"message","model":"claude-x","stop_reason":"tool_use",
                "usage":{"input_tokens":5,"output_tokens":4,"cache_read_input_tokens":100,"cache_creation_input_tokens":20}}"#,
            facts(
                "msg_1",
                "claude-x",
                &["tool_use"],
                [Some(125), Some(4), Some(100), Some(20), None],
            ),
        ),
        (
            Format::Responses,
            r#"{"id":"resp_1","model":"gpt-y","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},
                "error":null,"output":[],"usage":{"input_tokens":9,"output_tokens":8,
                "input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":6}}}"#,
            facts(
                "resp_1",
                "gpt-y",
                &["max_output_tokens"],
                [Some(9), Some(8), Some(0), None, Some(6)],
            ),
        ),
        (
            Format::Gemini,
            r#"{"responseId":"r1","modelVersion":"gemini-z","candidates":[{"finishReason":"STOP"}],
                "usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":2,"thoughtsTokenCount":5,"cachedContentTokenCount":4}}"#,
            facts("r1", "gemini-z", &["STOP"], [Some(11), Some(7), Some(4), None, Some(5)]),
        ),
    ];
    for (format, body, expected) in cases {
        assert_eq!(read(format, false, body), expected, "{format:?}");
    }
}

#[test]
fn usage_of_chat_is_read_where_single_providers_have_it() {
    let usage = r#"{"prompt_tokens":7,"completion_tokens":3}"#;
    let chunks = [
        format!(r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop"}}],"x_groq":{{"usage":{usage}}}}}"#),
        format!(
            r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop","usage":{usage}}}],"x_groq":{{"id":"r"}}}}"#
        ),
        format!(
            r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop","usage":{{"prompt_tokens":1}}}}],"usage":{usage}}}"#
        ),
        format!(r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop","usage":{usage}}}],"usage":null}}"#),
    ];
    for chunk in chunks {
        assert_eq!(
            read(Format::Chat, true, &format!("data: {chunk}\n\n")),
            facts("c", "m", &["stop"], [Some(7), Some(3), None, None, None]),
            "{chunk}"
        );
    }
}

#[test]
fn streams_of_each_format_give_the_same() {
    let cases = [
        (
            Format::Chat,
            "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{},\"finish_reason\":null}],\"usage\":null}\n\n\
             data: {\"id\":\"c1\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
             data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
            facts("c1", "m", &["stop"], [Some(7), Some(3), None, None, None]),
        ),
        (
            Format::Messages,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"stop_reason\":null,\
             \"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\n\
             event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n",
            facts("msg_1", "m", &["end_turn"], [Some(15), Some(9), Some(10), None, None]),
        ),
        (
            Format::Responses,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"status\":\"in_progress\"}}\n\n\
             event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n\
             event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"status\":\"completed\",\
             \"usage\":{\"input_tokens\":2,\"output_tokens\":1}}}\n\n",
            facts("resp_1", "m", &["completed"], [Some(2), Some(1), None, None, None]),
        ),
        (
            Format::Gemini,
            "data: {\"responseId\":\"r\",\"modelVersion\":\"m\",\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":1}}\r\n\r\n\
             data: {\"responseId\":\"r\",\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":6}}\r\n\r\n",
            facts("r", "m", &["STOP"], [Some(4), Some(6), None, None, None]),
        ),
    ];
    for (format, body, expected) in cases {
        assert_eq!(read(format, true, body), expected, "{format:?}");
    }
}

#[test]
fn errors_inside_a_good_answer_are_reported_by_their_type() {
    for (format, stream, body, expected) in [
        (
            Format::Messages,
            true,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n",
            Some("overloaded_error"),
        ),
        (
            Format::Chat,
            true,
            "data: {\"error\":{\"code\":\"server_error\",\"type\":null}}\n\n",
            Some("server_error"),
        ),
        (
            Format::Gemini,
            false,
            r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#,
            Some("UNAVAILABLE"),
        ),
        (Format::Chat, false, r#"{"error":{}}"#, Some("error")),
        (
            Format::Responses,
            true,
            "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\"}}}\n\n",
            Some("rate_limit_exceeded"),
        ),
        (Format::Chat, false, r#"{"error":null}"#, None),
    ] {
        assert_eq!(read(format, stream, body).error.as_deref(), expected, "{body}");
    }
}

#[test]
fn what_cannot_be_read_is_absent() {
    for format in [Format::Chat, Format::Messages, Format::Responses, Format::Gemini] {
        for (stream, body) in [
            (false, ""),
            (false, "<html>"),
            (false, "[1]"),
            (
                false,
                "{\"id\":1,\"model\":[],\"choices\":{},\"usage\":3,\"candidates\":4,\"usageMetadata\":[],\"response\":\"x\"}",
            ),
            (true, "data: {\"id\":\n\ndata: 7\n\n: hello\n\n"),
        ] {
            assert_eq!(read(format, stream, body), AnswerFacts::default(), "{format:?} {body}");
        }
    }
}

#[test]
fn texts_and_bodies_are_bounded() {
    let long = format!(r#"{{"id":"{}","model":"m"}}"#, "é".repeat(MAX_TEXT));
    let read = read(Format::Chat, false, &long);
    assert_eq!(read.id.map(|id| id.len()), Some(MAX_TEXT));
    let mut glance = Glance::new(Format::Chat, false);
    glance.push(b"{\"id\":\"a\"");
    glance.push(&vec![b' '; MAX_BODY]);
    glance.push(b"}");
    assert_eq!(glance.finish(), AnswerFacts::default());
}

#[test]
fn limit_and_temperature_are_read_from_requests() {
    for (format, body, max_tokens, temperature) in [
        (
            Format::Chat,
            r#"{"max_tokens":5,"max_completion_tokens":6,"temperature":0.5}"#,
            Some(6),
            Some(0.5),
        ),
        (Format::Chat, r#"{"max_tokens":5}"#, Some(5), None),
        (
            Format::Messages,
            r#"{"max_tokens":1024,"temperature":1}"#,
            Some(1024),
            Some(1.0),
        ),
        (
            Format::Responses,
            r#"{"max_output_tokens":null,"temperature":"hot"}"#,
            None,
            None,
        ),
        (
            Format::Gemini,
            r#"{"generationConfig":{"maxOutputTokens":9,"temperature":1e999}}"#,
            Some(9),
            None,
        ),
        (Format::Chat, "garbage", None, None),
    ] {
        let expected = RequestFacts {
            max_tokens,
            temperature,
        };
        assert_eq!(request(format, body.as_bytes()), expected, "{body}");
    }
}
