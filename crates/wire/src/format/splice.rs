//! Edits that several formats need: a new top-level member, more elements of a list, more text of a string.

use std::borrow::Cow;

use base64::Engine as _;
use bytes::Bytes;

use crate::any_base64::base64_bytes;
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::{Attachment, MessageText, Request, ToolChoice};
use crate::route::Format;

/// Adds a top-level member directly before `anchor` (or at the start of the body if that is absent).
pub(crate) fn add_member(request: &Request, edits: &mut Edits, anchor: &str, key: &str, value: impl Into<Bytes>) {
    let mut name = Vec::with_capacity(key.len() + 4);
    json::push_string(&mut name, key);
    name.push(b':');
    add_parts(request, edits, anchor, [name.into(), value.into()]);
}

/// Sets a top-level member: replaces `null`, adds what is absent. A value stays: what the format cannot mean is the
/// provider's to refuse, and nothing that a client wrote is dropped.
pub(crate) fn set_member(request: &Request, edits: &mut Edits, anchor: &str, key: &str, value: impl Into<Bytes>) {
    match request.value(key) {
        Some(span) if json::is_null(request.raw(), span) => edits.replace(span, value),
        Some(_) => {}
        None => add_member(request, edits, anchor, key, value),
    }
}

/// Why nothing may be injected, if the member of the system text has a type that takes no text (`RequestFields::closed`):
/// tools without their text would be skills that the model knows nothing of.
pub(crate) fn odd_system(request: &Request, key: &str, known: &[ValueKind]) -> Option<&'static str> {
    let (src, value) = (request.raw(), request.present(key)?);
    let kind = json::kind(src, value)?;
    let is_odd = !known.contains(&kind) || (kind == ValueKind::Array && !is_list_of_objects(src, value));
    is_odd.then_some(ODD_SYSTEM)
}

/// Whether a list has no elements but objects: one more stands beside its like.
pub(crate) fn is_list_of_objects(src: &[u8], list: Span) -> bool {
    json::elements(src, list).is_ok_and(|elements| {
        elements
            .iter()
            .all(|element| json::kind(src, *element) == Some(ValueKind::Object))
    })
}

/// The reason of [`odd_system`].
pub(crate) const ODD_SYSTEM: &str = "a system text of an unknown type";

/// Removes top-level members.
pub(crate) fn remove_members(request: &Request, edits: &mut Edits, keys: &[&str]) {
    let (src, top) = (request.raw(), request.top());
    let is_gone = |at: &usize| keys.iter().any(|key| json::key_is(src, &top[*at], key));
    let gone: Vec<usize> = (0..top.len()).filter(is_gone).collect();
    if !gone.is_empty() {
        let spans: Vec<Span> = top.iter().map(json::Member::whole).collect();
        edits.remove_items(&spans, &gone);
    }
}

/// Appends elements behind the last one of the list at `list`.
pub(crate) fn push_elements(src: &[u8], edits: &mut Edits, array: Span, elements: &[Vec<u8>]) {
    if elements.is_empty() {
        return;
    }
    let joined = elements.join(&b","[..]);
    match json::elements(src, array).unwrap_or_default().last() {
        Some(last) => edits.insert(last.end, [b",", joined.as_slice()].concat()),
        None => edits.insert(array.start + 1, joined),
    }
}

/// Extends the string at `span` by an empty line and `text`, as written in JSON; an empty string becomes `text`.
pub(crate) fn extend_string(edits: &mut Edits, span: Span, text: Bytes) {
    if span.len() > 2 {
        edits.insert(span.end - 1, "\\n\\n");
    }
    edits.insert(span.end - 1, text);
}

/// Adds tools behind the client's: `tools` absent, null, empty or filled. `tools` are joined by commas. Another value
/// becomes the first element: in Gemini an object is a list of one, elsewhere the provider refuses what it is.
pub(crate) fn add_tools(request: &Request, edits: &mut Edits, anchor: &str, tools: Bytes) {
    if tools.is_empty() {
        return;
    }
    let src = request.raw();
    match request.value("tools") {
        Some(span) if json::kind(src, span) == Some(ValueKind::Array) => {
            // After the last element; white space before the end belongs to no element.
            let inner = src[span.start + 1..span.end - 1].trim_ascii_end();
            let end = span.start + 1 + inner.len();
            if !inner.is_empty() {
                edits.insert(end, ",");
            }
            edits.insert(end, tools);
        }
        Some(span) if json::is_null(src, span) => {
            edits.replace(span, "[");
            edits.insert(span.end, tools);
            edits.insert(span.end, "]");
        }
        Some(span) => {
            edits.insert(span.start, "[");
            edits.insert(span.end, ",");
            edits.insert(span.end, tools);
            edits.insert(span.end, "]");
        }
        None => add_parts(
            request,
            edits,
            anchor,
            [Bytes::from("\"tools\":["), tools, Bytes::from("]")],
        ),
    }
}

