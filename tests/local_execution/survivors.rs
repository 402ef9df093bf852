//! No process of a run is left, however it tries to stay.

use std::time::Duration;

use knack_execution::conversation::DEADLINE_MARGIN;
use knack_execution::local::{LocalExecutor, LocalSettings};
use knack_execution::{ExecutionError, Executor as _, Exit};
use tokio_util::sync::CancellationToken;

use crate::hydra::{CpuGroup, HYDRA, alone, children_named, let_grow};
use crate::runner::{self, executor, python};
use crate::skip::skip;
use crate::{SWEPT_WITHIN, comm, named, processes_named, run, timeout, until, until_within};

/// How long a hydra may take to grow. On a machine that is busy with other things the first time may be too short for it.
const GROWS_WITHIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(25)];

/// An executor that a hydra fits in, and no more of it than 600.
async fn for_hydras() -> LocalExecutor {
    let settings = LocalSettings {
        warm: 0,
        max_processes: 600,
        // Pages shared since the fork count once per process, so 300 interpreters look like gigabytes.
        memory_bytes: 16 << 30,
        ..runner::settings()
    };
    LocalExecutor::open(settings).await.unwrap()
}

#[tokio::test]
async fn three_hundred_reforking_detached_processes_leave_no_survivor() {
    let test = "three_hundred_reforking_detached_processes_leave_no_survivor";
    let _alone = alone();
    let executor = for_hydras().await;
    for (attempt, grows_within) in GROWS_WITHIN.into_iter().enumerate() {
        let request = timeout(python(&attempt.to_string(), &named("hydra", HYDRA)), grows_within);
        let grow = tokio::time::timeout(grows_within, grow(test, "hydra"));
        let (result, _group) = tokio::join!(run(&executor, request), grow);
        assert_eq!(processes_named("hydra"), 0);
        // Where the uid is not its own the run is ended for its number, which then is watched and not forbidden.
        assert!(
            matches!(result.exit, Exit::Timeout | Exit::ProcessLimit),
            "{:?} {}",
            result.exit,
            result.stderr.text()
        );
        if result.stdout.text() == "heads\n" {
            return;
        }
        assert_eq!(result.stdout.text(), "");
    }
    panic!("it does not grow");
}

/// Two threads: with one the look at /proc would take the turns of the executor, which has few among 300 heads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_runner_leaves_is_swept_and_the_run_has_no_result() {
    let test = "what_a_killed_runner_leaves_is_swept_and_the_run_has_no_result";
    let _alone = alone();
    let executor = for_hydras().await;
    // Without an own uid only what keeps its environment is found; a daemon that goes on quietly does.
    let quiet = "import os, time\nfor _ in range(5):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\ntime.sleep(60)";
    let is_root = rustix::process::geteuid().is_root();
    let source = if is_root { HYDRA } else { quiet };
    let request = timeout(python("1", &named("orphan", source)), Duration::from_mins(1));
    let kill = async {
        let group = if is_root { grow(test, "orphan").await } else { None };
        let mut runner = None;
        until("processes without a parent have the runner as theirs", || {
            runner = runner_of_many("orphan", 5);
            runner.is_some()
        })
        .await;
        let runner = rustix::process::Pid::from_raw(runner.unwrap()).unwrap();
        rustix::process::kill_process(runner, rustix::process::Signal::KILL).unwrap();
        group
    };
    let (outcome, _group) = tokio::join!(executor.execute(request, CancellationToken::new()), kill);
    let error = outcome.unwrap_err();
    assert!(matches!(error, ExecutionError::Internal(_)), "{error}");
    until_within(SWEPT_WITHIN, "everything is swept", || living_named("orphan") == 0).await;
}

/// Without a uid of the run's own only the runner finds all of its processes: it is not killed while it is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_runner_without_a_uid_of_its_own_still_ends_its_run() {
    let name = "a_late_runner_without_a_uid_of_its_own_still_ends_its_run";
    if rustix::process::geteuid().is_root() {
        return skip(name, "it needs a user without root");
    }
    let executor = executor(0).await;
    // Detached, and without the variable that it could be found by.
    let source = "import os, time\nenviron = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), 'environ')\nindex = 0\nwhile environ[index]:\n  if ctypes.string_at(environ[index]).startswith(b'KNACK_WORK_DIR'): ctypes.memset(environ[index], 120, 1)\n  index += 1\nif os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\ntime.sleep(90)";
    let limit = Duration::from_secs(8);
    let request = timeout(python("1", &named("late", source)), limit);
    let stall = async {
        let mut runner = None;
        until("a process without a parent has the runner as its own", || {
            runner = runner_of_many("late", 2);
            runner.is_some()
        })
        .await;
        let runner = rustix::process::Pid::from_raw(runner.unwrap()).unwrap();
        rustix::process::kill_process(runner, rustix::process::Signal::STOP).unwrap();
        // Longer than the executor waits for a result.
        tokio::time::sleep(limit + DEADLINE_MARGIN + Duration::from_secs(2)).await;
        rustix::process::kill_process(runner, rustix::process::Signal::CONT).unwrap();
    };
    let (outcome, ()) = tokio::join!(executor.execute(request, CancellationToken::new()), stall);
    assert_eq!(outcome.unwrap().exit, Exit::Timeout);
    until_within(SWEPT_WITHIN, "everything has ended", || living_named("late") == 0).await;
}

/// Processes of this name that live: what has ended and is not reaped is none.
fn living_named(name: &str) -> usize {
    let name = comm(name);
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(head, tail)| head.ends_with(&format!("({name}")) && !tail.starts_with(['Z', 'X']))
        })
        .count()
}

/// The runner of this test run that at least so many processes of this name have as parent. The kernel's lists of children
/// are asked, not every process of the machine: a head in a session of its own may get the processor as often as this whole
/// test run, and 300 of them leave it too little for a look at all of /proc before they end by themselves.
fn runner_of_many(name: &str, least: usize) -> Option<i32> {
    let this_run = rustix::process::getpid().as_raw_pid();
    let mut runners = children_named(this_run, "knack-runner").into_iter();
    runners.find(|runner| children_named(*runner, &comm(name)).len() >= least)
}

/// Waits for the main process of a hydra, and lets it grow.
async fn grow(test: &str, name: &str) -> Option<CpuGroup> {
    let mut main = None;
    until("the hydra waits", || {
        main = runner_of_many(name, 1).and_then(|runner| children_named(runner, &comm(name)).pop());
        main.is_some()
    })
    .await;
    let_grow(test, main.unwrap())
}
