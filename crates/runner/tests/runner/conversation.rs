//! The rules of the frames.

use knack_runner::protocol::{
    Claim, Exit, FromRunner, Interpreter, Language, MAX_LINE_BYTES, PROTOCOL, Program, Run, ToRunner,
};

use crate::support::{NONCE, Runner, Told, code, python};

fn rejections(told: &Told) -> Vec<String> {
    let rejected = told.frames.iter().filter_map(|frame| match frame {
        FromRunner::Rejected(rejected) => Some(rejected.message.clone()),
        _ => None,
    });
    rejected.collect()
}

#[test]
fn frames_come_in_the_documented_order() {
    let mut runner = Runner::boot();
    let start = runner.start_frame(python());
    runner.start(start);
    let mut told = runner.wait_ready();
    runner.run(code("print('ä')"));
    runner.finish_into(&mut told);
    let names: Vec<String> = told
        .frames
        .iter()
        .map(|frame| serde_json::to_value(frame).unwrap()["type"].to_string())
        .collect();
    assert_eq!(
        names,
        ["\"ready\"", "\"claimed\"", "\"ready\"", "\"started\"", "\"result\""]
    );
    assert_eq!(
        (
            told.ready[0].nonce.as_str(),
            told.ready[0].protocol,
            told.ready[0].locks
        ),
        ("", PROTOCOL, None)
    );
    let FromRunner::Started(started) = &told.frames[3] else {
        panic!()
    };
    // printf "print('ä')" | sha256sum
    assert_eq!((started.id.as_str(), started.digest.len()), ("run-1", 64));
    assert_eq!(told.out(), "ä\n");
}

#[test]
fn a_foreign_nonce_is_ignored_and_a_second_owner_told() {
    let mut runner = Runner::boot();
    runner.send(&ToRunner::Claim(Claim {
        nonce: "other".to_owned(),
    }));
    let mut start = runner.start_frame(python());
    start.nonce = "other".to_owned();
    runner.start(start);
    let start = runner.start_frame(python());
    runner.start(start);
    let mut told = runner.wait_ready();
    let foreign = Run {
        nonce: "other".to_owned(),
        id: "foreign".to_owned(),
        context: String::new(),
        program: code("print('foreign')"),
        cwd: knack_runner::protocol::Cwd::Work,
        environment: std::collections::BTreeMap::new(),
        limits: knack_runner::protocol::Limits::default(),
    };
    runner.run_frame(foreign);
    runner.run(code("print('ours')"));
    runner.finish_into(&mut told);
    assert_eq!((told.out().as_str(), told.result().id.as_str()), ("ours\n", "run-1"));
    let claimed = told
        .frames
        .iter()
        .filter(|frame| matches!(frame, FromRunner::Claimed(claimed) if claimed.nonce == NONCE));
    assert_eq!((claimed.count(), rejections(&told).len()), (2, 0));
}

#[test]
fn bad_lines_and_wrong_order_are_rejected_and_change_nothing() {
    let mut runner = Runner::boot();
    runner.send_raw(b"not json\n");
    let mut long = vec![b'x'; MAX_LINE_BYTES + 10];
    long.push(b'\n');
    runner.send_raw(&long);
    runner.run(code("print('too early')"));
    runner.stage(knack_runner::protocol::Area::Work, "a", b"", false);
    let start = runner.start_frame(python());
    runner.start(start.clone());
    runner.start(start);
    runner.run(code("import time; time.sleep(0.3); print('once')"));
    runner.run(code("print('twice')"));
    let told = runner.finish();
    let rejections = rejections(&told);
    let beginnings: Vec<&str> = rejections.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        beginnings,
        [
            "frame is malformed",
            "frame is longer than 4194304 bytes",
            "run",
            "files",
            "start",
            "run"
        ]
    );
    assert_eq!(told.out(), "once\n");
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
    let told = runner.finish();
    let Exit::NotStarted { reason } = told.exit() else {
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
        let told = runner.finish();
        let Exit::NotStarted { reason } = told.exit() else {
            panic!("{:?}", told.exit())
        };
        assert!(reason.starts_with(expected), "{reason}");
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
    let mut told = Told::default();
    runner.finish_into(&mut told);
}

#[test]
fn a_journal_names_the_run_and_seals_what_it_wrote() {
    let key = vec![3_u8; knack_runner::protocol::KEY_BYTES];
    let mut runner = Runner::boot();
    let mut frame = runner.start_frame(python());
    frame.journal = Some(knack_runner::protocol::Journal {
        key: Some(knack_runner::protocol::Data(key.clone())),
        max_bytes: 6 << 20,
    });
    runner.start(frame);
    let run = Run {
        nonce: NONCE.to_owned(),
        id: "journal".to_owned(),
        context: "ours".to_owned(),
        program: code("print('secret'); open('f.txt', 'w').write('content')"),
        cwd: knack_runner::protocol::Cwd::Work,
        environment: std::collections::BTreeMap::new(),
        limits: knack_runner::protocol::Limits::default(),
    };
    runner.run_frame(run);
    let mut told = Told::default();
    runner.read_until(&mut told, |frame| {
        matches!(frame, FromRunner::Sealed(sealed)
            if matches!(knack_runner::protocol::open(&key, sealed), Some(FromRunner::Result(_))))
    });
    let mut opened = Vec::new();
    for frame in &told.frames {
        match frame {
            FromRunner::Sealed(sealed) => {
                opened.push(knack_runner::protocol::open(&key, sealed).expect("our key opens it"));
            }
            FromRunner::Started(started) => {
                assert_eq!((started.id.as_str(), started.context.as_str()), ("journal", "ours"));
            }
            FromRunner::Ready(_) | FromRunner::Claimed(_) => {}
            other => panic!("{other:?} is not sealed"),
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
    assert_eq!(result.exit, Exit::Code { code: 0 });
}

#[test]
fn a_full_log_ends_the_run_and_names_the_files_that_do_not_fit() {
    let mut runner = Runner::boot();
    let mut frame = runner.start_frame(python());
    // 256 KiB are kept free, so about 180 KB of 500 KiB hold output.
    frame.journal = Some(knack_runner::protocol::Journal {
        key: None,
        max_bytes: 500 << 10,
    });
    runner.start(frame);
    runner.run(code("open('big', 'wb').write(bytes(200000)); print('x' * 900000)"));
    let told = runner.finish();
    assert_eq!(told.exit(), &Exit::OutputLimit);
    assert!(told.result().stdout.truncated);
    assert!(
        told.stdout.len() > 100_000 && told.stdout.len() < 200_000,
        "{}",
        told.stdout.len()
    );
    assert!(told.errors.contains_key("big"), "{:?}", told.errors);
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
