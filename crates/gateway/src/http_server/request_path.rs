//! Paths that URL libraries change before they are sent.
//!
//! Whose request it is, and what it may do, is decided by its path as it came. With dot segments or a `\` another path would
//! arrive at a provider, or with the gateway's own token at the registry.

/// Why a path is refused: URL libraries would send another one; `None`: it arrives as it is.
pub(crate) fn refusal(path: &str) -> Option<String> {
    let what = if path.contains('\\') {
        "a backslash"
    } else if has_dot_segment(path) {
        "a dot segment"
    } else {
        return None;
    };
    Some(format!("The path {path} has {what}; send the path without."))
}

/// Whether a path has a segment `.` or `..`, in any encoding: URL libraries resolve them, and some servers decode `%2f` and `%5c`
/// before they do.
fn has_dot_segment(path: &str) -> bool {
    let has_dots = |path: &str| path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."));
    if !path.contains('%') {
        return has_dots(path);
    }
    let plain = decoded_percents(&path.to_ascii_lowercase());
    has_dots(&plain.replace("%2e", ".").replace("%2f", "/").replace("%5c", "/"))
}

/// A path with each `%25` that begins an escape decoded, however often it is encoded: `%252e` is `%2e` for a server that decodes twice.
/// One look at each byte: a path may have 64 KiB.
fn decoded_percents(path: &str) -> String {
    let mut parts = path.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('%');
        plain.push_str(part.trim_start_matches("25"));
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn paths_that_would_be_changed_are_seen_however_they_are_written() {
        for path in [
            "/v1/../files",
            "/v1/./x",
            "/v1/.",
            "/v1/%2e%2e/files",
            "/v1/%2E./files",
            "/v1/..%2ffiles",
            "/v1/%252e%252e/files",
            "/v1\\..\\files",
            "/v1/models\\x",
            "/v1/..%5cfiles",
            "/..",
        ] {
            assert!(refusal(path).is_some_and(|text| text.contains(path)), "{path}");
        }
        for path in [
            "/v1/models/gpt-4.1",
            "/v1/models/...",
            "/v1/models/org%2Fname",
            "/v1/files/a..b",
            "/.well-known/agent-skills/index.json",
        ] {
            assert_eq!(refusal(path), None, "{path}");
        }
    }

    #[test]
    fn escapes_that_are_encoded_again_and_again_cost_one_look_at_each_byte() {
        let (done, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let path = |end: &str| format!("/v1/%{}{end}", "25".repeat(1_000_000));
            done.send((has_dot_segment(&path("2e/x")), has_dot_segment(&path("2ex/x"))))
        });
        assert_eq!(heard.recv_timeout(Duration::from_mins(1)), Ok((true, false)));
    }
}
