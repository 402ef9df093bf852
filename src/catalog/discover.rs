//! From paths that a user named to the skills and runtimes found there.

use std::path::{Path, PathBuf};

use knack_skill::SpecOverrides;
use knack_skill::model::SkillRef;

use super::folder::read_folder;
use super::source::{Report, SkillSource};
use crate::api::vocabulary::DEFAULT_NAMESPACE;
use crate::api::{Manifest, SkillManifest, SkillRuntimeManifest, parse_manifests};
use crate::sources::{below, inline_files};

/// One manifest file: an etcd object is at most 1.5 MiB, so a larger file holds no object that a cluster would take.
const MANIFEST_MAX_BYTES: u64 = 4 << 20;
/// Folders searched below a named path.
const SEARCH_MAX_DEPTH: usize = 8;

/// Folders of ours that runs write to, wherever they lie: kept files, and the working directories of the local sandbox.
const WRITTEN_BY_RUNS: [&str; 2] = ["knack-files", "knack-sandbox-"];

/// Where skills and runtimes are searched, and where never.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Files and folders that a user named.
    pub paths: Vec<PathBuf>,
    /// Folders that runs write to, canonical: whatever lies there was made by a model and is neither a skill nor a manifest.
    never: Vec<PathBuf>,
}

impl Search {
    /// Of what a user named.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            never: Vec::new(),
        }
    }

    /// Never below these folders, which exist.
    pub fn never_below<'p>(mut self, folders: impl IntoIterator<Item = &'p Path>) -> std::io::Result<Self> {
        for folder in folders {
            self.never.push(std::fs::canonicalize(folder)?);
        }
        Ok(self)
    }

    /// Whether runs can write what lies here.
    pub(super) fn is_written_by_runs(&self, path: &Path) -> bool {
        let Ok(path) = std::fs::canonicalize(path) else {
            return false;
        };
        let ours = |name: &str| WRITTEN_BY_RUNS.iter().any(|prefix| name.starts_with(prefix));
        path.file_name().and_then(|name| name.to_str()).is_some_and(ours)
            || self.never.iter().any(|never| path.starts_with(never))
    }
}

/// Everything that was found, and what could not be read.
#[derive(Debug, Default)]
pub struct Discovered {
    /// Skills in the order of the paths, then by name.
    pub skills: Vec<SkillSource>,
    /// Runtimes with their origin.
    pub runtimes: Vec<(String, SkillRuntimeManifest)>,
    /// What could not be read or is not served as written.
    pub reports: Vec<Report>,
    /// Origins that failed as a whole, so that what they gave before can be kept.
    pub failed: Vec<String>,
}

/// Searches files and folders. A folder with a SKILL.md is one skill; others are searched for skills and manifests.
/// Touches the disk: call it outside the async runtime.
pub fn discover(search: &Search) -> Discovered {
    let mut found = Discovered::default();
    for path in &search.paths {
        let origin = path.display().to_string();
        if search.is_written_by_runs(path) {
            found.fail(
                origin,
                "lies where generated files are written, which are never skills; name another folder".to_owned(),
            );
            continue;
        }
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => found.directory(search, path, 0),
            Ok(_) if is_skill_file(path) => {
                let parent = path
                    .parent()
                    .filter(|p| !p.as_os_str().is_empty())
                    .unwrap_or(Path::new("."));
                found.skill_folder(search, parent);
            }
            Ok(_) => found.manifest_file(path, Named::ByUser),
            Err(error) => found.fail(origin, format!("cannot be read: {error}")),
        }
    }
    found
}

/// How a file came into the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    ByUser,
    BySearch,
}

fn is_skill_file(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name == "SKILL.md" || name == "skill.md")
}

impl Discovered {
    fn fail(&mut self, origin: String, text: String) {
        self.reports.push(Report::error(origin.clone(), text));
        self.failed.push(origin);
    }