/// As [`add_tools`], with some of the client's taken out: `keep` gives what stays of each.
pub(crate) fn exchange_tools(
    request: &Request,
    edits: &mut Edits,
    anchor: &str,
    tools: &Bytes,
    keep: impl Fn(Span) -> Option<Vec<u8>>,
) {
    let is_list = |span: &Span| {
        let kind = json::kind(request.raw(), *span);
        kind == Some(ValueKind::Array) || (kind == Some(ValueKind::Object) && request.format() == Format::Gemini)
    };
    let Some(span) = request.present("tools").filter(is_list) else {
        return add_tools(request, edits, anchor, tools.clone());
    };
    let own = json::one_or_more(request.raw(), span);
    let ours = (!tools.is_empty()).then(|| tools.to_vec());
    let all: Vec<Vec<u8>> = own.into_iter().filter_map(keep).chain(ours).collect();
    edits.replace(span, [b"[", all.join(&b","[..]).as_slice(), b"]"].concat());
}

/// Adds a top-level member in pieces directly before `anchor` (or at the start of the body if that is absent).
pub(crate) fn add_parts<const N: usize>(request: &Request, edits: &mut Edits, anchor: &str, parts: [Bytes; N]) {
    let next = json::member(request.raw(), request.top(), anchor).or_else(|| request.top().first());
    let at = next.map_or_else(|| json::space(request.raw(), 0) + 1, |member| member.whole().start);
    // In an empty object each member but the first parts itself from the one before.
    if next.is_none() && edits.inserts_at(at) {
        edits.insert(at, ",");
    }
    for part in parts {
        edits.insert(at, part);
    }
    if next.is_some() {
        edits.insert(at, ",");
    }
}

/// A body without this top-level member.
pub(crate) fn without_member(body: &[u8], key: &str) -> Option<Vec<u8>> {
    let top = json::object(body).ok()?;
    let at = top.iter().position(|member| json::key_is(body, member, key))?;
    let spans: Vec<Span> = top.iter().map(json::Member::whole).collect();
    let mut edits = Edits::new();
    edits.remove_item(&spans, at);
    Some(edits.apply(body))
}

/// A body with the free tool choice in place of a forced one; `None` if there is no choice in it.
pub(crate) fn with_free_choice(body: &[u8]) -> Option<Vec<u8>> {
    let mut edits = Edits::new();
    edits.replace(top_value(body, "tool_choice")?, "\"auto\"");
    Some(edits.apply(body))
}

/// The value of a top-level member of a body.
pub(crate) fn top_value(body: &[u8], key: &str) -> Option<Span> {
    let top = json::object(body).ok()?;
    json::member(body, &top, key).map(|member| member.value)
}

/// A body whose top-level list `key` has more elements at its end; everything before that end stays equal. The list of a
/// body without one begins with them (Responses, where a template or a stored response can stand for it).
pub(crate) fn grow(body: &Bytes, key: &str, elements: &[Bytes]) -> Bytes {
    let mut edits = Edits::new();
    let begun = || [b"[", elements.join(&b","[..]).as_slice(), b"]"].concat();
    let top = json::object(body).unwrap_or_default();
    match json::member(body, &top, key).map(|member| member.value) {
        Some(list) if json::kind(body, list) == Some(ValueKind::Array) => {
            let elements: Vec<Vec<u8>> = elements.iter().map(|element| element.to_vec()).collect();
            push_elements(body, &mut edits, list, &elements);
        }
        Some(null) if json::is_null(body, null) => edits.replace(null, begun()),
        Some(_) => {}
        None => {
            let mut member = json::quoted(key);
            member.push(b':');
            member.extend_from_slice(&begun());
            match top.last() {
                Some(last) => edits.insert(last.value.end, [b",", member.as_slice()].concat()),
                None => edits.insert(json::space(body, 0) + 1, member),
            }
        }
    }
    Bytes::from(edits.apply(body))
}

/// Role and text of a message; `None` if it has no role.
pub(crate) fn message(src: &[u8], span: Span) -> Option<MessageText<'_>> {
    let members = json::members(src, span).ok()?;
    let role = json::text(src, json::member(src, &members, "role")?.value)?;
    let text =
        json::member(src, &members, "content").map_or(Cow::Borrowed(""), |content| content_text(src, content.value));
    Some(MessageText { role, text })
}

/// What user messages attach inline, as `attachment` reads one of their parts.
pub(crate) fn attachments(request: &Request, attachment: fn(&[u8], Span) -> Option<Attachment>) -> Vec<Attachment> {
    let parts = user_parts(request);
    parts.filter_map(|part| attachment(request.raw(), part)).collect()
}

