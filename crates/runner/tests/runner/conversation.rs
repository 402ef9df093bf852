//! The rules of the frames.

use knack_runner::protocol::{
    Area, Bind, Cwd, Data, Exit, Files, FromRunner, Incoming, Interpreter, Journal, Key, Language, Limits,
    MAX_LINE_BYTES, OwnerLink, PROTOCOL, PROTOCOL_MIN, Program, Reader, Run, StagedFile, ToRunner, encode,
};

use crate::support::{KEY, RunReport, Runner, WAITS, code, python};

fn rejections(report: &RunReport) -> Vec<String> {
    let rejected = report.frames.iter().filter_map(|frame| match frame {
        FromRunner::Rejected(rejected) => Some(rejected.message.clone()),
        _ => None,
    });
    rejected.collect()
}

/// A run of this source with this id.
fn run(id: &str, source: &str) -> Run {
    Run {
        id: id.to_owned(),
        context: "ours".to_owned(),
        program: code(source),
        cwd: Cwd::Work,
        environment: std::collections::BTreeMap::new(),
        limits: Limits::default(),
        require_landlock: 0,
    }
}

#[test]
fn frames_come_in_the_documented_order() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    let mut report = runner.wait_ready();
    runner.run(code("print('ä')"));
    runner.finish_into(&mut report);
    let names: Vec<String> = report
        .frames
        .iter()
        .map(|frame| serde_json::to_value(frame).unwrap()["type"].to_string())
        .collect();
    assert_eq!(names, ["\"claimed\"", "\"ready\"", "\"started\"", "\"result\""]);
    let [FromRunner::Ready(boot)] = &report.unproven[..] else {
        panic!("{:?}", report.unproven)
    };
    assert_eq!((boot.protocols(), boot.locks), (PROTOCOL_MIN..=PROTOCOL, None));
    let FromRunner::Started(started) = &report.frames[2] else {
        panic!()
    };
    let asked = runner.link.request_digest();
    assert_ne!(asked, started.digest, "`ack` is no part of what was asked");
    assert_eq!(
        (started.id.as_str(), &started.digest),
        ("run-1", &report.result().digest)
    );
    assert_eq!(Some(started.locks), report.ready[0].locks);
    assert_eq!(report.out(), "ä\n");
}

/// Everything that a stranger can do with `pods/attach` and `pods/log`, between any two frames of the owner.
#[test]
fn a_stranger_can_neither_speak_nor_make_the_runner_speak() {
    let stranger = Key::new([6; 32]);
    let mut forged = OwnerLink::new(stranger.clone());
    let mut lines = vec![forged.bind(), b"{\"type\":\"ack\"}\n".to_vec(), b"not json\n".to_vec()];
    let steal = run("stolen", "print('foreign')");
    let file = StagedFile {
        path: "planted.py".to_owned(),
        data: Data(b"x".to_vec()),
        append: false,
        executable: false,
    };
    for frame in [
        ToRunner::Files(Files {
            area: Area::Work,
            files: vec![file],
        }),
        ToRunner::Run(steal),
        ToRunner::Cancel,
        ToRunner::Ack,
    ] {
        // With a key of his own, and without any mac.
        lines.push(forged.encode(&frame));
        lines.push(encode(&frame));
    }
    let mut runner = Runner::boot();
    let inject = |runner: &mut Runner| lines.iter().for_each(|line| runner.send_raw(line));
    inject(&mut runner);
    let start = runner.start_frame(python());
    let own = runner.link.encode(&ToRunner::Start(start));
    runner.send_raw(&own);
    inject(&mut runner);
    // The owner's own frame a second time is a frame out of turn, and no stranger sees one to repeat it.
    let mut report = runner.wait_ready();
    inject(&mut runner);
    runner.run(code(&format!("{WAITS}print('ours', sorted(os.listdir()))")));
    inject(&mut runner);
    // Frames are answered in their order.
    runner.send_raw(&forged.bind());
    while answered_binds(&report) < 6 && report.result.is_none() {
        runner.read_until(&mut report, |frame| {
            matches!(frame, FromRunner::Bound(_) | FromRunner::Result(_))
        });
    }
    runner.let_go();
    runner.finish_into(&mut report);
    assert_eq!(report.out(), "ours ['.home', '.tmp', 'skills']\n");
    assert_eq!(report.result().id, "run-1");
    assert_eq!(rejections(&report), Vec::<String>::new());
    // A stranger's `claim` is answered with a proof that only the owner's key makes.
    assert_eq!(answered_binds(&report), 6);
}

fn answered_binds(report: &RunReport) -> usize {
    let frames = report.frames.iter();
    frames.filter(|frame| matches!(frame, FromRunner::Bound(_))).count()
}

