//! From paths that a user named to the skills and runtimes found there.

use std::path::{Path, PathBuf};

use knack_api::skill::ArchiveSource;
use knack_api::{Manifest, Resources, SkillManifest, SkillRuntimeManifest, parse_manifests};
use knack_gateway::catalog::{Fingerprint, ObjectIds, ReportLevel, SkillSource, SourceReport, no_packages};
use knack_python_schema::read_functions;
use knack_skill::foreign::ENVIRONMENT_MARK;
use knack_skill::model::{SkillFile, SkillRef};
use knack_skill::tree::PathProblem;
use knack_vocabulary::KEY_PREFIX;

use super::archives::{archive_stem, archived_skills, is_archive};
use super::bare_source::bare;
use super::config_maps::ConfigMaps;
use super::file_changes::parent_of;
use super::folder::read_folder;
use super::lost_manifests::lost;
use super::named_folder::NamedFolder;
use super::runtime::{self, AskedSandbox, FoundRuntime};
use super::search_progress::{SEARCH_MAX_DEPTH, Searched, is_recording};
use super::search_settings::{Search, SourceFlags};
use crate::regular_file;
use crate::sources::archive::ARCHIVE_MAX_BYTES;
use crate::sources::{Files, below, inline_files};

/// One manifest file: an etcd object is at most 1.5 MiB, so a larger file holds no object that a cluster would take.
const MANIFEST_MAX_BYTES: u64 = 4 << 20;

/// Everything that was found, what could not be read, and the flags that apply to it.
#[derive(Debug, Default)]
pub struct DiscoveredSources {
    /// Skills in the order of the paths, then by name.
    pub skills: Vec<SkillSource>,
    /// Runtimes with their origin.
    pub runtimes: Vec<FoundRuntime>,
    /// Files that could not be read or are not served as written.
    pub reports: Vec<SourceReport>,
    /// Origins that failed as a whole, so that what they gave before can be kept.
    pub failed: Vec<String>,
    /// Files that have no object now, or a broken one, and why: an error where they gave something before.
    pub(super) lost: Vec<SourceReport>,
    /// Files that a user named, which may hold a SkillRuntime.
    pub(super) named: Vec<String>,
    /// Errors of sources that a user named: they cannot be read, or a part that may be a SkillRuntime cannot.
    pub named_failed: Vec<SourceReport>,
    /// Manifests whose files are behind an address, with their origin; [`discover`] refuses them.
    pub archived: Vec<(String, SkillManifest, ArchiveSource)>,
    /// What manifests ask of the sandboxes of their skills.
    pub(super) sandboxes: Vec<AskedSandbox>,
    pub(super) flags: SourceFlags,
    searched: Searched,
}

/// Searches files and folders. A folder with a SKILL.md is one skill, and so is each such folder of an archive; other folders are
/// searched for skills and manifests.
/// Touches the disk: call it outside the async runtime.
pub fn discover(search: &Search) -> DiscoveredSources {
    discover_all(search).without_archived()
}

/// Searches as [`discover`] does, for a caller that fetches [`DiscoveredSources::archived`].
pub fn discover_all(search: &Search) -> DiscoveredSources {
    let mut found = DiscoveredSources::default();
    search.begin();
    for path in search
        .paths
        .iter()
        .filter(|path| !path.is_dir() && !is_skill_file(path))
    {
        found.named.push(path.display().to_string());
        // A folder that is away for a moment is still found by the walk that reads it.
        if path.is_file() {
            found.searched.names(path);
        }
    }
    for path in &search.paths {
        let origin = path.display().to_string();
        if search.is_written_by_runs(path) {
            found.fail(
                origin,
                "contains generated files, which are never read as skills; name another folder".to_owned(),
            );
            continue;
        }
        let there = std::fs::metadata(path);
        let problem = PathProblem::of(&there);
        match there {
            Ok(metadata) if metadata.is_dir() => found.named_folder(search, path),
            Ok(_) if is_skill_file(path) => found.skill_folder(search, parent_of(path)),
            Ok(_) => {
                search.reads_named_file(path);
                if is_archive(path) {
                    found.archive(path);
                } else {
                    found.manifest_file(path, FileOrigin::ByUser);
                }
            }
            Err(error) => {
                let unread = || format!("cannot be read: {error}");
                found.fail_named(origin, problem.map_or_else(unread, |problem| problem.to_string()));
                if is_skill_file(path) {
                    // The origin of its skills is its folder.
                    found.failed.push(parent_of(path).display().to_string());
                }
            }
        }
    }
    found.reports.extend(found.searched.unsearched());
    found.reports.extend(search.unwatched());
    for source in &mut found.skills {
        source.packages = search.packages;
    }
    found.flags.clone_from(&search.flags);
    found
}

