//! What finished rounds say beside their text and their calls, for the one message that the client sees.
//!
//! A stream hands it out as it comes. A body, and what is read of a stored answer, has it in the members of the last round:
//! reasoning is joined, lists go on, and of any other member the last one counts. Places in the text are counted from the
//! beginning of the whole text.

use crate::format::chat::layout::{self, Choice, between};
use crate::json::{self, Edits, Member, Span, ValueKind};

/// Most bytes that are carried on: as much as a turn of the loop may gather. What is beyond is left out.
const MAX_CARRIED: usize = 8 << 20;
/// Members that are put together elsewhere, or of which an answer has one and no more.
const OTHERWISE: [&[u8]; 7] = [
    b"role",
    b"content",
    b"tool_calls",
    b"function_call",
    b"refusal",
    b"audio",
    b"parsed",
];
/// Texts that go on from round to round.
const JOINED: [&[u8]; 2] = [b"reasoning_content", b"reasoning"];
/// The list whose elements name places in the text.
const ANNOTATIONS: &[u8] = b"annotations";
/// Characters between the texts of two rounds.
const GAP: usize = 2;

/// What the rounds before the running one said.
#[derive(Debug, Default)]
pub(super) struct EarlierRounds {
    members: Vec<(Vec<u8>, Carried)>,
    /// Elements of `logprobs.content` of the choices, joined by commas.
    logprobs: Vec<u8>,
    /// There were more than can be kept.
    lost_logprobs: bool,
    bytes: usize,
    /// Characters before the text of the running round, the gap included.
    shift: usize,
}

/// The value of a member.
#[derive(Debug)]
enum Carried {
    /// The content of a string, as written, without quotes.
    Text(Vec<u8>),
    /// Elements joined by commas.
    List(Vec<u8>),
    /// Anything else, as written.
    One(Vec<u8>),
}

impl EarlierRounds {
    /// Takes the message of a finished round. `shown`: its text was shown, and with it what names places in it.
    pub(super) fn take(&mut self, raw: &[u8], members: &[Member], shown: bool) {
        for member in members {
            let (key, value) = (member.key.of(raw), member.value);
            let is_of_text = key == ANNOTATIONS && !shown;
            if OTHERWISE.contains(&key) || is_of_text || is_blank(raw, value) || !self.has_room(value.len()) {
                continue;
            }
            let old = self.members.iter_mut().find(|(own, _)| own == key);
            match (old.map(|(_, old)| old), self.shift) {
                (Some(Carried::Text(text)), _) if is_text(raw, key, value) => {
                    text.extend_from_slice(json::raw_text(raw, value).unwrap_or_default());
                }
                (Some(Carried::List(list)), shift) if is_list(raw, value) => {
                    list.push(b',');
                    list.extend_from_slice(&elements(raw, key, value, shift));
                }
                (Some(old), shift) => *old = Carried::new(raw, key, value, shift),
                (None, shift) => self.members.push((key.to_vec(), Carried::new(raw, key, value, shift))),
            }
        }
    }

    /// Takes the log probabilities of a finished round whose text was shown.
    pub(super) fn take_logprobs(&mut self, content: &[u8]) {
        if self.has_room(content.len()) {
            push_elements(&mut self.logprobs, content);
        } else {
            self.lost_logprobs = true;
        }
    }

    /// The log probabilities of a finished round whose text was shown are not known.
    pub(super) const fn lose_logprobs(&mut self) {
        self.lost_logprobs = true;
    }

    /// The log probabilities of the texts before; `None`: not all of them are known.
    pub(super) fn logprobs(&self) -> Option<&[u8]> {
        (!self.lost_logprobs).then_some(&self.logprobs)
    }

    /// The text that stands before that of the next round.
    pub(super) fn follow(&mut self, shown_text: &[u8]) {
        let characters = json::unescape(shown_text).chars().count();
        self.shift = if characters == 0 { 0 } else { characters + GAP };
    }