    fn directory(&mut self, search: &Search, directory: &Path, depth: usize) {
        if directory.join("SKILL.md").is_file() || directory.join("skill.md").is_file() {
            self.skill_folder(search, directory);
            return;
        }
        let origin = directory.display().to_string();
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return self.fail(origin, format!("cannot be read: {error}")),
        };
        let mut entries: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let hidden = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_none_or(|name| name.starts_with('.') || name == "node_modules");
            if hidden || search.is_written_by_runs(&path) {
                continue;
            }
            if path.is_dir() {
                if depth < SEARCH_MAX_DEPTH {
                    self.directory(search, &path, depth + 1);
                }
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml" || extension == "yml")
            {
                self.searched_yaml(&path);
            }
        }
    }

    /// A YAML file that was found by searching counts only if it speaks of knack.dev: it may be anybody's.
    /// One that is no YAML any more is not ours to report, but what it gave before stays (`failed`).
    fn searched_yaml(&mut self, path: &Path) {
        match read_bounded(path) {
            Ok(text) if text.contains("knack.dev/") => self.manifest_file(path, Named::BySearch),
            Ok(text) if serde_saphyr::from_str::<serde_json::Value>(&text).is_ok() => {}
            Ok(_) | Err(_) => self.failed.push(path.display().to_string()),
        }
    }

    fn skill_folder(&mut self, search: &Search, directory: &Path) {
        let origin = directory.display().to_string();
        let name = std::fs::canonicalize(directory)
            .ok()
            .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
            .unwrap_or_else(|| origin.clone());
        match read_folder(directory, &origin, search) {
            Ok((files, warnings)) => {
                self.reports.extend(warnings);
                let id = SkillRef {
                    namespace: DEFAULT_NAMESPACE.to_owned(),
                    name,
                };
                self.skills.push(SkillSource {
                    id,
                    origin,
                    labels: None,
                    suspend: false,
                    files,
                    overrides: SpecOverrides::default(),
                });
            }
            Err(report) => {
                self.reports.push(report);
                self.failed.push(origin);
            }
        }
    }

    fn manifest_file(&mut self, path: &Path, named: Named) {
        let origin = path.display().to_string();
        let text = match read_bounded(path) {
            Ok(text) => text,
            Err(text) => return self.fail(origin, text),
        };
        for result in parse_manifests(&text) {
            match result {
                Ok(Manifest::Skill(manifest)) => self.skill_manifest(&origin, &manifest),
                Ok(Manifest::SkillRuntime(manifest)) => {
                    let ignored = manifest.spec.cluster_only_fields();
                    if !ignored.is_empty() {
                        let text = format!(
                            "SkillRuntime {}: {} only have a meaning in a cluster",
                            manifest.metadata.name,
                            ignored.join(", ")
                        );
                        self.reports.push(Report::warning(origin.clone(), text));
                    }
                    self.runtime(&origin, *manifest, named);
                }
                Ok(Manifest::Other { .. }) => {}
                Err(error) => self.fail(origin.clone(), error.to_string()),
            }
        }
    }

    /// Prompts and keys go to the upstreams of a runtime: a file counts for them only if its user named it.
    fn runtime(&mut self, origin: &str, mut manifest: SkillRuntimeManifest, named: Named) {
        let upstreams = &mut manifest.spec.gateway.upstreams;
        if named == Named::BySearch && !upstreams.is_empty() {
            upstreams.clear();
            let text = format!(
                "SkillRuntime {}: spec.gateway.upstreams is not used from a file that was found by searching; name the \
                 file on the command line, or use --upstream",
                manifest.metadata.name
            );
            self.reports.push(Report::warning(origin, text));
        }
        self.runtimes.push((origin.to_owned(), manifest));
    }

    fn skill_manifest(&mut self, origin: &str, manifest: &SkillManifest) {
        let name = format!("{}/{}", manifest.metadata.namespace, manifest.metadata.name);
        if manifest.spec.allowed_runtimes.is_some() {
            self.reports.push(Report::warning(
                origin,
                format!("Skill {name}: spec.allowedRuntimes only has a meaning in a cluster"),
            ));
        }
        match skill_source(origin, manifest) {
            Ok(source) => self.skills.push(source),
            Err(text) => self.fail(origin.to_owned(), format!("Skill {name}: {text}")),
        }
    }
}

/// UTF-8 text of a file within the bound; the error is a clause for a report.
fn read_bounded(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path)
        .map_err(|error| format!("cannot be read: {error}"))?
        .len();
    if length > MANIFEST_MAX_BYTES {
        return Err(format!(
            "{length} bytes; a manifest file holds at most {MANIFEST_MAX_BYTES}"
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "not UTF-8 (byte {}); save it as UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}

/// The files and overrides of a manifest; the error names the field.
fn skill_source(origin: &str, manifest: &SkillManifest) -> Result<SkillSource, String> {
    let spec = &manifest.spec;
    let Some(inline) = &spec.source.inline else {
        return Err("spec.source: only inline works from a file; configMap and archive need a cluster (or name the folder itself)".to_owned());
    };
    if spec.source.config_map.is_some() || spec.source.archive.is_some() {
        return Err("spec.source: exactly one of inline, configMap, archive".to_owned());
    }
    let files = inline_files(inline).and_then(|files| below(files, spec.source.path.as_deref()));
    Ok(SkillSource {
        id: SkillRef {
            namespace: manifest.metadata.namespace.clone(),
            name: manifest.metadata.name.clone(),
        },
        origin: origin.to_owned(),
        labels: Some(manifest.metadata.labels.clone()),
        suspend: spec.suspend,
        files: files.map_err(|error| error.message)?,
        overrides: spec.overrides().to_load(),
    })
}
