//! From a path to a wire format and the kind of call.

/// The four wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Gemini generateContent.
    Gemini,
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A model answer: injection and the tool loop.
    Generate,
    /// A token count: injection only, the answer passes through.
    Count,
    /// A compaction of a conversation (Responses): hidden turns are put back, nothing is injected, the answer passes through.
    Compact,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A call in one of the four formats.
    Model(ModelRoute),
    /// A mode that is not served: the answer is 426 (Responses over a websocket, when the gateway sees the upgrade).
    Untouched,
}

/// A call in one of the four formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoute {
    /// The wire format.
    pub format: Format,
    /// The kind of the call.
    pub kind: CallKind,
    /// The model, where the path names it (Gemini).
    pub model: Option<String>,
    /// True where the path asks for a stream (Gemini); the other formats say so in the body.
    pub stream: bool,
    /// True for a path of Vertex AI, whose token counts take system text and tools unwrapped (Gemini).
    pub vertex: bool,
}

impl ModelRoute {
    /// A call whose path names neither a model nor a stream.
    pub const fn new(format: Format, kind: CallKind) -> Self {
        Self {
            format,
            kind,
            model: None,
            stream: false,
            vertex: false,
        }
    }
}

/// Finds the format of a request by method and path (docs/design/wire-formats.md#routes). The path may have any prefix and a query.
pub fn route(method: &str, path: &str) -> Route {
    let (path, _query) = path.split_once('?').unwrap_or((path, ""));
    let path = path.trim_end_matches('/');
    let model = |format, kind| Route::Model(ModelRoute::new(format, kind));
    if method != "POST" {
        return Route::Untouched;
    }
    if path.ends_with("/chat/completions") {
        return model(Format::Chat, CallKind::Generate);
    }
    if path.ends_with("/messages/count_tokens") {
        return model(Format::Messages, CallKind::Count);
    }
    if path.ends_with("/messages") && !path.contains("/threads/") {
        return model(Format::Messages, CallKind::Generate);
    }
    if path.ends_with("/responses/input_tokens") {
        return model(Format::Responses, CallKind::Count);
    }
    if path.ends_with("/responses/compact") {
        return model(Format::Responses, CallKind::Compact);
    }
    if path.ends_with("/responses") {
        return model(Format::Responses, CallKind::Generate);
    }
    gemini(path).map_or(Route::Untouched, Route::Model)
}

/// The path and query of a Gemini stream that asks for events (`alt=sse`): the same if it does so already.
pub fn with_events(path_and_query: &str) -> String {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    if pairs.contains(&"alt=sse") {
        return path_and_query.to_owned();
    }
    pairs.retain(|pair| !pair.starts_with("alt=") && !pair.starts_with("$alt=") && !pair.starts_with("%24alt="));
    pairs.push("alt=sse");
    format!("{path}?{}", pairs.join("&"))
}

/// The collections that models are in: those of the API, tuned ones, and tuned ones of Vertex AI, which are called at endpoints.
const COLLECTIONS: [&str; 3] = ["/models/", "/tunedModels/", "/endpoints/"];

fn gemini(path: &str) -> Option<ModelRoute> {
    COLLECTIONS
        .iter()
        .find_map(|collection| in_collection(path, collection))
}

