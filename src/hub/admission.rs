//! From a POST to a request of the executor: what is asked, checked against what is served. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use knack_skill::model::{Skill, SkillRef};

use crate::api::SkillRuntime;
use crate::api::runtime_sandbox::ModelCode;
use crate::api::shared::Resources;
use crate::execution::job::{JobRequest, RuntimeView};
use crate::execution::remote::limits_from;
use crate::execution::{
    ExecutionId, ExecutionRequest, InputFile, Language, Limits, Program, SkillMount, WorkingDirectory,
};
use crate::hub_api::{ExecutionPost, PROTOCOL, Problem, ProblemCode, ProgramLine, WorkingDirectoryLine};
use crate::selection::{Rejection, Scope, image_allowed, resources_allowed};

/// Skills mounted in one run: more than a conversation loads, fewer than would fill a work directory.
const MAX_MOUNTS: usize = 64;

/// A mount whose content was found.
#[derive(Debug, Clone)]
pub struct Mounted {
    /// The skill.
    pub skill: Arc<Skill>,
    /// Its revision.
    pub revision: String,
    /// Resources that it asks for.
    pub resources: Option<Resources>,
}

/// What can be told from the POST alone. Returns the id and the skills to look up, in the order of the mounts.
pub fn read(post: &ExecutionPost) -> Result<(ExecutionId, Vec<SkillRef>), Problem> {
    if post.protocol != PROTOCOL {
        return Err(invalid(format!(
            "this hub speaks protocol {PROTOCOL}, the request {}; upgrade the older one",
            post.protocol
        )));
    }
    let id: ExecutionId = post.id.parse().map_err(|error| invalid(format!("id: {error}")))?;
    if post.mounts.len() > MAX_MOUNTS {
        return Err(invalid(format!("mounts: at most {MAX_MOUNTS} skills in one run")));
    }
    let mut names = HashSet::new();
    for mount in &post.mounts {
        let is_segment = !mount.mount.is_empty()
            && mount.mount.len() <= 255
            && !mount.mount.contains(['/', '\\', '\0'])
            && mount.mount != "."
            && mount.mount != "..";
        if !is_segment || !names.insert(mount.mount.as_str()) {
            return Err(invalid(format!(
                "mounts: {:?} is not a folder name of its own",
                mount.mount
            )));
        }
    }
    if post.skill.is_some_and(|index| index >= post.mounts.len()) {
        return Err(invalid("skill: not an index of mounts".to_owned()));
    }
    if let WorkingDirectoryLine::Skill(name) = &post.working_directory
        && !names.contains(name.as_str())
    {
        return Err(invalid(format!("working_directory: {name:?} is not mounted")));
    }
    if post.inputs.len() > Limits::MAX_INPUT_FILES {
        return Err(invalid(format!("inputs: at most {} files", Limits::MAX_INPUT_FILES)));
    }
    let skills = post
        .mounts
        .iter()
        .map(|mount| SkillRef {
            namespace: mount.namespace.clone(),
            name: mount.name.clone(),
        })
        .collect();
    Ok((id, skills))
}

/// What an admission is about, besides the POST.
#[derive(Debug)]
pub struct Admission<'a> {
    /// The mounts' skills, in their order.
    pub mounted: &'a [Mounted],
    /// The runtime as written.
    pub runtime: &'a SkillRuntime,
    /// The same, resolved.
    pub view: &'a RuntimeView,
    /// What images may run.
    pub scope: &'a Scope<'a>,
    /// The key of the caller's executions.
    pub caller: String,
}

/// The executor's request.
///
/// A run gets the environment grants of its skill only if it is one of the skill's declared tools: model-written code
/// that merely names the skill must not read the skill's secrets.
pub fn admit(post: ExecutionPost, id: ExecutionId, admission: Admission<'_>) -> Result<JobRequest, Problem> {
    let Admission {
        mounted,
        runtime,
        view,
        scope,
        caller,
    } = admission;
    let program = program(post.program)?;
    let skill = post.skill.and_then(|index| mounted.get(index)).cloned();
    let in_its_folder = match (
        &post.working_directory,
        post.skill.and_then(|index| post.mounts.get(index)),
    ) {
        (WorkingDirectoryLine::Skill(name), Some(mount)) => *name == mount.mount,
        _ => false,
    };
    let declared = skill
        .as_ref()
        .is_some_and(|mounted| in_its_folder && is_declared(&program, &mounted.skill));
    if runtime.spec.sandbox.model_code == ModelCode::Deny && !declared {
        return Err(Problem::new(
            ProblemCode::Forbidden,
            "this runtime runs declared tools only (spec.sandbox.modelCode: Deny)",
        ));
    }
    let image = skill.as_ref().and_then(|mounted| mounted.skill.sandbox.image.clone());
    if let Some(image) = &image {
        image_allowed(runtime, image, scope).map_err(forbidden)?;
    }
    let asked = skill.as_ref().and_then(|mounted| mounted.resources.as_ref());
    if let Some(asked) = asked {
        // The revision may be older than the ceiling.
        resources_allowed(runtime, asked).map_err(forbidden)?;
    }
    let resources = asked.and_then(|asked| view.resources.raised_to(asked));
    let mounts = post
        .mounts
        .iter()
        .zip(mounted)
        .map(|(line, mounted)| SkillMount {
            name: line.mount.clone(),
            skill: Arc::clone(&mounted.skill),
        })
        .collect();
    let reference = skill.as_ref().map(|mounted| mounted.skill.id.clone());
    let execution = ExecutionRequest {
        id,
        caller,
        skill: reference
            .as_ref()
            .filter(|_| declared)
            .map(|skill| format!("{}/{}", skill.namespace, skill.name)),
        program,
        mounts,
        inputs: post
            .inputs
            .into_iter()
            .map(|input| InputFile {
                path: input.path,
                bytes: input.data.0,
            })
            .collect(),
        working_directory: match post.working_directory {
            WorkingDirectoryLine::Work => WorkingDirectory::Work,
            WorkingDirectoryLine::Skill(name) => WorkingDirectory::Skill(name),
        },
        env: std::collections::BTreeMap::new(),
        limits: limits_from(&post.limits, view.timeout, view.max_timeout),
        trace: None,
    };
    Ok(JobRequest {
        skill_namespace: reference.as_ref().map(|skill| skill.namespace.clone()),
        skill: reference.map(|skill| skill.name),
        revision: skill.map(|mounted| mounted.revision),
        image: image.filter(|image| *image != view.image),
        resources,
        ..JobRequest::from(execution)
    })
}

fn program(line: ProgramLine) -> Result<Program, Problem> {
    match line {
        ProgramLine::Code { language, source } => {
            let language = Language::from_word(&language)
                .ok_or_else(|| invalid(format!("program.language: {language:?} is not python or node")))?;
            Ok(Program::Code { language, source })
        }
        ProgramLine::Command { argv } if argv.first().is_none_or(String::is_empty) => {
            Err(invalid("program.argv: empty".to_owned()))
        }
        ProgramLine::Command { argv } => Ok(Program::Command { argv }),
    }
}

/// Whether a program is the command of one of the skill's tools, with whatever arguments.
fn is_declared(program: &Program, skill: &Skill) -> bool {
    let Program::Command { argv } = program else {
        return false;
    };
    skill
        .tools
        .iter()
        .any(|tool| !tool.command.is_empty() && argv.starts_with(&tool.command))
}

fn forbidden(rejection: Rejection) -> Problem {
    Problem::new(ProblemCode::Forbidden, rejection.message)
}

fn invalid(message: String) -> Problem {
    Problem::new(ProblemCode::Invalid, message)
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
