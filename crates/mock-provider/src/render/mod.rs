//! An answer as bytes of its format: one body, or a list of events.

pub(super) mod chat;
pub(super) mod gemini;
pub(super) mod messages;
pub(super) mod responses;

/// Cuts a text into pieces of at most `chars` characters; an empty text has no piece.
fn pieces_of(text: &str, chars: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(chars.max(1)).map(|piece| piece.iter().collect()).collect()
}
