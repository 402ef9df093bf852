//! The turns of a Chat Completions history.

use super::canon::Canon;
use super::read::{self, Fields};
use super::turn::Speaker;
use super::turn::Turn;
use crate::json::Span;

/// The turn of a message.
pub(crate) fn turn(src: &[u8], index: usize, span: Span) -> Turn {
    let fields = Fields::read(src, span);
    let speaker = match &*fields.text("role") {
        "assistant" => Speaker::Assistant,
        "tool" | "function" => Speaker::Tool,
        "system" | "developer" => return Turn::system(index),
        _ => Speaker::User,
    };
    let mut canon = Canon::new(speaker);
    let mut calls = Vec::new();
    match speaker {
        Speaker::Tool => read::result(
            &mut canon,
            &fields.text("tool_call_id"),
            src,
            fields.span("content"),
            false,
        ),
        _ => {
            if let Some(content) = fields.span("content") {
                read::content(&mut canon, src, content);
            }
        }
    }
    if speaker == Speaker::Assistant {
        canon.text(&fields.text("refusal"));
        for call in fields.elements("tool_calls") {
            calls.push(feed_call(&mut canon, &Fields::read(src, call)));
        }
        let legacy = fields.object("function_call");
        if legacy.span("name").is_some() {
            canon.call("", &legacy.text("name"), legacy.text("arguments").as_bytes());
        }
        if let Some(audio) = fields.span("audio") {
            canon.other(audio.of(src));
        }
    }
    Turn {
        elements: index..index + 1,
        speaker,
        canon: Some(canon.finish()),
        calls,
        reference: None,
        kept: None,
    }
}

/// Feeds one call and returns its id.
fn feed_call(canon: &mut Canon, call: &Fields<'_>) -> String {
    let id = call.text("id").into_owned();
    let function = call.object("function");
    if function.span("name").is_some() {
        canon.call(&id, &function.text("name"), function.text("arguments").as_bytes());
    } else {
        let custom = call.object("custom");
        canon.call(&id, &custom.text("name"), custom.text("input").as_bytes());
    }
    id
}
