//! The store in a folder: over a restart, on a disk that ends at any step, for several accounts and writers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use knack_registry::Disk;
use knack_wire::history::{Caller, HistorySecret};

use disk::{DiskStep, FailingDisk, Fate};

use super::folder_files::FolderFiles;
use super::local::failed;
use super::objects::{NewContainerFile, NewFile};
use super::store::Clock;
use super::{
    Answer, Bounds, Container, FileOwner, FilesCaller, FilesRefusal, LocalFiles, NewContainer, Op, Reply, Source,
    UserFiles,
};

#[path = "../../../../../tests/support/disk.rs"]
mod disk;

const A: FileOwner = FileOwner {
    account: [1; 32],
    caller: [1; 32],
};
const B: FileOwner = FileOwner {
    account: [1; 32],
    caller: [2; 32],
};
const ELSEWHERE: FileOwner = FileOwner {
    account: [2; 32],
    caller: [1; 32],
};

fn clock() -> Clock {
    Arc::new(|| Timestamp::from_second(1_795_600_000).unwrap())
}

/// A disk that does so many steps and then none; what it writes last is there in part, if `leaves_half`.
fn ending(steps: Arc<AtomicUsize>, leaves_half: bool) -> Box<dyn Disk> {
    let has_ended = AtomicBool::new(false);
    Box::new(FailingDisk(move |step| {
        let left = |left: usize| left.checked_sub(1);
        if step == DiskStep::CreateFolder || steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok() {
            return Fate::Done;
        }
        let is_last = !has_ended.swap(true, Ordering::Relaxed);
        if is_last && leaves_half && step == DiskStep::Write {
            Fate::Half
        } else {
            Fate::Failed
        }
    }))
}

#[test]
fn full_volume_has_its_own_error() {
    for (kind, is_full) in [
        (io::ErrorKind::StorageFull, true),
        (io::ErrorKind::QuotaExceeded, true),
        (io::ErrorKind::PermissionDenied, false),
    ] {
        let refusal = failed(&kind.into());
        assert_eq!(matches!(refusal, FilesRefusal::Full(_)), is_full, "{kind}: {refusal:?}");
    }
}

fn new_file(name: &str) -> Op {
    Op::AddFile(NewFile {
        name: name.to_owned(),
        mime: "text/plain".to_owned(),
        purpose: "user_data".to_owned(),
        lasts: None,
    })
}

fn made(container: &str, path: &str) -> Op {
    let file = NewContainerFile {
        path: path.to_owned(),
        mime: "text/plain".to_owned(),
        source: Source::Assistant,
    };
    Op::AddToContainer(container.to_owned(), file)
}

fn new_container(id: &str) -> Op {
    Op::AddContainer(NewContainer {
        id: id.to_owned(),
        ..NewContainer::default()
    })
}

fn ask(store: &LocalFiles, owner: &FileOwner, op: Op, content: &'static str) -> Result<Reply, FilesRefusal> {
    store.execute(owner, op, &Bytes::from_static(content.as_bytes()))
}

fn id_of(reply: Result<Reply, FilesRefusal>) -> Option<String> {
    match reply.ok()?.0 {
        Answer::File(info) => Some(info.id),
        Answer::ContainerFile(file) => Some(file.id),
        _ => None,
    }
}

fn container(store: &LocalFiles, owner: &FileOwner, id: &str) -> Option<Container> {
    match ask(store, owner, Op::Container(id.to_owned(), Vec::new()), "") {
        Ok((Answer::Container(one, _), _)) => Some(one),
        _ => None,
    }
}

/// Names and contents of everything of an owner; every content must be the one that its name says.
fn contents(store: &LocalFiles, owner: &FileOwner) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok((Answer::Files(files, _), _)) = ask(store, owner, Op::Files(Vec::new()), "") else {
        panic!("uploads are listed")
    };
    for file in files {
        let (_, content) = ask(store, owner, Op::FileContent(file.id), "").unwrap();
        assert_eq!(content.len() as u64, file.size);
        found.insert(file.name, String::from_utf8(content.to_vec()).unwrap());
    }
    let Ok((Answer::Containers(all, _), _)) = ask(store, owner, Op::Containers(Vec::new()), "") else {
        panic!("containers are listed")
    };
    for one in all {
        let one = container(store, owner, &one.id).unwrap();
        for file in one.files {
            let op = Op::ContainerFileContent(one.id.clone(), file.id);
            let (_, content) = ask(store, owner, op, "").unwrap();
            assert_eq!(content.len() as u64, file.size);
            found.insert(
                format!("{}/{}", one.id, file.path),
                String::from_utf8(content.to_vec()).unwrap(),
            );
        }
    }
    found
}

