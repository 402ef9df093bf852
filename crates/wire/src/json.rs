//! Spans over JSON text: positions of values, without building a tree.
//!
//! Bodies are never rebuilt from structs. A scan returns the spans of the members of an object or the elements of an
//! array; a change is a list of (span, replacement) that [`Edits::apply`] writes in one pass. Everything that no edit
//! names is copied byte for byte, so key order, number spelling and unknown members survive.

mod edits;
mod scan;
mod strings;

use std::borrow::Cow;

pub use edits::Edits;
pub use scan::{JsonError, MAX_DEPTH, skip, space};
use scan::{expect, skip_nested, string};
pub use strings::{push_escaped, push_string, quoted, unescape};

/// A half-open range of bytes in a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The span from `start` up to `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// An empty span, to insert at.
    pub const fn at(offset: usize) -> Self {
        Self {
            start: offset,
            end: offset,
        }
    }

    /// The bytes of the span; empty if the span does not lie inside `src`.
    pub fn of(self, src: &[u8]) -> &[u8] {
        src.get(self.start..self.end).unwrap_or_default()
    }

    /// Length in bytes.
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// True for an empty span.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

/// One member of an object. The key span has no quotes; the value span has no surrounding white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The key as written, escapes included, without its quotes.
    pub key: Span,
    /// The value.
    pub value: Span,
}

impl Member {
    /// From the opening quote of the key to the end of the value.
    pub const fn whole(&self) -> Span {
        Span::new(self.key.start - 1, self.value.end)
    }
}

/// The kind of a value, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`
    Null,
}

/// The kind of the value at `span`; `None` if no value starts there.
pub fn kind(src: &[u8], span: Span) -> Option<ValueKind> {
    match src.get(span.start)? {
        b'{' => Some(ValueKind::Object),
        b'[' => Some(ValueKind::Array),
        b'"' => Some(ValueKind::String),
        b'-' | b'0'..=b'9' => Some(ValueKind::Number),
        b't' | b'f' => Some(ValueKind::Bool),
        b'n' => Some(ValueKind::Null),
        _ => None,
    }
}

/// Checks that the text is UTF-8 and holds exactly one JSON value, and returns the value's span.
pub fn document(src: &[u8]) -> Result<Span, JsonError> {
    std::str::from_utf8(src).map_err(|error| JsonError::Utf8 {
        at: error.valid_up_to(),
    })?;
    let start = space(src, 0);
    let end = skip(src, start)?;
    let rest = space(src, end);
    if rest == src.len() {
        Ok(Span::new(start, end))
    } else {
        Err(JsonError::Syntax { at: rest })
    }
}

/// Checks that the text is UTF-8 and holds exactly one object, and returns its members in order.
pub fn object(src: &[u8]) -> Result<Vec<Member>, JsonError> {
    std::str::from_utf8(src).map_err(|error| JsonError::Utf8 {
        at: error.valid_up_to(),
    })?;
    let start = space(src, 0);
    let (members, end) = scan_object(src, start)?;
    let rest = space(src, end);
    if rest == src.len() {
        Ok(members)
    } else {
        Err(JsonError::Syntax { at: rest })
    }
}

/// The members of the object at `span`, in order, duplicates included.
pub fn members(src: &[u8], span: Span) -> Result<Vec<Member>, JsonError> {
    scan_object(src, span.start).map(|(members, _)| members)
}

fn scan_object(src: &[u8], start: usize) -> Result<(Vec<Member>, usize), JsonError> {
    let mut found = Vec::with_capacity(8);
    if src.get(start) != Some(&b'{') {
        return Err(if start >= src.len() {
            JsonError::Cut
        } else {
            JsonError::Type {
                at: start,
                wanted: "an object",
            }
        });
    }
    let mut at = space(src, start + 1);
    if src.get(at) == Some(&b'}') {
        return Ok((found, at + 1));
    }
    loop {
        expect(src, at, b'"')?;
        let key_end = string(src, at)?;
        let key = Span::new(at + 1, key_end - 1);
        at = space(src, key_end);
        expect(src, at, b':')?;
        at = space(src, at + 1);
        let end = skip_nested(src, at, 1)?;
        found.push(Member {
            key,
            value: Span::new(at, end),
        });
        at = space(src, end);
        match src.get(at) {
            Some(b',') => at = space(src, at + 1),
            Some(b'}') => return Ok((found, at + 1)),
            Some(_) => return Err(JsonError::Syntax { at }),
            None => return Err(JsonError::Cut),
        }
    }
}

/// Whether a text has more commas outside of strings than this: no object and no array of it has more values than it has such commas, and
/// one. Reads up to the first string that is broken.
pub(crate) fn has_more_commas(src: &[u8], most: usize) -> bool {
    // Nearly every text has few in all.
    if memchr::memchr_iter(b',', src).count() <= most {
        return false;
    }
    let (mut at, mut found) = (0, 0);
    while let Some(mark) = memchr::memchr2(b'"', b',', &src[at..]) {
        at += mark;
        if src[at] == b',' {
            (at, found) = (at + 1, found + 1);
            if found > most {
                return true;
            }
        } else if let Ok(end) = string(src, at) {
            at = end;
        } else {
            return false;
        }
    }
    false
}

