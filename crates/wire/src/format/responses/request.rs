//! Responses requests: what is read of them and what is added.

use std::borrow::Cow;

use super::shell;
use crate::any_base64::base64_bytes;
use crate::fault::Fault;
use crate::format::{RequestDialect, splice};
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::{
    Attachment, BACKGROUND, Injection, InlineSkill, MessageText, Request, RequestFields, Tool, ToolChoice,
};
use crate::route::{CallKind, Format};

impl RequestDialect for super::Responses {
    /// The routed leaves.
    fn fields(&self, request: &Request) -> Result<RequestFields, Fault> {
        let src = request.raw();
        if let Some(span) = request.present("input")
            && !matches!(json::kind(src, span), Some(ValueKind::Array | ValueKind::String))
        {
            return Err(Fault::bad("input", "\"input\" must be a string or an array."));
        }
        let is_true = |key| request.value(key).is_some_and(|span| request.bytes(span) == b"true");
        let format = request
            .present("text")
            .and_then(|span| json::path(src, span, &["format", "type"]));
        let format = format.and_then(|span| json::text(src, span));
        Ok(RequestFields {
            model: request
                .present("model")
                .and_then(|span| json::text(src, span))
                .unwrap_or_default()
                .into_owned(),
            stream: is_true("stream"),
            max_tokens: request
                .present("max_output_tokens")
                .and_then(|span| json::uint(src, span)),
            candidates: 1,
            structured: format.is_some_and(|kind| kind != "text"),
            client_tools: client_tools(request),
            tool_choice: request
                .present("tool_choice")
                .map_or(ToolChoice::Auto, |span| tool_choice(src, span)),
            one_call: splice::forbids_parallel_calls(request),
            closed: match request.kind() {
                CallKind::Compact => Some("compaction"),
                _ if is_true("background") => Some(BACKGROUND),
                _ => splice::odd_system(request, "instructions", &[ValueKind::String, ValueKind::Array]),
            },
            container_skills: shell::skills(request),
            code_tool: shell::tool(request),
            ..RequestFields::default()
        })
    }

