//! AUTO: scores skills against one request, exactly as OmniRoute does (docs/design/dialects.md#auto-scoring: its table, threshold and ties).
//!
//! | signal | points |
//! |---|---|
//! | the lower-case name occurs in the context | 6 |
//! | a name token is a context token | 2 each |
//! | a tag occurs in the context | 3 each, duplicates counted |
//! | a description token is a context token | 1 each |
//! | a token of the background reason is a name token | 2 each |
//! | such a token contains a tag or is contained in one | 2 each, once per token |
//! | tags name a provider: the request's is among them, or not | 2 once, or -2 once |
//!
//! The skills' side is prepared once ([`ScoreIndex`]); a request costs one pass over its text.

mod index;
mod patterns;
mod scorer;

use std::collections::BTreeSet;

pub use index::{ScoreIndex, ScoredSkill};
pub use scorer::Scorer;

/// A skill below this is not selected (`AUTO_MIN_SCORE`).
pub const MIN_SCORE: i32 = 3;
/// At most this many are selected (`AUTO_MAX_SKILLS`).
pub const MAX_SELECTED: usize = 5;
/// Shorter tokens are noise (`TOKEN_MIN_LEN`).
const MIN_TOKEN_BYTES: usize = 3;

/// The parts of a request that AUTO reads, all roles included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoContext {
    /// The client's `tools` member as JSON text; empty: none (which counts as `[]`).
    pub tools_json: String,
    /// Model id.
    pub model: String,
    /// Wire format words of OmniRoute (`sourceFormat`, `targetFormat`).
    pub formats: Vec<String>,
    /// Why a background request was made, if the client says so.
    pub background_reason: String,
    /// Every message in order.
    pub messages: Vec<AutoMessage>,
}

/// The texts of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoMessage {
    /// Whether a selection is made after this message (role `user`).
    pub user: bool,
    /// Its text parts joined by one space; `None` if it has no text part.
    pub text: Option<String>,
}

impl AutoContext {
    /// The lower-case text before the messages: tools, model, formats, reason, joined by one space.
    pub fn head(&self) -> String {
        let tools = if self.tools_json.is_empty() {
            "[]"
        } else {
            &self.tools_json
        };
        let mut head = tools.to_lowercase();
        let words = [self.model.as_str()]
            .into_iter()
            .chain(self.formats.iter().map(String::as_str));
        for part in words
            .chain([self.background_reason.as_str()])
            .filter(|part| !part.is_empty())
        {
            head.push(' ');
            head.push_str(&part.to_lowercase());
        }
        head
    }
}

/// The distinct tokens of a text: runs of ASCII letters and digits, lower case, at least 3 bytes.
pub fn tokens(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    split(&lower).map(str::to_owned).collect()
}

/// The distinct tokens of a skill's name; a capital after a lower-case letter or digit begins a new one.
pub fn name_tokens(name: &str) -> BTreeSet<String> {
    let mut spread = String::with_capacity(name.len() + 8);
    let mut previous = ' ';
    for c in name.chars() {
        if c.is_ascii_uppercase() && (previous.is_ascii_lowercase() || previous.is_ascii_digit()) {
            spread.push(' ');
        }
        spread.push(c);
        previous = c;
    }
    tokens(&spread)
}

/// Tokens of a text that is already lower case.
fn split(lower: &str) -> impl Iterator<Item = &str> {
    lower
        .split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()))
        .filter(|token| token.len() >= MIN_TOKEN_BYTES)
}
