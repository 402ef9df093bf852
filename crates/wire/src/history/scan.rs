//! One pass over the visible history: the turns, the chain, and the keys to look up.

use std::ops::Range;

use super::canon::{Link, Speaker};
use super::keys::{Caller, RecordKey};
use super::{chat, messages};
use crate::json::Span;
use crate::request::Request;
use crate::route::Format;

/// One visible turn: the elements of the conversation array that make it, and what the chain needs of it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Indices of its elements. More than one only in formats that cut an answer into items or frames.
    pub elements: Range<usize>,
    /// Who speaks.
    pub speaker: Speaker,
    /// The canonical form; `None` for system turns, which are not in the chain.
    pub canon: Option<Link>,
    /// Ids of the calls in an assistant turn, in order.
    pub calls: Vec<String>,
}

impl Turn {
    /// A system message: it has its place in the request and none in the chain.
    pub(crate) fn system(index: usize) -> Self {
        Self {
            elements: index..index + 1,
            speaker: Speaker::User,
            canon: None,
            calls: Vec::new(),
        }
    }
}

/// The visible history of one request.
#[derive(Debug, Clone)]
pub struct Scan {
    pub(crate) elements: Vec<Span>,
    pub(crate) turns: Vec<Turn>,
    end: Link,
    /// The link after each turn.
    links: Vec<Link>,
}

/// Keys that may lead to the record of one turn, in the order in which they are to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Index of the turn, for `Hit`.
    pub turn: usize,
    /// One or two keys: the chain first, since it holds the whole conversation, then the call ids.
    pub keys: Vec<RecordKey>,
}

/// Reads the visible history of a request. A conversation that is a bare string or missing has no turns.
pub fn scan(request: &Request) -> Scan {
    let elements = request.conversation();
    let format = request.format();
    let turns = turns(format, request.raw(), &elements);
    let mut link = Link::origin(format);
    let links = turns.iter().map(|turn| {
        link = link.then(turn);
        link
    });
    let links = links.collect();
    Scan {
        elements,
        turns,
        links,
        end: link,
    }
}

/// The first link of a conversation, which every later link depends on: a caller without a record of a conversation that
/// begins so has none that the chain could lead to. Costs the first turn, not the whole history. `None`: there is no turn.
pub fn opening(request: &Request) -> Option<Link> {
    let (format, src) = (request.format(), request.raw());
    let first = request.each_element().find_map(|element| {
        let mut turns = turns(format, src, &[element]);
        turns.pop().filter(|turn| turn.canon.is_some())
    });
    first.map(|turn| Link::origin(format).then(&turn))
}

/// Whether the history may hold calls, by whose ids a record may be found. True for too many: a text may name them too.
pub fn may_hold_calls(request: &Request) -> bool {
    let names: &[&str] = match request.format() {
        Format::Chat => &["\"tool_calls\"", "\"function_call\""],
        Format::Messages => &["\"tool_use\""],
        // Their histories are not read yet.
        Format::Responses | Format::Gemini => &[],
    };
    let has = |name: &&str| memchr::memmem::find(request.raw(), name.as_bytes()).is_some();
    names.iter().any(has)
}

/// The turns of a list of conversation elements.
pub(crate) fn turns(format: Format, src: &[u8], elements: &[Span]) -> Vec<Turn> {
    match format {
        Format::Chat => chat::turns(src, elements),
        Format::Messages => messages::turns(src, elements),
        Format::Responses | Format::Gemini => Vec::new(),
    }
}

impl Scan {
    /// The look-ups of this history: one for each assistant turn.
    pub fn lookups(&self, caller: &Caller) -> Vec<Lookup> {
        let assistants = self.turns.iter().zip(&self.links).enumerate();
        assistants
            .filter(|(_, (turn, _))| turn.speaker == Speaker::Assistant && turn.canon.is_some())
            .map(|(index, (turn, link))| {
                let keys = std::iter::once(caller.chain_key(link)).chain(caller.calls_key(&turn.calls));
                Lookup {
                    turn: index,
                    keys: keys.collect(),
                }
            })
            .collect()
    }

    /// The first link, as [`opening`] has it for a later request; `None`: there is no turn in the chain.
    pub(crate) fn opening(&self) -> Option<Link> {
        let first = self.turns.iter().position(|turn| turn.canon.is_some())?;
        self.links.get(first).copied()
    }

    /// The link after the last visible turn.
    pub fn end(&self) -> Link {
        self.end
    }
}
