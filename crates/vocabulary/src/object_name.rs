//! What the namespace and the name of an object may be.

use super::NAME_MAX_BYTES;

/// RFC 1123 label, at most 63 bytes.
pub fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    !bytes.is_empty()
        && bytes.len() <= NAME_MAX_BYTES
        && bytes.iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The namespace and the name in a text `namespace/name`. Both must be labels (a namespace is one, and so is `metadata.name` of
/// Knack's kinds).
pub fn split_name(text: &str) -> Option<(&str, &str)> {
    let (namespace, name) = text.split_once('/')?;
    (is_label(namespace) && is_label(name)).then_some((namespace, name))
}
