//! URLs of generated files, and paths in URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are percent-encoded in a path: all but the unreserved ones of RFC 3986, and slashes.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// Where a person can fetch a file, if that is known.
pub fn file_url(public_url: Option<&str>, response_id: &str, name: &str) -> Option<String> {
    let base = public_url.filter(|_| !response_id.is_empty())?;
    Some(format!(
        "{base}/knack/v1/responses/{response_id}/files/{}",
        encode_path(name)
    ))
}

/// Percent-encodes a file path for a URL; slashes stay.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_segment_by_segment() {
        assert_eq!(encode_path("a/b c%?#.txt"), "a/b%20c%25%3F%23.txt");
        assert_eq!(encode_path("é"), "%C3%A9");
    }
}
