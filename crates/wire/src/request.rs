//! A request as the gateway sees it: the parts that skills depend on, and the additions to it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::any_base64::base64_bytes;
use crate::fault::Fault;
use crate::format::dialect;
use crate::json::{self, Edits, Member, Span};
use crate::route::{CallKind, Format, ModelRoute};

/// A parsed request body. Only the top level is indexed; everything else is looked up on demand.
#[derive(Debug, Clone)]
pub struct Request {
    route: ModelRoute,
    raw: Bytes,
    top: Vec<Member>,
    wrap: Wrap,
}

/// The members around the request in the body (Gemini's token counts).
#[derive(Debug, Clone)]
enum Wrap {
    /// The body is the request.
    None,
    /// The body has the request in a member; the bytes before and after it.
    Inside(Bytes, Bytes),
    /// The body is a bare list of contents. System text and tools count only in a whole request, so it is made one as soon
    /// as anything changes.
    Bare,
}

/// The member of a token count that holds a whole request.
const COUNTED: [&str; 2] = ["generateContentRequest", "generate_content_request"];

impl Wrap {
    /// The span of the request in a body.
    fn find(route: &ModelRoute, body: &Bytes, top: &[Member]) -> (Self, Option<Span>) {
        if route.format != Format::Gemini || route.kind != CallKind::Count || route.vertex {
            return (Self::None, None);
        }
        let inner = COUNTED.iter().find_map(|key| json::member(body, top, key));
        let inner = inner.filter(|member| json::kind(body, member.value) == Some(json::ValueKind::Object));
        match inner.map(|member| member.value) {
            Some(span) => (
                Self::Inside(body.slice(..span.start), body.slice(span.end..)),
                Some(span),
            ),
            None => (Self::Bare, None),
        }
    }
}

/// Top-level members of which a second one is refused: readers disagree which one counts.
const UNIQUE: [&str; 6] = ["messages", "tools", "system", "input", "instructions", "contents"];

/// Values of one request that are separated by commas. A value takes two bytes at least, and its place in an index up to 32: without a
/// bound the index of a body would be many times the memory that is counted for it.
const VALUES_MAX: usize = 1_000_000;
/// Messages or items of one conversation, each of which becomes a turn of about 150 bytes. Anthropic takes as many.
const CONVERSATION_MAX: usize = 100_000;

impl Request {
    /// Indexes a body. Errors (400): not UTF-8, not one JSON object, nested too deep, far too many values, or one of `messages`, `tools`,
    /// `system`, `input`, `instructions`, `contents` twice.
    pub fn parse(route: ModelRoute, body: Bytes) -> Result<Self, Fault> {
        if json::has_more_commas(&body, VALUES_MAX) {
            let text = format!("The request body has more than {VALUES_MAX} values; send large data as text.");
            return Err(Fault::new(400, text));
        }
        let index = |raw: &Bytes| {
            json::object(raw).map_err(|error| Fault::new(400, format!("The request body is not valid JSON: {error}.")))
        };
        let mut top = index(&body)?;
        let (wrap, inner) = Wrap::find(&route, &body, &top);
        let raw = match inner {
            Some(span) => body.slice(span.start..span.end),
            None => body,
        };
        if inner.is_some() {
            top = index(&raw)?;
        }
        for name in UNIQUE {
            if top
                .iter()
                .filter(|member| json::key_is(&raw, member, name))
                .nth(1)
                .is_some()
            {
                return Err(Fault::bad(
                    name,
                    format!("The request body has \"{name}\" twice; send it once."),
                ));
            }
        }
        let request = Self { route, raw, top, wrap };
        request.check_conversation()?;
        Ok(request)
    }

    fn check_conversation(&self) -> Result<(), Fault> {
        let key = dialect(self.route.format).conversation_key();
        let list = self.present(key).map(|span| span.of(&self.raw)).unwrap_or_default();
        // Elements are counted only where there can be so many: between n of them are n - 1 commas.
        if json::has_more_commas(list, CONVERSATION_MAX - 1) && self.each_element().nth(CONVERSATION_MAX).is_some() {
            let text = format!("\"{key}\" has more than {CONVERSATION_MAX} entries; send fewer.");
            return Err(Fault::bad(key, text));
        }
        Ok(())
    }

    /// The wire format.
    pub const fn format(&self) -> Format {
        self.route.format
    }

    /// The kind of call.
    pub const fn kind(&self) -> CallKind {
        self.route.kind
    }

    /// Where the request came in.
    pub const fn route(&self) -> &ModelRoute {
        &self.route
    }