/// What the steps of a client remove: ended while it does so, it may be gone though nobody was told.
const REMOVED: [&str; 3] = ["gone", "c/made", "c/kept"];

/// Steps of a client, and what there is for it behind each that was done.
fn work(store: &LocalFiles, mut done: impl FnMut(&[(&str, Option<&str>)])) {
    let kept = id_of(ask(store, &A, new_file("kept"), "kept content"));
    if kept.is_some() {
        done(&[("kept", Some("kept content"))]);
    }
    let gone = id_of(ask(store, &A, new_file("gone"), "gone content"));
    if gone.is_some() {
        done(&[("gone", Some("gone content"))]);
    }
    let _ = ask(store, &A, new_container("c"), "");
    if ask(store, &A, made("c", "made"), "first").is_ok() {
        done(&[("c/made", Some("first"))]);
    }
    if ask(store, &A, made("c", "made"), "second").is_ok() {
        done(&[("c/made", Some("second"))]);
    }
    if let Some(kept) = kept
        && ask(store, &A, Op::CopyToContainer("c".to_owned(), kept), "").is_ok()
    {
        done(&[("c/kept", Some("kept content"))]);
    }
    if let Some(gone) = gone
        && ask(store, &A, Op::DeleteFile(gone), "").is_ok()
    {
        done(&[("gone", None)]);
    }
    if ask(store, &A, Op::DeleteContainer("c".to_owned()), "").is_ok() {
        done(&[("c/made", None), ("c/kept", None)]);
    }
}

#[test]
fn whatever_step_is_the_last_each_object_is_whole_or_absent_and_what_was_reported_as_kept_is() {
    let steps = |folder: &Path, ends: usize, leaves_half: bool| {
        let left = Arc::new(AtomicUsize::new(ends));
        let disk = ending(Arc::clone(&left), leaves_half);
        let store = LocalFiles::open_on(disk, folder, Bounds::default(), clock()).unwrap();
        let mut expected: BTreeMap<String, String> = BTreeMap::new();
        work(&store, |changes| {
            for (name, content) in changes {
                match content {
                    Some(content) => expected.insert((*name).to_owned(), (*content).to_owned()),
                    None => expected.remove(*name),
                };
            }
        });
        // What the living process says is what it told its client.
        assert_eq!(contents(&store, &A), expected, "before a restart, {ends} steps");
        (expected, left.load(Ordering::Relaxed))
    };
    let all = 1_000;
    let used = all - steps(&tempfile::tempdir().unwrap().path().join("files"), all, false).1;
    assert!(used > 20, "{used}");
    for ends in 0..=used {
        for leaves_half in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path().join("files");
            let (expected, _) = steps(&folder, ends, leaves_half);
            let again = LocalFiles::open(&folder, Bounds::default(), clock()).unwrap();
            let found = contents(&again, &A);
            for (name, content) in &expected {
                let is_removed = REMOVED.contains(&name.as_str()) && !found.contains_key(name);
                assert!(
                    found.get(name) == Some(content) || is_removed,
                    "{name} after {ends} steps: {found:?}"
                );
            }
            let unsaid = found.keys().filter(|name| !expected.contains_key(*name));
            assert_eq!(
                unsaid.count(),
                0,
                "what was refused is not there after {ends} steps: {found:?}"
            );
            assert_eq!(
                again.contents(),
                found.len(),
                "nothing else is on the disk after {ends} steps"
            );
        }
    }
}

