//! Maps a request and a snapshot to an injection.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use knack_skill::autoscore::{AutoContext, AutoMessage};
use knack_skill::catalog::Catalog;
use knack_skill::ids;
use knack_skill::model::SkillRef;
use knack_skill::plan::{
    ContainerSkill, Plan, PlanError, PlanRequest, RunCode, ToolChoice, container_plan, plan_within,
};
use knack_wire::request::{ContainerSkill as WireSkill, Material, SkillVersion, ToolChoice as WireChoice};
use knack_wire::{Fault, Format, Injection, Request, RequestFields, Tool};

use crate::catalog::Snapshot;

/// The message while there is no memory for the texts of the skills that a request names.
const NO_ROOM: &str = "The gateway is short of memory for the skills of this request; try again in a second.";

/// The plan for one request. Errors: a skill that the request names and that is not here (404), or not known to be
/// here because there is no catalog (503), a version of it that cannot be read (400), inputs that make its text too long
/// (413), no `room` for the texts (503).
pub(crate) fn make_plan(
    request: &Request,
    fields: &RequestFields,
    header: Option<&str>,
    snapshot: &Snapshot,
    run_code: RunCode,
    run_of: Option<&SkillRef>,
    room: &mut dyn FnMut(usize) -> bool,
) -> Result<Plan, Fault> {
    let texts = mentioning_texts(request);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let client_tools: Vec<&str> = fields.client_tools.iter().map(String::as_str).collect();
    let references = fields.container_skills.iter();
    let ids: Vec<Cow<'_, str>> = references.map(|skill| reference(skill, &snapshot.catalog)).collect();
    let named = fields.container_skills.iter().zip(&ids);
    let container: Vec<ContainerSkill<'_>> = named
        .map(|(skill, id)| ContainerSkill {
            kind: Some(&skill.kind),
            id,
        })
        .collect();
    let values = PlanRequest {
        provider: provider(request.format()),
        model: &fields.model,
        user_texts: &texts,
        auto: &|| auto_context(request, fields),
        client_tools: &client_tools,
        tool_choice: tool_choice(fields),
        container: &container,
        run_code,
        header,
        max_tokens: fields.max_tokens,
        run_of,
    };
    let plan = plan_within(&values, &snapshot.catalog, room).map_err(|error| match &error {
        // It is unknown whether the skill exists, so this is not the client's mistake.
        PlanError::UnknownSkill { id } if snapshot.absent.is_some() => Fault::new(
            503,
            format!("Skill \"{id}\" cannot be served: this gateway has no catalog of skills at this moment. Try again in a few seconds."),
        ),
        PlanError::UnknownSkill { id } if snapshot.is_suspended() => {
            let runtime = &snapshot.runtime.name;
            let text = format!(
                "skill \"{id}\" cannot be served: the SkillRuntime {runtime} is suspended (spec.suspend), which switches off all skills"
            );
            refusal(404, "skill_not_served", text)
        }
        PlanError::UnknownSkill { .. } | PlanError::NoVersion(_) => refusal(404, "skill_not_found", error.to_string()),
        PlanError::NotServed { .. } => refusal(404, "skill_not_served", error.to_string()),
        PlanError::AmbiguousSkill { .. } => refusal(400, "skill_ambiguous", error.to_string()),
        PlanError::InputsTooLong { .. } => refusal(413, "inputs_too_long", error.to_string()),
        PlanError::NoRoom { .. } => Fault::new(503, NO_ROOM),
    })?;
    let ours = plan.container.ours.iter();
    ours.filter_map(|&place| fields.container_skills.get(place))
        .try_for_each(demand_version)?;
    Ok(plan)
}

/// Refuses skills of a container that are not served here, or not in the version that is named. Errors say which, and why.
pub(crate) fn demand_served(skills: &[WireSkill], catalog: &Catalog) -> Result<(), String> {
    for skill in skills {
        let id = reference(skill, catalog);
        let asked = [ContainerSkill {
            kind: Some(&skill.kind),
            id: &id,
        }];
        let plan = container_plan(&asked, catalog).map_err(|error| error.to_string())?;
        if plan.ours.is_empty() {
            let id = &skill.id;
            return Err(format!(
                "{id} is not served here; a container of this gateway takes skills of this gateway only"
            ));
        }
        demand_version(skill).map_err(|fault| fault.message)?;
    }
    Ok(())
}

/// The error of an invalid request, which a retry does not change.
fn refusal(status: u16, code: &str, text: String) -> Fault {
    Fault {
        code: Some(code.to_owned()),
        retry: false,
        ..Fault::new(status, text)
    }
}

/// The key of an entry of `container.skills` in a catalog: versions of uploaded skills have ids of their own.
fn reference<'s>(skill: &'s WireSkill, catalog: &Catalog) -> Cow<'s, str> {
    let id = &skill.id;
    match skill.version.text() {
        Some(_) if ids::with_version(id).is_some() => Cow::Borrowed(id),
        Some(version) if id.starts_with(ids::UPLOADED) => Cow::Owned(ids::versioned(id, version)),
        // Its versions are those of the skill that has the id.
        Some(version) if ids::is_litellm(id) => Cow::Owned(format!("{id}@{version}")),
        Some(version) => catalog.versioned(id, version).map_or(Cow::Borrowed(id), Cow::Owned),
        None => Cow::Borrowed(id),
    }
}

