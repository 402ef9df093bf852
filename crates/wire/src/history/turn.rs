//! A visible turn of a conversation.

use std::fmt;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::route::Format;

/// One visible turn: the elements of the conversation array that make it, and what the chain needs of it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Indices of its elements. More than one only in formats that cut an answer into items or frames.
    pub elements: Range<usize>,
    /// The role of the message.
    pub speaker: Speaker,
    /// The canonical form; `None` for system turns, which are not in the chain.
    pub canon: Option<Link>,
    /// Ids of the calls in an assistant turn, in order.
    pub calls: Vec<String>,
    /// The last item of an answer that the client names by its id instead of sending it (Responses `item_reference`).
    pub reference: Option<String>,
    /// Set for turns that are not in the request: the upstream keeps them. `calls` are those that the client answers.
    pub kept: Option<UpstreamHistory>,
}

/// Turns that the upstream keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamHistory {
    /// The response that the request goes on from; `None` for a conversation.
    pub response: Option<String>,
}

impl Turn {
    /// A system message: it has its place in the request and none in the chain.
    pub(crate) fn system(index: usize) -> Self {
        Self {
            elements: index..index + 1,
            speaker: Speaker::User,
            canon: None,
            calls: Vec::new(),
            reference: None,
            kept: None,
        }
    }
}

/// One link of the chain, or the canonical form of one message: a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Link(pub(super) [u8; 32]);

impl Link {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The link before any message, different for each format.
    pub(crate) fn origin(format: Format) -> Self {
        Self(Sha256::digest([b'h', super::tag(format)]).into())
    }

    /// The next link: this one and the canonical form of the next turn. A system turn is not in the chain.
    #[must_use]
    pub(crate) fn then(self, turn: &Turn) -> Self {
        let Some(canon) = turn.canon else { return self };
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(canon.0);
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Link({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// The role of a message, as far as the chain distinguishes roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model, and with it the gateway's answers.
    Assistant,
    /// A tool result that is a separate message.
    Tool,
}
