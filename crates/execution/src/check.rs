//! The checks that every executor makes before a run.

use std::collections::HashSet;
use std::path::{Component, Path};

use knack_skill::call::{SKILLS, ToolRun, is_below_inputs, is_below_skills, is_stageable};
use knack_skill::model::SkillRef;

use super::{ExecutionError, ExecutionRequest, InputFile, Limits, Program, SkillMount, WorkingDirectory};

/// Longest name of a file, in bytes, as file systems have it.
const SEGMENT_MAX_BYTES: usize = 255;

/// Checks counts, sizes and paths of a request.
///
/// Errors: [`ExecutionError::Invalid`] with what is wrong.
pub fn check(request: &ExecutionRequest) -> Result<(), ExecutionError> {
    let invalid = |text: String| Err(ExecutionError::Invalid(text));
    if request.inputs.len() > Limits::MAX_INPUT_FILES {
        return invalid(format!(
            "inputs: {} files, at most {} are allowed; send fewer, or pack them into one archive",
            request.inputs.len(),
            Limits::MAX_INPUT_FILES
        ));
    }
    let bytes: u64 = request.inputs.iter().map(|input| input.bytes.len() as u64).sum();
    if bytes > Limits::MAX_INPUT_BYTES {
        return invalid(format!(
            "{bytes} bytes of input files, {} are allowed",
            Limits::MAX_INPUT_BYTES
        ));
    }
    if let Some(input) = request.inputs.iter().find(|input| !is_relative(&input.path)) {
        return invalid(format!("input path {:?} leaves the working directory", input.path));
    }
    if let Some(input) = request.inputs.iter().find(|input| !is_stageable(&input.path)) {
        return invalid(format!(
            "input path {:?}: names that begin with a dot configure programs and are not taken as inputs",
            input.path
        ));
    }
    check_places(&request.inputs)?;
    for (index, mount) in request.mounts.iter().enumerate() {
        check_mount(mount)?;
        if let Some(other) = request.mounts[..index]
            .iter()
            .find(|other| overlap(&other.name, &mount.name))
        {
            return invalid(format!(
                "mounts {:?} and {:?} are the same folder, or one contains the other",
                other.name, mount.name
            ));
        }
    }
    if let WorkingDirectory::Skill(name) = &request.working_directory
        && !request.mounts.iter().any(|mount| mount.name == *name)
    {
        return invalid(format!("skill {name:?} is the working directory but is not mounted"));
    }
    match &request.tool {
        Some(tool) => check_tool(request, tool),
        None if request.env.is_empty() => Ok(()),
        None => invalid("environment values are given to declared tools only".to_owned()),
    }
}

/// Whether every input has a place in the work directory: none is where the skills are, and none is the folder of
/// another one.
fn check_places(inputs: &[InputFile]) -> Result<(), ExecutionError> {
    let invalid = |text: String| Err(ExecutionError::Invalid(text));
    if let Some(input) = inputs.iter().find(|input| is_below_skills(&input.path)) {
        return invalid(format!(
            "input path {:?}: {SKILLS:?} is the folder of the skills; rename the file or its folder",
            input.path
        ));
    }
    let files: HashSet<&str> = inputs.iter().map(|input| &*input.path).collect();
    for input in inputs {
        let mut folders = input.path.match_indices('/').map(|(end, _)| &input.path[..end]);
        if let Some(file) = folders.find(|folder| files.contains(folder)) {
            return invalid(format!(
                "input paths {file:?} and {:?}: a file cannot be a folder too; rename one",
                input.path
            ));
        }
    }
    Ok(())
}

/// Checks that a run of a declared tool is only that: its own command line in its own folder, without other skills, and with
/// files of the conversation only where no interpreter loads them by itself.
fn check_tool(request: &ExecutionRequest, tool: &ToolRun) -> Result<(), ExecutionError> {
    let invalid = |text: &str| {
        let name = format!("tool {:?} of skill {}", tool.tool, tool.skill);
        Err(ExecutionError::Invalid(format!("{name}: {text}")))
    };
    let [mount] = request.mounts.as_slice() else {
        return invalid("exactly its own skill must be mounted");
    };
    if mount.skill.id != tool.skill {
        return invalid("exactly its own skill must be mounted");
    }
    if request.working_directory != WorkingDirectory::Skill(mount.name.clone()) {
        return invalid("its working directory must be its skill's folder");
    }
    if !matches!(&request.program, Program::Command { argv } if *argv == tool.argv) {
        return invalid("the program must be its declared command");
    }
    if let Some(input) = request.inputs.iter().find(|input| !is_below_inputs(&input.path)) {
        return invalid(&format!("input path {:?} is not below inputs/", input.path));
    }
    match request.env.keys().find(|name| !tool.env.contains(*name)) {
        Some(name) => invalid(&format!("it does not declare the environment variable {name}")),
        None => Ok(()),
    }
}

/// Whether a skill may be mounted under a name: one folder, or `namespace/name`, as models know a skill whose name another
/// one has, too.
pub fn is_mount_name(name: &str, skill: &SkillRef) -> bool {
    match name.split_once('/') {
        None => is_segment(name),
        Some((namespace, rest)) => {
            is_segment(namespace) && is_segment(rest) && (namespace, rest) == (&*skill.namespace, &*skill.name)
        }
    }
}

/// Whether two mounts are one folder, or one is in the other: their files could not be distinguished.
pub fn overlap(one: &str, other: &str) -> bool {
    let is_in = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_in(one, other) || is_in(other, one)
}

/// Whether a text is the name of one file or folder.
fn is_segment(text: &str) -> bool {
    text.len() <= SEGMENT_MAX_BYTES
        && !text.contains(['/', '\\', '\0'])
        && Path::new(text).components().eq([Component::Normal(text.as_ref())])
}

/// Whether a mount can be staged: its name is its own, its files stay below it, its digest is a plain word.
fn check_mount(mount: &SkillMount) -> Result<(), ExecutionError> {
    if !is_mount_name(&mount.name, &mount.skill.id) || !is_segment(&mount.skill.digest) {
        return Err(ExecutionError::Invalid(format!(
            "skill {:?}: cannot be mounted: its name must be one path segment or its id, and its digest one path segment",
            mount.name
        )));
    }
    match mount.skill.files.keys().find(|path| !is_relative(path)) {
        Some(path) => Err(ExecutionError::Invalid(format!(
            "skill {}: file path {path:?} leaves its folder",
            mount.name
        ))),
        None => Ok(()),
    }
}

/// Whether a path is relative, plain and without `.` or `..`.
pub(crate) fn is_relative(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}
