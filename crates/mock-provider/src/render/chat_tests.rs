use super::*;
use crate::script::ChatQuirks;

fn completion(pieces: Vec<Piece>) -> Completion {
    let stop = if pieces.iter().any(|piece| matches!(piece, Piece::Call { .. })) {
        "tool_calls"
    } else {
        "stop"
    };
    Completion {
        id: "chatcmpl-1".into(),
        model: "m".into(),
        created: 5,
        pieces,
        stop: stop.into(),
        usage: Usage {
            input: 10,
            output: 4,
            cache_read: 2,
            cache_write: 0,
            thinking: 1,
        },
        extra: Map::from_iter([("mood".to_owned(), json!("good"))]),
    }
}

fn call(id: &str) -> Piece {
    Piece::Call {
        id: id.into(),
        name: "f".into(),
        arguments: "{\"city\":\"Oslo\"}".into(),
    }
}

fn chunks(completion: &Completion, delivery: &Delivery, options: StreamOptions) -> Vec<Value> {
    let mut events = events(completion, delivery, options);
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

const WITH_USAGE: StreamOptions = StreamOptions {
    usage: true,
    obfuscation: true,
};

#[test]
fn a_body_has_text_calls_extra_members_and_summed_tokens() {
    let body = body(&completion(vec![
        Piece::Thinking {
            text: "hm".into(),
            signature: "s".into(),
        },
        Piece::Text("Both.".into()),
        call("call_a"),
    ]));
    let message = &body["choices"][0]["message"];
    assert_eq!(message["content"], "Both.");
    assert_eq!(message["reasoning_content"], "hm");
    assert_eq!(message["mood"], "good");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Oslo\"}");
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(body["usage"]["total_tokens"], 16);
    let only_calls = super::body(&completion(vec![call("call_a")]));
    assert!(only_calls["choices"][0]["message"]["content"].is_null());
}

#[test]
fn a_stream_starts_once_ends_once_and_adds_up() {
    let chunks = chunks(
        &completion(vec![
            Piece::Text("Zürich 🎈 is fine.".into()),
            call("call_a"),
            call("call_b"),
        ]),
        &Delivery {
            piece_chars: 3,
            ..Delivery::default()
        },
        WITH_USAGE,
    );
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert_eq!(deltas.iter().filter(|delta| delta["role"] == "assistant").count(), 1);
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "Zürich 🎈 is fine.");
    let arguments: String = deltas
        .iter()
        .map(|delta| &delta["tool_calls"][0])
        .filter(|call| call["index"] == 1)
        .filter_map(|call| call["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, "{\"city\":\"Oslo\"}");
    assert_eq!(
        chunks
            .iter()
            .filter(|chunk| chunk["choices"][0]["finish_reason"].is_string())
            .count(),
        1
    );
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 16);
    assert!(
        chunks[..chunks.len() - 1]
            .iter()
            .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
    );
}

#[test]
fn usage_and_obfuscation_come_only_if_asked_for() {
    let answer = completion(vec![Piece::Text("a".into())]);
    let plain = chunks(&answer, &Delivery::default(), StreamOptions::of(&json!({})));
    assert!(
        plain
            .iter()
            .all(|chunk| chunk.get("usage").is_none() && chunk.get("obfuscation").is_none())
    );
    let noisy = Delivery {
        chat: ChatQuirks {
            obfuscation: true,
            ..ChatQuirks::default()
        },
        ..Delivery::default()
    };
    assert!(
        chunks(&answer, &noisy, WITH_USAGE)
            .iter()
            .all(|chunk| chunk.get("obfuscation").is_some())
    );
    let off = StreamOptions::of(&json!({"stream_options": {"include_obfuscation": false}}));
    assert!(
        chunks(&answer, &noisy, off)
            .iter()
            .all(|chunk| chunk.get("obfuscation").is_none())
    );
}

#[test]
fn the_quirks_of_compatible_servers_can_be_asked_for() {
    let answer = completion(vec![call("call_a"), call("call_b")]);
    let with = |chat: ChatQuirks| {
        chunks(
            &answer,
            &Delivery {
                chat,
                ..Delivery::default()
            },
            WITH_USAGE,
        )
    };
    let calls_of = |chunk: &Value| {
        chunk["choices"][0]["delta"]["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };

    let whole = with(ChatQuirks {
        whole_calls: true,
        ..ChatQuirks::default()
    });
    let elements: Vec<Value> = whole.iter().flat_map(calls_of).collect();
    assert_eq!(elements.len(), 2);
    assert_eq!(elements[1]["index"], 1);

    let in_one = with(ChatQuirks {
        calls_in_one_chunk: true,
        ..ChatQuirks::default()
    });
    assert_eq!(in_one.iter().map(|chunk| calls_of(chunk).len()).max(), Some(2));

    let no_index = with(ChatQuirks {
        no_index: true,
        ..ChatQuirks::default()
    });
    let elements: Vec<Value> = no_index.iter().flat_map(calls_of).collect();
    assert!(elements.len() == 2 && elements.iter().all(|call| call.get("index").is_none()));

    let stop = with(ChatQuirks {
        stop_with_calls: true,
        ..ChatQuirks::default()
    });
    assert!(stop.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "stop"));
}
