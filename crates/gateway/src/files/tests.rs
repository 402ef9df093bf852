use std::os::unix::fs::PermissionsExt as _;

use super::*;

const A: KeyedHash = [1; 32];
const B: KeyedHash = [2; 32];

fn file(name: &str, content: &str) -> (FileEntry, Bytes) {
    let entry = FileEntry {
        name: name.to_owned(),
        mime_type: "text/plain".to_owned(),
        size_bytes: content.len() as u64,
        sha256: knack_skill::digest::sha256(content.as_bytes()),
    };
    (entry, Bytes::from(content.to_owned()))
}

fn on_disk(store: &FileStore) -> usize {
    store.disk.count()
}

#[tokio::test]
async fn files_are_read_back_with_the_same_credential_only() {
    let store = FileStore::open(1000).unwrap();
    store.put(A, "r1", vec![file("a.txt", "x")]).await.unwrap();
    assert_eq!(store.read(&A, "r1", "a.txt").await.unwrap().1, "x");
    assert!(store.read(&B, "r1", "a.txt").await.is_none());
    assert!(store.list(&B, "r1").is_none());
    assert!(store.list(&A, "r2").is_none());
    assert!(store.read(&A, "r1", "../a.txt").await.is_none());
}

#[tokio::test]
async fn equal_ids_of_two_callers_are_two_responses() {
    let store = FileStore::open(1000).unwrap();
    store.put(A, "r", vec![file("a", "of A")]).await.unwrap();
    store.put(B, "r", vec![file("a", "of B")]).await.unwrap();
    for (caller, expected) in [(A, "of A"), (B, "of B")] {
        assert_eq!(store.read(&caller, "r", "a").await.unwrap().1, expected);
        let found = store.find(&caller, &file_id("r", "a")).unwrap();
        assert_eq!((found.entry.name.as_str(), store.all(&caller).len()), ("a", 1));
    }
    assert!(store.find(&[3; 32], &file_id("r", "a")).is_none());
}

#[tokio::test]
async fn a_later_run_of_the_response_adds_and_replaces() {
    let store = FileStore::open(1000).unwrap();
    // Equal contents under several names, in one run and in two.
    store
        .put(A, "r", vec![file("a", "1"), file("b", "1"), file("c", "1")])
        .await
        .unwrap();
    store
        .put(A, "r", vec![file("b", "0"), file("b", "2"), file("d", "1")])
        .await
        .unwrap();
    for (name, expected) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "1")] {
        assert_eq!(store.read(&A, "r", name).await.unwrap().1, expected, "{name}");
    }
    assert_eq!(
        (store.list(&A, "r").unwrap().len(), on_disk(&store), store.lock().bytes),
        (4, 4, 4)
    );
    let found = store.find(&A, &file_id("r", "b")).unwrap();
    assert_eq!(found.entry.sha256, knack_skill::digest::sha256("2"));
}

#[tokio::test]
async fn a_deleted_file_is_gone_and_the_others_of_its_response_are_not() {
    let store = FileStore::open(1000).unwrap();
    store.put(A, "r", vec![file("a", "1"), file("b", "22")]).await.unwrap();
    let id = file_id("r", "a");
    assert!(!store.delete(&B, &id) && store.delete(&A, &id) && !store.delete(&A, &id));
    assert!(store.find(&A, &id).is_none() && store.read(&A, "r", "b").await.is_some());
    let left = store.all(&A).len();
    assert_eq!((on_disk(&store), store.lock().bytes, left), (1, 2, 1));
}

#[tokio::test]
async fn the_quota_pushes_out_the_oldest_and_removes_it_from_disk() {
    let store = FileStore::open(2).unwrap();
    for id in ["1", "2", "3"] {
        store.put(A, id, vec![file("a", id)]).await.unwrap();
    }
    assert!(store.list(&A, "1").is_none() && store.list(&A, "2").is_some() && store.list(&A, "3").is_some());
    assert_eq!(on_disk(&store), 2);
    let known = ["1", "2", "3"].map(|id| store.find(&A, &file_id(id, "a")).is_some());
    assert_eq!((known, store.lock().by_id.len()), ([false, true, true], 2));
}

#[tokio::test]
async fn what_is_expired_leaves_the_disk_without_another_put() {
    tokio::time::pause();
    let store = FileStore::open(1000).unwrap();
    store.put(A, "r", vec![file("a", "1")]).await.unwrap();
    tokio::time::sleep(FILES_KEPT.checked_sub(Duration::from_mins(1)).unwrap()).await;
    assert_eq!(on_disk(&store), 1);
    tokio::time::sleep(SWEEP_EVERY * 2).await;
    for _ in 0..1000 {
        if on_disk(&store) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((on_disk(&store), store.lock().bytes), (0, 0));
    assert!(store.lock().by_id.is_empty());
}

#[tokio::test]
async fn names_that_leave_the_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), "resp_1", &[file("out/a.txt", "x")])
        .await
        .unwrap();
    // They hold what runs made of their inputs.
    for (path, mode) in [("resp_1", 0o700), ("resp_1/out", 0o700), ("resp_1/out/a.txt", 0o600)] {
        let there = std::fs::metadata(folder.path().join(path)).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, mode, "{path}");
    }
    for name in ["../x", "/etc/x", "a/../../x"] {
        assert!(
            write_folder(folder.path(), "resp_1", &[file(name, "x")]).await.is_err(),
            "{name}"
        );
    }
    // The folder may be in a checkout of somebody else's.
    let elsewhere = tempfile::tempdir().unwrap();
    for link in ["resp_2", "resp_1/linked"] {
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join(link)).unwrap();
    }
    for (response, name) in [("resp_2", "config"), ("resp_1", "linked/config")] {
        let written = write_folder(folder.path(), response, &[file(name, "x")]).await;
        assert!(written.unwrap_err().to_string().contains("is a symbolic link"));
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
