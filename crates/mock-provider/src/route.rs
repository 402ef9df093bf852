//! Paths of the mock, and errors in the shape of the format that a path belongs to. Pure.

use serde_json::{Value, json};

use super::rules::ProviderRefusal;
use super::script::FormatName;

/// The operation of a path. Any prefix may precede the named end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// An answer of the model.
    Complete(FormatName),
    /// The input tokens of a request.
    CountTokens(FormatName),
    /// A conversation made shorter (Responses).
    Compact,
    /// A stored response (Responses): read, deleted or cancelled by its id.
    Stored,
    /// The items of a conversation (Responses).
    ConversationItems,
    /// Stored Chat completions: listed, read, updated or deleted.
    StoredChat,
    /// The list of models, in the dialect of the caller.
    Models,
    /// Nothing that the mock serves.
    Unknown,
    /// A served path with another method.
    WrongMethod(FormatName),
}

pub(super) fn route(method: &str, path: &str) -> Route {
    let path = path.trim_end_matches('/');
    let found = if let Some(found) = gemini(path) {
        found
    } else if path.ends_with("/responses/input_tokens") {
        Route::CountTokens(FormatName::Responses)
    } else if path.ends_with("/responses") {
        Route::Complete(FormatName::Responses)
    } else if method == "POST" && path.ends_with("/responses/compact") {
        return Route::Compact;
    } else if method == "GET" && path.contains("/conversations/") && path.ends_with("/items") {
        return Route::ConversationItems;
    } else if path.contains("/responses/") {
        return Route::Stored;
    } else if path.contains("/chat/completions/") || (method == "GET" && path.ends_with("/chat/completions")) {
        return Route::StoredChat;
    } else if path.ends_with("/chat/completions") {
        Route::Complete(FormatName::Chat)
    } else if path.ends_with("/messages/count_tokens") {
        Route::CountTokens(FormatName::Messages)
    } else if path.ends_with("/messages") {
        Route::Complete(FormatName::Messages)
    } else if path.ends_with("/models") {
        return if method == "GET" {
            Route::Models
        } else {
            Route::WrongMethod(FormatName::Chat)
        };
    } else {
        return Route::Unknown;
    };
    match (method, found) {
        ("POST", _) => found,
        (_, Route::Complete(format) | Route::CountTokens(format)) => Route::WrongMethod(format),
        _ => Route::Unknown,
    }
}

/// The collections that Gemini models are in: tuned ones have their own, and are called at endpoints on Vertex AI.
const COLLECTIONS: [&str; 3] = ["/models/", "/tunedModels/", "/endpoints/"];

/// The parts of a Gemini path around the collection of its model.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let part = |name: &'static str| path.rsplit_once(name).map(|(before, model)| (before, name, model));
    COLLECTIONS.into_iter().find_map(part)
}

/// The verb of a Gemini path.
fn gemini(path: &str) -> Option<Route> {
    let (_, _, name) = parts(path)?;
    match name.rsplit_once(':')?.1 {
        "generateContent" | "streamGenerateContent" => Some(Route::Complete(FormatName::Gemini)),
        "countTokens" => Some(Route::CountTokens(FormatName::Gemini)),
        _ => None,
    }
}

/// A Gemini call, as its path and query name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GeminiCall {
    pub(super) model: String,
    pub(super) stream: bool,
    /// A stream is one JSON array.
    pub(super) array: bool,
    /// A path of Vertex AI, whose token counts take an unwrapped request.
    pub(super) vertex: bool,
}

impl GeminiCall {
    pub(super) fn read(path: &str, query: &str) -> Self {
        let (before, collection, name) = parts(path).unwrap_or_default();
        let (model, verb) = name.rsplit_once(':').unwrap_or_default();
        let stream = verb == "streamGenerateContent";
        Self {
            model: model.to_owned(),
            stream,
            array: stream && !query.split('&').any(|pair| pair == "alt=sse"),
            vertex: before.ends_with("/publishers/google") || collection == "/endpoints/",
        }
    }
}