/// How a file came into the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileOrigin {
    ByUser,
    BySearch,
}

fn is_skill_file(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name == "SKILL.md" || name == "skill.md")
}

/// The skills and runtimes of a manifest's text.
pub fn discover_text(origin: &str, text: &str) -> DiscoveredSources {
    let mut found = DiscoveredSources {
        named: vec![origin.to_owned()],
        ..DiscoveredSources::default()
    };
    found.manifests(origin, text, FileOrigin::ByUser);
    found.without_archived()
}

/// Extensions of manifest files that are found by searching.
const MANIFESTS: [&str; 3] = ["yaml", "yml", "json"];

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

/// The skill of a lone SKILL.md.
pub fn lone_skill(origin: &str, name: &str, document: &[u8]) -> SkillSource {
    let file = SkillFile {
        bytes: document.into(),
        executable: false,
    };
    bare(
        name.to_owned(),
        origin.to_owned(),
        Files::from([("SKILL.md".to_owned(), file)]),
    )
}

impl DiscoveredSources {
    /// Warnings about skills that ask for more than the runtime allows.
    pub(crate) fn over_ceiling(&self) -> impl Iterator<Item = SourceReport> {
        let asked = self.sandboxes.iter();
        asked.filter_map(|asked| runtime::over_ceiling(&self.runtimes, asked))
    }

    /// Settings that are not served as written.
    pub fn errors(&self) -> impl Iterator<Item = &SourceReport> {
        self.reports.iter().filter(|report| report.level == ReportLevel::Error)
    }

    /// Reports what would have to be fetched.
    fn without_archived(mut self) -> Self {
        for (origin, manifest, _) in std::mem::take(&mut self.archived) {
            let text = "spec.source.archive: needs a cluster; name the archive itself, or its folder";
            self.fail(origin, format!("Skill {}: {text}", SkillRef::from(&manifest.metadata)));
        }
        self
    }

    fn fail(&mut self, origin: String, text: String) {
        self.reports.push(SourceReport::error(origin.clone(), text));
        self.failed.push(origin);
    }

    /// As [`Self::fail`], of what a user named.
    fn fail_named(&mut self, origin: String, text: String) {
        self.named_failed
            .push(SourceReport::error(origin.clone(), text.clone()));
        self.fail(origin, text);
    }

    /// The folder of a path that a user named. One that is replaced meanwhile gives nothing: what it gave before stays until it is read
    /// again, which its change brings about.
    fn named_folder(&mut self, search: &Search, path: &Path) {
        let (skills, runtimes) = (self.skills.len(), self.runtimes.len());
        let (sandboxes, archived) = (self.sandboxes.len(), self.archived.len());
        let folder = NamedFolder::at(path);
        self.directory(search, path, 0);
        if folder.was_replaced(path) {
            self.skills.truncate(skills);
            self.runtimes.truncate(runtimes);
            self.sandboxes.truncate(sandboxes);
            self.archived.truncate(archived);
            self.fail_named(
                path.display().to_string(),
                "another folder, or none, took its place while it was read".to_owned(),
            );
        }
    }

