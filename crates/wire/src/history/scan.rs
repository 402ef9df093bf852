//! One pass over the visible history: the turns, the chain, and the keys to look up.

use super::keys::{Caller, TurnKey};
use super::turn::{Link, Speaker, Turn, UpstreamHistory};
use super::{chat, gemini, messages, responses};
use crate::json::Span;
use crate::request::Request;
use crate::route::Format;

/// The visible history of one request.
#[derive(Debug, Clone)]
pub struct Scan {
    pub(crate) elements: Vec<Span>,
    pub(crate) turns: Vec<Turn>,
    /// The link after each turn.
    links: Vec<Link>,
    chain: Chain,
}

/// The ends of a history's chain: what the keys of its answer are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    pub(crate) format: Format,
    /// The first link, as [`opening`] has it for a later request; `None`: there is no turn in the chain.
    pub(crate) opening: Option<Link>,
    /// The link after the last visible turn.
    pub(crate) end: Link,
}

/// Keys that may lead to the saved turn of one turn, in the order in which they are to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Index of the turn, for `TurnMatch`.
    pub turn: usize,
    /// At most two keys: the chain first, since it holds the whole conversation (or the id of the response that the request
    /// goes on from), then the call ids, or the id of the last item that the client names instead of sending it.
    pub keys: Vec<TurnKey>,
}

/// Reads the visible history of a request.
pub fn scan(request: &Request) -> Scan {
    let elements = request.conversation();
    let format = request.format();
    let mut turns = turns(format, request.raw(), &elements);
    if format == Format::Responses {
        turns.splice(0..0, responses::leading(request));
    }
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
        chain: Chain {
            format,
            opening: opening(request),
            end: link,
        },
    }
}

/// The first link of a conversation, which every later link depends on: a caller without a saved turn of a conversation that
/// begins so has none that the chain could lead to. Costs the first turn, not the whole history. `None`: there is no turn.
pub fn opening(request: &Request) -> Option<Link> {
    let format = request.format();
    let leading = (format == Format::Responses).then(|| responses::leading(request));
    let leading = leading.and_then(|turns| turns.into_iter().next());
    let first = leading.or_else(|| first_element(request));
    first.map(|turn| Link::origin(format).then(&turn))
}

/// The first element of a conversation that is in the chain, as a turn of its own: where several elements make a turn, the
/// first of them is the beginning.
fn first_element(request: &Request) -> Option<Turn> {
    let (format, src) = (request.format(), request.raw());
    request.each_element().find_map(|element| {
        let mut turns = turns(format, src, &[element]);
        turns.pop().filter(|turn| turn.canon.is_some())
    })
}

/// Whether the history may hold calls, by whose ids a saved turn may be found. May be true without any: a text may contain
/// the names too.
pub fn may_hold_calls(request: &Request) -> bool {
    let names: &[&str] = match request.format() {
        Format::Chat => &["\"tool_calls\"", "\"function_call\""],
        Format::Messages => &["\"tool_use\""],
        // The ends of the types of all calls and of their answers.
        Format::Responses => &[
            "_call\"",
            "_call_output\"",
            "\"mcp_approval_re",
            "\"item_reference\"",
            "\"previous_response_id\"",
        ],
        Format::Gemini => &["\"functionCall\"", "\"function_call\""],
    };
    let has = |name: &&str| memchr::memmem::find(request.raw(), name.as_bytes()).is_some();
    names.iter().any(has)
}

/// One turn for each message.
fn per_message(src: &[u8], elements: &[Span], turn: fn(&[u8], usize, Span) -> Turn) -> Vec<Turn> {
    let messages = elements.iter().enumerate();
    messages.map(|(index, span)| turn(src, index, *span)).collect()
}

/// The turns of a list of conversation elements.
pub(crate) fn turns(format: Format, src: &[u8], elements: &[Span]) -> Vec<Turn> {
    match format {
        Format::Chat => per_message(src, elements, chat::turn),
        Format::Messages => per_message(src, elements, messages::turn),
        Format::Responses => responses::turns(src, elements),
        Format::Gemini => gemini::turns(src, elements),
    }
}

impl Scan {
    /// The look-ups of this history: one for each assistant turn.
    pub fn lookups(&self, caller: &Caller) -> Vec<Lookup> {
        let assistants = self.turns.iter().zip(&self.links).enumerate();
        assistants
            .filter(|(_, (turn, _))| turn.speaker == Speaker::Assistant && turn.canon.is_some())
            .map(|(index, (turn, link))| {
                let first = match &turn.kept {
                    None => Some(caller.chain_key(link)),
                    Some(UpstreamHistory { response }) => response.as_ref().map(|id| caller.response_key(id)),
                };
                let of_item = || caller.item_key(turn.reference.as_deref()?);
                let second = caller.calls_key(self.chain.format, &turn.calls).or_else(of_item);
                Lookup {
                    turn: index,
                    keys: first.into_iter().chain(second).collect(),
                }
            })
            .collect()
    }

    /// The ends of the chain, for [`super::keys`]: small, where a scan is as long as the history.
    pub const fn chain(&self) -> Chain {
        self.chain
    }
}
