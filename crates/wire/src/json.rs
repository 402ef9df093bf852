//! Spans over JSON text: positions of values, without building a tree.
//!
//! Bodies are never rebuilt from structs. A scan returns the spans of the members of an object or the elements of an
//! array; a change is a list of (span, replacement) that [`Edits::apply`] writes in one pass. Everything that no edit
//! names is copied byte for byte, so key order, number spelling and unknown members survive.

mod edits;
mod strings;

use std::borrow::Cow;

pub use edits::Edits;
use strings::hex4;
pub use strings::{push_escaped, push_string, quoted, unescape};

/// Deepest nesting that is accepted; deeper bodies are refused, so that no input costs unbounded work or stack.
pub const MAX_DEPTH: u32 = 128;

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

    /// An empty span: a place to insert at.
    pub const fn at(place: usize) -> Self {
        Self {
            start: place,
            end: place,
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

/// Why a text is not acceptable JSON. Positions are byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not UTF-8.
    #[error("byte {at} is not valid UTF-8")]
    Utf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// The grammar is broken.
    #[error("unexpected byte at {at}")]
    Syntax {
        /// Offset of the byte that does not fit.
        at: usize,
    },
    /// The text ends inside a value.
    #[error("the JSON text ends too early")]
    Cut,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels at byte {at}")]
    Depth {
        /// Offset of the bracket that is too deep.
        at: usize,
    },
    /// The value has another type than the caller needs.
    #[error("the value at byte {at} is not {wanted}")]
    Type {
        /// Offset of the value.
        at: usize,
        /// What was needed, as in "an object".
        wanted: &'static str,
    },
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

/// What a value is, by its first byte.
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

/// The value of `key` in the object at `span`; `None` if absent or not an object.
pub fn get(src: &[u8], span: Span, key: &str) -> Option<Span> {
    let list = members(src, span).ok()?;
    member(src, &list, key).map(|member| member.value)
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

/// The first byte at or after `at` that is not JSON white space.
pub fn space(src: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = src.get(at) {
        at += 1;
    }
    at
}

/// The end of the value that starts at `at`.
pub fn skip(src: &[u8], at: usize) -> Result<usize, JsonError> {
    skip_nested(src, at, 0)
}

fn expect(src: &[u8], at: usize, byte: u8) -> Result<(), JsonError> {
    match src.get(at) {
        Some(found) if *found == byte => Ok(()),
        Some(_) => Err(JsonError::Syntax { at }),
        None => Err(JsonError::Cut),
    }
}

/// The end of the string whose opening quote is at `at`.
fn string(src: &[u8], at: usize) -> Result<usize, JsonError> {
    let mut at = at + 1;
    loop {
        let rest = src.get(at..).ok_or(JsonError::Cut)?;
        let found = at + mark(rest).ok_or(JsonError::Cut)?;
        if src[found] == b'"' {
            return Ok(found + 1);
        }
        match src.get(found + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at = found + 2,
            Some(b'u') => {
                let rest = &src[found + 2..];
                if hex4(rest).is_none() {
                    return Err(if rest.len() < 4 {
                        JsonError::Cut
                    } else {
                        JsonError::Syntax { at: found }
                    });
                }
                at = found + 6;
            }
            Some(_) => return Err(JsonError::Syntax { at: found + 1 }),
            None => return Err(JsonError::Cut),
        }
    }
}

/// The first quote or backslash.
fn mark(rest: &[u8]) -> Option<usize> {
    // Most strings are keys and words: a vector search costs more to begin than they are long.
    const NEAR: usize = 16;
    let is_mark = |byte: &u8| matches!(byte, b'"' | b'\\');
    let near = rest.get(..NEAR).unwrap_or(rest);
    near.iter().position(is_mark).or_else(|| {
        let far = rest.get(NEAR..)?;
        memchr::memchr2(b'"', b'\\', far).map(|at| NEAR + at)
    })
}

/// The end of a number, `true`, `false` or `null`.
fn scalar(src: &[u8], at: usize) -> Result<usize, JsonError> {
    for word in [&b"true"[..], b"false", b"null"] {
        if src[at..].starts_with(word) {
            return Ok(at + word.len());
        }
    }
    let digits = |mut at: usize| {
        let from = at;
        while src.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == from {
            Err(if at >= src.len() {
                JsonError::Cut
            } else {
                JsonError::Syntax { at }
            })
        } else {
            Ok(at)
        }
    };
    let start = if src.get(at) == Some(&b'-') { at + 1 } else { at };
    let mut end = digits(start)?;
    if src[start] == b'0' && end > start + 1 {
        return Err(JsonError::Syntax { at: start + 1 });
    }
    if src.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if let Some(b'e' | b'E') = src.get(end) {
        let sign = usize::from(matches!(src.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Ok(end)
}

/// Skips one value without recursion: one bit per open bracket distinguishes objects from arrays.
fn skip_nested(src: &[u8], at: usize, outer: u32) -> Result<usize, JsonError> {
    let mut at = at;
    let mut objects: u128 = 0;
    let mut depth = 0;
    loop {
        // A value starts here.
        match src.get(at) {
            None => return Err(JsonError::Cut),
            Some(b'"') => at = string(src, at)?,
            Some(&open @ (b'{' | b'[')) => {
                if depth + outer >= MAX_DEPTH {
                    return Err(JsonError::Depth { at });
                }
                depth += 1;
                objects = (objects << 1) | u128::from(open == b'{');
                at = space(src, at + 1);
                let close = if open == b'{' { b'}' } else { b']' };
                if src.get(at) != Some(&close) {
                    if open == b'{' {
                        at = key(src, at)?;
                    }
                    continue;
                }
                at += 1;
                depth -= 1;
                objects >>= 1;
            }
            Some(_) => at = scalar(src, at)?,
        }
        // A value has ended: close what closes here.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            at = space(src, at);
            let in_object = objects & 1 == 1;
            match src.get(at) {
                None => return Err(JsonError::Cut),
                Some(b',') => {
                    at = space(src, at + 1);
                    if in_object {
                        at = key(src, at)?;
                    }
                    break;
                }
                Some(b'}') if in_object => {}
                Some(b']') if !in_object => {}
                Some(_) => return Err(JsonError::Syntax { at }),
            }
            at += 1;
            depth -= 1;
            objects >>= 1;
        }
    }
}

/// From the quote of a key to the start of its value.
fn key(src: &[u8], at: usize) -> Result<usize, JsonError> {
    expect(src, at, b'"')?;
    let at = space(src, string(src, at)?);
    expect(src, at, b':')?;
    Ok(space(src, at + 1))
}
