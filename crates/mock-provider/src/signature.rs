//! Signatures of thinking blocks: verifiable from the block alone, so that the provider need not remember anything.
//!
//! A signature covers the block's text and not its place. The place is checked through the ids of the tool calls of the
//! same answer: an id ends in a mark over the thinking blocks before it, so a dropped, added or reordered one shows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Key of the mock's signatures. It protects nothing; it makes a changed block detectable by every mock.
const KEY: &[u8] = b"knack mock provider, thinking blocks";
/// First bytes of a signature, so that it looks like the opaque texts of real ones.
const PREFIX: &str = "EqMock";
/// Separates the mark from the rest of a tool call id; the mark has 8 hex digits.
const MARK: &str = "_th";

fn mac(kind: &str, text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).expect("HMAC takes keys of any length");
    mac.update(kind.as_bytes());
    mac.update(&[0]);
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Signs the text of a thinking block.
pub fn sign(thinking: &str) -> String {
    format!("{PREFIX}{}", BASE64.encode(mac("thinking", thinking)))
}

/// Whether a signature belongs to the text.
pub fn verify(thinking: &str, signature: &str) -> bool {
    sign(thinking) == signature
}

/// Seals the text of a redacted thinking block into its `data`.
pub fn seal(text: &str) -> String {
    BASE64.encode(format!("{}.{text}", sign(text)))
}

/// Whether the `data` of a redacted thinking block was made by [`seal`].
pub fn verify_sealed(data: &str) -> bool {
    let Ok(bytes) = BASE64.decode(data) else { return false };
    let Ok(plain) = String::from_utf8(bytes) else {
        return false;
    };
    plain
        .split_once('.')
        .is_some_and(|(signature, text)| verify(text, signature))
}

/// Makes the `thoughtSignature` of an answer: it names the answer, so that one of another answer shows.
pub(super) fn thought(answer: &str) -> String {
    let digest = mac("thought", answer);
    BASE64.encode(format!("{answer}.{}", BASE64.encode(digest)))
}

/// The answer that a `thoughtSignature` was made for; `None` if it was not made here. Both alphabets are read, since the
/// Python SDK writes the one for URLs.
pub(super) fn thought_of(signature: &str) -> Option<String> {
    let bytes = BASE64.decode(signature.replace('-', "+").replace('_', "/")).ok()?;
    let plain = String::from_utf8(bytes).ok()?;
    let (answer, digest) = plain.split_once('.')?;
    (BASE64.encode(mac("thought", answer)) == digest).then(|| answer.to_owned())
}

/// The end of a tool call id that follows thinking blocks with these signatures (or sealed data), in order; empty
/// without any.
pub(super) fn mark(signatures: &[String]) -> String {
    if signatures.is_empty() {
        return String::new();
    }
    let digest = mac("place", &signatures.join("\n"));
    format!(
        "{MARK}{:02x}{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2], digest[3]
    )
}

/// The mark at the end of a tool call id, if it has one.
pub(super) fn mark_of(id: &str) -> Option<&str> {
    let at = id.rfind(MARK)?;
    let hex = &id[at + MARK.len()..];
    (hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(&id[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_belongs_to_its_text_only() {
        let signature = sign("Two calls.");
        assert!(verify("Two calls.", &signature));
        assert!(!verify("Two calls!", &signature));
        assert!(!verify("Two calls.", "EqQBCgIYAhIk"));
    }

    #[test]
    fn sealed_data_is_recognised_and_foreign_data_is_not() {
        assert!(verify_sealed(&seal("secret thought")));
        assert!(!verify_sealed("bm9uc2Vuc2U="));
        assert!(!verify_sealed("not base64"));
    }

    #[test]
    fn a_thought_names_its_answer_in_both_alphabets() {
        let signature = thought("mock0x1");
        assert_eq!(thought_of(&signature).as_deref(), Some("mock0x1"));
        let for_urls = signature.replace('+', "-").replace('/', "_");
        assert_eq!(thought_of(&for_urls).as_deref(), Some("mock0x1"));
        assert_eq!(thought_of("c2ln"), None);
    }

    #[test]
    fn the_mark_depends_on_the_blocks_and_their_order() {
        let (one, two) = (sign("a"), sign("b"));
        let mark_both = mark(&[one.clone(), two.clone()]);
        assert_ne!(mark_both, mark(&[two, one.clone()]));
        assert_ne!(mark_both, mark(&[one]));
        assert_eq!(mark_of(&format!("toolu_01x{mark_both}")), Some(mark_both.as_str()));
        assert_eq!(mark(&[]), "");
        assert_eq!(mark_of("toolu_01A"), None);
        assert_eq!(mark_of("toolu_thing"), None);
    }
}