fn in_collection(path: &str, collection: &str) -> Option<ModelRoute> {
    let start = path.rfind(collection)?;
    let (before, name) = (&path[..start], &path[start + collection.len()..]);
    // Google's libraries write the colon as it is, others may encode it.
    let colon = [":", "%3A", "%3a"]
        .into_iter()
        .filter_map(|colon| Some((name.rfind(colon)?, colon.len())));
    let (at, length) = colon.max()?;
    let (model, verb) = (&name[..at], &name[at + length..]);
    let mut parents = before.rsplit('/');
    let (last, one_before) = (parents.next()?, parents.next().unwrap_or_default());
    let is_version = matches!(last, "v1" | "v1beta" | "v1alpha");
    let of_google = (one_before, last) == ("publishers", "google");
    let (known, vertex) = match collection {
        "/models/" => (is_version || of_google, of_google),
        "/tunedModels/" => (is_version, false),
        _ => (one_before == "locations", true),
    };
    if !known || model.is_empty() {
        return None;
    }
    let (kind, stream) = match verb {
        "generateContent" => (CallKind::Generate, false),
        "streamGenerateContent" => (CallKind::Generate, true),
        "countTokens" => (CallKind::Count, false),
        _ => return None,
    };
    Some(ModelRoute {
        format: Format::Gemini,
        kind,
        // A tuned model is named with its collection, as its clients name it.
        model: Some(match collection {
            "/models/" => model.to_owned(),
            _ => format!("{}{model}", &collection[1..]),
        }),
        stream,
        vertex,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuned_models_and_encoded_colons_are_known() {
        for (path, model, vertex) in [
            ("/v1beta/tunedModels/abc:generateContent", "tunedModels/abc", false),
            (
                "/v1/projects/p/locations/l/endpoints/123:generateContent",
                "endpoints/123",
                true,
            ),
            (
                "/v1beta/models/gemini/gemini-x:generateContent",
                "gemini/gemini-x",
                false,
            ),
            (
                "/v1beta/models/gemini/tunedModels/abc:generateContent",
                "gemini/tunedModels/abc",
                false,
            ),
            (
                "/v1beta/models/vertex_ai/endpoints/1:generateContent",
                "vertex_ai/endpoints/1",
                false,
            ),
            ("/v1beta/models/gemini-x%3AgenerateContent", "gemini-x", false),
            ("/v1beta/models/gemini-x%3agenerateContent", "gemini-x", false),
        ] {
            let expected = ModelRoute {
                model: Some(model.to_owned()),
                vertex,
                ..ModelRoute::new(Format::Gemini, CallKind::Generate)
            };
            assert_eq!(route("POST", path), Route::Model(expected), "{path}");
        }
        for path in [
            "/v1/endpoints/123:generateContent",
            "/v1/projects/p/locations/l/endpoints/123:predict",
            "/v1/projects/p/locations/l/publishers/meta/models/m:generateContent",
            "/v1/tunedModels/:generateContent",
            "/v1/other/models/m:generateContent",
        ] {
            assert_eq!(route("POST", path), Route::Untouched, "{path}");
        }
    }

    #[test]
    fn gemini_paths_of_both_services_are_known() {
        for (path, stream, vertex) in [
            ("/v1/models/gemini-x:generateContent", false, false),
            ("/gw/v1beta/models/gemini-x:streamGenerateContent", true, false),
            (
                "/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent?alt=sse",
                true,
                true,
            ),
        ] {
            let expected = ModelRoute {
                format: Format::Gemini,
                kind: CallKind::Generate,
                model: Some("gemini-x".to_owned()),
                stream,
                vertex,
            };
            assert_eq!(route("POST", path), Route::Model(expected), "{path}");
        }
        for (method, path) in [
            ("GET", "/v1/models/gemini-x"),
            ("POST", "/v1/models/gemini-x:embedContent"),
            ("POST", "/v1/responses/resp_1/cancel"),
            ("GET", "/v1/responses/resp_1"),
            ("GET", "/v1/responses/compact"),
        ] {
            assert_eq!(route(method, path), Route::Untouched, "{path}");
        }
    }

    #[test]
    fn a_stream_is_asked_for_as_events_once() {
        for (path, expected) in [
            ("/m:s", "/m:s?alt=sse"),
            ("/m:s?alt=json&key=k", "/m:s?key=k&alt=sse"),
            ("/m:s?key=k&alt=sse", "/m:s?key=k&alt=sse"),
        ] {
            assert_eq!(with_events(path), expected);
        }
    }
}
