//! Hidden turns between requests (docs/design/conversation.md#hidden-turns).
//!
//! A client sends back only what it saw. What it did not see, the calls and results of Knack, is kept as
//! a saved turn under keyed hashes of the visible conversation, and put back when the same conversation
//! comes again:
//!
//! ```text
//! request      ──▶ scan ──▶ lookups ──▶ (the gateway's store) ──▶ expand ──▶ edits that put the hidden turns back
//! drive::HiddenTurns ──▶ keys + seal ──▶ (the gateway's store)
//! ```
//!
//! The store is a soft cache of saved turns under 32-byte keys. It holds, for each caller (`Caller::bucket`), saved turns
//! under one or two keys (`keys`), evicts the least recently used, and answers whether the caller has any saved turn of a
//! conversation with this beginning (`opening`): without one, and without calls in the history, no scan is needed.
//! Losing a saved turn is never an error, since what the client sent is a valid conversation by itself; `expand` without
//! saved turns repairs only what a provider would refuse. This module does no look-ups, runs nothing, and is independent of
//! skills.

mod canon;
mod chat;
mod expand;
mod gemini;
mod keys;
mod markers;
mod messages;
mod read;
mod repair;
mod responses;
mod result_texts;
mod runs;
mod saved_turn;
mod scan;
mod seal;
mod sent_runs;
mod shown;
#[cfg(test)]
mod tests;
mod turn;
mod turn_match;

pub use expand::{Expansion, expand};
pub use keys::{Caller, HistorySecret, TurnKey};
pub use repair::may_need_repair;
pub use result_texts::{ResultTexts, RunText};
pub use runs::may_hold_runs;
pub use saved_turn::{FileNote, MAX_SAVED_BYTES, SavedMessage, SavedTurn, Segment};
pub use scan::{Chain, Lookup, Scan, may_hold_calls, opening, scan};
pub use seal::{AnswerKeys, SavedAnswer, keys, response_keys, round_note, running, seal};
pub use shown::is_our_use;
pub use turn::Turn;
pub use turn::{Link, Speaker};
pub use turn_match::{InjectionMode, TurnMatch};

use crate::route::Format;
pub use crate::shown_run::{ShownEnd, ShownRun};

/// The byte that identifies a format in keys and chains.
pub(crate) const fn tag(format: Format) -> u8 {
    match format {
        Format::Chat => b'c',
        Format::Responses => b'r',
        Format::Messages => b'm',
        Format::Gemini => b'g',
    }
}

/// The member of a user's message that takes all results of a turn, in formats where they share one message.
const fn merge_key(format: Format) -> Option<&'static str> {
    match format {
        Format::Chat | Format::Responses => None,
        Format::Messages => Some("content"),
        Format::Gemini => Some("parts"),
    }
}
