//! Responses: body and events (docs/design/wire-formats.md#responses).

use serde_json::{Value, json};

use super::pieces_of;
use crate::completion::{Completion, Piece, Usage};
use crate::script::Delivery;
use crate::signature;

/// The members that a response echoes of its request, with the provider's defaults for those that the request leaves out.
const ECHOES: [(&str, &str); 14] = [
    ("background", "false"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("store", "true"),
    ("temperature", "1.0"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
];

/// The whole response.
pub(crate) fn body(completion: &Completion, request: &Value) -> Value {
    let status = match completion.stop.as_str() {
        "length" | "content_filter" => "incomplete",
        other => other,
    };
    snapshot(completion, request, status, &output(completion, request))
}

/// The answer to a request in the background: the response is not there yet.
pub(crate) fn queued(completion: &Completion, request: &Value) -> Value {
    snapshot(completion, request, "queued", &[])
}

fn snapshot(completion: &Completion, request: &Value, status: &str, output: &[Value]) -> Value {
    let done = !["in_progress", "queued"].contains(&status);
    let mut response = json!({
        "id": completion.id, "object": "response", "created_at": completion.created, "status": status, "error": null,
        "incomplete_details": null, "model": completion.model, "output": output,
        "usage": if done { usage(completion.usage) } else { Value::Null }, "user": null
    });
    match completion.stop.as_str() {
        "length" if done => response["incomplete_details"] = json!({"reason": "max_output_tokens"}),
        "content_filter" if done => response["incomplete_details"] = json!({"reason": "content_filter"}),
        _ => {}
    }
    for (key, default) in ECHOES {
        response[key] = match &request[key] {
            Value::Null => serde_json::from_str(default).unwrap_or_default(),
            own => own.clone(),
        };
    }
    for (key, value) in &completion.extra {
        response[key] = value.clone();
    }
    response
}

/// The output items. The item behind reasoning carries its mark in the id, so that one without the other shows.
pub(crate) fn output(completion: &Completion, request: &Value) -> Vec<Value> {
    let encrypted = request["include"]
        .as_array()
        .is_some_and(|list| list.iter().any(|one| one == "reasoning.encrypted_content"));
    let number = completion.id.trim_start_matches("resp_");
    let mut mark = String::new();
    let mut items: Vec<Value> = Vec::new();
    for piece in &completion.pieces {
        let at = items.len();
        match piece {
            Piece::Thinking { text, .. } => {
                let id = format!("rs_{number}x{at}");
                mark = signature::mark(std::slice::from_ref(&id));
                let mut item =
                    json!({"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]});
                if encrypted {
                    item["encrypted_content"] = json!(signature::seal(text));
                }
                items.push(item);
            }
            Piece::Redacted { .. } => {}
            Piece::Text(text) => {
                let mark = std::mem::take(&mut mark);
                items.push(json!({"id": format!("msg_{number}x{at}{mark}"), "type": "message", "status": "completed", "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}));
            }
            Piece::Call { id, name, arguments } => {
                let mark = std::mem::take(&mut mark);
                items.push(
                    json!({"id": format!("fc_{number}x{at}{mark}"), "type": "function_call", "status": "completed", "call_id": id,
                    "name": name, "arguments": arguments}),
                );
            }
            Piece::Raw(value) => items.push(value.clone()),
        }
    }
    items
}

/// The events of a stream: type and JSON.
pub(crate) fn events(completion: &Completion, request: &Value, delivery: &Delivery) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    let begun = snapshot(completion, request, "in_progress", &[]);
    for kind in ["response.created", "response.in_progress"] {
        events.push(json!({"type": kind, "response": begun}));
    }
    for (index, item) in output(completion, request).iter().enumerate() {
        item_events(&mut events, index, item, delivery.piece_chars);
    }
    let end = body(completion, request);
    let kind = format!("response.{}", end["status"].as_str().unwrap_or("completed"));
    events.push(json!({"type": kind, "response": end}));
    let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
        event["sequence_number"] = json!(number);
        (event["type"].as_str().unwrap_or_default().to_owned(), event)
    });
    numbered.collect()
}

fn item_events(events: &mut Vec<Value>, index: usize, item: &Value, chars: usize) {
    let mut opened = item.clone();
    let inner = match item["type"].as_str() {
        Some("message") => {
            opened["status"] = json!("in_progress");
            opened["content"] = json!([]);
            text_events(index, item, chars)
        }
        Some("function_call") => {
            opened["status"] = json!("in_progress");
            opened["arguments"] = json!("");
            arguments_events(index, item, chars)
        }
        Some("reasoning") => {
            // The encrypted content is complete only at the end.
            opened["summary"] = json!([]);
            opened
                .as_object_mut()
                .map(|members| members.shift_remove("encrypted_content"));
            summary_events(index, item)
        }
        _ => Vec::new(),
    };
    events.push(json!({"type": "response.output_item.added", "output_index": index, "item": opened}));
    events.extend(inner);
    events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
}

fn text_events(index: usize, item: &Value, chars: usize) -> Vec<Value> {
    let part = &item["content"][0];
    let empty = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    let position = json!({"item_id": item["id"], "output_index": index, "content_index": 0});
    let mut events = vec![with(&position, "response.content_part.added", json!({"part": empty}))];
    let text = part["text"].as_str().unwrap_or_default();
    for piece in pieces_of(text, chars) {
        let delta = json!({"delta": piece, "logprobs": []});
        events.push(with(&position, "response.output_text.delta", delta));
    }
    let done = json!({"text": text, "logprobs": []});
    events.push(with(&position, "response.output_text.done", done));
    events.push(with(&position, "response.content_part.done", json!({"part": part})));
    events
}

fn arguments_events(index: usize, item: &Value, chars: usize) -> Vec<Value> {
    let mut events = Vec::new();
    let position = json!({"item_id": item["id"], "output_index": index});
    let arguments = item["arguments"].as_str().unwrap_or_default();
    for piece in pieces_of(arguments, chars) {
        let delta = json!({"delta": piece});
        events.push(with(&position, "response.function_call_arguments.delta", delta));
    }
    let done = json!({"name": item["name"], "arguments": arguments});
    events.push(with(&position, "response.function_call_arguments.done", done));
    events
}

fn summary_events(index: usize, item: &Value) -> Vec<Value> {
    let position = json!({"item_id": item["id"], "output_index": index, "summary_index": 0});
    let part = &item["summary"][0];
    let empty = json!({"type": "summary_text", "text": ""});
    let (delta, text) = (json!({"delta": part["text"]}), json!({"text": part["text"]}));
    vec![
        with(
            &position,
            "response.reasoning_summary_part.added",
            json!({"part": empty}),
        ),
        with(&position, "response.reasoning_summary_text.delta", delta),
        with(&position, "response.reasoning_summary_text.done", text),
        with(&position, "response.reasoning_summary_part.done", json!({"part": part})),
    ]
}

/// An event of a place with more members.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the callers read better with json! arguments"
)]
fn with(position: &Value, kind: &str, more: Value) -> Value {
    let mut event = json!({ "type": kind });
    for members in [position, &more] {
        for (key, value) in members.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
    }
    event
}

fn usage(usage: Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": input + usage.output
    })
}
