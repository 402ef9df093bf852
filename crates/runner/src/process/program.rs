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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_failed_exec_says_more_than_its_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let explained = |text: &str, mode: u32, errno: i32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            explained(&path, OsStr::new("scripts/t"), errno)
        };
        for (text, mode, errno, expected) in [
            ("#!/bin/sh\n", 0o644, libc::EACCES, Some("it is not executable")),
            ("true\n", 0o755, libc::ENOEXEC, Some("it has no line #!")),
            (
                "#!/opt/no -e\n",
                0o755,
                libc::ENOENT,
                Some("its first line names /opt/no, which"),
            ),
            // The interpreter may not be executed, or an ELF file has no loader: the error is all that is known.
            ("#!/bin/sh\n", 0o755, libc::EACCES, None),
            ("\x7fELF", 0o755, libc::ENOENT, None),
            ("true\n", 0o755, libc::E2BIG, None),
        ] {
            let said = explained(text, mode, errno);
            let begins = expected.map(|expected| format!("cannot execute scripts/t: {expected}"));
            match (&said, begins) {
                (None, None) => {}
                (Some(said), Some(begins)) => assert!(said.starts_with(&begins), "{said}"),
                (said, begins) => panic!("{text:?} {errno}: {said:?}, {begins:?}"),
            }
        }
        std::fs::write(&path, "#!/usr/bin/env sh\r\n").unwrap();
        let said = never_works(&path, OsStr::new("t")).unwrap();
        assert!(said.contains("so that \"sh\\r\" is looked for"), "{said}");
        std::fs::write(&path, "#!/usr/bin/env sh\n").unwrap();
        assert_eq!(never_works(&path, OsStr::new("t")), None);
    }
}
