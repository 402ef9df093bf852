//! The system text of Messages, and its place among the client's cache markers.

use bytes::Bytes;

use crate::format::splice;
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::Request;

/// Cache markers that one request may carry.
const MAX_MARKERS: usize = 4;
const MARKER: &[u8] = b"\"cache_control\"";

/// Adds system text, as written in JSON: absent, null, a string, or blocks (docs/design/conversation.md#prompt-caches).
pub(super) fn add_system(request: &Request, text: Bytes, edits: &mut Edits) {
    let src = request.raw();
    match request.present("system") {
        Some(span) if json::kind(src, span) == Some(ValueKind::String) => splice::extend_string(edits, span, text),
        Some(span) if json::kind(src, span) == Some(ValueKind::Array) => add_block(request, span, &text, edits),
        // No system text: the provider's to refuse, as it came.
        Some(_) => {}
        None if request.value("system").is_some() => {
            splice::set_member(request, edits, "messages", "system", [b"\"", &*text, b"\""].concat());
        }
        None => splice::add_parts(
            request,
            edits,
            "messages",
            [Bytes::from("\"system\":\""), text, Bytes::from("\"")],
        ),
    }
}

fn add_block(request: &Request, list: Span, text: &[u8], edits: &mut Edits) {
    let src = request.raw();
    let blocks = json::elements(src, list).unwrap_or_default();
    let marked = blocks.iter().rposition(|block| marker(src, *block).is_some());
    let in_messages = request.present("messages").map_or(0, |span| count(span.of(src)));
    match marked {
        Some(at) if at >= 1 && in_messages == 0 => {
            let mut inserted = block(text, None);
            inserted.push(b',');
            edits.insert(blocks[at].start, inserted);
        }
        Some(0) if in_messages == 0 && count(src) < MAX_MARKERS => {
            let copied = marker(src, blocks[0]).map(|span| span.of(src));
            splice::push_elements(src, edits, list, &[block(text, copied)]);
        }
        _ => splice::push_elements(src, edits, list, &[block(text, None)]),
    }
}

fn block(text: &[u8], marker: Option<&[u8]>) -> Vec<u8> {
    let mut out = [b"{\"type\":\"text\",\"text\":\"", text, b"\""].concat();
    if let Some(marker) = marker {
        out.extend_from_slice(b",\"cache_control\":");
        out.extend_from_slice(marker);
    }
    out.push(b'}');
    out
}

fn marker(src: &[u8], block: Span) -> Option<Span> {
    json::get(src, block, "cache_control").filter(|span| !json::is_null(src, *span))
}

/// Cache markers in a piece of JSON. Inside strings the quotes of the key would be escaped, so a search of bytes is
/// exact.
fn count(src: &[u8]) -> usize {
    let is_set = |at: usize| {
        let after = json::space(src, at + MARKER.len());
        let value = json::space(src, after + 1);
        src.get(after) == Some(&b':') && src.get(value).is_some_and(|byte| *byte != b'n')
    };
    memchr::memmem::find_iter(src, MARKER).filter(|at| is_set(*at)).count()
}
