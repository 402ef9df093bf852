//! Hidden turns between requests (docs/design/conversation.md#hidden-turns).
//!
//! A client sends back only what it saw. What it did not see, the calls and results of ours, is kept as
//! a record under keyed hashes of the visible conversation, and put back when the same conversation
//! comes again:
//!
//! ```text
//! request      ──▶ scan ──▶ lookups ──▶ (the gateway's store) ──▶ expand ──▶ edits that put the hidden turns back
//! drive::Record ──▶ keys + seal ──▶ (the gateway's store)
//! ```
//!
//! The store is a soft cache of opaque bytes under 32-byte keys. It holds, for each caller (`Caller::bucket`),
//! records under one or two keys (`keys`), least recently used out, and answers whether the caller has any
//! record of a conversation that begins as this one (`opening`): without one, and without calls in the history,
//! no scan is needed. Losing a record is never an error, since what the client
//! sent is a valid conversation on its own; `expand` without records repairs only what a provider would
//! refuse. This module does not look anything up, does not know what a skill is, and runs nothing.

mod canon;
mod chat;
mod expand;
mod keys;
mod messages;
mod read;
mod record;
mod repair;
mod scan;
mod seal;
mod shown;
#[cfg(test)]
mod tests;

pub use canon::{Link, Speaker};
pub use expand::{Expansion, Hit, Mode, expand};
pub use keys::{Caller, HistorySecret, RecordKey};
pub use record::{FileNote, MAX_RECORD_BYTES, Piece, Record, Segment};
pub use repair::may_need_repair;
pub use scan::{Lookup, Scan, Turn, may_hold_calls, opening, scan};
pub use seal::{Keys, keys, seal};
pub use shown::{is_our_container, is_our_use};

use crate::route::Format;

/// The byte that stands for a format in records and chains.
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
