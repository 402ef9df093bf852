//! Keys under which a saved turn is kept.
//!
//! Two keys lead to a saved turn: the ids of the client's calls that the answer ended in, or else the id of its last item where
//! the upstream keeps it, and the chain over everything the client saw up to the answer. Both are keyed hashes that contain the caller's credential, so one caller can never
//! reach the saved turn of another, and a leaked store reveals neither ids nor texts.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::turn::Link;
use crate::route::Format;

/// Shortest random part of a call id that may serve as a key, in bytes.
///
/// Hosted providers send 9 random bytes or more (`call_` and 24, `toolu_` and 24, bare 9). Compatible
/// servers that count (`call_0`, `call_1`) would lead two users of one API key to the same saved turn, so
/// such turns are found by the chain alone.
const MIN_RANDOM_ID_BYTES: usize = 8;

/// The gateway's secret for history keys: 32 random bytes of its process, or those that a hub gives all of its replicas.
#[derive(Clone)]
pub struct HistorySecret(Hmac<Sha256>);

impl HistorySecret {
    /// Wraps 32 bytes from a cryptographic random source.
    pub fn new(bytes: [u8; 32]) -> Self {
        // HMAC pads a short key with zeros; doing so here leaves no length to get wrong. The padded key is hashed here, once for
        // all callers.
        let mut key = [0; 64];
        key[..bytes.len()].copy_from_slice(&bytes);
        Self(<Hmac<Sha256> as Mac>::new(&key.into()))
    }
}

impl fmt::Debug for HistorySecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HistorySecret(..)")
    }
}

/// A key of the turn store: a keyed hash, which is meaningless without the secret.
pub type TurnKey = [u8; 32];

/// One caller of the gateway: the secret together with the credential of the request.
///
/// The credential is the raw value of whichever authentication header or parameter came in; a request
/// without one has the empty credential.
#[derive(Clone)]
pub struct Caller {
    mac: Hmac<Sha256>,
    bucket: TurnKey,
}

impl fmt::Debug for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Caller(..)")
    }
}

impl Caller {
    /// Binds the secret to a credential.
    pub fn new(secret: &HistorySecret, credential: &[u8]) -> Self {
        let mut mac = secret.0.clone();
        feed(&mut mac, credential);
        let bucket = finish(mac.clone(), b"caller", &[]);
        Self { mac, bucket }
    }

    /// The key of the caller itself: a store counts the caller's saved turns under it, and while it holds
    /// none, requests of this caller need no scan.
    pub const fn bucket(&self) -> TurnKey {
        self.bucket
    }

    /// The key of a turn that ended in client calls, or `None` where the ids are too guessable to identify a
    /// conversation. The order of the ids does not matter. The format is part of the key, as it is of every link: a
    /// saved turn is found by requests of its own format only.
    pub fn calls_key(&self, format: Format, call_ids: &[String]) -> Option<TurnKey> {
        if call_ids.is_empty() || !call_ids.iter().all(|id| is_random(id)) {
            return None;
        }
        let mut sorted: Vec<&[u8]> = call_ids.iter().map(String::as_bytes).collect();
        sorted.sort_unstable();
        let tag = [super::tag(format)];
        sorted.insert(0, &tag);
        Some(self.finish(b"calls", &sorted))
    }

    /// The key of the turn that ends at a link of the chain.
    pub fn chain_key(&self, link: &Link) -> TurnKey {
        self.finish(b"chain", &[link.as_bytes()])
    }

    /// The key of a response that a client may go on from by its id.
    pub fn response_key(&self, id: &str) -> TurnKey {
        self.finish(b"response", &[id.as_bytes()])
    }

    /// The key of a turn whose last item is this one, where its id cannot be guessed.
    pub fn item_key(&self, id: &str) -> Option<TurnKey> {
        is_random(id).then(|| self.finish(b"item", &[id.as_bytes()]))
    }

    /// The key of all conversations that begin with a link.
    pub fn opening_key(&self, link: &Link) -> TurnKey {
        self.finish(b"opening", &[link.as_bytes()])
    }

