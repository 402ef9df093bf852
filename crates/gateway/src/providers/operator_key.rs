//! The requests that callers may send to a provider with the operator's key: the calls that the known formats make, and
//! nothing else.
//!
//! A provider's account holds more than its models: files, batches, stored answers, fine-tunes, of all callers that use
//! its key. A caller of the gateway must see none of it, unless the operator shares the account on purpose.

use http::{HeaderMap, HeaderName, Method};

use super::forwarded_headers::credential_parameter;
use super::provider::Api;

/// The requests for which callers may use the operator's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyScope {
    /// Ask models, count tokens, see which models there are.
    #[default]
    Models,
    /// Everything that the provider's account may do.
    Account,
}

/// Headers that go to a provider beside the operator's key. What others mean there is not known: some choose an account or a
/// project, and behind a proxy another method, another address or another key.
const FORWARDED: [&str; 19] = [
    // The body and its answer.
    "content-type",
    "content-encoding",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
    "idempotency-key",
    "x-client-request-id",
    // How long the client waits.
    "x-server-timeout",
    // The version of an API, and parts of it that are tried out.
    "anthropic-version",
    "anthropic-beta",
    "openai-beta",
    "x-goog-api-client",
    // Traces.
    "traceparent",
    "tracestate",
    "baggage",
    // The operator's key: the client's credentials are gone by now.
    "authorization",
    "x-api-key",
    "x-goog-api-key",
];
/// What the SDKs of OpenAI and Anthropic say of themselves.
const FORWARDED_PREFIX: &str = "x-stainless-";

/// Removes headers that a client may not send beside the operator's key, which has replaced the client's.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let is_forwarded = |name: &str| FORWARDED.contains(&name) || name.starts_with(FORWARDED_PREFIX);
    let others: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !is_forwarded(name.as_str()))
        .cloned()
        .collect();
    for name in others {
        headers.remove(name);
    }
}

/// The query without parameters that hold a credential of the client's.
pub(crate) fn strip_query(path_and_query: &str) -> String {
    let Some((path, query)) = path_and_query.split_once('?') else {
        return path_and_query.to_owned();
    };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| credential_parameter(pair).is_none())
        .collect();
    if kept.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", kept.join("&"))
    }
}

/// Whether a request is one of those that callers may make with the operator's key. `path` is without its query.
pub(crate) fn is_model_request(api: Api, method: &Method, path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    match api {
        Api::OpenAi => {
            let path = path.strip_prefix("/v1").unwrap_or(path);
            match *method {
                Method::POST => matches!(
                    path,
                    "/chat/completions" | "/responses" | "/responses/compact" | "/responses/input_tokens"
                ),
                Method::GET => model_of(path).is_some(),
                _ => false,
            }
        }
        Api::Anthropic => match *method {
            Method::POST => matches!(path, "/v1/messages" | "/v1/messages/count_tokens"),
            Method::GET => path.strip_prefix("/v1").is_some_and(is_one_segment),
            _ => false,
        },
        Api::Gemini => {
            let path = ["/v1beta", "/v1alpha", "/v1"]
                .into_iter()
                .find_map(|version| path.strip_prefix(version));
            let Some(path) = path else { return false };
            match *method {
                Method::POST => path.strip_prefix("/models/").is_some_and(is_gemini_call),
                Method::GET => is_one_segment(path),
                _ => false,
            }
        }
    }
}

/// The id in `/models/{id}`, empty for `/models`. At servers of OpenAI's API it may be of several segments, as in `/models/org/name`.
fn model_of(path: &str) -> Option<&str> {
    if path == "/models" {
        return Some("");
    }
    let id = path.strip_prefix("/models/")?;
    (!id.is_empty() && !id.contains(':')).then_some(id)
}

/// `/models` or `/models/{id}`, where what is behind an id is no part of it: Gemini has the operations of a model there.
fn is_one_segment(path: &str) -> bool {
    model_of(path).is_some_and(|id| !id.contains(['/', '%']))
}

