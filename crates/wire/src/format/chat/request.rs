//! Chat requests: what is read of them and what is added.

use std::borrow::Cow;

use bytes::Bytes;

use crate::any_base64::base64_bytes;
use crate::fault::Fault;
use crate::format::{RequestDialect, candidates, container, gemini, splice};
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::{Attachment, Injection, MessageText, Request, RequestFields, Tool, ToolChoice};
use crate::route::Format;

impl RequestDialect for super::Chat {
    /// The routed leaves.
    fn fields(&self, request: &Request) -> Result<RequestFields, Fault> {
        let src = request.raw();
        if let Some(span) = request.present("messages")
            && json::kind(src, span) != Some(ValueKind::Array)
        {
            return Err(Fault::bad("messages", "\"messages\" must be an array."));
        }
        let uint = |key| request.present(key).and_then(|span| json::uint(src, span));
        let text = |key| request.present(key).and_then(|span| json::text(src, span));
        let format = request
            .present("response_format")
            .and_then(|span| json::get_text(src, span, "type"));
        let structured = format.is_some_and(|kind| kind != "text");
        let client_tools = client_tools(request);
        Ok(RequestFields {
            model: text("model").unwrap_or_default().into_owned(),
            stream: request
                .value("stream")
                .is_some_and(|span| request.bytes(span) == b"true"),
            max_tokens: uint("max_completion_tokens").or_else(|| uint("max_tokens")),
            candidates: candidates(src, request.present("n")),
            stored: is_stored(request),
            structured,
            unnamed_tools: tools(request).len() > client_tools.len(),
            client_tools,
            tool_choice: request
                .present("tool_choice")
                .map_or(ToolChoice::Auto, |span| tool_choice(src, span)),
            one_call: splice::forbids_parallel_calls(request),
            closed: closed(request, structured)
                .or_else(|| request.each_element().next().is_none().then_some(NO_MESSAGES)),
            container_skills: container::skills(request),
            ..RequestFields::default()
        })
    }

    /// All texts in order.
    fn messages<'r>(&self, request: &'r Request) -> Vec<MessageText<'r>> {
        let src = request.raw();
        let one = |span: Span| splice::message(src, span);
        request.conversation().into_iter().filter_map(one).collect()
    }

    /// Inline files, images and audio of user messages.
    fn attachments(&self, request: &Request) -> Vec<Attachment> {
        splice::attachments(request, attachment)
    }

    fn conversation_key(&self) -> &'static str {
        "messages"
    }

    /// The edits of an injection.
    fn apply(&self, request: &Request, injection: &Injection, edits: &mut Edits) {
        let system = injection.material.escaped();
        if !system.is_empty() {
            add_system(request, system, edits);
        }
        let mut gone = Vec::new();
        container::take_ours(request, &injection.own_skills, (edits, &mut gone));
        splice::remove_members(request, edits, &gone);
        splice::add_tools(
            request,
            edits,
            "messages",
            injection.material.rendered(Format::Chat, tool),
        );
        if wants_usage(request, injection) {
            ask_for_usage(request, edits);
        }
    }

    /// Usage of a stream, if the client has no options of its own.
    fn adds_member(&self, request: &Request, injection: &Injection) -> bool {
        wants_usage(request, injection) && request.present(OPTIONS).is_none()
    }

    fn without_added(&self, _: &Request, body: &[u8], refusal: &[u8]) -> Option<Vec<u8>> {
        memchr::memmem::find(refusal, OPTIONS.as_bytes())?;
        splice::without_member(body, OPTIONS)
    }

    fn relax(&self, body: &[u8]) -> Option<Vec<u8>> {
        splice::with_free_choice(body)
    }
}

/// The reason of a conversation without messages: the upstream refuses it, and the system text has no place in it.
const NO_MESSAGES: &str = "no messages";

/// Why nothing may be injected. Gemini's own endpoint for this format refuses tools in JSON mode as its other one does; an
/// alias of such a model is not known here, and most models behind this format take both.
fn closed(request: &Request, structured: bool) -> Option<&'static str> {
    if ["functions", "function_call"]
        .iter()
        .any(|key| request.present(key).is_some())
    {
        return Some("legacy functions");
    }
    let model = request
        .present("model")
        .and_then(|span| json::text(request.raw(), span))?;
    let refuses = structured && gemini::generation(&model).is_some_and(|number| number < gemini::BOTH_FROM);
    (refuses && client_tools(request).is_empty()).then_some("JSON mode")
}

fn tools(request: &Request) -> Vec<Span> {
    let list = request
        .present("tools")
        .and_then(|span| json::elements(request.raw(), span).ok());
    list.unwrap_or_default()
}

fn client_tools(request: &Request) -> Vec<String> {
    let src = request.raw();
    let name = |tool: &Span| {
        let members = json::members(src, *tool).ok()?;
        let inner = json::member(src, &members, "function")
            .or_else(|| json::member(src, &members, "custom"))?
            .value;
        json::get_text(src, inner, "name").map(Cow::into_owned)
    };
    tools(request).iter().filter_map(name).collect()
}

fn tool_choice(src: &[u8], span: Span) -> ToolChoice {
    let word = json::text(src, span).or_else(|| json::get_text(src, span, "type"));
    match word.as_deref() {
        Some("none") => ToolChoice::None,
        Some("required") => ToolChoice::Required,
        Some("allowed_tools") => ToolChoice::Allowed,
        Some(kind @ ("function" | "custom")) => splice::named_tool(src, span, &[kind, "name"]),
        _ => ToolChoice::Auto,
    }
}

