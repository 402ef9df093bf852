//! The local executor against real programs: what it gives back, and bad input (a hang, floods, bombs, escapes).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside test functions"
)]

#[path = "local_execution/cancelled.rs"]
mod cancelled;
#[path = "local_execution/declared.rs"]
mod declared;
#[path = "support/hydra.rs"]
mod hydra;
#[path = "local_execution/machine_limits.rs"]
mod machine_limits;
#[path = "support/runner.rs"]
mod runner;
#[path = "support/skip.rs"]
mod skip;
#[path = "local_execution/survivors.rs"]
mod survivors;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_execution::interpreter::{CodeUser, Search};
use knack_execution::local::{KernelView, LocalExecutor, LocalSettings};
use knack_execution::{
    DisabledExecutor, ExecutionError, ExecutionRequest, ExecutionResult, ExecutionStatus, Executor, Exit, InputFile,
    Language, Limits, LockReport, Program, SkillMount, StartKind, WorkingDirectory,
};
use knack_skill::fixture::mk_empty_skill;
use knack_skill::model::{ActivationMode, Skill, SkillFile};
use runner::{executor, python};
use skip::skip;
use tokio_util::sync::CancellationToken;

async fn run(executor: &LocalExecutor, request: ExecutionRequest) -> Arc<ExecutionResult> {
    executor.execute(request, CancellationToken::new()).await.unwrap()
}

async fn run_python(source: &str) -> Arc<ExecutionResult> {
    run(&executor(0).await, python("1", source)).await
}

fn timeout(mut request: ExecutionRequest, timeout: Duration) -> ExecutionRequest {
    request.limits.timeout = timeout;
    request
}

fn skill(name: &str, files: &[(&str, &str)]) -> Arc<Skill> {
    let files: BTreeMap<String, SkillFile> = files
        .iter()
        .map(|(path, text)| {
            let file = SkillFile {
                bytes: Arc::from(text.as_bytes()),
                executable: text.starts_with("#!"),
            };
            ((*path).to_owned(), file)
        })
        .collect();
    Arc::new(Skill {
        description: name.into(),
        files,
        digest: format!("digest-of-{name}"),
        ..mk_empty_skill(name, ActivationMode::Listed)
    })
}

/// The kernel's name for processes of this test run: two checkouts may be tested at once. It keeps 15 bytes, of which
/// the pid takes 7.
fn comm(name: &str) -> String {
    assert!(name.len() <= 8, "{name}");
    format!("{name}{}", std::process::id())
}

/// The folders in `/proc` of the processes of this test run whose name is `name`.
fn folders_named(name: &str) -> Vec<PathBuf> {
    let name = comm(name);
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .map(|entry| entry.path())
        .filter(|folder| std::fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim_end() == name))
        .collect()
}

/// Processes of this test run whose name is `name`.
fn processes_named(name: &str) -> usize {
    folders_named(name).len()
}

/// Source that gives the process a name to be counted by.
fn named(name: &str, source: &str) -> String {
    let name = comm(name);
    format!("import ctypes\nctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n{source}")
}

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest wait for what must go. Below the 30 s after which the hydras end by themselves: a later look could not fail.
const SWEPT_WITHIN: Duration = Duration::from_secs(20);

async fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition).await;
}