fn is_gemini_call(model: &str) -> bool {
    model.split_once(':').is_some_and(|(id, verb)| {
        !id.is_empty()
            && !id.contains('/')
            && matches!(verb, "generateContent" | "streamGenerateContent" | "countTokens")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_asked_and_nothing_else_of_the_account() {
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        for (api, method, path, allowed) in [
            (Api::OpenAi, &post, "/v1/chat/completions", true),
            (Api::OpenAi, &post, "/chat/completions", true),
            (Api::OpenAi, &post, "/v1/responses", true),
            (Api::OpenAi, &post, "/v1/responses/input_tokens", true),
            (Api::OpenAi, &post, "/v1/responses/compact", true),
            (Api::OpenAi, &get, "/v1/responses/compact", false),
            (Api::OpenAi, &post, "/openai/deployments/d/chat/completions", false),
            (Api::OpenAi, &get, "/v1/models", true),
            (Api::OpenAi, &get, "/v1/models/gpt-x", true),
            (Api::OpenAi, &get, "/v1/models/org/name", true),
            (Api::OpenAi, &get, "/v1/models/org%2Fname", true),
            (Api::OpenAi, &delete, "/v1/models/ft:gpt-x", false),
            (Api::OpenAi, &get, "/v1/chat/completions", false),
            (Api::OpenAi, &get, "/v1/files", false),
            (Api::OpenAi, &delete, "/v1/files/f", false),
            (Api::OpenAi, &get, "/v1/responses/r", false),
            (Api::OpenAi, &post, "/v1/responses/r/cancel", false),
            (Api::OpenAi, &get, "/v1/batches", false),
            (Api::OpenAi, &get, "/v1/vector_stores", false),
            (Api::OpenAi, &get, "/v1/organization/users", false),
            (Api::OpenAi, &post, "/elsewhere/v1/chat/completions", false),
            (Api::Anthropic, &post, "/v1/messages", true),
            (Api::Anthropic, &post, "/v1/messages/count_tokens", true),
            (Api::Anthropic, &get, "/v1/models", true),
            (Api::Anthropic, &get, "/v1/models/claude", true),
            (Api::Anthropic, &get, "/v1/models/claude/more", false),
            (Api::Anthropic, &post, "/v1/messages/batches", false),
            (Api::Anthropic, &get, "/v1/files", false),
            (Api::Anthropic, &get, "/v1/skills", false),
            (Api::Gemini, &post, "/v1beta/models/g:generateContent", true),
            (Api::Gemini, &post, "/v1beta/models/g:streamGenerateContent", true),
            (Api::Gemini, &post, "/v1/models/g:countTokens", true),
            (Api::Gemini, &get, "/v1beta/models", true),
            (Api::Gemini, &get, "/v1beta/models/g", true),
            (Api::Gemini, &get, "/v1beta/models/g/operations", false),
            (Api::Gemini, &get, "/v1beta/models/g/operations/o", false),
            (Api::Gemini, &get, "/v1beta/models/g%2Foperations%2Fo", false),
            (Api::Gemini, &post, "/v1beta/models/g:batchGenerateContent", false),
            (Api::Gemini, &post, "/v1beta/cachedContents", false),
            (Api::Gemini, &get, "/v1beta/files", false),
            (
                Api::Gemini,
                &post,
                "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
                false,
            ),
        ] {
            assert_eq!(is_model_request(api, method, path), allowed, "{method} {path}");
        }
    }

    #[test]
    fn the_clients_own_key_leaves_the_query() {
        for (path, expected) in [
            ("/v1beta/models?key=k&alt=sse", "/v1beta/models?alt=sse"),
            ("/v1beta/models?key=k", "/v1beta/models"),
            ("/v1beta/models?access_token=k&key", "/v1beta/models"),
            ("/v1/messages?beta=true", "/v1/messages?beta=true"),
            ("/v1/messages", "/v1/messages"),
        ] {
            assert_eq!(strip_query(path), expected);
        }
    }
}