#[test]
fn the_first_bind_owns_the_runner_and_later_ones_are_answered_so() {
    let mut runner = Runner::boot_unbound();
    let first = OwnerLink::new(Key::new([6; 32])).bind();
    runner.send_raw(&first);
    runner.bind();
    let lines = runner.read_lines(3);
    let mut ours = Reader::new(&KEY);
    for line in &lines {
        let heard = ours.read(line);
        assert!(matches!(heard, Incoming::Unproven(_)), "{heard:?}");
    }
    let mut theirs = Reader::of_log(&Key::new([6; 32]));
    assert!(matches!(
        theirs.read(&lines[0]),
        Incoming::Unproven(FromRunner::Ready(_))
    ));
    for line in &lines[1..] {
        assert!(matches!(theirs.read(line), Incoming::Frame(FromRunner::Bound(_))));
    }
}

/// Two writers of one stdin mix their bytes: the owner's frame is then damaged, and the runner does not go on without it.
#[test]
fn a_damaged_frame_ends_the_conversation() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    drop(runner.wait_ready());
    runner.send_raw(b"{\"type\":\"files\",\"area\":");
    runner.stage(Area::Work, "input.txt", b"needed", false);
    runner.run(code("print(open('input.txt').read())"));
    let report = runner.finish();
    let Exit::NotStarted {
        reason,
        of_program: Some(false),
    } = report.exit()
    else {
        panic!("{:?}", report.exit())
    };
    assert_eq!(reason, "frame 1 of the owner is missing: frame 2 arrived instead");
}

#[test]
fn the_protocol_is_the_newest_that_both_sides_speak() {
    let mut runner = Runner::boot_unbound();
    for (oldest, newest) in [(PROTOCOL + 1, PROTOCOL + 2), (1, PROTOCOL_MIN - 1)] {
        runner.send_raw(&encode(&ToRunner::Bind(Bind {
            key: KEY,
            protocol_min: oldest,
            protocol: newest,
        })));
    }
    runner.send_raw(b"{\"type\":\"claim\",\"nonce\":\"of protocol 2\"}\n");
    runner.send_raw(&encode(&ToRunner::Bind(Bind {
        key: KEY,
        protocol_min: 1,
        protocol: PROTOCOL + 9,
    })));
    let mut reader = Reader::of_log(&KEY);
    let heard: Vec<Incoming> = runner.read_lines(5).iter().map(|line| reader.read(line)).collect();
    for position in 0..3 {
        let Incoming::Unproven(FromRunner::Ready(ready)) = &heard[position] else {
            panic!("{heard:?}")
        };
        assert_eq!(ready.protocols(), PROTOCOL_MIN..=PROTOCOL);
    }
    let Incoming::Unproven(FromRunner::Rejected(rejected)) = &heard[3] else {
        panic!("{heard:?}")
    };
    assert!(rejected.message.contains("protocol 3"), "{}", rejected.message);
    assert!(
        matches!(&heard[4], Incoming::Frame(FromRunner::Bound(bound)) if bound.protocol == PROTOCOL),
        "{heard:?}"
    );
}

/// What is said before there is an owner goes into the log: neither its number nor its content is a stranger's choice.
#[test]
fn strangers_cannot_fill_the_log_before_the_bind_or_after_it() {
    let mut runner = Runner::boot_unbound();
    for _ in 0..500 {
        runner.send_raw(b"{\"type\":\"claim\",\"key\":\"secret that somebody typed\"}\n");
        runner.send_raw(&[&vec![b'x'; 9000][..], b"\n"].concat());
    }
    for _ in 0..500 {
        runner.bind();
    }
    let start = runner.start_frame(None);
    runner.start(start);
    runner.send(&ToRunner::Cancel);
    let mut report = RunReport::default();
    runner.finish_into(&mut report);
    let rejected = report
        .unproven
        .iter()
        .filter(|frame| matches!(frame, FromRunner::Rejected(_)));
    assert_eq!(rejected.count(), 8);
    let said = serde_json::to_string(&report.unproven).unwrap();
    assert!(!said.contains("typed") && !said.contains("xx"), "{said}");
    let bound = report
        .frames
        .iter()
        .filter(|frame| matches!(frame, FromRunner::Bound(_)));
    assert_eq!(bound.count(), 8);
}

