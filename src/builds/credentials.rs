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

    /// `user:password` in Base64 for a repository: of the keys that cover it, the one with the longest path, and of those one that names
    /// the host rather than a pattern. The kubelet tries them in this order.
    pub(super) fn of(&self, of: &Reference) -> Option<String> {
        let auths = self.0.get("auths")?.as_object()?;
        let covering = auths
            .iter()
            .filter_map(|(key, entry)| Some((coverage(key, of)?, entry)));
        let (_, entry) = covering.max_by_key(|(coverage, _)| *coverage)?;
        let part = |name: &str| entry.get(name)?.as_str();
        let split = || Some(STANDARD.encode(format!("{}:{}", part("username")?, part("password")?)));
        part("auth")
            .filter(|auth| !auth.is_empty())
            .map(str::to_owned)
            .or_else(split)
    }
}

/// How well a key of credentials covers a repository, if it does: by the length of its path, which is empty for a whole registry, and
/// by whether it names the host. Keys are read as the kubelet reads them (`pkg/credentialprovider`), but for paths, which end here
/// where a part of the repository ends.
fn coverage(key: &str, of: &Reference) -> Option<(usize, bool)> {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    // The API that `docker login` names with the registry.
    let path = match path.split_once('/') {
        Some(("v1" | "v2", below)) => below,
        None if matches!(path, "v1" | "v2") => "",
        _ => path,
    };
    let path = path.trim_end_matches('/');
    let rest = of.repository.strip_prefix(path);
    let is_below = rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'));
    let is_named = serving_host(host) == of.registry;
    (is_below && (is_named || is_of_pattern(host, &of.registry))).then_some((path.len(), is_named))
}

/// Whether a host with a port is one of a pattern such as `*.azurecr.io`: `*` stands for letters of one part between dots, there are as
/// many parts, and the port is the same.
fn is_of_pattern(pattern: &str, host: &str) -> bool {
    let (pattern, wanted) = host_and_port(pattern);
    let (host, port) = host_and_port(host);
    let mut parts = pattern.split('.').zip(host.split('.'));
    pattern.contains('*')
        && wanted == port
        && pattern.split('.').count() == host.split('.').count()
        && parts.all(|(pattern, part)| is_of_part(pattern, part))
}

fn host_and_port(host: &str) -> (&str, Option<&str>) {
    host.split_once(':')
        .map_or((host, None), |(host, port)| (host, Some(port)))
}

fn is_of_part(pattern: &str, part: &str) -> bool {
    let mut fixed = pattern.split('*');
    let Some(mut rest) = fixed.next().and_then(|begin| part.strip_prefix(begin)) else {
        return false;
    };
    let Some(end) = fixed.next_back() else {
        return rest.is_empty();
    };
    for between in fixed {
        match rest.split_once(between) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(end)
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
            "*.azurecr.io": {"auth": "YWxs"},
            "https://*.azurecr.io/v2/team/": {"auth": "dGVhbXM="},
            "mine.azurecr.io": {"auth": "bWluZQ=="},
            "r*1.*.example:5000": {"auth": "cG9ydA=="},
            "a.*.example/team": {"auth": "cGF0aA=="},
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
            ("other.azurecr.io/a", Some("YWxs")),
            ("mine.azurecr.io/a", Some("bWluZQ==")),
            // A path says more than a host.
            ("mine.azurecr.io/team/a", Some("dGVhbXM=")),
            ("mine.azurecr.io/teams/a", Some("bWluZQ==")),
            ("azurecr.io/a", None),
            ("a.b.azurecr.io/a", None),
            ("other.azurecr.io:5000/a", None),
            ("other.azurecr.io.evil.example/a", None),
            ("r1.x.example:5000/a", Some("cG9ydA==")),
            ("r21.x.example:5000/a", Some("cG9ydA==")),
            ("r1.x.example/a", None),
            ("r1.x.example:5001/a", None),
            ("r12.x.example:5000/a", None),
            ("a.b.example/team/x", Some("cGF0aA==")),
            ("a.b.example/other", None),
        ] {
            let of = Reference::parse(image).unwrap();
            assert_eq!(read.of(&of).as_deref(), expected, "{image}");
        }
        assert!(!format!("{read:?}").contains("dXN"));
        assert!(Credentials::read(b"{}").is_err() && Credentials::read(b"user:pass").is_err());
    }
}