/// The elements of the array at `span`, in order.
pub fn elements(src: &[u8], span: Span) -> Result<Vec<Span>, JsonError> {
    each_element(src, span)?.collect()
}

/// As [`elements`], one by one: text after the last one taken is not read.
pub fn each_element(src: &[u8], span: Span) -> Result<Elements<'_>, JsonError> {
    if src.get(span.start) != Some(&b'[') {
        return Err(JsonError::Type {
            at: span.start,
            wanted: "an array",
        });
    }
    let first = space(src, span.start + 1);
    let next = (src.get(first) != Some(&b']')).then_some(first);
    Ok(Elements { src, next })
}

/// The elements of an array, one by one; ends with the array or with the first error.
#[derive(Debug, Clone)]
pub struct Elements<'s> {
    src: &'s [u8],
    /// Where the next one starts.
    next: Option<usize>,
}

impl Iterator for Elements<'_> {
    type Item = Result<Span, JsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.next.take()?;
        Some(skip_nested(self.src, start, 1).and_then(|end| {
            let at = space(self.src, end);
            match self.src.get(at) {
                Some(b',') => self.next = Some(space(self.src, at + 1)),
                Some(b']') => {}
                Some(_) => return Err(JsonError::Syntax { at }),
                None => return Err(JsonError::Cut),
            }
            Ok(Span::new(start, end))
        }))
    }
}

/// The elements of the list at `span`, where one object may stand for a list of one (the JSON form of protocol buffers).
pub fn one_or_more(src: &[u8], span: Span) -> Vec<Span> {
    if kind(src, span) == Some(ValueKind::Object) {
        return vec![span];
    }
    elements(src, span).unwrap_or_default()
}

/// The first element of the array at `span`; `None` if it is empty or not an array.
pub fn first_element(src: &[u8], span: Span) -> Option<Span> {
    each_element(src, span).ok()?.next()?.ok()
}

/// The last member with this key in a list of members, as most JSON readers take it.
pub fn member<'m>(src: &[u8], list: &'m [Member], key: &str) -> Option<&'m Member> {
    list.iter().rev().find(|member| key_is(src, member, key))
}

/// True if the member's key is `key`, escapes resolved.
pub fn key_is(src: &[u8], member: &Member, key: &str) -> bool {
    let raw = member.key.of(src);
    raw == key.as_bytes() || (memchr::memchr(b'\\', raw).is_some() && unescape(raw) == key)
}

/// An object whose members were found once, for several look-ups: each [`get`] reads the whole object.
#[derive(Debug, Clone)]
pub struct Object<'s> {
    src: &'s [u8],
    members: Vec<Member>,
}

impl<'s> Object<'s> {
    /// The object at `span`. Anything else has no members.
    pub fn of(src: &'s [u8], span: Span) -> Self {
        let members = members(src, span).unwrap_or_default();
        Self { src, members }
    }

    /// The value of `key`; `None` if absent.
    pub fn get(&self, key: &str) -> Option<Span> {
        member(self.src, &self.members, key).map(|member| member.value)
    }

    /// The text of the string member `key`.
    pub fn text(&self, key: &str) -> Option<Cow<'s, str>> {
        text(self.src, self.get(key)?)
    }
}

/// The value of `key` in the object at `span`; `None` if absent or not an object.
pub fn get(src: &[u8], span: Span, key: &str) -> Option<Span> {
    let list = members(src, span).ok()?;
    member(src, &list, key).map(|member| member.value)
}

/// Whether the value at `span` is an object without members. The text was read as a whole before.
pub fn is_empty_object(src: &[u8], span: Span) -> bool {
    span.of(src).first() == Some(&b'{') && space(src, span.start + 1) + 1 == span.end
}

/// Whether an object without members may be in this JSON text: not if this is false. Much faster than to read the text.
pub fn mentions_empty_object(text: &[u8]) -> bool {
    memchr::memchr_iter(b'}', text).any(|at| text[..at].trim_ascii_end().last() == Some(&b'{'))
}

/// The value at a path of keys.
pub fn path(src: &[u8], span: Span, keys: &[&str]) -> Option<Span> {
    keys.iter().try_fold(span, |span, key| get(src, span, key))
}

/// The string at `span`, unescaped; `None` if it is not a string. Lone surrogates become U+FFFD.
pub fn text(src: &[u8], span: Span) -> Option<Cow<'_, str>> {
    raw_text(src, span).map(unescape)
}

/// The content of the string at `span` as written, without its quotes.
pub fn raw_text(src: &[u8], span: Span) -> Option<&[u8]> {
    let raw = span.of(src);
    match raw {
        [b'"', inner @ .., b'"'] => Some(inner),
        _ => None,
    }
}

/// The text of the string member `key` of the object at `span`.
pub fn get_text<'s>(src: &'s [u8], span: Span, key: &str) -> Option<Cow<'s, str>> {
    text(src, get(src, span, key)?)
}

/// The non-negative integer at `span`.
pub fn uint(src: &[u8], span: Span) -> Option<u64> {
    std::str::from_utf8(span.of(src)).ok()?.parse().ok()
}

/// True if the value at `span` is `null`.
pub fn is_null(src: &[u8], span: Span) -> bool {
    span.of(src) == b"null"
}