#[test]
fn frames_in_a_wrong_order_are_rejected_and_change_nothing() {
    let mut runner = Runner::boot();
    runner.run(code("print('too early')"));
    runner.stage(Area::Work, "a", b"", false);
    let start = runner.start_frame(python());
    runner.start(start.clone());
    runner.start(start);
    runner.run_frame(run(&"i".repeat(129), "print('long id')"));
    let long = Run {
        context: "\n".repeat(2100),
        ..run("x", "print('long context')")
    };
    runner.run_frame(long);
    runner.run(code(&format!("{WAITS}print('once')")));
    runner.run(code("print('twice')"));
    let mut report = RunReport::default();
    while rejections(&report).len() < 6 && report.result.is_none() {
        runner.read_until(&mut report, |frame| {
            matches!(frame, FromRunner::Rejected(_) | FromRunner::Result(_))
        });
    }
    runner.let_go();
    runner.finish_into(&mut report);
    let rejections = rejections(&report);
    let beginnings: Vec<&str> = rejections.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(beginnings, ["run", "files", "start", "run", "run", "run"]);
    assert_eq!(report.out(), "once\n");
    // The same lines without an owner's mac have no effect.
    let mut long = vec![b'x'; MAX_LINE_BYTES + 10];
    long.push(b'\n');
    let mut runner = Runner::boot();
    runner.send_raw(&long);
    let start = runner.start_frame(None);
    runner.start(start);
    runner.send(&ToRunner::Cancel);
    assert!(matches!(runner.finish().exit(), Exit::NotStarted { .. }));
}

/// Programs of both kinds, each with its interpreter, that make a file `begun`.
fn that_begin() -> [(Option<Interpreter>, Program); 2] {
    let argv = vec!["touch".to_owned(), "begun".to_owned()];
    [
        (python(), code("open('begun', 'w')")),
        (None, Program::Command { argv }),
    ]
}

/// An owner that finds no `started` may run the program elsewhere, so nothing has begun before it is written.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a program that began too early has time to show it"
)]
fn a_program_begins_when_started_is_written() {
    for (interpreter, program) in that_begin() {
        let mut runner = Runner::boot();
        let start = runner.start_frame(interpreter);
        runner.start(start);
        drop(runner.wait_ready());
        runner.fill_stdout();
        runner.run(program);
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!runner.work().join("begun").exists(), "before `started` is written");
        let report = runner.finish();
        assert_eq!(report.exit(), &Exit::Code { code: 0 }, "{}", report.err());
        assert!(report.files.contains_key("begun"), "{:?}", report.errors);
    }
}

/// The deadline and the owner's word also hold for a program that has not begun, and it never begins.
#[test]
#[expect(clippy::disallowed_methods, reason = "its deadline passes meanwhile")]
fn a_program_whose_started_is_not_read_ends_at_its_deadline() {
    for (interpreter, program) in that_begin() {
        let mut runner = Runner::boot();
        let mut start = runner.start_frame(interpreter);
        start.limits.timeout_ms = Some(200);
        runner.start(start);
        drop(runner.wait_ready());
        runner.fill_stdout();
        runner.run(program);
        runner.until_read();
        std::thread::sleep(std::time::Duration::from_secs(3));
        let report = runner.finish();
        assert_eq!((report.exit(), report.result().killed), (&Exit::Timeout, 0));
        assert!(report.files.is_empty(), "{:?}", report.files.keys());
    }
}

#[test]
fn long_sources_arrive_whole() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    let text = "äöü".repeat(400_000);
    runner.run(code(&format!("print(len('{text}'))")));
    assert_eq!(runner.finish().out(), "1200000\n");
}

#[test]
fn what_cannot_start_says_why() {
    let mut runner = Runner::boot();
    let mut start = runner.start_frame(python());
    start.directory = "/no/such/directory".to_owned();
    runner.start(start);
    let report = runner.finish();
    let Exit::NotStarted { reason, .. } = report.exit() else {
        panic!()
    };
    assert_eq!(
        reason,
        "directory \"/no/such/directory\": cannot open: No such file or directory (os error 2)"
    );

    for (path, expected) in [
        ("/usr/bin/no-python", "cannot execute"),
        ("/usr/bin/false", "the interpreter ended before it was ready"),
    ] {
        let mut runner = Runner::boot();
        let start = runner.start_frame(Some(Interpreter {
            language: Language::Python,
            path: path.to_owned(),
        }));
        runner.start(start);
        runner.run(code("print(1)"));
        let report = runner.finish();
        let Exit::NotStarted { reason, of_program } = report.exit() else {
            panic!("{:?}", report.exit())
        };
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(*of_program, Some(false), "the program is not the interpreter");
    }
    let mut runner = Runner::boot();
    let start = runner.start_frame(None);
    runner.start(start);
    runner.run(Program::Command {
        argv: vec!["skills/../work/x".to_owned()],
    });
    assert!(matches!(runner.finish().exit(), Exit::NotStarted { .. }));
}

#[test]
fn an_idle_runner_ends_with_its_stdin() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    drop(runner.wait_ready());
    runner.close_stdin();
    let mut report = RunReport::default();
    runner.finish_into(&mut report);
}

