//! The events of a streamed answer as bytes, one entry for each.

use serde_json::Value;

use super::completion;
use super::delivery;
use super::render;
use super::render::chat::StreamOptions;
use super::script::{Delivery, LineEnd};

pub(super) fn chat_frames(
    completion: &completion::Completion,
    delivery: &Delivery,
    options: StreamOptions,
) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, event) in render::chat::events(completion, delivery, options).iter().enumerate() {
        frames.push(delivery::frame(None, event, delivery.line_end));
        if delivery.ping_every.is_some_and(|every| (index + 1) % every == 0) && event != "[DONE]" {
            frames.push(b": ping\n\n".to_vec());
        }
    }
    frames
}

pub(super) fn messages_frames(completion: &completion::Completion, delivery: &Delivery) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, (kind, event)) in render::messages::events(completion, delivery).iter().enumerate() {
        frames.push(delivery::frame(Some(kind), &event.to_string(), delivery.line_end));
        if delivery.ping_every.is_some_and(|every| (index + 1) % every == 0) && *kind != "message_stop" {
            let (kind, ping) = render::messages::ping();
            frames.push(delivery::frame(Some(kind), &ping.to_string(), delivery.line_end));
        }
    }
    frames
}

/// Frames of Gemini: CRLF, unless the script wants bare CR.
pub(super) fn gemini_frames(frames: &[Value], delivery: &Delivery) -> Vec<Vec<u8>> {
    let line_end = match delivery.line_end {
        LineEnd::Lf => LineEnd::Crlf,
        other => other,
    };
    let frame = |frame: &Value| delivery::frame(None, &frame.to_string(), line_end);
    frames.iter().map(frame).collect()
}

/// Gemini's frames as one JSON array, for callers that do not ask for events.
pub(super) fn array(frames: &[Value]) -> Vec<Vec<u8>> {
    let element = |(at, frame): (usize, &Value)| format!("{}{frame}", if at == 0 { "[" } else { ",\r\n" }).into_bytes();
    let elements = frames.iter().enumerate().map(element);
    elements.chain([b"]".to_vec()]).collect()
}
