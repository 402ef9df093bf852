//! A span's position in a trace, as W3C Trace Context writes it.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries it (W3C Trace Context, section 3.2).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendors' own words beside it; passed on as they came, and worth nothing without it (section 3.3).
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The lowest bit of the flags: this trace is recorded.
const SAMPLED: u8 = 1;

/// A trace and a span in it. Neither id is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span.
    pub span: u64,
    /// Whether it is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads `00-<32 hex>-<16 hex>-<2 hex>`. A later version is read as far as version 00 goes; anything else, and an id of
    /// zeros, is no context (section 3.2.2, 4.3).
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = (bytes.get(..55)?, &bytes[55..]);
        let dashes = [2, 35, 52].iter().all(|at| head[*at] == b'-');
        let version = hex(&head[..2])?;
        let known = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let trace = hex(&head[3..35])?;
        let span = u64::try_from(hex(&head[36..52])?).ok()?;
        let flags = u8::try_from(hex(&head[53..])?).ok()?;
        (dashes && known && trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            sampled: flags & SAMPLED != 0,
        })
    }

    /// The context that a request's headers carry; none if there are several.
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        Self::parse(value.to_str().ok()?)
    }

    /// The header's text.
    pub fn text(&self) -> String {
        format!(
            "00-{:032x}-{:016x}-{:02x}",
            self.trace,
            self.span,
            u8::from(self.sampled)
        )
    }

    /// Writes it into the headers of an outgoing request. `tracestate` is kept only if it belongs to a context that was
    /// understood.
    pub fn write(&self, headers: &mut HeaderMap) {
        if Self::of_headers(headers).is_none() {
            headers.remove(TRACESTATE);
        }
        if let Ok(value) = HeaderValue::from_str(&self.text()) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

/// Lower-case hex digits, at most 32 of them.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_the_recommendation_allows_is_read_and_nothing_else() {
        let context = TraceContext {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad_6b71_6920_3331,
            sampled: true,
        };
        let unsampled = TraceContext {
            sampled: false,
            ..context
        };
        for (text, expected) in [
            (TEXT, Some(context)),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
                Some(unsampled),
            ),
            // Flags that are not defined yet.
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", Some(context)),
            // A later version, with and without more behind it.
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some(context)),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what",
                Some(context),
            ),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what", None),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x", None),
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
            ("00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", None),
            ("00-é", None),
            ("", None),
        ] {
            assert_eq!(TraceContext::parse(text), expected, "{text}");
        }
        assert_eq!(context.text(), TEXT);
    }

    #[test]
    fn tracestate_is_passed_on_only_with_a_context_that_was_understood() {
        let next = TraceContext {
            trace: 1,
            span: 2,
            sampled: true,
        };
        for (given, kept) in [(Some(TEXT), true), (Some("00-bad"), false), (None, false)] {
            let mut headers = HeaderMap::new();
            headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
            if let Some(given) = given {
                headers.insert(TRACEPARENT, HeaderValue::from_static(given));
            }
            next.write(&mut headers);
            assert_eq!(headers[TRACEPARENT], next.text().as_str());
            assert_eq!(headers.contains_key(TRACESTATE), kept, "{given:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(TRACEPARENT, HeaderValue::from_static(TEXT));
        twice.append(TRACEPARENT, HeaderValue::from_static(TEXT));
        assert_eq!(TraceContext::of_headers(&twice), None);
    }
}
