//! Checks the body of a POST against what is served, and makes a request to the executor of it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_api::SkillRuntime;
use knack_api::runtime_sandbox::ModelCode;
use knack_api::shared::Resources;
use knack_execution::check::{is_mount_name, overlap};
use knack_execution::lines::limits_from;
use knack_execution::run_limits::address_space_for_sandbox;
use knack_execution::{
    ExecutionId, ExecutionRequest, InputFile, Language, Limits, Program, SkillMount, WorkingDirectory,
};
use knack_hub_api::{
    ExecutionPost, HubRefusal, InputLineFile, MountLine, PROTOCOLS, ProgramLine, RefusalCode, WorkingDirectoryLine,
};
use knack_memory::MemoryShare;
use knack_packages::environment::EnvironmentImage;
use knack_skill::call::{ToolRun, is_stageable};
use knack_skill::config::entries_for;
use knack_skill::model::{Skill, SkillRef};
use knack_tool_schema::validate;
use serde_json::{Map, Value};

use crate::jobs::{JobRequest, PodResources, ResolvedRuntime, RunSkill};
use crate::selection::{Rejection, Scope, asked_image, resources_allowed};

/// Skills mounted in one run: more than a conversation loads, fewer than would fill a work directory.
const MAX_MOUNTS: usize = 64;

/// Most bytes of files that the mounts of one run have together: eight skills of the largest size, or as much as the
/// inputs of a run. Each mount is sent to the pod as files of its own, also one of a skill that another mount has too.
const MOUNTED_MAX_BYTES: u64 = 64 << 20;

/// A mount whose content was found.
#[derive(Debug, Clone)]
pub struct MountedSkill {
    /// The skill.
    pub skill: Arc<Skill>,
    /// The share of the process's memory that its files take.
    pub memory: Option<Arc<MemoryShare>>,
    /// The revision that is mounted.
    pub revision: String,
    /// Resources that it asks for.
    pub resources: Option<Resources>,
    /// The environment of its packages.
    pub packages: Option<EnvironmentImage>,
}

/// The checks that need only the POST. Returns the id and the skills to look up, in the order of the mounts.
pub fn read(post: &ExecutionPost) -> Result<(ExecutionId, Vec<SkillRef>), HubRefusal> {
    if !PROTOCOLS.accepts(post.protocol) {
        return Err(invalid(format!(
            "this hub understands protocol {PROTOCOLS}, the request is of protocol {}; upgrade the older one",
            post.protocol
        )));
    }
    let id: ExecutionId = post.id.parse().map_err(|error| invalid(format!("id: {error}")))?;
    if post.mounts.len() > MAX_MOUNTS {
        return Err(invalid(format!("mounts: at most {MAX_MOUNTS} skills in one run")));
    }
    let skills: Vec<SkillRef> = post
        .mounts
        .iter()
        .map(|mount| SkillRef {
            namespace: mount.namespace.clone(),
            name: mount.name.clone(),
        })
        .collect();
    for (index, (mount, skill)) in post.mounts.iter().zip(&skills).enumerate() {
        let is_shared = || {
            post.mounts[..index]
                .iter()
                .any(|other| overlap(&other.mount, &mount.mount))
        };
        if !is_mount_name(&mount.mount, skill) || is_shared() {
            return Err(invalid(format!(
                "mounts: {:?} is not a valid and unique folder name",
                mount.mount
            )));
        }
    }
    if post.skill.is_some_and(|index| index >= post.mounts.len()) {
        return Err(invalid("skill: must be an index into mounts".to_owned()));
    }
    if let WorkingDirectoryLine::Skill(name) = &post.working_directory
        && !post.mounts.iter().any(|mount| mount.mount == *name)
    {
        return Err(invalid(format!("working_directory: {name:?} is not mounted")));
    }
    if post.inputs.len() > Limits::MAX_INPUT_FILES {
        return Err(invalid(format!("inputs: at most {} files", Limits::MAX_INPUT_FILES)));
    }
    if let Some(input) = post.inputs.iter().find(|input| !is_stageable(&input.path)) {
        return Err(invalid(format!(
            "inputs: {:?}: names that begin with a dot configure programs and are not taken",
            input.path
        )));
    }
    Ok((id, skills))
}

/// The bytes of files of the mounts so far, with those of one more skill. Errors: it is one too many.
pub fn with_mount(mounted_bytes: u64, skill: &Skill) -> Result<u64, HubRefusal> {
    let bytes = skill.files.values().map(|file| file.bytes.len() as u64).sum::<u64>();
    let all = mounted_bytes + bytes;
    if all > MOUNTED_MAX_BYTES {
        let text = format!(
            "mounts: the files of the skills exceed {} MiB together, from {} on; mount fewer skills",
            MOUNTED_MAX_BYTES >> 20,
            skill.id
        );
        return Err(HubRefusal::new(RefusalCode::TooLarge, text));
    }
    Ok(all)
}

