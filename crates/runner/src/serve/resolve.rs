//! From a request to something that can be executed: command, working directory, environment.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::files::{HOME, RunFolders, TEMPORARY};
use crate::protocol::Cwd;

/// Names that the runner sets itself.
const RESERVED: [&str; 3] = ["HOME", "TMPDIR", "KNACK_WORK_DIR"];

/// The binary of a command: with a `/` relative to `cwd`, else the first executable file in `search`.
///
/// Errors: the argv is empty or the command was not found; the texts go to the model.
pub(super) fn command(argv: &[String], cwd: &Path, search: Option<&str>) -> Result<PathBuf, String> {
    let name = argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or("argv: the command is empty")?;
    if name.contains('/') {
        let path = cwd.join(name);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("command not found: {name}"))
        };
    }
    search
        .unwrap_or_default()
        .split(':')
        .filter(|directory| directory.starts_with('/'))
        .map(|directory| Path::new(directory).join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| format!("command not found: {name}"))
}

/// The path of the working directory.
///
/// Errors: the skill's name is no name of a directory in the skill area, `name` or `namespace/name`.
pub(super) fn cwd(folders: &RunFolders, cwd: &Cwd) -> Result<PathBuf, String> {
    let name = match cwd {
        Cwd::Work => return Ok(folders.work_path.clone()),
        Cwd::Skill(name) => name,
    };
    let is_plain = |part: &str| !part.is_empty() && !part.contains('\0') && !matches!(part, "." | "..");
    let is_name = name.split('/').count() <= 2 && name.split('/').all(is_plain);
    let path = folders.skills_path.join(name);
    let is_directory = is_name && std::fs::symlink_metadata(&path).is_ok_and(|data| data.is_dir());
    if is_directory {
        Ok(path)
    } else {
        Err(format!("cwd: no files of the skill {name:?} were staged"))
    }
}

/// The variables without the reserved names.
///
/// Errors: a name or value that no environment can hold.
pub(super) fn variables(environment: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, String> {
    for (name, value) in environment {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!(
                "environment: {name:?} has an empty name, a '=' in the name, or a NUL"
            ));
        }
    }
    let own = environment
        .iter()
        .filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    Ok(own.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The reserved variables.
pub(super) fn reserved(folders: &RunFolders) -> Vec<(String, String)> {
    let path = |name: &str| folders.work_path.join(name).to_string_lossy().into_owned();
    let work = folders.work_path.to_string_lossy().into_owned();
    RESERVED
        .into_iter()
        .map(str::to_owned)
        .zip([path(HOME), path(TEMPORARY), work])
        .collect()
}
