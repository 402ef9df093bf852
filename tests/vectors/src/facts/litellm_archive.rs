//! Archives of stored skills as LiteLLM reads them. The product unpacks an upload once, when it is stored, and refuses paths that
//! LiteLLM passes over.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::catalog::SKILL_MD;
use knack_skill::litellm::StoredSkill;
use knack_skill::texts;

/// The prompt section: the archive's Markdown under a heading, else the bare instructions, else nothing.
pub(crate) fn section(record: &StoredSkill<'_>, archive: Option<&[ArchiveFile<'_>]>) -> Option<String> {
    let text = archive.and_then(content);
    let title = record.title.filter(|title| !title.is_empty()).unwrap_or(record.id);
    let bare = || record.instructions.filter(|text| !text.is_empty()).map(str::to_owned);
    text.map(|text| texts::litellm_section(title, text)).or_else(bare)
}

/// One entry of an archive, in archive order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveFile<'a> {
    /// Its path as written.
    pub(crate) path: &'a str,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
}

/// The Markdown of an archive: the first SKILL.md at any depth, else the first README.md, else the first `.md`. Empty files and files
/// that are not UTF-8 are passed over.
fn content<'a>(archive: &[ArchiveFile<'a>]) -> Option<&'a str> {
    let text = |ending: &str| {
        let found = archive.iter().filter(|file| file.path.ends_with(ending));
        found
            .filter_map(|file| std::str::from_utf8(file.bytes).ok())
            .find(|text| !text.is_empty())
    };
    text(SKILL_MD).or_else(|| text("README.md")).or_else(|| text(".md"))
}

/// The files of an archive for the sandbox: the top folder removed, paths normalized; folders, absolute paths, backslashes and what
/// `..` leads out of the folder passed over. A path that two top folders share keeps its top folder in both; of two entries of one
/// path the last counts.
pub(crate) fn archive_files(archive: &[ArchiveFile<'_>]) -> BTreeMap<String, Vec<u8>> {
    let kept: Vec<_> = archive
        .iter()
        .filter_map(|file| Some((file, place(file.path)?)))
        .collect();
    let mut tops: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for (_, (top, below)) in &kept {
        tops.entry(below).or_default().insert(*top);
    }
    let files = kept.iter().map(|(file, (top, below))| {
        let is_shared = tops.get(below.as_str()).is_some_and(|tops| tops.len() > 1);
        let path = match top {
            Some(top) if is_shared => format!("{top}/{below}"),
            _ => below.clone(),
        };
        (path, file.bytes.to_vec())
    });
    files.collect()
}

/// The top folder of a path, if it has one, and the rest without `.`, `..` and doubled slashes.
fn place(path: &str) -> Option<(Option<&str>, String)> {
    let (top, below) = path
        .split_once('/')
        .map_or((None, path), |(top, below)| (Some(top), below));
    let is_outside = matches!(top, Some("" | "..")) || below.starts_with('/');
    if is_outside || path.ends_with('/') || path.contains(['\\', '\0']) {
        return None;
    }
    let mut parts = Vec::new();
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    (!parts.is_empty()).then(|| (top, parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_an_archive_are_normalized_and_none_leads_out() {
        let files = |paths: &[&str]| {
            let archive: Vec<_> = paths.iter().map(|path| ArchiveFile { path, bytes: b"x" }).collect();
            archive_files(&archive).into_keys().collect::<Vec<_>>().join(" ")
        };
        for (paths, expected) in [
            (
                &["s/./x.py", "s/a//b.py", "s/a/../c.py", "s/..d/e"][..],
                "..d/e a/b.py c.py x.py",
            ),
            (
                &[
                    "s/../up.py",
                    "../up.py",
                    "/etc/passwd",
                    "s//etc/passwd",
                    "s/a\\b",
                    "s/",
                    "s/.",
                    "s/a/..",
                ],
                "",
            ),
            (&["s/x.py", "s/./x.py", "t/x.py", "x.py"], "s/x.py t/x.py x.py"),
            (&["s/x.py", "s/x.py"], "x.py"),
        ] {
            assert_eq!(files(paths), expected, "{paths:?}");
        }
    }
}
