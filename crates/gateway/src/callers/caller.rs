//! The identity of a caller: a keyed hash of the credential, so that no credential is ever stored.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{HeaderMap, Uri};
use knack_serving::Peer;
use knack_vocabulary::HEADER_CLIENT;
use knack_wire::history::{Caller, HistorySecret};

use crate::providers::forwarded_headers::{CREDENTIAL_HEADERS, credential_parameter};

/// Keys of one request that are compared with each other: one in each credential header, and one in the query.
const KNOWN_MAX: usize = 8;
/// The scheme before a key.
const SCHEME: &[u8] = b"bearer";

/// The secret of callers' identities: of this process, or of all replicas of a gateway once a hub has sent it.
#[derive(Debug)]
pub struct CallerSecret(ArcSwap<HistorySecret>);

impl From<HistorySecret> for CallerSecret {
    fn from(secret: HistorySecret) -> Self {
        Self(ArcSwap::from_pointee(secret))
    }
}

impl CallerSecret {
    /// The secret in use.
    pub fn current(&self) -> Arc<HistorySecret> {
        self.0.load_full()
    }

    /// Switches to another secret: saved turns kept under the last one are no longer found.
    pub fn replace(&self, secret: HistorySecret) {
        self.0.store(Arc::new(secret));
    }
}

/// The caller of a request: every credential header it has, and the query parameters of raw Gemini callers. A key that is sent twice
/// counts once, since some SDKs send theirs in two headers. Requests without any credential share one identity.
pub fn identify(secret: &HistorySecret, headers: &HeaderMap, uri: &Uri) -> Caller {
    // Behind a client check the account is what counts; without one this header only adds to what identifies its sender.
    let names = CREDENTIAL_HEADERS.into_iter().chain([HEADER_CLIENT]);
    let of_headers = names
        .flat_map(|name| headers.get_all(name))
        .map(|value| strip_bearer(value.as_bytes()));
    let keys = of_headers
        .filter(|value| !value.is_empty())
        .chain(parameters(uri).map(str::as_bytes));
    let mut credential = Vec::with_capacity(96);
    let mut known: [&[u8]; KNOWN_MAX] = [&[]; KNOWN_MAX];
    let mut count = 0;
    for key in keys {
        if known.contains(&key) {
            continue;
        }
        if let Some(place) = known.get_mut(count) {
            *place = key;
            count += 1;
        }
        add(&mut credential, key);
    }
    Caller::new(secret, &credential)
}

/// Adds a part of a credential, with its length.
fn add(credential: &mut Vec<u8>, part: &[u8]) {
    credential.extend_from_slice(&(part.len() as u64).to_be_bytes());
    credential.extend_from_slice(part);
}

/// The account of a client that was checked, in the extensions of its requests.
#[derive(Debug, Clone)]
pub(crate) struct CheckedAccount(pub String);

/// The caller against whose limits a request counts: the account of a checked client, whatever keys it sends beside its
/// token; else the caller.
pub fn counted(secret: &HistorySecret, parts: &Parts) -> Caller {
    of_account(secret, parts).unwrap_or_else(|| identify(secret, &parts.headers, &parts.uri))
}

/// As [`counted`], of a request whose caller is known already.
pub fn counted_beside(caller: &Caller, secret: &HistorySecret, parts: &Parts) -> Caller {
    of_account(secret, parts).unwrap_or_else(|| caller.clone())
}

/// The account of a checked client; `None` where nobody checked.
fn of_account(secret: &HistorySecret, parts: &Parts) -> Option<Caller> {
    let CheckedAccount(account) = parts.extensions.get()?;
    let mut credential = Vec::with_capacity(96);
    add(&mut credential, account.as_bytes());
    Some(Caller::new(secret, &credential))
}

/// Peer address of an unauthenticated caller, which can invent keys. `None` for a checked client.
pub fn unchecked_address(parts: &Parts) -> Option<IpAddr> {
    let is_checked = parts.extensions.get::<CheckedAccount>().is_some();
    let peer = parts.extensions.get::<Peer>().filter(|_| !is_checked);
    peer.map(|peer| peer.address)
}

/// Whether a request has a credential of its own.
pub fn has_credential(headers: &HeaderMap, uri: &Uri) -> bool {
    let given = |name: &&str| {
        headers
            .get(*name)
            .is_some_and(|value| !strip_bearer(value.as_bytes()).is_empty())
    };
    CREDENTIAL_HEADERS.iter().any(given) || parameters(uri).next().is_some()
}

/// The pairs of a query that are credentials, as they were sent: a request that is made of another one has them too.
pub fn credential_query(uri: &Uri) -> String {
    let pairs = credential_pairs(uri).map(|(pair, _)| pair);
    pairs.collect::<Vec<_>>().join("&")
}

