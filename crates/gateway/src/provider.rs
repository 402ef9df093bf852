//! The APIs of providers.

use http::HeaderMap;
use knack_wire::Format;

/// The API that a request uses: selects one of the configured addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// Chat Completions, Responses and everything under OpenAI's paths.
    OpenAi,
    /// Messages and everything with an `anthropic-version` header.
    Anthropic,
    /// generateContent.
    Gemini,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

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
    pub const fn of_format(format: Format) -> Self {
        match format {
            Format::Chat | Format::Responses => Self::OpenAi,
            Format::Messages => Self::Anthropic,
            Format::Gemini => Self::Gemini,
        }
    }

    /// The API of a request that is proxied untouched: decided by the headers its SDK always sends, then by the path.
    pub fn of_request(path: &str, headers: &HeaderMap) -> Self {
        if headers.contains_key("anthropic-version") {
            Self::Anthropic
        } else if headers.contains_key("x-goog-api-key") || path.contains("/v1beta/") || path.contains("/v1alpha/") {
            Self::Gemini
        } else {
            Self::OpenAi
        }
    }
}
