//! The output items of one round.

use std::borrow::Cow;

use crate::format::UnitKind;
use crate::json::{self, Edits, Span};

/// An output item, as far as it has arrived.
#[derive(Debug, Clone)]
pub(super) struct OutputItem {
    /// `output_index` upstream.
    pub(super) index: u32,
    pub(super) kind: UnitKind,
    /// The item as JSON: the one that was added, then the one that is done.
    pub(super) raw: Vec<u8>,
    /// True if `raw` is the final form.
    pub(super) done: bool,
    /// The id of a call that the client may have to answer; else empty.
    pub(super) call_id: String,
    /// The id of the call that this item answers; else empty.
    pub(super) answers: String,
    /// The name of a function or a custom tool; other calls are known by their type.
    pub(super) name: String,
    /// Arguments of a function call, or the input of a custom one.
    pub(super) arguments: String,
    /// `output_index` as the client sees it, once shown.
    pub(super) shown_as: Option<u32>,
}

impl OutputItem {
    /// An item from its first form.
    pub(super) fn new(index: u32, raw: &[u8], done: bool) -> Self {
        let members = json::Object::of(raw, Span::new(0, raw.len()));
        let text = |key| members.text(key).unwrap_or_default().into_owned();
        let item = text("type");
        let id = text(id_member(&item));
        let (kind, arguments) = match item.as_str() {
            "message" => (UnitKind::Text, String::new()),
            "function_call" => (UnitKind::Call, text("arguments")),
            "custom_tool_call" => (UnitKind::Call, text("input")),
            "reasoning" => (UnitKind::Paired, String::new()),
            other if is_call(other) && !id.is_empty() => (UnitKind::Call, String::new()),
            _ => (UnitKind::Live, String::new()),
        };
        let answers = if is_output(&item) { id.clone() } else { String::new() };
        let call_id = if kind == UnitKind::Call { id } else { String::new() };
        // A tool in a namespace is the client's, whatever it is called.
        let name = match text("namespace") {
            _ if !is_named(&item) => String::new(),
            space if space.is_empty() => text("name"),
            space => format!("{space}.{}", text("name")),
        };
        Self {
            index,
            kind,
            raw: raw.to_vec(),
            done,
            call_id,
            answers,
            name,
            arguments,
            shown_as: None,
        }
    }

    /// Its id; empty if it has none.
    pub(super) fn id(&self) -> Cow<'_, str> {
        self.text("id")
    }

    /// The item's type.
    pub(super) fn type_name(&self) -> Cow<'_, str> {
        self.text("type")
    }

    fn text(&self, key: &str) -> Cow<'_, str> {
        json::get_text(&self.raw, Span::new(0, self.raw.len()), key).unwrap_or_default()
    }

    /// Takes the final form.
    pub(super) fn finish(&mut self, raw: &[u8]) {
        let shown_as = self.shown_as;
        *self = Self {
            shown_as,
            ..Self::new(self.index, raw, true)
        };
    }

    /// True for a call that is known by its name, as Knack's are.
    pub(super) fn is_named(&self) -> bool {
        is_named(&self.type_name())
    }

    /// True for a call that may run: `status` is absent or `completed`.
    pub(super) fn is_complete(&self) -> bool {
        let status = json::get_text(&self.raw, Span::new(0, self.raw.len()), "status");
        self.done && status.is_none_or(|status| status == "completed")
    }

    /// The item as the client gets it.
    pub(super) fn visible(&self, hide_encrypted: bool) -> Vec<u8> {
        let mut edits = Edits::new();
        if hide_encrypted {
            hide(&self.raw, Span::new(0, self.raw.len()), &mut edits);
        }
        edits.apply(&self.raw)
    }
}

/// True for the type of an item that calls something. With a `call_id` it is the client that answers it, as
/// `apply_patch_call` and `local_shell_call`, unless the upstream has done so in the same response; hosted tools have none.
/// A request for approval is answered alike, by its id.
pub(crate) fn is_call(kind: &str) -> bool {
    kind.ends_with("_call") || kind == APPROVAL
}

/// True for the type of an item that answers a call.
pub(crate) fn is_output(kind: &str) -> bool {
    kind.ends_with("_call_output") || kind == APPROVED
}

/// The member by which a call and its answer are matched.
pub(crate) fn id_member(kind: &str) -> &'static str {
    match kind {
        APPROVAL => "id",
        APPROVED => "approval_request_id",
        _ => "call_id",
    }
}

/// A hosted MCP tool waits for the client.
const APPROVAL: &str = "mcp_approval_request";
/// What the client says to it.
const APPROVED: &str = "mcp_approval_response";

/// True for the types of calls that are distinguished by name.
fn is_named(kind: &str) -> bool {
    matches!(kind, "function_call" | "custom_tool_call")
}

/// True for the type of an event that has arguments of a call which is known by its name.
pub(super) fn is_of_call(event: &str) -> bool {
    ["response.function_call_arguments.", "response.custom_tool_call_input."]
        .iter()
        .any(|prefix| event.starts_with(prefix))
}

/// True for a reasoning item that holds its encrypted content.
pub(super) fn is_sealed(src: &[u8], item: Span) -> bool {
    json::get_text(src, item, "type").as_deref() == Some("reasoning")
        && json::get_text(src, item, "encrypted_content").is_some()
}

/// Takes the encrypted content out of a reasoning item.
pub(super) fn hide(src: &[u8], item: Span, edits: &mut Edits) {
    if json::get_text(src, item, "type").as_deref() != Some("reasoning") {
        return;
    }
    let members = json::members(src, item).unwrap_or_default();
    let spans: Vec<Span> = members.iter().map(json::Member::whole).collect();
    if let Some(at) = members
        .iter()
        .position(|member| json::key_is(src, member, "encrypted_content"))
    {
        edits.remove_item(&spans, at);
    }
}
