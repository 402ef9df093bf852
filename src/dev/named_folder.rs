//! A folder that a user named, while it is read: whether it is still the one behind its name.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The folder that was behind a name when its reading began. Held open: while it is, no other one gets its number.
pub(super) struct NamedFolder(io::Result<File>);

impl NamedFolder {
    /// Opens the folder at a path.
    pub(super) fn at(path: &Path) -> Self {
        Self(File::open(path))
    }

    /// Whether the path leads to another one now, or to none. The search goes by paths: it may have seen a part of the one, of the other,
    /// or nothing, and what it has not seen would look deleted. One that cannot be opened says so when it is read.
    pub(super) fn was_replaced(&self, path: &Path) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        match &self.0 {
            Ok(held) => held.metadata().ok().map(identity) != std::fs::metadata(path).ok().map(identity),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::dev::{Search, discover};

    fn folder_of(skills: usize, folder: &Path) {
        for number in 0..skills {
            let skill = folder.join(format!("s{number}"));
            std::fs::create_dir_all(&skill).unwrap();
            std::fs::write(skill.join("SKILL.md"), "---\nname: s\ndescription: d\n---\nB\n").unwrap();
        }
    }

    #[test]
    fn another_folder_behind_the_name_is_told_from_the_one_that_was_there() {
        let root = tempfile::tempdir().unwrap();
        let (path, link) = (root.path().join("skills"), root.path().join("link"));
        std::fs::create_dir(&path).unwrap();
        let there = NamedFolder::at(&path);
        std::fs::write(path.join("new"), "").unwrap();
        assert!(!there.was_replaced(&path), "a file in it");
        std::fs::remove_dir_all(&path).unwrap();
        assert!(there.was_replaced(&path), "it is gone");
        std::fs::create_dir(&path).unwrap();
        assert!(there.was_replaced(&path), "made anew");
        std::os::unix::fs::symlink("skills", &link).unwrap();
        let there = NamedFolder::at(&link);
        assert!(!there.was_replaced(&link));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(".", &link).unwrap();
        assert!(there.was_replaced(&link), "the link of another release");
        assert!(
            NamedFolder::at(&root.path().join("none")).was_replaced(&path),
            "it came meanwhile"
        );
    }

    /// Somebody deploys: a new folder takes the place of the old one, again and again, while it is read.
    #[test]
    fn a_folder_that_is_swapped_while_it_is_read_gives_all_of_its_skills_or_fails() {
        const SKILLS: usize = 4;
        const SWAPS: usize = 100;
        let root = tempfile::tempdir().unwrap();
        let (path, old, new) = (
            root.path().join("skills"),
            root.path().join("old"),
            root.path().join("new"),
        );
        folder_of(SKILLS, &path);
        let is_over = AtomicBool::new(false);
        let swap = || {
            for _ in 0..SWAPS {
                folder_of(SKILLS, &new);
                std::fs::rename(&path, &old).unwrap();
                std::fs::rename(&new, &path).unwrap();
                std::fs::remove_dir_all(&old).unwrap();
            }
            is_over.store(true, Ordering::Release);
        };
        let origin: PathBuf = path.clone();
        let read = || {
            let search = Search::of(vec![path.clone()]);
            while !is_over.load(Ordering::Acquire) {
                let found = discover(&search);
                let has_failed = found.failed.iter().any(|failed| Path::new(failed) == origin);
                let names: Vec<&str> = found.skills.iter().map(|skill| &*skill.id.name).collect();
                assert!(names.len() == SKILLS || has_failed, "{names:?} {:?}", found.failed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(swap);
            read();
        });
        assert_eq!(discover(&Search::of(vec![path])).skills.len(), SKILLS);
    }
}
