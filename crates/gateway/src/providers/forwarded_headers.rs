//! Which headers go from the client to the provider, and back.

use http::{HeaderMap, HeaderValue, header};
use knack_vocabulary::HEADER_HOP;

/// Headers that carry a credential: hashed for identity, never logged. `api-key` is that of Azure OpenAI.
pub const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// Parameters of the query that carry a credential: those of Google's APIs, which no other provider has.
const CREDENTIAL_PARAMETERS: [&str; 3] = ["key", "access_token", "oauth_token"];

/// The credential in a pair of the query, as `key=abc`; `None` if it holds none.
pub(crate) fn credential_parameter(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    CREDENTIAL_PARAMETERS.contains(&name).then_some(value)
}

/// Hop-by-hop headers (RFC 9110 section 7.6.1), and those that describe a body which the gateway may change.
const NOT_FORWARDED: [&str; 12] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
    "host",
    "content-length",
    "accept-encoding",
];

/// The client's headers as they go upstream. Bodies are requested uncompressed: the gateway reads them. Of Knack's own headers the marks
/// of gateways are kept, until it is known where the request goes.
pub(crate) fn forward_request_headers(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len() + 1);
    let listed = connection_options(headers);
    for (name, value) in headers {
        let dropped = NOT_FORWARDED.contains(&name.as_str())
            || (name.as_str().starts_with("x-knack") && name != HEADER_HOP)
            || listed.iter().any(|option| option == name.as_str());
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    out
}

/// The provider's headers as they go to the client.
pub(crate) fn forward_response_headers(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len() + 2);
    let listed = connection_options(headers);
    for (name, value) in headers {
        if !NOT_FORWARDED.contains(&name.as_str()) && !listed.iter().any(|option| option == name.as_str()) {
            out.append(name, value.clone());
        }
    }
    out
}

/// Names that `Connection` lists are hop-by-hop too.
fn connection_options(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|option| option.trim().to_ascii_lowercase())
        .filter(|option| !option.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn hop_by_hop_and_knack_headers_stay_behind() {
        let headers: HeaderMap = [
            ("host", "x"),
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("content-length", "3"),
            ("x-knack-skills", "a"),
            ("x-knack-via", "knack"),
            ("x-knack-hop", "m"),
            ("anthropic-version", "2023-06-01"),
            ("authorization", "Bearer k"),
            ("accept-encoding", "gzip"),
        ]
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
        let out = forward_request_headers(&headers);
        let mut names: Vec<_> = out.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["accept-encoding", "anthropic-version", "authorization", "x-knack-hop"]
        );
        assert_eq!(out["accept-encoding"], "identity");
    }
}
