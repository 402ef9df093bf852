//! Gemini requests: what is read of them and what is added. Both spellings of every field are read; what came stays.
//! The body is the JSON form of a protocol buffer: one object may stand for a list of one, and words have any case.

use std::borrow::Cow;

use bytes::Bytes;

use super::unit::is_empty;
use super::{BOTH_FROM, generation, run};
use crate::any_base64::base64_bytes;
use crate::fault::Fault;
use crate::format::{RequestDialect, candidates, splice};
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::{Attachment, Injection, MessageText, Request, RequestFields, Tool, ToolChoice};
use crate::route::Format;

impl RequestDialect for super::Gemini {
    /// The routed leaves. The model and whether a stream is wanted are in the path.
    fn fields(&self, request: &Request) -> Result<RequestFields, Fault> {
        let src = request.raw();
        if let Some(span) = request.present("contents")
            && !matches!(json::kind(src, span), Some(ValueKind::Array | ValueKind::Object))
        {
            return Err(Fault::bad("contents", "\"contents\" must be an array or one content."));
        }
        let client_tools = client_tools(request);
        let declares = !client_tools.is_empty();
        let config = present(request, "generationConfig", "generation_config");
        let setting = |camel, snake| config.and_then(|span| get(src, span, camel, snake));
        Ok(RequestFields {
            model: request.route().model.clone().unwrap_or_default(),
            stream: request.route().stream,
            max_tokens: setting("maxOutputTokens", "max_output_tokens").and_then(|span| json::uint(src, span)),
            candidates: candidates(src, setting("candidateCount", "candidate_count")),
            structured: demands_form(request),
            client_tools,
            tool_choice: tool_choice(request),
            closed: closed(request, declares, &|_| true),
            code_tool: run::tool(request, |counts| closed(request, declares, counts)),
            ..RequestFields::default()
        })
    }

    /// All texts in order. A content without a role is the user's.
    fn messages<'r>(&self, request: &'r Request) -> Vec<MessageText<'r>> {
        let src = request.raw();
        let system = present(request, SYSTEM[0], SYSTEM[1]).map(|span| {
            let text = json::text(src, span).map_or_else(|| system_text(src, span), Cow::into_owned);
            MessageText {
                role: Cow::Borrowed("system"),
                text: text.into(),
            }
        });
        let contents = request.conversation().into_iter().map(|span| MessageText {
            role: json::get_text(src, span, "role").unwrap_or(Cow::Borrowed("user")),
            text: content_text(src, span).into(),
        });
        system.into_iter().chain(contents).collect()
    }

    /// Inline data of user contents.
    fn attachments(&self, request: &Request) -> Vec<Attachment> {
        let src = request.raw();
        let mut found = Vec::new();
        for content in request.conversation() {
            if json::get_text(src, content, "role").is_some_and(|role| role != "user") {
                continue;
            }
            found.extend(run::parts(src, content).into_iter().filter_map(|part| {
                let data = get(src, part, "inlineData", "inline_data")?;
                let text = |camel, snake| {
                    get(src, data, camel, snake)
                        .and_then(|span| json::text(src, span))
                        .map(Cow::into_owned)
                };
                Some(Attachment {
                    name: text("displayName", "display_name"),
                    media_type: text("mimeType", "mime_type"),
                    bytes: base64_bytes(&json::get_text(src, data, "data")?)?,
                })
            }));
        }
        found
    }

    fn conversation_key(&self) -> &'static str {
        "contents"
    }

    /// The edits of an injection: one more part of the system instruction, one more entry of `tools`.
    fn apply(&self, request: &Request, injection: &Injection, edits: &mut Edits) {
        let src = request.raw();
        add_system(request, &injection.material.escaped(), edits);
        let tools = injection.material.rendered(Format::Gemini, tool);
        let entry = if tools.is_empty() {
            Vec::new()
        } else {
            [br#"{"functionDeclarations":["#, &*tools, b"]}"].concat()
        };
        if injection.code_tool.is_some() {
            let keep = |entry| run::kept(src, entry);
            splice::exchange_tools(request, edits, "contents", &entry.into(), keep);
        } else {
            splice::add_tools(request, edits, "contents", entry.into());
        }
        if !injection.is_empty() {
            drop_empty_parts(request, edits);
        }
        // Later rounds and hidden turns put contents beside it.
        if let Some(span) = request.present("contents")
            && json::kind(src, span) == Some(ValueKind::Object)
            && !edits.is_empty()
        {
            edits.insert(span.start, "[");
            edits.insert(span.end, "]");
        }
    }

    fn relax(&self, body: &[u8]) -> Option<Vec<u8>> {
        let document = json::document(body).ok()?;
        let config = get(body, document, "toolConfig", "tool_config")?;
        let calling = get(body, config, "functionCallingConfig", "function_calling_config")?;
        let mut edits = Edits::new();
        edits.replace(json::get(body, calling, "mode")?, "\"AUTO\"");
        Some(edits.apply(body))
    }
}