    /// The request as the client sent it; in a token count without the members around it.
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The top-level members in order.
    pub fn top(&self) -> &[Member] {
        &self.top
    }

    /// The value of a top-level member; `None` if absent. `null` is a value.
    pub fn value(&self, key: &str) -> Option<Span> {
        json::member(&self.raw, &self.top, key).map(|member| member.value)
    }

    /// The value of a top-level member that is neither absent nor `null`.
    pub fn present(&self, key: &str) -> Option<Span> {
        self.value(key).filter(|span| !json::is_null(&self.raw, *span))
    }

    /// The bytes of a span of the body.
    pub fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.raw)
    }

    /// The leaves that decisions depend on. Cheap: texts are not touched. Errors: a field whose type makes the request
    /// unusable, as 400.
    pub fn fields(&self) -> Result<RequestFields, Fault> {
        dialect(self.route.format).fields(self)
    }

    /// The texts of all messages in order, system text included as a message of role `system`. Not cheap on large
    /// bodies: call it only if a skill depends on texts.
    pub fn messages(&self) -> Vec<MessageText<'_>> {
        dialect(self.route.format).messages(self)
    }

    /// Files, images and documents that user messages carry inline, in order.
    pub fn attachments(&self) -> Vec<Attachment> {
        dialect(self.route.format).attachments(self)
    }

    /// Skills that the client attaches whole to its shell, in order (Responses).
    pub fn inline_skills(&self) -> Vec<InlineSkill<'_>> {
        dialect(self.route.format).inline_skills(self)
    }

    /// The client's `tools` member as written in the body; `[]` if absent or null.
    pub fn tools_json(&self) -> Cow<'_, str> {
        self.present("tools")
            .map_or(Cow::Borrowed("[]"), |span| String::from_utf8_lossy(self.bytes(span)))
    }

    /// The spans of the conversation's elements (messages, input items, contents), in order; empty if there are none.
    pub fn conversation(&self) -> Vec<Span> {
        self.each_element().collect()
    }

    /// As [`Request::conversation`], one by one.
    pub(crate) fn each_element(&self) -> impl Iterator<Item = Span> {
        let span = self.present(dialect(self.route.format).conversation_key());
        let elements = span.and_then(|span| json::each_element(&self.raw, span).ok());
        let is_one = |span: &Span| {
            self.format() == Format::Gemini && json::kind(&self.raw, *span) == Some(json::ValueKind::Object)
        };
        // The body was read as a whole before: no element is broken.
        let elements = elements.into_iter().flatten().map_while(Result::ok);
        span.filter(is_one).into_iter().chain(elements)
    }

    /// The body that goes upstream in round 1: injection and conversation changes written in one pass. With neither,
    /// the very same bytes. `conversation` holds changes inside the elements that [`Request::conversation`] names.
    pub fn apply(&self, injection: &Injection, conversation: Edits) -> Bytes {
        let mut edits = conversation;
        dialect(self.route.format).apply(self, injection, &mut edits);
        let changes = !edits.is_empty();
        let body = if changes {
            Bytes::from(edits.apply(&self.raw))
        } else {
            self.raw.clone()
        };
        match &self.wrap {
            Wrap::Inside(before, after) => [before, &body[..], after].concat().into(),
            Wrap::Bare if changes => self.as_counted(&body),
            Wrap::None | Wrap::Bare => body,
        }
    }

    /// A request as the one member of a token count, with the model that the path names.
    fn as_counted(&self, body: &Bytes) -> Bytes {
        let mut out = format!(r#"{{"{}":"#, COUNTED[0]).into_bytes();
        let rest = body.iter().position(|&byte| byte == b'{').map_or(0, |at| at + 1);
        match self.route.model.as_deref().filter(|_| self.value("model").is_none()) {
            Some(model) => {
                out.extend_from_slice(br#"{"model":"#);
                let is_named = model.starts_with("tunedModels/");
                json::push_string(
                    &mut out,
                    &if is_named {
                        model.to_owned()
                    } else {
                        format!("models/{model}")
                    },
                );
                if !self.top.is_empty() || body.len() > self.raw.len() {
                    out.push(b',');
                }
                out.extend_from_slice(&body[rest..]);
            }
            None => out.extend_from_slice(body),
        }
        out.push(b'}');
        out.into()
    }
}

/// Why nothing is injected into a response in the background ([`RequestFields::closed`]).
pub(crate) const BACKGROUND: &str = "background";

/// The facts of a request that decisions about it depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one request")]
pub struct RequestFields {
    /// The model asked for.
    pub model: String,
    /// True if the client asked for a stream.
    pub stream: bool,
    /// The largest answer that the client allows, in tokens.
    pub max_tokens: Option<u64>,
    /// Number of answers asked for (`n`, `candidateCount`); 1 if absent.
    pub candidates: u64,
    /// True if the client asks its provider to keep the answer for reading it by its id (Chat).
    pub stored: bool,
    /// True if the answer must follow a format (`response_format` and its like), so text is held to the turn's end.
    pub structured: bool,
    /// Names of the client's own tools, in order.
    pub client_tools: Vec<String>,
    /// True if the client has tools without a name too, which may meet a forced choice as well: toolsets of Messages, tools of
    /// the provider in Chat.
    pub unnamed_tools: bool,
    /// The client's choice of tool use.
    pub tool_choice: ToolChoice,
    /// True if the client forbids more than one call in a turn (`parallel_tool_calls`, `disable_parallel_tool_use`).
    pub one_call: bool,
    /// True if nothing may be injected for a reason of the format: legacy `functions`, Gemini `cachedContent`,
    /// Responses `background` and compaction, no place for a system text.
    pub closed: Option<&'static str>,
    /// `container.skills` of Messages, and the skills of a Responses `shell`, in order.
    pub container_skills: Vec<ContainerSkill>,
    /// True if the client asked for code execution on the server (Messages: `container` or a `code_execution_*` tool):
    /// skills are then shown in the native form.
    pub code_execution: bool,
    /// The tool by which the client asks the provider to run programs, if there is one.
    pub code_tool: Option<CodeTool>,
}

impl RequestFields {
    /// True if the client declares tools of its own, or of its provider, with a name or without.
    pub const fn has_client_tools(&self) -> bool {
        self.unnamed_tools || !self.client_tools.is_empty()
    }
}

/// A tool by which a client asks its provider to run programs: Responses `shell` in a container of the provider's,
/// Messages `code_execution_*`, Gemini `codeExecution`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one tool")]
pub struct CodeTool {
    /// Its name, which is its entry in [`RequestFields::client_tools`], where that has tools of the provider.
    pub name: String,
    /// True if the client forces its use.
    pub forced: bool,
    /// The member of the request that only a provider with such a tool can serve.
    pub only_there: Option<&'static str>,
    /// True if it attaches skills whole ([`Request::inline_skills`]).
    pub inline_skills: bool,
    /// Most memory that its programs may have, in bytes.
    pub memory_bytes: Option<u64>,
    /// True if it names a container or files of this gateway, which no provider knows: only this gateway can run it.
    pub own: bool,
    /// True if it alone is the reason for [`RequestFields::closed`], which does not hold where the tool is taken out.
    pub closes: bool,
}

/// A client's choice of tool use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// Absent or `auto`.
    #[default]
    Auto,
    /// No tools: nothing is injected.
    None,
    /// Any tool, but one.
    Required,
    /// This tool.
    Named(String),
    /// A list of allowed tools: it is not widened, so nothing is injected.
    Allowed,
}

