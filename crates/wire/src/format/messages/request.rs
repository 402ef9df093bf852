//! Messages requests: what is read of them and what is added.

use std::borrow::Cow;

use super::system::add_system;
use crate::any_base64::base64_bytes;
use crate::fault::Fault;
use crate::format::{RequestDialect, container, splice};
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::{Attachment, CodeTool, Injection, MessageText, Request, RequestFields, Tool, ToolChoice};
use crate::route::Format;

impl RequestDialect for super::Messages {
    /// The routed leaves.
    fn fields(&self, request: &Request) -> Result<RequestFields, Fault> {
        let src = request.raw();
        if let Some(span) = request.present("messages")
            && json::kind(src, span) != Some(ValueKind::Array)
        {
            return Err(Fault::bad("messages", "messages: must be an array."));
        }
        let text = |key| request.present(key).and_then(|span| json::text(src, span));
        let format = request
            .present("output_config")
            .and_then(|span| json::get(src, span, "format"))
            .or_else(|| request.present("output_format"));
        let tools = tools(request);
        let names = tools.iter().filter_map(|tool| json::get_text(src, *tool, "name"));
        let client_tools: Vec<String> = names.map(Cow::into_owned).collect();
        Ok(RequestFields {
            model: text("model").unwrap_or_default().into_owned(),
            stream: request
                .value("stream")
                .is_some_and(|span| request.bytes(span) == b"true"),
            max_tokens: request.present("max_tokens").and_then(|span| json::uint(src, span)),
            candidates: 1,
            structured: format.is_some_and(|span| !json::is_null(src, span)),
            unnamed_tools: tools.len() > client_tools.len(),
            client_tools,
            tool_choice: request
                .present("tool_choice")
                .map_or(ToolChoice::Auto, |span| tool_choice(src, span)),
            one_call: request
                .present("tool_choice")
                .and_then(|span| json::get(src, span, "disable_parallel_tool_use"))
                .is_some_and(|span| request.bytes(span) == b"true"),
            closed: splice::odd_system(request, "system", &[ValueKind::String, ValueKind::Array]),
            container_skills: container::skills(request),
            code_execution: request.present("container").is_some() || tools.iter().any(|tool| runs_code(src, *tool)),
            code_tool: code_tool(request, &tools),
            stored: false,
        })
    }

    /// All texts in order, the system text first.
    fn messages<'r>(&self, request: &'r Request) -> Vec<MessageText<'r>> {
        let src = request.raw();
        let system = request.present("system").map(|span| MessageText {
            role: Cow::Borrowed("system"),
            text: splice::content_text(src, span),
        });
        let one = |span: Span| splice::message(src, span);
        system
            .into_iter()
            .chain(request.conversation().into_iter().filter_map(one))
            .collect()
    }

    /// Inline images and documents of user messages.
    fn attachments(&self, request: &Request) -> Vec<Attachment> {
        splice::attachments(request, attachment)
    }

    fn conversation_key(&self) -> &'static str {
        "messages"
    }

    /// The edits of an injection. A container id of Knack is taken out even if nothing is injected.
    fn apply(&self, request: &Request, injection: &Injection, edits: &mut Edits) {
        let system = injection.material.escaped();
        if !system.is_empty() {
            add_system(request, system, edits);
        }
        let mut gone = Vec::new();
        if !injection.is_empty() && thread(request).as_deref() == Some(CREATE) {
            gone.push(THREAD);
        }
        let only_ours = container::take_ours(request, &injection.own_skills, (edits, &mut gone));
        splice::remove_members(request, edits, &gone);
        let ours = injection.material.rendered(Format::Messages, tool);
        let src = request.raw();
        let takes_out = only_ours || injection.code_tool.is_some();
        if takes_out && tools(request).iter().any(|tool| runs_code(src, *tool)) {
            // The vendor's code execution would run in a container that the request no longer asks for.
            let keep = |tool: Span| (!runs_code(src, tool)).then(|| tool.of(src).to_vec());
            splice::exchange_tools(request, edits, "messages", &ours, keep);
        } else {
            splice::add_tools(request, edits, "messages", ours);
        }
        if takes_out
            && code_tool(request, &tools(request)).is_some_and(|tool| tool.forced)
            && let Some(choice) = request.present("tool_choice")
        {
            match (&injection.code_tool, json::get(src, choice, "name")) {
                (Some(name), Some(own)) => edits.replace(own, json::quoted(name)),
                // Nothing takes the place of the tool that is named.
                _ => free_choice(src, choice, edits),
            }
        }
    }

    /// A thread goes on with the system text and the tools that it was created with, and takes no others.
    fn refused(&self, request: &Request, injection: &Injection) -> Option<Fault> {
        let goes_on = !injection.is_empty() && thread(request).as_deref() == Some(CONTINUE);
        goes_on.then(|| Fault {
            param: Some(THREAD.to_owned()),
            code: Some("thread_not_found".to_owned()),
            ..Fault::new(
                404,
                "The gateway keeps no threads while skills are active: send the whole conversation with \"thread\": \
                 {\"type\": \"create\"} or without \"thread\", or send x-knack-skills: none to switch skills off.",
            )
        })
    }

    fn relax(&self, body: &[u8]) -> Option<Vec<u8>> {
        let choice = splice::top_value(body, "tool_choice")?;
        let mut edits = Edits::new();
        free_choice(body, choice, &mut edits);
        Some(edits.apply(body))
    }
}

