//! The files of a skill: bounds, paths, which one is SKILL.md, and the digest of the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use sha2::{Digest as _, Sha256};

use crate::foreign::{self, ForeignFolders};
use crate::model::SkillFile;
use crate::problem::{Problem, ProblemKind, Severity};

/// Largest SKILL.md in bytes. Real ones reach 74 KB; every request with the skill carries the body.
pub const MAX_SKILL_MD_BYTES: usize = 1024 * 1024;
/// Largest folder in bytes, all files together: what sharded ConfigMaps carry. Real ones reach 5.6 MB.
pub const MAX_FOLDER_BYTES: usize = 8 * 1024 * 1024;
/// Most files of a folder: each one costs an index entry and an inode in every sandbox. Real ones reach 83.
pub const MAX_FILES: usize = 2_000;
/// Longest path in bytes: `PATH_MAX` of Linux (4,096) less room for the directories above.
const MAX_PATH_BYTES: usize = 1_024;
/// Longest path segment in bytes: `NAME_MAX` of Linux file systems.
const MAX_SEGMENT_BYTES: usize = 255;
/// Most problems of one kind that are reported; the rest is counted.
const MAX_TOLD: usize = 20;

/// File names that are read as the skill's document, in order of preference (Agent Skills).
pub const DOCUMENT_NAMES: [&str; 2] = ["SKILL.md", "skill.md"];

/// The name of the document among file names.
pub fn find_document<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut found = None;
    for name in names {
        if name == DOCUMENT_NAMES[0] {
            return Some(name);
        }
        if name == DOCUMENT_NAMES[1] {
            found = Some(name);
        }
    }
    found
}

/// Why a path that somebody named holds no skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// There is nothing.
    #[error("nothing is at this path; name the folder of a skill, its SKILL.md, an archive or a manifest file")]
    Missing,
    /// There is a file, which is a skill only in another form: as SKILL.md, archive or manifest.
    #[error(
        "not the folder of a skill, nor its SKILL.md, an archive or a manifest; name the folder that holds the SKILL.md"
    )]
    NotFolder,
}

impl PathProblem {
    /// What is wrong with a path as the folder of a skill, by what the file system says of it. What it cannot say is left to the caller.
    pub fn of(found: &std::io::Result<std::fs::Metadata>) -> Option<Self> {
        match found {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some(Self::NotFolder),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Some(Self::Missing),
            Err(_) => None,
        }
    }
}

/// Everything that is wrong with the folder as such: the same in both profiles.
pub fn check(files: &BTreeMap<String, SkillFile>) -> Vec<Problem> {
    let foreign = foreign::of_files(files);
    let mut problems = check_sizes(files, foreign.first());
    problems.extend(foreign.iter().take(MAX_TOLD).map(ForeignFolders::problem));
    let mut bad = Vec::new();
    for path in files.keys() {
        if let Err(message) = check_path(path) {
            let help = "use a relative path of plain names joined by /";
            let problem = Problem::new(Severity::Error, ProblemKind::PathInvalid, message, help);
            bad.push(problem.in_file(printable(path)));
        }
    }
    for path in used_as_folder(files) {
        let message = "this path is both a file and a folder";
        let problem = Problem::new(
            Severity::Error,
            ProblemKind::PathConflict,
            message,
            "rename one of the two",
        );
        bad.push(problem.in_file(printable(path)));
    }
    let more = bad.len().saturating_sub(MAX_TOLD);
    bad.truncate(MAX_TOLD);
    problems.extend(bad);
    if more > 0 {
        let message = format!("{more} more paths have such problems");
        problems.push(Problem::new(
            Severity::Error,
            ProblemKind::PathInvalid,
            message,
            "see the ones above",
        ));
    }
    problems
}

