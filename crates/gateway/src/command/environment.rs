//! Variables that libraries of a sidecar read by themselves. A namespace can set them in its ConfigMap, and with a value that the
//! library cannot use the sidecar would end, or could not begin.
//!
//! A process cannot safely change its own environment, so it is replaced by itself without these variables.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::sidecar::is_sidecar;

/// The names of the variables that were left out, for the log of the process that goes on.
const LEFT_OUT: &str = "KNACK_IGNORED_VARIABLES";
/// Threads of the async runtime: each takes memory of a sidecar that has 128 MiB by default, and more than a node has processors
/// are of no use.
const WORKERS_MAX: usize = 64;
/// Bytes of a thread's stack: with less the gateway's own code does not fit, with more threads cannot be started.
const STACK_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(64 << 20);

/// A variable, what is wrong with a value that cannot be used, and whether a value can be.
type Check = (&'static str, &'static str, fn(&OsStr) -> bool);

const CHECKS: [Check; 5] = [
    ("TMPDIR", "no file can be created in this folder", is_writable),
    ("SSL_CERT_FILE", NO_AUTHORITIES, has_authorities),
    ("SSL_CERT_DIR", NO_AUTHORITIES, has_authorities),
    ("TOKIO_WORKER_THREADS", "it is not a number from 1 to 64", |value| {
        number(value).is_some_and(|number| (1..=WORKERS_MAX).contains(&number))
    }),
    (
        "RUST_MIN_STACK",
        "it is not a number of bytes from 1 MiB to 64 MiB",
        |value| number(value).is_some_and(|number| STACK_BYTES.contains(&number)),
    ),
];
const NO_AUTHORITIES: &str = "there are no certificate authorities; KNACK_CA_PEM adds some to those of the system";

/// In a sidecar, or its probe, replaces this process by the same program (`exec`) without the variables that its libraries cannot use.
/// The first thing that a program does, while it has one thread.
pub fn without_unusable_variables() {
    if !is_sidecar() {
        return;
    }
    let unusable: Vec<&str> = CHECKS
        .iter()
        .filter(|(name, _, is_usable)| env::var_os(name).is_some_and(|value| !is_usable(&value)))
        .map(|(name, _, _)| *name)
        .collect();
    let Ok(program) = env::current_exe() else { return };
    if unusable.is_empty() {
        return;
    }
    // An empty variable counts as absent.
    let names: Vec<&str> = unusable
        .iter()
        .copied()
        .filter(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
        .collect();
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).env(LEFT_OUT, names.join(","));
    for name in unusable {
        again.env_remove(name);
    }
    // It returns only if there is no program to start: this process then goes on as it is.
    let _error = again.exec();
}

/// Warns of what [`without_unusable_variables`] has left out.
pub(super) fn warn_of_ignored() {
    let names = env::var(LEFT_OUT).unwrap_or_default();
    for (name, why, _) in &CHECKS {
        if names.split(',').any(|one| one == *name) {
            tracing::warn!("{name} cannot be used and is ignored: {why}");
        }
    }
}

fn number(value: &OsStr) -> Option<usize> {
    value.to_str()?.parse().ok()
}

fn is_writable(folder: &OsStr) -> bool {
    !folder.is_empty() && tempfile::tempdir_in(Path::new(folder)).is_ok()
}

/// Both variables say together where the authorities are: one that leads nowhere does no harm beside one that is right.
fn has_authorities(_: &OsStr) -> bool {
    knack_trust::has_system_authorities()
}
