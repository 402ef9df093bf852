//! Authentication at a registry: user and password, and the parameters of its token challenge. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::image::{Reference, serving_host};

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

    /// `user:password` in Base64 for a repository: of the keys that cover it, the one with the longest path, as the kubelet and
    /// container tools choose.
    pub(super) fn of(&self, of: &Reference) -> Option<String> {
        let auths = self.0.get("auths")?.as_object()?;
        let covering = auths
            .iter()
            .filter_map(|(key, entry)| Some((covered_path(key, of)?.len(), entry)));
        let (_, entry) = covering.max_by_key(|(length, _)| *length)?;
        let part = |name: &str| entry.get(name)?.as_str();
        let split = || Some(STANDARD.encode(format!("{}:{}", part("username")?, part("password")?)));
        part("auth")
            .filter(|auth| !auth.is_empty())
            .map(str::to_owned)
            .or_else(split)
    }
}

/// The path of a key of credentials, if it covers a repository: the whole registry has the empty one.
fn covered_path<'a>(key: &'a str, of: &Reference) -> Option<&'a str> {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = match path.trim_end_matches('/') {
        // The API that `docker login` names with the registry.
        "v1" | "v2" => "",
        path => path,
    };
    let rest = of.repository.strip_prefix(path);
    let is_below = rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'));
    (serving_host(host) == of.registry && is_below).then_some(path)
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
            "https://r.example/v1/": {"auth": "cg=="},
            "r.example/team": {"auth": "dGVhbQ=="},
            "r.example/team/environments/": {"auth": "ZW52"},
            "other.example:5000": {"username": "user", "password": "pass"},
            "r.example.evil": {"auth": "bm8="},
            "https://index.docker.io/v1/": {"auth": "aHVi"},
        }});
        let read = Credentials::read(text.to_string().as_bytes()).unwrap();
        for (image, expected) in [
            ("r.example/base", Some("cg==")),
            ("r.example/team/base", Some("dGVhbQ==")),
            ("r.example/teams/base", Some("cg==")),
            ("r.example/team/environments", Some("ZW52")),
            ("r.example/team/environments/a", Some("ZW52")),
            ("other.example:5000/a", Some("dXNlcjpwYXNz")),
            ("other.example/a", None),
            ("docker.io/team/env", Some("aHVi")),
            ("team/env", Some("aHVi")),
            ("debian", Some("aHVi")),
        ] {
            let of = Reference::parse(image).unwrap();
            assert_eq!(read.of(&of).as_deref(), expected, "{image}");
        }
        assert!(!format!("{read:?}").contains("dXN"));
        assert!(Credentials::read(b"{}").is_err() && Credentials::read(b"user:pass").is_err());
    }
}