#[test]
fn uploads_and_containers_are_there_after_a_restart_for_their_owner_and_for_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("files");
    let open = || LocalFiles::open(&root, Bounds::default(), clock());
    let store = open().unwrap();
    let upload = id_of(ask(&store, &A, new_file("a"), "of a")).unwrap();
    ask(&store, &A, made("container_knack_1", "out.txt"), "of a run").unwrap();
    // Another account chooses the same id: it has another container.
    ask(&store, &ELSEWHERE, made("container_knack_1", "out.txt"), "of another").unwrap();
    let before = (contents(&store, &A), store.usage());
    assert!(open().is_err(), "one process has the folder");
    drop(store);
    let store = open().unwrap();
    assert_eq!((contents(&store, &A), store.usage()), before);
    assert_eq!(contents(&store, &ELSEWHERE)["container_knack_1/out.txt"], "of another");
    for stranger in [&B, &ELSEWHERE] {
        for op in [
            Op::File(upload.clone()),
            Op::FileContent(upload.clone()),
            Op::DeleteFile(upload.clone()),
            Op::CopyToContainer("container_knack_1".to_owned(), upload.clone()),
        ] {
            let refused = ask(&store, stranger, op.clone(), "");
            assert_eq!(refused, Err(FilesRefusal::Missing("File", upload.clone())), "{op:?}");
        }
    }
    assert_eq!(contents(&store, &B), BTreeMap::new());
}

/// The folder may be one of a checkout: that of `knack dev --registry` holds it.
#[test]
fn neither_a_link_nor_a_name_in_an_entry_leads_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (root, victim) = (folder.path().join("files"), folder.path().join("victim"));
    std::fs::write(&victim, "mine").unwrap();
    let open = || LocalFiles::open(&root, Bounds::default(), clock());
    let store = open().unwrap();
    let upload = id_of(ask(&store, &A, new_file("a"), "of a")).unwrap();
    drop(store);
    let entry = std::fs::read_dir(root.join("records")).unwrap().next().unwrap();
    let entry = entry.unwrap().path();
    let text = std::fs::read_to_string(&entry).unwrap();
    for name in ["../../victim", victim.to_str().unwrap()] {
        std::fs::write(&entry, text.replace(&upload, name)).unwrap();
        let store = open().unwrap();
        for op in [Op::FileContent(name.to_owned()), Op::DeleteFile(name.to_owned())] {
            let refused = ask(&store, &A, op, "");
            assert_eq!(refused, Err(FilesRefusal::Missing("File", name.to_owned())));
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    }
    for name in ["contents", "records", "lock", ""] {
        let place = root.join(name).components().collect::<std::path::PathBuf>();
        let target = folder.path().join("elsewhere");
        std::fs::rename(&place, &target).unwrap();
        std::os::unix::fs::symlink(&target, &place).unwrap();
        let said = open().unwrap_err().to_string();
        assert!(said.contains("is a symbolic link"), "{name}: {said}");
        std::fs::remove_file(&place).unwrap();
        std::fs::rename(&target, &place).unwrap();
    }
    open().unwrap();
}

#[test]
fn two_writers_of_one_container_keep_each_others_files_and_the_last_of_a_path_counts() {
    let folder = tempfile::tempdir().unwrap();
    let open = || LocalFiles::open(&folder.path().join("files"), Bounds::default(), clock()).unwrap();
    let store = open();
    ask(&store, &A, new_container("c"), "").unwrap();
    std::thread::scope(|scope| {
        for writer in ["one", "two"] {
            let store = &store;
            scope.spawn(move || {
                for number in 0..20 {
                    ask(store, &A, made("c", &format!("{writer}-{number}")), "x").unwrap();
                    ask(store, &A, made("c", "shared"), writer).unwrap();
                }
            });
        }
    });
    let found = contents(&store, &A);
    assert_eq!(found.len(), 41, "{found:?}");
    assert!(["one", "two"].contains(&found["c/shared"].as_str()));
    drop(store);
    assert_eq!(contents(&open(), &A), found);
}

