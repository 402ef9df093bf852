//! Good archives are read, evil ones refused by name.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use archives::tar;

#[path = "../../../tests/support/tar.rs"]
mod archives;

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zipped(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, content) in entries {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(*mode);
        writer.start_file(*path, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Two entries of one name, which no writer here makes: the names of both headers are of one length.
fn zipped_twice() -> Vec<u8> {
    let mut bytes = zipped(&[("a/x", 0o644, b"1"), ("b/x", 0o644, b"2")]);
    let names: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"b/x")).collect();
    assert_eq!(names.len(), 2);
    for at in names {
        bytes[at] = b'a';
    }
    bytes
}

fn zipped_link(path: &str, target: &str) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    writer.add_symlink(path, target, options).unwrap();
    writer.finish().unwrap().into_inner()
}

use tar::EntryType::{Block, Directory, GNULongName, Link, Regular, Symlink, XGlobalHeader, XHeader};

#[test]
fn files_come_out_with_their_modes() {
    let plain = tar(&[
        ("skill/", Directory, 0o755, b""),
        ("./skill/SKILL.md", Regular, 0o644, b"hello"),
        ("skill/run.sh", Regular, 0o755, b"#!"),
    ]);
    let packed = zipped(&[("skill/SKILL.md", 0o644, b"hello"), ("skill/run.sh", 0o755, b"#!")]);
    for bytes in [plain.clone(), gz(&plain), packed] {
        let files = unpack(&bytes).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["skill/SKILL.md", "skill/run.sh"]);
        assert_eq!(&*files["skill/SKILL.md"].bytes, b"hello");
        assert!(files["skill/run.sh"].executable && !files["skill/SKILL.md"].executable);
    }
}

/// What Finder and `tar` of macOS pack beside a folder; a file of such a name inside of it is the author's.
#[test]
fn what_macos_adds_is_left_out() {
    let entries = [
        ("skill/SKILL.md", "hello"),
        ("skill/.DS_Store", "kept"),
        ("__MACOSX/._skill", "x"),
        ("__MACOSX/skill/._SKILL.md", "x"),
        (".DS_Store", "x"),
        ("._skill", "x"),
    ];
    let packed = zipped(&entries.map(|(path, text)| (path, 0o644, text.as_bytes())));
    let plain = tar(&entries.map(|(path, text)| (path, Regular, 0o644, text.as_bytes())));
    for bytes in [packed, gz(&plain), plain] {
        let files = unpack(&bytes).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["skill/.DS_Store", "skill/SKILL.md"]);
    }
}

#[test]
fn what_leaves_the_folder_or_is_no_file_is_refused() {
    for (bytes, part) in [
        (tar(&[("../evil", Regular, 0o644, b"x")]), "holds . or .."),
        (tar(&[("a/../../evil", Regular, 0o644, b"x")]), "holds . or .."),
        (tar(&[("/etc/passwd", Regular, 0o644, b"x")]), "the path is absolute"),
        (
            tar(&[("a", Symlink, 0o777, b"/etc/passwd")]),
            "\"a\" is a link or a special file",
        ),
        (tar(&[("a", Link, 0o644, b"b")]), "is a link or a special file"),
        (tar(&[("a", Block, 0o644, b"")]), "is a link or a special file"),
        (
            tar(&[("a", Regular, 0o644, b"1"), ("a", Regular, 0o644, b"2")]),
            "appears twice",
        ),
        (zipped(&[("../evil", 0o644, b"x")]), "holds . or .."),
        (zipped(&[("/evil", 0o644, b"x")]), "the path is absolute"),
        (zipped(&[("s\\..\\evil", 0o644, b"x")]), "holds a backslash"),
        (tar(&[("s\\..\\evil", Regular, 0o644, b"x")]), "holds a backslash"),
        (zipped_link("a", "/etc/passwd"), "is a link or a special file"),
        (zipped_twice(), "appears twice"),
        (b"<!DOCTYPE html>".to_vec(), "begins with \"<!DOCTYPE html>\""),
        (b"".to_vec(), "begins with \"\""),
        (gz(b"no tar in here"), "broken tar"),
        (b"\x1f\x8bbroken".to_vec(), "broken tar"),
        (b"PK\x03\x04broken".to_vec(), "broken zip"),
    ] {
        let error = unpack(&bytes).unwrap_err();
        assert_eq!(error.cause, Cause::BadArchive, "{error}");
        assert!(error.message.contains(part), "{error:?} should contain {part:?}");
    }
}

#[test]
fn bombs_end_at_the_bounds() {
    let zeros = vec![0; 70 << 20];
    let many: Vec<(String, u32)> = (0..20_000).map(|number| (format!("f{number}"), 0o644)).collect();
    let names: Vec<(&str, tar::EntryType, u32, &[u8])> = many
        .iter()
        .map(|(name, mode)| (name.as_str(), Regular, *mode, b"".as_slice()))
        .collect();
    // Folders that carry content: nothing is kept of it, but it has to be read past.
    let hollow = tar(&[("a", Directory, 0o755, &zeros), ("b", Directory, 0o755, &zeros)]);
    for (bytes, part) in [
        (
            gz(&tar(&[("bomb", Regular, 0o644, &zeros)])),
            "more than 64 MiB unpacked",
        ),
        (zipped(&[("bomb", 0o644, &zeros)]), "more than 64 MiB unpacked"),
        (gz(&tar(&names)), "more than 10000 entries"),
        (hollow, "more than 128 MiB unpacked"),
        (
            tar(&[("l", GNULongName, 0o644, &zeros[..65 << 10])]),
            "an extension header of 66560 bytes",
        ),
        (
            tar(&[("x", XHeader, 0o644, &zeros[..65 << 10])]),
            "an extension header of 66560 bytes",
        ),
        (
            tar(&[("g", XGlobalHeader, 0o644, &zeros[..65 << 10])]),
            "an extension header of 66560 bytes",
        ),
        (
            tar(&[("x", XHeader, 0o644, b"10 size=9\n"), ("a", Regular, 0o644, b"x")]),
            "size is in an extension header",
        ),
    ] {
        let error = unpack(&bytes).unwrap_err();
        assert_eq!(error.cause, Cause::TooLarge, "{error}");
        assert!(error.message.contains(part), "{error:?} should contain {part:?}");
    }
}

#[test]
fn long_names_come_out_by_either_custom() {
    let long = format!("{}/SKILL.md", "x".repeat(150));
    // With its size, as node-tar writes it.
    let record = format!(" path={long}\n");
    let pax = format!("{}{record}9 size=4\n", record.len() + 3);
    let gnu = format!("{long}\0");
    for (kind, extension) in [(XHeader, &pax), (GNULongName, &gnu)] {
        let global = ("pax_global_header", XGlobalHeader, 0o644, b"13 comment=a\n".as_slice());
        let archive = tar(&[
            global,
            ("e", kind, 0o644, extension.as_bytes()),
            ("short", Regular, 0o644, b"text"),
            ("other", Regular, 0o644, b""),
        ]);
        let files = unpack(&archive).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["other", long.as_str()]);
        assert_eq!(&*files[&long].bytes, b"text");
    }
}