/// The subject of an admission, besides the POST.
#[derive(Debug)]
pub struct Admission<'a> {
    /// The mounts' skills, in their order.
    pub mounted: &'a [MountedSkill],
    /// The runtime as written.
    pub runtime: &'a SkillRuntime,
    /// The runtime with every default filled in.
    pub resolved: &'a ResolvedRuntime,
    /// The images that may run.
    pub scope: &'a Scope<'a>,
    /// The key of the caller's executions.
    pub caller: String,
}

/// The executor's request.
///
/// The kind of program decides what it gets: a declared tool is resolved here, from the mounted revision, and only such
/// a run is granted environment values. Code and command lines are model-written, whatever skill they name.
pub fn admit(post: ExecutionPost, id: ExecutionId, admission: &Admission<'_>) -> Result<JobRequest, HubRefusal> {
    let Admission {
        mounted,
        runtime,
        resolved,
        caller,
        ..
    } = admission;
    let mut env = BTreeMap::new();
    let (program, tool, working_directory) = match post.program {
        ProgramLine::Tool { name, arguments } => {
            let folder = tool_folder(&post.mounts, post.skill, &post.working_directory)?;
            let mut tool = tool(admission, &name, arguments)?;
            env = configured(&mut tool, resolved)?;
            let argv = tool.argv.clone();
            (Program::Command { argv }, Some(Arc::new(tool)), folder)
        }
        line => {
            let (program, folder) = (model_program(line, runtime)?, directory(post.working_directory));
            declared_command(&program, &folder, &post.mounts, admission)?;
            (program, None, folder)
        }
    };
    let skill = post.skill.and_then(|index| mounted.get(index)).cloned();
    let RequestedSandbox {
        packages,
        image,
        resources,
    } = asked_sandbox(admission, skill.as_ref())?;
    let reference = skill.as_ref().map(|mounted| mounted.skill.id.clone());
    let mut limits = limits_from(&post.limits, resolved.timeout, resolved.max_timeout);
    let of_pod = resources.as_ref().unwrap_or(&resolved.resources).memory_bytes();
    limits.memory_bytes = limits.memory_bytes.or(address_space_for_sandbox(of_pod));
    let execution = ExecutionRequest {
        id,
        caller: caller.clone(),
        skill: reference.clone(),
        program,
        tool,
        mounts: mounts(&post.mounts, mounted),
        inputs: inputs(post.inputs),
        working_directory,
        env,
        limits,
        trace: None,
    };
    Ok(JobRequest {
        skill: reference.zip(skill).map(|(id, mounted)| RunSkill {
            id,
            revision: Some(mounted.revision),
        }),
        packages,
        image,
        resources,
        content: mounted.iter().filter_map(|mounted| mounted.memory.clone()).collect(),
        ..JobRequest::from(execution)
    })
}

fn mounts(lines: &[MountLine], mounted: &[MountedSkill]) -> Vec<SkillMount> {
    let mounts = lines.iter().zip(mounted).map(|(line, mounted)| SkillMount {
        name: line.mount.clone(),
        skill: Arc::clone(&mounted.skill),
    });
    mounts.collect()
}

fn inputs(lines: Vec<InputLineFile>) -> Vec<InputFile> {
    let inputs = lines.into_iter().map(|input| InputFile {
        path: input.path,
        bytes: input.data.0,
    });
    inputs.collect()
}

/// The sandbox that a run gets, where it differs from the runtime's own.
struct RequestedSandbox {
    packages: Option<EnvironmentImage>,
    image: Option<String>,
    resources: Option<PodResources>,
}

/// Resolves what the skill of a run asks for. Errors: the runtime does not allow it.
fn asked_sandbox(admission: &Admission<'_>, skill: Option<&MountedSkill>) -> Result<RequestedSandbox, HubRefusal> {
    let Admission {
        runtime,
        resolved,
        scope,
        ..
    } = admission;
    let sandbox = skill.map(|mounted| &mounted.skill.sandbox);
    let (image, name) = (
        sandbox.and_then(|sandbox| sandbox.image.as_deref()),
        sandbox.and_then(|sandbox| sandbox.image_name.as_deref()),
    );
    // An image that the skill refers to is taken to have its packages; they are added to one that the runtime names.
    let packages = skill.and_then(|mounted| mounted.packages.clone());
    let packages = packages.filter(|_| image.is_none());
    let image = asked_image(runtime, image, name, scope).map_err(forbidden)?;
    let image = image.filter(|image| packages.is_none() && *image != resolved.image);
    let image = image.map(str::to_owned);
    let asked = skill.and_then(|mounted| mounted.resources.as_ref());
    if let Some(asked) = asked {
        // The revision may be older than the ceiling.
        resources_allowed(&runtime.spec.sandbox, asked).map_err(forbidden)?;
    }
    let resources = asked.and_then(|asked| resolved.resources.raised_to(asked));
    Ok(RequestedSandbox {
        packages,
        image,
        resources,
    })
}