/// The parts of all user messages whose content is a list.
pub(crate) fn user_parts(request: &Request) -> impl Iterator<Item = Span> {
    let src = request.raw();
    let of_user = |message: &Span| json::get_text(src, *message, "role").as_deref() == Some("user");
    let messages = request.conversation().into_iter().filter(of_user);
    let lists = messages.filter_map(|message| json::elements(src, json::get(src, message, "content")?).ok());
    lists.flatten()
}

/// True if `parallel_tool_calls` is false, as both formats of OpenAI have it.
pub(crate) fn forbids_parallel_calls(request: &Request) -> bool {
    let flag = request.value("parallel_tool_calls");
    flag.is_some_and(|span| request.bytes(span) == b"false")
}

/// The choice of a tool by its name, which is at `path`; any tool if there is none.
pub(crate) fn named_tool(src: &[u8], choice: Span, path: &[&str]) -> ToolChoice {
    json::path(src, choice, path)
        .and_then(|name| json::text(src, name))
        .map_or(ToolChoice::Required, |name| ToolChoice::Named(name.into_owned()))
}

/// Text of a message content: a string, or the `text` members of its parts joined by line feeds.
pub(crate) fn content_text(src: &[u8], content: Span) -> Cow<'_, str> {
    if let Some(text) = json::text(src, content) {
        return text;
    }
    let parts = json::elements(src, content).unwrap_or_default();
    let texts: Vec<_> = parts
        .iter()
        .filter_map(|part| json::get_text(src, *part, "text"))
        .collect();
    texts.join("\n").into()
}

/// The bytes and media type of a `data:` URL in base64. Its words have any case, with white space around them.
pub(crate) fn data_url(url: &str) -> Option<(String, Vec<u8>)> {
    let (head, data) = url.split_once(',')?;
    let (scheme, head) = head.split_once(':')?;
    let (kind, coding) = head.rsplit_once(';')?;
    let is_word = |word: &str, expected: &str| word.trim().eq_ignore_ascii_case(expected);
    (is_word(scheme, "data") && is_word(coding, "base64")).then_some(())?;
    Some((kind.trim().to_owned(), base64_bytes(data)?))
}

/// The sound of a part `input_audio`, as both formats of OpenAI have it.
pub(crate) fn input_audio(src: &[u8], part: Span) -> Option<Attachment> {
    let text = |key| json::path(src, part, &["input_audio", key]).and_then(|span| json::text(src, span));
    Some(Attachment {
        name: None,
        media_type: text("format").map(|format| format!("audio/{format}")),
        bytes: base64_bytes(&text("data")?)?,
    })
}

/// The value of `_litellm_generated_files` (docs/design/wire-formats.md#generated-files).
pub(crate) fn litellm_files(files: &[crate::drive::GeneratedFile]) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, file) in files.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"name\":");
        json::push_string(&mut out, &file.name);
        out.extend_from_slice(b",\"mime_type\":");
        json::push_string(&mut out, &file.media_type);
        out.extend_from_slice(b",\"content_base64\":");
        json::push_string(&mut out, &base64::engine::general_purpose::STANDARD.encode(&file.bytes));
        out.extend_from_slice(format!(",\"size\":{}}}", file.bytes.len()).as_bytes());
    }
    out.push(b']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_in_every_form_that_providers_take() {
        let bytes = b"\xfb\xff\xfea";
        for text in [
            "+//+YQ==",
            "-__-YQ==",
            "-__-YQ",
            "+//+\r\nYQ==\n",
            " +//+ YQ",
            "+//+YR==",
        ] {
            assert_eq!(base64_bytes(text).as_deref(), Some(&bytes[..]), "{text:?}");
            for head in [
                "data:text/csv;base64,",
                "DATA:text/csv;BASE64,",
                "data:text/csv; base64, ",
            ] {
                let url = format!("{head}{text}");
                let expected = ("text/csv".to_owned(), bytes.to_vec());
                assert_eq!(data_url(&url), Some(expected), "{url:?}");
            }
        }
        let with_charset = data_url("data:text/csv;charset=utf-8;base64,YQ==").unwrap();
        assert_eq!(with_charset.0, "text/csv;charset=utf-8");
        for text in ["%%%", "Y", "YQ=x", "é"] {
            assert_eq!(base64_bytes(text), None, "{text}");
        }
        for url in [
            "https://a/b.csv",
            "data:text/csv,a",
            "data:text/csv;base64",
            "x:text/csv;base64,YQ==",
        ] {
            assert_eq!(data_url(url), None, "{url}");
        }
    }
}
