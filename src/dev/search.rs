//! Where skills and runtimes are searched, and where never.

use std::path::{Path, PathBuf};

use knack_gateway::catalog::{PackageNames, no_packages};
use knack_skill::config::SkillConfig;

/// Where skills and runtimes are searched, and where never.
#[derive(Debug, Clone)]
pub struct Search {
    /// Files and folders that a user named.
    pub paths: Vec<PathBuf>,
    /// Folders that runs write to, canonical: files in them were made by a model and are neither skills nor manifests.
    never: Vec<PathBuf>,
    pub(super) packages: PackageNames,
    /// Values of configuration that a person gives.
    pub(super) given: Vec<SkillConfig>,
}

impl Search {
    /// Of what a user named.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            never: Vec::new(),
            packages: no_packages,
            given: Vec::new(),
        }
    }

    /// Gives the found skills these values of configuration, over those of their runtime.
    #[must_use]
    pub fn with_config(mut self, given: Vec<SkillConfig>) -> Self {
        self.given = given;
        self
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

/// Folders of ours that runs write to, wherever they lie: kept files, and the working directories of the local sandbox.
const WRITTEN_BY_RUNS: [&str; 2] = ["knack-files", "knack-sandbox-"];