    fn directory(&mut self, search: &Search, directory: &Path, depth: usize) {
        search.reads_folder(directory);
        if directory.join("SKILL.md").is_file() || directory.join("skill.md").is_file() {
            self.skill_folder(search, directory);
            return;
        }
        if !self.searched.enters(directory, depth) {
            return;
        }
        let origin = directory.display().to_string();
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return self.fail(origin, format!("cannot be read: {error}")),
        };
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => paths.push(entry.path()),
                Err(error) => self.fail(origin.clone(), format!("cannot be read whole: {error}")),
            }
        }
        paths.sort();
        for path in paths {
            let hidden = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_none_or(|name| name.starts_with('.') || name == "node_modules");
            let is_environment = || path.join(ENVIRONMENT_MARK).is_file();
            if hidden || is_recording(&path) || search.is_written_by_runs(&path) || is_environment() {
                continue;
            }
            if path.is_dir() {
                if depth < SEARCH_MAX_DEPTH {
                    self.directory(search, &path, depth + 1);
                } else if path.join("SKILL.md").is_file() || path.join("skill.md").is_file() {
                    self.searched.too_deep.push(path);
                }
            } else if has_extension(&path, &MANIFESTS) {
                self.searched_file(&path);
            }
        }
    }

    /// A file of YAML or JSON that was found by searching counts only if it mentions knack.dev: it may belong to another tool.
    /// One that cannot be parsed any more is not Knack's to report unless it gave something before, which stays (`lost`).
    fn searched_file(&mut self, path: &Path) {
        if !self.searched.takes(path) {
            return;
        }
        match read_bounded(path) {
            Ok(text) if text.contains(KEY_PREFIX) => self.manifest_file(path, FileOrigin::BySearch),
            // Large files of other tools are not parsed at each search: one that was written to its end has one of these there.
            Ok(text) if has_extension(path, &["json"]) && text.trim_end().ends_with(['}', ']']) => {}
            Ok(text) => self.lose(path.display().to_string(), lost(&text)),
            Err(text) => self.lose(path.display().to_string(), Some(text)),
        }
    }

    fn lose(&mut self, origin: String, why: Option<String>) {
        self.lost.extend(why.map(|why| SourceReport::error(origin, why)));
    }

    fn skill_folder(&mut self, search: &Search, directory: &Path) {
        if !self.searched.takes(directory) {
            return;
        }
        let origin = directory.display().to_string();
        let name = std::fs::canonicalize(directory)
            .ok()
            .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
            .unwrap_or_else(|| origin.clone());
        match read_folder(directory, &origin, search) {
            Ok((files, warnings)) => {
                self.reports.extend(warnings);
                self.skills.push(bare(name, origin, files));
            }
            Err(report) => {
                self.reports.push(report);
                self.failed.push(origin);
            }
        }
    }

    fn archive(&mut self, path: &Path) {
        let origin = path.display().to_string();
        let stem = path.file_name().and_then(|name| archive_stem(name.to_str()?));
        let skills = read_within(path, ARCHIVE_MAX_BYTES as u64, "an archive")
            .and_then(|bytes| archived_skills(&origin, stem.unwrap_or_default(), &bytes));
        match skills {
            Ok(skills) => self.skills.extend(skills),
            Err(text) => self.fail(origin, text),
        }
    }

    fn manifest_file(&mut self, path: &Path, named: FileOrigin) {
        let origin = path.display().to_string();
        match read_bounded(path) {
            Ok(text) => self.manifests(&origin, &text, named),
            Err(text) if named == FileOrigin::ByUser => self.fail_named(origin, text),
            Err(text) => self.fail(origin, text),
        }
    }

    fn manifests(&mut self, origin: &str, text: &str, named: FileOrigin) {
        let parsed = parse_manifests(text);
        // A text without this word holds no object that is only written wrong: it is a file of another kind.
        let is_other_file = !parsed.is_empty() && parsed.iter().all(Result::is_err) && !text.contains("apiVersion");
        if is_other_file {
            return match named {
                FileOrigin::ByUser => self.fail_named(origin.to_owned(), PathProblem::NotFolder.to_string()),
                FileOrigin::BySearch => self.lose(origin.to_owned(), lost(text)),
            };
        }
        if parsed.is_empty() {
            self.lose(origin.to_owned(), lost(text));
        }
        let maps = ConfigMaps::of(parsed.iter().filter_map(|result| match result {
            Ok(Manifest::ConfigMap(map)) => Some(&**map),
            _ => None,
        }));
        for result in &parsed {
            match result {
                Ok(Manifest::Skill(manifest)) => self.skill_manifest(origin, manifest, &maps),
                Ok(Manifest::SkillRuntime(manifest)) => {
                    let ignored = manifest.spec.cluster_only_fields();
                    if !ignored.is_empty() {
                        let text = format!("SkillRuntime {}: {}", manifest.metadata.name, only_in_cluster(&ignored));
                        self.reports.push(SourceReport::warning(origin, text));
                    }
                    self.runtime(origin, (**manifest).clone(), named);
                }
                Ok(Manifest::ConfigMap(_) | Manifest::Other) => {}
                Err(error) if named == FileOrigin::ByUser && !error.is_of_skill() => {
                    self.fail_named(origin.to_owned(), error.to_string());
                }
                Err(error) => self.fail(origin.to_owned(), error.to_string()),
            }
        }
    }

    /// Prompts and keys go to the upstreams of a runtime: a file counts for them only if its user named it.
    fn runtime(&mut self, origin: &str, mut manifest: SkillRuntimeManifest, named: FileOrigin) {
        let upstreams = &mut manifest.spec.gateway.upstreams;
        if named == FileOrigin::BySearch && !upstreams.is_empty() {
            upstreams.clear();
            let text = format!(
                "SkillRuntime {}: spec.gateway.upstreams is not used from a file that was found by searching; name the \
                 file on the command line, or use --upstream",
                manifest.metadata.name
            );
            self.reports.push(SourceReport::warning(origin, text));
        }
        self.runtimes.push(FoundRuntime {
            origin: origin.to_owned(),
            manifest,
            is_named: named == FileOrigin::ByUser,
        });
    }

    fn skill_manifest(&mut self, origin: &str, manifest: &SkillManifest, maps: &ConfigMaps<'_>) {
        let id = SkillRef::from(&manifest.metadata);
        for text in cluster_only(manifest) {
            self.reports
                .push(SourceReport::warning(origin, format!("Skill {id}: {text}")));
        }
        if let Some(sandbox) = &manifest.spec.sandbox {
            self.sandboxes.push(AskedSandbox {
                origin: origin.to_owned(),
                skill: id.clone(),
                sandbox: sandbox.clone(),
            });
        }
        let source = &manifest.spec.source;
        if let (None, None, Some(archive), None) = (&source.inline, &source.config_map, &source.archive, &source.upload)
        {
            self.archived
                .push((origin.to_owned(), manifest.clone(), archive.clone()));
            return;
        }
        match skill_source(origin, manifest, maps) {
            Ok(source) => self.skills.push(source),
            Err(text) => self.fail(origin.to_owned(), format!("Skill {id}: {text}")),
        }
    }
}

