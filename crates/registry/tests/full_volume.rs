//! A store of skills on a volume that is full: nothing is left of what it refuses, and a skill can be deleted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use knack_registry::fixture::{draft, wait};
use knack_registry::{Disk, Draft, Files, FolderStore, Owner, RealDisk, Store as _, StoreError};
use knack_skill::model::SkillFile;

/// A disk that takes a part of a file when it is full, as a volume does.
#[derive(Debug)]
struct FullDisk(Arc<AtomicBool>);

impl FullDisk {
    fn fit<'b>(&self, bytes: &'b [u8]) -> (&'b [u8], io::Result<()>) {
        if self.0.load(Ordering::SeqCst) {
            (&bytes[..bytes.len() / 2], Err(io::ErrorKind::StorageFull.into()))
        } else {
            (bytes, Ok(()))
        }
    }
}

impl Disk for FullDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_folder(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (part, done) = self.fit(bytes);
        RealDisk.write(path, part).and(done)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (part, done) = self.fit(bytes);
        RealDisk.append(path, part).and(done)
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        RealDisk.cut(path, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
}

fn upload(name: &str) -> Draft {
    let file = SkillFile {
        bytes: format!("---\nname: {name}\ndescription: d\n---\nx\n")
            .into_bytes()
            .into(),
        executable: false,
    };
    draft(name, Files::from([("SKILL.md".to_owned(), file)]))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_a_full_volume_refuses_leaves_nothing_and_a_skill_can_be_deleted() {
    let work = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let opened = FolderStore::open_on(work.path(), Box::new(FullDisk(Arc::clone(&is_full)))).unwrap();
    let (store, owner) = (opened.store, Owner::from([1; 32]));
    wait(async {
        let kept = store.create(&owner, None, upload("kept")).await.unwrap();
        let two = store
            .add_version(&owner, &kept.id, upload("kept"), false)
            .await
            .unwrap();
        is_full.store(true, Ordering::SeqCst);
        for refused in [
            store.create(&owner, None, upload("other")).await,
            store.add_version(&owner, &kept.id, upload("kept"), true).await,
            store.set_default(&owner, &kept.id, 2).await,
            store.delete_version(&owner, &kept.id, 2).await,
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, StoreError::Full(_)), "{refused}");
            assert!(
                refused.to_string().contains("the volume that keeps the skills is full"),
                "{refused}"
            );
        }
        assert_eq!(store.get(&owner, &kept.id).await.unwrap(), two);
        assert_eq!(names(&work.path().join("staging")), [""; 0]);
        let files = names(&work.path().join("skills").join(&kept.id));
        assert_eq!(files, ["1.files", "2.files", "skill.json"]);

        store.delete(&owner, &kept.id).await.unwrap();
        assert_eq!(names(&work.path().join("skills")), [""; 0]);
        assert_eq!(names(&work.path().join("staging")), [""; 0]);
        is_full.store(false, Ordering::SeqCst);
        store.create(&owner, None, upload("kept")).await.unwrap();
    });
}
