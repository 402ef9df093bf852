use serde_json::Map;

use super::*;

fn completion(pieces: Vec<Piece>) -> Completion {
    Completion {
        id: "msg_1".into(),
        model: "m".into(),
        created: 5,
        pieces,
        stop: "tool_use".into(),
        usage: Usage {
            input: 10,
            output: 4,
            cache_read: 2,
            cache_write: 3,
            thinking: 1,
        },
        extra: Map::from_iter([("container".to_owned(), json!({"id": "container_1"}))]),
    }
}

fn full() -> Completion {
    completion(vec![
        Piece::Thinking {
            text: "Two calls.".into(),
            signature: "sig".into(),
        },
        Piece::Redacted { data: "abc".into() },
        Piece::Text("Zürich 🎈".into()),
        Piece::Call {
            id: "toolu_1".into(),
            name: "f".into(),
            arguments: "{\"city\":\"Oslo\"}".into(),
        },
        Piece::Raw(
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}),
        ),
        Piece::Raw(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})),
    ])
}

#[test]
fn a_body_has_the_blocks_in_order_and_the_extra_members() {
    let body = body(&full()).unwrap();
    let kinds: Vec<&str> = body["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "server_tool_use",
            "web_search_tool_result"
        ]
    );
    assert_eq!(body["content"][3]["input"], json!({"city": "Oslo"}));
    assert_eq!(body["container"]["id"], "container_1");
    assert_eq!(body["usage"]["cache_read_input_tokens"], 2);
}

#[test]
fn arguments_that_are_no_object_need_a_stream() {
    let broken = completion(vec![Piece::Call {
        id: "t".into(),
        name: "f".into(),
        arguments: "{\"a\":".into(),
    }]);
    assert!(body(&broken).unwrap_err().contains("only a stream"));
    let partial: String = events(&broken, &Delivery::default())
        .iter()
        .filter_map(|(_, event)| event["delta"]["partial_json"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(partial, "{\"a\":");
}

#[test]
fn a_stream_numbers_its_blocks_without_gaps_and_adds_up() {
    let events = events(
        &full(),
        &Delivery {
            piece_chars: 4,
            ..Delivery::default()
        },
    );
    let order: Vec<&str> = events.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(order[0], "message_start");
    assert_eq!(&order[order.len() - 2..], ["message_delta", "message_stop"]);
    assert_eq!(order.iter().filter(|kind| **kind == "ping").count(), 1);
    for (kind, event) in &events {
        assert_eq!(event["type"], *kind);
    }
    let starts: Vec<u64> = events
        .iter()
        .filter(|(kind, _)| *kind == "content_block_start")
        .map(|(_, event)| event["index"].as_u64().unwrap())
        .collect();
    assert_eq!(starts, [0, 1, 2, 3, 4, 5]);
    let joined = |index: u64, key: &str| -> String {
        events
            .iter()
            .filter(|(_, event)| event["index"] == index)
            .filter_map(|(_, event)| event["delta"][key].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(joined(0, "thinking"), "Two calls.");
    assert_eq!(joined(0, "signature"), "sig");
    assert_eq!(joined(2, "text"), "Zürich 🎈");
    assert_eq!(joined(3, "partial_json"), "{\"city\":\"Oslo\"}");
    assert_eq!(joined(4, "partial_json"), "{\"query\":\"x\"}");
    let delta = &events[events.len() - 2].1;
    assert_eq!(delta["delta"]["container"]["id"], "container_1");
    assert_eq!(delta["usage"]["output_tokens"], 4);
}

#[test]
fn pings_by_hand_replace_the_one_of_its_own() {
    let events = events(
        &full(),
        &Delivery {
            ping_every: Some(2),
            ..Delivery::default()
        },
    );
    assert!(events.iter().all(|(kind, _)| *kind != "ping"));
}
