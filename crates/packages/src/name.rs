//! Names of Python packages (PEP 503, PEP 508).

/// Longest name; the longest on the public index is under 100.
const MAX_NAME_BYTES: usize = 128;

/// Whether a text is a name: letters, digits, `.`, `-`, `_`, with a letter or digit at both ends.
pub fn is_name(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_BYTES && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

/// The one spelling of a name: lower case, each run of `.`, `-`, `_` one `-`.
pub fn normalized(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        if matches!(letter, '.' | '-' | '_') {
            if !text.ends_with('-') {
                text.push('-');
            }
        } else {
            text.push(letter.to_ascii_lowercase());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reported_and_spelled_once() {
        for (text, spelled) in [
            ("Pillow", "pillow"),
            ("ruamel.yaml", "ruamel-yaml"),
            ("a__b.-c", "a-b-c"),
            ("x", "x"),
        ] {
            assert!(is_name(text), "{text}");
            assert_eq!(normalized(text), spelled);
        }
        for text in ["", "-a", "a-", "a b", "ä", ".", &"a".repeat(129)] {
            assert!(!is_name(text), "{text}");
        }
    }
}
