//! A turn gathered from deltas, so that it can be sent back whole, unknown members included.
//!
//! Strings are kept as they were written, escapes and all: the joined pieces of a string's source are the source of the
//! joined string, so nothing is decoded and signatures stay equal byte for byte.

use crate::json::{self, Span, ValueKind};

/// A JSON value that grows by deltas (docs/design/wire-formats.md#turns-from-deltas): strings are joined, objects merge by key, lists of objects with
/// `index` merge by it, thinking blocks continue until they are signed, anything else is replaced by the newer value. `null` never replaces a value.
#[derive(Debug, Clone)]
pub(crate) enum DeltaValue {
    /// String content as written, without quotes.
    Text(Vec<u8>),
    /// Any other value as written.
    Raw(Vec<u8>),
    /// Members in order of their first arrival; keys as written.
    Object(Vec<(Vec<u8>, Self)>),
    /// Elements with their `index`.
    List(Vec<(u64, Self)>),
}

impl Default for DeltaValue {
    fn default() -> Self {
        Self::Object(Vec::new())
    }
}

/// Most members of an object, and elements of a list with indexes, that grow by deltas. The next one is searched for among all, so an
/// event of 8 MiB of them would keep its thread for minutes. One that comes whole with more is kept as it is written; what is beyond in
/// one that grows is left out of the turn. An answer has some ten.
pub(crate) const DELTA_MAX_MEMBERS: usize = 256;
/// Members that providers repeat in full instead of continuing them; `channel` is Groq's.
const ONCE: [&[u8]; 6] = [b"id", b"type", b"role", b"call_id", b"object", b"channel"];

impl DeltaValue {
    /// The value at `span`.
    pub(crate) fn new(src: &[u8], span: Span) -> Self {
        match json::kind(src, span) {
            Some(ValueKind::String) => Self::Text(json::raw_text(src, span).unwrap_or_default().to_vec()),
            Some(ValueKind::Object)
                if json::members(src, span).is_ok_and(|members| members.len() > DELTA_MAX_MEMBERS) =>
            {
                Self::Raw(span.of(src).to_vec())
            }
            Some(ValueKind::Object) => {
                let mut object = Self::Object(Vec::new());
                object.merge(src, span);
                object
            }
            Some(ValueKind::Array) => list(src, span).map_or_else(|| Self::Raw(span.of(src).to_vec()), Self::List),
            _ => Self::Raw(span.of(src).to_vec()),
        }
    }

    /// Takes in a delta.
    pub(crate) fn merge(&mut self, src: &[u8], span: Span) {
        if json::is_null(src, span) {
            return;
        }
        match (&mut *self, json::kind(src, span)) {
            (Self::Text(text), Some(ValueKind::String)) => {
                text.extend_from_slice(json::raw_text(src, span).unwrap_or_default());
            }
            (Self::Object(own), Some(ValueKind::Object)) => {
                for member in json::members(src, span).unwrap_or_default() {
                    merge_member(own, src, member.key.of(src), member.value);
                }
            }
            (Self::List(own), Some(ValueKind::Array)) => match list(src, span) {
                Some(_) => merge_list(own, src, span, Self::merge),
                None => *self = Self::new(src, span),
            },
            _ => *self = Self::new(src, span),
        }
    }

    /// Takes in one member of a delta object.
    pub(crate) fn merge_member(&mut self, src: &[u8], key: &[u8], value: Span) {
        if let Self::Object(own) = self {
            merge_member(own, src, key, value);
        }
    }

