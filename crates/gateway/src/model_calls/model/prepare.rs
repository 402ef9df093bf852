//! Reading a request: its fields, its plan, and what is injected.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use knack_serving::run_off_thread_if_large;
use knack_skill::catalog::ModelCode;
use knack_skill::model::Skill;
use knack_skill::plan::{Note, Plan};
use knack_vocabulary::{HEADER_SKILLS, HEADER_VIA};
use knack_wire::request::ContainerSkill;
use knack_wire::{Fault, Format, Injection, ModelRoute, RequestFields};

use super::accept::Accepted;
use crate::catalog::Snapshot;
use crate::files::user_files::named;
use crate::http_server::budget::Holding;
use crate::model_calls::call::ModelCall;
use crate::model_calls::hidden_turns::StagedFile;
use crate::model_calls::inject;
use crate::model_calls::turn_store::KeyedHash;
use crate::runs::skill_runs::RunOrigin;
use crate::runs::{attached_skills, code_tools};
use crate::state::Gateway;

/// A request that was read, with the decision about it.
pub(super) struct Prepared {
    pub(super) request: knack_wire::Request,
    pub(super) fields: RequestFields,
    pub(super) plan: Arc<Plan>,
    pub(super) injection: Injection,
    /// Whether hidden turns are put back.
    pub(super) injecting: bool,
    /// The memory of texts that are of this request alone.
    pub(super) texts: Option<Holding>,
    /// Files of the skills that it attaches whole, for its runs.
    pub(super) attached: Vec<StagedFile>,
    /// Their memory, until they are staged, which takes its own.
    pub(super) attached_memory: Option<Holding>,
}

/// Copies of the text of a request's skills that exist at one time: while its sections are joined, and later in the plan
/// and in the form of the wire.
const COPIES_OF_TEXTS: usize = 3;

/// Reads a body and decides what is injected; a large one on a thread that may take long.
pub(super) async fn read_request(
    call: &ModelCall,
    snapshot: &Arc<Snapshot>,
    route: ModelRoute,
    accepted: &Accepted,
    parts: &Parts,
) -> Result<Prepared, Fault> {
    let (bytes, named) = (accepted.held.bytes.clone(), &accepted.named);
    let run_of = parts.extensions.get::<RunOrigin>().cloned();
    let container = named.container.as_ref();
    let input = PrepareInput {
        gateway: Arc::clone(&call.gateway),
        snapshot: Arc::clone(snapshot),
        skills_header: skills_header(&parts.headers),
        // A run of a skill was asked of this gateway.
        is_via_gateway: run_of.is_none() && parts.headers.contains_key(HEADER_VIA),
        run_of,
        container_skills: container.map_or_else(Vec::new, |one| named::of_container(&one.skills, route.format)),
        names_files: named.runs_here,
        counted: accepted.counted,
    };
    // A small zip may have a lot in it.
    let work = if may_attach(route.format, &bytes) {
        usize::MAX
    } else {
        bytes.len()
    };
    run_off_thread_if_large(work, move || {
        let request = knack_wire::Request::parse(route, bytes)?;
        input.prepare(request)
    })
    .await
}

/// Whether a body may have whole skills, which are entries of the type `inline`.
fn may_attach(format: Format, body: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(body, text).is_some();
    // The word may be written with escapes. Those of its letters all begin so, and no client writes others.
    format == Format::Responses && (has(b"\"inline\"") || has(b"\\u006"))
}

/// What decides on a request, beside its body.
struct PrepareInput {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    /// All values of `x-knack-skills`; they are refused after a body that cannot be read.
    skills_header: Result<Option<String>, Fault>,
    /// The run of a skill whose request it is.
    run_of: Option<RunOrigin>,
    /// A gateway before this one has sent it.
    is_via_gateway: bool,
    /// The skills of the container of this gateway that it names.
    container_skills: Vec<ContainerSkill>,
    /// Whether only programs here can read what it names.
    names_files: bool,
    /// The caller against whose limits its memory counts.
    counted: KeyedHash,
}

/// What the code tool of a request gets.
#[derive(Clone, Copy)]
struct CodeTool {
    /// The upstream has no tool that runs programs, or the request names what only programs here can read.
    is_missing: bool,
    /// The skills that the request attaches whole are run here.
    takes_attached: bool,
}

/// Memory of one request alone.
#[derive(Default)]
struct RequestMemory {
    /// The memory of the skills' texts.
    texts: Option<Holding>,
    /// The memory of the files of skills that it attaches whole.
    attached: Option<Holding>,
}

impl PrepareInput {
    fn prepare(mut self, request: knack_wire::Request) -> Result<Prepared, Fault> {
        let mut fields = request.fields()?;
        fields.container_skills.append(&mut self.container_skills);
        let code_tool = self.code_tool(&request, &mut fields);
        let mut memory = RequestMemory::default();
        let mut plan = self.plan_request(&request, &fields, code_tool, &mut memory)?;
        let mut attached = Vec::new();
        let (injection, injecting) = if let Some(note) = self.untouched() {
            plan = Plan {
                off: true,
                notes: vec![note],
                ..Plan::default()
            };
            (Injection::default(), false)
        } else {
            if code_tool.takes_attached && !plan.off {
                (plan, attached) = self.attach_skills(&request, plan, &mut memory)?;
            }
            self.build_injection(&plan, &fields, request.format(), code_tool)?
        };
        Ok(Prepared {
            request,
            fields,
            plan: Arc::new(plan),
            injection,
            injecting,
            texts: memory.texts,
            attached: attached_skills::files(attached),
            attached_memory: memory.attached,
        })
    }

