//! Bytes that count as long as there are any of them: answers until they are sent, bodies until their work is done.

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

/// Bytes that drop `held` (a share of the memory, a permit) with the last part of them: of an answer when it is sent, or the
/// client has left; of a body when nothing uses it any more.
pub fn until_sent(bytes: Bytes, held: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Sent { bytes, _held: held })
}