    fn has_room(&mut self, more: usize) -> bool {
        let bytes = self.bytes + more;
        let fits = bytes <= MAX_CARRIED;
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    /// The places that annotations of the running round name, counted from the beginning of the whole text.
    pub(super) fn shift_annotations(&self, raw: &[u8], member: &Member, edits: &mut Edits) {
        if member.key.of(raw) == ANNOTATIONS && self.shift > 0 {
            for element in json::elements(raw, member.value).unwrap_or_default() {
                shift(raw, element, self.shift, edits);
            }
        }
    }

    /// Puts what was said before into the message of the last round; returns the members that it does not have.
    pub(super) fn join(&self, raw: &[u8], members: &[Member], edits: &mut Edits) -> Vec<Vec<u8>> {
        let mut missing = Vec::new();
        for (key, carried) in &self.members {
            let own = members.iter().find(|member| member.key.of(raw) == key);
            let Some(value) = own.map(|member| member.value) else {
                missing.push([b"\"", key.as_slice(), b"\":", &carried.written()].concat());
                continue;
            };
            match carried {
                _ if is_blank(raw, value) => edits.replace(value, carried.written()),
                Carried::Text(text) if is_text(raw, key, value) => edits.insert(value.start + 1, text.clone()),
                Carried::List(list) if is_list(raw, value) => {
                    edits.insert(value.start + 1, [list.as_slice(), b","].concat());
                }
                _ => {}
            }
        }
        for member in members {
            self.shift_annotations(raw, member, edits);
        }
        missing
    }

    /// Puts the log probabilities of the texts before into those of the last round. `dropped`: its text is not shown, and so is
    /// not what belongs to it.
    pub(super) fn join_logprobs(&self, raw: &[u8], choice: &Choice, dropped: bool, edits: &mut Edits) {
        // A message that is the whole document has no place beside it.
        if choice.at_root {
            return;
        }
        let whole = || written_logprobs(&self.logprobs, b"");
        let Some(own) = choice.logprobs else {
            return match (choice.no_logprobs, choice.message) {
                _ if self.logprobs.is_empty() => {}
                (Some(null), _) => edits.replace(null, whole()),
                (None, Some(message)) => edits.insert(message.end, [b",\"logprobs\":", &*whole()].concat()),
                (None, None) => {}
            };
        };
        let content = choice.logprobs_of(raw, "content");
        if dropped && !content.is_empty() {
            return edits.replace(own, whole());
        }
        if self.logprobs.is_empty() {
            return;
        }
        match json::get(raw, own, "content") {
            Some(list) if !content.is_empty() => {
                edits.insert(list.start + 1, [self.logprobs.as_slice(), b","].concat());
            }
            Some(list) => edits.replace(list, [b"[", self.logprobs.as_slice(), b"]"].concat()),
            None => {}
        }
    }
}

/// Log probabilities with these elements; `null` without any.
pub(super) fn written_logprobs(content: &[u8], refusal: &[u8]) -> Vec<u8> {
    let list = |elements: &[u8]| match elements {
        b"" => b"null".to_vec(),
        elements => [b"[", elements, b"]"].concat(),
    };
    if content.is_empty() && refusal.is_empty() {
        return b"null".to_vec();
    }
    let (content, refusal) = (list(content), list(refusal));
    [b"{\"content\":", &*content, b",\"refusal\":", &*refusal, b"}"].concat()
}

/// Adds elements to those of a list.
pub(super) fn push_elements(list: &mut Vec<u8>, more: &[u8]) {
    if !list.is_empty() && !more.is_empty() {
        list.push(b',');
    }
    list.extend_from_slice(more);
}

impl Carried {
    fn new(raw: &[u8], key: &[u8], value: Span, shift: usize) -> Self {
        if is_text(raw, key, value) {
            Self::Text(json::raw_text(raw, value).unwrap_or_default().to_vec())
        } else if is_list(raw, value) {
            Self::List(elements(raw, key, value, shift))
        } else {
            Self::One(value.of(raw).to_vec())
        }
    }

    fn written(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => [b"\"", text.as_slice(), b"\""].concat(),
            Self::List(list) => [b"[", list.as_slice(), b"]"].concat(),
            Self::One(value) => value.clone(),
        }
    }
}

fn is_text(raw: &[u8], key: &[u8], value: Span) -> bool {
    JOINED.contains(&key) && json::kind(raw, value) == Some(ValueKind::String)
}

/// Whether a value carries nothing; an empty list may be written with blanks.
fn is_blank(raw: &[u8], value: Span) -> bool {
    layout::blank(raw, value) || is_list(raw, value) && between(raw, value).is_empty()
}

fn is_list(raw: &[u8], value: Span) -> bool {
    json::kind(raw, value) == Some(ValueKind::Array)
}

/// The elements of a list; those of annotations name their places in the whole text.
fn elements(raw: &[u8], key: &[u8], list: Span, by: usize) -> Vec<u8> {
    if key != ANNOTATIONS || by == 0 {
        return between(raw, list).to_vec();
    }
    let own = between(raw, list);
    let whole = [b"[", own, b"]"].concat();
    let mut edits = Edits::new();
    for element in json::elements(&whole, Span::new(0, whole.len())).unwrap_or_default() {
        shift(&whole, element, by, &mut edits);
    }
    let shifted = edits.apply(&whole);
    between(&shifted, Span::new(0, shifted.len())).to_vec()
}

/// Adds to the places that an annotation names: in itself, or in the object that is named as its type
/// (`url_citation`).
fn shift(raw: &[u8], annotation: Span, by: usize, edits: &mut Edits) {
    let members = json::members(raw, annotation).unwrap_or_default();
    let within = members
        .iter()
        .flat_map(|member| json::members(raw, member.value).unwrap_or_default());
    for member in within.chain(members.iter().copied()) {
        if matches!(member.key.of(raw), b"start_index" | b"end_index")
            && let Some(place) = json::uint(raw, member.value)
        {
            edits.replace(member.value, place.saturating_add(by as u64).to_string());
        }
    }
}
