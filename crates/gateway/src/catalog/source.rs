//! One skill as found, before it is judged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use knack_skill::functions::ReadFunctions;
use knack_skill::model::{Packages, Skill, SkillFile, SkillRef, Upload};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, LoadResult, SpecOverrides, load_with};
use sha2::{Digest as _, Sha256};

/// A skill's files and what its manifest sets over them.
#[derive(Debug, Clone)]
pub struct SkillSource {
    /// Identity.
    pub id: SkillRef,
    /// Where it was found, as the user named it: shown in every report.
    pub origin: String,
    /// `None` for bare folders, which have no labels and belong to whatever runtime there is.
    pub labels: Option<BTreeMap<String, String>>,
    /// Out of service.
    pub suspend: bool,
    /// Whether its manifest names the SkillRuntimes that may serve it, which has an effect on a cluster alone.
    pub has_allowed_runtimes: bool,
    /// Files by path relative to the skill's folder.
    pub files: BTreeMap<String, SkillFile>,
    /// The settings of the manifest.
    pub overrides: SpecOverrides,
    /// Returns the packages of its runs; asked once for each revision.
    pub packages: PackageNames,
    /// Reads its Python files for functions that are declared tools; `None`: its lock has them.
    pub functions: Option<ReadFunctions>,
    /// Properties of the object on a cluster that the files do not have.
    pub object: ObjectIds,
    /// Becomes [`Skill::withheld`].
    pub withheld: Vec<String>,
    /// The digest, once it was judged; a clone is judged anew.
    pub fingerprint: Fingerprint,
}

/// A digest over all that decides how a source is judged, made when it is first asked for. Whoever changes a source
/// afterwards changes a clone of it.
#[derive(Debug, Default)]
pub struct Fingerprint(OnceLock<[u8; 32]>);

impl Clone for Fingerprint {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// How requests may name the skill of an object on a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectIds {
    /// Becomes [`Skill::object_ids`].
    pub ids: Vec<String>,
    /// Becomes [`Skill::upload`].
    pub(crate) upload: Option<Upload>,
}

impl SkillSource {
    /// A digest over files, overrides and ids: equal ones are judged equally.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        *self.fingerprint.0.get_or_init(|| {
            let mut hash = Sha256::new();
            for (path, file) in &self.files {
                hash.update((path.len() as u64).to_be_bytes());
                hash.update(path);
                hash.update((file.bytes.len() as u64).to_be_bytes());
                hash.update([u8::from(file.executable)]);
                hash.update(&file.bytes);
            }
            hash.update(format!("{:?}{:?}{:?}", self.overrides, self.object, self.withheld));
            hash.finalize().into()
        })
    }

    /// Reads and judges the files.
    pub fn load(&self, profile: Profile) -> LoadResult {
        let input = LoadInput {
            id: self.id.clone(),
            files: self.files.clone(),
            overrides: self.overrides.clone(),
            profile,
        };
        let mut loaded = load_with(input, self.functions);
        if let Some(skill) = &mut loaded.skill {
            skill.object_ids.clone_from(&self.object.ids);
            skill.upload.clone_from(&self.object.upload);
            skill.withheld.clone_from(&self.withheld);
        }
        loaded
    }
}

/// Names of the packages that runs of a skill have.
pub type PackageNames = fn(&Skill) -> Packages;

/// Where nobody builds environments.
pub fn no_packages(_: &Skill) -> Packages {
    Packages::default()
}

/// How bad a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportLevel {
    /// It is served; something about it deserves attention.
    Warning,
    /// It is not served as written.
    Error,
}

/// One line for the console and `--output json`: what is wrong with which source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceReport {
    /// How bad.
    pub level: ReportLevel,
    /// File or folder, with the line where known.
    pub origin: String,
    /// The problem, its field, and what to do.
    pub text: String,
}

impl SourceReport {
    /// A report that keeps a source from being served.
    pub fn error(origin: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            level: ReportLevel::Error,
            origin: origin.into(),
            text: text.into(),
        }
    }

    /// A report beside a source that is served.
    pub fn warning(origin: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            level: ReportLevel::Warning,
            origin: origin.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            ReportLevel::Warning => "warning",
            ReportLevel::Error => "error",
        };
        write!(f, "{level}: {}: {}", self.origin, self.text)
    }
}
