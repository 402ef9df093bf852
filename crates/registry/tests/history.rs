//! The history of executions: whole lines after any end, bounds, who sees what, and reading beside the writer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disk::{DiskStep, FailingDisk, Fate};
use futures::FutureExt as _;
use knack_registry::fixture::{flushed, now, wait};
use knack_registry::{
    Disk, ExecutedSkill, Execution, ExecutionQuery, FolderHistory, History, HistorySettings, Owner, Status, read_folder,
};
use knack_skill::config::ConfigParam;
use knack_skill::model::{SkillFile, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides, load_with};
use serde_json::{Value, json};

#[path = "../../../tests/support/disk.rs"]
mod disk;

const ALL: ExecutionQuery = ExecutionQuery {
    skill: None,
    status: None,
    skip: 0,
    limit: 100,
};

fn owner() -> Owner {
    Owner::from([1; 32])
}

fn quiet(_: &str) {}

fn execution(id: &str, status: Status) -> Execution {
    Execution {
        id: id.to_owned(),
        caller: owner(),
        skill: Some(ExecutedSkill {
            id: "skill_knack_1".to_owned(),
            name: "echo".to_owned(),
            version: Some("1.0.0".to_owned()),
            digest: "d".to_owned(),
            asks_for_values: false,
        }),
        tool: "echo__run".to_owned(),
        session: None,
        request: "r".to_owned(),
        input: json!({"text": id}),
        output: Value::Null,
        truncated: false,
        status,
        error: None,
        duration_ms: status.has_ended().then_some(5),
        created: now(),
        withdrawn: false,
        fingerprint: None,
    }
}

fn open(root: &Path) -> FolderHistory {
    let opened = FolderHistory::open(root, HistorySettings::of_days(30), quiet).unwrap();
    assert_eq!(opened.broken, 0);
    opened.history
}

async fn all(history: &FolderHistory) -> Vec<(String, Status)> {
    let found = history.find(&owner(), &ALL).await.unwrap();
    found
        .items
        .into_iter()
        .map(|execution| (execution.id, execution.status))
        .collect()
}

/// The bytes of all files.
fn lines(root: &Path) -> Vec<u8> {
    let mut paths: Vec<_> = std::fs::read_dir(root.join("executions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn what_was_run_is_there_after_a_restart_and_what_was_running_is_an_error() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let history = open(work.path());
        for (id, statuses) in [
            ("a", &[Status::Pending, Status::Running, Status::Success][..]),
            ("b", &[Status::Pending, Status::Timeout]),
            ("c", &[Status::Pending, Status::Running]),
            ("d", &[Status::Pending]),
        ] {
            for status in statuses {
                history.note(execution(id, *status));
            }
        }
        // At once, whether it is on the disk or not.
        let expected = [Status::Pending, Status::Running, Status::Timeout, Status::Success];
        let ids = ["d", "c", "b", "a"].map(str::to_owned);
        let expected: Vec<_> = ids.clone().into_iter().zip(expected).collect();
        assert_eq!(all(&history).await, expected);
        flushed(&history).await;
        assert_eq!(all(&history).await, expected);
        // Another process reads meanwhile.
        let read = read_folder(work.path()).unwrap();
        assert_eq!((read.executions.len(), read.executions[2].status), (4, Status::Running));
        drop(history);
        let read = read_folder(work.path()).unwrap();
        assert_eq!(read.executions[2].status, Status::Error, "its process is gone");
        let history = open(work.path());
        let expected = [Status::Error, Status::Error, Status::Timeout, Status::Success];
        assert_eq!(all(&history).await, ids.into_iter().zip(expected).collect::<Vec<_>>());
        let lost = history.get(&owner(), "c").await.unwrap().unwrap();
        assert!(lost.error.unwrap().contains("process that ran it ended"));
        assert_eq!(lost.input, json!({"text": "c"}));
        // Others see nothing of it.
        let stranger = Owner::from([2; 32]);
        assert_eq!(history.get(&stranger, "a").await.unwrap(), None);
        assert_eq!(history.find(&stranger, &ALL).await.unwrap().total, 0);
    });
    for path in ["executions", "executions/00000001.jsonl", "executions/writer"] {
        let mode = std::fs::metadata(work.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path} is read by its user only");
    }
}

