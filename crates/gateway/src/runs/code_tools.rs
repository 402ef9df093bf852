//! Tools by which clients ask their provider to run programs: who runs them.
//!
//! OpenAI's `shell` in a container of the provider's, Anthropic's `code_execution` and Gemini's `codeExecution` are the
//! provider's own, and pass untouched. They are this gateway's where skills that it serves, or whole ones, are attached to the shell, and where an operator says
//! that the upstream has no such tools. `run_code` then replaces them, and its runs are shown in the API's own form.

use std::collections::BTreeSet;

use clap::ValueEnum;
use knack_skill::catalog::ModelCode;
use knack_skill::plan::{Action, Plan, RunCode};
use knack_wire::request::{CodeTool, ToolChoice};
use knack_wire::{Fault, Format, RequestFields};

/// An API whose upstream has no tool that runs programs, though clients of the API may ask for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum CodeTools {
    /// The `shell` of OpenAI Responses.
    #[value(name = "openai")]
    OpenAi,
    /// The `code_execution` of Anthropic Messages.
    Anthropic,
    /// The `codeExecution` of Gemini.
    Gemini,
}

/// The APIs for which programs run here.
pub type SandboxCodeTools = BTreeSet<CodeTools>;

/// Whether the programs that clients of a format ask their provider to run are run here.
pub(crate) fn runs_here(apis: &SandboxCodeTools, format: Format) -> bool {
    let api = match format {
        Format::Responses => CodeTools::OpenAi,
        Format::Messages => CodeTools::Anthropic,
        Format::Gemini => CodeTools::Gemini,
        Format::Chat => return false,
    };
    apis.contains(&api)
}

/// Whether the code tool of a request is to be run here, though its upstream may have one: it names what no provider knows.
pub(crate) fn is_own(fields: &RequestFields, names_files: bool) -> bool {
    fields.code_tool.as_ref().is_some_and(|tool| tool.own || names_files)
}

/// Takes the code tool out of what keeps skills from a request, where it does not go upstream. `is_missing`: as in [`run_code`].
pub(crate) fn unblock(fields: &mut RequestFields, is_missing: bool) {
    if is_missing && fields.code_tool.as_ref().is_some_and(|tool| tool.closes) {
        fields.closed = None;
    }
}

/// Whether the skills that a request attaches whole are run here: everywhere, but where its shell stays with the provider for a
/// member of it, or the runtime runs no code of models. The provider can run them there, unlike skills of this gateway.
pub(crate) fn takes_attached(fields: &RequestFields, is_missing: bool, allowed: ModelCode) -> bool {
    fields.code_tool.as_ref().is_some_and(|tool| {
        tool.inline_skills && (is_missing || (tool.only_there.is_none() && allowed == ModelCode::Allow))
    })
}

/// When the plan of a request has `run_code`. `is_missing`: its upstream has no tool that runs programs ([`runs_here`]), or the
/// request attaches skills whole that are run here.
pub(crate) fn run_code(fields: &RequestFields, format: Format, is_missing: bool) -> RunCode {
    match &fields.code_tool {
        Some(_) if is_missing => RunCode::Always,
        Some(_) if format == Format::Responses => RunCode::WithAttached,
        _ => RunCode::WithFiles,
    }
}

/// Knack's tool that replaces the client's code tool; `None`: that is left to the provider, or there is none.
/// Errors: only Knack could serve it, and cannot (400, 503).
pub(crate) fn replacement(
    fields: &RequestFields,
    plan: &Plan,
    has_catalog: bool,
    (format, is_missing): (Format, bool),
) -> Result<Option<String>, Fault> {
    let Some(tool) = &fields.code_tool else {
        return Ok(None);
    };
    if is_missing && fields.tool_choice == ToolChoice::None {
        // It is not called, and the upstream must not see it.
        return Ok(Some(knack_skill::texts::RUN_CODE.to_owned()));
    }
    if plan.off && tool.own {
        return Err(refused(
            tool,
            "it names files or a container of this gateway, and skills are off for this request",
        ));
    }
    if plan.off {
        return Ok(None);
    }
    let has_skills = !(plan.container.ours.is_empty() && plan.attached.is_empty());
    let attached = format == Format::Responses && has_skills;
    let foreign = plan
        .container
        .native
        .iter()
        .find_map(|&at| fields.container_skills.get(at));
    if is_missing {
        if let Some(member) = tool.only_there {
            return Err(refused(tool, &format!("\"{member}\" is not supported: {HERE}")));
        }
        if let Some(skill) = foreign {
            let why = format!("the skill \"{}\" is not served here, and {HERE}", skill.id);
            return Err(refused(tool, &why));
        }
    } else if !attached || foreign.is_some() || tool.only_there.is_some() {
        return Ok(None);
    }
    if !has_catalog {
        // It is unknown what the runtime allows.
        let name = &tool.name;
        return Err(Fault::new(
            503,
            format!(
                "The tool \"{name}\" cannot be served: this gateway has no catalog of skills at this moment. Try again in a few seconds."
            ),
        ));
    }
    let planned = plan.tools.iter().find(|tool| matches!(tool.action, Action::RunCode));
    planned.map(|planned| Some(planned.name.clone())).ok_or_else(|| {
        refused(
            tool,
            "the runtime of this gateway does not run code written by models (modelCode: Deny)",
        )
    })
}

/// Why what only a provider can do is refused.
const HERE: &str = "the programs of this tool run in the sandbox of this gateway, not at the provider";