async fn until_within(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + bound;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn gives_back_exit_code_streams_files_and_locks() {
    let result = run_python(
        "import sys, os\nprint('out')\nprint('err', file=sys.stderr)\nos.mkdir('charts')\n\
         open('charts/ball.gif', 'wb').write(b'GIF89a')\nsys.exit(3)",
    )
    .await;
    assert_eq!(result.exit, Exit::Code(3));
    assert_eq!(result.stdout.text(), "out\n");
    assert_eq!(result.stderr.text(), "err\n");
    let [file] = result.files.as_slice() else {
        panic!("{:?}", result.files)
    };
    assert_eq!(
        (file.path.as_str(), &*file.bytes, file.mime_type),
        ("charts/ball.gif", &b"GIF89a"[..], "image/gif")
    );
    assert_eq!(
        file.sha256,
        "610f5ae4d76e332636a17bd357fd6ce99029316a99d320280d4d77a746bf29e8"
    );
    assert!(result.locks.seccomp);
    assert_eq!(result.status(), ExecutionStatus::Error);
}

/// Its uid has no account, here as in a pod.
#[tokio::test]
async fn a_run_and_its_child_processes_have_a_user_by_name() {
    let ask = "import getpass; print(getpass.getuser())";
    let source = format!("import subprocess, sys\n{ask}\nsubprocess.run([sys.executable, '-c', {ask:?}], check=True)");
    let result = run_python(&source).await;
    assert_eq!(result.stdout.text(), "knack\nknack\n", "{}", result.stderr.text());
}

#[tokio::test]
async fn warm_and_cold_differ_in_nothing_but_time() {
    let source = "import os, sys\nprint(sorted(os.environ), sys.argv, sys.flags.isolated, __name__, os.listdir('.'))";
    let warm = executor(1).await;
    until("a warm sandbox", || warm.warm(Language::Python) == 1).await;
    let first = run(&warm, python("warm", source)).await;
    assert_eq!(first.timings.start, StartKind::Warm);
    let second = run(&executor(0).await, python("cold", source)).await;
    assert_eq!(second.timings.start, StartKind::Cold);
    assert_eq!(
        (first.exit, first.stdout.text(), first.stderr.text()),
        (second.exit, second.stdout.text(), second.stderr.text())
    );
    assert_eq!(first.exit, Exit::Code(0));
}

#[tokio::test]
async fn two_skills_with_the_same_file_path_keep_their_own() {
    let executor = executor(0).await;
    for attempt in 0..2 {
        let mut request = python(
            &format!("{attempt}"),
            "for name in 'ab': print(open(f'skills/{name}/scripts/data.txt').read())\n\
             try: open('skills/a/scripts/data.txt', 'w')\nexcept OSError as error: print(error.errno)",
        );
        request.mounts = [("a", "of a"), ("b", "of b")]
            .map(|(name, text)| SkillMount {
                name: name.into(),
                skill: skill(name, &[("scripts/data.txt", text)]),
            })
            .into();
        let result = run(&executor, request).await;
        assert_eq!(result.stdout.text(), "of a\nof b\n13\n", "{}", result.stderr.text());
    }
}

#[tokio::test]
async fn a_command_runs_without_a_shell_in_the_skills_folder_and_delivers_from_the_work_directory() {
    let script = "import sys, os\nopen(os.environ['KNACK_WORK_DIR'] + '/out.txt', 'w').write('|'.join(sys.argv[1:]))";
    let mut request = python("1", "");
    request.program = Program::Command {
        argv: ["python3", "scripts/run.py", "a b", "$(id)"]
            .map(str::to_owned)
            .to_vec(),
    };
    request.mounts = vec![SkillMount {
        name: "tool".into(),
        skill: skill("tool", &[("scripts/run.py", script)]),
    }];
    request.working_directory = WorkingDirectory::Skill("tool".into());
    let result = run(&executor(0).await, request).await;
    assert_eq!((result.exit, result.stderr.text()), (Exit::Code(0), "".into()));
    assert_eq!(&*result.files[0].bytes, b"a b|$(id)");
}

#[tokio::test]
async fn inputs_and_files_of_earlier_runs_are_staged_and_come_back_only_if_changed() {
    let mut request = python(
        "1",
        "open('ball.gif', 'ab').write(b'!'); print(open('inputs/data.csv').read())",
    );
    request.inputs = [("inputs/data.csv", "a,b"), ("ball.gif", "GIF"), ("inputs/empty", "")]
        .map(|(path, text)| InputFile {
            path: path.into(),
            bytes: text.into(),
        })
        .into();
    let result = run(&executor(0).await, request).await;
    assert_eq!(result.stdout.text(), "a,b\n", "{}", result.stderr.text());
    let names: Vec<&str> = result.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["ball.gif"]);
}

