//! From a request and a snapshot to what is injected: the one place where knack-wire's values meet knack-skill's.

use knack_skill::autoscore::{AutoContext, AutoMessage};
use knack_skill::plan::{ContainerSkill, Plan, PlanError, PlanRequest, ToolChoice, plan};
use knack_wire::request::ToolChoice as WireChoice;
use knack_wire::{Fault, Format, Injection, Request, Tool, View};

use crate::catalog::Snapshot;

/// The plan for one request. Errors: a skill that the request names and that is not here (404), or not known to be
/// here because there is no catalog (503).
pub fn make_plan(request: &Request, view: &View, header: Option<&str>, snapshot: &Snapshot) -> Result<Plan, Fault> {
    let texts = mentioning_texts(request);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let client_tools: Vec<&str> = view.client_tools.iter().map(String::as_str).collect();
    let container: Vec<ContainerSkill<'_>> = view
        .container_skills
        .iter()
        .map(|skill| ContainerSkill {
            kind: Some(&skill.kind),
            id: &skill.id,
        })
        .collect();
    let values = PlanRequest {
        provider: provider(request.format()),
        model: &view.model,
        user_texts: &texts,
        auto: &|| auto_context(request, view),
        client_tools: &client_tools,
        tool_choice: tool_choice(view),
        container: &container,
        header,
        max_tokens: view.max_tokens,
    };
    plan(&values, &snapshot.catalog).map_err(|error| match &error {
        // Nobody can say whether it exists: that is not the client's mistake.
        PlanError::UnknownSkill { id } if snapshot.absent.is_some() => Fault::new(
            503,
            format!("Skill \"{id}\" cannot be served: this gateway has no catalog of skills at this moment. Try again in a few seconds."),
        ),
        PlanError::UnknownSkill { .. } => Fault {
            code: Some("skill_not_found".to_owned()),
            retry: false,
            ..Fault::new(404, error.to_string())
        },
    })
}

/// The plan in the terms of the wire.
pub fn injection(plan: &Plan, view: &View) -> Injection {
    let tool = |tool: &std::sync::Arc<knack_skill::plan::PlannedTool>| Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema_json.clone(),
    };
    Injection {
        system: plan.system.to_string(),
        tools: plan.tools.iter().map(tool).collect(),
        own_skills: plan
            .container
            .ours
            .iter()
            .filter_map(|&index| view.container_skills.get(index))
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

fn tool_choice(view: &View) -> ToolChoice {
    if view.closed.is_some() {
        return ToolChoice::LegacyFunctions;
    }
    match view.tool_choice {
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

fn auto_context(request: &Request, view: &View) -> AutoContext {
    let messages = request
        .messages()
        .into_iter()
        .map(|message| AutoMessage {
            user: message.role == "user",
            text: Some(message.text.into_owned()).filter(|text| !text.is_empty()),
        })
        .collect();
    AutoContext {
        tools_json: request.tools_json().into_owned(),
        model: view.model.clone(),
        messages,
        ..AutoContext::default()
    }
}