/// Settings of a manifest that have no effect on a laptop, as clauses for a report.
fn cluster_only(manifest: &SkillManifest) -> Vec<String> {
    let mut all = Vec::new();
    if manifest.spec.allowed_runtimes.is_some() {
        all.push("spec.allowedRuntimes has an effect only in a cluster".to_owned());
    }
    let sandbox = manifest.spec.sandbox.as_ref();
    let (image, name) = (
        sandbox.and_then(|sandbox| sandbox.image.as_ref()),
        sandbox.and_then(|sandbox| sandbox.image_name.as_ref()),
    );
    let asked = name
        .map(|name| ("imageName", name))
        .or(image.map(|image| ("image", image)));
    let resources = sandbox.and_then(|sandbox| sandbox.resources.as_ref());
    let inert = resources.map(Resources::cluster_only_fields).unwrap_or_default();
    if !inert.is_empty() {
        all.push(only_in_cluster(&inert));
    }
    if let Some((field, value)) = asked {
        all.push(format!(
            "spec.sandbox.{field} {value} has an effect only in a cluster; here code uses the programs of this machine"
        ));
    }
    all
}

fn only_in_cluster(fields: &[String]) -> String {
    let verb = if fields.len() == 1 { "has" } else { "have" };
    format!("{} {verb} an effect only in a cluster", fields.join(", "))
}

/// The bytes of a file within a bound; the error is a clause for a report. `what`: the kind of file, with its article.
fn read_within(path: &Path, most: u64, what: &str) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > most {
        return Err(format!("{length} bytes; {what} holds at most {most}"));
    }
    regular_file::read(path, most).map_err(unreadable)
}

/// UTF-8 text of a manifest file; the error is a clause for a report.
fn read_bounded(path: &Path) -> Result<String, String> {
    let bytes = read_within(path, MANIFEST_MAX_BYTES, "a manifest file")?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "not UTF-8 (byte {}); save it as UTF-8",
            error.utf8_error().valid_up_to()
        )
    })
}

/// The files and overrides of a manifest; the error names the field.
fn skill_source(origin: &str, manifest: &SkillManifest, maps: &ConfigMaps<'_>) -> Result<SkillSource, String> {
    let spec = &manifest.spec;
    let source = &spec.source;
    let files = match (&source.inline, &source.config_map, &source.archive, &source.upload) {
        (Some(inline), None, None, None) => inline_files(inline).map_err(|error| error.message)?,
        (None, Some(of), None, None) => maps.files(&manifest.metadata.namespace, of)?,
        (None, None, None, Some(_)) => {
            return Err(
                "spec.source.upload: needs a cluster; download the skill from its registry, and name the archive or its folder"
                    .to_owned(),
            );
        }
        _ => return Err("spec.source: exactly one of inline, configMap, archive, upload".to_owned()),
    };
    with_files(origin, manifest, files)
}