#[tokio::test]
async fn a_request_that_leaves_its_place_or_its_bounds_is_refused_by_name() {
    let executor = executor(0).await;
    let input = |path: &str| InputFile {
        path: path.into(),
        bytes: "x".into(),
    };
    let with = |change: &dyn Fn(&mut ExecutionRequest)| {
        let mut request = python("1", "");
        change(&mut request);
        request
    };
    for (request, words) in [
        (
            with(&|request| request.inputs = vec![input("../x")]),
            "leaves the working directory",
        ),
        (
            with(&|request| request.inputs = vec![input("/etc/x")]),
            "leaves the working directory",
        ),
        (
            with(&|request| request.inputs = vec![input("skills/tool/run.py")]),
            "\"skills/tool/run.py\": \"skills\" is the folder of the skills",
        ),
        (
            with(&|request| request.inputs = vec![input("skills")]),
            "is the folder of the skills",
        ),
        (
            with(&|request| request.inputs = vec![input("a/b/c"), input("a-b"), input("a/b")]),
            "\"a/b\" and \"a/b/c\": a file cannot be a folder too",
        ),
        (
            with(&|request| request.inputs = vec![input("x"); 201]),
            "inputs: 201 files",
        ),
        (
            with(&|request| request.program = Program::Command { argv: vec![] }),
            "program.argv: empty",
        ),
        (
            with(&|request| request.working_directory = WorkingDirectory::Skill("none".into())),
            "not mounted",
        ),
        (
            with(&|request| {
                request.mounts = vec![SkillMount {
                    name: "../up".into(),
                    skill: skill("x", &[]),
                }];
            }),
            "cannot be mounted",
        ),
    ] {
        let error = executor.execute(request, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.metric_label(), "invalid");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn one_id_runs_once_also_when_asked_twice_at_the_same_time() {
    let executor = executor(0).await;
    let request = python("1", "import os, time\ntime.sleep(0.2)\nprint(os.urandom(8).hex())");
    let (first, second) = tokio::join!(run(&executor, request.clone()), run(&executor, request.clone()));
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &run(&executor, request.clone()).await));
    assert_eq!(
        executor.get("tester", request.id).await.unwrap().status,
        ExecutionStatus::Success
    );
    assert_eq!(
        executor.get("other", request.id).await.unwrap_err(),
        ExecutionError::NotFound
    );
}

#[tokio::test]
async fn a_hang_ends_at_its_limit_and_delays_no_other_run() {
    let executor = executor(0).await;
    let limit = Duration::from_secs(4);
    let mut ended = Vec::new();
    // A machine that is busy with other things only adds to the times.
    for attempt in 0..5 {
        let began = Instant::now();
        let source = "import time\ntime.sleep(60)";
        let request = timeout(python(&format!("hang {attempt}"), source), limit);
        let (hang, other) = tokio::join!(run(&executor, request), async {
            let result = run(&executor, python(&format!("quick {attempt}"), "print(1)")).await;
            (result, began.elapsed())
        });
        let took = began.elapsed();
        assert_eq!((hang.exit, hang.status()), (Exit::Timeout, ExecutionStatus::Timeout));
        assert_eq!(other.0.exit, Exit::Code(0));
        ended.push((took, other.1));
        // A run that waits for the other one takes longer than the limit.
        if took < limit + Duration::from_secs(4) && other.1 < limit {
            return;
        }
    }
    panic!("the hang and the other run: {ended:?}");
}

