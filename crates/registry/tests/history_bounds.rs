//! Bounds of a history: whose executions it drops at a bound, and what it does when its volume is full before that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use knack_registry::fixture::{flushed, now, wait};
use knack_registry::{
    Execution, ExecutionQuery, FolderHistory, History as _, HistorySettings, Owner, Status, read_folder,
};
use serde_json::json;
use volume::{Volume, used};

#[path = "../../../tests/support/volume.rs"]
mod volume;

const ALL: ExecutionQuery = ExecutionQuery {
    skill: None,
    status: None,
    skip: 0,
    limit: 100,
};

fn client(byte: u8) -> Owner {
    Owner::from([byte; 32])
}

/// A client of a gateway, as the registry knows it.
fn of_gateway(byte: u8) -> Owner {
    Owner::account("team", "app", Some(&client(byte).text()))
}

fn execution(id: &str, caller: &Owner, status: Status, bytes: usize) -> Execution {
    let execution = json!({
        "id": id, "caller": caller, "skill": null, "tool": "t", "request": "r", "input": null, "output": "x".repeat(bytes),
        "status": status, "error": null, "durationMs": null, "created": now(),
    });
    serde_json::from_value(execution).unwrap()
}

async fn total(history: &FolderHistory, caller: &Owner) -> usize {
    history.find(caller, &ALL).await.unwrap().total
}

#[test]
fn at_a_bound_a_client_loses_to_others_of_its_gateway_only_what_is_more_than_they_have() {
    let work = tempfile::tempdir().unwrap();
    let settings = HistorySettings {
        most: 30,
        ..HistorySettings::of_days(30)
    };
    wait(async {
        let history = FolderHistory::open(work.path(), settings, |_| ()).unwrap().history;
        let report = |account: (&str, &str), id: &str, byte: u8| {
            assert!(history.take(account, execution(id, &client(byte), Status::Success, 10)));
        };
        for number in 0..5 {
            report(("team", "app"), &format!("small {number}"), 1);
            report(("other", "app"), &format!("elsewhere {number}"), 1);
        }
        for number in 0..200 {
            report(("team", "app"), &format!("large {number}"), 2);
            report(("team", "app-2"), &format!("beside {number}"), 2);
        }
        assert_eq!(total(&history, &of_gateway(1)).await, 5);
        assert_eq!(total(&history, &Owner::account("other", "app", None)).await, 5);
        // The rest is for those who have more, in equal parts.
        assert_eq!(total(&history, &of_gateway(2)).await, 10);
        assert_eq!(total(&history, &Owner::account("team", "app-2", None)).await, 10);
        // What the account sees is all of its clients, the newest first.
        let seen = history.find(&Owner::account("team", "app", None), &ALL).await.unwrap();
        let ids: Vec<&str> = seen.items.iter().map(|one| one.id.as_str()).collect();
        assert_eq!((seen.total, ids[0], ids[14]), (15, "large 199", "small 0"));
    });
}

#[test]
fn a_run_whose_gateway_learns_its_secret_meanwhile_is_its_clients() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let opened = FolderHistory::open(work.path(), HistorySettings::of_days(30), |_| ()).unwrap();
        let history = opened.history;
        assert!(history.take(("team", "app"), execution("a", &client(1), Status::Pending, 1)));
        flushed(&history).await;
        assert!(history.take(("team", "app"), execution("a", &client(2), Status::Success, 1)));
        assert_eq!(total(&history, &of_gateway(1)).await, 0);
        assert_eq!(total(&history, &of_gateway(2)).await, 1);
        flushed(&history).await;
        let found = history.get(&of_gateway(2), "a").await.unwrap().unwrap();
        assert_eq!(found.status, Status::Success);
    });
}

fn on_volume(root: &Path, size: &Arc<AtomicU64>) -> FolderHistory {
    let volume = Volume {
        root: root.to_owned(),
        size: Arc::clone(size),
    };
    let settings = HistorySettings::of_days(30);
    FolderHistory::open_on(root, settings, |_| (), Box::new(volume))
        .unwrap()
        .history
}

