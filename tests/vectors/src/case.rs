//! A vector file: a JSON list of cases.

use std::collections::HashMap;
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
    /// In words, what a sane implementation does instead.
    #[serde(default)]
    pub(crate) recommended: Value,
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
    let files = paths
        .iter()
        .map(|path| load_file(path))
        .collect::<Result<Vec<_>, _>>()?;
    check_ids(&files).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(files)
}

/// An id names one case of all files: an exception for it would excuse both.
fn check_ids(files: &[VectorFile]) -> Result<(), String> {
    let mut seen = HashMap::new();
    for file in files {
        for case in &file.cases {
            if let Some(other) = seen.insert(&case.id, &file.stem) {
                return Err(format!(
                    "two cases have the id {}, in {other}.json and {}.json",
                    case.id, file.stem
                ));
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_two_cases_have_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let case = |id: &str| format!(r#"{{"id": "{id}", "strength": "spec", "input": {{"op": "o"}}, "expected": 1}}"#);
        let write = |file: &str, cases: &[&str]| {
            let cases: Vec<String> = cases.iter().map(|id| case(id)).collect();
            std::fs::write(folder.path().join(file), format!("[{}]", cases.join(","))).unwrap();
        };
        write("a.json", &["a-1", "a-2"]);
        write("b.json", &["b-1"]);
        assert_eq!(load_folder(folder.path()).unwrap().len(), 2);
        write("b.json", &["b-1", "a-2"]);
        let refused = load_folder(folder.path()).unwrap_err();
        assert!(
            refused.ends_with("two cases have the id a-2, in a.json and b.json"),
            "{refused}"
        );
        write("b.json", &["b-1", "b-1"]);
        let refused = load_folder(folder.path()).unwrap_err();
        assert!(
            refused.ends_with("two cases have the id b-1, in b.json and b.json"),
            "{refused}"
        );
    }
}
