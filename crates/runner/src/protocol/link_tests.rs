use proptest::prelude::*;

use super::*;
use crate::fixture::mk_result;
use crate::protocol::{
    Area, Data, Exit, FileError, FileErrorKind, FilePiece, Files, LandlockState, Locks, Output, OutputStream, Ready,
    Rejected, StagedFile, Started, WorkBound,
};

const KEY: Key = Key::new([7; 32]);
const OTHER: Key = Key::new([8; 32]);

fn line(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap()
}

fn started() -> FromRunner {
    FromRunner::Started(Started {
        id: "x".to_owned(),
        digest: "d".to_owned(),
        locks: Locks {
            seccomp: true,
            landlock: LandlockState::FullyEnforced,
            landlock_abi: 7,
            work: WorkBound::Outside,
        },
        context: String::new(),
    })
}

fn secrets() -> Vec<FromRunner> {
    vec![
        FromRunner::Output(Output {
            stream: OutputStream::Stderr,
            data: Data(vec![0, 10, 255, b'{', b'\n']),
        }),
        FromRunner::File(FilePiece {
            path: "a\nb".to_owned(),
            mode: 0o644,
            size: 3,
            sha256: "00".to_owned(),
            offset: 0,
            data: Data(Vec::new()),
            last: true,
        }),
        FromRunner::FileError(FileError {
            path: "x".to_owned(),
            kind: FileErrorKind::Symlink,
            message: "no".to_owned(),
        }),
        FromRunner::Result(mk_result("x", Exit::Timeout)),
        FromRunner::Rejected(Rejected {
            message: "a word of the owner's frame".to_owned(),
        }),
    ]
}

#[test]
fn only_the_key_makes_a_frame_of_the_owner() {
    let mut owner = OwnerLink::new(KEY);
    let mut runner = RunnerLink::new(&KEY);
    let cancel = owner.encode(&ToRunner::Cancel);
    assert_eq!(RunnerLink::new(&OTHER).read(line(&cancel)), Err(LineRefusal::Stranger));
    // No byte of it can be changed, dropped or added.
    let bytes = line(&cancel);
    for position in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[position] ^= 1;
        assert_eq!(
            RunnerLink::new(&KEY).read(&changed),
            Err(LineRefusal::Stranger),
            "{position}"
        );
        changed.remove(position);
        assert_eq!(
            RunnerLink::new(&KEY).read(&changed),
            Err(LineRefusal::Stranger),
            "{position}"
        );
    }
    for stranger in [
        &b"{\"type\":\"cancel\"}"[..],
        b"{\"type\":\"ack\",\"mac\":\"AAAA\"}",
        b"x",
        b"",
    ] {
        assert_eq!(runner.read(stranger), Err(LineRefusal::Stranger));
    }
    assert_eq!(runner.read(bytes), Ok(ToRunner::Cancel));
    // Neither twice, nor after one that is missing.
    assert_eq!(runner.read(bytes), Err(LineRefusal::Lost { due: 1, came: 0 }));
    drop(owner.encode(&ToRunner::Cancel));
    let third = owner.encode(&ToRunner::Ack);
    assert_eq!(runner.read(line(&third)), Err(LineRefusal::Lost { due: 1, came: 2 }));
}

#[test]
fn a_frame_of_one_side_is_none_of_the_other() {
    let mut owner = OwnerLink::new(KEY);
    let mut runner = RunnerLink::new(&KEY);
    // `{"type":"cancel"...}` means nothing to an owner; what counts is that it does not prove itself.
    let from_owner = owner.encode(&ToRunner::Ack);
    assert_eq!(Reader::new(&KEY).read(line(&from_owner)), Incoming::Nothing);
    let from_runner = runner.encode(&started());
    assert_eq!(
        RunnerLink::new(&KEY).read(line(&from_runner)),
        Err(LineRefusal::Stranger)
    );
    assert_eq!(
        Reader::new(&OTHER).read(line(&from_runner)),
        Incoming::Unproven(started())
    );
    assert_eq!(Reader::new(&KEY).read(line(&from_runner)), Incoming::Frame(started()));
}

#[test]
fn a_bind_is_read_without_a_key_and_a_key_is_not_printed() {
    let mut runner = RunnerLink::new(&KEY);
    for key in [KEY, OTHER] {
        let bind = OwnerLink::new(key.clone()).bind();
        let Err(LineRefusal::Bind(bind)) = runner.read(line(&bind)) else {
            panic!("a `claim` is distinguished");
        };
        assert!(bind.key == key);
    }
    assert_eq!(format!("{KEY:?}"), "Key(..)");
}

