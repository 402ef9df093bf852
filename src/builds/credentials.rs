//! Authentication at a registry: user and password, and the parameters of its token challenge. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Why a registry did not serve a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RegistryError(pub String);

/// User and password of registries, from a `.dockerconfigjson`.
#[derive(Clone, Default)]
pub struct Credentials(Value);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads them. Errors: this is no JSON object.
    pub fn read(text: &[u8]) -> Result<Self, RegistryError> {
        let read: Value = serde_json::from_slice(text).map_err(|_| RegistryError(WRONG_CREDENTIALS.to_owned()))?;
        if read.get("auths").is_some_and(Value::is_object) {
            Ok(Self(read))
        } else {
            Err(RegistryError(WRONG_CREDENTIALS.to_owned()))
        }
    }

    /// `user:password` in Base64 for a registry.
    pub(super) fn of(&self, registry: &str) -> Option<String> {
        let auths = self.0.get("auths")?.as_object()?;
        let host = |key: &str| {
            let key = key.trim_start_matches("https://").trim_start_matches("http://");
            key.split('/').next().unwrap_or_default().to_owned()
        };
        let entry = auths.iter().find(|(key, _)| host(key) == registry)?.1;
        let part = |name: &str| entry.get(name)?.as_str();
        let split = || Some(STANDARD.encode(format!("{}:{}", part("username")?, part("password")?)));
        part("auth")
            .filter(|auth| !auth.is_empty())
            .map(str::to_owned)
            .or_else(split)
    }
}

const WRONG_CREDENTIALS: &str = "the registry's credentials are not a .dockerconfigjson; create the Secret with: kubectl create secret docker-registry";

/// The parameters of a challenge for tokens; `None` for any other challenge.
pub(super) fn parameters(challenge: &str) -> Option<Vec<(String, String)>> {
    let scheme = challenge.get(..7)?;
    if !scheme.eq_ignore_ascii_case("bearer ") {
        return None;
    }
    let mut rest = challenge.get(7..)?;
    let mut found = Vec::new();
    // Values are quoted, and may hold commas.
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some((value, next)) = after.split_once('"') else {
            break;
        };
        found.push((name.trim_matches([',', ' ']).to_ascii_lowercase(), value.to_owned()));
        rest = next;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_challenge_names_a_place_for_tokens() {
        let read = parameters(
            "Bearer realm=\"https://auth.example/token\",service=\"r.example\", scope=\"repository:a/b:pull,push\"",
        );
        let row = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read.unwrap(),
            [
                row("realm", "https://auth.example/token"),
                row("service", "r.example"),
                row("scope", "repository:a/b:pull,push")
            ]
        );
        for other in ["Basic realm=\"x\"", "", "Bear", "Bearer"] {
            assert_eq!(parameters(other), None, "{other}");
        }
        assert_eq!(parameters("Bearer realm=\"unterminated"), Some(vec![]));
    }

    #[test]
    fn credentials_are_for_the_registry_that_they_name() {
        let text = json!({"auths": {
            "https://r.example/v1/": {"auth": "dXNlcjpwYXNz"},
            "other.example:5000": {"username": "user", "password": "pass"},
            "r.example.evil": {"auth": "bm8="},
        }});
        let read = Credentials::read(text.to_string().as_bytes()).unwrap();
        for (registry, expected) in [
            ("r.example", Some("dXNlcjpwYXNz")),
            ("other.example:5000", Some("dXNlcjpwYXNz")),
            ("other.example", None),
        ] {
            assert_eq!(read.of(registry).as_deref(), expected, "{registry}");
        }
        assert!(!format!("{read:?}").contains("dXN"));
        assert!(Credentials::read(b"{}").is_err() && Credentials::read(b"user:pass").is_err());
    }
}
