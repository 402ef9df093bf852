//! A store that ends at any step of any change is, once it is opened again, as it was before or after that change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{FailingDisk, Fate};
use knack_registry::fixture::wait;
use knack_registry::{Disk, Draft, Files, FolderStore, Mode, Owner, Page, SkillEntry, Store, StoreError};
use knack_skill::model::SkillFile;
use proptest::prelude::*;

#[path = "../../../tests/support/disk.rs"]
mod disk;

/// A disk of a machine that stops at a step: half of that step is done, if `half`, and nothing after it.
fn stopping(left: Arc<AtomicUsize>, half: bool) -> Box<dyn Disk> {
    Box::new(FailingDisk(move |_| {
        let now = left.load(Ordering::SeqCst);
        left.store(now.saturating_sub(1), Ordering::SeqCst);
        match now {
            1 if half => Fate::Half,
            0 | 1 => Fate::Failed,
            _ => Fate::Done,
        }
    }))
}

#[derive(Debug, Clone)]
enum Change {
    Create(u8),
    AddVersion(usize, bool),
    SetDefault(usize, usize),
    SetMode(usize, bool),
    Delete(usize),
    DeleteVersion(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0..4_u8).prop_map(Change::Create),
        3 => (0..4_usize, any::<bool>()).prop_map(|(skill, default)| Change::AddVersion(skill, default)),
        1 => (0..4_usize, 0..4_usize).prop_map(|(skill, version)| Change::SetDefault(skill, version)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(skill, on)| Change::SetMode(skill, on)),
        1 => (0..4_usize).prop_map(Change::Delete),
        1 => (0..4_usize, 0..4_usize).prop_map(|(skill, version)| Change::DeleteVersion(skill, version)),
    ]
}

fn draft(name: &str, text: &str) -> Draft {
    let bytes: Arc<[u8]> = text.as_bytes().into();
    let file = SkillFile {
        bytes,
        executable: true,
    };
    let files = Files::from([("SKILL.md".to_owned(), file)]);
    knack_registry::fixture::draft(name, files)
}

fn owner() -> Owner {
    Owner::from([1; 32])
}

const ALL: Page = Page {
    after: None,
    limit: 100,
    newest_first: false,
};

/// Every entry, and every file of every version.
async fn state(store: &FolderStore) -> Vec<(SkillEntry, Vec<Files>)> {
    let mut all = Vec::new();
    for entry in store.list(&owner(), &ALL).await.unwrap().items {
        let mut contents = Vec::new();
        for version in &entry.versions {
            contents.push(store.content(&owner(), &entry.id, version.number).await.unwrap());
        }
        all.push((entry, contents));
    }
    all
}

async fn apply(store: &FolderStore, change: &Change, text: &str) -> Result<(), StoreError> {
    let entries = store.list(&owner(), &ALL).await.unwrap().items;
    let pick = |at: usize| entries.get(at).ok_or(StoreError::NotFound);
    let number = |entry: &SkillEntry, at: usize| entry.versions.get(at).map_or(999, |version| version.number);
    match change {
        Change::Create(name) => {
            let draft = draft(&format!("skill-{name}"), text);
            store.create(&owner(), None, draft).await.map(drop)
        }
        Change::AddVersion(at, default) => {
            let entry = pick(*at)?;
            let draft = draft(&entry.name, text);
            store.add_version(&owner(), &entry.id, draft, *default).await.map(drop)
        }
        Change::SetDefault(at, version) => {
            let entry = pick(*at)?;
            let number = number(entry, *version);
            store.set_default(&owner(), &entry.id, number).await.map(drop)
        }
        Change::SetMode(at, on) => {
            let mode = if *on { Mode::On } else { Mode::Off };
            store.set_mode(&owner(), &pick(*at)?.id, mode).await.map(drop)
        }
        Change::Delete(at) => store.delete(&owner(), &pick(*at)?.id).await.map(drop),
        Change::DeleteVersion(at, version) => {
            let entry = pick(*at)?;
            let number = number(entry, *version);
            store.delete_version(&owner(), &entry.id, number).await.map(drop)
        }
    }
}

/// Name, default version, mode, versions and their files.
type Shape = (String, Option<u32>, Option<Mode>, Vec<u32>, Vec<Files>);