/// Gives a declared tool the values of its configuration, as the spec that code runs by has them: what is in Secrets is a
/// grant of the same spec.
fn configured(tool: &mut ToolRun, resolved: &ResolvedRuntime) -> Result<BTreeMap<String, String>, HubRefusal> {
    let entries = entries_for(&resolved.config, &tool.skill);
    tool.configure(&entries)
        .map_err(|refused| HubRefusal::new(RefusalCode::Forbidden, refused))
}

fn directory(line: WorkingDirectoryLine) -> WorkingDirectory {
    match line {
        WorkingDirectoryLine::Work => WorkingDirectory::Work,
        WorkingDirectoryLine::Skill(name) => WorkingDirectory::Skill(name),
    }
}

/// Where a declared tool runs: in the folder of its skill, which is the only one that is mounted. A second one could bring
/// modules that the tool's interpreter finds beside its own.
fn tool_folder(
    mounts: &[MountLine],
    skill: Option<usize>,
    asked: &WorkingDirectoryLine,
) -> Result<WorkingDirectory, HubRefusal> {
    let ([mount], Some(0)) = (mounts, skill) else {
        return Err(invalid(
            "program.tool: mounts must hold exactly the skill whose tool runs, and skill must be 0".to_owned(),
        ));
    };
    match asked {
        WorkingDirectoryLine::Skill(name) if *name != mount.mount => Err(invalid(
            "working_directory: a declared tool runs in its skill's folder; leave it out".to_owned(),
        )),
        _ => Ok(WorkingDirectory::Skill(mount.mount.clone())),
    }
}

/// The declared tool that a post names, in the revision that is mounted.
fn tool(admission: &Admission<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolRun, HubRefusal> {
    let [mounted] = admission.mounted else {
        return Err(invalid(
            "program.tool: mounts must hold exactly the skill whose tool runs".to_owned(),
        ));
    };
    let run = ToolRun::resolve(&mounted.skill, name, arguments, &validate)
        .map_err(|refused| invalid(refused.trim_start_matches("Error: ").to_owned()))?;
    let has_grants = !admission.resolved.grants_of(Some(&run)).is_empty();
    let model_code = match admission.runtime.spec.sandbox.model_code {
        ModelCode::Allow => knack_skill::catalog::ModelCode::Allow,
        ModelCode::Deny => knack_skill::catalog::ModelCode::Deny,
    };
    run.admit(has_grants, model_code, admission.runtime.spec.max_risk())
        .map_err(|refused| HubRefusal::new(RefusalCode::Forbidden, refused))?;
    Ok(run)
}

/// Code or a command line, written by a model or by the client.
fn model_program(line: ProgramLine, runtime: &SkillRuntime) -> Result<Program, HubRefusal> {
    if runtime.spec.sandbox.model_code == ModelCode::Deny {
        return Err(HubRefusal::new(
            RefusalCode::Forbidden,
            "this runtime runs declared tools only (spec.sandbox.modelCode: Deny), and those by their names (program.kind: tool)",
        ));
    }
    match line {
        ProgramLine::Code { language, source } => {
            let language = Language::from_word(&language)
                .ok_or_else(|| invalid(format!("program.language: {language:?} is not python or node")))?;
            Ok(Program::Code { language, source })
        }
        ProgramLine::Command { argv } if argv.first().is_none_or(String::is_empty) => {
            Err(invalid("program.argv: must not be empty".to_owned()))
        }
        ProgramLine::Command { argv } => Ok(Program::Command { argv }),
        ProgramLine::Tool { .. } => Err(invalid("program: kind tool is not accepted here".to_owned())),
    }
}

/// A command line in a skill's folder that is a declared tool's: so gateways of protocol 1 post tools. It gets no values,
/// and the tool's risk binds all the same.
fn declared_command(
    program: &Program,
    directory: &WorkingDirectory,
    mounts: &[MountLine],
    admission: &Admission<'_>,
) -> Result<(), HubRefusal> {
    let (Program::Command { argv }, WorkingDirectory::Skill(folder)) = (program, directory) else {
        return Ok(());
    };
    let mut mounted = mounts.iter().zip(admission.mounted);
    let Some((_, MountedSkill { skill, .. })) = mounted.find(|(line, _)| line.mount == *folder) else {
        return Ok(());
    };
    // If the commands of two tools begin alike, the longer one is meant.
    let declared = skill.tools.iter().filter(|tool| argv.starts_with(&tool.command));
    let tool = declared.max_by_key(|tool| (tool.command.len(), tool.risk));
    let max_risk = admission.runtime.spec.max_risk();
    match tool {
        Some(tool) if tool.risk > max_risk => Err(HubRefusal::new(
            RefusalCode::Forbidden,
            knack_skill::texts::above_max_risk(&skill.id.name, &tool.name, tool.risk, max_risk),
        )),
        _ => Ok(()),
    }
}

fn forbidden(rejection: Rejection) -> HubRefusal {
    HubRefusal::new(RefusalCode::Forbidden, rejection.message)
}

fn invalid(message: String) -> HubRefusal {
    HubRefusal::new(RefusalCode::Invalid, message)
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
