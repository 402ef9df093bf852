//! Why a file is not started, in words for its author: errors of an exec name neither the file's mode nor its first line.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use knack_vocabulary::program_file::{NoProgram, PROGRAM_HEAD_BYTES, interpreter};

use super::spawn::{Launch, NoChild};

/// A file whose exec may work and which still does not start: with a CR, `env` is asked for a program of another name.
pub(super) fn never_works(launch: &Launch) -> Result<(), NoChild> {
    // There the sandbox executes nothing, whatever the file is.
    if launch.is_below_work() {
        return Ok(());
    }
    let found = head(launch).and_then(|head| NoProgram::of_content(&head));
    match found {
        Some(reason @ NoProgram::CarriageReturn(_)) => Err(NoChild::OfProgram(text(launch, &[reason]))),
        _ => Ok(()),
    }
}

/// The reason of an exec that failed, where the file has it. `None`: it says no more than the error.
pub(super) fn explained(launch: &Launch, errno: i32) -> Option<String> {
    let mode = launch.program.metadata().ok()?.permissions().mode();
    let head = head(launch)?;
    let reasons = NoProgram::of(&head, mode & 0o111 != 0);
    match errno {
        libc::EACCES | libc::ENOEXEC if !reasons.is_empty() => Some(text(launch, &reasons)),
        libc::ENOENT => {
            let interpreter = interpreter(&head)?;
            let name = launch.name.display();
            Some(format!(
                "cannot execute {name}: its first line names {interpreter}, which is not in the sandbox (name an interpreter that is there)"
            ))
        }
        _ => None,
    }
}

fn text(launch: &Launch, reasons: &[NoProgram]) -> String {
    let why: Vec<String> = reasons.iter().map(NoProgram::to_string).collect();
    let mut cures: Vec<&str> = reasons.iter().map(NoProgram::cure).collect();
    cures.dedup();
    let name = launch.name.display();
    format!("cannot execute {name}: {} ({})", why.join("; "), cures.join("; "))
}

/// The first bytes of the file; `None`: it cannot be read, as programs may be that can be executed.
fn head(launch: &Launch) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(PROGRAM_HEAD_BYTES);
    let file = File::open(&launch.program).ok()?;
    file.take(PROGRAM_HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}