#[tokio::test]
async fn a_flood_of_output_is_cut_at_the_cap() {
    let began = Instant::now();
    let result = run_python("import os\nfor _ in range(5 << 14): os.write(1, b'x' * 65536)").await;
    assert_eq!(result.exit, Exit::OutputLimit);
    assert!(result.stdout.truncated);
    assert_eq!(result.stdout.bytes.len() as u64, Limits::DEFAULT_OUTPUT_BYTES);
    // The limit of its time would be another end.
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hundred_thousand_files_end_the_run_or_are_reported() {
    let request = python("1", "for i in range(100000): open(f'{i}', 'w').close()");
    // A slow disk makes some hundred files per second.
    let result = run(&executor(0).await, timeout(request, Duration::from_mins(3))).await;
    // A file system of its own is full in the middle of the run; where none can be made, the runner counts.
    let full = result.exit == Exit::Code(1) && result.stderr.text().contains("No space left on device");
    assert!(full || result.exit == Exit::DiskLimit, "{:?}", result.exit);
    assert!(result.files.len() <= Limits::DEFAULT_FILES as usize);
    assert!(!result.file_errors.is_empty());
}

#[tokio::test]
async fn files_over_the_cap_are_named_and_the_others_delivered() {
    let result = run_python("open('big.bin', 'wb').write(b'x' * (5 << 20)); open('small.txt', 'w').write('x')").await;
    let names: Vec<&str> = result.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["small.txt"]);
    assert_eq!(result.file_errors[0].path, "big.bin");
    assert!(!result.file_errors[0].reason.is_empty());
}

#[tokio::test]
async fn a_link_to_passwd_is_no_result_file() {
    let result = run_python("import os\nos.symlink('/etc/passwd', 'passwd.txt')").await;
    assert_eq!(result.files, []);
    assert_eq!(result.file_errors[0].path, "passwd.txt");
}

#[tokio::test]
async fn code_cannot_kill_its_parent() {
    let result = run_python(
        "import os, signal\nfor pid in (os.getppid(), -1):\n  try: os.kill(pid, signal.SIGKILL)\n  except OSError as e: print(e.errno)",
    )
    .await;
    assert_eq!(result.exit, Exit::Code(0), "{}", result.stderr.text());
    assert!(result.stdout.text().starts_with("1\n"), "{}", result.stdout.text());
}

#[tokio::test]
async fn a_signal_differs_from_an_exit_code() {
    let result = run_python("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)").await;
    assert_eq!(
        (result.exit, result.status()),
        (Exit::Signal(11), ExecutionStatus::Error)
    );
}

#[tokio::test]
async fn memory_over_the_limit_is_its_own_kind_of_end() {
    // It holds it until somebody has looked, which a busy machine does late.
    let source = "import time\nx = [b'x' * (16 << 20) for _ in range(100)]\ntime.sleep(40)";
    let request = timeout(python("1", source), Duration::from_mins(1));
    assert_eq!(run(&executor(0).await, request).await.exit, Exit::OutOfMemory);
}

#[tokio::test]
async fn forks_without_end_leave_nothing() {
    let executor = executor(0).await;
    let source = named(
        "bomb",
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    );
    let result = run(&executor, timeout(python("1", &source), Duration::from_secs(2))).await;
    assert!(
        matches!(result.exit, Exit::Timeout | Exit::ProcessLimit | Exit::OutOfMemory),
        "{:?}",
        result.exit
    );
    assert_eq!(processes_named("bomb"), 0);
}

#[tokio::test]
async fn a_dropped_caller_and_a_cancel_by_id_end_the_run() {
    let executor = executor(0).await;
    for (call, by_id) in [("dropped", false), ("by id", true)] {
        let name = if by_id { "byid" } else { "drop" };
        let request = timeout(
            python(call, &named(name, "import time\ntime.sleep(60)")),
            Duration::from_mins(1),
        );
        let id = request.id;
        let running = executor.execute(request, CancellationToken::new());
        tokio::select! {
            outcome = running => assert_eq!(outcome.unwrap_err(), ExecutionError::Cancelled),
            () = async {
                until("the program runs", || processes_named(name) == 1).await;
                if by_id {
                    executor.cancel("tester", id).await.unwrap();
                    std::future::pending::<()>().await;
                }
            } => {}
        }
        until_within(SWEPT_WITHIN, "the program is gone", || processes_named(name) == 0).await;
    }
}

