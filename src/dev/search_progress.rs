//! Where a search for skills has been.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use knack_gateway::catalog::SourceReport;

/// Folders searched below a named path.
pub(super) const SEARCH_MAX_DEPTH: usize = 8;

/// Whether a file is a body that `--record` wrote, also of an earlier start: what a client sent is no manifest.
pub(super) fn is_recording(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = |name: &str| name.rsplit_once(".upstream-").map(|(_, number)| number.to_owned());
    name.ends_with(".request.json")
        || name
            .strip_suffix(".json")
            .and_then(number)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Where the search has been: a folder that is reached by a link too, or by a link to a folder above, gives its skills
/// once. Paths are canonical.
#[derive(Debug, Default)]
pub(super) struct Searched {
    /// With the least depth that they were searched at: from a lesser one, more is within reach.
    folders: HashMap<PathBuf, usize>,
    /// Folders of skills, and manifest files.
    sources: HashSet<PathBuf>,
    /// Folders of skills that were not read, because too many folders are above them.
    pub(super) too_deep: Vec<PathBuf>,
}

impl Searched {
    /// Whether the folder must be searched from this depth.
    pub(super) fn enters(&mut self, folder: &Path, depth: usize) -> bool {
        let Ok(folder) = std::fs::canonicalize(folder) else {
            return true;
        };
        let least = self.folders.entry(folder).or_insert(usize::MAX);
        let is_nearer = depth < *least;
        *least = depth.min(*least);
        is_nearer
    }

    /// A warning about skills that are too deep, and that no shorter path or other name led to.
    pub(super) fn unsearched(&self) -> Option<SourceReport> {
        let was_read = |folder: &PathBuf| {
            std::fs::canonicalize(folder)
                .is_ok_and(|folder| self.folders.contains_key(&folder) || self.sources.contains(&folder))
        };
        let mut unread = self.too_deep.iter().filter(|folder| !was_read(folder));
        let first = unread.next()?;
        let others = match unread.count() {
            0 => String::new(),
            count => format!(" ({count} more at this depth)"),
        };
        let text = format!(
            "the skill is not served: its folder is more than {SEARCH_MAX_DEPTH} below the path that was named{others}; name the folder"
        );
        Some(SourceReport::warning(first.display().to_string(), text))
    }

    /// A file that the user named: it is not also one that is found by searching.
    pub(super) fn names(&mut self, file: &Path) {
        self.takes(file);
    }

    /// Whether the source was not read before.
    pub(super) fn takes(&mut self, source: &Path) -> bool {
        std::fs::canonicalize(source).map_or(true, |source| self.sources.insert(source))
    }
}
