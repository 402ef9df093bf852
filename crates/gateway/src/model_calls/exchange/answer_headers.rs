//! The headers of a provider's answer that the exchange reads, and those of a stream of Knack.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Sets the headers of a stream that this gateway makes, so that neither a cache nor the buffer of a proxy delays it.
pub fn insert_stream_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The coding of a compressed body; `None` if it is as it is.
pub(crate) fn coding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!value.is_empty() && !value.eq_ignore_ascii_case("identity")).then(|| value.chars().take(CODING_SHOWN).collect())
}

/// Characters of a content coding that an error repeats: the registered ones are shorter.
const CODING_SHOWN: usize = 20;

/// The error for a compressed answer.
pub(crate) fn compressed(coding: &str) -> String {
    format!(
        "The upstream compressed its answer (content-encoding: {coding}) although no compression was requested, so skills cannot be \
         served; switch compression off between the gateway and the provider."
    )
}

/// The content type, if it is text.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
}

/// Whether a content type, whose words have any case, is that of events.
pub(crate) fn is_event_stream(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}

/// Whether a body that has no content type begins as events do, and as JSON does not.
pub(crate) fn begins_event(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    fields.iter().any(|field| bytes.starts_with(field))
}

/// `retry-after-ms` or `retry-after` in seconds; dates are rare and are taken as absent.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    static IN_MILLISECONDS: HeaderName = HeaderName::from_static("retry-after-ms");
    let number = |name: &HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().parse::<f64>().ok())
    };
    let seconds = number(&IN_MILLISECONDS)
        .map(|millis| millis / 1000.0)
        .or_else(|| number(&header::RETRY_AFTER))?;
    Duration::try_from_secs_f64(seconds).ok()
}
