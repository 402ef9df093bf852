//! The output of `knack skill run` about a run that has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use knack_execution::{ExecutionError, ExecutionResult, Exit, FileError, OutputFile};
use knack_gateway::catalog::remote::FetchError;
use knack_gateway::files::confined_folder::{ConfinedFolder, Readers};
use serde_json::{Value, json};

use super::terminal;

/// The result files of a run on this machine's disk.
#[derive(Debug, Default)]
pub(super) struct SavedFiles {
    /// Where each is, by its name.
    paths: BTreeMap<String, PathBuf>,
    /// The files that could not be written, and why.
    failed: Vec<FileError>,
}

/// Saves the result files. The run is over and has its status whatever the disk does.
pub(super) async fn save(folder: &Path, result: &ExecutionResult) -> SavedFiles {
    if result.files.is_empty() {
        return SavedFiles::default();
    }
    let (folder, files) = (folder.to_owned(), result.files.clone());
    let saved = tokio::task::spawn_blocking(move || save_in(&folder, &files)).await;
    // It ends only with the process.
    saved.unwrap_or_default()
}

/// The names are chosen by the code that ran, and the folder may be in a checkout of its author.
fn save_in(folder: &Path, files: &[OutputFile]) -> SavedFiles {
    let mut saved = SavedFiles::default();
    let opened = ConfinedFolder::make(folder, Readers::Umask);
    for file in files {
        let written = match &opened {
            Ok(opened) => opened.write(&file.path, &file.bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(()) => drop(saved.paths.insert(file.path.clone(), folder.join(&file.path))),
            Err(error) => saved.failed.push(FileError {
                path: file.path.clone(),
                reason: format!("--files-dir {}: {error}", folder.display()),
            }),
        }
    }
    saved
}

/// What the program wrote.
pub(super) fn print_outputs(result: &ExecutionResult) {
    terminal::raw(&result.stdout.bytes);
    terminal::note(result.stderr.text().trim_end());
}

/// How the run ended, and what became of its files.
pub(super) fn print_text(result: &ExecutionResult, saved: &SavedFiles) {
    for path in saved.paths.values() {
        terminal::note(&format!("saved {}", terminal::name(&path.display().to_string())));
    }
    for error in not_saved(result, saved) {
        let between = if error.path.is_empty() { ":" } else { "" };
        let text = format!("not saved{between} {error}");
        terminal::note(&terminal::name(&text));
    }
    terminal::note(&format!(
        "{}, {} ms, locks: seccomp {}, Landlock {} (ABI {})",
        ended(result.exit),
        result.timings.run.as_millis(),
        if result.locks.seccomp { "on" } else { "off" },
        result.locks.landlock,
        result.locks.landlock_abi
    ));
}

/// Files that are not here, and why.
fn not_saved<'r>(result: &'r ExecutionResult, saved: &'r SavedFiles) -> impl Iterator<Item = &'r FileError> {
    result.file_errors.iter().chain(&saved.failed)
}

pub(super) fn print_json(result: &ExecutionResult, saved: &SavedFiles) {
    let files: Vec<Value> = result
        .files
        .iter()
        .map(|file| json!({"name": file.path, "mime_type": file.mime_type, "size_bytes": file.bytes.len(), "sha256": file.sha256, "saved": saved.paths.get(&file.path)}))
        .collect();
    let document = json!({
        "execution": result.id.to_string(), "status": result.status().as_str(), "end": ended(result.exit), "exit_code": result.exit.code(),
        "stdout": result.stdout.text(), "stderr": result.stderr.text(), "truncated": result.stdout.truncated || result.stderr.truncated, "files": files,
        "file_errors": not_saved(result, saved).map(file_error).collect::<Vec<_>>(),
        "run_ms": u64::try_from(result.timings.run.as_millis()).unwrap_or(u64::MAX),
    });
    terminal::line(&format!("{document:#}"));
}

/// That there is no result. The reason is on standard error, too.
pub(super) fn print_json_error(error: &anyhow::Error) {
    let is_away = error.downcast_ref::<FetchError>().is_some_and(FetchError::is_transient);
    let status = match error.downcast_ref::<ExecutionError>() {
        Some(error) => error.metric_label(),
        None if is_away => UNAVAILABLE,
        // Everything else is about what was asked for.
        None => INVALID,
    };
    terminal::line(&format!(
        "{:#}",
        json!({"status": status, "error": format!("{error:#}")})
    ));
}

/// The status of a run that a later try may start: the hub is away.
const UNAVAILABLE: &str = "unavailable";

/// The status of a run that is not started since something in the command line, the skill or this machine is wrong.
const INVALID: &str = "invalid";

/// A summary of many files has no name.
fn file_error(error: &FileError) -> Value {
    let name = (!error.path.is_empty()).then_some(&error.path);
    json!({"name": name, "reason": error.reason})
}

/// The program's exit code; 1 if it succeeded and a file of it could not be written.
pub(super) fn exit_code(exit: Exit, saved: &SavedFiles) -> ExitCode {
    match exit.code() {
        0 if !saved.failed.is_empty() => ExitCode::FAILURE,
        code => ExitCode::from(u8::try_from(code).unwrap_or(1)),
    }
}

fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
        Exit::Timeout => "ended by its time limit".to_owned(),
        Exit::OutOfMemory => "ended by its memory limit".to_owned(),
        Exit::OutputLimit => "ended by its output limit".to_owned(),
        Exit::DiskLimit => "ended by its disk limit".to_owned(),
        Exit::ProcessLimit => "ended by its process limit".to_owned(),
    }
}