#[test]
fn pages_and_filters_have_the_newest_first() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let history = open(work.path());
        for number in 0..5 {
            let status = if number == 2 { Status::Error } else { Status::Success };
            let mut one = execution(&format!("{number}"), status);
            if number == 4 {
                one.skill = None;
            }
            history.note(one);
        }
        let find = async |sought: ExecutionQuery| {
            let found = history.find(&owner(), &sought).await.unwrap();
            let ids: Vec<String> = found.items.into_iter().map(|one| one.id).collect();
            (ids.join(" "), found.total)
        };
        let part = |skip, limit| ExecutionQuery { skip, limit, ..ALL };
        assert_eq!(find(part(0, 2)).await, ("4 3".to_owned(), 5));
        assert_eq!(find(part(4, 2)).await, ("0".to_owned(), 5));
        assert_eq!(find(part(9, 2)).await, (String::new(), 5));
        for skill in ["echo", "skill_knack_1"] {
            let skill = Some(skill.to_owned());
            assert_eq!(
                find(ExecutionQuery { skill, ..part(0, 2) }).await,
                ("3 2".to_owned(), 4)
            );
        }
        // As an install wrote the name.
        let skill = Some("Echo!".to_owned());
        assert_eq!(find(ExecutionQuery { skill, ..ALL }).await.1, 4);
        let skill = Some("日本".to_owned());
        assert_eq!(find(ExecutionQuery { skill, ..ALL }).await.1, 0);
        let status = Some(Status::Error);
        assert_eq!(find(ExecutionQuery { status, ..ALL }).await, ("2".to_owned(), 1));
    });
}

#[test]
fn inputs_outputs_and_errors_are_bounded() {
    let long = "é".repeat(100_000);
    let bounded = execution("a", Status::Error)
        .with_input(&json!({"text": long}).to_string())
        .with_output(&long)
        .with_error(&long);
    assert!(bounded.truncated);
    let length = |value: &Value| value.as_str().unwrap().len();
    assert_eq!(
        (length(&bounded.input), length(&bounded.output)),
        ((16 << 10) - 1, 32 << 10)
    );
    assert_eq!(bounded.error.unwrap().len(), 4 << 10);
    let whole = execution("a", Status::Success)
        .with_input(r#"{"a": 1}"#)
        .with_output("{\"b\": 2}\n");
    assert_eq!(
        (whole.input, whole.output, whole.truncated),
        (json!({"a": 1}), json!({"b": 2}), false)
    );
    assert_eq!(execution("a", Status::Success).with_output("text\n").output, "text");
}

#[test]
fn age_bytes_and_count_are_bounded() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let settings = HistorySettings {
            most: 3,
            ..HistorySettings::of_days(30)
        };
        let history = FolderHistory::open(work.path(), settings, quiet).unwrap().history;
        let mut old = execution("old", Status::Success);
        old.created -= 31 * 24 * 3_600 * 1_000_000;
        history.note(old);
        for id in ["a", "b", "c", "d"] {
            history.note(execution(id, Status::Success));
        }
        let ids: Vec<String> = all(&history).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["d", "c", "b"]);
    });
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let settings = HistorySettings {
            most_bytes: 8 << 20,
            ..HistorySettings::of_days(30)
        };
        let history = FolderHistory::open(work.path(), settings, quiet).unwrap().history;
        let text = "x".repeat(30_000);
        for number in 0..500 {
            history.note(execution(&format!("{number:03}"), Status::Success).with_output(&text));
            if number % 50 == 0 {
                flushed(&history).await;
            }
        }
        flushed(&history).await;
        assert_eq!(history.dropped(), 0);
        let bytes = lines(work.path()).len();
        assert!((2 << 20..=8 << 20).contains(&bytes), "{bytes}");
        let found = history.find(&owner(), &ALL).await.unwrap();
        assert_eq!(found.items[0].id, "499");
        assert!((60..250).contains(&found.total), "{}", found.total);
        assert_eq!(history.get(&owner(), "000").await.unwrap(), None);
    });
}

/// A disk that waits as long as it is held, and stops within the last of so many changes of a file.
#[expect(
    clippy::disallowed_methods,
    reason = "a disk that waits holds the thread that writes"
)]
fn slow(left: usize, held: Arc<AtomicBool>) -> Box<dyn Disk> {
    let left = AtomicUsize::new(left);
    Box::new(FailingDisk(move |step| {
        if !matches!(step, DiskStep::Append | DiskStep::Cut) {
            return Fate::Done;
        }
        while held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match left.load(Ordering::SeqCst) {
            0 => Fate::Failed,
            now => {
                left.store(now - 1, Ordering::SeqCst);
                if now == 1 { Fate::Half } else { Fate::Done }
            }
        }
    }))
}

