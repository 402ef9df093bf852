//! The scanner: where a value ends, and why a text is not JSON.

use super::strings::hex4;

/// Deepest nesting that is accepted; deeper bodies are refused, so that no input costs unbounded work or stack.
pub const MAX_DEPTH: u32 = 128;

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
        /// The type that the caller needs, as in "an object".
        wanted: &'static str,
    },
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

pub(super) fn expect(src: &[u8], at: usize, byte: u8) -> Result<(), JsonError> {
    match src.get(at) {
        Some(found) if *found == byte => Ok(()),
        Some(_) => Err(JsonError::Syntax { at }),
        None => Err(JsonError::Cut),
    }
}

/// The end of the string whose opening quote is at `at`.
pub(super) fn string(src: &[u8], at: usize) -> Result<usize, JsonError> {
    let mut at = at + 1;
    loop {
        let rest = src.get(at..).ok_or(JsonError::Cut)?;
        let found = at + mark(rest).ok_or(JsonError::Cut)?;
        match src[found] {
            b'"' => return Ok(found + 1),
            b'\\' => {}
            _ => return Err(JsonError::Syntax { at: found }),
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

/// The first quote, backslash or control character: a control character in a string is written as an escape (RFC 8259,
/// section 7), and readers refuse a text that has it as it is.
///
/// Eight bytes at a time: a loop over bytes would be compiled to vectors only in a program that is linked at level 3, and `knack` is linked
/// for size. Most strings are keys, words, or text with a quote or a line break in every line, and end before a vector search has begun.
fn mark(rest: &[u8]) -> Option<usize> {
    const NEAR_WORDS: usize = 16;
    let (words, _) = rest.as_chunks::<8>();
    let (near, far) = words.split_at_checked(NEAR_WORDS).unwrap_or((words, &[]));
    if let Some(at) = mark_of_words(near) {
        return Some(at);
    }
    let mut passed = near.len() * 8;
    if !far.is_empty() {
        // A long string, such as an image: what is left of it is searched by vectors, and control characters in what was passed.
        let long = &rest[passed..];
        let found = memchr::memchr2(b'"', b'\\', long);
        let (plain, _) = long[..found.unwrap_or(long.len())].as_chunks::<8>();
        if let Some(at) = mark_of_words(plain) {
            return Some(passed + at);
        }
        passed += plain.len() * 8;
    }
    let last = rest[passed..]
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    Some(passed + last)
}

/// The first quote, backslash or control character in these words.
fn mark_of_words(words: &[[u8; 8]]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    // Bit 7 of each byte that is below `limit` (at most 0x80). A byte borrows from the next one only if it is below itself: the lowest
    // bit is exact, and none is set without one.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES * 0x80);
    words.iter().enumerate().find_map(|(index, word)| {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let marks = quote | backslash | below(word, 0x20);
        (marks != 0).then(|| index * 8 + marks.trailing_zeros() as usize / 8)
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
pub(super) fn skip_nested(src: &[u8], at: usize, outer: u32) -> Result<usize, JsonError> {
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
