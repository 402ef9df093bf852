//! The cache marker that a client sets on an answer, in the messages that take the answer's place.

use crate::json::{self, Edits, Span, ValueKind};
use crate::route::Format;

/// The member that asks a provider to cache what is before it (Messages; Chat of OpenRouter and LiteLLM).
const MARKER: &str = "cache_control";

/// Puts the last marker of a visible answer at the end of what takes its place: as many markers as the client sent, of which
/// a provider allows few, and as much before it as there is.
pub(super) fn keep(format: Format, src: &[u8], answer: &[Span], messages: &mut [Vec<u8>]) {
    let mark: fn(&[u8], &[u8]) -> Option<Vec<u8>> = match format {
        Format::Messages => mark_block,
        Format::Chat => mark_text,
        Format::Responses | Format::Gemini => return,
    };
    let Some(marker) = answer.iter().rev().find_map(|element| marker_of(src, *element)) else {
        return;
    };
    for message in messages.iter_mut().rev() {
        if let Some(marked) = mark(message, marker) {
            *message = marked;
            return;
        }
    }
}

/// The last marker of a message.
fn marker_of(src: &[u8], message: Span) -> Option<&[u8]> {
    let blocks = json::elements(src, json::get(src, message, "content")?).ok()?;
    let marker = |block: &Span| json::get(src, *block, MARKER).filter(|span| !json::is_null(src, *span));
    blocks.iter().rev().find_map(marker).map(|span| span.of(src))
}

/// With a marker at its last block; thinking takes none.
fn mark_block(message: &[u8], marker: &[u8]) -> Option<Vec<u8>> {
    let whole = Span::new(0, message.len());
    let blocks = json::elements(message, json::get(message, whole, "content")?).ok()?;
    let is_thinking =
        |block: &Span| json::get_text(message, *block, "type").is_some_and(|kind| kind.ends_with("thinking"));
    let last = blocks.into_iter().rev().find(|block| !is_thinking(block))?;
    Some(marked(message, last, marker))
}

/// With a marker at its text, if it is one of the model's; a string becomes a part for it.
fn mark_text(message: &[u8], marker: &[u8]) -> Option<Vec<u8>> {
    let whole = Span::new(0, message.len());
    json::get_text(message, whole, "role").filter(|role| role == "assistant")?;
    let content = json::get(message, whole, "content")?;
    match json::kind(message, content)? {
        ValueKind::String if content.len() > 2 => {
            let mut edits = Edits::new();
            edits.insert(content.start, r#"[{"type":"text","text":"#);
            edits.insert(
                content.end,
                [br#",""#, MARKER.as_bytes(), br#"":"#, marker, b"}]"].concat(),
            );
            Some(edits.apply(message))
        }
        ValueKind::Array => {
            let parts = json::elements(message, content).ok()?;
            let is_text = |part: &Span| json::get_text(message, *part, "type").as_deref() == Some("text");
            Some(marked(message, parts.into_iter().rev().find(is_text)?, marker))
        }
        _ => None,
    }
}

fn marked(message: &[u8], block: Span, marker: &[u8]) -> Vec<u8> {
    let mut edits = Edits::new();
    edits.insert(block.end - 1, [br#",""#, MARKER.as_bytes(), br#"":"#, marker].concat());
    edits.apply(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(format: Format, answer: &str, messages: &[&str]) -> Vec<String> {
        let mut messages: Vec<Vec<u8>> = messages.iter().map(|message| message.as_bytes().to_vec()).collect();
        keep(format, answer.as_bytes(), &[Span::new(0, answer.len())], &mut messages);
        messages
            .into_iter()
            .map(|message| String::from_utf8(message).unwrap())
            .collect()
    }

    #[test]
    fn the_marker_of_an_answer_is_at_the_end_of_what_takes_its_place() {
        let answer = r#"{"role":"assistant","content":[{"type":"text","text":"a","cache_control":{"ttl":"1"}},{"type":"text","text":"b","cache_control":{"ttl":"2"}}]}"#;
        let messages = [
            r#"{"role":"user","content":[{"type":"tool_result"}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"thinking","thinking":"x"}]}"#,
        ];
        let expected = r#"{"role":"assistant","content":[{"type":"text","text":"b","cache_control":{"ttl":"2"}},{"type":"thinking","thinking":"x"}]}"#;
        assert_eq!(kept(Format::Messages, answer, &messages), [messages[0], expected]);
        for (message, expected) in [
            (
                r#"{"role":"assistant","content":"b"}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"b","cache_control":{"ttl":"2"}}]}"#,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"text","text":"b"}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"b","cache_control":{"ttl":"2"}}]}"#,
            ),
            // Nothing in it takes one.
            (
                r#"{"role":"assistant","content":null,"tool_calls":[]}"#,
                r#"{"role":"assistant","content":null,"tool_calls":[]}"#,
            ),
        ] {
            assert_eq!(kept(Format::Chat, answer, &[message]), [expected]);
        }
        let plain = r#"{"role":"assistant","content":"b"}"#;
        assert_eq!(kept(Format::Messages, plain, &messages), messages);
    }
}