#[test]
fn after_any_end_there_are_whole_lines_only_and_what_was_confirmed() {
    for stopped_at in 1..8 {
        let work = tempfile::tempdir().unwrap();
        wait(async {
            let disk = slow(stopped_at, Arc::default());
            let opened = FolderHistory::open_on(work.path(), HistorySettings::of_days(30), quiet, disk);
            let history = opened.unwrap().history;
            let mut confirmed = Vec::new();
            for id in ["a", "b", "c", "d", "e"] {
                history.note(execution(id, Status::Success));
                flushed(&history).await;
                if history.dropped() == 0 {
                    confirmed.insert(0, id.to_owned());
                }
            }
            assert_eq!(confirmed.len(), 5.min(stopped_at - 1), "stopped at {stopped_at}");
            // What was dropped is listed as long as the process is there, without what was read and written.
            assert_eq!(all(&history).await.len(), 5);
            drop(history);
            let read = read_folder(work.path()).unwrap();
            let read: Vec<String> = read.executions.into_iter().rev().map(|one| one.id).collect();
            assert_eq!(read, confirmed, "beside a torn line");
            // Stopped again while it is mended.
            let disk = slow(1, Arc::default());
            let _ = FolderHistory::open_on(work.path(), HistorySettings::of_days(30), quiet, disk);
            let history = open(work.path());
            let ids: Vec<String> = all(&history).await.into_iter().map(|(id, _)| id).collect();
            assert_eq!(ids, confirmed);
            history.note(execution("f", Status::Success));
            flushed(&history).await;
            assert!(lines(work.path()).ends_with(b"\n"));
            drop(history);
            assert_eq!(all(&open(work.path())).await.len(), confirmed.len() + 1);
        });
    }
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_disk_that_waits_delays_nothing_and_what_is_dropped_is_counted_and_reported() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let held = Arc::new(AtomicBool::new(true));
        let disk = slow(usize::MAX, Arc::clone(&held));
        let tell = |text: &str| TOLD.lock().unwrap().push(text.to_owned());
        let opened = FolderHistory::open_on(work.path(), HistorySettings::of_days(30), tell, disk);
        let history = opened.unwrap().history;
        let began = std::time::Instant::now();
        for number in 0..3_000 {
            history.note(execution(&format!("{number:04}"), Status::Success));
        }
        let took = began.elapsed();
        // The disk waits until it is let go, below.
        assert!(took < Duration::from_mins(1), "{took:?}");
        let dropped = history.dropped();
        assert!((1_000..3_000).contains(&dropped), "{dropped}");
        let found = history.find(&owner(), &ALL).await.unwrap();
        assert_eq!((found.total, found.items[0].id.as_str()), (3_000, "2999"));
        assert!(found.items[0].truncated && found.items[0].input.is_null());
        held.store(false, Ordering::SeqCst);
        flushed(&history).await;
        flushed(&history).await;
        let message = TOLD.lock().unwrap().join("\n");
        assert!(
            message.contains(&format!("{dropped} execution records are missing")),
            "{message}"
        );
        assert_eq!(
            read_folder(work.path()).unwrap().executions.len() as u64,
            3_000 - dropped
        );
    });
}

/// Gateways give up on a volume that hangs, and report again.
#[test]
fn who_waits_for_a_disk_that_hangs_takes_no_thread() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let held = Arc::new(AtomicBool::new(true));
        let disk = slow(usize::MAX, Arc::clone(&held));
        let opened = FolderHistory::open_on(work.path(), HistorySettings::of_days(30), quiet, disk);
        let history = opened.unwrap().history;
        history.note(execution("a", Status::Success));
        // More than tokio has threads for.
        for _ in 0..600 {
            assert_eq!(history.flush().now_or_never(), None);
        }
        // Less than one flush waits.
        let elsewhere = tokio::time::timeout(Duration::from_secs(3), tokio::task::spawn_blocking(|| ()));
        elsewhere.await.unwrap().unwrap();
        held.store(false, Ordering::SeqCst);
        flushed(&history).await;
    });
}

#[test]
fn a_history_has_one_writer_and_readers_do_not_keep_it_out() {
    let work = tempfile::tempdir().unwrap();
    let history = open(work.path());
    let refused = FolderHistory::open(work.path(), HistorySettings::of_days(30), quiet).unwrap_err();
    assert!(
        refused.to_string().contains("another process writes the history"),
        "{refused}"
    );
    drop(history);
    let ended = Arc::new(AtomicBool::new(false));
    let reading = {
        let (ended, root) = (Arc::clone(&ended), work.path().to_owned());
        std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                read_folder(&root).unwrap();
            }
        })
    };
    for _ in 0..20 {
        wait(async {
            let history = open(work.path());
            history.note(execution("a", Status::Success));
            flushed(&history).await;
        });
    }
    ended.store(true, Ordering::SeqCst);
    reading.join().unwrap();
}