/// The member by which a client has its provider keep the conversation, or goes on from what is kept
/// (docs/design/wire-formats.md#threads).
const THREAD: &str = "thread";
/// The types of a thread.
const CREATE: &str = "create";
const CONTINUE: &str = "continue";

/// What the client asks of a thread, if it has one.
fn thread(request: &Request) -> Option<Cow<'_, str>> {
    json::get_text(request.raw(), request.present(THREAD)?, "type")
}

/// Makes a choice of tools one of the model's; its other members stay.
fn free_choice(src: &[u8], choice: Span, edits: &mut Edits) {
    let members = json::members(src, choice).unwrap_or_default();
    if let Some(kind) = json::member(src, &members, "type") {
        edits.replace(kind.value, "\"auto\"");
    }
    let spans: Vec<Span> = members.iter().map(json::Member::whole).collect();
    if let Some(at) = members.iter().position(|member| json::key_is(src, member, "name")) {
        edits.remove_item(&spans, at);
    }
}

fn tools(request: &Request) -> Vec<Span> {
    request
        .present("tools")
        .and_then(|span| json::elements(request.raw(), span).ok())
        .unwrap_or_default()
}

fn runs_code(src: &[u8], tool: Span) -> bool {
    json::get_text(src, tool, "type").is_some_and(|kind| kind.starts_with("code_execution_"))
}

fn code_tool(request: &Request, tools: &[Span]) -> Option<CodeTool> {
    let src = request.raw();
    let tool = tools.iter().find(|tool| runs_code(src, **tool))?;
    let name = json::get_text(src, *tool, "name").unwrap_or_default().into_owned();
    let choice = request.present("tool_choice").map(|span| tool_choice(src, span));
    let called = |tool: &Span| json::get(src, *tool, "allowed_callers").is_some_and(|span| !json::is_null(src, span));
    Some(CodeTool {
        forced: choice == Some(ToolChoice::Named(name.clone())),
        name,
        // Programs that call the client's tools do so at the provider.
        only_there: tools.iter().any(called).then_some("allowed_callers"),
        ..CodeTool::default()
    })
}

fn tool_choice(src: &[u8], span: Span) -> ToolChoice {
    match json::get_text(src, span, "type").as_deref() {
        Some("none") => ToolChoice::None,
        Some("any") => ToolChoice::Required,
        Some("tool") => splice::named_tool(src, span, &["name"]),
        _ => ToolChoice::Auto,
    }
}

fn attachment(src: &[u8], block: Span) -> Option<Attachment> {
    let kind = json::get_text(src, block, "type")?;
    if !matches!(kind.as_ref(), "image" | "document") {
        return None;
    }
    let source = json::get(src, block, "source")?;
    let data = json::get_text(src, source, "data")?;
    let bytes = match json::get_text(src, source, "type")?.as_ref() {
        "base64" => base64_bytes(&data)?,
        "text" => data.into_owned().into_bytes(),
        _ => return None,
    };
    let name = json::get_text(src, block, "title").map(Cow::into_owned);
    Some(Attachment {
        name,
        media_type: json::get_text(src, source, "media_type").map(Cow::into_owned),
        bytes,
    })
}

fn tool(tool: &Tool) -> Vec<u8> {
    let mut out = b"{\"name\":".to_vec();
    json::push_string(&mut out, &tool.name);
    out.extend_from_slice(b",\"description\":");
    json::push_string(&mut out, &tool.description);
    out.extend_from_slice(b",\"input_schema\":");
    out.extend_from_slice(tool.schema.as_bytes());
    out.push(b'}');
    out
}
