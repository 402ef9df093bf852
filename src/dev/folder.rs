//! A bare skill folder on disk: its files, within the bounds that a skill may have.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use knack_gateway::catalog::SourceReport;
use knack_skill::foreign::{self, ENVIRONMENT_MARK, FOREIGN_FOLDERS};
use knack_skill::model::SkillFile;

use super::search_settings::Search;

/// Files above this are not read: the skill is over its bound anyway (8 MiB in all, docs/design/decisions.md#size-of-a-skill).
const FOLDER_READ_BYTES: u64 = 9 << 20;
/// Files of one skill, as many as a cluster takes.
const FOLDER_MAX_FILES: usize = knack_skill::tree::MAX_FILES;
/// Folders inside a skill.
const FOLDER_MAX_DEPTH: usize = 16;
/// Never part of a skill, beside the folders that no skill has.
const LITTER: &str = ".DS_Store";

/// Reads every regular file below `root`. Links are not followed: a skill must not carry what its author's
/// machine happened to hold. They are named in a warning. Files that runs write are no part of a skill.
pub(super) fn read_folder(
    root: &Path,
    origin: &str,
    search: &Search,
) -> Result<(BTreeMap<String, SkillFile>, Vec<SourceReport>), SourceReport> {
    let mut walk = Walk {
        origin,
        search,
        files: BTreeMap::new(),
        warnings: Vec::new(),
        named: BTreeSet::new(),
        bytes: 0,
    };
    walk.directory(root, "", 0)?;
    Ok((walk.files, walk.warnings))
}

struct Walk<'a> {
    origin: &'a str,
    search: &'a Search,
    files: BTreeMap<String, SkillFile>,
    warnings: Vec<SourceReport>,
    /// Names of folders that a warning says to be left out.
    named: BTreeSet<String>,
    bytes: u64,
}

impl Walk<'_> {
    fn fail(&self, path: &str, text: &str) -> SourceReport {
        SourceReport::error(format!("{}/{path}", self.origin), text)
    }

    fn directory(&mut self, directory: &Path, prefix: &str, depth: usize) -> Result<(), SourceReport> {
        if depth > FOLDER_MAX_DEPTH {
            return Err(self.fail(
                prefix,
                &format!("more than {FOLDER_MAX_DEPTH} folders deep; keep a skill flat"),
            ));
        }
        self.search.reads_folder(directory);
        let entries =
            std::fs::read_dir(directory).map_err(|error| self.fail(prefix, &format!("cannot be read: {error}")))?;
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.warnings.push(SourceReport::warning(
                    self.origin,
                    format!("{}: the file name is not UTF-8; left out", entry.path().display()),
                ));
                continue;
            };
            let path = if prefix.is_empty() {
                name.to_owned()
            } else {
                format!("{prefix}/{name}")
            };
            if is_foreign(name, &entry.path()) {
                self.leave_out(name, &path);
                continue;
            }
            let kind = entry
                .file_type()
                .map_err(|error| self.fail(&path, &format!("cannot be read: {error}")))?;
            if kind.is_dir() && self.search.is_written_by_runs(&entry.path()) {
                continue;
            }
            if kind.is_dir() {
                self.directory(&entry.path(), &path, depth + 1)?;
            } else if kind.is_file() {
                self.file(&entry.path(), path)?;
            } else {
                self.warnings.push(SourceReport::warning(
                    format!("{}/{path}", self.origin),
                    "not a regular file; left out (links are not followed)",
                ));
            }
        }
        Ok(())
    }

    /// One warning for each name of which an author may have meant to ship the content.
    fn leave_out(&mut self, name: &str, path: &str) {
        let Some(instead) = foreign::declared_instead(name).filter(|_| name != LITTER) else {
            return;
        };
        if self.named.insert(name.to_owned()) {
            self.warnings.push(SourceReport::warning(
                format!("{}/{path}", self.origin),
                format!("left out, it is not part of the skill; {instead}"),
            ));
        }
    }

    fn file(&mut self, path: &Path, name: String) -> Result<(), SourceReport> {
        if self.files.len() >= FOLDER_MAX_FILES {
            return Err(self.fail(
                "",
                &format!(
                    "more than {FOLDER_MAX_FILES} files; a skill holds instructions and scripts, not a tree of data"
                ),
            ));
        }
        let unreadable = |error: std::io::Error| {
            SourceReport::error(format!("{}/{name}", self.origin), format!("cannot be read: {error}"))
        };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let left = FOLDER_READ_BYTES - self.bytes;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(left)).unwrap_or(0) + 1);
        file.take(left + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.bytes += bytes.len() as u64;
        if self.bytes > FOLDER_READ_BYTES {
            return Err(self.fail(
                "",
                "more than 8 MiB in all; keep large data out of the skill and give it to the model as an input file",
            ));
        }
        let file = SkillFile {
            bytes: bytes.into(),
            executable: is_executable(&metadata),
        };
        self.files.insert(name, file);
        Ok(())
    }
}

/// Whether a name in a skill's folder is no part of the skill: version control, byte code, desktop litter, packages of a checkout.
fn is_foreign(name: &str, path: &Path) -> bool {
    name == LITTER || FOREIGN_FOLDERS.contains(&name) || path.join(ENVIRONMENT_MARK).is_file()
}

#[cfg(unix)]
fn is_executable(metadata: &std::fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o100 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    false
}
