//! Gemini: body and frames (docs/design/wire-formats.md#gemini).

use serde_json::{Map, Value, json};

use super::pieces_of;
use crate::completion::{Completion, Piece, Usage};
use crate::script::Delivery;
use crate::signature;

/// The body of an answer that is not streamed.
///
/// Errors: a text, if the arguments of a call are not a JSON object, which this format cannot say.
pub(crate) fn body(completion: &Completion) -> Result<Value, String> {
    let parts = parts(completion, usize::MAX)?;
    Ok(response(completion, &parts, true))
}

/// The frames of a stream.
///
/// Errors: as [`body`].
pub(crate) fn frames(completion: &Completion, delivery: &Delivery) -> Result<Vec<Value>, String> {
    let parts = parts(completion, delivery.piece_chars)?;
    let last = parts.len().saturating_sub(1);
    let frame = |(at, part): (usize, &[Value])| response(completion, part, at == last);
    if parts.is_empty() {
        return Ok(vec![response(completion, &[], true)]);
    }
    Ok(parts.chunks(1).enumerate().map(frame).collect())
}

/// The parts, texts cut into pieces. The first call has the answer's signature, or the last text if there is no call.
fn parts(completion: &Completion, chars: usize) -> Result<Vec<Value>, String> {
    let mut parts = Vec::new();
    for piece in &completion.pieces {
        match piece {
            Piece::Thinking { text, .. } => {
                parts.extend(
                    pieces_of(text, chars)
                        .into_iter()
                        .map(|text| json!({"text": text, "thought": true})),
                );
            }
            // This format has no sealed thoughts: they are in the signature.
            Piece::Redacted { .. } => {}
            Piece::Text(text) => {
                parts.extend(pieces_of(text, chars).into_iter().map(|text| json!({"text": text})));
            }
            Piece::Call { id, name, arguments } => {
                let args: Map<String, Value> = serde_json::from_str(arguments).map_err(|error| {
                    format!("the arguments of {name} are not a JSON object, which Gemini cannot say: {error}")
                })?;
                parts.push(json!({"functionCall": {"id": id, "name": name, "args": args}}));
            }
            Piece::Raw(value) => parts.push(value.clone()),
        }
    }
    let signed = parts
        .iter()
        .position(|part| part.get("functionCall").is_some())
        .or_else(|| {
            parts
                .iter()
                .rposition(|part| part.get("text").is_some() && part.get("thought").is_none())
        });
    if let Some(part) = signed.and_then(|at| parts.get_mut(at)) {
        part["thoughtSignature"] = json!(signature::thought(&completion.id));
    }
    Ok(parts)
}

fn response(completion: &Completion, parts: &[Value], last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if last {
        candidate["finishReason"] = json!(completion.stop);
    }
    let mut response = json!({
        "candidates": [candidate], "usageMetadata": usage(completion.usage),
        "modelVersion": completion.model, "responseId": completion.id
    });
    for (key, value) in completion.extra.iter().filter(|_| last) {
        response[key] = value.clone();
    }
    response
}

fn usage(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let visible = usage.output.saturating_sub(usage.thinking);
    json!({
        "promptTokenCount": prompt, "candidatesTokenCount": visible, "thoughtsTokenCount": usage.thinking,
        "cachedContentTokenCount": usage.cache_read, "totalTokenCount": prompt + visible + usage.thinking,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}]
    })
}
