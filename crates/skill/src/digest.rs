//! Digests as text.

pub use crate::tree::hex;
use sha2::{Digest as _, Sha256};

/// Lower-case hex SHA-256.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_digest_of_abc() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::sha256("abc"), expected);
    }
}