/// The canonical name of a status, as Google's APIs say it.
const fn status_name(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

/// The body of a refusal in the format's shape.
pub(super) fn error_body(format: FormatName, refusal: &ProviderRefusal, request_id: &str) -> Value {
    match format {
        FormatName::Gemini => json!({"error": {
            "code": refusal.status, "message": refusal.message, "status": status_name(refusal.status)
        }}),
        FormatName::Chat | FormatName::Responses => json!({"error": {
            "message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.code
        }}),
        FormatName::Messages => {
            let mut error = json!({"type": refusal.kind, "message": refusal.message});
            if let Some(code) = refusal.code {
                error["details"] = json!({"error_code": code});
            }
            json!({"type": "error", "error": error, "request_id": request_id})
        }
    }
}

/// The format's own `error.type` for a status.
pub(super) fn kind_of(format: FormatName, status: u16) -> &'static str {
    match (format, status) {
        (FormatName::Gemini, status) => status_name(status),
        (FormatName::Chat | FormatName::Responses, 429) => "requests",
        (FormatName::Chat | FormatName::Responses, 500..) => "server_error",
        (FormatName::Messages, 401) => "authentication_error",
        (FormatName::Messages, 402) => "billing_error",
        (FormatName::Messages, 403) => "permission_error",
        (FormatName::Messages, 404) => "not_found_error",
        (FormatName::Messages, 409) => "conflict_error",
        (FormatName::Messages, 413) => "request_too_large",
        (FormatName::Messages, 429) => "rate_limit_error",
        (FormatName::Messages, 504) => "timeout_error",
        (FormatName::Messages, 529) => "overloaded_error",
        (FormatName::Messages, 500..) => "api_error",
        (FormatName::Chat | FormatName::Responses | FormatName::Messages, _) => "invalid_request_error",
    }
}

/// The list of models in the dialect that the caller speaks.
pub(super) fn models(names: &[String], anthropic: bool) -> Value {
    let data: Vec<Value> = names
        .iter()
        .map(|name| {
            if anthropic {
                json!({"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"})
            } else {
                json!({"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "knack-mock"})
            }
        })
        .collect();
    if anthropic {
        json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()})
    } else {
        json!({"object": "list", "data": data})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_any_prefix() {
        for (method, path, expected) in [
            ("POST", "/v1/chat/completions", Route::Complete(FormatName::Chat)),
            ("POST", "/gw/a/chat/completions", Route::Complete(FormatName::Chat)),
            ("POST", "/v1/messages", Route::Complete(FormatName::Messages)),
            (
                "POST",
                "/v1/messages/count_tokens",
                Route::CountTokens(FormatName::Messages),
            ),
            ("POST", "/v1/responses", Route::Complete(FormatName::Responses)),
            ("GET", "/v1/responses/resp_1", Route::Stored),
            ("POST", "/v1/responses/compact", Route::Compact),
            ("GET", "/v1/responses/compact", Route::Stored),
            ("GET", "/v1/conversations/conv_1/items", Route::ConversationItems),
            ("GET", "/v1/chat/completions", Route::StoredChat),
            ("POST", "/v1/chat/completions/chatcmpl-1", Route::StoredChat),
            ("PUT", "/v1/chat/completions", Route::WrongMethod(FormatName::Chat)),
            (
                "POST",
                "/v1beta/models/m:streamGenerateContent",
                Route::Complete(FormatName::Gemini),
            ),
            (
                "POST",
                "/v1/models/m:countTokens",
                Route::CountTokens(FormatName::Gemini),
            ),
            (
                "GET",
                "/v1/models/m:generateContent",
                Route::WrongMethod(FormatName::Gemini),
            ),
            ("GET", "/v1/models", Route::Models),
            ("GET", "/v1/messages", Route::WrongMethod(FormatName::Messages)),
            ("POST", "/v1/embeddings", Route::Unknown),
        ] {
            assert_eq!(route(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn errors_have_the_shape_of_the_format() {
        let refusal = ProviderRefusal {
            param: Some("n".into()),
            code: Some("invalid_value"),
            ..ProviderRefusal::invalid("no")
        };
        assert_eq!(
            error_body(FormatName::Chat, &refusal, "req_1"),
            json!({"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "invalid_value"}})
        );
        assert_eq!(
            error_body(FormatName::Messages, &refusal, "req_1"),
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no",
                "details": {"error_code": "invalid_value"}}, "request_id": "req_1"})
        );
        assert_eq!(kind_of(FormatName::Messages, 529), "overloaded_error");
        assert_eq!(kind_of(FormatName::Chat, 503), "server_error");
    }

    #[test]
    fn models_are_listed_in_both_dialects() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(models(&names, false)["data"][1]["id"], "b");
        assert_eq!(models(&names, true)["last_id"], "b");
    }
}
