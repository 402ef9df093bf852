//! Files out of the work directory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use knack_runner::protocol::{Area, Exit, FileErrorKind, FromRunner};

use crate::support::{RunReport, Runner, TIMEOUT_MS, code, python, run_python, run_python_with};

#[test]
fn new_and_changed_files_come_back_and_unchanged_ones_do_not() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    for (path, bytes) in [
        ("same.txt", "same"),
        ("rewritten.txt", "same"),
        ("d/changed.bin", "old"),
        ("gone.txt", "x"),
    ] {
        runner.stage(Area::Work, path, bytes.as_bytes(), false);
    }
    runner.run(code(
        "import os\nopen('d/changed.bin', 'wb').write(bytes(range(256)))\nopen('rewritten.txt', 'w').write('same')\nos.remove('gone.txt')\nos.makedirs('n/e')\nopen('n/e/w', 'w')\nopen('.hidden', 'w').write('h')\nimport tempfile; open(os.path.join(tempfile.gettempdir(), 'scratch'), 'w').write('t')\n",
    ));
    let report = runner.finish();
    let expected = BTreeMap::from([
        (".hidden".to_owned(), b"h".to_vec()),
        ("d/changed.bin".to_owned(), (0..=255).collect()),
        ("n/e/w".to_owned(), Vec::new()),
    ]);
    assert_eq!((&report.files, report.errors.len()), (&expected, 0), "{}", report.err());
    assert_eq!((report.result().files, report.result().file_errors), (3, 0));
}

#[test]
fn large_files_come_in_pieces() {
    let report = run_python("import os\nopen('big', 'wb').write(bytes(i * 7 % 251 for i in range(1_000_000)))");
    let expected: Vec<u8> = (0..1_000_000_u64).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    assert!(report.files["big"] == expected);
}

#[test]
fn links_pipes_and_odd_names_are_reported_and_not_opened() {
    let report = run_python(
        r#"
import os
os.symlink("/etc/passwd", "passwd"); os.symlink("/etc", "etc"); os.mkfifo("pipe")
open("one", "w").write("x"); os.link("one", "two")
open(b"bad-\xff", "w").write("x")
open("closed", "w").write("x")
deep = "/".join("d" * 1 for _ in range(40)); os.makedirs(deep); open(deep + "/f", "w")
"#,
    );
    let kinds: BTreeMap<&str, FileErrorKind> = report
        .errors
        .iter()
        .map(|(path, kind)| (path.as_str(), *kind))
        .collect();
    let at_32 = ["d"; 32].join("/");
    let expected = BTreeMap::from([
        ("passwd", FileErrorKind::Symlink),
        ("etc", FileErrorKind::Symlink),
        ("pipe", FileErrorKind::Special),
        ("one", FileErrorKind::Hardlink),
        ("two", FileErrorKind::Hardlink),
        ("bad-\u{fffd}", FileErrorKind::Name),
        (at_32.as_str(), FileErrorKind::TooDeep),
    ]);
    assert_eq!(kinds, expected, "{}", report.err());
    assert_eq!(report.files.keys().collect::<Vec<_>>(), ["closed"]);
}

/// The text about the first file that is not collected.
fn first_file_error(report: &RunReport) -> String {
    let mut messages = report.frames.iter().filter_map(|frame| match frame {
        FromRunner::FileError(error) => Some(error.message.clone()),
        _ => None,
    });
    messages.next().unwrap()
}

#[test]
fn size_and_count_are_capped_with_an_error_by_name() {
    let report = run_python_with(
        "open('a', 'w').write('x' * 600)\nopen('b', 'w').write('x' * 600)\nopen('c', 'w').write('x' * 400)",
        |start| {
            start.limits.result_bytes = Some(1000);
        },
    );
    assert_eq!(report.files.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(
        report.errors,
        BTreeMap::from([("b".to_owned(), FileErrorKind::TooLarge)])
    );
    let limit = "600 bytes; the limit for files of one run is 1000 bytes, of which 400 bytes are left";
    assert_eq!(first_file_error(&report), limit);
    let report = run_python("open('a', 'wb').write(bytes(5 << 20))");
    let limit = "5242880 bytes; the limit for files of one run is 4 MiB, of which 4 MiB are left";
    assert_eq!(first_file_error(&report), limit);
    let report = run_python_with("for i in range(7): open('f%d' % i, 'w')", |start| {
        start.limits.result_files = Some(5);
    });
    assert_eq!(report.files.len(), 5);
    assert_eq!(report.errors, BTreeMap::from([(String::new(), FileErrorKind::TooMany)]));
}

#[test]
fn a_sparse_terabyte_is_not_read() {
    let report = run_python_with("open('s', 'wb').truncate(1 << 40)", |start| {
        start.limits.file_bytes = Some(2 << 40);
    });
    assert_eq!(
        report.errors,
        BTreeMap::from([("s".to_owned(), FileErrorKind::TooLarge)]),
        "{}",
        report.err()
    );
}

#[test]
fn a_hundred_thousand_files_are_handled_in_bounded_time() {
    // In memory where there is room: 100,000 files on a busy disk take longer than the test may.
    let mut runner = Runner::boot_in(&["/dev/shm", "/tmp"]);
    let mut start = runner.start_frame(python());
    start.limits.timeout_ms = Some(120_000);
    runner.start(start);
    runner.run(code(
        "import os\nfor d in range(100):\n    os.mkdir('d%d' % d)\n    for i in range(1000): os.close(os.open('d%d/%d' % (d, i), os.O_CREAT | os.O_WRONLY))\n",
    ));
    let report = runner.finish();
    assert_eq!(report.exit(), &Exit::Code { code: 0 }, "{}", report.err());
    assert_eq!((report.files.len(), report.result().file_errors), (200, 1));
    assert_eq!(
        first_file_error(&report),
        "99800 more files over the limit of 200 files"
    );
}

#[test]
fn staged_paths_cannot_leave() {
    for (area, path) in [
        (Area::Work, "../x"),
        (Area::Work, "/tmp/x"),
        (Area::Work, "a/../../x"),
        (Area::Work, "skills/t/x"),
        (Area::Skills, "../work/x"),
        (Area::Skills, ""),
    ] {
        let began = Instant::now();
        let mut runner = Runner::boot();
        let start = runner.start_frame(None);
        runner.start(start);
        runner.stage(area, path, b"x", false);
        let report = runner.finish();
        let Exit::NotStarted { reason, .. } = report.exit() else {
            panic!("{path}: {:?}", report.exit())
        };
        assert!(reason.starts_with("file "), "{reason}");
        // It does not wait for the end of a run.
        assert!(began.elapsed() < Duration::from_millis(TIMEOUT_MS - 10_000));
    }
}
