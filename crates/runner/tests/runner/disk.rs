//! What a run may keep in its working directory, with mounts of its own and without.

use std::os::unix::fs::PermissionsExt as _;

use knack_runner::protocol::{Area, Exit, Start, Watch, WorkBound};

use crate::support::{RunReport, Runner, code, is_root, is_skipped, python};

const FILES: u64 = 300;
const BYTES: u64 = 8 << 20;

/// Python that keeps more than that, each where something else hides it, and says how far it came.
const BOMBS: &[(&str, &str)] = &[
    ("files", "for i in range(1000): open('f%d' % i, 'w')"),
    ("bytes", "for i in range(20): fill(str(i))"),
    ("directories", "for i in range(1000): os.mkdir('d%d' % i)"),
    (
        "a deep place",
        "for i in range(40): os.mkdir('d'); os.chdir('d')\nfor i in range(20): fill(str(i))",
    ),
    (
        "a directory without a list",
        "os.mkdir('h'); os.chmod('h', 0o300)\nfor i in range(20): fill('h/%d' % i)",
    ),
    (
        "deleted files",
        "kept = []\nfor i in range(20): kept.append(fill('x')); os.unlink('x')",
    ),
    (
        "deleted mappings",
        "import mmap\nkept = []\nfor i in range(20):\n    f = fill('x', 'w+b'); kept.append(mmap.mmap(f.fileno(), 1 << 20)); f.close(); os.unlink('x')",
    ),
    (
        "descriptors in transit",
        "import socket\na, b = socket.socketpair()\nfor i in range(20):\n    f = fill('x'); os.unlink('x'); socket.send_fds(a, [b'x'], [f.fileno()]); f.close()",
    ),
    (
        "files behind many directories",
        "for i in range(1000): os.mkdir('a%d' % i)\nfor i in range(20): fill('z%d' % i)",
    ),
];

/// Runs one of them, in each way in which the runner can apply the limits.
fn explode(mut runner: Runner, change: impl FnOnce(&mut Start), source: &str) -> RunReport {
    let mut start = runner.start_frame(python());
    start.watch = Watch {
        work_files: Some(FILES),
        work_bytes: Some(BYTES),
        ..Watch::default()
    };
    change(&mut start);
    runner.start(start);
    runner.run(code(&format!(
        "import os, time, errno\ndef fill(name, mode='wb'):\n    f = open(name, mode, buffering=0)\n    f.write(b'x' * (1 << 20))\n    if f.tell() < 1 << 20: raise OSError(errno.ENOSPC, '')\n    return f\ntry:\n    for line in [0]:\n        {}\n        time.sleep(30)\nexcept OSError as error: print(errno.errorcode[error.errno], flush=True)\n",
        source.replace('\n', "\n        ")
    )));
    runner.finish()
}

#[test]
fn a_working_directory_of_its_own_is_full_at_its_limits() {
    let as_user: Vec<Option<u32>> = if is_root() {
        vec![None, Some(64_141)]
    } else {
        vec![None]
    };
    for uid in as_user {
        for (name, source) in BOMBS {
            let runner = uid.map_or_else(Runner::boot, Runner::boot_as);
            let report = explode(
                runner,
                |start| start.identity = start.identity.filter(|_| uid.is_none()),
                source,
            );
            assert_eq!(report.ready[0].locks.unwrap().work, WorkBound::Mounted);
            assert_eq!(
                (report.out().as_str(), report.exit()),
                ("ENOSPC\n", &Exit::Code { code: 0 }),
                "{name}, {uid:?}: {}",
                report.err()
            );
        }
    }
}

/// A normal user, where no mounts can be made; root can read everything, so it needs no other bombs.
#[test]
fn without_mounts_the_runner_counts_everywhere() {
    let uid = is_root().then_some(64_142);
    for (name, source) in BOMBS {
        let report = explode(Runner::boot_on("no-mounts", uid), |start| start.identity = None, source);
        assert_eq!(report.ready[0].locks.unwrap().work, WorkBound::Watched);
        assert_eq!(
            report.exit(),
            &Exit::FileLimit,
            "{name}: {}{}",
            report.out(),
            report.err()
        );
    }
}

