//! Claims of runs: of all that ask, one runs it, over any end of the process that keeps them, and nobody runs it again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::{DiskStep, FailingDisk, Fate};
use knack_registry::fixture::{flushed, wait};
use knack_registry::{
    ClaimFailure, ClaimOutcome, Execution, ExecutionQuery, FolderHistory, History as _, HistorySettings, Owner, Status,
    read_folder,
};
use serde_json::{Value, json};

#[path = "../../../tests/support/disk.rs"]
mod disk;

/// Two accounts.
const APP: (&str, &str) = ("team", "app");
const OTHER: (&str, &str) = ("team", "other");

/// A run that a gateway asks for, by its request.
fn asked(request: &str, status: Status) -> Execution {
    let execution = json!({
        "id": "an-id", "caller": "11".repeat(32), "skill": null, "tool": "t", "request": request, "input": {"text": "a"},
        "output": null, "status": status, "error": null, "durationMs": null, "created": 0,
    });
    serde_json::from_value(execution).unwrap()
}

fn open(root: &Path) -> FolderHistory {
    FolderHistory::open(root, HistorySettings::of_days(30), |_| ())
        .unwrap()
        .history
}

/// The outcome of a claim, in a word.
async fn claim(history: &FolderHistory, account: (&str, &str), request: &str) -> String {
    match history.claim(account, asked(request, Status::Pending)).await {
        Ok(ClaimOutcome::Run(run)) => format!("run as {}", run.request),
        Ok(ClaimOutcome::Known(known)) => known.status.word().to_owned(),
        Err(ClaimFailure::Invalid) => "invalid".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// An account claims by a request, and gets this outcome.
    Claim((&'static str, &'static str), &'static str, &'static str),
    /// Whoever runs it reports this, or withdraws the claim; whether it is taken.
    Report(&'static str, Status, bool),
    Withdraw(&'static str, bool),
    /// The process ends and starts again.
    Again,
}

use Step::{Again, Claim, Report, Withdraw};

#[test]
fn of_all_that_claim_a_run_one_has_it_until_its_end_is_known() {
    for (contract, steps) in [
        (
            "the first runs it, and gets the same answer again; another gets its progress",
            &[
                Claim(APP, "a", "run as a"),
                Claim(APP, "a", "run as a"),
                Claim(APP, "b", "pending"),
                Report("a", Status::Success, true),
                Claim(APP, "b", "success"),
                Claim(APP, "a", "success"),
                Again,
                Claim(APP, "b", "success"),
            ][..],
        ),
        (
            "one that took too long is known as that",
            &[
                Claim(APP, "a", "run as a"),
                Report("a", Status::Timeout, true),
                Claim(APP, "b", "timeout"),
            ],
        ),
        (
            "what was not begun is claimed anew, also after a start",
            &[
                Claim(APP, "a", "run as a"),
                Withdraw("a", true),
                Claim(APP, "b", "run as b"),
                Withdraw("b", true),
                Again,
                Claim(APP, "c", "run as c"),
            ],
        ),
        (
            "only who has a claim withdraws it, and only while it has not ended",
            &[
                Claim(APP, "a", "run as a"),
                Withdraw("b", false),
                Claim(APP, "b", "pending"),
                Report("a", Status::Error, true),
                Withdraw("a", false),
                Claim(APP, "b", "error"),
            ],
        ),
        (
            "what was claimed when the registry ended is lost, until its end comes",
            &[
                Claim(APP, "a", "run as a"),
                Again,
                Claim(APP, "b", "error"),
                Claim(APP, "a", "error"),
                Report("a", Status::Success, true),
                Claim(APP, "b", "success"),
            ],
        ),
        (
            "another account has nothing of it",
            &[Claim(APP, "a", "run as a"), Claim(OTHER, "b", "invalid")],
        ),
        ("a claim says which request it is", &[Claim(APP, "", "invalid")]),
    ] {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let mut history = Some(open(work.path()));
            for step in steps {
                let kept = history.as_ref().unwrap();
                match *step {
                    Claim(account, request, expected) => {
                        assert_eq!(claim(kept, account, request).await, expected, "{contract}: {step:?}");
                    }
                    Report(request, status, expected) => {
                        let is_taken = kept.take(APP, asked(request, status));
                        assert_eq!(is_taken, expected, "{contract}: {step:?}");
                    }
                    Withdraw(request, expected) => {
                        let withdrawn = Execution {
                            withdrawn: true,
                            ..asked(request, Status::Pending)
                        };
                        assert_eq!(kept.take(APP, withdrawn), expected, "{contract}: {step:?}");
                    }
                    Again => {
                        drop(history.take());
                        history = Some(open(work.path()));
                    }
                }
            }
        });
    }
}

#[test]
fn a_claim_has_the_time_and_the_account_of_the_registry_and_is_on_the_disk_when_it_is_answered() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let history = open(work.path());
        let ClaimOutcome::Run(first) = history.claim(APP, asked("a", Status::Pending)).await.unwrap() else {
            panic!("it was claimed before");
        };
        assert_eq!(first.caller, Owner::account("team", "app", Some(&"11".repeat(32))));
        assert!(first.created > 0, "its time is not the gateway's");
        let read = read_folder(work.path()).unwrap();
        assert_eq!(read.executions, [*first.clone()]);
        let ClaimOutcome::Run(again) = history.claim(APP, asked("a", Status::Pending)).await.unwrap() else {
            panic!("another one has it");
        };
        assert_eq!(again, first, "the id of its run is the same");
        let withdrawn = Execution {
            withdrawn: true,
            ..asked("a", Status::Pending)
        };
        assert!(history.take(APP, withdrawn));
        flushed(&history).await;
        assert_eq!(read_folder(work.path()).unwrap().executions, [], "nothing was run");
    });
}

