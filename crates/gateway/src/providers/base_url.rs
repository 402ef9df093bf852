//! The base address of a provider, and the address of a request below it.

use std::net::SocketAddr;

use super::hop;
use super::provider::Api;

/// Scheme, host and port of a provider, and perhaps a prefix of all paths. It is parsed once, since a request would spend
/// more on its host than on all else of its address.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// Without the prefix.
    pub(super) server: reqwest::Url,
    /// No slash at its end.
    prefix: String,
}

impl std::fmt::Debug for BaseUrl {
    /// Not its text: the address is the operator's own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BaseUrl").finish_non_exhaustive()
    }
}

impl BaseUrl {
    /// Parses a configured URL. The error does not repeat the text, which may hold a credential.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut server: reqwest::Url = text.parse().map_err(|_| "not a URL")?;
        if !matches!(server.scheme(), "http" | "https") {
            return Err("not an http or https URL");
        }
        if server.query().is_some() || server.fragment().is_some() {
            return Err("a URL with a query or a fragment, to which no request path can be appended");
        }
        if !server.username().is_empty() || server.password().is_some() {
            // They would go with every request of every client, also with those that an operator's key is not sent with.
            return Err("a URL with a user name or a password; remove them, and configure a key instead");
        }
        let prefix = server.path().trim_end_matches('/').to_owned();
        server.set_path("");
        Ok(Self { server, prefix })
    }

    /// Whether it leads to a gateway that listens here: a request would come back. Two addresses of this machine with one port may be
    /// of two servers.
    pub(crate) fn leads_to(&self, listen: SocketAddr) -> bool {
        let own = listen.ip().to_canonical();
        let is_own = match hop::address(&self.server) {
            Some(address) if !address.is_unspecified() && !own.is_unspecified() => address == own,
            _ => (own.is_loopback() || own.is_unspecified()) && hop::is_local(&self.server),
        };
        is_own && self.server.port_or_known_default() == Some(listen.port())
    }

    /// The address of a request. A base that already ends in `/v1` (as the OpenAI SDK's base URLs do) does not get a second
    /// one, nor does one of a server that is compatible to OpenAI's and has its version elsewhere, as `/v1beta/openai`. The
    /// SDKs of the other APIs have the version in the path of the request, whatever the base.
    pub(super) fn join(&self, api: Api, path_and_query: &str) -> reqwest::Url {
        let (path, query) = match path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path_and_query, None),
        };
        let is_versioned = api == Api::OpenAi && self.prefix.split('/').any(is_version);
        let path = if is_versioned || self.prefix.ends_with("/v1") {
            path.strip_prefix("/v1").unwrap_or(path)
        } else {
            path
        };
        let mut url = self.server.clone();
        if self.prefix.is_empty() {
            url.set_path(path);
        } else {
            url.set_path(&format!("{}{path}", self.prefix));
        }
        url.set_query(query);
        url
    }
}

