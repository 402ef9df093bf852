//! The APIs of providers.

use clap::ValueEnum;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Uri};
use knack_registry::namespace_place;
use knack_wire::Format;

use super::forwarded_headers::{CREDENTIAL_HEADERS, credential_parameter};

/// The API that a request uses: selects one of the configured addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Api {
    /// Chat Completions, Responses and everything under OpenAI's paths.
    #[value(name = "openai")]
    OpenAi,
    /// Messages and everything with an `anthropic-version` header, or with Anthropic's credential alone.
    Anthropic,
    /// generateContent.
    Gemini,
}

impl Api {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// The name in flags, manifests and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// The public address, used when none is configured.
    pub const fn default_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com",
        }
    }

    /// The API of a wire format.
    pub(crate) const fn of_format(format: Format) -> Self {
        match format {
            Format::Chat | Format::Responses => Self::OpenAi,
            Format::Messages => Self::Anthropic,
            Format::Gemini => Self::Gemini,
        }
    }

    /// The API of a request that is proxied untouched: decided by the headers its SDK always sends, then by the path and the
    /// query. A credential of one provider is never sent to another.
    ///
    /// In LiteLLM's API of skills its client names the provider in the query, and has the header of none; where there is one, it
    /// decides.
    pub(crate) fn of_request(uri: &Uri, headers: &HeaderMap) -> Self {
        if headers.contains_key("anthropic-version") || has_key_of_anthropic(uri, headers) {
            Self::Anthropic
        } else if headers.keys().any(is_of_google)
            || is_path_of_google(uri.path())
            || (has_key(uri.query()) && !headers.contains_key(AUTHORIZATION))
        {
            Self::Gemini
        } else {
            named_for_skills(uri).unwrap_or(Self::OpenAi)
        }
    }
}

/// The provider that a request about skills names by LiteLLM's parameter.
fn named_for_skills(uri: &Uri) -> Option<Api> {
    if !uri.path().split('/').any(|segment| segment == "skills") {
        return None;
    }
    let named = knack_registry::parameters(uri.query()).find(|(key, _)| key == "custom_llm_provider");
    match named?.1.as_str() {
        "anthropic" => Some(Api::Anthropic),
        "openai" => Some(Api::OpenAi),
        _ => None,
    }
}

/// Whether the one credential is where Anthropic's API takes it. A caller without an SDK may leave the version out.
fn has_key_of_anthropic(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut others = CREDENTIAL_HEADERS.iter().filter(|name| **name != KEY_OF_ANTHROPIC);
    headers.contains_key(KEY_OF_ANTHROPIC) && !others.any(|name| headers.contains_key(*name)) && !has_key(uri.query())
}

/// Where Anthropic's API takes a credential; no other provider does.
const KEY_OF_ANTHROPIC: &str = "x-api-key";

/// Headers of Google's SDKs (`x-goog-api-key`, `x-goog-api-client`, `x-goog-user-project`).
fn is_of_google(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-goog-")
}

/// Versions that only Google's API has, models on Vertex AI, there under `v1` too, and the websockets of both.
fn is_path_of_google(path: &str) -> bool {
    let is_version = |segment: &str| matches!(segment, "v1alpha" | "v1beta" | "v1beta1");
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    // A namespace may have such a name.
    let name = namespace_place(&segments);
    let mut numbered = segments.iter().enumerate();
    numbered.any(|(at, segment)| is_version(segment) && name != Some(at))
        || path.contains("/publishers/google/")
        || path.contains("/ws/google.")
}

/// Whether the credential is in the query, as Google's API takes it.
fn has_key(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| credential_parameter(pair).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_the_provider_whose_credential_it_has() {
        for (uri, header, expected) in [
            ("/v1/embeddings", "authorization", Api::OpenAi),
            ("/v1/models", "x-stainless-lang", Api::OpenAi),
            ("/v1/models?limit=2&monkey=1", "authorization", Api::OpenAi),
            ("/v1/models", "anthropic-version", Api::Anthropic),
            ("/v1/models", "x-api-key", Api::Anthropic),
            ("/v1/files", "x-api-key", Api::Anthropic),
            ("/v1beta/models", "x-api-key", Api::Anthropic),
            ("/v1/models?key=k", "x-api-key", Api::Gemini),
            ("/v1/models", "api-key", Api::OpenAi),
            ("/v1beta/models", "accept", Api::Gemini),
            ("/v1alpha/authTokens", "accept", Api::Gemini),
            ("/upload/v1beta/files", "accept", Api::Gemini),
            ("/namespaces/v1beta/files", "authorization", Api::OpenAi),
            ("/namespaces/namespaces/v1beta/models", "accept", Api::Gemini),
            ("/v1/models?pageSize=3&key=k", "accept", Api::Gemini),
            ("/v1/models?access_token=t", "accept", Api::Gemini),
            ("/v1/models?oauth_token=t&pageSize=3", "accept", Api::Gemini),
            ("/v1/models?access_token=t", "authorization", Api::OpenAi),
            ("/v1/models?pageSize=3&key=k", "authorization", Api::OpenAi),
            (
                "/v1/skills?custom_llm_provider=anthropic",
                "authorization",
                Api::Anthropic,
            ),
            (
                "/v1/skills/skill_1?limit=1&custom_llm_provider=anthropic",
                "authorization",
                Api::Anthropic,
            ),
            (
                "/v1/skills?custom_llm_provider=openai",
                "anthropic-version",
                Api::Anthropic,
            ),
            ("/v1/skills?custom_llm_provider=openai", "x-api-key", Api::Anthropic),
            (
                "/v1/skills?custom_llm_provider=anthropic",
                "x-goog-api-key",
                Api::Gemini,
            ),
            ("/v1/skills?custom_llm_provider=azure", "authorization", Api::OpenAi),
            ("/v1/files?custom_llm_provider=anthropic", "authorization", Api::OpenAi),
            ("/v1/models", "x-goog-api-key", Api::Gemini),
            ("/v1/models", "x-goog-api-client", Api::Gemini),
            (
                "/v1/projects/p/locations/l/publishers/google/models/m:predict",
                "authorization",
                Api::Gemini,
            ),
            (
                "/v1beta1/projects/p/locations/l/cachedContents",
                "authorization",
                Api::Gemini,
            ),
            (
                "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
                "authorization",
                Api::Gemini,
            ),
            (
                "/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent",
                "authorization",
                Api::Gemini,
            ),
        ] {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(header), http::HeaderValue::from_static("x"))]);
            assert_eq!(
                Api::of_request(&uri.parse().unwrap(), &headers),
                expected,
                "{uri} {header}"
            );
        }
    }
}
