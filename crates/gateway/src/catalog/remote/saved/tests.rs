//! What is saved and read back, and what is never used.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use knack_hub_api::fixture::runtime_line;
use knack_hub_api::{Overrides, PROTOCOL, SkillLine};
use knack_memory::MemoryBudget;
use knack_skill::model::SkillFile;
use knack_skill::tree;

use super::format::{Identity, NAME_NEW, SAVED_MAX_BYTES, SavedLocation};
use super::read::RestoredCatalog;
use super::saver::Saver;
use super::write::{SaveError, Unsaved};
use crate::catalog::remote::age::CatalogAge;
use crate::catalog::remote::blobs::Blobs;
use crate::catalog::remote::content::Tree;
use crate::catalog::remote::mirror::MirrorState;

fn location(folder: &Path) -> SavedLocation {
    SavedLocation {
        folder: folder.to_path_buf(),
        identity: Identity {
            runtime: "a/b".parse().unwrap(),
            hub: "https://hub:8443".to_owned(),
            client_namespace: None,
        },
    }
}

/// A catalog of one skill with these files.
fn catalog(files: &[(&str, &[u8])]) -> Unsaved {
    let files: BTreeMap<String, SkillFile> = files
        .iter()
        .map(|(path, bytes)| {
            let executable = path.starts_with("scripts/");
            let bytes = Arc::from(*bytes);
            ((*path).to_owned(), SkillFile { bytes, executable })
        })
        .collect();
    let digest = tree::digest(&files);
    let skill = SkillLine {
        namespace: "a".to_owned(),
        name: "x".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        digest: digest.clone(),
        created: 3,
        overrides: Overrides::default(),
        upload: None,
        withheld_tools: Vec::new(),
    };
    Unsaved {
        state: MirrorState {
            runtime: runtime_line(),
            skills: vec![skill],
            gone: VecDeque::from([("v".to_owned(), "6".to_owned())]),
        },
        trees: BTreeMap::from([(digest, Arc::new(Tree { files }))]),
    }
}

fn small() -> Unsaved {
    catalog(&[
        ("SKILL.md", b"---\nname: x\n---\nDo it."),
        ("scripts/a.py", b"print(1)"),
        ("b.txt", b"same"),
        ("c.txt", b"same"),
        ("empty", b""),
    ])
}

fn blobs() -> Blobs {
    Blobs::new(MemoryBudget::new(8 << 20))
}

fn read(location: &SavedLocation) -> Result<Option<RestoredCatalog>, String> {
    let now = SystemTime::now();
    location.read(&blobs(), now).map_err(|why| why.to_string())
}

/// Another folder with a good file.
fn saved() -> (tempfile::TempDir, SavedLocation) {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path());
    location.save(&small(), SystemTime::now()).unwrap();
    (folder, location)
}

#[test]
fn what_was_saved_is_read_back_with_its_age_and_no_other_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    // A folder that is not there yet, and what a process that was killed left in it.
    let location = location(&folder.path().join("made"));
    assert!(read(&location).unwrap().is_none());
    let confirmed_at = SystemTime::now() - Duration::from_secs(500);
    location.save(&small(), confirmed_at).unwrap();
    let target = folder.path().join("target");
    fs::write(&target, "kept").unwrap();
    symlink(&target, location.folder.join(NAME_NEW)).unwrap();
    location.save(&small(), confirmed_at).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept", "the link is not followed");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&location.folder), mode(&location.file())), (0o700, 0o600));
    assert_eq!(fs::read_dir(&location.folder).unwrap().count(), 1, "no second file");

    let restored = read(&location).unwrap().unwrap();
    let age = restored.age.as_secs();
    assert!((500..560).contains(&age), "{age}");
    let given = small();
    assert_eq!(restored.state, given.state);
    for (digest, tree) in given.trees {
        assert_eq!(restored.trees[&digest].files, tree.files);
    }
}

#[test]
fn contents_take_their_room_from_the_budget_once() {
    let (_folder, location) = saved();
    let budget = MemoryBudget::new(64 << 10);
    let blobs = Blobs::new(budget.clone());
    let restored = location.read(&blobs, SystemTime::now()).unwrap().unwrap();
    assert!(budget.held_bytes() > 0);
    let files = restored.trees.values().next().unwrap().files.clone();
    assert!(Arc::ptr_eq(&files["b.txt"].bytes, &files["c.txt"].bytes));
    let tight = Blobs::new(MemoryBudget::new(1 << 10));
    let why = location.read(&tight, SystemTime::now()).unwrap_err().to_string();
    assert!(why.contains("memory limit"), "{why}");
}

/// A change of one byte anywhere, an end anywhere, and more at the end are found.
#[test]
fn a_damaged_file_is_never_used_in_part() {
    let (_folder, location) = saved();
    let good = fs::read(location.file()).unwrap();
    let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|length| good[..length].to_vec()).collect();
    bad.extend((0..good.len()).map(|at| {
        let mut changed = good.clone();
        changed[at] ^= 1;
        changed
    }));
    bad.push([&good[..], b"x"].concat());
    bad.push(vec![b'{'; 100_000]);
    for (case, bytes) in bad.iter().enumerate() {
        fs::write(location.file(), bytes).unwrap();
        assert!(read(&location).is_err(), "{case} of {}", good.len());
    }
    fs::write(location.file(), good).unwrap();
    assert!(read(&location).unwrap().is_some());
}

