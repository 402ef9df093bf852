//! Kernels that have less: what is demanded of them, and what the filter does in their place.

use knack_runner::protocol::{Exit, Landlock, LandlockState, Run};

use crate::support::{RunReport, Runner, code, is_root, is_skipped, python};

/// Runs Python on a kernel with no Landlock ABI above this one, as a user without rights, and without mounts.
fn run_on(abi: u32, landlock: Landlock, require_landlock: u32, source: &str) -> RunReport {
    let uid = is_root().then_some(64_144);
    let mut runner = Runner::boot_on(&format!("abi-{abi}-no-mounts"), uid);
    let mut start = runner.start_frame(python());
    start.identity = None;
    start.landlock = landlock;
    runner.start(start);
    runner.run_frame(Run {
        require_landlock,
        ..crate::support::run(code(source))
    });
    runner.finish()
}

#[test]
fn reached_locks_are_reported_and_demanded_locks_are_checked() {
    for (abi, demand, require, state) in [
        (6, Landlock::Required, 6, LandlockState::FullyEnforced),
        (5, Landlock::Required, 5, LandlockState::PartiallyEnforced),
        (1, Landlock::Required, 1, LandlockState::PartiallyEnforced),
        (1, Landlock::BestEffort, 0, LandlockState::PartiallyEnforced),
        (0, Landlock::BestEffort, 0, LandlockState::NotEnforced),
    ] {
        let report = run_on(abi, demand, require, "print('ran')");
        assert_eq!(
            (report.out().as_str(), report.exit()),
            ("ran\n", &Exit::Code { code: 0 }),
            "ABI {abi}"
        );
        let locks = report.result().locks.unwrap();
        assert!(locks.seccomp);
        assert_eq!((locks.landlock, locks.landlock_abi), (state, abi));
        assert_eq!(report.ready[0].locks, Some(locks), "told before the program came");
    }
    for (abi, demand, require, expected) in [
        (0, Landlock::Required, 0, "no Landlock"),
        (0, Landlock::BestEffort, 1, "needs Landlock ABI 1, this kernel has none"),
        (2, Landlock::Required, 3, "needs Landlock ABI 3, this kernel has ABI 2"),
    ] {
        let report = run_on(abi, demand, require, "print('ran')");
        let Exit::LocksMissing { reason } = report.exit() else {
            panic!("{:?}", report.exit())
        };
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(report.out(), "");
        let names: Vec<_> = report
            .frames
            .iter()
            .map(|frame| serde_json::to_value(frame).unwrap()["type"].clone())
            .collect();
        assert!(!names.contains(&"started".into()), "{names:?}");
    }
}

/// Ends a child at its timeout, and tries to signal whoever is process 1. Where the child cannot be ended, it is waited for.
const SIGNALS: &str = r"
import os, signal, subprocess
try: subprocess.run(['sleep', '4'], timeout=0.01)
except subprocess.TimeoutExpired: print('ended')
except PermissionError: print('EPERM')
for send in (lambda: os.kill(1, signal.SIGCONT), lambda: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGCONT)):
    try: send(); print('OPEN')
    except PermissionError: print('EPERM')
    except OSError as error: print(error)
";

/// Below a runner that is process 1 everybody else is of the run, whose programs end their children. Elsewhere, without
/// the scope of Landlock, signals could reach any process of the user.
#[test]
fn without_the_scope_children_are_signalled_where_the_runner_is_process_1() {
    assert_eq!(run_on(5, Landlock::Required, 0, SIGNALS).out(), "EPERM\nEPERM\nEPERM\n");
    if is_skipped("without_the_scope_children_are_signalled_where_the_runner_is_process_1") {
        return;
    }
    let mut runner = Runner::boot_as_init_on("abi-5-no-mounts");
    let mut start = runner.start_frame(python());
    start.identity = None;
    runner.start(start);
    runner.run(code(SIGNALS));
    let report = runner.finish();
    assert_eq!(report.out(), "ended\nEPERM\nEPERM\n", "{}", report.err());
}

/// Kernels before 6.2 do not judge a truncation: the filter lets only writers truncate. Programs do not notice.
#[test]
fn files_are_truncated_by_writers_on_every_kernel() {
    let source = r"
import os, errno
open('f', 'w').write('text')
with open('f', 'r+') as f: f.truncate(3)
print(os.stat('f').st_size)
open('f', 'w').close()
print(os.stat('f').st_size)
for attempt in (lambda: os.truncate('f', 0), lambda: os.open('f', 3 | os.O_TRUNC), lambda: os.open('f', os.O_RDONLY | os.O_TRUNC)):
    try: attempt(); print('OPEN')
    except OSError as error: print(errno.errorcode[error.errno])
";
    for (abi, by_name) in [(6, "OPEN"), (3, "OPEN"), (2, "EPERM"), (1, "EPERM"), (0, "EPERM")] {
        let report = run_on(abi, Landlock::BestEffort, 0, source);
        let expected = format!("3\n0\n{by_name}\n{by_name}\n{by_name}\n");
        assert_eq!(report.out(), expected, "ABI {abi}: {}", report.err());
    }
}
