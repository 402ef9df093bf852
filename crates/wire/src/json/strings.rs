//! String content: escapes resolved and made.

use std::borrow::Cow;

/// Resolves the escapes of string content (without its quotes).
pub fn unescape(raw: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(found) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..found]);
        rest = &rest[found + 1..];
        let Some((&mark, after)) = rest.split_first() else {
            break;
        };
        rest = after;
        let plain = match mark {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => {
                rest = unescape_unit(rest, &mut out);
                continue;
            }
            other => other,
        };
        out.push(plain);
    }
    out.extend_from_slice(rest);
    Cow::Owned(match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

fn unescape_unit<'r>(raw: &'r [u8], out: &mut Vec<u8>) -> &'r [u8] {
    let Some(first) = hex4(raw) else {
        out.extend_from_slice("\u{fffd}".as_bytes());
        return raw;
    };
    let mut rest = &raw[4..];
    let mut code = u32::from(first);
    if (0xd800..0xdc00).contains(&code)
        && let [b'\\', b'u', low_raw @ ..] = rest
        && let Some(low) = hex4(low_raw)
        && (0xdc00..0xe000).contains(&low)
    {
        code = 0x1_0000 + ((code - 0xd800) << 10) + (u32::from(low) - 0xdc00);
        rest = &low_raw[4..];
    }
    let mut buffer = [0; 4];
    let char = char::from_u32(code).unwrap_or('\u{fffd}');
    out.extend_from_slice(char.encode_utf8(&mut buffer).as_bytes());
    rest
}

pub(super) fn hex4(raw: &[u8]) -> Option<u16> {
    raw.get(..4)?.iter().try_fold(0u16, |sum, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some((sum << 4) | u16::try_from(digit).ok()?)
    })
}

/// Appends `text` as a JSON string with its quotes.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends `text` with JSON escapes and without quotes.
pub fn push_escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[done..at]);
        done = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(other >> 4)]);
                out.push(HEX[usize::from(other & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[done..]);
}

/// `text` as a JSON string with its quotes.
pub fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    out
}
