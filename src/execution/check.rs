//! What every executor refuses before it does anything.

use std::path::{Component, Path};

use super::{ExecutionError, ExecutionRequest, Limits, SkillMount, WorkingDirectory};

/// Checks counts, sizes and paths of a request.
///
/// Errors: [`ExecutionError::Invalid`] with what is wrong.
pub(super) fn check(request: &ExecutionRequest) -> Result<(), ExecutionError> {
    let invalid = |text: String| Err(ExecutionError::Invalid(text));
    if request.inputs.len() > Limits::MAX_INPUT_FILES {
        return invalid(format!(
            "{} input files, {} are allowed",
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
    for (index, mount) in request.mounts.iter().enumerate() {
        check_mount(mount)?;
        if request.mounts[..index].iter().any(|other| other.name == mount.name) {
            return invalid(format!("two skills are mounted as {:?}", mount.name));
        }
    }
    if let WorkingDirectory::Skill(name) = &request.working_directory
        && !request.mounts.iter().any(|mount| mount.name == *name)
    {
        return invalid(format!("skill {name:?} is the working directory but is not mounted"));
    }
    Ok(())
}

/// Whether a mount can be staged: its name is one segment, its files stay below it, its digest is a plain word.
fn check_mount(mount: &SkillMount) -> Result<(), ExecutionError> {
    let one_segment =
        |text: &str| !text.contains('/') && Path::new(text).components().eq([Component::Normal(text.as_ref())]);
    if !one_segment(&mount.name) || !one_segment(&mount.skill.digest) {
        return Err(ExecutionError::Invalid(format!(
            "skill {:?} cannot be mounted under that name",
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
fn is_relative(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}