#[tokio::test]
async fn more_than_the_queue_holds_is_refused_at_once() {
    let mut settings = LocalSettings {
        warm: 0,
        ..runner::settings()
    };
    settings.queue.concurrency = 1;
    settings.queue.max_queued = 1;
    let executor = LocalExecutor::open(settings).await.unwrap();
    let cancel = CancellationToken::new();
    let ask = |call: &str| executor.execute(python(call, "import time\ntime.sleep(9)"), cancel.clone());
    let (mut first, mut second) = (Box::pin(ask("1")), Box::pin(ask("2")));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    until("one waits", || executor.queued() == 1).await;
    let refused = ask("3").await.unwrap_err();
    assert_eq!(refused.metric_label(), "queue_full");
    assert!(matches!(refused, ExecutionError::QueueFull { .. }), "{refused:?}");
    cancel.cancel();
}

#[tokio::test]
async fn a_missing_command_is_reported() {
    let mut request = python("1", "");
    request.program = Program::Command {
        argv: vec!["no-such-program".into()],
    };
    let error = executor(0)
        .await
        .execute(request, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.metric_label(), "invalid");
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[tokio::test]
async fn node_runs_where_it_exists() {
    let executor = executor(0).await;
    if !executor.capabilities().languages.contains(&Language::Node) {
        return skip(
            "node_runs_where_it_exists",
            "there is no node; run: apt-get install nodejs",
        );
    }
    let mut request = python("1", "");
    request.program = Program::Code {
        language: Language::Node,
        source: "require('fs').writeFileSync('n.json', '{}'); console.log(1 + 1)".into(),
    };
    let result = run(&executor, request).await;
    assert_eq!(
        (result.exit, result.stdout.text()),
        (Exit::Code(0), "2\n".into()),
        "{}",
        result.stderr.text()
    );
    assert_eq!(result.files[0].mime_type, "application/json");
}

#[tokio::test]
async fn without_python_it_says_what_to_do() {
    let search = Search {
        path: Vec::new(),
        fallback: Vec::new(),
        home: None,
        code_user: CodeUser::SameUser,
    };
    let settings = LocalSettings {
        search: Some(search),
        ..runner::settings()
    };
    let executor = LocalExecutor::open_or_disabled(settings).await;
    let error = executor
        .execute(python("1", ""), CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.metric_label(), "unavailable");
    assert!(
        error.to_string().contains("no python3") && error.to_string().contains("apt-get install python3"),
        "{error}"
    );
    assert_eq!(executor.capabilities().languages, []);
}

#[tokio::test]
async fn without_landlock_or_seccomp_it_refuses_and_names_the_missing_lock() {
    let report = |seccomp, landlock: &str| LockReport {
        seccomp,
        landlock: landlock.into(),
        landlock_abi: 0,
    };
    for (locks, words) in [
        (report(true, "NotEnforced"), "no Landlock"),
        (report(false, "FullyEnforced"), "cannot load a seccomp filter"),
    ] {
        let settings = LocalSettings {
            kernel: KernelView::Pretend(locks),
            ..runner::settings()
        };
        let missing = LocalExecutor::open(settings).await.unwrap_err();
        assert!(missing.to_string().contains(words), "{missing}");
    }
}

#[tokio::test]
async fn a_disabled_executor_answers_with_one_line_that_says_what_to_do() {
    let error = DisabledExecutor::by_flag()
        .execute(python("1", ""), CancellationToken::new())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--no-local-executor") && error.contains("start it without"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
}
