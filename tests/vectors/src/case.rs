//! A vector file: a JSON list of cases.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::special;

/// How far a case binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Strength {
    /// A seed document states it.
    Spec,
    /// Visible in upstream source or tests only.
    Source,
    /// Sources disagree.
    Conflict,
    /// Odd upstream behaviour that no rule demands.
    Quirk,
    /// Upstream is unsafe or broken; `expected` is what is right.
    Gap,
}

/// One case.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    /// Unique over all files.
    pub(crate) id: String,
    /// How far it binds.
    pub(crate) strength: Strength,
    /// `op` and its arguments, special values expanded.
    pub(crate) input: Value,
    /// What must come out; may hold `$regex`.
    pub(crate) expected: Value,
}

impl Case {
    /// The behaviour that this case asks for; empty if the case names none.
    pub(crate) fn op(&self) -> &str {
        self.input["op"].as_str().unwrap_or_default()
    }
}

/// One file: its stem and its cases in file order.
#[derive(Debug, Clone)]
pub(crate) struct VectorFile {
    /// File name without `.json`.
    pub(crate) stem: String,
    /// Cases in file order.
    pub(crate) cases: Vec<Case>,
}

/// Reads every `*.json` of `folder`, sorted by name.
pub(crate) fn load_folder(folder: &Path) -> Result<Vec<VectorFile>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{}: no .json file in this folder", folder.display()));
    }
    paths.iter().map(|path| load_file(path)).collect()
}

fn load_file(path: &Path) -> Result<VectorFile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut cases: Vec<Case> = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    for case in &mut cases {
        special::expand(&mut case.input);
        special::expand(&mut case.expected);
    }
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    Ok(VectorFile { stem, cases })
}