/// A process of a binary that it may execute and not read belongs to root in /proc, with the descriptors that it got.
#[test]
fn without_mounts_a_process_whose_descriptors_are_hidden_is_too_much() {
    if is_skipped("without_mounts_a_process_whose_descriptors_are_hidden_is_too_much") {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    let sleep = programs.path().join("sleep");
    let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(&sleep).status();
    assert!(copied.unwrap().success());
    // The second one ends when the limits were checked, which a busy machine does late.
    for (mode, expected, seconds) in [(0o755, "\n", "1"), (0o711, "", "30")] {
        for path in [programs.path(), &sleep] {
            let mode = std::fs::Permissions::from_mode(if path == sleep { mode } else { 0o711 });
            std::fs::set_permissions(path, mode).unwrap();
        }
        let report = explode(
            Runner::boot_on("no-mounts", Some(64_146)),
            |start| {
                start.identity = None;
                start.execute.push(programs.path().to_str().unwrap().to_owned());
            },
            &format!(
                "import subprocess\nsubprocess.run([{sleep:?}, '{seconds}']); print(flush=True); raise OSError(1, '')"
            ),
        );
        assert!(
            report.out().starts_with(expected),
            "{mode:o}: {:?} {}",
            report.exit(),
            report.err()
        );
        assert_eq!(
            report.exit() == &Exit::FileLimit,
            mode == 0o711,
            "{mode:o}: {:?}",
            report.exit()
        );
    }
}

#[test]
fn without_mounts_a_run_that_ends_between_two_checks_is_counted_at_its_end() {
    let many = "for i in range(500): open('f%d' % i, 'w')";
    let large = "open('f', 'wb').write(bytes([7]) * (9 << 20))";
    let few = "for i in range(100): open('f%d' % i, 'w')";
    // Exits with 3, by a signal, and within the limits.
    let cases = [
        (format!("import os\n{many}\nos._exit(3)"), Exit::FileLimit),
        (format!("import os\n{many}\nos.kill(os.getpid(), 11)"), Exit::FileLimit),
        (format!("import os\n{large}\nos._exit(0)"), Exit::FileLimit),
        (format!("import os\n{few}\nos._exit(3)"), Exit::Code { code: 3 }),
    ];
    for (source, exit) in cases {
        let mut runner = Runner::boot_on("no-mounts", None);
        let mut start = runner.start_frame(python());
        start.watch = Watch {
            work_files: Some(FILES),
            work_bytes: Some(BYTES),
            ..Watch::default()
        };
        runner.start(start);
        runner.run(code(&source));
        let report = runner.finish();
        assert_eq!(report.exit(), &exit, "{source}");
    }
}

/// Everything but the working directory is mounted read-only; the skills are still staged, by the runner and by others; and
/// nothing of it is seen outside.
#[test]
fn the_mounts_of_a_run_are_its_own() {
    let uid = is_root().then_some(64_143);
    let mut runner = uid.map_or_else(Runner::boot, Runner::boot_as);
    let own = tempfile::NamedTempFile::new().unwrap();
    if uid.is_some() {
        std::os::unix::fs::chown(own.path(), uid, uid).unwrap();
    }
    let mut start = runner.start_frame(python());
    start.identity = None;
    start.watch = Watch {
        work_files: Some(FILES),
        work_bytes: Some(BYTES),
        ..Watch::default()
    };
    runner.start(start);
    let mut report = runner.wait_ready();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(runner.directory.path().to_str().unwrap()), "{mounts}");
    runner.stage(Area::Skills, "s/one.txt", b"one", false);
    let outside = runner.directory.path().join("skills/s/two.txt");
    // The runner has made the folder by the time it answers; a rejected frame is an answer.
    runner.start_again();
    runner.read_until(&mut report, |frame| {
        matches!(frame, knack_runner::protocol::FromRunner::Rejected(_))
    });
    std::fs::write(&outside, "two").unwrap();
    runner.run(code(&format!(
        "import os, errno\nprint(open('skills/s/one.txt').read(), open('skills/s/two.txt').read())\nfor attempt in (lambda: os.chmod({path:?}, 0o600), lambda: os.utime({path:?}, (1, 1)), lambda: open('skills/s/one.txt', 'w')):\n    try: attempt(); print('OPEN')\n    except OSError as error: print(errno.errorcode[error.errno])\nopen('result', 'w').write('out')",
        path = own.path()
    )));
    runner.finish_into(&mut report);
    assert_eq!(report.out(), "one two\nEROFS\nEROFS\nEACCES\n", "{}", report.err());
    assert_eq!(report.files["result"], b"out");
    assert_eq!(std::fs::read_dir(runner.work()).unwrap().count(), 0);
}