/// Refuses a version of a skill of Knack that cannot be read, or that is not the one in its `skill_id`. Requests
/// that ask for no particular version say `latest`.
fn demand_version(skill: &WireSkill) -> Result<(), Fault> {
    let id = &skill.id;
    let named = ids::with_version(id).map(|(_, word)| word);
    let text = match (&skill.version, named) {
        (SkillVersion::Unreadable, _) => {
            format!("the version of skill \"{id}\" is not a string; write it as text, such as \"latest\" or \"1.2.0\"")
        }
        (SkillVersion::Text(version), Some(named)) if version != named && version != "latest" => {
            format!("skill_id \"{id}\" names the version {named}, but version says \"{version}\"; name one of them")
        }
        _ => return Ok(()),
    };
    Err(refusal(400, "skill_version_invalid", text))
}

/// Catalogs whose text is kept in wire form: those of the namespaces that call at one time.
const MATERIALS_MAX: usize = 16;

/// A catalog's own text and tools in wire form, kept for the requests that get nothing else: they are many, and the
/// text of a large catalog is long.
#[derive(Debug, Default)]
pub struct Materials {
    /// The material of the last catalogs, the newest at the end. A catalog is recognised by the allocation of its text,
    /// which is kept for that.
    last: Mutex<Vec<(Arc<str>, Arc<Material>)>>,
}

impl Materials {
    fn of(&self, plan: &Plan) -> Arc<Material> {
        if !plan.shared {
            return Arc::new(material(plan));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, material)) = last.iter().find(|(system, _)| Arc::ptr_eq(system, &plan.system)) {
            return Arc::clone(material);
        }
        if last.len() >= MATERIALS_MAX {
            last.remove(0);
        }
        let material = Arc::new(material(plan));
        last.push((Arc::clone(&plan.system), Arc::clone(&material)));
        material
    }
}

fn material(plan: &Plan) -> Material {
    let tools = plan.tools.iter().map(|tool| Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema_json.clone(),
    });
    Material::new(plan.system.to_string(), tools.collect()).with_aliases(knack_skill::call::aliases(plan))
}

/// The plan in the terms of the wire. `code_tool`: Knack's tool that replaces the client's. `names_files`: the request names files that
/// only runs here can read.
pub(crate) fn injection(
    plan: &Plan,
    fields: &RequestFields,
    materials: &Materials,
    code_tool: Option<String>,
    names_files: bool,
) -> Injection {
    Injection {
        code_tool,
        own_inline_skills: !plan.attached.is_empty(),
        is_named: plan.names_skills || names_files,
        material: materials.of(plan),
        own_skills: plan
            .container
            .ours
            .iter()
            .filter_map(|&index| fields.container_skills.get(index))
            .map(|skill| skill.id.clone())
            .collect(),
    }
}

const fn provider(format: Format) -> &'static str {
    match format {
        Format::Chat | Format::Responses => "openai",
        Format::Messages => "anthropic",
        Format::Gemini => "google",
    }
}

fn tool_choice(fields: &RequestFields) -> ToolChoice {
    if let Some(word) = fields.closed {
        return ToolChoice::Closed(word);
    }
    match fields.tool_choice {
        WireChoice::None => ToolChoice::None,
        WireChoice::Allowed => ToolChoice::AllowedTools,
        WireChoice::Auto | WireChoice::Required | WireChoice::Named(_) => ToolChoice::Free,
    }
}

/// User texts that begin with `@`. Reading all texts of a large history costs; a body in which no string begins
/// with `@` has none (`\u0040` is how a careful encoder may write it).
fn mentioning_texts(request: &Request) -> Vec<String> {
    let raw = request.raw();
    let possible = memchr::memmem::find(raw, b"\"@").is_some() || memchr::memmem::find(raw, b"\"\\u0040").is_some();
    if !possible {
        return Vec::new();
    }
    let user = |message: &knack_wire::request::MessageText<'_>| message.role == "user" && message.text.starts_with('@');
    request
        .messages()
        .into_iter()
        .filter(user)
        .map(|message| message.text.into_owned())
        .collect()
}

fn auto_context(request: &Request, fields: &RequestFields) -> AutoContext {
    let messages = request
        .messages()
        .into_iter()
        .map(|message| AutoMessage {
            user: message.role == "user",
            text: Some(message.text.into_owned()).filter(|text| !text.is_empty()),
        })
        .collect();
    let word = format_word(request.format()).to_owned();
    AutoContext {
        tools_json: request.tools_json().into_owned(),
        model: fields.model.clone(),
        // The client's format is the provider's.
        formats: vec![word.clone(), word],
        // Nothing in a request says that it was made in the background: OmniRoute guesses it from the prompts of single products.
        background_reason: String::new(),
        messages,
    }
}

/// The format's name in AUTO's context, as OmniRoute spells it (docs/design/dialects.md#auto-scoring).
const fn format_word(format: Format) -> &'static str {
    match format {
        Format::Chat => "openai",
        Format::Responses => "openai-responses",
        Format::Messages => "claude",
        Format::Gemini => "gemini",
    }
}

#[cfg(test)]
mod tests {
    use knack_wire::{Route, route};

    use super::*;

    /// The text that AUTO scores against, for a request of each routed format.
    #[test]
    fn the_context_of_auto_has_the_words_of_the_format() {
        for (path, body, expected) in [
            (
                "/v1/chat/completions",
                r#"{"model":"M-1","messages":[{"role":"user","content":"Hi"}]}"#,
                "[] m-1 openai openai hi",
            ),
            (
                "/v1/messages",
                r#"{"model":"M-1","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#,
                "[] m-1 claude claude hi",
            ),
        ] {
            let Route::Model(route) = route("POST", path) else {
                panic!("{path}")
            };
            let request = Request::parse(route, body.into()).unwrap();
            let fields = request.fields().unwrap();
            let context = auto_context(&request, &fields);
            let texts = context.messages.iter().filter_map(|message| message.text.as_deref());
            let texts = texts.collect::<Vec<_>>().join(" ").to_lowercase();
            assert_eq!(format!("{} {texts}", context.head()), expected, "{path}");
        }
    }
}
