//! Finding the real interpreters of a host, once.
//!
//! ```text
//! PATH order, then /usr/bin ──▶ ask (run it once) ──▶ real binary, its trees ──▶ reachable by the sandbox's uid?
//!                                                                              no ──▶ note, next candidate
//! ```
//!
//! An entry of `PATH` may be a shim of a version manager, a script, or a link into a virtual environment. Only the
//! interpreter itself can report its binary and its library, so each candidate is run with a query and a time limit.
//! The answer gives the paths that the sandbox must be able to read, and nothing wider.

mod code_user;
mod describe;
mod path_permissions;
mod programs;

use std::path::{Path, PathBuf};

use super::Language;

pub use code_user::{CodeUser, unreachable_part};
pub use describe::ASK_TIMEOUT;
pub use path_permissions::{PathPermissions, image_permissions};
pub use programs::{ProgramLookup, find_program};
#[cfg(all(target_os = "linux", feature = "local"))]
pub(crate) use {path_permissions::base_permissions, programs::PROGRAM_DIRECTORIES};

/// An interpreter that a sandbox can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// The language that it runs.
    pub language: Language,
    /// Absolute path to start it by: the real binary, or the one of its virtual environment.
    pub path: PathBuf,
    /// Version as it says it, for the console: `3.11.7`.
    pub version: String,
    /// The paths that it must be able to read besides those of every sandbox.
    pub permissions: PathPermissions,
}

/// The interpreters found, and the messages for the console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundInterpreters {
    /// At most one per language, python first.
    pub interpreters: Vec<Interpreter>,
    /// One line per candidate that was passed over, and per interpreter chosen.
    pub notes: Vec<String>,
}

/// The folders to search, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Directories in order of preference; those of `PATH`.
    pub path: Vec<PathBuf>,
    /// Directories tried after them; `/usr/bin` and `/usr/local/bin` on a host.
    pub fallback: Vec<PathBuf>,
    /// The home directory: never granted as a whole.
    pub home: Option<PathBuf>,
    /// The user that must be able to reach the interpreter.
    pub code_user: CodeUser,
}

impl Search {
    /// The search of this process: its `PATH` and `HOME`.
    #[must_use]
    pub fn of_host(code_user: CodeUser) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            path: std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect(),
            fallback: vec![PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin")],
            home: std::env::var_os("HOME").map(PathBuf::from),
            code_user,
        }
    }

    fn candidates(&self, name: &str) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for dir in self.path.iter().chain(&self.fallback) {
            let candidate = dir.join(name);
            if candidate.is_file() && !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }
}

/// Resolves `python3` and, where it exists, `node`.
pub async fn find(search: &Search) -> FoundInterpreters {
    let mut found = FoundInterpreters::default();
    for (language, name) in [(Language::Python, "python3"), (Language::Node, "node")] {
        find_one(search, language, name, &mut found).await;
    }
    found
}

async fn find_one(search: &Search, language: Language, name: &str, found: &mut FoundInterpreters) {
    let mut seen: Vec<PathBuf> = Vec::new();
    for candidate in search.candidates(name) {
        let answer = match describe::ask(language, &candidate).await {
            Ok(answer) => answer,
            Err(reason) => {
                found.notes.push(passed_over(&candidate, None, &reason));
                continue;
            }
        };
        // Two names of one binary (/bin and /usr/bin) need only one check.
        if seen.contains(&answer.executable) {
            continue;
        }
        seen.push(answer.executable.clone());
        match accept(search, language, &answer) {
            Ok(interpreter) => {
                found.notes.push(format!(
                    "{} {} at {}",
                    language.as_str(),
                    interpreter.version,
                    interpreter.path.display()
                ));
                found.interpreters.push(interpreter);
                return;
            }
            Err(reason) => found
                .notes
                .push(passed_over(&candidate, Some(&answer.executable), &reason)),
        }
    }
}

fn accept(
    search: &Search,
    language: Language,
    answer: &describe::InterpreterDescription,
) -> Result<Interpreter, String> {
    let permissions = path_permissions::of_interpreter(answer, search.home.as_deref());
    let parts = std::iter::once(&answer.executable).chain(&answer.libraries);
    for part in parts {
        if let Some(closed) = unreachable_part(part, search.code_user) {
            return Err(format!("{} is not accessible to the sandbox user", closed.display()));
        }
    }
    Ok(Interpreter {
        language,
        path: answer.executable.clone(),
        version: answer.version.clone(),
        permissions,
    })
}

fn passed_over(candidate: &Path, real: Option<&Path>, reason: &str) -> String {
    match real {
        Some(real) if real != candidate => {
            format!(
                "skipped {} (resolved to {}): {reason}",
                candidate.display(),
                real.display()
            )
        }
        _ => format!("skipped {}: {reason}", candidate.display()),
    }
}

#[cfg(test)]
#[path = "interpreter_tests.rs"]
mod tests;
