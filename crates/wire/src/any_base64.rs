//! Base64 as providers take it: in either alphabet, padded or not, and in lines.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};

const ANY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes of base64. Google's Python SDK writes the alphabet for URLs.
pub(crate) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    if text.as_bytes().iter().all(is_plain) {
        return ANY_BASE64.decode(text).ok();
    }
    let standard = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let standard = standard.map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    });
    ANY_BASE64.decode(standard.collect::<Vec<u8>>()).ok()
}