/// One more part of the system instruction, in the spelling that came. A value that is no content stays: it is the
/// provider's to refuse.
fn add_system(request: &Request, text: &Bytes, edits: &mut Edits) {
    if text.is_empty() {
        return;
    }
    let src = request.raw();
    let part = [br#"{"text":""#, &**text, br#""}"#].concat();
    let list = [b"[", part.as_slice(), b"]"].concat();
    let Some(system) = present(request, SYSTEM[0], SYSTEM[1]) else {
        let key = SYSTEM
            .iter()
            .find(|key| request.value(key).is_some())
            .unwrap_or(&SYSTEM[0]);
        let value = [br#"{"parts":"#, list.as_slice(), b"}"].concat();
        return splice::set_member(request, edits, "contents", key, value);
    };
    if json::kind(src, system) == Some(ValueKind::String) {
        return splice::extend_string(edits, system, text.clone());
    }
    if let Ok(elements) = json::elements(src, system) {
        // The list may hold contents or parts.
        let is_content = |element: &Span| json::get(src, *element, "parts").is_some();
        let element = if elements.last().is_some_and(is_content) {
            [br#"{"parts":"#, list.as_slice(), b"}"].concat()
        } else {
            part
        };
        return splice::push_elements(src, edits, system, &[element]);
    }
    let Ok(members) = json::members(src, system) else {
        return;
    };
    let Some(parts) = json::member(src, &members, "parts").map(|member| member.value) else {
        let member = [br#""parts":"#, list.as_slice()].concat();
        return match members.last() {
            Some(last) => edits.insert(last.value.end, [b",", member.as_slice()].concat()),
            None => edits.insert(system.start + 1, member),
        };
    };
    match json::kind(src, parts) {
        Some(ValueKind::Array) => splice::push_elements(src, edits, parts, &[part]),
        Some(ValueKind::Object) => {
            edits.insert(parts.start, "[");
            edits.insert(parts.end, [b",", part.as_slice(), b"]"].concat());
        }
        Some(ValueKind::Null) => edits.replace(parts, list),
        _ => {}
    }
}

/// Whether [`add_system`] has a place for its text.
fn takes_system(request: &Request) -> bool {
    let src = request.raw();
    let Some(system) = present(request, SYSTEM[0], SYSTEM[1]) else {
        return true;
    };
    match json::kind(src, system) {
        Some(ValueKind::String) => true,
        Some(ValueKind::Array) => splice::is_list_of_objects(src, system),
        Some(ValueKind::Object) => json::get(src, system, "parts").is_none_or(|parts| {
            matches!(
                json::kind(src, parts),
                Some(ValueKind::Array | ValueKind::Object | ValueKind::Null)
            )
        }),
        _ => false,
    }
}

/// Takes empty parts out of what the model said: those without any member, which clients make of parts that they do not
/// keep, and on paths of Vertex AI, which refuses them, empty texts that clients were shown. A content of nothing else stays
/// as it is, since one without parts is refused everywhere.
fn drop_empty_parts(request: &Request, edits: &mut Edits) {
    let src = request.raw();
    let vertex = request.route().vertex;
    // Most conversations have nothing empty in them, and are not read part by part.
    let may_be_gone = |contents: &[u8]| {
        json::mentions_empty_object(contents) || vertex && memchr::memmem::find(contents, br#""""#).is_some()
    };
    if !request
        .present("contents")
        .is_some_and(|span| may_be_gone(span.of(src)))
    {
        return;
    }
    let is_gone = |part: Span| {
        if vertex {
            is_empty(src, part)
        } else {
            json::is_empty_object(src, part)
        }
    };
    for content in request.conversation() {
        if json::get_text(src, content, "role").as_deref() != Some("model") {
            continue;
        }
        let parts = run::parts(src, content);
        let gone: Vec<usize> = (0..parts.len()).filter(|at| is_gone(parts[*at])).collect();
        if gone.len() < parts.len() {
            edits.remove_items(&parts, &gone);
        }
    }
}

/// Both spellings of the system instruction.
const SYSTEM: [&str; 2] = ["systemInstruction", "system_instruction"];

/// Why nothing may be injected. A cached content has its own system text and tools, and refuses others beside it. Older
/// models refuse functions where a form of the answer is demanded, and many refuse them beside built-in tools alone; a
/// client that declares functions of its own there, or says that both may be called, knows that its model takes both.
/// `declares`: whether the client has functions; `counts`: members of `tools` that are read.
fn closed(request: &Request, declares: bool, counts: &dyn Fn(&json::Member) -> bool) -> Option<&'static str> {
    if present(request, "cachedContent", "cached_content").is_some() {
        return Some("cachedContent");
    }
    if !takes_system(request) {
        return Some(splice::ODD_SYSTEM);
    }
    if !declares && demands_form(request) && !takes_functions_beside_form(request) {
        return Some("JSON mode");
    }
    let src = request.raw();
    if !declares && demands_media(request) {
        return Some("speech or images");
    }
    let tools = request.present("tools").map(|span| json::one_or_more(src, span));
    let is_function = |member: &json::Member| {
        json::key_is(src, member, "functionDeclarations") || json::key_is(src, member, "function_declarations")
    };
    let members: Vec<json::Member> = tools
        .unwrap_or_default()
        .into_iter()
        .flat_map(|tool| json::members(src, tool).unwrap_or_default())
        .filter(|member| !json::is_null(src, member.value) && counts(member))
        .collect();
    let mixes = members.iter().any(is_function)
        || present(request, "toolConfig", "tool_config")
            .and_then(|span| {
                get(
                    src,
                    span,
                    "includeServerSideToolInvocations",
                    "include_server_side_tool_invocations",
                )
            })
            .is_some_and(|span| request.bytes(span) == b"true");
    (!members.is_empty() && !mixes).then_some("built-in tools")
}

/// Whether the answer must be of a media type that is no text: JSON mode, and enums.
fn demands_form(request: &Request) -> bool {
    let src = request.raw();
    let kind = present(request, "generationConfig", "generation_config")
        .and_then(|span| get(src, span, "responseMimeType", "response_mime_type"));
    kind.and_then(|span| json::text(src, span))
        .is_some_and(|kind| !kind.is_empty() && !kind.eq_ignore_ascii_case("text/plain"))
}

/// Whether the answer is to have speech or images: the models that make them take neither a system text nor functions.
fn demands_media(request: &Request) -> bool {
    let src = request.raw();
    let kinds = present(request, "generationConfig", "generation_config")
        .and_then(|span| get(src, span, "responseModalities", "response_modalities"));
    let kinds = kinds.map(|span| match json::kind(src, span) {
        Some(ValueKind::Array) => json::elements(src, span).unwrap_or_default(),
        _ => vec![span],
    });
    kinds
        .unwrap_or_default()
        .into_iter()
        .any(|kind| !is_enum(src, kind, MODALITY_TEXT))
}

/// Whether the model takes functions beside such a demand: those from the third generation on do, earlier ones answer 400.
/// Of a name without a generation (`gemini-flash-latest`, a model of another maker, an alias) nothing is known, and a request
/// without skills is better than one that is refused because of them.
fn takes_functions_beside_form(request: &Request) -> bool {
    let model = request.route().model.as_deref().unwrap_or_default();
    generation(model).is_some_and(|number| number >= BOTH_FROM)
}

/// A top-level member in either spelling.
fn present(request: &Request, camel: &str, snake: &str) -> Option<Span> {
    request.present(camel).or_else(|| request.present(snake))
}

/// A member of an object in either spelling.
fn get(src: &[u8], span: Span, camel: &str, snake: &str) -> Option<Span> {
    json::get(src, span, camel)
        .or_else(|| json::get(src, span, snake))
        .filter(|span| !json::is_null(src, *span))
}

fn client_tools(request: &Request) -> Vec<String> {
    let src = request.raw();
    let entries = request
        .present("tools")
        .map(|span| json::one_or_more(src, span))
        .unwrap_or_default();
    let declarations = entries.into_iter().filter_map(|entry| {
        let list = get(src, entry, "functionDeclarations", "function_declarations")?;
        Some(json::one_or_more(src, list))
    });
    declarations
        .flatten()
        .filter_map(|tool| json::get_text(src, tool, "name").map(Cow::into_owned))
        .collect()
}

fn tool_choice(request: &Request) -> ToolChoice {
    let src = request.raw();
    let Some(config) = present(request, "toolConfig", "tool_config")
        .and_then(|span| get(src, span, "functionCallingConfig", "function_calling_config"))
    else {
        return ToolChoice::Auto;
    };
    let mode = json::get(src, config, "mode");
    if mode.is_some_and(|mode| is_enum(src, mode, MODE_NONE)) {
        return ToolChoice::None;
    }
    let allowed = get(src, config, "allowedFunctionNames", "allowed_function_names");
    if allowed.is_some_and(|span| json::elements(src, span).is_ok_and(|list| !list.is_empty())) {
        return ToolChoice::Allowed;
    }
    if mode.is_some_and(|mode| is_enum(src, mode, MODE_ANY)) {
        ToolChoice::Required
    } else {
        ToolChoice::Auto
    }
}

/// Words of enums with their numbers, by which the JSON of a protocol buffer may name them too.
const MODE_ANY: (&str, u64) = ("ANY", 2);
const MODE_NONE: (&str, u64) = ("NONE", 3);
const MODALITY_TEXT: (&str, u64) = ("TEXT", 1);

/// Whether a value is this word of an enum, in any case, or its number.
fn is_enum(src: &[u8], value: Span, (word, number): (&str, u64)) -> bool {
    json::text(src, value).is_some_and(|text| text.eq_ignore_ascii_case(word)) || json::uint(src, value) == Some(number)
}

/// Texts of a system instruction: a content, or a list of contents or of parts.
fn system_text(src: &[u8], system: Span) -> String {
    let Ok(elements) = json::elements(src, system) else {
        return content_text(src, system);
    };
    let texts = elements.iter().map(|element| {
        let part = json::get_text(src, *element, "text").map(Cow::into_owned);
        part.unwrap_or_else(|| content_text(src, *element))
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Texts of one content's parts, thinking left out.
fn content_text(src: &[u8], content: Span) -> String {
    let texts: Vec<_> = run::parts(src, content)
        .iter()
        .filter(|part| json::get(src, **part, "thought").is_none_or(|span| span.of(src) != b"true"))
        .filter_map(|part| json::get_text(src, *part, "text"))
        .collect();
    texts.join("\n")
}

fn tool(tool: &Tool) -> Vec<u8> {
    let mut out = br#"{"name":"#.to_vec();
    json::push_string(&mut out, &tool.name);
    out.extend_from_slice(br#","description":"#);
    json::push_string(&mut out, &tool.description);
    out.extend_from_slice(br#","parametersJsonSchema":"#);
    out.extend_from_slice(tool.schema.as_bytes());
    out.push(b'}');
    out
}