    /// A key for another purpose, of this caller alone: where something else of his is kept under a name, or what seals it.
    pub fn derived_key(&self, purpose: &str, name: &[u8]) -> TurnKey {
        self.finish(b"derived", &[purpose.as_bytes(), name])
    }

    fn finish(&self, kind: &[u8], fields: &[&[u8]]) -> TurnKey {
        finish(self.mac.clone(), kind, fields)
    }
}

fn finish(mut mac: Hmac<Sha256>, kind: &[u8], fields: &[&[u8]]) -> TurnKey {
    feed(&mut mac, kind);
    for field in fields {
        feed(&mut mac, field);
    }
    mac.finalize().into_bytes().into()
}

/// Feeds one field with its length before it, so that no two lists of fields look alike.
fn feed(mac: &mut Hmac<Sha256>, field: &[u8]) {
    mac.update(&(field.len() as u64).to_le_bytes());
    mac.update(field);
}

/// Whether an id has a random part that another conversation cannot have by chance.
fn is_random(id: &str) -> bool {
    let tail = id.rsplit(['_', '-']).next().unwrap_or(id);
    tail.len() >= MIN_RANDOM_ID_BYTES && !tail.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(secret: u8, credential: &str) -> Caller {
        Caller::new(&HistorySecret::new([secret; 32]), credential.as_bytes())
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn keys_differ_by_secret_and_by_credential() {
        let calls = ids(&["toolu_01Abcdefghijk"]);
        let key = caller(1, "a").calls_key(Format::Chat, &calls);
        assert!(key.is_some());
        assert_eq!(key, caller(1, "a").calls_key(Format::Chat, &calls));
        assert_ne!(key, caller(2, "a").calls_key(Format::Chat, &calls));
        assert_ne!(key, caller(1, "b").calls_key(Format::Chat, &calls));
    }

    #[test]
    fn the_same_call_ids_lead_to_a_saved_of_the_same_format_only() {
        let (caller, calls) = (caller(1, "a"), ids(&["toolu_01Abcdefghijk"]));
        let formats = [Format::Chat, Format::Messages, Format::Responses, Format::Gemini];
        let keys: std::collections::HashSet<_> = formats.map(|format| caller.calls_key(format, &calls)).into();
        assert_eq!(keys.len(), formats.len());
    }

    #[test]
    fn the_order_of_call_ids_does_not_matter_and_their_borders_do() {
        let caller = caller(1, "a");
        let key = |list: &[&str]| caller.calls_key(Format::Chat, &ids(list));
        assert_eq!(
            key(&["call_abcdefghi", "call_jklmnopqr"]),
            key(&["call_jklmnopqr", "call_abcdefghi"])
        );
        assert_ne!(
            key(&["call_abcdefghi", "call_jklmnopqr"]),
            key(&["call_abcdefghicall_jklmnopqr"])
        );
    }

    #[test]
    fn counted_call_ids_are_no_key() {
        for id in ["call_0", "call_12345678901", "1", "", "call_abc"] {
            assert_eq!(caller(1, "a").calls_key(Format::Chat, &ids(&[id])), None, "{id}");
        }
        assert_eq!(caller(1, "a").calls_key(Format::Chat, &[]), None);
    }

    #[test]
    fn derived_keys_differ_by_caller_purpose_and_name() {
        let key = |credential: &str, purpose: &str, name: &[u8]| caller(1, credential).derived_key(purpose, name);
        let one = key("a", "file", b"x");
        assert_eq!(one, key("a", "file", b"x"));
        for other in [
            key("b", "file", b"x"),
            key("a", "seal", b"x"),
            key("a", "filex", b""),
            key("a", "file", b"y"),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(one, caller(1, "a").bucket());
    }

    #[test]
    fn debug_output_has_no_secret() {
        let shown = format!("{:?} {:?}", HistorySecret::new([77; 32]), caller(77, "key"));
        assert!(!shown.contains("77") && !shown.contains("key"), "{shown}");
    }
}