/// True if the upstream keeps the answer.
pub(super) fn is_stored(request: &Request) -> bool {
    request
        .value("store")
        .is_some_and(|span| request.bytes(span) == b"true")
}

/// The member that has what a client asks of a stream.
const OPTIONS: &str = "stream_options";

/// True if usage is asked for although the client does not: the loop counts its rounds.
fn wants_usage(request: &Request, injection: &Injection) -> bool {
    let stream = request.value("stream");
    let stream = stream.is_some_and(|span| request.bytes(span) == b"true");
    stream && !injection.tools().is_empty() && !asks_for_usage(request)
}

/// True if the client asked for usage in its stream.
pub(super) fn asks_for_usage(request: &Request) -> bool {
    let options = request.present(OPTIONS);
    options
        .and_then(|span| json::get(request.raw(), span, "include_usage"))
        .is_some_and(|span| request.bytes(span) == b"true")
}

fn attachment(src: &[u8], part: Span) -> Option<Attachment> {
    let text = |path: &[&str]| json::path(src, part, path).and_then(|span| json::text(src, span));
    match json::get_text(src, part, "type")?.as_ref() {
        "image_url" => {
            let (kind, bytes) = splice::data_url(&text(&["image_url", "url"])?)?;
            Some(Attachment {
                name: None,
                media_type: Some(kind),
                bytes,
            })
        }
        "file" => {
            let data = text(&["file", "file_data"])?;
            let (kind, bytes) = match splice::data_url(&data) {
                Some((kind, bytes)) => (Some(kind), bytes),
                None => (None, base64_bytes(&data)?),
            };
            Some(Attachment {
                name: text(&["file", "filename"]).map(Cow::into_owned),
                media_type: kind,
                bytes,
            })
        }
        "input_audio" => splice::input_audio(src, part),
        _ => None,
    }
}

/// `text` is written in JSON, without quotes.
fn add_system(request: &Request, text: Bytes, edits: &mut Edits) {
    let src = request.raw();
    let Some(list) = request.present("messages") else {
        return;
    };
    let first = json::first_element(src, list);
    if first.is_none() {
        // The upstream refuses an empty conversation; its error should be about what the client sent.
        return;
    }
    let role = first.and_then(|span| json::get_text(src, span, "role"));
    if let (Some(first), Some("system" | "developer")) = (first, role.as_deref())
        && let Some(content) = json::get(src, first, "content")
    {
        match json::kind(src, content) {
            Some(ValueKind::String) => return splice::extend_string(edits, content, text),
            Some(ValueKind::Array) => {
                let part = [b"{\"type\":\"text\",\"text\":\"", &*text, b"\"}"].concat();
                return splice::push_elements(src, edits, content, &[part]);
            }
            _ => {}
        }
    }
    let at = first.map_or(list.start + 1, |first| first.start);
    edits.insert(at, "{\"role\":\"system\",\"content\":\"");
    edits.insert(at, text);
    edits.insert(at, if first.is_some() { "\"}," } else { "\"}" });
}

/// Characters of a tool's description. Behind them OpenAI and Azure have refused the whole request ("string too long. Expected a string
/// with maximum length 1024"); the other formats have no such bound.
const DESCRIPTION_MAX: usize = 1_024;
/// What stands in the place of the rest.
const CUT: char = '…';

fn tool(tool: &Tool) -> Vec<u8> {
    let mut out = b"{\"type\":\"function\",\"function\":{\"name\":".to_vec();
    json::push_string(&mut out, &tool.name);
    out.extend_from_slice(b",\"description\":");
    json::push_string(&mut out, &within_bound(&tool.description));
    out.extend_from_slice(b",\"parameters\":");
    out.extend_from_slice(tool.schema.as_bytes());
    out.extend_from_slice(b"}}");
    out
}

/// A description as OpenAI takes it.
fn within_bound(description: &str) -> Cow<'_, str> {
    if description.char_indices().nth(DESCRIPTION_MAX).is_none() {
        return description.into();
    }
    let kept: String = description.chars().take(DESCRIPTION_MAX - 1).collect();
    Cow::Owned(format!("{}{CUT}", kept.trim_end()))
}

fn ask_for_usage(request: &Request, edits: &mut Edits) {
    let src = request.raw();
    match request.present(OPTIONS) {
        Some(span) if json::kind(src, span) == Some(ValueKind::Object) => {
            if let Some(value) = json::get(src, span, "include_usage") {
                edits.replace(value, "true");
            } else {
                let comma = if json::members(src, span).is_ok_and(|list| list.is_empty()) {
                    ""
                } else {
                    ","
                };
                edits.insert(span.start + 1, format!("\"include_usage\":true{comma}"));
            }
        }
        _ => splice::set_member(request, edits, "messages", OPTIONS, "{\"include_usage\":true}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_openai_would_refuse_is_cut_with_a_mark() {
        for whole in ["", "Says.", &"ä".repeat(DESCRIPTION_MAX)] {
            assert_eq!(within_bound(whole), whole);
        }
        let cut = within_bound(&"ä".repeat(DESCRIPTION_MAX + 1)).into_owned();
        assert_eq!(cut, format!("{}…", "ä".repeat(DESCRIPTION_MAX - 1)));
        let blank = format!("{} {}", "a".repeat(DESCRIPTION_MAX - 2), "b".repeat(9));
        assert_eq!(within_bound(&blank), format!("{}…", "a".repeat(DESCRIPTION_MAX - 2)));
    }
}