/// The skill of a manifest, from the files of its source; the error names the field.
pub fn with_files(origin: &str, manifest: &SkillManifest, files: Files) -> Result<SkillSource, String> {
    let spec = &manifest.spec;
    let files = below(files, spec.source.path.as_deref());
    Ok(SkillSource {
        id: SkillRef::from(&manifest.metadata),
        origin: origin.to_owned(),
        labels: Some(manifest.metadata.labels.clone()),
        suspend: spec.is_suspended(),
        has_allowed_runtimes: spec.allowed_runtimes.is_some(),
        files: files.map_err(|error| error.message)?,
        overrides: spec.overrides().to_load(),
        packages: no_packages,
        functions: Some(read_functions),
        object: ObjectIds::default(),
        withheld: Vec::new(),
        fingerprint: Fingerprint::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_searched_and_folders_that_are_too_deep_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let object = r#"{"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "a"}, "spec": {"source": {"inline": {"files": {"SKILL.md": "x"}}}}}"#;
        std::fs::write(root.join("a.json"), object).unwrap();
        std::fs::write(root.join("package.json"), r#"{"name": "x"}"#).unwrap();
        std::fs::write(root.join("tsconfig.json"), "{// a comment\n}").unwrap();
        let deepest = root.join(["d"; SEARCH_MAX_DEPTH].join("/"));
        for name in ["last", "more", "none"] {
            std::fs::create_dir_all(deepest.join(name)).unwrap();
        }
        let skill = |folder: &Path| std::fs::write(folder.join("SKILL.md"), "---\nname: s\ndescription: d\n---\nB\n");
        skill(&deepest.join("last")).unwrap();
        skill(&deepest.join("more")).unwrap();
        let read = |paths: Vec<PathBuf>| {
            let found = discover(&Search::of(paths));
            let names: Vec<String> = found.skills.iter().map(|skill| skill.id.name.clone()).collect();
            let reports: Vec<String> = found.reports.iter().map(ToString::to_string).collect();
            (names.join(","), reports.join("|"))
        };
        let (names, reports) = read(vec![root.to_owned()]);
        assert_eq!(names, "a");
        let expected = format!(
            "{}: the skill is not served: its folder is more than 8 below",
            deepest.join("last").display()
        );
        assert!(
            reports.contains(&expected) && reports.contains("(1 more at this depth)"),
            "{reports}"
        );
        let (names, reports) = read(vec![root.to_owned(), deepest.join("last"), deepest.join("more")]);
        assert_eq!((names.as_str(), reports.as_str()), ("a,last,more", ""));
    }

    #[test]
    fn recorded_bodies_and_files_of_other_tools_are_no_manifests() {
        let folder = tempfile::tempdir().unwrap();
        let skill = |name: &str| {
            format!(
                r#"{{"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {{"name": "{name}"}}, "spec": {{"source": {{"inline": {{"files": {{"SKILL.md": "x"}}}}}}}}}}"#
            )
        };
        for (name, text) in [
            ("0001-01a2.request.json", skill("asked")),
            ("0001-01a2.upstream-1.json", skill("sent")),
            (
                "settings.json",
                r#"{"yaml.schemas": "https://knack.dev/schema.json"}"#.to_owned(),
            ),
            (
                "values.yaml",
                "podAnnotations: {knack.dev/inject: enabled}\n".to_owned(),
            ),
            ("upstream-1.json", skill("named")),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let found = discover(&Search::of(vec![folder.path().to_owned()]));
        let names: Vec<&str> = found.skills.iter().map(|skill| &*skill.id.name).collect();
        assert_eq!((names, found.reports.len()), (vec!["named"], 0));
    }

    #[test]
    fn path_that_is_no_skill_is_reported_with_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let skill = "---\nname: x\ndescription: d\n---\nB\n";
        let broken = "apiVersion: knack.dev/v1alpha1\nkind: [\n";
        for (name, text, expected) in [
            ("missing.yaml", None, Some(PathProblem::Missing)),
            ("notes.txt", Some("hello"), Some(PathProblem::NotFolder)),
            ("renamed.md", Some(skill), Some(PathProblem::NotFolder)),
            ("values.yaml", Some("a: 1\n---\nb: 2\n"), Some(PathProblem::NotFolder)),
            ("broken.yaml", Some(broken), None),
        ] {
            let path = folder.path().join(name);
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let found = discover(&Search::of(vec![path]));
            let reported: Vec<&str> = found.errors().map(|report| report.text.as_str()).collect();
            let expected = expected.map(|problem| problem.to_string());
            assert_eq!(reported.len(), 1, "{name}: {reported:?}");
            let is_manifest = reported[0].contains("document 1");
            assert_eq!(is_manifest, expected.is_none(), "{name}: {reported:?}");
            assert!(
                expected.is_none_or(|expected| reported == [expected]),
                "{name}: {reported:?}"
            );
            assert_eq!(found.named_failed.len(), 1, "{name}");
        }
    }
}
