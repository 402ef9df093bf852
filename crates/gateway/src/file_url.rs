//! URLs of generated files, and paths in URLs.

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
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
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
