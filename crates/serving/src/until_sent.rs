//! Answers that count until they are sent.

use bytes::Bytes;

struct Sent<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Sent<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of an answer, which drop `held` (a share of the memory, a permit) when the last of them is sent, or the
/// client has left.
pub fn until_sent(bytes: Bytes, held: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Sent { bytes, _held: held })
}
