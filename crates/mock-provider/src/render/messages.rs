//! Messages: body and events (docs/design/wire-formats.md#anthropic-messages).

use serde_json::{Value, json};

use super::pieces_of;
use crate::completion::{Completion, Piece, Usage};
use crate::script::Delivery;

/// One event: its type, which is also its `event:` line, and its JSON.
pub(crate) type Event = (&'static str, Value);

/// The body of an answer that is not streamed.
///
/// Errors: a text, if the arguments of a call are not a JSON object, which this format cannot say without a stream.
pub(crate) fn body(completion: &Completion) -> Result<Value, String> {
    let content = completion.pieces.iter().map(block).collect::<Result<Vec<_>, _>>()?;
    let mut body = json!({
        "id": completion.id, "type": "message", "role": "assistant", "model": completion.model, "content": content,
        "stop_reason": completion.stop, "stop_sequence": null, "usage": usage(completion.usage)
    });
    for (key, value) in &completion.extra {
        body[key] = value.clone();
    }
    Ok(body)
}

/// The events of a stream.
pub(crate) fn events(completion: &Completion, delivery: &Delivery) -> Vec<Event> {
    let mut start_usage = usage(completion.usage);
    start_usage["output_tokens"] = json!(1);
    let mut events = vec![(
        "message_start",
        json!({"type": "message_start", "message": {
            "id": completion.id, "type": "message", "role": "assistant", "model": completion.model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": start_usage
        }}),
    )];
    for (index, piece) in completion.pieces.iter().enumerate() {
        block_events(&mut events, index, piece, delivery.piece_chars);
    }
    if delivery.ping_every.is_none() {
        events.insert(events.len().min(2), ping());
    }
    let mut delta = json!({"stop_reason": completion.stop, "stop_sequence": null});
    for (key, value) in &completion.extra {
        delta[key] = value.clone();
    }
    let numbers = json!({
        "input_tokens": completion.usage.input, "cache_creation_input_tokens": completion.usage.cache_write,
        "cache_read_input_tokens": completion.usage.cache_read, "output_tokens": completion.usage.output
    });
    events.push((
        "message_delta",
        json!({"type": "message_delta", "delta": delta, "usage": numbers}),
    ));
    events.push(("message_stop", json!({"type": "message_stop"})));
    events
}

/// A ping event.
pub(crate) fn ping() -> Event {
    ("ping", json!({"type": "ping"}))
}

fn block(piece: &Piece) -> Result<Value, String> {
    Ok(match piece {
        Piece::Thinking { text, signature } => json!({"type": "thinking", "thinking": text, "signature": signature}),
        Piece::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
        Piece::Text(text) => json!({"type": "text", "text": text}),
        Piece::Call { id, name, arguments } => {
            let input: Value = serde_json::from_str(arguments)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| {
                    format!("the arguments {arguments:?} of {name} are not a JSON object; only a stream can carry them")
                })?;
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        Piece::Raw(value) => value.clone(),
    })
}

fn block_events(events: &mut Vec<Event>, index: usize, piece: &Piece, chars: usize) {
    let (start, deltas) = match piece {
        Piece::Thinking { text, signature } => {
            let mut deltas: Vec<Value> = pieces_of(text, chars)
                .into_iter()
                .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
                .collect();
            deltas.push(json!({"type": "signature_delta", "signature": signature}));
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }
        Piece::Redacted { data } => (json!({"type": "redacted_thinking", "data": data}), Vec::new()),
        Piece::Text(text) => (
            json!({"type": "text", "text": ""}),
            pieces_of(text, chars)
                .into_iter()
                .map(|piece| json!({"type": "text_delta", "text": piece}))
                .collect(),
        ),
        Piece::Call { id, name, arguments } => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            argument_deltas(arguments, chars),
        ),
        Piece::Raw(value) => raw_start(value, chars),
    };
    events.push((
        "content_block_start",
        json!({"type": "content_block_start", "index": index, "content_block": start}),
    ));
    for delta in deltas {
        events.push((
            "content_block_delta",
            json!({"type": "content_block_delta", "index": index, "delta": delta}),
        ));
    }
    events.push((
        "content_block_stop",
        json!({"type": "content_block_stop", "index": index}),
    ));
}

/// Calls of server tools stream their input; every other raw block arrives whole in its start.
fn raw_start(value: &Value, chars: usize) -> (Value, Vec<Value>) {
    if value["type"] != "server_tool_use" {
        return (value.clone(), Vec::new());
    }
    let mut start = value.clone();
    let input = std::mem::replace(&mut start["input"], json!({}));
    (start, argument_deltas(&input.to_string(), chars))
}

fn argument_deltas(arguments: &str, chars: usize) -> Vec<Value> {
    let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
    deltas.extend(
        pieces_of(arguments, chars)
            .into_iter()
            .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
    );
    deltas
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output, "output_tokens_details": {"thinking_tokens": usage.thinking},
        "service_tier": "standard"
    })
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
