//! The file in a skill's folder with the declarations of its functions, for who does not read Python.

use std::collections::BTreeMap;

use super::Function;
use crate::digest::sha256;
use crate::model::SkillFile;

/// The file's name; it is beside `requirements.lock`.
pub const LOCK_FILE: &str = "python-tools.lock";

/// The head of the file, for its readers.
const ABOUT: &str = "Written by knack skill lock from the Python files below. Do not edit.";

/// The form of the file that is written and read.
const FORMAT: u32 = 1;

/// The declarations of the functions in a skill's Python files.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FunctionLock {
    about: String,
    format: u32,
    files: BTreeMap<String, LockedFile>,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct LockedFile {
    /// Hex SHA-256 of the file that was read.
    sha256: String,
    functions: Vec<Function>,
}

impl FunctionLock {
    /// The lock of what was read in these files. `functions` without its file in `files` is left out.
    pub fn of(functions: &BTreeMap<String, Vec<Function>>, files: &BTreeMap<String, SkillFile>) -> Self {
        let locked = functions.iter().filter_map(|(path, functions)| {
            let locked = LockedFile {
                sha256: sha256(&files.get(path)?.bytes),
                functions: functions.clone(),
            };
            Some((path.clone(), locked))
        });
        Self {
            about: ABOUT.to_owned(),
            format: FORMAT,
            files: locked.collect(),
        }
    }

    /// Reads a lock.
    ///
    /// Errors: one clause that says why it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let lock: Self = serde_json::from_slice(bytes).map_err(|error| format!("it is not valid: {error}"))?;
        if lock.format == FORMAT {
            Ok(lock)
        } else {
            Err(format!(
                "it has format {}, and this version of knack reads {FORMAT}",
                lock.format
            ))
        }
    }

    /// The text of the file; the same declarations have the same text.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The functions of a file, if it is still the one that was read.
    ///
    /// Errors: one clause that says what differs.
    pub fn functions(&self, path: &str, file: &SkillFile) -> Result<Vec<Function>, String> {
        match self.files.get(path) {
            None => Err(format!("it has no functions of {path}")),
            Some(locked) if locked.sha256 != sha256(&file.bytes) => {
                Err(format!("{path} has changed since it was written"))
            }
            Some(locked) => Ok(locked.functions.clone()),
        }
    }
}
