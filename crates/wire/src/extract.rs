//! Tool calls of a whole response whose shape only the model id determines: as providers and servers that imitate them
//! send it. The loop itself reads responses by their route's format and does not guess.

use crate::json::{self, Span, ValueKind};

/// A family of providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Chat Completions and Responses.
    OpenAi,
    /// Messages.
    Anthropic,
    /// generateContent.
    Google,
    /// Unknown: nothing is extracted.
    Other,
}

impl Family {
    /// The family that a model id names, by its words, in any case.
    pub fn of_model(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| model.contains(word));
        if names(&["gpt", "openai"]) {
            Self::OpenAi
        } else if names(&["claude", "anthropic"]) {
            Self::Anthropic
        } else if names(&["gemini", "google"]) {
            Self::Google
        } else {
            Self::Other
        }
    }

    /// The family's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Google => "google",
            Self::Other => "other",
        }
    }
}

/// A call found in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedCall {
    /// The provider's id; made up (`call_1`, `call_2`, …) where it sent none.
    pub id: String,
    /// The name; empty if the provider sent none.
    pub name: String,
    /// The arguments: the text of a JSON object; `{}` for anything else.
    pub arguments: String,
}

/// The calls of a response, in order. A response that is not an object has none.
pub fn calls(family: Family, response: &[u8]) -> Vec<ExtractedCall> {
    let Ok(root) = json::document(response) else {
        return Vec::new();
    };
    match family {
        Family::OpenAi => openai(response, root),
        Family::Anthropic => list(response, json::get(response, root, "content"), |block| {
            is_type(response, block, "tool_use").then(|| call(response, block, &["id"], block, "input"))
        }),
        Family::Google => google(response, root),
        Family::Other => Vec::new(),
    }
}

fn openai(src: &[u8], root: Span) -> Vec<ExtractedCall> {
    let function = |element: Span| {
        // Servers that imitate the API write name and arguments beside the id.
        let inner = json::get(src, element, "function").unwrap_or(element);
        Some(call(src, element, &["id"], inner, "arguments"))
    };
    let at_root = list(src, json::get(src, root, "tool_calls"), function);
    if !at_root.is_empty() {
        return at_root;
    }
    let choices = elements(src, json::get(src, root, "choices")).into_iter();
    let in_choices = choices.flat_map(|choice| elements(src, json::path(src, choice, &["message", "tool_calls"])));
    let in_choices = named(in_choices.filter_map(function).collect());
    if !in_choices.is_empty() {
        return in_choices;
    }
    list(src, json::get(src, root, "output"), |item| {
        is_type(src, item, "function_call").then(|| call(src, item, &["call_id", "id"], item, "arguments"))
    })
}

fn google(src: &[u8], root: Span) -> Vec<ExtractedCall> {
    let listed = list(src, json::get(src, root, "functionCalls"), |item| {
        Some(call(src, item, &["id"], item, "args"))
    });
    if !listed.is_empty() {
        return listed;
    }
    let candidate = elements(src, json::get(src, root, "candidates")).into_iter().next();
    list(
        src,
        candidate.and_then(|candidate| json::path(src, candidate, &["content", "parts"])),
        |part| {
            let inner = json::get(src, part, "functionCall")?;
            Some(call(src, inner, &["id"], inner, "args"))
        },
    )
}

fn elements(src: &[u8], span: Option<Span>) -> Vec<Span> {
    span.and_then(|span| json::elements(src, span).ok()).unwrap_or_default()
}

/// Calls of the elements of a list.
fn list(src: &[u8], span: Option<Span>, one: impl Fn(Span) -> Option<ExtractedCall>) -> Vec<ExtractedCall> {
    named(elements(src, span).into_iter().filter_map(one).collect())
}

/// The calls with the missing ids, which are made up by position.
fn named(mut found: Vec<ExtractedCall>) -> Vec<ExtractedCall> {
    for (at, call) in found.iter_mut().enumerate().filter(|(_, call)| call.id.is_empty()) {
        call.id = format!("call_{}", at + 1);
    }
    found
}

fn is_type(src: &[u8], span: Span, kind: &str) -> bool {
    json::get_text(src, span, "type").is_some_and(|found| found == kind)
}

fn call(src: &[u8], holder: Span, ids: &[&str], inner: Span, arguments: &str) -> ExtractedCall {
    let id = ids
        .iter()
        .find_map(|key| json::get_text(src, holder, key).filter(|id| !id.is_empty()));
    let name = json::get_text(src, inner, "name").unwrap_or_default().into_owned();
    let written = json::get(src, inner, arguments);
    let text = written.map(|span| json::text(src, span).unwrap_or_else(|| String::from_utf8_lossy(span.of(src))));
    let object = text.filter(|text| {
        json::document(text.as_bytes()).is_ok_and(|span| json::kind(text.as_bytes(), span) == Some(ValueKind::Object))
    });
    ExtractedCall {
        id: id.unwrap_or_default().into_owned(),
        name,
        arguments: object.map_or_else(|| "{}".to_owned(), std::borrow::Cow::into_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_choices_are_found_and_have_ids_of_their_own() {
        let call = |name: &str| format!(r#"{{"message": {{"tool_calls": [{{"function": {{"name": "{name}"}}}}]}}}}"#);
        let response = format!(
            r#"{{"choices": [{}, {{"message": {{"content": "x"}}}}, {}]}}"#,
            call("a"),
            call("b")
        );
        let found = calls(Family::OpenAi, response.as_bytes());
        let found: Vec<(&str, &str)> = found.iter().map(|call| (&*call.name, &*call.id)).collect();
        assert_eq!(found, [("a", "call_1"), ("b", "call_2")]);
    }
}
