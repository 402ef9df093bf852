//! Why a file is not started, in words for its author: errors of an exec name neither the file's mode nor its first line.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use knack_vocabulary::program_file::{NoProgram, PROGRAM_HEAD_BYTES, interpreter};

/// Why a file never starts although its exec may work: with a CR, `env` is asked for a program of another name. `name`: as the
/// command has it.
pub(super) fn never_works(path: &Path, name: &OsStr) -> Option<String> {
    match NoProgram::of_content(&head(path)?)? {
        reason @ NoProgram::CarriageReturn(_) => Some(text(name, &[reason])),
        _ => None,
    }
}

/// The reason of an exec that failed, where the file has it. `None`: it says no more than the error.
pub(super) fn explained(path: &Path, name: &OsStr, errno: i32) -> Option<String> {
    let mode = path.metadata().ok()?.permissions().mode();
    let head = head(path)?;
    let reasons = NoProgram::of(&head, mode & 0o111 != 0);
    match errno {
        libc::EACCES | libc::ENOEXEC if !reasons.is_empty() => Some(text(name, &reasons)),
        libc::ENOENT => {
            let interpreter = interpreter(&head)?;
            Some(format!(
                "cannot execute {}: its first line names {interpreter}, which is not in the sandbox (name an interpreter that is there)",
                name.display()
            ))
        }
        _ => None,
    }
}

fn text(name: &OsStr, reasons: &[NoProgram]) -> String {
    let why: Vec<String> = reasons.iter().map(NoProgram::to_string).collect();
    let mut cures: Vec<&str> = reasons.iter().map(NoProgram::cure).collect();
    cures.dedup();
    format!(
        "cannot execute {}: {} ({})",
        name.display(),
        why.join("; "),
        cures.join("; ")
    )
}

/// The first bytes of the file; `None`: it cannot be read, as programs may be that can be executed.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(PROGRAM_HEAD_BYTES);
    let file = File::open(path).ok()?;
    file.take(PROGRAM_HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}