/// What a history has, and what the files have.
async fn is_whole(history: &FolderHistory, root: &Path) {
    flushed(history).await;
    let stored = read_folder(root).unwrap();
    assert_eq!(stored.broken, 0);
    let stored: BTreeMap<String, Status> = stored.executions.into_iter().map(|one| (one.id, one.status)).collect();
    for caller in [client(1), client(2)] {
        for one in history.find(&caller, &ALL).await.unwrap().items {
            assert_eq!(stored.get(&one.id), Some(&one.status), "{}", one.id);
        }
    }
}

#[test]
fn a_volume_that_is_full_before_the_bound_keeps_the_newest_and_works_again_when_there_is_room() {
    let work = tempfile::tempdir().unwrap();
    let size = Arc::new(AtomicU64::new(22 << 20));
    wait(async {
        let history = on_volume(work.path(), &size);
        for number in 0..10 {
            history.note(execution(&format!("small {number}"), &client(1), Status::Success, 100));
        }
        let fill = async |history: &FolderHistory, name: &str, count: usize| {
            for number in 0..count {
                let id = format!("{name} {number}");
                history.note(execution(&id, &client(2), Status::Success, 30_000));
                if number % 20 == 0 {
                    flushed(history).await;
                }
            }
            flushed(history).await;
        };
        // Three times what the volume holds.
        fill(&history, "first", 2_000).await;
        assert_eq!(history.dropped(), 0);
        assert_eq!(total(&history, &client(1)).await, 10, "who has little loses nothing");
        let newest = history.find(&client(2), &ALL).await.unwrap();
        assert_eq!(newest.items[0].id, "first 1999");
        assert!((100..700).contains(&newest.total), "{}", newest.total);
        is_whole(&history, work.path()).await;

        // Others take all that is left, while one run has no end: the next process starts, and keeps what there is.
        history.note(execution("running", &client(1), Status::Running, 10));
        flushed(&history).await;
        let kept = total(&history, &client(2)).await;
        drop(history);
        size.store(used(work.path()), Ordering::SeqCst);
        let history = on_volume(work.path(), &size);
        assert_eq!(total(&history, &client(1)).await, 11);
        let lost = history.get(&client(1), "running").await.unwrap().unwrap();
        assert_eq!(lost.status, Status::Error);
        assert!(total(&history, &client(2)).await >= kept / 4);

        size.store(22 << 20, Ordering::SeqCst);
        fill(&history, "second", 1_500).await;
        let newest = history.find(&client(2), &ALL).await.unwrap();
        assert_eq!(newest.items[0].id, "second 1499");
        assert_eq!(total(&history, &client(1)).await, 11);
        drop(history);
        let history = on_volume(work.path(), &size);
        assert_eq!(total(&history, &client(1)).await, 11);
        is_whole(&history, work.path()).await;
    });
}

#[test]
fn what_fits_no_volume_is_dropped_and_counted_and_costs_nothing_that_is_there() {
    let work = tempfile::tempdir().unwrap();
    let size = Arc::new(AtomicU64::new(5 << 20));
    wait(async {
        let history = on_volume(work.path(), &size);
        history.note(execution("kept", &client(1), Status::Success, 100));
        flushed(&history).await;
        size.store(0, Ordering::SeqCst);
        history.note(execution("dropped", &client(1), Status::Success, 100));
        flushed(&history).await;
        assert_eq!((history.dropped(), history.is_refused("dropped")), (1, true));
        size.store(5 << 20, Ordering::SeqCst);
        history.note(execution("later", &client(1), Status::Success, 100));
        flushed(&history).await;
        assert_eq!((history.dropped(), history.is_refused("later")), (1, false));
        let stored: Vec<String> = read_folder(work.path())
            .unwrap()
            .executions
            .into_iter()
            .map(|one| one.id)
            .collect();
        assert_eq!(stored, ["kept", "later"]);
    });
}