#[test]
fn of_many_at_once_one_runs_it() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let history = open(work.path());
        let names: Vec<String> = (0..32).map(|number| format!("r{number}")).collect();
        let claims = names.iter().map(|name| claim(&history, APP, name));
        let outcomes = futures::future::join_all(claims).await;
        let runs = outcomes.iter().filter(|word| word.starts_with("run")).count();
        let others = outcomes.iter().filter(|word| *word == "pending").count();
        assert_eq!((runs, others), (1, 31), "{outcomes:?}");
    });
}

#[test]
fn what_the_disk_does_not_take_has_no_owner_and_is_claimed_later() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let is_full = Arc::new(AtomicBool::new(false));
        let full = Arc::clone(&is_full);
        let disk = FailingDisk(move |step| match step {
            DiskStep::Append if full.load(Ordering::SeqCst) => Fate::Failed,
            _ => Fate::Done,
        });
        let settings = HistorySettings::of_days(30);
        let opened = FolderHistory::open_on(work.path(), settings, |_| (), Box::new(disk));
        let history = opened.unwrap().history;
        is_full.store(true, Ordering::SeqCst);
        assert_eq!(
            claim(&history, APP, "a").await,
            "the claim could not be written to disk"
        );
        is_full.store(false, Ordering::SeqCst);
        assert_eq!(claim(&history, APP, "b").await, "run as b");
    });
}

#[test]
fn a_claim_and_its_answer_are_read_by_the_other_side() {
    for (claimed, member) in [
        (ClaimOutcome::Run(Box::new(asked("a", Status::Pending))), "run"),
        (ClaimOutcome::Known(Box::new(asked("a", Status::Success))), "known"),
    ] {
        let sent: Value = serde_json::to_value(&claimed).unwrap();
        assert!(
            sent[member].is_object() && sent[member].get("withdrawn").is_none(),
            "{sent}"
        );
        assert_eq!(serde_json::from_value::<ClaimOutcome>(sent).unwrap(), claimed);
    }
}

/// What another namespace reports of so many runs, each with an output of so many bytes.
async fn report(history: &FolderHistory, namespace: &str, runs: usize, bytes: usize) {
    let output = "x".repeat(bytes);
    for number in 0..runs {
        let run = Execution {
            id: format!("{namespace}-{number}"),
            ..asked("r", Status::Success).with_output(&output)
        };
        assert!(history.take((namespace, "gateway"), run));
        if number % 50 == 0 {
            flushed(history).await;
        }
    }
    flushed(history).await;
}

#[test]
fn no_run_that_others_report_pushes_a_claim_out() {
    for (bound, settings, runs, bytes) in [
        (
            "executions",
            HistorySettings {
                most: 10,
                ..HistorySettings::of_days(30)
            },
            100,
            0,
        ),
        ("bytes", HistorySettings::of_days(30).within(8 << 20), 350, 30_000),
    ] {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let open = || FolderHistory::open(work.path(), settings, |_| ()).unwrap().history;
            let history = open();
            assert_eq!(claim(&history, APP, "a").await, "run as a");
            report(&history, "noisy", runs, bytes).await;
            assert_eq!(history.dropped(), 0);
            assert_eq!(claim(&history, APP, "b").await, "pending", "{bound}");
            assert_eq!(claim(&history, APP, "a").await, "run as a", "{bound}");
            // The registry ends before the run does.
            drop(history);
            let history = open();
            assert_eq!(claim(&history, APP, "b").await, "error", "{bound}");
            assert!(history.take(APP, asked("a", Status::Success)));
            report(&history, "noisier", runs, bytes).await;
            assert_eq!(
                claim(&history, APP, "b").await,
                "success",
                "{bound}: its namespace has one"
            );
            drop(history);
            assert_eq!(claim(&open(), APP, "b").await, "success", "{bound}");
        });
    }
}

