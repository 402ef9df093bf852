//! The reading of a request, before any rule is asked: its dialect, its headers, its key, its body.

use axum::http::HeaderMap;
use serde_json::Value;

use super::route::{self, Route};
use super::rules::{self, ProviderRefusal};
use super::script::FormatName;

/// The dialect of a route; the version header decides where both have the path.
pub(super) fn format_of(route: Route, headers: &[(String, String)]) -> FormatName {
    match route {
        Route::Complete(format) | Route::WrongMethod(format) | Route::CountTokens(format) => format,
        Route::Stored | Route::ConversationItems | Route::Compact => FormatName::Responses,
        Route::Models | Route::Unknown if headers.iter().any(|(name, _)| name == "anthropic-version") => {
            FormatName::Messages
        }
        Route::StoredChat | Route::Models | Route::Unknown => FormatName::Chat,
    }
}

pub(super) fn header_list(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect()
}

pub(super) fn refusal_of(format: FormatName, status: u16, message: &str) -> ProviderRefusal {
    ProviderRefusal {
        status,
        kind: route::kind_of(format, status),
        ..ProviderRefusal::invalid(message)
    }
}

pub(super) fn authorized(
    key: Option<&str>,
    headers: &[(String, String)],
    query: &str,
    format: FormatName,
) -> Result<(), ProviderRefusal> {
    let Some(key) = key else { return Ok(()) };
    let bearer = format!("Bearer {key}");
    let holds = headers.iter().any(|(name, value)| {
        (name == "authorization" && *value == bearer)
            || (format == FormatName::Messages && name == "x-api-key" && value == key)
            || (format == FormatName::Gemini && name == "x-goog-api-key" && value == key)
            // As clients of Azure OpenAI send it.
            || (matches!(format, FormatName::Chat | FormatName::Responses) && name == "api-key" && value == key)
    });
    let holds =
        holds || (format == FormatName::Gemini && query.split('&').any(|pair| pair.strip_prefix("key=") == Some(key)));
    if holds {
        return Ok(());
    }
    let code = matches!(format, FormatName::Chat | FormatName::Responses).then_some("invalid_api_key");
    Err(ProviderRefusal {
        code,
        ..refusal_of(format, 401, "Incorrect API key provided.")
    })
}

/// Parses a body: one JSON object whose top-level members occur once.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, ProviderRefusal> {
    let body: Value = serde_json::from_slice(bytes).map_err(|error| {
        ProviderRefusal::invalid(format!("We could not parse the JSON body of your request: {error}"))
    })?;
    let Value::Object(members) = &body else {
        return Err(ProviderRefusal::invalid(
            "The JSON body of your request is not an object.",
        ));
    };
    let written = rules::member_count(bytes);
    if written != members.len() {
        return Err(ProviderRefusal::invalid(
            "The JSON body of your request has the same member twice.",
        ));
    }
    Ok(body)
}