#[tokio::test]
async fn a_reader_gets_what_is_there_now_of_files_that_others_replace_or_delete() {
    let local = Arc::new(LocalFiles::temporary(Bounds::default(), clock()).unwrap());
    let store = UserFiles::of(FolderFiles::over(Arc::clone(&local)));
    let caller = Caller::new(&HistorySecret::new([1; 32]), b"key");
    let owner = FileOwner::here(caller.bucket());
    let who = FilesCaller::new(caller, owner.caller, None);
    ask(&local, &owner, new_container("c"), "").unwrap();
    for path in ["kept", "replaced", "deleted"] {
        ask(&local, &owner, made("c", path), "old").unwrap();
    }
    let listed = store.use_container(&who, "c").await.unwrap();
    ask(&local, &owner, made("c", "replaced"), "new").unwrap();
    let deleted = listed.files.iter().find(|file| file.path == "deleted").unwrap();
    let delete = Op::DeleteContainerFile("c".to_owned(), deleted.id.clone());
    ask(&local, &owner, delete, "").unwrap();
    let read = store.contents(&who, &listed).await.unwrap();
    let read: Vec<(&str, &[u8])> = read.iter().map(|(path, content)| (&**path, &**content)).collect();
    assert_eq!(read, [("kept", &b"old"[..]), ("replaced", b"new")]);
    ask(&local, &owner, Op::DeleteContainer("c".to_owned()), "").unwrap();
    let gone = store.contents(&who, &listed).await;
    assert_eq!(gone, Err(FilesRefusal::Missing("Container", "c".to_owned())));
}

#[test]
fn a_container_that_was_deleted_or_has_expired_is_not_made_again_by_the_run_that_used_it() {
    let seconds = Arc::new(AtomicI64::new(1_795_600_000));
    let hand = Arc::clone(&seconds);
    let clock: Clock = Arc::new(move || Timestamp::from_second(hand.load(Ordering::Relaxed)).unwrap());
    let store = LocalFiles::temporary(Bounds::default(), clock).unwrap();
    let gone = |id: &str| Err(FilesRefusal::Missing("Container", id.to_owned()));
    for id in ["cntr_knack_1", "container_knack_1"] {
        ask(&store, &A, new_container(id), "").unwrap();
        ask(&store, &A, Op::DeleteContainer(id.to_owned()), "").unwrap();
        assert_eq!(ask(&store, &A, made(id, "out"), "x"), gone(id), "deleted");
    }
    for id in ["cntr_knack_2", "container_knack_2"] {
        ask(&store, &A, new_container(id), "").unwrap();
    }
    seconds.fetch_add(20 * 60, Ordering::Relaxed);
    for id in ["cntr_knack_2", "container_knack_2"] {
        let late = ask(&store, &A, made(id, "out"), "x");
        assert_eq!(late, Err(FilesRefusal::Expired(id.to_owned())), "expired");
    }
    let never = "cntr_knack_3";
    assert_eq!(ask(&store, &A, made(never, "out"), "x"), gone(never), "never made");
    ask(&store, &A, made("container_knack_3", "out"), "x").unwrap();
    assert_eq!(store.contents(), 1, "what was refused leaves the disk");
}

#[test]
fn what_async_threads_ask_for_waits_for_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, writes) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    let (closed, begun) = (Arc::clone(&gate), Arc::clone(&writes));
    let disk = FailingDisk(move |step| {
        if step == DiskStep::Rename {
            begun.store(true, Ordering::Relaxed);
            drop(closed.lock().unwrap());
        }
        Fate::Done
    });
    let store = LocalFiles::open_on(Box::new(disk), &folder.path().join("files"), Bounds::default(), clock());
    let store = Arc::new(store.unwrap());
    let waits = gate.lock().unwrap();
    let writer = Arc::clone(&store);
    let writer = std::thread::spawn(move || id_of(ask(&writer, &A, new_file("a"), "x")));
    while !writes.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let (sender, heard) = mpsc::channel();
    let asked = Arc::clone(&store);
    std::thread::spawn(move || sender.send((asked.idle(), asked.usage().files)));
    // Whoever waits for the disk waits until this thread goes on.
    let heard = heard.recv_timeout(Duration::from_mins(1));
    drop(waits);
    assert_eq!(heard, Ok((Bounds::default().idle, 0)));
    assert!(writer.join().unwrap().is_some());
    assert_eq!(store.usage().files, 1);
}

