//! Names that both sides use for runtimes, versions and callers.

use std::fmt;
use std::str::FromStr;

use knack_vocabulary::split_name;
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
        let (namespace, name) = split_name(text).ok_or(ReadRuntimeNameError)?;
        Ok(Self::new(namespace, name))
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

/// `namespace/name` of a ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccountName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A text that is not `namespace/name` of a ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a ServiceAccount must be namespace/name, in lower-case letters, digits and hyphens")]
pub struct ReadServiceAccountNameError;

impl ServiceAccountName {
    /// Puts the two parts together, unchecked.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ServiceAccountName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceAccountName {
    type Err = ReadServiceAccountNameError;

    /// Both parts must be DNS labels, as of a [`RuntimeName`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = split_name(text).ok_or(ReadServiceAccountNameError)?;
        Ok(Self::new(namespace, name))
    }
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