/// Whether a segment of a path names a version, as `v1`, `v1beta` and `v4`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        name.len() < rest.len() && (name.is_empty() || name.starts_with("alpha") || name.starts_with("beta"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BaseUrl {
        BaseUrl::parse(text).unwrap()
    }

    #[test]
    fn bases_with_and_without_v1_give_one_path() {
        for (base, path, expected) in [
            ("http://a", "/v1/messages", "http://a/v1/messages"),
            (
                "http://a/v1",
                "/v1/chat/completions?x=1",
                "http://a/v1/chat/completions?x=1",
            ),
            ("http://a/v1/", "/chat/completions", "http://a/v1/chat/completions"),
            ("http://a/gw", "/v1/messages", "http://a/gw/v1/messages"),
            ("https://A:443/gw//", "/v1/x?", "https://a/gw/v1/x?"),
            (
                "http://a:81",
                "/v1beta/models/m:x?key=a%2Fb&alt=sse",
                "http://a:81/v1beta/models/m:x?key=a%2Fb&alt=sse",
            ),
            ("http://a/v1", "/v1/files/%2E%2Fx", "http://a/v1/files/%2E%2Fx"),
        ] {
            for api in Api::ALL {
                assert_eq!(url(base).join(api, path).as_str(), expected);
            }
        }
    }

    #[test]
    fn bases_of_compatible_servers_are_what_comes_before_the_path_of_openais_sdk() {
        for (base, expected) in [
            // DeepSeek and others without a version take it.
            (
                "https://api.deepseek.com",
                "https://api.deepseek.com/v1/chat/completions",
            ),
            (
                "https://openrouter.ai/api/v1",
                "https://openrouter.ai/api/v1/chat/completions",
            ),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai/",
                "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            ),
            (
                "https://a.openai.azure.com/openai/v1",
                "https://a.openai.azure.com/openai/v1/chat/completions",
            ),
            ("http://a/api/paas/v4", "http://a/api/paas/v4/chat/completions"),
            (
                "http://a/v1/account/gw/openai",
                "http://a/v1/account/gw/openai/chat/completions",
            ),
            (
                "http://a/v/vllm/version1",
                "http://a/v/vllm/version1/v1/chat/completions",
            ),
        ] {
            assert_eq!(url(base).join(Api::OpenAi, "/v1/chat/completions").as_str(), expected);
        }
        let other = url("http://a/v1/account/gw/anthropic");
        assert_eq!(
            other.join(Api::Anthropic, "/v1/messages").as_str(),
            "http://a/v1/account/gw/anthropic/v1/messages"
        );
    }

    #[test]
    fn a_base_that_leads_back_is_known_by_address_and_port() {
        for (base, listen, expected) in [
            ("http://127.0.0.1:8080/v1", "127.0.0.1:8080", true),
            ("http://127.0.0.1:8081", "127.0.0.1:8080", false),
            ("http://127.0.0.2:8080", "127.0.0.1:8080", false),
            ("http://127.0.0.2:8080", "0.0.0.0:8080", true),
            ("http://127.0.0.2:8080", "[::]:8080", true),
            ("http://localhost:8080", "127.0.0.1:8080", true),
            ("http://localhost:8080", "127.0.0.2:8080", true),
            ("http://localhost:8080", "[::1]:8080", true),
            ("http://0.0.0.0:8080", "127.0.0.1:8080", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://[::1]:8080", "127.0.0.1:8080", false),
            ("http://[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true),
            ("http://127.0.0.1", "127.0.0.1:80", true),
            ("https://localhost", "127.0.0.1:443", true),
            ("http://10.0.0.1:8080", "10.0.0.1:8080", true),
            ("http://10.0.0.1:8080", "0.0.0.0:8080", false),
            ("http://localhost:8080", "10.0.0.1:8080", false),
            ("http://api.example:8080", "0.0.0.0:8080", false),
        ] {
            let leads = url(base).leads_to(listen.parse().unwrap());
            assert_eq!(leads, expected, "{base} {listen}");
        }
    }

    #[test]
    fn what_is_no_base_is_refused_and_not_repeated() {
        for (text, error) in [
            ("", "not a URL"),
            ("api.example", "not a URL"),
            ("http://", "not a URL"),
            ("file:///etc", "not an http or https URL"),
            (
                "http://a/?api-version=1",
                "a URL with a query or a fragment, to which no request path can be appended",
            ),
            (
                "http://a/#x",
                "a URL with a query or a fragment, to which no request path can be appended",
            ),
            (
                "http://name:word@a/v1",
                "a URL with a user name or a password; remove them, and configure a key instead",
            ),
            (
                "https://name@a",
                "a URL with a user name or a password; remove them, and configure a key instead",
            ),
            (
                "https://:word@a",
                "a URL with a user name or a password; remove them, and configure a key instead",
            ),
        ] {
            assert_eq!(BaseUrl::parse(text), Err(error), "{text}");
        }
    }
}
