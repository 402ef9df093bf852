//! Reading a request: its fields, its plan, and what is injected.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use knack_serving::run_off_thread_if_large;
use knack_skill::catalog::ModelCode;
use knack_skill::plan::{Note, Plan};
use knack_vocabulary::{HEADER_SKILLS, HEADER_VIA};
use knack_wire::request::ContainerSkill;
use knack_wire::{Fault, Format, Injection, ModelRoute, RequestFields};

use crate::catalog::Snapshot;
use crate::files::user_files::named::{self, NamedFiles};
use crate::http_server::budget::{HeldBody, Holding};
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
    gateway: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    route: ModelRoute,
    (held, named, counted): (&HeldBody, &NamedFiles, KeyedHash),
    parts: &Parts,
) -> Result<Prepared, Fault> {
    let header = skills_header(&parts.headers);
    let run_of = parts.extensions.get::<RunOrigin>().cloned();
    // A run of a skill was asked of this gateway.
    let via = run_of.is_none() && parts.headers.contains_key(HEADER_VIA);
    let (gateway, snapshot) = (Arc::clone(gateway), Arc::clone(snapshot));
    let (bytes, names_files) = (held.bytes.clone(), named.runs_here);
    let container = named.container.as_ref();
    let attached = container.map_or_else(Vec::new, |one| named::of_container(&one.skills, route.format));
    // A small zip may have a lot in it.
    let work = if may_attach(route.format, &bytes) {
        usize::MAX
    } else {
        bytes.len()
    };
    run_off_thread_if_large(work, move || {
        let request = knack_wire::Request::parse(route, bytes)?;
        let origin = (header, run_of, via, attached);
        prepare(request, origin, &snapshot, (&gateway, names_files, counted))
    })
    .await
}

/// Whether a body may have whole skills, which are entries of the type `inline`.
fn may_attach(format: Format, body: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(body, text).is_some();
    // The word may be written with escapes. Those of its letters all begin so, and no client writes others.
    format == Format::Responses && (has(b"\"inline\"") || has(b"\\u006"))
}

fn prepare(
    request: knack_wire::Request,
    (header, run_of, via, of_container): (
        Result<Option<String>, Fault>,
        Option<RunOrigin>,
        bool,
        Vec<ContainerSkill>,
    ),
    snapshot: &Snapshot,
    (gateway, names_files, counted): (&Gateway, bool, KeyedHash),
) -> Result<Prepared, Fault> {
    let mut fields = request.fields()?;
    fields.container_skills.extend(of_container);
    let format = request.format();
    let is_missing =
        code_tools::runs_here(&gateway.sandbox_code_tools, format) || code_tools::is_own(&fields, names_files);
    code_tools::unblock(&mut fields, is_missing);
    // Without a catalog it is not known what the runtime allows.
    let allowed = match snapshot.absent {
        Some(_) => ModelCode::Deny,
        None => snapshot.catalog.settings().model_code,
    };
    let takes_attached = code_tools::takes_attached(&fields, is_missing, allowed);
    let run_code = code_tools::run_code(&fields, format, is_missing || takes_attached);
    let mut texts = None;
    let mut room = |bytes: usize| {
        texts = gateway
            .requests
            .hold(&counted, bytes.saturating_mul(COPIES_OF_TEXTS))
            .ok();
        texts.is_some()
    };
    let mut plan = inject::make_plan(
        &request,
        &fields,
        header?.as_deref(),
        snapshot,
        run_code,
        run_of.as_ref().map(|run| &run.skill),
        &mut room,
    )?;
    let (mut attached, mut attached_memory) = (Vec::new(), None);
    let untouched = if snapshot.is_suspended() {
        Some(Note::off("suspended", "suspended by the runtime"))
    } else if via {
        // Hidden turns and runs are those of the gateway before this one.
        Some(Note::off(
            HEADER_VIA,
            "a gateway before this one injects skills (x-knack-via)",
        ))
    } else {
        None
    };
    let (injection, injecting) = if let Some(note) = untouched {
        plan = Plan {
            off: true,
            notes: vec![note],
            ..Plan::default()
        };
        (Injection::default(), false)
    } else {
        if takes_attached && !plan.off {
            let mut files = |bytes: usize| hold(gateway, counted, &mut attached_memory, bytes);
            attached = attached_skills::read(&request, &snapshot.catalog, &mut files)?;
            let bodies: usize = attached.iter().map(|skill| skill.body.len()).sum();
            if !room(plan.system.len() + bodies) {
                return Err(Fault::new(503, attached_skills::NO_MEMORY));
            }
            plan = plan.with_attached(&attached);
        }
        let code_tool = code_tools::replacement(&fields, &plan, snapshot.absent.is_none(), (format, is_missing))?;
        let injection = inject::injection(&plan, &fields, &gateway.materials, code_tool, names_files);
        let injecting = expands(&fields, (&plan, &injection), format);
        (injection, injecting)
    };
    Ok(Prepared {
        request,
        fields,
        plan: Arc::new(plan),
        injection,
        injecting,
        texts,
        attached: attached_skills::files(attached),
        attached_memory,
    })
}

/// Takes so many bytes of memory in all. False: there is no room.
fn hold(gateway: &Gateway, counted: KeyedHash, held: &mut Option<Holding>, bytes: usize) -> bool {
    if let Some(holding) = held {
        return holding.grow_to(bytes).is_ok();
    }
    *held = gateway.requests.hold(&counted, bytes).ok();
    held.is_some()
}

/// Whether hidden turns are put back into this request. A choice of no tools injects nothing, and still needs its history
/// (docs/design/conversation.md#when-nothing-is-injected), unless the format refuses calls in a history without any declared tool.
fn expands(fields: &RequestFields, (plan, injection): (&Plan, &Injection), format: Format) -> bool {
    use knack_wire::request::ToolChoice;
    let closed_by_choice =
        fields.closed.is_some() || matches!(fields.tool_choice, ToolChoice::None | ToolChoice::Allowed);
    let taken_out = usize::from(injection.code_tool.is_some());
    let may_hold_calls = format != Format::Messages || fields.client_tools.len() > taken_out;
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
