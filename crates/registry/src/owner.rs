//! The owner of a skill or of an execution. Pure.

use std::borrow::Cow;
use std::fmt;

use knack_skill::digest::hex;
use serde::{Deserialize, Serialize};

/// Who may see a skill: on one machine a credential, on a cluster a namespace. Who may see an execution: the same credential; on a
/// cluster a ServiceAccount, or a client of the gateway that runs as it. Stored, sent and shown as text: the hash in lower-case hex,
/// `NAMESPACE`, `NAMESPACE/ACCOUNT` or `NAMESPACE/ACCOUNT#CLIENT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Owner {
    /// A credential, by its keyed hash in lower-case hex.
    Credential(String),
    /// Everybody who works in a namespace of a cluster.
    Namespace(String),
    /// A ServiceAccount of a cluster.
    Account {
        /// The namespace of the ServiceAccount.
        namespace: String,
        /// The name of the ServiceAccount.
        name: String,
        /// A client of the gateway that runs as it, by the hash that the gateway knows it by; `None`: the account itself, which sees
        /// what its clients see, and stands before them in the order of owners.
        client: Option<String>,
    },
}

/// Bytes of the hash of a credential.
const HASH_BYTES: usize = 32;
/// What is between the namespace of an account and its name: neither has it.
const BEFORE_ACCOUNT: char = '/';
/// What is between an account and its client: no hash and no name of a namespace or ServiceAccount has it.
const BEFORE_CLIENT: char = '#';

impl From<[u8; HASH_BYTES]> for Owner {
    fn from(hash: [u8; HASH_BYTES]) -> Self {
        Self::Credential(hex(&hash))
    }
}

/// Every text is an owner, and each owner has one text: what was stored is written again as it was.
impl From<String> for Owner {
    fn from(text: String) -> Self {
        if is_hash(&text) {
            return Self::Credential(text);
        }
        let Some((namespace, account)) = text.split_once(BEFORE_ACCOUNT) else {
            return Self::Namespace(text);
        };
        match account.split_once(BEFORE_CLIENT) {
            Some((name, client)) => Self::account(namespace, name, Some(client)),
            None => Self::account(namespace, account, None),
        }
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.to_string()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl Owner {
    /// Everybody who works in a namespace of a cluster.
    pub fn namespace(name: &str) -> Self {
        Self::Namespace(name.to_owned())
    }

    /// A ServiceAccount of a cluster, or a client of the gateway that runs as it, by the hash that the gateway knows it by.
    pub fn account(namespace: &str, name: &str, client: Option<&str>) -> Self {
        Self::Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            client: client.map(str::to_owned),
        }
    }

    /// Who shares a part of what all have: the namespace; on one machine the hash.
    #[must_use]
    pub fn group(&self) -> &str {
        match self {
            Self::Credential(name) | Self::Namespace(name) | Self::Account { namespace: name, .. } => name,
        }
    }

    /// The text that is stored.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Credential(text) | Self::Namespace(text) => text.into(),
            Self::Account {
                namespace,
                name,
                client: None,
            } => format!("{namespace}{BEFORE_ACCOUNT}{name}").into(),
            Self::Account {
                namespace,
                name,
                client: Some(client),
            } => format!("{namespace}{BEFORE_ACCOUNT}{name}{BEFORE_CLIENT}{client}").into(),
        }
    }

    /// The form that callers see: of a client of a gateway the hash alone, which is what the gateway itself knows.
    #[must_use]
    pub fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Account {
                client: Some(client), ..
            } => client.into(),
            _ => self.text(),
        }
    }

    /// Whether this owner sees the objects of `other`: its own, and an account also those of its clients, which follow it in the order
    /// of owners.
    #[must_use]
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Account {
                    namespace,
                    name,
                    client: None,
                },
                Self::Account {
                    namespace: of_other,
                    name: other_name,
                    ..
                },
            ) => (namespace, name) == (of_other, other_name),
            _ => self == other,
        }
    }
}

/// Whether a text is a hash as it is written here.
fn is_hash(text: &str) -> bool {
    text.len() == 2 * HASH_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_and_written_again_byte_for_byte() {
        let (hash, client) = ("0f".repeat(32), "11".repeat(32));
        for (text, expected) in [
            (hash.clone(), Owner::from([15; 32])),
            ("team".to_owned(), Owner::namespace("team")),
            ("team/app".to_owned(), Owner::account("team", "app", None)),
            (
                format!("team/app#{client}"),
                Owner::account("team", "app", Some(&client)),
            ),
            // What nothing writes, and a stranger's annotation or report may have.
            (String::new(), Owner::namespace("")),
            (hash.to_uppercase(), Owner::namespace(&hash.to_uppercase())),
            ("11".to_owned(), Owner::namespace("11")),
            (
                format!("{}é", "0".repeat(62)),
                Owner::namespace(&format!("{}é", "0".repeat(62))),
            ),
            ("team#x".to_owned(), Owner::namespace("team#x")),
            ("/".to_owned(), Owner::account("", "", None)),
            ("a/b/c#d#e".to_owned(), Owner::account("a", "b/c", Some("d#e"))),
        ] {
            let stored = serde_json::to_string(&text).unwrap();
            let read: Owner = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, expected, "{text}");
            assert_eq!(serde_json::to_string(&read).unwrap(), stored);
        }
    }

    #[test]
    fn an_account_covers_its_clients_and_they_follow_it() {
        let account = Owner::account("team", "app", None);
        let client = |name: &str| Owner::account("team", name, Some("11"));
        for (owner, other, covers) in [
            (&account, client("app"), true),
            (&account, account.clone(), true),
            (&account, client("app-2"), false),
            (&account, Owner::namespace("team"), false),
            (&Owner::namespace("team"), account.clone(), false),
            (&client("app"), account.clone(), false),
        ] {
            assert_eq!(owner.covers(&other), covers, "{owner} {other}");
        }
        let mut owners = [
            client("app-2"),
            client("app"),
            Owner::account("team", "app-2", None),
            account.clone(),
        ];
        owners.sort();
        assert!(
            owners
                .iter()
                .skip_while(|owner| **owner != account)
                .map(|owner| account.covers(owner))
                .eq([true, true, false, false])
        );
        assert_eq!(client("app").shown(), "11");
        assert_eq!((&*account.shown(), account.group()), ("team/app", "team"));
    }
}