#[test]
fn what_is_not_for_this_gateway_is_named_and_not_used() {
    type Change = fn(&mut SavedLocation);
    let identities: [Change; 3] = [
        |location| location.identity.runtime = "a/c".parse().unwrap(),
        |location| location.identity.hub = "https://other:8443".to_owned(),
        |location| location.identity.client_namespace = Some("team".to_owned()),
    ];
    for change in identities {
        let (_folder, mut location) = saved();
        change(&mut location);
        assert!(
            read(&location)
                .unwrap_err()
                .contains("another SkillRuntime, hub or namespace")
        );
    }
    let (protocol, next) = (
        format!("\"protocol\":{PROTOCOL}"),
        format!("\"protocol\":{}", PROTOCOL + 1),
    );
    for (old, new) in [
        ("\"format\":1", "\"format\":2"),
        ("\"format\":1", "\"format\":0"),
        (&protocol, &next),
        (&protocol, "\"protocol\":0"),
    ] {
        let (_folder, location) = saved();
        let bytes = fs::read(location.file()).unwrap();
        let at = bytes
            .windows(old.len())
            .position(|part| part == old.as_bytes())
            .unwrap();
        fs::write(
            location.file(),
            [&bytes[..at], new.as_bytes(), &bytes[at + old.len()..]].concat(),
        )
        .unwrap();
        let why = read(&location).unwrap_err();
        assert!(
            why.contains(env!("CARGO_PKG_VERSION")) && why.contains("this one reads"),
            "{why}"
        );
    }
    let (_folder, location) = saved();
    fs::write(location.file(), "{\"format\":9}\nwhatever").unwrap();
    assert!(read(&location).unwrap_err().contains("format 9"));
}

#[test]
fn a_file_of_the_future_or_beyond_the_bound_or_of_another_kind_is_not_used() {
    let (_folder, location) = saved();
    let now = SystemTime::now();
    location.confirm(now + Duration::from_secs(30)).unwrap();
    assert_eq!(location.read(&blobs(), now).unwrap().unwrap().age, Duration::ZERO);
    location.confirm(now + Duration::from_hours(1)).unwrap();
    assert!(read(&location).unwrap_err().contains("future"));

    let file = fs::File::options().write(true).open(location.file()).unwrap();
    file.set_len(SAVED_MAX_BYTES + 1).unwrap();
    assert!(read(&location).unwrap_err().contains("more than"));

    location.forget().unwrap();
    location.forget().unwrap();
    fs::create_dir(location.file()).unwrap();
    assert!(read(&location).unwrap_err().contains("not a regular file"));
    assert!(matches!(
        location.save(&small(), now),
        Err(SaveError::Write("the file", _))
    ));
    assert_eq!(fs::read_dir(&location.folder).unwrap().count(), 1, "no new file stays");
}

#[test]
fn a_catalog_beyond_the_bound_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path());
    let large: Vec<Vec<u8>> = (0..5).map(|fill| vec![fill; 7 << 20]).collect();
    let files: Vec<(&str, &[u8])> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .zip(large.iter().map(|part| &part[..]))
        .collect();
    let saved = location.save(&catalog(&files), SystemTime::now());
    assert!(
        matches!(saved, Err(SaveError::TooLarge(bytes)) if bytes > SAVED_MAX_BYTES),
        "{saved:?}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // Equal contents count once.
    let same: Vec<(&str, &[u8])> = files.iter().map(|(path, _)| (*path, &large[0][..])).collect();
    location.save(&catalog(&same), SystemTime::now()).unwrap();
}

/// Waits for what the task does.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn the_newest_catalog_is_saved_and_the_same_one_is_only_confirmed() {
    tokio::time::pause();
    let folder = tempfile::tempdir().unwrap();
    let location = location(folder.path());
    let age = CatalogAge::starting();
    let (saver, none) = Saver::open(location.clone(), &blobs(), &age).await;
    assert!(none.is_none());
    for version in 0..50 {
        saver.save(catalog(&[("SKILL.md", format!("{version}").as_bytes())]));
    }
    let newest = catalog(&[("SKILL.md", b"49")]).state;
    until("the newest one", || {
        read(&location)
            .unwrap()
            .is_some_and(|restored| restored.state == newest)
    })
    .await;
    let file = || fs::metadata(location.file()).unwrap();
    let before = file().ino();
    age.restored(Duration::from_secs(100));
    saver.save(catalog(&[("SKILL.md", b"49")]));
    until("its time", || {
        file().modified().unwrap() < SystemTime::now() - Duration::from_secs(90)
    })
    .await;
    assert_eq!(file().ino(), before, "not written again");
    age.confirm();
    until("the hub's next message", || {
        file().modified().unwrap() > SystemTime::now() - Duration::from_mins(1)
    })
    .await;
    assert_eq!(file().ino(), before);
    saver.forget();
    until("none", || !location.file().exists()).await;
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_keeps_nothing_and_is_tried_again() {
    tokio::time::pause();
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("a file");
    fs::write(&blocked, "").unwrap();
    let location = location(&blocked.join("catalog"));
    let (saver, none) = Saver::open(location.clone(), &blobs(), &CatalogAge::starting()).await;
    assert!(none.is_none());
    saver.save(small());
    tokio::time::sleep(Duration::from_secs(40)).await;
    fs::remove_file(&blocked).unwrap();
    until("the next try", || location.file().exists()).await;
    assert!(read(&location).unwrap().is_some());
}

#[tokio::test]
async fn an_older_catalog_goes_where_the_newest_cannot_be_saved() {
    tokio::time::pause();
    let (_folder, location) = saved();
    fs::create_dir(location.folder.join(NAME_NEW)).unwrap();
    let (saver, restored) = Saver::open(location.clone(), &blobs(), &CatalogAge::starting()).await;
    assert!(restored.is_some());
    saver.save(catalog(&[("SKILL.md", b"another")]));
    until("gone", || !location.file().exists()).await;
}
