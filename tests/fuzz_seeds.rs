//! The fuzz targets on their seeds, without a fuzzer: `make fuzz` starts from inputs that each target takes. What fuzzing finds
//! is a row of the crate's own tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]
#![expect(
    clippy::allow_attributes,
    reason = "what each target needs differs, and is checked in the workspace of the targets"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

// The targets name the crates of the fuzzing workspace: here they are this file.
extern crate self as knack_fuzz;
extern crate self as libfuzzer_sys;

#[allow(
    unreachable_pub,
    missing_docs,
    clippy::pedantic,
    reason = "checked in the workspace of the targets"
)]
#[path = "../fuzz/src/lib.rs"]
mod shared;
pub use shared::*;

/// In the place of libFuzzer's: the target is a function.
#[macro_export]
macro_rules! fuzz_target {
    ($target:expr) => {
        pub(super) fn target(data: &[u8]) {
            let target: fn(&[u8]) = $target;
            target(data);
        }
    };
}

/// Each target as a module, and as a test of its name.
macro_rules! targets {
    ($($name:ident = $path:literal,)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[allow(unused_attributes, unused_imports, clippy::pedantic, reason = "main is the fuzzer's; checked in the workspace of the targets")]
            #[path = $path]
            mod $name;
        )*
        mod takes {
            $(
                #[test]
                fn $name() {
                    super::take_seeds(stringify!($name), super::$name::target);
                }
            )*
        }
    };
}

targets! {
    answer_glance = "../fuzz/fuzz_targets/answer_glance.rs",
    archive = "../fuzz/fuzz_targets/archive.rs",
    argv = "../fuzz/fuzz_targets/argv.rs",
    artifact_read = "../fuzz/fuzz_targets/artifact_read.rs",
    at_skill = "../fuzz/fuzz_targets/at_skill.rs",
    chat_request = "../fuzz/fuzz_targets/chat_request.rs",
    drive_chat_answer = "../fuzz/fuzz_targets/drive_chat_answer.rs",
    drive_chat_stream = "../fuzz/fuzz_targets/drive_chat_stream.rs",
    drive_gemini_answer = "../fuzz/fuzz_targets/drive_gemini_answer.rs",
    drive_gemini_stream = "../fuzz/fuzz_targets/drive_gemini_stream.rs",
    drive_messages_answer = "../fuzz/fuzz_targets/drive_messages_answer.rs",
    drive_messages_stream = "../fuzz/fuzz_targets/drive_messages_stream.rs",
    drive_responses_answer = "../fuzz/fuzz_targets/drive_responses_answer.rs",
    drive_responses_stream = "../fuzz/fuzz_targets/drive_responses_stream.rs",
    gemini_request = "../fuzz/fuzz_targets/gemini_request.rs",
    history_canon = "../fuzz/fuzz_targets/history_canon.rs",
    hub_frames = "../fuzz/fuzz_targets/hub_frames.rs",
    journal = "../fuzz/fuzz_targets/journal.rs",
    json_scan = "../fuzz/fuzz_targets/json_scan.rs",
    manifest = "../fuzz/fuzz_targets/manifest.rs",
    messages_request = "../fuzz/fuzz_targets/messages_request.rs",
    packages_declare = "../fuzz/fuzz_targets/packages_declare.rs",
    responses_request = "../fuzz/fuzz_targets/responses_request.rs",
    runner_frames = "../fuzz/fuzz_targets/runner_frames.rs",
    semver = "../fuzz/fuzz_targets/semver.rs",
    skillmd_load = "../fuzz/fuzz_targets/skillmd_load.rs",
    sse_decode = "../fuzz/fuzz_targets/sse_decode.rs",
    template = "../fuzz/fuzz_targets/template.rs",
}

/// The folder with a folder of seeds for each target, written once.
fn corpus() -> &'static Path {
    static CORPUS: OnceLock<PathBuf> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-seeds");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seed.py");
        let written = std::process::Command::new("python3")
            .args([script, folder.clone()])
            .output()
            .unwrap();
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        folder
    })
}

/// Gives a target each of its seeds, whole and cut in the middle. A panic is its finding, as under the fuzzer.
fn take_seeds(name: &str, target: fn(&[u8])) {
    let seeds: Vec<PathBuf> = std::fs::read_dir(corpus().join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!seeds.is_empty(), "{name} has no seed");
    for path in seeds {
        let seed = std::fs::read(&path).unwrap();
        for input in [&seed[..], &seed[..seed.len() / 2]] {
            let taken = std::panic::catch_unwind(|| target(input));
            assert!(taken.is_ok(), "{} ({} bytes of it)", path.display(), input.len());
        }
    }
}

#[test]
fn every_target_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(files, TARGETS.iter().map(|name| (*name).to_owned()).collect());
}