/// Why a path may not be in a skill; `Ok` if it may.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("the path is longer than 1,024 bytes");
    }
    if path.chars().any(char::is_control) {
        return Err("the path holds a NUL or another control character");
    }
    if path.starts_with('/') {
        return Err("the path is absolute");
    }
    for segment in path.split('/') {
        match segment {
            "" => return Err("the path holds an empty segment"),
            "." | ".." => return Err("the path holds . or .."),
            _ if segment.len() > MAX_SEGMENT_BYTES => return Err("a name in the path is longer than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// As [`check_path`], of a file that comes from elsewhere. A backslash parts names on Windows, where an upload is downloaded
/// again; a folder on Linux may hold such a name.
pub fn check_received_path(path: &str) -> Result<(), &'static str> {
    if path.contains('\\') {
        return Err("the path holds a backslash; write / between the names of folders");
    }
    check_path(path)
}

/// Hex SHA-256 of the canonical file tree.
///
/// The hashed text is `knack-tree-v1\n` and, for every file in byte order of its path, one line
/// `<mode> <size> <sha256> <path>\n`: mode is `x` (executable) or `-`, size is decimal bytes, sha256 is lower-case hex of the
/// content. Paths hold no control characters, so lines cannot be forged. Times, owners and other mode bits do not count.
pub fn digest(files: &BTreeMap<String, SkillFile>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(b"knack-tree-v1\n");
    for (path, file) in files {
        let mode = if file.executable { 'x' } else { '-' };
        let line = format!(
            "{mode} {} {} {path}\n",
            file.bytes.len(),
            hex(&Sha256::digest(&file.bytes))
        );
        hasher.update(line.as_bytes());
    }
    hex(&hasher.finalize())
}

/// Bytes as lower-case hex, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn check_sizes(files: &BTreeMap<String, SkillFile>, foreign: Option<&ForeignFolders>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let help = |otherwise: String| match foreign {
        Some(foreign) => format!("{}; {otherwise}", foreign.removal()),
        None => otherwise,
    };
    if files.len() > MAX_FILES {
        let message = format!("the folder has {} files, more than {MAX_FILES}", files.len());
        let help = help("leave out what the skill does not need, or pack it into one archive file".to_owned());
        problems.push(Problem::new(Severity::Error, ProblemKind::TooManyFiles, message, help));
    }
    let total: usize = files.values().map(|file| file.bytes.len()).sum();
    if total > MAX_FOLDER_BYTES {
        let (path, largest) = files
            .iter()
            .max_by_key(|(_, file)| file.bytes.len())
            .map(|(path, file)| (printable(path), file.bytes.len()))
            .unwrap_or_default();
        let message = format!("the folder has {total} bytes, more than {MAX_FOLDER_BYTES} (8 MiB)");
        let help = help(format!(
            "remove or shrink large files, or put them into the sandbox image; the largest is {path} with {largest} bytes"
        ));
        problems.push(Problem::new(
            Severity::Error,
            ProblemKind::FolderTooLarge,
            message,
            help,
        ));
    }
    problems
}

/// Paths of files that another file's path goes through.
fn used_as_folder(files: &BTreeMap<String, SkillFile>) -> BTreeSet<&str> {
    let parents = files
        .keys()
        .flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]));
    parents.filter(|parent| files.contains_key(*parent)).collect()
}

/// A path that cannot disturb a terminal, at most 200 characters.
fn printable(path: &str) -> String {
    path.chars()
        .take(200)
        .flat_map(|character| {
            if character.is_control() {
                character.escape_default().collect::<Vec<_>>()
            } else {
                vec![character]
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> SkillFile {
        SkillFile {
            bytes: bytes.into(),
            executable: false,
        }
    }

    fn tree(paths: &[&str]) -> BTreeMap<String, SkillFile> {
        paths.iter().map(|path| ((*path).to_owned(), file(b"x"))).collect()
    }

    #[test]
    fn paths_that_leave_or_disturb_the_folder_are_refused() {
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "./a",
            "a/",
            "a\0b",
            "a\nb",
            "a/.",
            &"a".repeat(256),
        ] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        for path in ["a", ".hidden", "a b/ü.txt", "..foo", "a\\b"] {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
            assert_eq!(check_received_path(path).is_ok(), !path.contains('\\'), "{path:?}");
        }
    }

    #[test]
    fn a_file_cannot_be_a_folder_too() {
        let problems = check(&tree(&["SKILL.md", "a", "a/b", "a/b/c"]));
        let actual: Vec<_> = problems
            .iter()
            .map(|problem| (problem.kind, problem.file.as_str()))
            .collect();
        assert_eq!(
            actual,
            [(ProblemKind::PathConflict, "a"), (ProblemKind::PathConflict, "a/b")]
        );
    }

    #[test]
    fn a_folder_over_8_mib_is_refused_with_what_to_do() {
        let mut files = tree(&["SKILL.md"]);
        files.insert("big.bin".to_owned(), file(&vec![0; MAX_FOLDER_BYTES]));
        let problems = check(&files);
        assert_eq!(problems[0].kind, ProblemKind::FolderTooLarge);
        assert!(problems[0].help.contains("big.bin"), "{}", problems[0]);
    }

    #[test]
    fn many_bad_paths_are_counted_not_listed() {
        let files = (0..100).map(|index| (format!("/{index}"), file(b""))).collect();
        assert_eq!(check(&files).len(), MAX_TOLD + 1);
    }

    #[test]
    fn the_digest_sees_content_path_and_mode() {
        let base = tree(&["SKILL.md", "a"]);
        // Fixed by the documented form: a changed value breaks every recorded digest.
        assert_eq!(
            digest(&base),
            "52ed66234919225adcc3a31de4487dacb0a720e7c28d8a21cc19e822a276574e"
        );
        let mut other = base.clone();
        other.get_mut("a").unwrap().executable = true;
        assert_ne!(digest(&base), digest(&other));
        assert_ne!(digest(&base), digest(&tree(&["SKILL.md", "b"])));
        other.insert("a".to_owned(), file(b"y"));
        assert_ne!(digest(&base), digest(&other));
    }

    #[test]
    fn the_document_is_found_by_its_exact_name() {
        assert_eq!(find_document(["skill.md", "SKILL.md"]), Some("SKILL.md"));
        assert_eq!(find_document(["a", "skill.md"]), Some("skill.md"));
        assert_eq!(find_document(["Skill.md"]), None);
    }
}