    /// A member.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(own) => own
                .iter()
                .find(|(name, _)| name == key.as_bytes())
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// A member, to be changed.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Object(own) => own
                .iter_mut()
                .find(|(name, _)| name == key.as_bytes())
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// String content as written; empty for anything else.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            _ => b"",
        }
    }

    /// Sets a member, at the end if it is new.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        if let Self::Object(own) = self {
            match own.iter_mut().find(|(name, _)| name == key.as_bytes()) {
                Some((_, old)) => *old = value,
                None => own.push((key.as_bytes().to_vec(), value)),
            }
        }
    }

    /// Writes the value as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.push(b'"');
                out.extend_from_slice(text);
                out.push(b'"');
            }
            Self::Raw(raw) => out.extend_from_slice(raw),
            Self::Object(members) => {
                out.push(b'{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    out.push(b'"');
                    out.extend_from_slice(key);
                    out.extend_from_slice(b"\":");
                    value.write(out);
                }
                out.push(b'}');
            }
            Self::List(list) => {
                out.push(b'[');
                for (at, (_, value)) in list.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    value.write(out);
                }
                out.push(b']');
            }
        }
    }
}

/// The member in which LiteLLM hands on an Anthropic model's thinking: a list in every delta, without `index`.
const THINKING: &[u8] = b"thinking_blocks";

/// The member in which OpenRouter hands on thinking: a list whose elements go on by `index`.
const DETAILS: &[u8] = b"reasoning_details";
/// Strings that go on in an element of it. Any other one (`type`, `format`, `id`) is repeated in each piece.
const GROWING: [&[u8]; 4] = [b"text", b"summary", b"data", b"signature"];

fn merge_member(own: &mut Vec<(Vec<u8>, DeltaValue)>, src: &[u8], key: &[u8], value: Span) {
    if key == THINKING && json::kind(src, value) == Some(ValueKind::Array) {
        return merge_thinking(own, src, value);
    }
    let Some((_, old)) = own.iter_mut().find(|(name, _)| name == key) else {
        if own.len() < DELTA_MAX_MEMBERS {
            own.push((key.to_vec(), DeltaValue::new(src, value)));
        }
        return;
    };
    match old {
        DeltaValue::Text(text) if !text.is_empty() && ONCE.contains(&key) => {}
        // A name may come in pieces, or again in full.
        DeltaValue::Text(text) if key == b"name" && json::raw_text(src, value) == Some(text) => {}
        DeltaValue::List(own) if key == DETAILS && list(src, value).is_some() => {
            merge_list(own, src, value, merge_detail);
        }
        _ => old.merge(src, value),
    }
}

/// Takes in a piece of an element of [`DETAILS`].
fn merge_detail(old: &mut DeltaValue, src: &[u8], piece: Span) {
    for member in json::members(src, piece).unwrap_or_default() {
        let key = member.key.of(src);
        let is_said = |own: &(Vec<u8>, DeltaValue)| own.0 == key && !own.1.text().is_empty();
        let repeats = matches!(old, DeltaValue::Object(own) if own.iter().any(is_said));
        if GROWING.contains(&key) || !repeats {
            old.merge_member(src, key, member.value);
        }
    }
}

/// Adds thinking blocks: one without a signature goes on in the next, any other is a block of its own.
fn merge_thinking(own: &mut Vec<(Vec<u8>, DeltaValue)>, src: &[u8], value: Span) {
    let at = own.iter().position(|(name, _)| name == THINKING).unwrap_or_else(|| {
        own.push((THINKING.to_vec(), DeltaValue::List(Vec::new())));
        own.len() - 1
    });
    if !matches!(own[at].1, DeltaValue::List(_)) {
        own[at].1 = DeltaValue::List(Vec::new());
    }
    let DeltaValue::List(blocks) = &mut own[at].1 else {
        return;
    };
    for element in json::elements(src, value).unwrap_or_default() {
        let is_thinking = json::get_text(src, element, "type").as_deref() == Some("thinking");
        let text =
            |block: &DeltaValue, key: &str| block.get(key).map(|value| value.text().to_vec()).unwrap_or_default();
        match blocks.last_mut() {
            Some((_, last))
                if is_thinking && text(last, "type") == b"thinking" && text(last, "signature").is_empty() =>
            {
                last.merge(src, element);
            }
            _ => blocks.push((blocks.len() as u64, DeltaValue::new(src, element))),
        }
    }
}