/// What of a state does not depend on the time at which it was made.
fn shape(state: &[(SkillEntry, Vec<Files>)]) -> Vec<Shape> {
    let one = |(entry, files): &(SkillEntry, Vec<Files>)| {
        let numbers = entry.versions.iter().map(|version| version.number).collect();
        (entry.name.clone(), entry.default, entry.mode, numbers, files.clone())
    };
    state.iter().map(one).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// More steps than any change has.
const STEPS: usize = 12;

async fn stop_everywhere(before: &[Change], last: &Change) {
    let work = tempfile::tempdir().unwrap();
    let base = work.path().join("base");
    let store = FolderStore::open(&base).unwrap().store;
    for (at, change) in before.iter().enumerate() {
        // Refusals, such as a name that is taken, are part of it.
        let _ = apply(&store, change, &format!("text {at}")).await;
    }
    let was = state(&store).await;
    drop(store);
    let whole = work.path().join("whole");
    copy(&base, &whole);
    let store = FolderStore::open(&whole).unwrap().store;
    let outcome = apply(&store, last, "last").await;
    let will_be = state(&store).await;
    drop(store);
    for half in [false, true] {
        for step in 1..=STEPS {
            let at = work.path().join(format!("{half}-{step}"));
            copy(&base, &at);
            let left = Arc::new(AtomicUsize::new(usize::MAX));
            let disk = stopping(Arc::clone(&left), half);
            let store = FolderStore::open_on(&at, disk).unwrap().store;
            left.store(step, Ordering::SeqCst);
            let stopped = apply(&store, last, "last").await;
            // In memory, too, it is one or the other: what it says is on the disk, is.
            let said = state(&store).await;
            drop(store);
            let opened = FolderStore::open(&at).unwrap();
            assert_eq!(opened.broken, Vec::<String>::new(), "{last:?} stopped at step {step}");
            let is = state(&opened.store).await;
            let (is, said) = (shape(&is), shape(&said));
            assert_eq!(is, said, "{last:?} stopped at step {step}");
            assert!(
                is == shape(&was) || is == shape(&will_be),
                "{last:?} stopped at step {step} is {is:?}"
            );
            if stopped.is_ok() {
                assert_eq!(is, shape(&will_be), "{last:?} was confirmed at step {step}");
            }
            // The store goes on.
            let entry = opened
                .store
                .create(&owner(), None, draft("another", "x"))
                .await
                .unwrap();
            assert_eq!(opened.store.get(&owner(), &entry.id).await.unwrap(), entry);
            let left: Vec<_> = std::fs::read_dir(at.join("staging")).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
    let _ = outcome;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_change_that_is_interrupted_is_whole_or_absent(
        before in prop::collection::vec(change(), 1..8),
        last in change(),
    ) {
            wait(stop_everywhere(&before, &last));
    }
}

/// Every kind of change, on a skill that is there: the property might miss one.
#[test]
fn every_kind_of_change_is_whole_or_absent() {
    let before = [Change::Create(0), Change::AddVersion(0, true)];
    for last in [
        Change::Create(1),
        Change::AddVersion(0, true),
        Change::SetDefault(0, 0),
        Change::SetMode(0, false),
        Change::DeleteVersion(0, 0),
        Change::Delete(0),
    ] {
        wait(stop_everywhere(&before, &last));
    }
}

/// A disk that fails may fail again when it is asked what it has.
#[test]
fn a_skill_whose_entry_cannot_be_read_after_an_error_is_still_served() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let store = FolderStore::open(work.path()).unwrap().store;
        let made = store.create(&owner(), None, draft("a", "x")).await.unwrap();
        drop(store);
        let entry = work.path().join("skills").join(&made.id).join("skill.json");
        let written = std::fs::read(&entry).unwrap();
        let tampered = entry.clone();
        let fails = Arc::new(AtomicUsize::new(0));
        let failing = Arc::clone(&fails);
        let disk = Box::new(FailingDisk(move |_| {
            if failing.load(Ordering::SeqCst) == 0 {
                return Fate::Done;
            }
            std::fs::write(&tampered, "{").unwrap();
            Fate::Failed
        }));
        let store = FolderStore::open_on(work.path(), disk).unwrap().store;
        fails.store(1, Ordering::SeqCst);
        let failed = store.set_mode(&owner(), &made.id, Mode::Off).await;
        assert!(matches!(failed, Err(StoreError::Failed(_))), "{failed:?}");
        assert_eq!(store.get(&owner(), &made.id).await.unwrap(), made);
        assert_eq!(store.list(&owner(), &ALL).await.unwrap().items.len(), 1);
        // It can be read again.
        std::fs::write(&entry, written).unwrap();
        fails.store(0, Ordering::SeqCst);
        let changed = store.set_mode(&owner(), &made.id, Mode::Off).await.unwrap();
        assert_eq!(changed.mode, Some(Mode::Off));
    });
}

#[test]
fn a_folder_has_one_writer_and_strangers_see_nothing() {
    let work = tempfile::tempdir().unwrap();
    let first = FolderStore::open(work.path()).unwrap();
    let refused = FolderStore::open(work.path()).unwrap_err();
    assert!(
        refused.to_string().contains("another knack uses this folder"),
        "{refused}"
    );
    let (store, stranger) = (first.store, Owner::from([2; 32]));
    wait(async {
        let entry = store.create(&owner(), None, draft("a", "x")).await.unwrap();
        let id = entry.id.as_str();
        for outcome in [
            store.get(&stranger, id).await,
            store.delete(&stranger, id).await,
            store.add_version(&stranger, id, draft("a", "y"), true).await,
            store.set_default(&stranger, id, 1).await,
            store.set_mode(&stranger, id, Mode::On).await,
            store.delete_version(&stranger, id, 1).await,
            store.get(&stranger, "skill_knack_none").await,
        ] {
            assert!(matches!(outcome, Err(StoreError::NotFound)), "{outcome:?}");
        }
        assert!(matches!(
            store.content(&stranger, id, 1).await,
            Err(StoreError::NotFound)
        ));
        assert_eq!(store.list(&stranger, &ALL).await.unwrap().items, []);
        let taken = store.create(&owner(), None, draft("a", "y")).await.unwrap_err();
        assert!(matches!(taken, StoreError::NameTaken { .. }));
        store.create(&stranger, None, draft("a", "z")).await.unwrap();
    });
    drop(store);
    let again = FolderStore::open(work.path()).unwrap();
    assert_eq!(again.secret, first.secret, "callers are the same after a restart");
}