#[test]
fn who_has_less_than_an_equal_part_of_the_history_loses_nothing_to_others() {
    for (bound, settings, runs, bytes) in [
        (
            "executions",
            HistorySettings {
                most: 60,
                ..HistorySettings::of_days(30)
            },
            100,
            0,
        ),
        ("bytes", HistorySettings::of_days(30).within(8 << 20), 150, 30_000),
    ] {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let history = FolderHistory::open(work.path(), settings, |_| ()).unwrap().history;
            report(&history, "quiet", 20, bytes).await;
            for namespace in ["noisy", "noisier", "noisy", "noisier"] {
                report(&history, namespace, runs, bytes).await;
            }
            let kept = async |namespace: &str| {
                let caller = Owner::account(namespace, "gateway", None);
                let all = ExecutionQuery {
                    skill: None,
                    status: None,
                    skip: 0,
                    limit: 1_000,
                };
                let found = history.find(&caller, &all).await.unwrap();
                assert_eq!(
                    found.items.len(),
                    found.total,
                    "each can be read, wherever it was moved"
                );
                found.total
            };
            assert_eq!(kept("quiet").await, 20, "{bound}");
            let (one, other) = (kept("noisy").await, kept("noisier").await);
            assert!(one >= 20 && one.abs_diff(other) <= 1, "{bound}: {one} {other}");
            let folder = std::fs::read_dir(work.path().join("executions")).unwrap();
            let bytes: u64 = folder.map(|file| file.unwrap().metadata().unwrap().len()).sum();
            assert!(bytes <= settings.most_bytes, "{bytes}");
        });
    }
}

#[test]
fn claims_that_have_not_ended_are_bounded_and_one_namespace_leaves_some_for_others() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let settings = HistorySettings {
            most_claims: 8,
            ..HistorySettings::of_days(30)
        };
        let history = FolderHistory::open(work.path(), settings, |_| ()).unwrap().history;
        let claim = async |namespace: &'static str, number: usize| {
            let one = Execution {
                id: format!("{namespace}-{number}"),
                ..asked("a", Status::Pending)
            };
            history.claim((namespace, "gateway"), one).await
        };
        let mut taken = Vec::new();
        for namespace in ["one", "two", "three"] {
            let mut own = 0;
            while claim(namespace, own).await.is_ok() {
                own += 1;
            }
            taken.push(own);
        }
        assert_eq!(taken, [4, 2, 1]);
        let refused = claim("one", 4).await.unwrap_err();
        assert!(matches!(refused, ClaimFailure::TooMany), "{refused}");
        assert!(claim("one", 0).await.is_ok(), "what runs is claimed again");
        for id in ["one-0", "one-1"] {
            let ended = Execution {
                id: id.to_owned(),
                ..asked("a", Status::Success)
            };
            assert!(history.take(("one", "gateway"), ended));
        }
        assert!(claim("one", 4).await.is_ok(), "two have ended");
    });
}

/// What is kept of a file that is removed is copied first: at no step of that is a claim on no file.
#[test]
fn a_claim_outlives_a_disk_that_stops_while_an_old_file_is_removed() {
    const MOST_BYTES: u64 = 8 << 20;
    const FILE_BYTES: u64 = 4 << 20;
    let settings = HistorySettings::of_days(30).within(MOST_BYTES);
    // A file is removed as soon as there is no room for one more; the append before it is the copy.
    for (stopped, fate) in [
        (DiskStep::Append, Fate::Half),
        (DiskStep::Append, Fate::Failed),
        (DiskStep::Remove, Fate::Half),
        (DiskStep::Remove, Fate::Failed),
    ] {
        let work = tempfile::tempdir().unwrap();
        let (folder, has_stopped) = (work.path().to_owned(), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&has_stopped);
        let disk = FailingDisk(move |step| {
            if seen.load(Ordering::SeqCst) {
                return Fate::Failed;
            }
            if step == stopped && size_of(&folder) + FILE_BYTES > MOST_BYTES {
                seen.store(true, Ordering::SeqCst);
                return fate;
            }
            Fate::Done
        });
        wait(async {
            let opened = FolderHistory::open_on(work.path(), settings, |_| (), Box::new(disk));
            let history = opened.unwrap().history;
            assert_eq!(claim(&history, APP, "a").await, "run as a");
            for _ in 0..12 {
                if !has_stopped.load(Ordering::SeqCst) {
                    report(&history, "noisy", 40, 30_000).await;
                }
            }
            drop(history);
            assert!(has_stopped.load(Ordering::SeqCst), "{stopped:?} was not reached");
            assert_eq!(
                claim(&open(work.path()), APP, "b").await,
                "error",
                "{stopped:?}: {fate:?}"
            );
        });
    }
}

/// The bytes of all files below a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size_of(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
