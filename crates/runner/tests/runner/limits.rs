//! Deadlines, caps and the end of everything that is left.

use std::process::Command;
use std::time::{Duration, Instant};

use knack_runner::protocol::{Exit, Identity, Limits, Start, StreamReport, ToRunner, Watch};

use crate::hydra::{CpuGroup, HYDRA, alone, children_named, let_grow};
use crate::support::{
    RunReport, Runner, TIMEOUT_MS, code, comm, is_root, is_skipped, living_named, named, own, processes_named, python,
    run_command, run_python, run_python_with,
};

fn limits(change: impl FnOnce(&mut Limits)) -> impl FnOnce(&mut Start) {
    |start| change(&mut start.limits)
}

#[test]
fn the_deadline_ends_a_sleep_and_keeps_what_was_printed() {
    // Time to print it on a busy machine, and a sleep that nothing but the deadline ends soon.
    let report = run_python_with(
        "import time\nprint('before')\ntime.sleep(60)",
        limits(|limits| limits.timeout_ms = Some(4_000)),
    );
    assert_eq!((report.exit(), report.out().as_str()), (&Exit::Timeout, "before\n"));
    let wall = report.result().wall_us;
    assert!((4_000_000..30_000_000).contains(&wall), "{wall}");
}

#[test]
fn endless_output_is_cut_exactly() {
    let report = run_command(&["yes"]);
    assert_eq!(report.exit(), &Exit::OutputLimit);
    assert_eq!(report.stdout.len(), 1_000_000);
    assert_eq!(
        report.result().stdout,
        StreamReport {
            bytes: 1_000_000,
            truncated: true
        }
    );
    let report = run_python_with(
        "import sys\nsys.stderr.write('e' * 1000)\nsys.stdout.write('o' * 100)",
        limits(|limits| limits.output_bytes = Some(100)),
    );
    assert_eq!((report.stdout.len(), report.stderr.len()), (100, 100));
    assert_eq!(report.exit(), &Exit::OutputLimit);
    assert!(!report.result().stdout.truncated && report.result().stderr.truncated);
}

#[test]
fn rlimits_hold() {
    let report = run_python_with("while True: pass", limits(|limits| limits.cpu_seconds = Some(1)));
    assert_eq!(report.exit(), &Exit::CpuLimit);
    let report = run_python_with(
        "f = open('f', 'wb', buffering=0)\ntry:\n    while True: f.write(b'x' * 600)\nexcept OSError as error: print(error.errno)",
        limits(|limits| limits.file_bytes = Some(1000)),
    );
    assert_eq!(report.out(), "27\n");
    let report = run_python_with(
        "try: x = bytearray(400 << 20)\nexcept MemoryError: print('MemoryError')",
        limits(|limits| limits.address_space_bytes = Some(256 << 20)),
    );
    assert_eq!(report.out(), "MemoryError\n");
    let report = run_python("import os\nn = 0\ntry:\n    while True: os.dup(1); n += 1\nexcept OSError: print(n)");
    assert_eq!(report.out(), "253\n");
}

#[test]
fn memory_processes_and_files_are_watched() {
    let watch = |watch: Watch| move |start: &mut Start| start.watch = watch;
    let source = "import time\nx = bytearray(300 << 20)\ntime.sleep(30)";
    let report = run_python_with(
        source,
        watch(Watch {
            memory_bytes: Some(150 << 20),
            ..Watch::default()
        }),
    );
    assert_eq!(report.exit(), &Exit::OutOfMemory);
    let source =
        "import mmap, time\nm = mmap.mmap(-1, 300 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\ntime.sleep(30)";
    let report = run_python_with(
        source,
        watch(Watch {
            memory_bytes: Some(150 << 20),
            ..Watch::default()
        }),
    );
    assert_eq!(report.exit(), &Exit::OutOfMemory, "shared memory counts");
    let source = "import os, time\nfor i in range(40):\n    if os.fork() == 0: time.sleep(30)\ntime.sleep(30)";
    let report = run_python_with(
        source,
        watch(Watch {
            processes: Some(20),
            ..Watch::default()
        }),
    );
    assert_eq!(report.exit(), &Exit::ProcessLimit);
}

/// Reads one byte in each 2 MiB of 64 GiB that nobody writes: all of them are the same page of zeros, behind 128 MiB of page tables.
const PAGE_TABLES: &str = r"
import mmap, time
kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
pages = mmap.mmap(-1, 64 << 30, flags=kind, prot=mmap.PROT_READ)
for at in range(0, len(pages), 2 << 20): pages[at]
time.sleep(30)
";