    /// All texts in order; a bare string is one message of the user.
    fn messages<'r>(&self, request: &'r Request) -> Vec<MessageText<'r>> {
        let src = request.raw();
        let text_of = |key| request.present(key).and_then(|span| json::text(src, span));
        let mut found = Vec::new();
        if let Some(span) = request.present("instructions") {
            let text = json::text(src, span).unwrap_or_else(|| {
                let items = json::elements(src, span).unwrap_or_default();
                let texts: Vec<_> = items
                    .iter()
                    .filter_map(|item| splice::message(src, *item))
                    .map(|message| message.text)
                    .collect();
                texts.join("\n").into()
            });
            found.push(MessageText {
                role: Cow::Borrowed("system"),
                text,
            });
        }
        if let Some(text) = text_of("input") {
            found.push(MessageText {
                role: Cow::Borrowed("user"),
                text,
            });
        }
        found.extend(conversation(request).into_iter().filter_map(|item| {
            let role = json::get_text(src, item, "role")?;
            let text =
                json::get(src, item, "content").map_or(Cow::Borrowed(""), |content| splice::content_text(src, content));
            Some(MessageText { role, text })
        }));
        found
    }

    /// Inline files, images and sounds of user messages.
    fn attachments(&self, request: &Request) -> Vec<Attachment> {
        splice::attachments(request, attachment)
    }

    fn inline_skills<'r>(&self, request: &'r Request) -> Vec<InlineSkill<'r>> {
        shell::inline_skills(request)
    }

    fn conversation_key(&self) -> &'static str {
        "input"
    }

    /// The edits of an injection.
    fn apply(&self, request: &Request, injection: &Injection, edits: &mut Edits) {
        let src = request.raw();
        let system = injection.material.escaped();
        if !system.is_empty() {
            match request.present("instructions") {
                Some(span) if json::kind(src, span) == Some(ValueKind::String) => {
                    splice::extend_string(edits, span, system);
                }
                Some(span) if json::kind(src, span) == Some(ValueKind::Array) => {
                    let item = [br#"{"role":"developer","content":""#, &*system, br#""}"#].concat();
                    splice::push_elements(src, edits, span, &[item]);
                }
                _ => splice::set_member(
                    request,
                    edits,
                    "input",
                    "instructions",
                    [b"\"", &*system, b"\""].concat(),
                ),
            }
        }
        let ours = injection.material.rendered(Format::Responses, tool);
        if shell::changes(injection) {
            let keep = |tool| shell::kept(request.raw(), tool, injection);
            splice::exchange_tools(request, edits, "input", &ours, keep);
        } else {
            splice::add_tools(request, edits, "input", ours);
        }
        shell::choose(request, injection, edits);
        if injection.tools().is_empty() {
            return;
        }
        if self.adds_member(request, injection) {
            let name = json::quoted(ENCRYPTED);
            match request.present(INCLUDE) {
                Some(span) if json::kind(src, span) == Some(ValueKind::Array) => {
                    splice::push_elements(src, edits, span, &[name]);
                }
                _ => splice::set_member(request, edits, "input", INCLUDE, [b"[", name.as_slice(), b"]"].concat()),
            }
        }
        // A follow-up round appends items, so a bare string is replaced by the equivalent message.
        if let Some(span) = request.present("input")
            && json::kind(src, span) == Some(ValueKind::String)
        {
            edits.replace(span, [br#"[{"role":"user","content":"#, span.of(src), b"}]"].concat());
        }
    }

    /// Encrypted reasoning, which the upstream does not keep: models that do not reason may refuse it.
    fn adds_member(&self, request: &Request, injection: &Injection) -> bool {
        let is_needed = request.kind() == CallKind::Generate && is_stateless(request);
        is_needed && !injection.tools().is_empty() && !includes_encrypted(request)
    }

    fn without_added(&self, request: &Request, body: &[u8], refusal: &[u8]) -> Option<Vec<u8>> {
        // As `param`, or in the message.
        let is_named = ["\"include", ENCRYPTED]
            .iter()
            .any(|name| memchr::memmem::find(refusal, name.as_bytes()).is_some());
        if !is_named {
            return None;
        }
        if request.present(INCLUDE).is_none() {
            return splice::without_member(body, INCLUDE);
        }
        // Behind the client's own values.
        let list = json::elements(body, splice::top_value(body, INCLUDE)?).ok()?;
        let mut edits = Edits::new();
        edits.remove_item(&list, list.len().checked_sub(1)?);
        Some(edits.apply(body))
    }

    fn relax(&self, body: &[u8]) -> Option<Vec<u8>> {
        splice::with_free_choice(body)
    }
}

fn attachment(src: &[u8], part: Span) -> Option<Attachment> {
    let text = |key| json::get_text(src, part, key);
    let url = match text("type")?.as_ref() {
        "input_image" => text("image_url")?,
        "input_file" => text("file_data")?,
        "input_audio" => return splice::input_audio(src, part),
        _ => return None,
    };
    let (media_type, bytes) = match splice::data_url(&url) {
        Some((kind, bytes)) => (Some(kind), bytes),
        None => (None, base64_bytes(&url)?),
    };
    Some(Attachment {
        name: text("filename").map(Cow::into_owned),
        media_type,
        bytes,
    })
}

/// The member that names what an answer is to have beside the usual.
const INCLUDE: &str = "include";
/// The value of `include` by which a client gets reasoning that it can send back.
pub(super) const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The elements of `input`, in order.
fn conversation(request: &Request) -> Vec<Span> {
    let list = request
        .present("input")
        .and_then(|span| json::elements(request.raw(), span).ok());
    list.unwrap_or_default()
}

fn client_tools(request: &Request) -> Vec<String> {
    let src = request.raw();
    let list = request
        .present("tools")
        .and_then(|span| json::elements(src, span).ok())
        .unwrap_or_default();
    list.iter()
        .filter_map(|tool| {
            // A hosted tool has no name: its type is its name.
            let name = json::get_text(src, *tool, "name").or_else(|| json::get_text(src, *tool, "type"));
            name.map(Cow::into_owned)
        })
        .collect()
}

fn tool_choice(src: &[u8], span: Span) -> ToolChoice {
    let word = json::text(src, span).or_else(|| json::get_text(src, span, "type"));
    match word.as_deref() {
        Some("none") => ToolChoice::None,
        Some("auto") | None => ToolChoice::Auto,
        Some("allowed_tools") => ToolChoice::Allowed,
        // A hosted tool that is forced has no name.
        Some(_) => splice::named_tool(src, span, &["name"]),
    }
}

/// True if the client includes what `ENCRYPTED` names.
pub(super) fn includes_encrypted(request: &Request) -> bool {
    let src = request.raw();
    let list = request
        .present(INCLUDE)
        .and_then(|span| json::elements(src, span).ok())
        .unwrap_or_default();
    list.iter()
        .any(|span| json::text(src, *span).is_some_and(|name| name == ENCRYPTED))
}

/// True if upstream keeps nothing, so that a follow-up round needs the reasoning in the request.
pub(super) fn is_stateless(request: &Request) -> bool {
    request
        .value("store")
        .is_some_and(|span| request.bytes(span) == b"false")
}

fn tool(tool: &Tool) -> Vec<u8> {
    let mut out = br#"{"type":"function","name":"#.to_vec();
    json::push_string(&mut out, &tool.name);
    out.extend_from_slice(br#","description":"#);
    json::push_string(&mut out, &tool.description);
    out.extend_from_slice(br#","strict":false,"parameters":"#);
    out.extend_from_slice(tool.schema.as_bytes());
    out.push(b'}');
    out
}
