//! Chat Completions: body and chunks (docs/design/wire-formats.md#chat-completions).

use serde_json::{Map, Value, json};

use super::pieces_of;
use crate::completion::{Completion, Piece, Usage};
use crate::script::Delivery;

/// A client's options of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamOptions {
    /// `stream_options.include_usage`.
    pub(crate) usage: bool,
    /// `stream_options.include_obfuscation`, true if absent.
    pub(crate) obfuscation: bool,
}

impl StreamOptions {
    /// Reads the options of a request body.
    pub(crate) fn of(body: &Value) -> Self {
        let options = &body["stream_options"];
        Self {
            usage: options["include_usage"].as_bool().unwrap_or(false),
            obfuscation: options["include_obfuscation"].as_bool().unwrap_or(true),
        }
    }
}

/// The body of an answer that is not streamed.
pub(crate) fn body(completion: &Completion) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    message.insert("content".into(), content(completion).map_or(Value::Null, Value::String));
    message.insert("refusal".into(), Value::Null);
    message.insert("annotations".into(), json!([]));
    let reasoning = reasoning(completion);
    if !reasoning.is_empty() {
        message.insert("reasoning_content".into(), json!(reasoning));
    }
    let calls: Vec<Value> = calls(completion)
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    if !calls.is_empty() {
        message.insert("tool_calls".into(), Value::Array(calls));
    }
    message.extend(completion.extra.clone());
    json!({
        "id": completion.id, "object": "chat.completion", "created": completion.created, "model": completion.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": completion.stop}],
        "usage": usage(completion.usage), "service_tier": "default", "system_fingerprint": "fp_mock"
    })
}

/// The `data` of every event of a stream, `[DONE]` included.
pub(crate) fn events(completion: &Completion, delivery: &Delivery, options: StreamOptions) -> Vec<String> {
    let mut chunks = Chunks {
        completion,
        delivery,
        options,
        events: Vec::new(),
    };
    let mut first = Map::new();
    first.insert("role".into(), json!("assistant"));
    first.insert(
        "content".into(),
        if content(completion).is_some() {
            json!("")
        } else {
            Value::Null
        },
    );
    first.insert("refusal".into(), Value::Null);
    first.extend(completion.extra.clone());
    chunks.delta(Value::Object(first));
    for piece in pieces_of(&reasoning(completion), delivery.piece_chars) {
        chunks.delta(json!({"reasoning_content": piece}));
    }
    for piece in pieces_of(&content(completion).unwrap_or_default(), delivery.piece_chars) {
        chunks.delta(json!({"content": piece}));
    }
    chunks.calls();
    let has_calls = calls(completion).next().is_some();
    let stop = if delivery.chat.stop_with_calls && has_calls {
        "stop"
    } else {
        &completion.stop
    };
    chunks.push(
        &json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": stop}]),
        &Value::Null,
    );
    if options.usage {
        chunks.push(&json!([]), &usage(completion.usage));
    }
    chunks.events.push("[DONE]".to_owned());
    chunks.events
}

struct Chunks<'a> {
    completion: &'a Completion,
    delivery: &'a Delivery,
    options: StreamOptions,
    events: Vec<String>,
}

impl Chunks<'_> {
    fn delta(&mut self, delta: Value) {
        let mut choice = json!({"index": 0, "delta": null, "logprobs": null, "finish_reason": null});
        choice["delta"] = delta;
        self.push(&json!([choice]), &Value::Null);
    }

    fn calls(&mut self) {
        let quirks = &self.delivery.chat;
        let (no_index, in_one) = (quirks.no_index, quirks.calls_in_one_chunk);
        let whole = quirks.whole_calls || in_one || no_index;
        let mut elements = Vec::new();
        for (index, (id, name, arguments)) in calls(self.completion).enumerate() {
            let at_once = if whole { arguments } else { "" };
            let mut element =
                json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": at_once}});
            if no_index {
                element.as_object_mut().map(|members| members.shift_remove("index"));
            }
            elements.push((element, index, arguments));
        }
        if in_one && !elements.is_empty() {
            let all: Vec<Value> = elements.into_iter().map(|(element, ..)| element).collect();
            self.delta(json!({"tool_calls": all}));
            return;
        }
        for (element, index, arguments) in elements {
            self.delta(json!({"tool_calls": [element]}));
            if !whole {
                for piece in pieces_of(arguments, self.delivery.piece_chars) {
                    self.delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
                }
            }
        }
    }

    fn push(&mut self, choices: &Value, usage: &Value) {
        let completion = self.completion;
        let mut chunk = json!({
            "id": completion.id, "object": "chat.completion.chunk", "created": completion.created,
            "model": completion.model, "service_tier": "default", "system_fingerprint": "fp_mock", "choices": choices
        });
        if self.options.usage {
            chunk["usage"] = usage.clone();
        }
        if self.delivery.chat.obfuscation && self.options.obfuscation {
            chunk["obfuscation"] = json!("x".repeat(1 + self.events.len() % 7));
        }
        self.events.push(chunk.to_string());
    }
}

fn calls(completion: &Completion) -> impl Iterator<Item = (&str, &str, &str)> {
    completion.pieces.iter().filter_map(|piece| match piece {
        Piece::Call { id, name, arguments } => Some((id.as_str(), name.as_str(), arguments.as_str())),
        _ => None,
    })
}

/// All texts joined; none at all is `null` on the wire.
fn content(completion: &Completion) -> Option<String> {
    let texts: Vec<&str> = completion
        .pieces
        .iter()
        .filter_map(|piece| {
            if let Piece::Text(text) = piece {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect();
    (!texts.is_empty()).then(|| texts.concat())
}

fn reasoning(completion: &Completion) -> String {
    completion
        .pieces
        .iter()
        .filter_map(|piece| {
            if let Piece::Thinking { text, .. } = piece {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect()
}

fn usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.thinking, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    })
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