#[test]
fn both_sides_name_what_was_asked_with_the_same_digest() {
    let (mut owner, mut runner) = (OwnerLink::new(KEY), RunnerLink::new(&KEY));
    let file = |bytes: &[u8]| {
        ToRunner::Files(Files {
            area: Area::Work,
            files: vec![StagedFile {
                path: "a".to_owned(),
                data: Data::from(bytes),
                append: false,
                executable: false,
            }],
        })
    };
    for bytes in [&b"1"[..], b"2"] {
        let frame = owner.encode(&file(bytes));
        assert!(runner.read(line(&frame)).is_ok());
        assert_eq!(runner.request_digest(), owner.request_digest());
    }
    let mut another = OwnerLink::new(KEY);
    drop(another.encode(&file(b"1")));
    assert_ne!(another.request_digest(), owner.request_digest());
    drop(another.encode(&file(b"3")));
    assert_ne!(another.request_digest(), owner.request_digest());
}

#[test]
fn sealed_frames_open_for_the_key_alone_and_show_nothing() {
    let mut runner = RunnerLink::new(&KEY);
    runner.seal();
    let mut reader = Reader::of_log(&KEY);
    for frame in secrets() {
        let sealed = runner.encode(&frame);
        let text = String::from_utf8(line(&sealed).to_vec()).unwrap();
        assert!(text.starts_with("{\"type\":\"sealed\",\"sequence\":"), "{text}");
        for word in ["stderr", "a\\nb", "owner's", "timeout", "symlink"] {
            assert!(!text.contains(word), "{text}");
        }
        assert_eq!(Reader::new(&OTHER).read(line(&sealed)), Incoming::Nothing);
        assert_eq!(reader.read(line(&sealed)), Incoming::Frame(frame));
        // Under another number it does not open.
        let FromRunner::Sealed(mut moved) = serde_json::from_slice(line(&sealed)).unwrap() else {
            panic!("{text}");
        };
        moved.sequence += 1;
        let moved = encode(&FromRunner::Sealed(moved));
        assert_eq!(Reader::new(&KEY).read(line(&moved)), Incoming::Nothing);
    }
    let plain = runner.encode(&started());
    assert!(
        String::from_utf8(plain)
            .unwrap()
            .starts_with("{\"type\":\"started\",\"id\":\"x\"")
    );
}

#[test]
fn a_frame_that_is_missing_is_noticed() {
    let mut runner = RunnerLink::new(&KEY);
    let lines: Vec<Vec<u8>> = secrets().iter().map(|frame| runner.encode(frame)).collect();
    // Joined late: any first number is accepted.
    let mut late = Reader::new(&KEY);
    assert!(matches!(late.read(line(&lines[1])), Incoming::Frame(_)));
    assert!(matches!(late.read(line(&lines[2])), Incoming::Frame(_)));
    assert_eq!(late.read(line(&lines[4])), Incoming::Gap { due: 3, came: 4 });
    // A log whose beginning was rotated away.
    assert_eq!(
        Reader::of_log(&KEY).read(line(&lines[1])),
        Incoming::Gap { due: 0, came: 1 }
    );
}

#[test]
fn what_a_runner_says_before_the_bind_proves_nothing() {
    let ready = FromRunner::Ready(Ready {
        protocol_min: None,
        protocol: 2,
        version: "0.0.1".to_owned(),
        locks: None,
    });
    assert_eq!(
        Reader::of_log(&KEY).read(line(&encode(&ready))),
        Incoming::Unproven(ready)
    );
    let Ok(FromRunner::Ready(old)) = serde_json::from_slice(br#"{"type":"ready","protocol":2,"version":"0.1.0"}"#)
    else {
        panic!("the `ready` of an older runner is read");
    };
    assert_eq!(old.protocols(), 2..=2);
}

proptest! {
    #[test]
    fn no_line_of_a_stranger_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,200}") {
        for stranger in [&bytes[..], text.as_bytes(), format!("{{\"type\":\"ack\",\"mac\":\"{text}\"}}").as_bytes()] {
            prop_assert!(RunnerLink::new(&KEY).read(stranger).is_err());
            prop_assert!(!matches!(Reader::new(&KEY).read(stranger), Incoming::Frame(_)));
        }
    }
}
