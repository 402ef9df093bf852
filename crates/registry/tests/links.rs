//! A folder of somebody else, as one in a checkout, whose links lead elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use knack_registry::fixture::{draft, flushed, now, wait};
use knack_registry::{
    ExecutionQuery, Files, FolderHistory, FolderStore, History as _, HistorySettings, Owner, Store as _, read_folder,
};
use knack_skill::model::SkillFile;

fn owner() -> Owner {
    Owner::from([1; 32])
}

fn open_history(root: &Path) -> std::io::Result<FolderHistory> {
    FolderHistory::open(root, HistorySettings::of_days(1), |_| ()).map(|opened| opened.history)
}

fn files(text: &str) -> Files {
    let file = SkillFile {
        bytes: format!("---\nname: draw\ndescription: d\n---\n{text}")
            .into_bytes()
            .into(),
        executable: false,
    };
    Files::from([("SKILL.md".to_owned(), file)])
}

fn ran(id: &str) -> knack_registry::Execution {
    let execution = serde_json::json!({
        "id": id, "caller": owner(), "skill": null, "tool": "t", "request": "r", "input": null, "output": null,
        "status": "success", "error": null, "durationMs": null, "created": now(),
    });
    serde_json::from_value(execution).unwrap()
}

/// Uploads a skill and notes a run, whatever comes of it.
async fn used(root: &Path) {
    if let Ok(opened) = FolderStore::open(root) {
        let made = opened.store.create(&owner(), None, draft("draw", files("one"))).await;
        if let Ok(made) = made {
            let added = draft("draw", files("two"));
            let _ = opened.store.add_version(&owner(), &made.id, added, true).await;
            let _ = opened.store.delete(&owner(), &made.id).await;
        }
        for entry in opened.store.skills_of(&owner()) {
            for version in &entry.versions {
                let _ = opened.store.content(&owner(), &entry.id, version.number).await;
                let _ = opened.store.delete(&owner(), &entry.id).await;
            }
        }
    }
    if let Ok(history) = open_history(root) {
        history.note(ran("b"));
        history.flush().await;
    }
    let _ = read_folder(root);
    let _ = FolderHistory::remove(root);
}

/// All files and folders below a folder, with their contents.
fn state(folder: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), None);
            state(&path, found);
        } else {
            found.insert(path.clone(), Some(fs::read(&path).unwrap()));
        }
    }
}

/// A folder with a skill and a run.
async fn made(root: &Path) -> String {
    let store = FolderStore::open(root).unwrap().store;
    let made = store.create(&owner(), None, draft("draw", files("one"))).await.unwrap();
    let history = open_history(root).unwrap();
    history.note(ran("a"));
    flushed(&history).await;
    made.id
}

#[test]
fn no_link_below_the_folder_is_read_or_written_through() {
    let names = [
        "lock",
        "secret",
        "staging",
        "skills",
        "skills/ID",
        "skills/ID/skill.json",
        "skills/ID/1.files",
        "executions",
        "executions/writer",
        "executions/reserve",
        "executions/00000001.jsonl",
    ];
    for name in names {
        for is_there in [true, false] {
            let work = tempfile::tempdir().unwrap();
            let (root, elsewhere) = (work.path().join("registry"), work.path().join("elsewhere"));
            wait(async {
                let id = made(&root).await;
                let place = root.join(name.replace("ID", &id));
                fs::create_dir(&elsewhere).unwrap();
                let target = elsewhere.join("target");
                if is_there {
                    fs::rename(&place, &target).unwrap();
                } else if place.is_dir() {
                    fs::remove_dir_all(&place).unwrap();
                } else {
                    fs::remove_file(&place).unwrap();
                }
                symlink(&target, &place).unwrap();
                let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
                state(&elsewhere, &mut before);
                if matches!(name, "skills/ID" | "skills/ID/skill.json") {
                    let opened = FolderStore::open(&root).unwrap();
                    assert_eq!(opened.store.skills_of(&owner()).len(), 0, "{name}");
                    let told = opened.broken.join("\n");
                    assert!(!is_there || told.contains("is a symbolic link"), "{name}: {told}");
                } else if name == "skills/ID/1.files" {
                    let store = FolderStore::open(&root).unwrap().store;
                    store.content(&owner(), &id, 1).await.unwrap_err();
                } else if name == "executions/reserve" {
                    open_history(&root).unwrap();
                } else {
                    let opened = FolderStore::open(&root).map(drop);
                    let opened = opened.and_then(|()| open_history(&root).map(drop));
                    let said = opened.unwrap_err().to_string();
                    assert!(said.contains("is a symbolic link"), "{name}: {said}");
                }
                used(&root).await;
                state(&elsewhere, &mut after);
                assert!(before == after, "{name}, {is_there}: something elsewhere has changed");
            });
        }
    }
}

#[test]
fn the_folder_itself_may_be_a_link_that_its_user_named() {
    let work = tempfile::tempdir().unwrap();
    let (real, link) = (work.path().join("real"), work.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink("real", &link).unwrap();
    wait(async {
        let id = made(&link).await;
        let store = FolderStore::open(&link).unwrap().store;
        assert_eq!(store.content(&owner(), &id, 1).await.unwrap(), files("one"));
        let all = ExecutionQuery {
            skill: None,
            status: None,
            skip: 0,
            limit: 9,
        };
        let history = open_history(&link).unwrap();
        assert_eq!(history.find(&owner(), &all).await.unwrap().items.len(), 1);
        assert_eq!(read_folder(&link).unwrap().executions.len(), 1);
        assert!(real.join("skills").join(&id).is_dir());
    });
}
