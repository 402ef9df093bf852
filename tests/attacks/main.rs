//! The attack suite: every attack of `program/`, unlocked as a positive control and in the local sandbox.
//!
//! ```text
//! cargo test --test attacks          as root: unshare ──▶ --targets (networks, peer, victim)
//!                                                          ├─ control: each attack unlocked, as uid 65532, else as root
//!                                                          ├─ --column bare-host     knack as uid 65532, no cgroup
//!                                                          ├─ --column host-cgroup   knack as root inside a cgroup
//!                                                          ├─ --column no-mounts     as bare-host, where mounts are refused
//!                                                          └─ --column abi-N-…       the same with an older Landlock
//! ```
//!
//! Older kernels are played by a runner that uses no more than they have (`crates/runner/examples/older_kernel.rs`).
//!
//! Each column is compared with `expected/<column>.json`. A newly open cell fails; a newly closed one asks for an update
//! of the table (`KNACK_UPDATE_ATTACKS=1`). What neither control opens is listed as closed by the kernel and not counted.
//! Everything lives in namespaces that end with this process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program without the test harness"
)]

mod column;
mod program;
mod table;
mod targets;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [_, "--targets", directory] => targets::main(Path::new(directory)),
        [_, "--column", name, directory] => column::main(name, Path::new(directory)),
        // `cargo test -- --list` and filters of other tests' names.
        [_, "--list", ..] => {
            println!("attacks: test");
            ExitCode::SUCCESS
        }
        _ => outer(),
    }
}

/// Copies what the run needs to where uid 65532 can reach it, and enters the namespaces.
fn outer() -> ExitCode {
    println!("\nrunning {} tests", targets::COLUMNS.len());
    if let Some(reason) = targets::missing() {
        println!("SKIPPED attacks: {reason}");
        println!("test attacks ... ignored, {reason}\n\ntest result: ok. 0 passed; 0 failed; 1 ignored");
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::Builder::new()
        .prefix("knack-attacks-")
        .tempdir_in("/tmp")
        .unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    for (from, to) in [
        (std::env::current_exe().unwrap(), "suite"),
        (runner(), "knack-runner"),
        (source.join("targets.py"), "targets.py"),
    ] {
        let to = directory.path().join(to);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let attacks = directory.path().join("attacks.py");
    std::fs::write(&attacks, program::PROGRAM).unwrap();
    std::fs::set_permissions(&attacks, std::fs::Permissions::from_mode(0o755)).unwrap();
    for kernel in targets::kernels() {
        std::fs::copy(older_kernel(), directory.path().join(format!("runner-{kernel}"))).unwrap();
    }
    refuses_checkouts(directory.path());
    let status = Command::new("unshare")
        // Attacks leave files behind.
        .current_dir(directory.path())
        .args([
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--mount-proc",
            "--ipc",
            "--uts",
        ])
        .args(["--propagation", "private"])
        .arg(directory.path().join("suite"))
        .arg("--targets")
        .arg(directory.path())
        .status()
        .unwrap();
    let (word, passed, failed) = if status.success() {
        ("ok", targets::COLUMNS.len(), 0)
    } else {
        ("FAILED", 0, 1)
    };
    println!("test attacks ... {word}\n\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The attacks would leave a stray program in a developer's checkout.
fn refuses_checkouts(directory: &Path) {
    let inside = directory.join("checkout/src");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::create_dir(directory.join("checkout/.git")).unwrap();
    let output = Command::new("/usr/bin/python3")
        .arg(directory.join("attacks.py"))
        .arg("dropped_binary")
        .current_dir(&inside)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is in a git tree"), "{said}");
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
}

/// The runner that plays older kernels: an example, which `cargo test` builds beside the tests.
fn older_kernel() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let built = deps.parent().unwrap().parent().unwrap().join("examples/older_kernel");
    if !built.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let words = ["build", "--quiet", "-p", "knack-runner", "--example", "older_kernel"];
        assert!(Command::new(cargo).args(words).status().unwrap().success());
    }
    built
}

/// The runner, built if it is not there yet.
fn runner() -> PathBuf {
    if std::env::var_os("KNACK_RUNNER").is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "-p", "knack-runner"])
            .status()
            .unwrap();
        assert!(built.success(), "the runner does not build");
    }
    knack_execution::local::find_runner().unwrap_or_else(|missing| panic!("{missing}"))
}
