//! A store of skills on a volume that is full: nothing is left of what it refuses, and a skill can be deleted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use knack_registry::fixture::{draft, wait};
use knack_registry::{Draft, Files, FolderStore, Owner, Store as _, StoreError};
use knack_skill::model::SkillFile;
use volume::{Volume, used};

#[path = "../../../tests/support/volume.rs"]
mod volume;

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
    let size = Arc::new(AtomicU64::new(1 << 20));
    let volume = Volume {
        root: work.path().to_owned(),
        size: Arc::clone(&size),
    };
    let opened = FolderStore::open_on(work.path(), Box::new(volume)).unwrap();
    let (store, owner) = (opened.store, Owner::from([1; 32]));
    wait(async {
        let kept = store.create(&owner, None, upload("kept")).await.unwrap();
        let two = store
            .add_version(&owner, &kept.id, upload("kept"), false)
            .await
            .unwrap();
        // A part of each file has room.
        size.store(used(work.path()) + 10, Ordering::SeqCst);
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
        size.store(1 << 20, Ordering::SeqCst);
        store.create(&owner, None, upload("kept")).await.unwrap();
    });
}