#[test]
fn an_account_reports_its_own_runs_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let client = |byte: u8| Owner::from([byte; 32]);
    let reported = |id: &str, client: Owner| Execution {
        caller: client,
        ..execution(id, Status::Success)
    };
    assert!(history.take(("team", "app"), reported("a", client(1))));
    assert!(history.take(("team", "app"), reported("b", client(2))));
    assert!(history.take(("team", "app-2"), reported("c", client(1))));
    // In the place of another account's, and what no gateway makes.
    assert!(!history.take(("other", "app"), reported("a", client(1))));
    assert!(!history.take(("team", "app"), reported("", client(1))));
    assert!(!history.take(("team", "app"), reported("d", Owner::account("team", "app-2", None))));
    let large = Execution {
        tool: "x".repeat(256 << 10),
        ..reported("d", client(1))
    };
    assert!(!history.take(("team", "app"), large));
    // A time that cannot be is the time of the report: it would stay longer than others.
    let ahead = Execution {
        created: i64::MAX / 2,
        ..reported("e", client(2))
    };
    assert!(history.take(("team", "app"), ahead));
    let one = client(1).to_string();
    for (caller, expected) in [
        (Owner::account("team", "app", None), vec!["a", "b", "e"]),
        (Owner::account("team", "app", Some(&one)), vec!["a"]),
        (Owner::account("team", "app-2", None), vec!["c"]),
        (Owner::account("team", "ap", None), vec![]),
        (Owner::namespace("team"), vec![]),
        (client(1), vec![]),
    ] {
        let found = wait(history.find(&caller, &ALL)).unwrap();
        let mut ids: Vec<&str> = found.items.iter().map(|execution| execution.id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, expected, "{caller:?}");
        assert!(
            found.items.iter().all(|execution| execution.created <= now()),
            "{found:?}"
        );
        let own = wait(history.get(&caller, "a")).unwrap();
        assert_eq!(own.is_some(), expected.contains(&"a"), "{caller:?}");
        assert!(own.is_none_or(|own| own.shown()["apiKeyId"] == one));
    }
}

#[test]
fn what_a_granted_tool_reads_and_says_can_be_left_out() {
    let kept = Execution {
        output: json!("token-1"),
        ..execution("a", Status::Error).with_error("token-1 is wrong")
    };
    let text = serde_json::to_string(&kept.withheld()).unwrap();
    assert!(!text.contains("token-1") && text.contains("granted values"), "{text}");
}

/// What a report of a gateway keeps of a run depends on it: only the sandbox knows the values.
#[test]
fn a_skill_asks_for_values_by_its_environment_or_by_the_configuration_of_a_tool() {
    let loaded = |env: &str, config: Vec<ConfigParam>| {
        let text = format!(
            "---\nname: s\ndescription: d\n{env}tools:\n- name: look\n  description: d\n  command: [python3, look.py]\n---\nx"
        );
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let input = LoadInput {
            id: SkillRef {
                namespace: "n".to_owned(),
                name: "s".to_owned(),
            },
            files: [("SKILL.md".to_owned(), file)].into(),
            overrides: SpecOverrides::default(),
            profile: Profile::Load,
        };
        let mut skill = load_with(input, None).skill.unwrap();
        skill.tools[0].config = config;
        skill
    };
    for (env, config, asks) in [
        ("", Vec::new(), false),
        ("tool_env: [TOKEN]\n", Vec::new(), true),
        ("", vec![ConfigParam::default()], true),
    ] {
        let skill = loaded(env, config);
        assert_eq!(
            ExecutedSkill::of(&skill).asks_for_values,
            asks,
            "{:?} {:?}",
            skill.env,
            skill.tools
        );
    }
}

/// The deepest JSON that a program can print and that is still read as JSON would be one level too deep inside of a line.
#[test]
fn what_a_program_prints_takes_no_list_down_and_neither_does_a_damaged_line() {
    let work = tempfile::tempdir().unwrap();
    wait(async {
        let history = open(work.path());
        history.note(execution("a", Status::Success));
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        history.note(execution("b", Status::Success).with_output(&deep));
        flushed(&history).await;
        let found = history.find(&owner(), &ALL).await.unwrap().items;
        assert_eq!(found.len(), 2);
        assert_eq!(history.get(&owner(), "b").await.unwrap().unwrap().output, deep);

        let file = work.path().join("executions/00000001.jsonl");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("{\"id\":\"a\"", "{\"id\":#a\"", 1)).unwrap();
        assert_eq!(all(&history).await, [("b".to_owned(), Status::Success)]);
        assert_eq!(history.get(&owner(), "a").await.unwrap(), None);
    });
}
