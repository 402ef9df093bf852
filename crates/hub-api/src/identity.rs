//! Names that both sides use for runtimes, versions and callers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `namespace/name` of a SkillRuntime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A text that is not `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a runtime must be namespace/name, in lower-case letters, digits and hyphens")]
pub struct ReadRuntimeNameError;

impl RuntimeName {
    /// Puts the two parts together, unchecked.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for RuntimeName {
    type Err = ReadRuntimeNameError;

    /// Both parts must be DNS labels (a namespace is one, and so is `metadata.name` of the kind).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').ok_or(ReadRuntimeNameError)?;
        if is_label(namespace) && is_label(name) {
            Ok(Self::new(namespace, name))
        } else {
            Err(ReadRuntimeNameError)
        }
    }
}

impl Serialize for RuntimeName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RuntimeName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// RFC 1123 label, at most 63 bytes.
pub fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    !bytes.is_empty()
        && bytes.len() <= knack_vocabulary::NAME_MAX_BYTES
        && bytes.iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// `GET /v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// [`super::PROTOCOL`] of the hub.
    pub protocol: u32,
    /// Version of the hub's program.
    pub version: String,
}

/// `POST /v1/clients`: a gateway asks whether one of its own clients may use a runtime.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClientCheck {
    /// The runtime that the client wants to use.
    pub runtime: RuntimeName,
    /// The client's projected token, with the audience [`knack_vocabulary::CLIENT_TOKEN_AUDIENCE`].
    pub token: String,
}

impl fmt::Debug for ClientCheck {
    /// A token is a credential: it is never shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientCheck")
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

/// The answer to a [`ClientCheck`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAuthorization {
    /// Whether the client may use the runtime.
    pub allowed: bool,
    /// `namespace/serviceaccount/uid` of the client, if the token is genuine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether the client sees everything that the gateway does. Otherwise, and with a hub that does not say, it sees what
    /// its namespace sees, for which the gateway asks by name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sees_all: bool,
    /// Why not; absent when allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long this decision may be used, seconds.
    pub valid_seconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_named_by_two_labels() {
        for (text, good) in [
            ("a/b", true),
            ("knack-sandboxes/default", true),
            ("a", false),
            ("a/b/c", false),
            ("/b", false),
            ("a/", false),
            ("A/b", false),
            ("-a/b", false),
            ("a/b-", false),
            ("a/..", false),
        ] {
            assert_eq!(text.parse::<RuntimeName>().is_ok(), good, "{text}");
        }
        let long = "x".repeat(64);
        assert!(format!("a/{long}").parse::<RuntimeName>().is_err());
    }

    #[test]
    fn a_token_is_never_shown() {
        let check = ClientCheck {
            runtime: RuntimeName::new("a", "b"),
            token: "secret".to_owned(),
        };
        assert!(!format!("{check:?}").contains("secret"));
    }
}
