//! Values as the hub holds them: sealed with a key of the client's, so that the hub's memory reveals nothing of a
//! conversation without its client's credential. Pure except for the nonce.

use bytes::Bytes;
use chacha20poly1305::aead::Aead as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, Nonce};
use knack_wire::history::Caller;
use serde::{Deserialize, Serialize};

use crate::files::{FileEntry, file_id};
use crate::model_calls::turn_store::KeyedHash;

/// Length of a nonce, bytes. Random: a key seals one name of one client, which is written a few times at most.
const NONCE_BYTES: usize = 12;
/// Length of the length before a file's description, bytes.
const LENGTH_BYTES: usize = 4;

/// Seals bytes that are kept under a name.
pub(super) fn seal(caller: &Caller, name: &KeyedHash, plain: &[u8]) -> Bytes {
    let nonce: [u8; NONCE_BYTES] = std::array::from_fn({
        let random = uuid::Uuid::new_v4().into_bytes();
        // The bytes of a version 4 UUID that are all random.
        move |at| random[if at < 6 { at } else { at + 4 }]
    });
    let mut sealed = nonce.to_vec();
    // It fails beyond 256 GiB only; what is left then opens to nothing.
    sealed.extend(
        cipher(caller, name)
            .encrypt(&Nonce::from(nonce), plain)
            .unwrap_or_default(),
    );
    sealed.into()
}

/// Opens what [`seal`] made; `None`: another client's, of another name, or changed.
pub(super) fn open(caller: &Caller, name: &KeyedHash, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    cipher(caller, name).decrypt(&Nonce::from(*nonce), sealed).ok()
}

fn cipher(caller: &Caller, name: &KeyedHash) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&caller.derived_key("seal", name).into())
}

/// Where a file of a response is kept.
pub(super) fn file_key(caller: &Caller, id: &str) -> KeyedHash {
    caller.derived_key("file", id.as_bytes())
}

/// The key of a file, by response and name.
pub(super) fn named_key(caller: &Caller, response: &str, name: &str) -> KeyedHash {
    file_key(caller, &file_id(response, name))
}

/// Where the list of a response's files is kept.
pub(super) fn list_key(caller: &Caller, response: &str) -> KeyedHash {
    caller.derived_key("files", response.as_bytes())
}

/// The description that is kept beside a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileDescription {
    /// When it was made, seconds since the Unix epoch.
    pub(super) made: u64,
    /// Name, type, length and digest.
    pub(super) entry: FileEntry,
}

/// The list of a response's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileList {
    /// When they were made, seconds since the Unix epoch.
    pub(super) made: u64,
    /// The files.
    pub(super) files: Vec<FileEntry>,
}

/// A file as one value.
pub(super) fn pack(about: &FileDescription, bytes: &[u8]) -> Vec<u8> {
    // Plain data: writing it cannot fail.
    let head = serde_json::to_vec(about).unwrap_or_default();
    let mut packed = Vec::with_capacity(LENGTH_BYTES + head.len() + bytes.len());
    packed.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    packed.extend_from_slice(&head);
    packed.extend_from_slice(bytes);
    packed
}

/// Reads what [`pack`] made; `None` for anything else, a file of another length or digest included.
pub(super) fn unpack(packed: Vec<u8>) -> Option<(FileDescription, Bytes)> {
    let packed = Bytes::from(packed);
    let length = u32::from_le_bytes(*packed.first_chunk::<LENGTH_BYTES>()?);
    let end = LENGTH_BYTES.checked_add(usize::try_from(length).ok()?)?;
    let about: FileDescription = serde_json::from_slice(packed.get(LENGTH_BYTES..end)?).ok()?;
    let bytes = packed.slice(end..);
    (knack_skill::digest::sha256(&bytes) == about.entry.sha256).then_some((about, bytes))
}

#[cfg(test)]
mod tests {
    use knack_wire::history::HistorySecret;

    use super::*;

    fn caller(credential: &str) -> Caller {
        Caller::new(&HistorySecret::new([3; 32]), credential.as_bytes())
    }

    #[test]
    fn a_value_opens_for_its_client_and_its_name_only() {
        let (mine, name) = (caller("key-a"), [1; 32]);
        let sealed = seal(&mine, &name, b"a hidden turn");
        assert_eq!(open(&mine, &name, &sealed).as_deref(), Some(&b"a hidden turn"[..]));
        assert!(memchr::memmem::find(&sealed, b"hidden").is_none());
        assert_ne!(seal(&mine, &name, b"a hidden turn"), sealed, "no two look alike");
        let mut changed = sealed.to_vec();
        changed[20] ^= 1;
        for (caller, name, bytes) in [
            (caller("key-b"), name, sealed.to_vec()),
            (mine.clone(), [2; 32], sealed.to_vec()),
            (mine.clone(), name, changed),
            (mine.clone(), name, sealed[..NONCE_BYTES].to_vec()),
            (mine, name, Vec::new()),
        ] {
            assert_eq!(open(&caller, &name, &bytes), None);
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was_and_nothing_else_does() {
        let about = FileDescription {
            made: 7,
            entry: FileEntry {
                name: "out/a.csv".to_owned(),
                mime_type: "text/csv".to_owned(),
                size_bytes: 3,
                sha256: knack_skill::digest::sha256("1,2"),
            },
        };
        let packed = pack(&about, b"1,2");
        assert_eq!(
            unpack(packed.clone()),
            Some((about.clone(), Bytes::from_static(b"1,2")))
        );
        for bad in [
            Vec::new(),
            vec![255; 4],
            packed[..packed.len() - 1].to_vec(),
            pack(&about, b"1,3"),
            vec![0, 0, 0, 0, b'x'],
        ] {
            assert_eq!(unpack(bad), None);
        }
        let one = named_key(&caller("a"), "resp_1", "a");
        assert_eq!(one, file_key(&caller("a"), &file_id("resp_1", "a")));
        assert_ne!(one, named_key(&caller("b"), "resp_1", "a"));
        assert_ne!(one, list_key(&caller("a"), &file_id("resp_1", "a")));
    }
}