fn refused(tool: &CodeTool, why: &str) -> Fault {
    Fault::bad("tools", format!("The tool \"{}\" cannot be served: {why}.", tool.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knack_skill::plan::{ContainerPlan, PlannedTool};
    use knack_wire::request::{ContainerSkill, SkillVersion};
    use serde_json::json;

    use super::*;

    /// The parts of a request besides its tool.
    #[derive(Clone, Copy, Default)]
    struct RequestedTools {
        ours: usize,
        foreign: usize,
        only_there: Option<&'static str>,
        choice_none: bool,
        off: bool,
        denied: bool,
    }

    fn decide(format: Format, is_missing: bool, asked: RequestedTools) -> Result<Option<String>, String> {
        let skill = |at| ContainerSkill {
            kind: "skill_reference".to_owned(),
            id: format!("skill_{at}"),
            version: SkillVersion::Absent,
        };
        let fields = RequestFields {
            code_tool: Some(CodeTool {
                name: "shell".to_owned(),
                only_there: asked.only_there,
                ..CodeTool::default()
            }),
            container_skills: (0..asked.ours + asked.foreign).map(skill).collect(),
            tool_choice: if asked.choice_none {
                ToolChoice::None
            } else {
                ToolChoice::Auto
            },
            ..RequestFields::default()
        };
        let run_code = PlannedTool::new("knack_run_code".to_owned(), String::new(), json!({}), Action::RunCode);
        let tools = (!asked.denied && !asked.off).then(|| Arc::new(run_code));
        let plan = Plan {
            container: ContainerPlan {
                ours: (0..asked.ours).collect(),
                native: (asked.ours..asked.ours + asked.foreign).collect(),
                versions: vec![None; asked.ours],
            },
            tools: tools.into_iter().collect(),
            off: asked.off,
            ..Plan::default()
        };
        replacement(&fields, &plan, true, (format, is_missing)).map_err(|fault| {
            assert_eq!((fault.status, fault.param.as_deref()), (400, Some("tools")));
            fault.message
        })
    }

    #[test]
    fn a_code_tool_is_ours_by_attached_skills_or_by_the_setting() {
        let plain = RequestedTools::default();
        let ours = RequestedTools { ours: 1, ..plain };
        let both = RequestedTools { foreign: 1, ..ours };
        let files = RequestedTools {
            only_there: Some("file_ids"),
            ..plain
        };
        let off = RequestedTools { off: true, ..plain };
        let none = RequestedTools {
            choice_none: true,
            ..off
        };
        for (format, is_missing, asked, is_ours) in [
            (Format::Responses, false, plain, false),
            (Format::Responses, false, ours, true),
            (Format::Responses, false, both, false),
            (Format::Responses, false, files, false),
            (Format::Responses, false, RequestedTools { ours: 1, ..files }, false),
            (Format::Responses, false, none, false),
            (Format::Responses, true, plain, true),
            (Format::Responses, true, ours, true),
            (Format::Responses, true, off, false),
            (Format::Messages, false, plain, false),
            (Format::Messages, false, ours, false),
            (Format::Messages, true, plain, true),
            (Format::Gemini, false, plain, false),
            (Format::Gemini, true, plain, true),
            (Format::Gemini, true, off, false),
        ] {
            let name = is_ours.then(|| "knack_run_code".to_owned());
            assert_eq!(decide(format, is_missing, asked), Ok(name), "{format:?}, {is_missing}");
        }
        // It is not called then, so nothing replaces it, and it is removed.
        assert_eq!(decide(Format::Responses, true, none), Ok(Some("run_code".to_owned())));
    }

    #[test]
    fn whole_skills_stay_where_the_shell_must_stay_and_where_nothing_may_run() {
        for (inline_skills, is_missing, only_there, allowed, taken) in [
            (true, false, None, ModelCode::Allow, true),
            (true, false, None, ModelCode::Deny, false),
            (true, false, Some("file_ids"), ModelCode::Allow, false),
            // These are refused, by name.
            (true, true, Some("file_ids"), ModelCode::Allow, true),
            (true, true, None, ModelCode::Deny, true),
            (false, true, None, ModelCode::Allow, false),
        ] {
            let fields = RequestFields {
                code_tool: Some(CodeTool {
                    inline_skills,
                    only_there,
                    ..CodeTool::default()
                }),
                ..RequestFields::default()
            };
            let row = (inline_skills, is_missing, only_there, allowed);
            assert_eq!(takes_attached(&fields, is_missing, allowed), taken, "{row:?}");
        }
    }

    #[test]
    fn a_code_tool_that_runs_here_keeps_no_skills_out() {
        for (is_missing, closes, closed) in [
            (true, true, None),
            (true, false, Some("built-in tools")),
            (false, true, Some("built-in tools")),
        ] {
            let mut fields = RequestFields {
                closed: Some("built-in tools"),
                code_tool: Some(CodeTool {
                    closes,
                    ..CodeTool::default()
                }),
                ..RequestFields::default()
            };
            unblock(&mut fields, is_missing);
            assert_eq!(fields.closed, closed);
        }
    }

    #[test]
    fn what_cannot_be_served_here_is_refused_by_name() {
        let plain = RequestedTools::default();
        for (is_missing, asked, said) in [
            (
                true,
                RequestedTools {
                    only_there: Some("file_ids"),
                    ..plain
                },
                "\"file_ids\" is not supported",
            ),
            (
                true,
                RequestedTools { foreign: 1, ..plain },
                "\"skill_0\" is not served here",
            ),
            (true, RequestedTools { denied: true, ..plain }, "modelCode: Deny"),
            (
                false,
                RequestedTools {
                    ours: 1,
                    denied: true,
                    ..plain
                },
                "modelCode: Deny",
            ),
        ] {
            let refused = decide(Format::Responses, is_missing, asked).unwrap_err();
            assert!(refused.contains(said) && refused.contains("\"shell\""), "{refused}");
        }
    }
}