#[test]
fn a_journal_names_the_run_and_seals_what_it_wrote() {
    let mut runner = Runner::boot();
    let mut frame = runner.start_frame(python());
    frame.journal = Some(Journal {
        seal: true,
        max_bytes: 6 << 20,
    });
    runner.start(frame);
    runner.run_frame(run("journal", "print('secret'); open('f.txt', 'w').write('content')"));
    let asked = runner.link.request_digest();
    let mut reader = Reader::of_log(&KEY);
    let mut opened = Vec::new();
    // As the log has it: every line from the first one on.
    for line in runner.read_lines(7) {
        let text = String::from_utf8(line.clone()).unwrap();
        for word in ["secret", "f.txt", "content", "wall_us"] {
            assert!(!text.contains(word), "{text}");
        }
        match reader.read(&line) {
            Incoming::Frame(FromRunner::Started(started)) => {
                assert!(
                    text.contains("\"id\":\"journal\"") && text.contains("\"context\":\"ours\""),
                    "{text}"
                );
                assert_eq!(started.digest, asked);
            }
            Incoming::Frame(FromRunner::Ready(_) | FromRunner::Bound(_)) | Incoming::Unproven(FromRunner::Ready(_)) => {
            }
            Incoming::Frame(frame) => {
                assert!(text.starts_with("{\"type\":\"sealed\""), "{text}");
                opened.push(frame);
            }
            other => panic!("{other:?}"),
        }
    }
    let [
        FromRunner::Output(output),
        FromRunner::File(file),
        FromRunner::Result(result),
    ] = &opened[..]
    else {
        panic!("{opened:?}");
    };
    assert_eq!(output.data.0, b"secret\n");
    assert_eq!((file.path.as_str(), &file.data.0[..]), ("f.txt", &b"content"[..]));
    assert_eq!((&result.exit, &result.digest), (&Exit::Code { code: 0 }, &asked));
}

#[test]
fn a_full_log_ends_the_run_and_names_the_files_that_do_not_fit() {
    let mut runner = Runner::boot();
    let mut frame = runner.start_frame(python());
    // 192 KiB are kept free, so about 220 KB of 500 KiB hold output.
    frame.journal = Some(Journal {
        seal: false,
        max_bytes: 500 << 10,
    });
    runner.start(frame);
    runner.run(code("open('big', 'wb').write(bytes(200000)); print('x' * 900000)"));
    let report = runner.finish();
    assert_eq!(report.exit(), &Exit::OutputLimit);
    assert!(report.result().stdout.truncated);
    assert!(
        report.stdout.len() > 200_000 && report.stdout.len() < 300_000,
        "{}",
        report.stdout.len()
    );
    assert!(report.errors.contains_key("big"), "{:?}", report.errors);
}

/// The whole of stdout, as a container runtime writes it into the log, for a run that does everything that makes it long:
/// output, files, and names that JSON writes six times as long.
#[test]
fn a_log_never_exceeds_its_cap_whatever_a_run_is_called_and_writes() {
    let source = r"
import os, sys
for level in range(7):
    os.mkdir('\1' * 250); os.chdir('\1' * 250)
for i in range(150):
    os.symlink('x', '%03d' % i + '\2' * 250)
os.chdir('/'.join(['..'] * 7))
for i in range(200):
    open('\3' * 240 + str(i), 'w').write('y' * 3000)
os.mkdir('d')
for i in range(200):
    open('d/' + 'n' * 250 + str(i), 'w')
sys.stdout.write('o' * 90000)
";
    for seal in [false, true] {
        for max_bytes in [256 << 10, 600 << 10, 6 << 20] {
            let mut runner = Runner::boot();
            let mut frame = runner.start_frame(python());
            frame.journal = Some(Journal { seal, max_bytes });
            frame.limits.result_files = Some(3200);
            runner.start(frame);
            runner.run(code(source));
            let report = runner.finish();
            assert!(runner.logged <= max_bytes, "{} of {max_bytes}: {seal}", runner.logged);
            assert!(
                report.result().file_errors > 100,
                "{:?} {}",
                report.exit(),
                report.err()
            );
            assert!(
                max_bytes < 6 << 20 || (report.exit() == &Exit::Code { code: 0 } && report.files.len() == 400),
                "{:?} {} {}",
                report.exit(),
                report.files.len(),
                report.err()
            );
        }
    }
}

#[test]
fn a_missing_run_directory_is_made() {
    let mut runner = Runner::boot();
    let mut frame = runner.start_frame(python());
    frame.directory.push_str("/run");
    frame.identity = None;
    runner.start(frame);
    runner.run(code("import os; print(os.getcwd().endswith('/run/work'))"));
    assert_eq!(runner.finish().out(), "True\n");
}
