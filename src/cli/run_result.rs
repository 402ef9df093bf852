//! The output of `knack skill run` about a run that has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use knack_execution::{ExecutionResult, Exit};
use serde_json::{Value, json};

use super::terminal;

pub(super) async fn save(folder: &Path, result: &ExecutionResult) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut saved = BTreeMap::new();
    for file in &result.files {
        // The executor delivers relative paths without `..` only; they stay below the folder.
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent)
                .await
                .with_context(|| format!("--files-dir {}", folder.display()))?;
        }
        tokio::fs::write(&path, &file.bytes)
            .await
            .with_context(|| format!("saving {}", path.display()))?;
        saved.insert(file.path.clone(), path);
    }
    Ok(saved)
}

/// `outputs`: with what the program wrote, unless that was shown while it ran.
pub(super) fn print_text(result: &ExecutionResult, saved: &BTreeMap<String, PathBuf>, outputs: bool) {
    if outputs {
        terminal::raw(&result.stdout.bytes);
        terminal::note(result.stderr.text().trim_end());
    }
    for path in saved.values() {
        terminal::note(&format!("saved {}", path.display()));
    }
    for error in &result.file_errors {
        terminal::note(&format!("not saved {}: {}", error.path, error.reason));
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

pub(super) fn print_json(result: &ExecutionResult, saved: &BTreeMap<String, PathBuf>) {
    let files: Vec<Value> = result
        .files
        .iter()
        .map(|file| json!({"name": file.path, "mime_type": file.mime_type, "size_bytes": file.bytes.len(), "sha256": file.sha256, "saved": saved.get(&file.path)}))
        .collect();
    let document = json!({
        "execution": result.id.to_string(), "status": result.status().as_str(), "end": ended(result.exit), "exit_code": result.exit.code(),
        "stdout": result.stdout.text(), "stderr": result.stderr.text(), "truncated": result.stdout.truncated || result.stderr.truncated, "files": files,
        "file_errors": result.file_errors.iter().map(|error| json!({"name": error.path, "reason": error.reason})).collect::<Vec<_>>(),
        "run_ms": u64::try_from(result.timings.run.as_millis()).unwrap_or(u64::MAX),
    });
    terminal::line(&format!("{document:#}"));
}

pub(super) fn exit_code(exit: Exit) -> ExitCode {
    ExitCode::from(u8::try_from(exit.code()).unwrap_or(1))
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