/// One entry of `container.skills`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSkill {
    /// `anthropic` or `custom`.
    pub kind: String,
    /// `skill_id` as sent.
    pub id: String,
    /// `version` as sent.
    pub version: SkillVersion,
}

/// A skill that a client attaches whole: the zip of its folder as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineSkill<'r> {
    /// `name` as sent.
    pub name: Cow<'r, str>,
    /// `source.type` as sent.
    pub source: Cow<'r, str>,
    /// `source.media_type` as sent.
    pub media_type: Cow<'r, str>,
    data: Cow<'r, str>,
}

impl<'r> InlineSkill<'r> {
    /// Reads it from an entry; what is not there is empty.
    pub(crate) fn read(src: &'r [u8], entry: Span) -> Self {
        let source = json::get(src, entry, "source").unwrap_or_default();
        let text = |span, key| json::get_text(src, span, key).unwrap_or_default();
        Self {
            name: text(entry, "name"),
            source: text(source, "type"),
            media_type: text(source, "media_type"),
            data: text(source, "data"),
        }
    }

    /// Bytes of [`InlineSkill::zip`] at most.
    pub fn bytes(&self) -> usize {
        self.data.len().div_ceil(4) * 3
    }

    /// The zip; `None`: `source.data` is no base64.
    pub fn zip(&self) -> Option<Vec<u8>> {
        base64_bytes(&self.data)
    }
}

