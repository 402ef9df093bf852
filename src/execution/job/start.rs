//! What a runner is told before it has a run: the locks, bounds and interpreter of its sandbox. Pure.

use knack_runner::protocol::{Interpreter, Journal, Landlock, Limits as WireLimits, Start, Watch};

use super::launch::Plan;
use super::names::RUN_PATH;
use super::view::{JournalMode, RuntimeView};
use crate::execution::conversation::{address_space, base_environment, millis, wire_language};
use crate::execution::{Language, Limits};

/// The log stays below the kubelet's rotation (10 MiB), with room for a second writer of the same file system.
const JOURNAL_BYTES: u64 = 6 << 20;
/// Processes and threads of one run: node starts a dozen by itself.
const MAX_PROCESSES: u64 = 128;
/// Files and directories in the work directory: as many as on a laptop. Their inodes are memory of the pod.
const MAX_WORK_FILES: u64 = 10_000;
/// A request may ask for this many times the default output and files; beyond, it is lowered to that.
const MAX_OVER_DEFAULT: u64 = 16;

/// The frame that builds the sandbox in a pod.
pub(super) fn start_frame(view: &RuntimeView, plan: &Plan) -> Start {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut read = texts(&[
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/ssl/openssl.cnf",
        "/etc/ssl/certs",
        "/dev/zero",
        "/dev/urandom",
    ]);
    // Debian's `sitecustomize` is a link into the directory of its version. What does not exist is passed over.
    read.extend((8..=20).map(|minor| format!("/etc/python3.{minor}")));
    Start {
        directory: RUN_PATH.to_owned(),
        interpreter: plan.language.map(|language| Interpreter {
            language: wire_language(language),
            path: interpreter_path(language).to_owned(),
        }),
        // A pod of the pool may get either.
        commands: true,
        read,
        execute: texts(&["/usr", "/lib", "/lib64", "/bin"]),
        write: texts(&["/dev/null"]),
        landlock: if view.requires_landlock {
            Landlock::Required
        } else {
            Landlock::BestEffort
        },
        identity: None,
        environment: base_environment("/usr/local/bin:/usr/bin:/bin"),
        inherit: plan.env.iter().map(|grant| grant.name.clone()).collect(),
        limits: WireLimits {
            timeout_ms: Some(millis(view.max_timeout)),
            processes: Some(MAX_PROCESSES),
            output_bytes: Some(Limits::DEFAULT_OUTPUT_BYTES * MAX_OVER_DEFAULT),
            result_bytes: Some(Limits::DEFAULT_FILES_BYTES * MAX_OVER_DEFAULT),
            result_files: Some(u64::from(Limits::DEFAULT_FILES) * MAX_OVER_DEFAULT),
            address_space_bytes: plan
                .language
                .filter(|language| *language == Language::Python)
                .and_then(|language| address_space(Some(language), None)),
            ..WireLimits::default()
        },
        // The pod's cgroup and its volume's size bound the rest; nothing else bounds the inodes of a volume.
        watch: Watch {
            work_files: Some(MAX_WORK_FILES),
            ..Watch::default()
        },
        // Stdin may end with the node's container runtime: the run goes on, and its journal tells how it ended.
        eof_grace_ms: millis(view.max_timeout),
        journal: Some(Journal {
            seal: view.logs == JournalMode::Sealed,
            max_bytes: JOURNAL_BYTES,
        }),
    }
}

/// Where the interpreters of sandbox images are.
pub(super) const fn interpreter_path(language: Language) -> &'static str {
    match language {
        Language::Python => "/usr/bin/python3",
        Language::Node => "/usr/bin/node",
    }
}
