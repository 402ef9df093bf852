//! Files on a disk: what their calls hold, and for how long.

use std::sync::{Mutex, mpsc};

use disk::{DiskStep, FailingDisk, Fate};
use futures::FutureExt as _;

use super::*;

#[path = "../../tests/support/disk.rs"]
#[expect(dead_code, reason = "this disk waits, and never fails")]
mod disk;

fn caller_of(namespace: &str) -> ServiceAccountCaller {
    ServiceAccountCaller {
        namespace: namespace.to_owned(),
        service_account: "app".to_owned(),
        uid: "1".to_owned(),
        username: format!("system:serviceaccount:{namespace}:app"),
        groups: Vec::new(),
        extra: std::collections::BTreeMap::new(),
        expires: u64::MAX,
        acting_for: None,
    }
}

fn asked(op: &serde_json::Value, content: &[u8]) -> Bytes {
    asked_by("0", op, content)
}

fn asked_by(digit: &str, op: &serde_json::Value, content: &[u8]) -> Bytes {
    let line = serde_json::json!({"caller": digit.repeat(64), "op": op}).to_string();
    [line.as_bytes(), b"\n", content].concat().into()
}

#[tokio::test]
async fn a_content_counts_and_has_its_turn_until_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let options = FilesOptions {
        folder: folder.path().join("files"),
        hours: 24,
        most_bytes: 1 << 30,
    };
    let memory = MemoryBudget::new(64 << 20);
    let files = ClusterFiles::open(&options, memory.clone()).unwrap();
    let metrics = Metrics::default();
    let caller = caller_of("team");
    let new = serde_json::json!({"add_file": {"name": "a", "mime": "b/c", "purpose": "user_data", "lasts": null}});
    let size = 4 << 20;
    let (status, answer) = files.answer(&caller, &asked(&new, &vec![b'x'; size]), &metrics).await;
    assert_eq!(status, StatusCode::OK);
    let stored: serde_json::Value = serde_json::from_slice(answer.trim_ascii()).unwrap();
    drop(answer);
    let content = serde_json::json!({"file_content": stored["done"]["file"]["id"]});
    let body = asked(&content, b"");
    let mut stopped = Vec::new();
    for _ in 0..12 {
        let (status, answer) = files.answer(&caller, &body, &metrics).await;
        assert_eq!((status, answer.len() > size), (StatusCode::OK, true));
        stopped.push(answer);
    }
    assert!(memory.held_bytes() >= stopped.len() * size);
    // One client has three quarters of them, and another one the rest.
    let list = |client: &str| asked_by(client, &serde_json::json!({"files": []}), b"");
    for (client, taken) in [("0", CALLS.at_once * 3 / 4), ("1", CALLS.at_once)] {
        while stopped.len() < taken {
            let (status, answer) = files.answer(&caller, &list(client), &metrics).await;
            assert_eq!(status, StatusCode::OK, "{client}");
            stopped.push(answer);
        }
        let (status, _) = files.answer(&caller, &list(client), &metrics).await;
        assert_eq!(
            status,
            StatusCode::TOO_MANY_REQUESTS,
            "permits are held until the answers are sent"
        );
    }
    let (status, _) = files.answer(&caller, &list("2"), &metrics).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "the namespace has all of them");
    let elsewhere = caller_of("other");
    assert_eq!(files.answer(&elsewhere, &list("0"), &metrics).await.0, StatusCode::OK);
    drop(stopped);
    assert_eq!(memory.held_bytes(), 0);
    assert_eq!(files.answer(&caller, &list("0"), &metrics).await.0, StatusCode::OK);
}
/// Gateways give up on a volume that hangs, and their clients ask again.
#[tokio::test]
async fn work_on_a_disk_that_hangs_keeps_what_it_holds_and_takes_few_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (works_again, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    let disk = FailingDisk(move |step| {
        if step == DiskStep::Write {
            // An error: the test lets it go on.
            let _ = hangs.lock().unwrap().recv();
        }
        Fate::Done
    });
    let bounds = Bounds::of_cluster(1 << 30, SignedDuration::from_hours(1));
    let kept = LocalFiles::open_on(Box::new(disk), folder.path(), bounds, Arc::new(jiff::Timestamp::now));
    let files = ClusterFiles::over(Arc::new(kept.unwrap()), MemoryBudget::new(64 << 20));
    let (metrics, bodies) = (Metrics::default(), MemoryBudget::new(1 << 30));
    let new = serde_json::json!({"add_file": {"name": "a", "mime": "b/c", "purpose": "user_data", "lasts": null}});
    let size = 64 << 10;
    // More namespaces than tokio has threads for.
    for namespace in 0..20 {
        let caller = caller_of(&format!("team-{namespace}"));
        for number in 0..CALLS.at_once {
            let client = if number % 2 == 0 { "0" } else { "1" };
            let share = bodies.try_take(size).unwrap();
            let body = until_sent(asked_by(client, &new, &vec![0; size]), share);
            let given_up = files.answer(&caller, &body, &metrics).now_or_never();
            assert!(given_up.is_none(), "{namespace} {number}: {given_up:?}");
        }
    }
    assert_eq!(
        bodies.held_bytes(),
        ON_THREADS_MAX * size,
        "of what is on a thread, and of nothing else"
    );
    let list = asked_by("2", &serde_json::json!({"files": []}), b"");
    let first = caller_of("team-0");
    let answered = files.answer(&first, &list, &metrics).now_or_never();
    assert_eq!(
        answered.map(|(status, _)| status),
        Some(StatusCode::TOO_MANY_REQUESTS),
        "its calls are not done"
    );
    let elsewhere = tokio::task::spawn_blocking(|| ());
    tokio::time::timeout(Duration::from_secs(30), elsewhere)
        .await
        .unwrap()
        .unwrap();

    drop(works_again);
    while bodies.held_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(files.answer(&first, &list, &metrics).await.0, StatusCode::OK);
}