/// The `version` of an entry of `container.skills`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SkillVersion {
    /// Not there, or null.
    #[default]
    Absent,
    /// A text; in OpenAI's form also a whole number, whose versions are numbers.
    Text(String),
    /// Any other value.
    Unreadable,
}

impl SkillVersion {
    /// Reads it from an entry.
    pub(crate) fn read(src: &[u8], entry: Span, takes_numbers: bool) -> Self {
        let Some(value) = json::get(src, entry, "version") else {
            return Self::Absent;
        };
        let number = || {
            let digits = std::str::from_utf8(value.of(src)).unwrap_or_default();
            let is_whole = takes_numbers && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_whole.then(|| digits.to_owned())
        };
        match (json::kind(src, value), json::text(src, value)) {
            (Some(json::ValueKind::Null), _) => Self::Absent,
            (_, Some(text)) => Self::Text(text.into_owned()),
            _ => number().map_or(Self::Unreadable, Self::Text),
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// The text of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageText<'r> {
    /// The role as sent.
    pub role: Cow<'r, str>,
    /// Text parts, joined by a line feed if there are several.
    pub text: Cow<'r, str>,
}

/// A file that a user message carries inline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The file name as sent, if any. Not safe as a path.
    pub name: Option<String>,
    /// The media type as sent.
    pub media_type: Option<String>,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The additions to a request.
#[derive(Debug, Clone, Default)]
pub struct Injection {
    /// System text and tools.
    pub material: Arc<Material>,
    /// Ids of `container.skills` that are served here: taken out of the upstream request.
    pub own_skills: Vec<String>,
    /// Knack's tool that replaces the client's [`CodeTool`], which is taken out of the upstream request; declared
    /// unless the client forbids all tools.
    pub code_tool: Option<String>,
    /// Skills that the client attaches whole are served here: taken out of the upstream request.
    pub own_inline_skills: bool,
    /// The request itself names skills, or files for runs, that are served here, so it is never sent without them.
    pub is_named: bool,
}

impl Injection {
    /// Adds a system text (empty for none) and tools, which go behind the client's.
    pub fn new(system: String, tools: Vec<Tool>) -> Self {
        Self {
            material: Arc::new(Material::new(system, tools)),
            own_skills: Vec::new(),
            code_tool: None,
            own_inline_skills: false,
            is_named: false,
        }
    }

    /// Tools in order.
    pub fn tools(&self) -> &[Tool] {
        &self.material.tools
    }

    /// True if nothing is added or taken out.
    pub fn is_empty(&self) -> bool {
        self.material.system.is_empty()
            && self.tools().is_empty()
            && self.own_skills.is_empty()
            && !self.own_inline_skills
            && self.code_tool.is_none()
    }
}

/// System text and tools, with what the formats make of them. Many requests share one: the JSON is written once.
#[derive(Debug, Default)]
pub struct Material {
    system: String,
    tools: Vec<Tool>,
    aliases: Vec<(String, String)>,
    escaped: OnceLock<Bytes>,
    /// By format, in the order of [`Format`].
    rendered: [OnceLock<Bytes>; 4],
}

impl Material {
    /// A system text (empty for none) and tools in order.
    pub fn new(system: String, tools: Vec<Tool>) -> Self {
        Self {
            system,
            tools,
            ..Self::default()
        }
    }

    /// This material with other names by which a model may call the tools, each with the tool's own. A tool of the client's that has
    /// such a name takes precedence.
    #[must_use]
    pub fn with_aliases(self, aliases: Vec<(String, String)>) -> Self {
        Self { aliases, ..self }
    }

    /// Other names of tools, each with the tool's own.
    pub(crate) fn aliases(&self) -> &[(String, String)] {
        &self.aliases
    }

    /// The system text with JSON escapes and without quotes; empty for none.
    pub(crate) fn escaped(&self) -> Bytes {
        let make = || {
            let mut out = Vec::with_capacity(self.system.len() + self.system.len() / 16);
            json::push_escaped(&mut out, &self.system);
            Bytes::from(out)
        };
        self.escaped.get_or_init(make).clone()
    }

    /// The tools as elements of the format's list, joined by commas; empty for none.
    pub(crate) fn rendered(&self, format: Format, one: impl Fn(&Tool) -> Vec<u8>) -> Bytes {
        let make = || Bytes::from(self.tools.iter().map(one).collect::<Vec<_>>().join(&b','));
        self.rendered[format as usize].get_or_init(make).clone()
    }
}

/// A tool that is injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Name, legal in every format and unlike the client's.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of the arguments, minified.
    pub schema: String,
}