#[test]
fn what_expires_of_one_account_is_remembered_beside_that_of_others_and_containers_beside_files() {
    let store = LocalFiles::temporary(Bounds::default(), clock()).unwrap();
    let mut gone = Vec::new();
    for owner in [A, ELSEWHERE] {
        let id = id_of(ask(&store, &owner, new_file("a"), "x")).unwrap();
        ask(&store, &owner, Op::DeleteFile(id.clone()), "").unwrap();
        gone.push((owner, id));
    }
    for number in 0..5_000 {
        let id = format!("container_knack_{number}");
        ask(&store, &A, new_container(&id), "").unwrap();
        ask(&store, &A, Op::DeleteContainer(id), "").unwrap();
    }
    let remembers = |(owner, id): &(FileOwner, String)| {
        let listed = ask(&store, owner, Op::Files(vec![id.clone()]), "");
        matches!(listed, Ok((Answer::Files(_, places), _)) if places.len() == 1)
    };
    assert!(gone.iter().all(remembers), "containers push out containers only");
    for number in 0..5_000 {
        let note = Op::NoteGone(format!("file_knack_{number}"), Timestamp::UNIX_EPOCH);
        ask(&store, &A, note, "").unwrap();
    }
    assert_eq!(
        gone.iter().map(remembers).collect::<Vec<_>>(),
        [false, true],
        "and an account its own"
    );
}

#[test]
fn an_account_has_its_part_and_no_more_whatever_its_callers_are() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        caller_bytes: 8,
        account_bytes: 12,
        account_files: 3,
        account_containers: 1,
        account_contained: 2,
        bytes: 20,
        ..Bounds::default()
    };
    let store = LocalFiles::open(&folder.path().join("files"), bounds, clock()).unwrap();
    let full = |reply: Result<Reply, FilesRefusal>| matches!(reply, Err(FilesRefusal::Full(_)));
    ask(&store, &A, new_file("a"), "12345678").unwrap();
    assert!(full(ask(&store, &A, new_file("b"), "1")), "bytes of the caller");
    assert!(full(ask(&store, &B, new_file("b"), "12345")), "bytes of the account");
    ask(&store, &B, new_file("b"), "1").unwrap();
    ask(&store, &B, new_file("c"), "1").unwrap();
    assert!(full(ask(&store, &B, new_file("d"), "1")), "uploads of the account");
    ask(&store, &ELSEWHERE, new_file("a"), "12345678").unwrap();
    ask(&store, &A, new_container("a"), "").unwrap();
    assert!(
        full(ask(&store, &B, new_container("b"), "")),
        "containers of the account"
    );
    ask(&store, &ELSEWHERE, new_container("a"), "").unwrap();
    for path in ["1", "2", "1"] {
        ask(&store, &ELSEWHERE, made("a", path), "").unwrap();
    }
    assert!(
        full(ask(&store, &ELSEWHERE, made("a", "3"), "")),
        "files in containers of the account"
    );
    assert_eq!(store.usage().bytes, 18);
    assert_eq!(store.contents(), 6, "what was refused leaves the disk");
}

#[test]
fn what_expired_while_no_process_ran_is_removed_with_the_first_request() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = Arc::new(AtomicI64::new(1_795_600_000));
    let hand = Arc::clone(&seconds);
    let clock: Clock = Arc::new(move || Timestamp::from_second(hand.load(Ordering::Relaxed)).unwrap());
    let open = || LocalFiles::open(&folder.path().join("files"), Bounds::default(), Arc::clone(&clock)).unwrap();
    let store = open();
    ask(&store, &A, new_file("a"), "1").unwrap();
    ask(&store, &A, made("container_knack_c", "out"), "1").unwrap();
    drop(store);
    seconds.fetch_add(20 * 60, Ordering::Relaxed);
    let store = open();
    assert_eq!(contents(&store, &A).into_keys().collect::<Vec<_>>(), ["a"]);
    drop(store);
    seconds.fetch_add(24 * 3600, Ordering::Relaxed);
    let store = open();
    assert_eq!(contents(&store, &A), BTreeMap::new());
    drop(store);
    assert_eq!(open().contents(), 0);
}
