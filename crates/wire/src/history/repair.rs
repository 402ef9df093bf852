//! Messages: repairs what a provider would refuse in a turn whose hidden part is lost.

use super::read::Fields;
use super::scan::Scan;
use super::shown::is_our_use;
use super::turn::Speaker;
use super::turn_match::TurnMatch;
use crate::json::{Edits, Span};
use crate::request::Request;
use crate::route::Format;

/// The text that asks the model to continue, where a paused answer is sent back and its saved turn is gone.
const CONTINUE: &[u8] = br#"{"role":"user","content":"Continue."}"#;

/// Whether [`super::expand`] could change anything in a request without saved turns: a cheap test on bytes that spares most
/// requests a scan. True for too many, never false for one that needs it.
pub fn may_need_repair(request: &Request) -> bool {
    if request.format() != Format::Messages {
        return false;
    }
    let has = |text: &str| memchr::memmem::find(request.raw(), text.as_bytes()).is_some();
    if has("thinking") && has("tool_result") {
        return true;
    }
    // A paused answer is sent back as the last message, an assistant's.
    has("assistant")
        && request
            .conversation()
            .last()
            .is_some_and(|span| Fields::read(request.raw(), *span).text("role") == "assistant")
}

/// In the open tool turn, one visible message has the thinking of several rounds. Only the thinking of the round that
/// made the call may stay there: the last blocks before the call, back to a block that only an earlier round can have
/// made. Such a block is followed by something other than thinking, or is a `thinking` block directly before another:
/// an answer has one `thinking` block in a row, which may have `redacted_thinking` blocks beside it.
pub(crate) fn thinking(request: &Request, scan: &Scan, hits: &[&TurnMatch], edits: &mut Edits) {
    let src = request.raw();
    let mut at = scan.turns.len();
    // The open tool turn: pairs of an assistant message and a message of results, up to the end.
    while at >= 2 && has_results(src, scan.elements[at - 1]) && scan.turns[at - 2].speaker == Speaker::Assistant {
        let turn = at - 2;
        at = turn;
        if hits.iter().any(|hit| hit.turn == turn) {
            continue;
        }
        let blocks = Fields::read(src, scan.elements[turn]).elements("content");
        let gone = moved(src, &blocks);
        if !gone.is_empty() {
            edits.remove_items(&blocks, &gone);
        }
    }
}

fn has_results(src: &[u8], element: Span) -> bool {
    let message = Fields::read(src, element);
    message.text("role") == "user"
        && message
            .elements("content")
            .iter()
            .any(|span| Fields::read(src, *span).text("type") == "tool_result")
}

/// Indices of the thinking blocks of earlier rounds, ascending.
fn moved(src: &[u8], blocks: &[Span]) -> Vec<usize> {
    let mut gone = Vec::new();
    // Thinking since the last call, whether other content followed it, and whether its last block is a `thinking`
    // block.
    let mut run: Vec<usize> = Vec::new();
    let mut interrupted = false;
    let mut spoken = false;
    for (index, span) in blocks.iter().enumerate() {
        let kind = Fields::read(src, *span).text("type");
        match &*kind {
            "thinking" | "redacted_thinking" => {
                let thinks = kind == "thinking";
                if interrupted || (spoken && thinks) {
                    gone.append(&mut run);
                    interrupted = false;
                }
                run.push(index);
                spoken = thinks;
            }
            "tool_use" | "server_tool_use" => {
                run.clear();
                interrupted = false;
                spoken = false;
            }
            _ => {
                interrupted = !run.is_empty();
                spoken = false;
            }
        }
    }
    gone
}

/// A paused answer (`pause_turn` at the limit of rounds) that is sent back without its saved turn looks like a prefill, and
/// a provider refuses it or continues the last sentence. A user turn is added after it.
///
/// A prefill that a client wrote is distinguished by its form: an answer is sent back as blocks, of which one is
/// thinking or at least two are text, and its last block is neither a call nor a native result.
pub(crate) fn pause(request: &Request, scan: &Scan, edits: &mut Edits) {
    let src = request.raw();
    let (Some(turn), Some(last)) = (scan.turns.last(), scan.elements.last()) else {
        return;
    };
    if turn.speaker != Speaker::Assistant || !turn.calls.is_empty() {
        return;
    }
    let message = Fields::read(src, *last);
    let is_array = message.raw("content").first() == Some(&b'[');
    let kinds: Vec<_> = message
        .elements("content")
        .iter()
        .map(|block| Fields::read(src, *block).text("type").into_owned())
        .collect();
    if is_array && kinds.is_empty() {
        // An empty message is legal only as the last one: the user turn takes its place.
        edits.replace(*last, CONTINUE);
        return;
    }
    let texts = kinds.iter().filter(|kind| *kind == "text").count();
    let thinks = kinds.iter().any(|kind| kind.ends_with("thinking"));
    let ends_in_text = kinds
        .last()
        .is_some_and(|kind| kind == "text" || kind.ends_with("thinking"));
    let uses = message
        .elements("content")
        .into_iter()
        .map(|block| Fields::read(src, block));
    let mut uses = uses.filter(|block| block.text("type") == "server_tool_use").peekable();
    // A native block of Knack is a sure sign; one of the upstream's own means that the upstream paused.
    let ours = uses.peek().is_some();
    let hosted = uses.any(|block| !is_our_use(&block.text("id")));
    if is_array && ends_in_text && !hosted && (ours || thinks || texts >= 2) {
        let mut with = vec![b','];
        with.extend_from_slice(CONTINUE);
        edits.insert(last.end, with);
    }
}
