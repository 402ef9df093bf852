//! The turns of a Messages history.

use super::canon::Canon;
use super::read::{self, Fields};
use super::shown;
use super::turn::Speaker;
use super::turn::Turn;
use crate::json::{self, Span, ValueKind};

/// The turn of a message.
pub(crate) fn turn(src: &[u8], index: usize, span: Span) -> Turn {
    let fields = Fields::read(src, span);
    let speaker = match &*fields.text("role") {
        "assistant" => Speaker::Assistant,
        "system" => return Turn::system(index),
        _ => Speaker::User,
    };
    let mut canon = Canon::new(speaker);
    let mut calls = Vec::new();
    if let Some(content) = fields.span("content") {
        if json::kind(src, content) == Some(ValueKind::Array) {
            for block in json::elements(src, content).unwrap_or_default() {
                feed_block(&mut canon, &mut calls, src, block);
            }
        } else {
            read::content(&mut canon, src, content);
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

fn feed_block(canon: &mut Canon, calls: &mut Vec<String>, src: &[u8], span: Span) {
    let block = Fields::read(src, span);
    match &*block.text("type") {
        "thinking" | "redacted_thinking" => {}
        "tool_use" => {
            let id = block.text("id").into_owned();
            canon.call(&id, &block.text("name"), block.raw("input"));
            calls.push(id);
        }
        "tool_result" => {
            let id = block.text("tool_use_id");
            read::result(canon, &id, src, block.span("content"), block.flag("is_error"));
        }
        // A run of Knack that was shown: its id is its own, and what else a client keeps of it is the client's business.
        "server_tool_use" if shown::is_our_use(&block.text("id")) => {
            canon.call(&block.text("id"), "", b"");
        }
        kind if kind.ends_with("_tool_result") && shown::is_our_use(&block.text("tool_use_id")) => {}
        _ => read::part(canon, src, span),
    }
}
