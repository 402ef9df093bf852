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

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A model answer: injection and the tool loop.
    Generate,
    /// A token count: injection only, the answer passes through.
    Count,
    /// Nothing to inject into: batches, stored responses, compaction.
    Other,
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
    /// What is asked for.
    pub kind: Kind,
    /// The model, where the path names it (Gemini).
    pub model: Option<String>,
    /// True where the path asks for a stream (Gemini); the other formats say so in the body.
    pub stream: bool,
}

/// Finds the format of a request by method and path (docs/design/wire-formats.md#routes). The path may have any prefix and a query.
pub fn route(method: &str, path: &str) -> Route {
    let (path, _query) = path.split_once('?').unwrap_or((path, ""));
    let path = path.trim_end_matches('/');
    let model = |format, kind| {
        Route::Model(ModelRoute {
            format,
            kind,
            model: None,
            stream: false,
        })
    };
    if method != "POST" {
        return Route::Untouched;
    }
    if path.ends_with("/chat/completions") {
        return model(Format::Chat, Kind::Generate);
    }
    if path.ends_with("/messages/count_tokens") {
        return model(Format::Messages, Kind::Count);
    }
    if path.ends_with("/messages") && !path.contains("/threads/") {
        return model(Format::Messages, Kind::Generate);
    }
    if path.ends_with("/responses/input_tokens") {
        return model(Format::Responses, Kind::Count);
    }
    if path.ends_with("/responses") {
        return model(Format::Responses, Kind::Generate);
    }
    gemini(path).map_or(Route::Untouched, Route::Model)
}

fn gemini(path: &str) -> Option<ModelRoute> {
    let (before, name) = path.rsplit_once("/models/")?;
    let (model, verb) = name.rsplit_once(':')?;
    let version = before.rsplit('/').next()?;
    let known = matches!(version, "v1" | "v1beta" | "v1alpha") || before.ends_with("/publishers/google");
    if !known || model.is_empty() {
        return None;
    }
    let (kind, stream) = match verb {
        "generateContent" => (Kind::Generate, false),
        "streamGenerateContent" => (Kind::Generate, true),
        "countTokens" => (Kind::Count, false),
        _ => return None,
    };
    Some(ModelRoute {
        format: Format::Gemini,
        kind,
        model: Some(model.to_owned()),
        stream,
    })
}