/// What Node starts has no limit of its address space.
#[test]
fn page_tables_count_as_memory() {
    let report = run_python_with(PAGE_TABLES, |start| {
        start.watch.memory_bytes = Some(80 << 20);
    });
    assert_eq!(report.exit(), &Exit::OutOfMemory, "{}", report.err());
}

/// Four processes with 50,000 mappings each: their list has about 12 MB, of which a scan reads a part.
const MANY_MAPPINGS: &str = r"
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
pages = mmap.mmap(-1, 50000 << 12)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
for page in range(0, 50000, 2): libc.mprotect(ctypes.c_void_p(start + (page << 12)), 4096, 1)
for _ in range(3):
    if os.fork() == 0: break
time.sleep(60)
";

/// The cost of a scan is bounded by what it reads; and nothing is read where no bytes are watched, as in pods.
#[test]
fn a_scan_of_a_great_many_mappings_ends() {
    let uid = is_root().then_some(64_145);
    // The first ends when it has been checked, however slow the machine is.
    for (work_bytes, timeout_ms, expected) in [(Some(1 << 30), 30_000, Exit::FileLimit), (None, 3_000, Exit::Timeout)] {
        let mut runner = Runner::boot_on("no-mounts", uid);
        let mut start = runner.start_frame(python());
        start.identity = None;
        start.limits.timeout_ms = Some(timeout_ms);
        start.watch = Watch {
            work_files: Some(1000),
            work_bytes,
            ..Watch::default()
        };
        runner.start(start);
        runner.run(code(MANY_MAPPINGS));
        let report = runner.finish();
        assert_eq!(report.exit(), &expected, "{}", report.err());
        let wall_ms = report.result().wall_us / 1_000;
        // The programs end by themselves after a minute.
        assert!(wall_ms < timeout_ms + 20_000, "{wall_ms}");
    }
}

#[test]
fn a_daemon_that_holds_the_pipe_does_not_delay_the_result() {
    let began = Instant::now();
    let source = "import os, time\nfor i in range(5):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork(): os._exit(0)\n        time.sleep(60)\nprint('done')";
    let report = run_python(&format!("{}{source}", named("daemon")));
    assert_eq!(
        (report.exit(), report.out().as_str()),
        (&Exit::Code { code: 0 }, "done\n")
    );
    // Less than the daemons sleep.
    assert!(began.elapsed() < Duration::from_secs(50));
    assert_eq!(processes_named("daemon"), 0);
}

/// How long a hydra may take to grow. On a machine that is busy with other things the first times may be too short for it.
const GROWS_WITHIN_MS: [u64; 3] = [3_000, 12_000, 20_000];

/// Waits for the main process of a hydra, and lets it grow. `None`: it has not begun in time, or there is no control group for it.
fn grow(test: &str, runner: &Runner, name: &str, within: Duration) -> Option<CpuGroup> {
    let begun = Instant::now();
    let runner = i32::try_from(runner.pid()).unwrap();
    while begun.elapsed() < within {
        if let [main, ..] = *children_named(runner, &comm(name)) {
            return let_grow(test, main);
        }
        std::thread::yield_now();
    }
    None
}

fn behead(test: &str, name: &str, boot: impl Fn() -> Runner, change: impl Fn(&mut Start)) {
    let _alone = alone();
    for timeout_ms in GROWS_WITHIN_MS {
        let mut runner = boot();
        let mut start = runner.start_frame(python());
        start.limits.timeout_ms = Some(timeout_ms);
        start.limits.processes = Some(600);
        change(&mut start);
        runner.start(start);
        runner.run(code(&format!("{}{HYDRA}", named(name))));
        let began = Instant::now();
        let _group = grow(test, &runner, name, Duration::from_millis(timeout_ms));
        let report = runner.finish();
        assert_eq!(processes_named(name), 0);
        assert_eq!(report.exit(), &Exit::Timeout);
        // 3 s and some milliseconds on a quiet machine; after 30 s the heads end by themselves.
        assert!(began.elapsed() < Duration::from_secs(28), "{:?}", began.elapsed());
        if report.out() == "heads\n" {
            // The whole hydra was there, and not only what the first kill met.
            assert!(report.result().killed >= 100, "{}", report.result().killed);
            return;
        }
    }
    panic!("it does not grow");
}

#[test]
fn a_hydra_at_full_speed_leaves_no_survivor_with_a_uid_of_its_own() {
    let test = "a_hydra_at_full_speed_leaves_no_survivor_with_a_uid_of_its_own";
    if is_skipped(test) {
        return;
    }
    behead(test, "hydra1", Runner::boot, |start| {
        start.identity = Some(own(64_131));
    });
}