/// The elements of a list whose elements are objects with `index`; `None` for any other list, and for one that is too long to grow.
fn list(src: &[u8], span: Span) -> Option<Vec<(u64, DeltaValue)>> {
    let elements = json::elements(src, span).ok()?;
    if elements.is_empty() || elements.len() > DELTA_MAX_MEMBERS {
        return None;
    }
    let mut found = Vec::with_capacity(elements.len());
    for element in elements {
        let index = json::uint(src, json::get(src, element, "index")?)?;
        found.push((index, DeltaValue::new(src, element)));
    }
    Some(found)
}

/// Takes in elements by their `index`; `go_on` takes in a piece of one that is known.
fn merge_list(own: &mut Vec<(u64, DeltaValue)>, src: &[u8], span: Span, go_on: fn(&mut DeltaValue, &[u8], Span)) {
    for element in json::elements(src, span).unwrap_or_default() {
        let Some(index) = json::get(src, element, "index").and_then(|span| json::uint(src, span)) else {
            continue;
        };
        if let Some((_, old)) = own.iter_mut().find(|(at, _)| *at == index) {
            go_on(old, src, element);
        } else if own.len() < DELTA_MAX_MEMBERS {
            own.push((index, DeltaValue::new(src, element)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(deltas: &[&str]) -> String {
        let mut turn = DeltaValue::default();
        for delta in deltas {
            turn.merge(delta.as_bytes(), Span::new(0, delta.len()));
        }
        let mut out = Vec::new();
        turn.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// As LiteLLM streams the thinking of an Anthropic model, which takes its blocks back only whole and signed.
    #[test]
    fn thinking_blocks_go_on_until_they_are_signed() {
        let deltas = [
            r#"{"thinking_blocks":[{"type":"thinking","thinking":"One ","signature":null}]}"#,
            r#"{"thinking_blocks":[{"type":"thinking","thinking":"tool."}]}"#,
            r#"{"thinking_blocks":[{"type":"thinking","thinking":"","signature":"s1"}]}"#,
            r#"{"thinking_blocks":[{"type":"redacted_thinking","data":"d1"},{"type":"redacted_thinking","data":"d2"}]}"#,
            r#"{"thinking_blocks":[{"type":"thinking","thinking":"Two.","signature":"s2"}]}"#,
            r#"{"thinking_blocks":null}"#,
        ];
        assert_eq!(
            joined(&deltas),
            r#"{"thinking_blocks":[{"type":"thinking","thinking":"One tool.","signature":"s1"},{"type":"redacted_thinking","data":"d1"},{"type":"redacted_thinking","data":"d2"},{"type":"thinking","thinking":"Two.","signature":"s2"}]}"#
        );
        // Any other list without an index is repeated in full by those who send it.
        assert_eq!(
            joined(&[r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":2}]}"#]),
            r#"{"a":[{"b":2}]}"#
        );
    }

    /// OpenRouter repeats the format of a thought in each piece of it, and Groq the channel of a text: a provider refuses
    /// them joined.
    #[test]
    fn words_that_are_repeated_in_each_piece_are_not_joined() {
        let deltas = [
            r#"{"channel":"analysis","reasoning_details":[{"type":"reasoning.text","text":"One ","format":"anthropic-claude-v1","index":0}]}"#,
            r#"{"channel":"analysis","reasoning_details":[{"type":"reasoning.text","text":"tool.","format":"anthropic-claude-v1","index":0,"id":null}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","signature":"s1","format":"anthropic-claude-v1","index":0,"id":"t"}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"d","format":"anthropic-claude-v1","index":1}]}"#,
        ];
        assert_eq!(
            joined(&deltas),
            r#"{"channel":"analysis","reasoning_details":[{"type":"reasoning.text","text":"One tool.","format":"anthropic-claude-v1","index":0,"id":"t","signature":"s1"},{"type":"reasoning.encrypted","data":"d","format":"anthropic-claude-v1","index":1}]}"#
        );
    }
}
