//! Tool calls of a whole response whose shape only the model id determines: as providers and servers that imitate them
//! send it. The loop of the product reads responses by their route's format and does not guess.

use knack_wire::json::{self, Span, ValueKind};

/// A family of providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
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
    pub(crate) fn of_model(model: &str) -> Self {
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
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct ExtractedCall {
    /// The provider's id; made up (`call_1`, `call_2`, …) where it sent none.
    pub(crate) id: String,
    /// The name; empty if the provider sent none.
    pub(crate) name: String,
    /// The arguments: the text of a JSON object; `{}` for anything else.
    pub(crate) arguments: String,
}

/// The calls of a response, in order. A response that is not an object has none.
pub(crate) fn calls(family: Family, response: &[u8]) -> Vec<ExtractedCall> {
    let Ok(root) = json::document(response) else {
        return Vec::new();
    };
    match family {
        Family::OpenAi => openai(response, root),
        Family::Anthropic => list(response, json::get(response, root, "content"), |block| {
            is_type(response, block, "tool_use").then(|| call(response, block, &["id"], &[block], "input"))
        }),
        Family::Google => google(response, root),
        Family::Other => Vec::new(),
    }
}

fn openai(src: &[u8], root: Span) -> Vec<ExtractedCall> {
    let function = |element: Span| {
        // Servers that imitate the API write name and arguments beside the id, or both, of which one is empty.
        let inner = json::get(src, element, "function");
        let holders: Vec<Span> = inner.into_iter().chain([element]).collect();
        Some(call(src, element, &["call_id", "id"], &holders, "arguments"))
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
    // Events of a stream carry the response in a member.
    let is_list = |span: &Span| json::kind(src, *span) == Some(ValueKind::Array);
    let output = json::get(src, root, "output").filter(is_list);
    let output = output.or_else(|| json::path(src, root, &["response", "output"]));
    list(src, output, |item| {
        is_type(src, item, "function_call").then(|| function(item)).flatten()
    })
}

fn google(src: &[u8], root: Span) -> Vec<ExtractedCall> {
    // A list of an SDK, whose calls have no ids of the API.
    let listed = list(src, json::get(src, root, "functionCalls"), |item| {
        Some(call(src, item, &[], &[item], "args"))
    });
    if !listed.is_empty() {
        return listed;
    }
    let candidates = elements(src, json::get(src, root, "candidates")).into_iter();
    let parts = candidates.flat_map(|candidate| elements(src, json::path(src, candidate, &["content", "parts"])));
    let calls = parts.filter_map(|part| json::get(src, part, "functionCall"));
    named(calls.map(|inner| call(src, inner, &["id"], &[inner], "args")).collect())
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

/// A call whose name and arguments are in the first of the holders that has them.
fn call(src: &[u8], element: Span, ids: &[&str], holders: &[Span], arguments: &str) -> ExtractedCall {
    let written = |holder: Span, key: &str| json::get_text(src, holder, key).filter(|text| !text.is_empty());
    let id = ids.iter().find_map(|key| written(element, key));
    let name = holders.iter().find_map(|holder| written(*holder, "name"));
    let given = holders.iter().find_map(|holder| {
        let span = json::get(src, *holder, arguments)?;
        match json::kind(src, span) {
            Some(ValueKind::Null) => None,
            _ => Some(json::text(src, span).unwrap_or_else(|| String::from_utf8_lossy(span.of(src)))),
        }
        .filter(|text| !text.is_empty())
    });
    let object = given.filter(|text| {
        json::document(text.as_bytes()).is_ok_and(|span| json::kind(text.as_bytes(), span) == Some(ValueKind::Object))
    });
    ExtractedCall {
        id: id.unwrap_or_default().into_owned(),
        name: name.unwrap_or_default().into_owned(),
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
        let candidate =
            |name: &str| format!(r#"{{"content": {{"parts": [{{"functionCall": {{"name": "{name}"}}}}]}}}}"#);
        let response = format!(r#"{{"candidates": [{}, {{}}, {}]}}"#, candidate("a"), candidate("b"));
        let found = calls(Family::Google, response.as_bytes());
        let found: Vec<(&str, &str)> = found.iter().map(|call| (&*call.name, &*call.id)).collect();
        assert_eq!(found, [("a", "call_1"), ("b", "call_2")]);
    }

    #[test]
    fn calls_are_found_where_servers_that_imitate_an_api_write_them() {
        for (family, response, expected) in [
            (
                Family::OpenAi,
                r#"{"response": {"output": [{"type": "function_call", "id": "fc", "call_id": "c", "name": "a", "arguments": "{\"x\":1}"}]}}"#,
                ("c", "a", r#"{"x":1}"#),
            ),
            (
                Family::OpenAi,
                r#"{"output": null, "response": {"output": [{"type": "function_call", "name": "a"}]}}"#,
                ("call_1", "a", "{}"),
            ),
            (
                Family::OpenAi,
                r#"{"tool_calls": [{"id": "i", "call_id": "c", "name": "outer", "arguments": {"x": 1}, "function": {"name": "", "arguments": null}}]}"#,
                ("c", "outer", r#"{"x": 1}"#),
            ),
            (
                Family::OpenAi,
                r#"{"choices": [{"message": {"tool_calls": [{"id": "i", "call_id": "", "name": "outer", "arguments": "{}", "function": {"name": "inner", "arguments": "no"}}]}}]}"#,
                ("i", "inner", "{}"),
            ),
            (
                Family::Google,
                r#"{"functionCalls": [{"id": "of-the-sdk", "name": "a", "args": {"x": 1}}]}"#,
                ("call_1", "a", r#"{"x": 1}"#),
            ),
            (
                Family::Google,
                r#"{"candidates": [{"content": {"parts": [{"functionCall": {"id": "g", "name": "a"}}]}}]}"#,
                ("g", "a", "{}"),
            ),
        ] {
            let found = calls(family, response.as_bytes());
            let found: Vec<_> = found
                .iter()
                .map(|call| (&*call.id, &*call.name, &*call.arguments))
                .collect();
            assert_eq!(found, [expected], "{response}");
        }
    }
}
