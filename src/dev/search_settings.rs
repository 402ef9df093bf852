//! Where skills and runtimes are searched, and where never.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use knack_gateway::catalog::{PackageNames, SourceReport, no_packages};
use knack_skill::config::SkillConfig;
use knack_skill::model::{SkillRef, is_of_uploads};

use super::file_changes::FileChanges;
use super::ready_skills::ReadySkills;
use super::start_settings::StartSettings;

/// Where skills and runtimes are searched, and where never.
#[derive(Debug, Clone)]
pub struct Search {
    /// Files and folders that a user named.
    pub paths: Vec<PathBuf>,
    /// Folders that runs write to, canonical: files in them were made by a model and are neither skills nor manifests.
    never: Vec<PathBuf>,
    pub(super) packages: PackageNames,
    pub(super) flags: SourceFlags,
    /// Notes what is read, so that its changes are seen.
    changes: Option<Arc<FileChanges>>,
}

/// What the command line says of the sources, wherever they are found: [`super::assemble`] applies it to them.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceFlags {
    /// Values of configuration that a person gives, over those of the runtime.
    pub(super) given: Vec<SkillConfig>,
    /// Flags that give something to a skill.
    pub(super) given_to: Vec<SkillFlag>,
    /// Whether callers may upload skills beside those that are found.
    pub(super) has_uploads: bool,
    /// Whether pins of skills that are not found are reported.
    pub(super) reports_pins: bool,
    /// The environment values that a person grants, where code is run.
    pub(super) granted: Option<Vec<EnvFlag>>,
    /// What was read of the runtime at the start, where its changes are reported.
    pub(super) at_start: Option<Arc<StartSettings>>,
    /// The skills whose packages are installed, where code is run.
    pub(super) ready: Option<Arc<ReadySkills>>,
}

/// A flag that gives something to a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillFlag {
    /// The flag, without a value.
    pub(crate) flag: String,
    /// The word for the skill ([`SkillRef::is_meant_by`]).
    pub(crate) skill: String,
}

impl SkillFlag {
    /// The flag for a word `SKILL:NAME` of `--allow-env`.
    pub(crate) fn of_allow_env(word: &str) -> Self {
        let skill = word.rsplit_once(':').map_or(word, |(skill, _)| skill);
        Self {
            flag: format!("--allow-env {word}"),
            skill: skill.to_owned(),
        }
    }

    /// Whether it is for this skill.
    pub(crate) fn is_for(&self, skill: &SkillRef) -> bool {
        skill.is_meant_by(&self.skill)
    }

    /// Whether it is for skills that callers upload, of whatever name.
    pub(super) fn is_for_uploads(&self) -> bool {
        let (namespace, _) = self.skill.split_once('/').unwrap_or_default();
        is_of_uploads(namespace)
    }
}

/// A word of `--allow-env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EnvFlag {
    flag: SkillFlag,
    /// The variable.
    variable: String,
}

impl EnvFlag {
    /// Reads `SKILL:NAME`; another form gives `None`, and is refused where the values are read.
    pub(super) fn of(word: &str) -> Option<Self> {
        let (_, variable) = word.rsplit_once(':')?;
        Some(Self {
            flag: SkillFlag::of_allow_env(word),
            variable: variable.to_owned(),
        })
    }

    /// The variable, if this grants it to a skill.
    pub(super) fn variable_for(&self, skill: &SkillRef) -> Option<&str> {
        self.flag.is_for(skill).then_some(self.variable.as_str())
    }
}

impl Search {
    /// A search in the paths that a user named.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            never: Vec::new(),
            packages: no_packages,
            flags: SourceFlags::default(),
            changes: None,
        }
    }

    /// Gives the found skills these values of configuration, over those of their runtime.
    #[must_use]
    pub fn with_config(mut self, given: Vec<SkillConfig>) -> Self {
        self.flags.given = given;
        self
    }

    /// Reports those of these flags whose skill is not found, and serves no skill where one of them may mean several.
    #[must_use]
    pub(super) fn reporting_given(mut self, given_to: Vec<SkillFlag>) -> Self {
        self.flags.given_to = given_to;
        self
    }

    /// Whether callers may upload skills beside those that are found.
    #[must_use]
    pub(super) fn beside_uploads(mut self, has_uploads: bool) -> Self {
        self.flags.has_uploads = has_uploads;
        self
    }

    /// Whether pins of skills that are not found are reported.
    #[must_use]
    pub(super) fn reporting_pins(mut self, reports_pins: bool) -> Self {
        self.flags.reports_pins = reports_pins;
        self
    }

    /// Reports which of the values that tools ask for are not among these, and which of these no tool asks for.
    #[must_use]
    pub(super) fn reporting_granted(mut self, granted: Vec<EnvFlag>) -> Self {
        self.flags.granted = Some(granted);
        self
    }

    /// Reports later changes of what was read of the runtime at the start.
    #[must_use]
    pub(super) fn started_with(mut self, at_start: StartSettings) -> Self {
        self.flags.at_start = Some(Arc::new(at_start));
        self
    }

    /// Has packages of new revisions installed before these are served.
    #[must_use]
    pub(super) fn installed_by(mut self, ready: Arc<ReadySkills>) -> Self {
        self.flags.ready = Some(ready);
        self
    }

    /// Has changes of what is read noted.
    #[must_use]
    pub(super) fn watched_by(mut self, changes: Arc<FileChanges>) -> Self {
        self.changes = Some(changes);
        self
    }

    /// The search begins.
    pub(super) fn begin(&self) {
        if let Some(changes) = &self.changes {
            changes.begin();
        }
    }

    /// A folder is about to be read.
    pub(super) fn reads_folder(&self, folder: &Path) {
        if let Some(changes) = &self.changes {
            changes.watch_folder(folder);
        }
    }

    /// A file that a user named is about to be read.
    pub(super) fn reads_named_file(&self, file: &Path) {
        if let Some(changes) = &self.changes {
            changes.watch_named_file(file);
        }
    }

    /// What has been read and cannot be watched.
    pub(super) fn unwatched(&self) -> Option<SourceReport> {
        self.changes.as_ref()?.unwatched()
    }

    /// Looks up the packages of the found skills' runs with this function.
    #[must_use]
    pub fn with_packages(mut self, packages: PackageNames) -> Self {
        self.packages = packages;
        self
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

/// Folders of Knack that runs write to, wherever they lie: kept files, and the working directories of the local sandbox.
const WRITTEN_BY_RUNS: [&str; 2] = ["knack-files", "knack-sandbox-"];