/// The credentials in a query.
fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    credential_pairs(uri).map(|(_, key)| key)
}

/// The pairs of a query that are credentials, each with its credential.
fn credential_pairs(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let credentials = pairs.filter_map(|pair| credential_parameter(pair).map(|key| (pair, key)));
    credentials.filter(|(_, key)| !key.is_empty())
}

/// One key is one caller, in whatever header an SDK sends it. Blanks at the end of a header do not arrive: `Bearer` alone is
/// the scheme of an empty key.
fn strip_bearer(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) && token.trim_ascii_start() != token => {
            token.trim_ascii()
        }
        Some((scheme, b"")) if scheme.eq_ignore_ascii_case(SCHEME) => b"",
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(headers: &[(&'static str, &'static str)], uri: &'static str) -> [u8; 32] {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            })
            .collect();
        identify(&HistorySecret::new([7; 32]), &headers, &Uri::from_static(uri)).bucket()
    }

    #[test]
    fn an_empty_key_is_no_credential() {
        for (name, value, uri, expected) in [
            ("authorization", "Bearer a", "/", true),
            ("authorization", "Bearer ", "/", false),
            ("authorization", "Bearer", "/", false),
            ("authorization", "bearer \t ", "/", false),
            ("authorization", "Bearers", "/", true),
            ("x-api-key", "", "/", false),
            ("x-goog-api-key", "a", "/", true),
            ("api-key", "a", "/", true),
            ("api-key", "", "/?api-version=2026-10-01", false),
            ("user-agent", "a", "/?key=a", true),
            ("user-agent", "a", "/?alt=sse&access_token=a", true),
            ("user-agent", "a", "/?key=&page=2", false),
        ] {
            let headers = [(
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )];
            let found = has_credential(&headers.into_iter().collect(), &Uri::from_static(uri));
            assert_eq!(found, expected, "{name}: {value} {uri}");
        }
    }

    #[test]
    fn a_checked_client_is_counted_as_its_account_whatever_it_sends_beside() {
        let counted = |account: Option<&str>, uri: &str, key: &str| {
            let request = http::Request::get(uri).header("authorization", key);
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            if let Some(account) = account {
                parts.extensions.insert(CheckedAccount(account.to_owned()));
            }
            super::counted(&HistorySecret::new([7; 32]), &parts).bucket()
        };
        let one = counted(Some("team/one/1"), "/v1/skills", "Bearer a");
        assert_eq!(one, counted(Some("team/one/1"), "/v1/skills?key=b", "Bearer c"));
        assert_ne!(one, counted(Some("team/two/1"), "/v1/skills", "Bearer a"));
        assert_eq!(
            one,
            identity(&[(HEADER_CLIENT, "team/one/1")], "/"),
            "as without such keys"
        );
        assert_ne!(
            counted(None, "/?key=a", "Bearer a"),
            counted(None, "/?key=b", "Bearer a")
        );
    }

    #[test]
    fn different_credentials_are_different_callers() {
        let a = identity(&[("authorization", "Bearer a")], "/");
        assert_eq!(
            a,
            identity(&[("authorization", "bearer a"), ("user-agent", "x")], "/v1/messages")
        );
        assert_eq!(a, identity(&[("authorization", "Bearer  a"), ("x-api-key", "")], "/"));
        assert_eq!(identity(&[], "/"), identity(&[("authorization", "Bearer")], "/"));
        // As SDKs send it that are given one key for two of their settings.
        for (header, uri) in [("x-api-key", "/"), ("api-key", "/"), ("user-agent", "/?key=a")] {
            assert_eq!(
                a,
                identity(&[("authorization", "Bearer a"), (header, "a")], uri),
                "{header} {uri}"
            );
        }
        let two = [("authorization", "Bearer a"), ("x-api-key", "b"), ("api-key", "a")];
        assert_eq!(identity(&two[..2], "/"), identity(&two, "/"));
        assert_ne!(identity(&two[1..], "/"), identity(&two[..2], "/"), "the order counts");
        for other in [
            identity(&[("authorization", "Bearer b")], "/"),
            identity(&[], "/"),
            identity(&[("authorization", "Bearer a"), ("x-api-key", "b")], "/"),
            // As clients of Azure OpenAI send it.
            identity(&[("api-key", "b")], "/?api-version=2026-10-01"),
            identity(&[], "/?access_token=b"),
        ] {
            assert_ne!(a, other);
        }
        assert_ne!(identity(&[], "/?key=a"), identity(&[], "/?key=b"));
    }
}