#[test]
fn a_hydra_at_full_speed_leaves_no_survivor_among_strangers() {
    let test = "a_hydra_at_full_speed_leaves_no_survivor_among_strangers";
    if is_skipped(test) {
        return;
    }
    behead(test, "hydra2", Runner::boot, |start| {
        start.identity = Some(Identity {
            exclusive: false,
            ..own(64_132)
        });
    });
}

#[test]
fn a_hydra_at_full_speed_leaves_no_survivor_of_a_runner_without_rights() {
    let boot = || {
        if is_root() {
            Runner::boot_as(64_133)
        } else {
            Runner::boot()
        }
    };
    let test = "a_hydra_at_full_speed_leaves_no_survivor_of_a_runner_without_rights";
    behead(test, "hydra3", boot, |start| start.identity = None);
}

/// Children of a runner that a hydra has only once its heads fork.
const MANY: usize = 5;
/// How long that may take: less than the 30 s after which the heads end by themselves.
const GROWN_WITHIN: Duration = Duration::from_secs(20);

#[test]
fn a_uid_is_ended_without_its_runner() {
    let test = "a_uid_is_ended_without_its_runner";
    if is_skipped(test) {
        return;
    }
    let _alone = alone();
    let mut runner = Runner::boot();
    let mut start = runner.start_frame(python());
    start.identity = Some(own(64_134));
    start.limits.processes = Some(600);
    runner.start(start);
    runner.run(code(&format!("{}{HYDRA}", named("hydra4"))));
    let _group = grow(test, &runner, "hydra4", Duration::from_millis(TIMEOUT_MS));
    runner.read_until(&mut RunReport::default(), |frame| {
        matches!(frame, knack_runner::protocol::FromRunner::Output(_))
    });
    // Their pids change all the time, so they are looked for before the kill, where they are the runner's children: a look at every process
    // of the machine could last until the heads end by themselves.
    let pid = i32::try_from(runner.pid()).unwrap();
    let began = Instant::now();
    while children_named(pid, &comm("hydra4")).len() < MANY {
        assert!(began.elapsed() < GROWN_WITHIN, "the heads are not there");
    }
    runner.kill();
    let end = |uid: &str| {
        Command::new(env!("CARGO_BIN_EXE_knack-runner"))
            .args(["--end-uid", uid])
            .output()
            .unwrap()
    };
    let ended = end("64134");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(living_named("hydra4"), 0);
    assert!(end("64134").status.success(), "nobody is there");
    for wrong in ["0", "", "root", "-1"] {
        assert_eq!(end(wrong).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn a_fork_bomb_ends_with_the_run() {
    let _alone = alone();
    let source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n";
    let report = run_python_with(&format!("{}{source}", named("bomb")), |start| {
        start.limits.timeout_ms = Some(5000);
        start.watch.processes = Some(60);
        start.limits.processes = Some(400);
        start.identity = start.identity.map(|_| own(64_130));
    });
    assert!(
        matches!(report.exit(), Exit::ProcessLimit | Exit::Timeout),
        "{:?}",
        report.exit()
    );
    assert_eq!(processes_named("bomb"), 0);
}

#[test]
fn cancel_and_the_end_of_stdin_kill() {
    let source = format!("{}import time\nprint('on')\ntime.sleep(60)", named("cancel"));
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    runner.run(code(&source));
    let mut report = RunReport::default();
    runner.read_until(&mut report, |frame| {
        matches!(frame, knack_runner::protocol::FromRunner::Output(_))
    });
    runner.send(&ToRunner::Cancel);
    runner.finish_into(&mut report);
    assert_eq!((report.exit(), report.out().as_str()), (&Exit::Cancelled, "on\n"));

    for grace in [0, 500] {
        let mut runner = Runner::boot();
        let mut start = runner.start_frame(python());
        start.eof_grace_ms = grace;
        runner.start(start);
        runner.run(code(&source));
        let mut report = RunReport::default();
        runner.read_until(&mut report, |frame| {
            matches!(frame, knack_runner::protocol::FromRunner::Output(_))
        });
        let closed = Instant::now();
        runner.close_stdin();
        runner.finish_into(&mut report);
        assert_eq!(report.exit(), &Exit::Cancelled);
        assert!(closed.elapsed() >= Duration::from_millis(grace));
    }
    assert_eq!(processes_named("cancel"), 0);
}