    /// What the code tool of a request gets; its fields no longer say that this gateway cannot run it where it can.
    fn code_tool(&self, request: &knack_wire::Request, fields: &mut RequestFields) -> CodeTool {
        let is_missing = code_tools::runs_here(&self.gateway.sandbox_code_tools, request.format())
            || code_tools::is_own(fields, self.names_files);
        code_tools::unblock(fields, is_missing);
        // Without a catalog it is not known what the runtime allows.
        let allowed = match self.snapshot.absent {
            Some(_) => ModelCode::Deny,
            None => self.snapshot.catalog.settings().model_code,
        };
        CodeTool {
            is_missing,
            takes_attached: code_tools::takes_attached(fields, is_missing, allowed),
        }
    }

    fn plan_request(
        &self,
        request: &knack_wire::Request,
        fields: &RequestFields,
        code_tool: CodeTool,
        memory: &mut RequestMemory,
    ) -> Result<Plan, Fault> {
        let is_here = code_tool.is_missing || code_tool.takes_attached;
        inject::make_plan(
            request,
            fields,
            self.skills_header.as_ref().map_err(Fault::clone)?.as_deref(),
            &self.snapshot,
            code_tools::run_code(fields, request.format(), is_here),
            self.run_of.as_ref().map(|run| &run.skill),
            &mut |bytes| self.hold_texts(memory, bytes),
        )
    }

    /// Why nothing of this gateway comes into the request, if so.
    fn untouched(&self) -> Option<Note> {
        if self.snapshot.is_suspended() {
            return Some(Note::off("suspended", "suspended by the runtime"));
        }
        // Hidden turns and runs are those of the gateway before this one.
        self.is_via_gateway
            .then(|| Note::off(HEADER_VIA, "a gateway before this one injects skills (x-knack-via)"))
    }

    /// The skills that the request attaches whole, and the plan with them.
    fn attach_skills(
        &self,
        request: &knack_wire::Request,
        plan: Plan,
        memory: &mut RequestMemory,
    ) -> Result<(Plan, Vec<Skill>), Fault> {
        let mut files = |bytes: usize| self.hold_attached(memory, bytes);
        let attached = attached_skills::read(request, &self.snapshot.catalog, &mut files)?;
        let bodies: usize = attached.iter().map(|skill| skill.body.len()).sum();
        if !self.hold_texts(memory, plan.system.len() + bodies) {
            return Err(Fault::new(503, attached_skills::NO_MEMORY));
        }
        Ok((plan.with_attached(&attached), attached))
    }

    /// What the wire makes of a plan, and whether hidden turns are put back.
    fn build_injection(
        &self,
        plan: &Plan,
        fields: &RequestFields,
        format: Format,
        code_tool: CodeTool,
    ) -> Result<(Injection, bool), Fault> {
        let has_catalog = self.snapshot.absent.is_none();
        let replacement = code_tools::replacement(fields, plan, has_catalog, (format, code_tool.is_missing))?;
        let injection = inject::injection(plan, fields, &self.gateway.materials, replacement, self.names_files);
        let injecting = expands(fields, plan, &injection, format);
        Ok((injection, injecting))
    }

    /// Takes memory for texts of so many bytes. False: there is no room.
    fn hold_texts(&self, memory: &mut RequestMemory, bytes: usize) -> bool {
        let bytes = bytes.saturating_mul(COPIES_OF_TEXTS);
        memory.texts = self.gateway.requests.hold(&self.counted, bytes).ok();
        memory.texts.is_some()
    }

    /// Takes so many bytes of memory in all for files. False: there is no room.
    fn hold_attached(&self, memory: &mut RequestMemory, bytes: usize) -> bool {
        if let Some(holding) = &mut memory.attached {
            return holding.grow_to(bytes).is_ok();
        }
        memory.attached = self.gateway.requests.hold(&self.counted, bytes).ok();
        memory.attached.is_some()
    }
}

/// Whether hidden turns are put back into this request. A choice of no tools injects nothing, and still needs its history
/// (docs/design/conversation.md#when-nothing-is-injected), unless the format refuses calls in a history without any declared tool.
fn expands(fields: &RequestFields, plan: &Plan, injection: &Injection, format: Format) -> bool {
    use knack_wire::request::ToolChoice;
    let closed_by_choice =
        fields.closed.is_some() || matches!(fields.tool_choice, ToolChoice::None | ToolChoice::Allowed);
    let taken_out = usize::from(injection.code_tool.is_some());
    let may_hold_calls = format != Format::Messages || fields.unnamed_tools || fields.client_tools.len() > taken_out;
    !plan.off || (closed_by_choice && may_hold_calls)
}

/// All values of `x-knack-skills`, joined as one list.
fn skills_header(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let values: Result<Vec<&str>, _> = headers.get_all(HEADER_SKILLS).iter().map(HeaderValue::to_str).collect();
    let values = values.map_err(|_| {
        Fault::bad(
            HEADER_SKILLS,
            "The header x-knack-skills is not text; write skill names separated by commas.",
        )
    })?;
    Ok((!values.is_empty()).then(|| values.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_skill_is_found_however_its_type_is_written() {
        for (format, body, expected) in [
            (Format::Responses, r#"{"type":"inline"}"#, true),
            (Format::Responses, r#"{"type":"\u0069nline"}"#, true),
            (Format::Responses, r#"{"type":"inl\u0069n\u0065"}"#, true),
            (Format::Responses, r#"{"type":"i\u006Eline"}"#, true),
            (Format::Responses, r#"{"input":"inline caf\u00e9"}"#, false),
            (Format::Chat, r#"{"type":"inline"}"#, false),
        ] {
            assert_eq!(may_attach(format, body.as_bytes()), expected, "{body}");
        }
    }
}
