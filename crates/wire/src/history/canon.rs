//! The canonical form of a message and the chain over a conversation.
//!
//! A client sends back what it saw, rarely in the bytes that it saw: strings become arrays of parts,
//! key order changes, cache markers move, nulls appear, 1.0 becomes 1. The canonical form keeps what makes a message
//! the same message: role, text (parts joined, trimmed), call ids, names and arguments, results, and a
//! SHA-256 of every other block. Thinking, cache markers and nulls are left out.
//!
//! Each format feeds its messages into a `Canon`, field by field; the chain `h_i = SHA-256(h_{i-1},
//! canon(m_i))` is then the same code for all.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::turn::{Link, Speaker};

/// Ends a text. Never part of UTF-8, so no text can imitate the end of another.
const END: u8 = 0xff;

/// Builds the canonical form of one message. The order of calls, results and other blocks counts within their kind;
/// their position between texts does not.
#[derive(Debug, Clone)]
pub(crate) struct Canon {
    speaker: Speaker,
    text: String,
    rest: Sha256,
}

impl Canon {
    /// Starts a message.
    pub(crate) fn new(speaker: Speaker) -> Self {
        Self {
            speaker,
            text: String::new(),
            rest: Sha256::new(),
        }
    }

    /// Adds a part of the message's text, unescaped.
    pub(crate) fn text(&mut self, part: &str) {
        self.text.push_str(part);
    }

    /// Adds a call. `arguments` is JSON text; invalid JSON counts as written, and an empty text counts as `{}`.
    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: &[u8]) {
        self.rest.update(b"c");
        self.field(id);
        self.field(name);
        feed_json(
            &mut self.rest,
            if arguments.trim_ascii().is_empty() {
                b"{}"
            } else {
                arguments
            },
        );
    }

    /// Adds a result: the id of its call and its text.
    pub(crate) fn result(&mut self, call_id: &str, text: &str, is_error: bool) {
        self.rest.update(if is_error { b"e" } else { b"r" });
        self.field(call_id);
        self.field(text.trim());
    }

    /// Adds any other block or part: an image, a document, a hosted tool's block.
    pub(crate) fn other(&mut self, block: &[u8]) {
        let mut hash = Sha256::new();
        feed_json(&mut hash, block);
        self.rest.update(b"o");
        self.rest.update(hash.finalize());
    }

    /// The canonical form.
    pub(crate) fn finish(self) -> Link {
        let mut hash = Sha256::new();
        hash.update(match self.speaker {
            Speaker::User => b"u",
            Speaker::Assistant => b"a",
            Speaker::Tool => b"t",
        });
        hash.update(self.text.trim());
        hash.update([END]);
        hash.update(self.rest.finalize());
        Link(hash.finalize().into())
    }

    fn field(&mut self, text: &str) {
        self.rest.update(text);
        self.rest.update([END]);
    }
}

/// Feeds JSON text; what does not parse (cut arguments, nested too deep) counts by its bytes.
fn feed_json(hash: &mut Sha256, raw: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(raw) {
        feed_value(hash, &value);
    } else {
        hash.update(b"?");
        hash.update(Sha256::digest(raw));
    }
}

/// Feeds a JSON value so that key order, white space, string escapes, the spelling of numbers, nulls and cache markers make
/// no difference.
fn feed_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(flag) => hash.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => {
            // By value: clients that parse an answer write 1.0 as 1, or 1 as 1.0 (JavaScript; models of Python).
            hash.update(b"#");
            match number.as_f64() {
                // Without the sign of a zero.
                Some(value) => hash.update((value + 0.0).to_bits().to_be_bytes()),
                None => hash.update(number.to_string()),
            }
            hash.update([END]);
        }
        Value::String(text) => {
            hash.update(b"s");
            hash.update(text);
            hash.update([END]);
        }
        Value::Array(elements) => {
            hash.update(b"[");
            for element in elements {
                feed_value(hash, element);
            }
            hash.update(b"]");
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members
                .iter()
                .filter(|(key, value)| !value.is_null() && *key != "cache_control")
                .collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_str());
            hash.update(b"{");
            for (key, value) in sorted {
                hash.update(key);
                hash.update([END]);
                feed_value(hash, value);
            }
            hash.update(b"}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(block: &str) -> Link {
        let mut canon = Canon::new(Speaker::Assistant);
        canon.other(block.as_bytes());
        canon.finish()
    }

    #[test]
    fn numbers_count_by_their_value() {
        for (one, other) in [
            ("2024", "2024.0"),
            (r#"{"score":1.0}"#, r#"{"score":1}"#),
            ("1e3", "1000"),
            ("0.10", "0.1"),
            ("-0.0", "0"),
            // What JavaScript makes of it.
            ("12345678901234567890", "12345678901234567000"),
        ] {
            assert_eq!(link(one), link(other), "{one} {other}");
        }
        for (one, other) in [
            ("1", "1.5"),
            ("1", "-1"),
            ("1", r#""1""#),
            ("9007199254740991", "9007199254740992"),
        ] {
            assert_ne!(link(one), link(other), "{one} {other}");
        }
    }
}
