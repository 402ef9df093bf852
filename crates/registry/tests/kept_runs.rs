//! Runs with an idempotency key in one process: their record is on the disk before they begin, so that the next process knows of
//! them, and what never began leaves nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use disk::{DiskStep, FailingDisk, Fate};
use http::{HeaderMap, HeaderValue};
use knack_registry::fixture::wait;
use knack_registry::{
    AdHocRun, ApiCall, ApiRequest, BadArchive, Disk, FolderHistory, FolderStore, HistorySettings, IDEMPOTENCY_KEY,
    OmniRoute, OnProgress, Owner, Progress, Reader, RealDisk, Registry, RunRefusal, Runs, Status, read_folder,
};
use serde_json::{Value, json};

#[path = "../../../tests/support/disk.rs"]
mod disk;

/// How long a slow disk takes for a line: long beside a process that does not wait for it.
const SLOW: Duration = Duration::from_secs(2);

/// What runs tools, and looks at the disk when it is asked to.
#[derive(Debug)]
struct Counted {
    root: PathBuf,
    refuses: AtomicBool,
    runs: AtomicUsize,
    /// States of the executions on the disk when a run began.
    found: std::sync::Mutex<Vec<Status>>,
}

impl Counted {
    fn of(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            refuses: AtomicBool::new(false),
            runs: AtomicUsize::new(0),
            found: std::sync::Mutex::default(),
        }
    }

    fn count(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Runs for Counted {
    fn closed(&self) -> Option<String> {
        None
    }

    async fn run(&self, _: AdHocRun, on_progress: OnProgress) -> Result<Progress, RunRefusal> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(RunRefusal::Arguments("text is missing".to_owned()));
        }
        let on_disk = read_folder(&self.root).unwrap().executions;
        *self.found.lock().unwrap() = on_disk.iter().map(|execution| execution.status).collect();
        self.runs.fetch_add(1, Ordering::SeqCst);
        let ended = Progress {
            status: Status::Success,
            output: Some("ok".to_owned()),
            error: None,
            duration_ms: Some(1),
        };
        on_progress(ended.clone());
        Ok(ended)
    }
}

/// What a process has that starts now.
fn started(root: &Path, disk: Box<dyn Disk>) -> Registry {
    let store = FolderStore::open(root).unwrap().store;
    let history = FolderHistory::open_on(root, HistorySettings::of_days(1), |_| (), disk).unwrap();
    let reader = Reader::new(|_| {
        Err(BadArchive {
            message: "no archives here".to_owned(),
            too_large: false,
        })
    });
    Registry::new(Arc::new(store), &Arc::new(reader)).with_history(Arc::new(history.history))
}

/// A process, and a skill with one tool.
async fn with_skill(root: &Path, disk: Box<dyn Disk>) -> Registry {
    let registry = started(root, disk);
    let skill = json!({"name": "echo", "version": "1.0.0", "description": "d", "schema": {"input": {}, "output": {}},
        "handlerCode": "def handler():\n    return {}\n"});
    let answer = registry
        .answer(
            Some(&owner()),
            ApiCall::OmniRoute(OmniRoute::Install),
            &asked(&skill),
            &[],
        )
        .await;
    assert_eq!(answer.status(), 200, "{:?}", answer.body());
    registry
}

#[expect(
    clippy::disallowed_methods,
    reason = "the thread of the disk waits, as for a slow one"
)]
fn slow() -> impl Disk {
    FailingDisk(|step| {
        if step == DiskStep::Append {
            thread::sleep(SLOW);
        }
        Fate::Done
    })
}

fn owner() -> Owner {
    Owner::from([1; 32])
}

fn asked(body: &Value) -> ApiRequest {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("order-17"));
    ApiRequest {
        query: None,
        headers,
        body: Bytes::from(body.to_string()),
        request_id: "req_1".to_owned(),
    }
}

fn order() -> ApiRequest {
    asked(&json!({"skillName": "echo"}))
}

async fn run(registry: &Registry, runs: &Counted) -> (u16, Value) {
    let answer = registry.execute(Some(&owner()), &order(), &[], runs).await;
    (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap())
}

#[test]
fn a_run_begins_when_its_record_is_on_the_disk_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Counted::of(folder.path());
    wait(async {
        let registry = with_skill(folder.path(), Box::new(slow())).await;
        let (status, answer) = run(&registry, &runs).await;
        assert_eq!((status, &answer["replayed"]), (200, &json!(false)), "{answer}");
        assert_eq!(
            *runs.found.lock().unwrap(),
            [Status::Pending],
            "as a process that is killed now leaves it"
        );
        let (_, again) = run(&registry, &runs).await;
        assert_eq!((&again["replayed"], runs.count()), (&json!(true), 1));
        drop(registry);
        // Also after a restart.
        let registry = started(folder.path(), Box::new(slow()));
        for (input, status) in [(json!({"a": 1}), 409), (json!({}), 200)] {
            let other = asked(&json!({"skillName": "echo", "input": input}));
            let answer = registry.execute(Some(&owner()), &other, &[], &runs).await;
            assert_eq!((answer.status().as_u16(), runs.count()), (status, 1), "{input}");
        }
    });
}

#[test]
fn what_the_disk_refuses_does_not_run() {
    for fate in [Fate::Failed, Fate::Half] {
        let folder = tempfile::tempdir().unwrap();
        let runs = Counted::of(folder.path());
        let fails = Arc::new(AtomicBool::new(true));
        let failing = Arc::clone(&fails);
        let disk = FailingDisk(move |step| {
            if step == DiskStep::Append && failing.load(Ordering::SeqCst) {
                return fate;
            }
            Fate::Done
        });
        wait(async {
            let registry = with_skill(folder.path(), Box::new(disk)).await;
            let (status, answer) = run(&registry, &runs).await;
            assert_eq!((status, runs.count()), (503, 0), "{fate:?}: {answer}");
            assert!(
                answer["error"].as_str().unwrap().contains("nothing was run"),
                "{answer}"
            );
            fails.store(false, Ordering::SeqCst);
            let (status, answer) = run(&registry, &runs).await;
            assert_eq!((status, runs.count()), (200, 1), "{fate:?}: {answer}");
        });
    }
}

/// Wrong arguments, and a client that leaves while the record is on its way to the disk.
#[test]
fn what_never_began_is_as_if_it_had_never_been_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Counted::of(folder.path());
    wait(async {
        let first = with_skill(folder.path(), Box::new(slow())).await;
        runs.refuses.store(true, Ordering::SeqCst);
        assert_eq!(run(&first, &runs).await.0, 400);
        runs.refuses.store(false, Ordering::SeqCst);
        let left = tokio::time::timeout(SLOW / 20, run(&first, &runs)).await;
        assert!(left.is_err(), "{left:?}");
        // What is queued is written, and then read as the next process reads it.
        drop(first);
        assert_eq!(read_folder(folder.path()).unwrap().executions, []);
        let second = started(folder.path(), Box::new(RealDisk));
        let (status, answer) = run(&second, &runs).await;
        assert_eq!((status, runs.count()), (200, 1), "{answer}");
    });
}
