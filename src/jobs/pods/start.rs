//! The settings that a runner gets before it has a run: the locks, bounds and interpreter of its sandbox. Pure.

use std::path::PathBuf;

use knack_execution::conversation::{millis, wire_language};
use knack_execution::interpreter::image_permissions;
use knack_execution::run_environment::base_environment;
use knack_execution::run_limits::{address_space, address_space_for_sandbox};
use knack_execution::{Language, Limits};
use knack_packages::environment::EnvironmentImage;
use knack_runner::protocol::{Interpreter, Journal, Landlock, Limits as WireLimits, Start, Watch};

use super::pod_requirements::PodRequirements;
use crate::jobs::names::RUN_PATH;
use crate::jobs::resolved_runtime::{JournalMode, ResolvedRuntime};

/// Where programs of sandbox images are found.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The log stays below the kubelet's rotation (10 MiB), with room for a second writer of the same file system.
const JOURNAL_BYTES: u64 = 6 << 20;
/// Processes and threads of one run: node starts a dozen by itself.
const MAX_PROCESSES: u64 = 128;
/// Files and directories in the work directory: as many as on a laptop. Their inodes are memory of the pod.
const MAX_WORK_FILES: u64 = 10_000;
/// A request may ask for this many times the default output and files; beyond, it is lowered to that.
const MAX_OVER_DEFAULT: u64 = 16;

/// Mounted by the container runtime without execution (64 MiB with containerd), for this pod alone, and charged to its memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The frame that builds the sandbox in a pod.
pub(super) fn start_frame(resolved: &ResolvedRuntime, requirements: &PodRequirements) -> Start {
    let texts = |paths: Vec<PathBuf>| {
        let texts = paths.iter().map(|path| path.to_string_lossy().into_owned());
        texts.collect::<Vec<_>>()
    };
    let grants = image_permissions();
    let (mut execute, mut write) = (texts(grants.execute), texts(grants.write));
    write.extend(resolved.shared_memory.then(|| SHARED_MEMORY.to_owned()));
    let mut path = PATH.to_owned();
    if let Some(packages) = &requirements.packages {
        // That folder alone.
        execute.push(packages.home.clone());
        path = format!("{}/bin:{path}", packages.home);
    }
    Start {
        directory: RUN_PATH.to_owned(),
        interpreter: requirements.language.map(|language| Interpreter {
            language: wire_language(language),
            path: interpreter_path(language, requirements.packages.as_ref()),
        }),
        // A pod of the pool may get either.
        commands: true,
        read: texts(grants.read),
        execute,
        write,
        landlock: if resolved.requires_landlock {
            Landlock::Required
        } else {
            Landlock::BestEffort
        },
        identity: None,
        environment: base_environment(&path),
        inherit: requirements.env.iter().map(|grant| grant.name.clone()).collect(),
        limits: WireLimits {
            timeout_ms: Some(millis(resolved.max_timeout)),
            processes: Some(MAX_PROCESSES),
            output_bytes: Some(Limits::DEFAULT_OUTPUT_BYTES * MAX_OVER_DEFAULT),
            result_bytes: Some(Limits::DEFAULT_FILES_BYTES * MAX_OVER_DEFAULT),
            result_files: Some(u64::from(Limits::DEFAULT_FILES) * MAX_OVER_DEFAULT),
            address_space_bytes: requirements
                .language
                .filter(|language| *language == Language::Python)
                .and_then(|language| {
                    address_space(
                        Some(language),
                        address_space_for_sandbox(requirements.resources.memory_bytes()),
                    )
                }),
            ..WireLimits::default()
        },
        // The pod's cgroup and its volume's size bound the rest; nothing else bounds the inodes of a volume.
        watch: Watch {
            work_files: Some(MAX_WORK_FILES),
            ..Watch::default()
        },
        // Stdin may end with the node's container runtime: the run continues, and its journal shows how it ended.
        eof_grace_ms: millis(resolved.max_timeout),
        journal: Some(Journal {
            seal: resolved.logs == JournalMode::Sealed,
            max_bytes: JOURNAL_BYTES,
        }),
    }
}

/// Where the interpreters of sandbox images are; that of an environment is a link in it.
pub(in crate::jobs) fn interpreter_path(language: Language, packages: Option<&EnvironmentImage>) -> String {
    match (language, packages) {
        (Language::Python, Some(packages)) => format!("{}/bin/python3", packages.home),
        (Language::Python, None) => "/usr/bin/python3".to_owned(),
        (Language::Node, _) => "/usr/bin/node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::pods::kinds::PodKind;
    use crate::jobs::pods::spec::tests::resolved;

    #[test]
    fn an_interpreter_has_the_address_space_of_the_memory_of_its_pod() {
        let mut resolved = resolved();
        for (memory, expected) in [("512Mi", 4 << 30), ("8Gi", 8 << 30)] {
            resolved.resources.memory.limit = memory.to_owned();
            let requirements = PodRequirements::of_pool(&resolved, &PodKind::plain(Some(Language::Python)));
            let limits = start_frame(&resolved, &requirements).limits;
            assert_eq!(limits.address_space_bytes, Some(expected), "{memory}");
        }
    }

    #[test]
    fn shared_memory_is_written_only_where_the_runtime_says_so() {
        let mut resolved = resolved();
        for shared_memory in [false, true] {
            resolved.shared_memory = shared_memory;
            let requirements = PodRequirements::of_pool(&resolved, &PodKind::plain(Some(Language::Python)));
            let start = start_frame(&resolved, &requirements);
            assert_eq!(start.write.contains(&SHARED_MEMORY.to_owned()), shared_memory);
            let others = start.read.iter().chain(&start.execute);
            assert_eq!(others.filter(|path| path.starts_with("/dev/shm")).count(), 0);
        }
    }

    #[test]
    fn a_run_with_packages_starts_the_interpreter_of_its_environment_and_reaches_that_folder_alone() {
        let resolved = resolved();
        let kind = |language| PodKind {
            packages: Some(EnvironmentImage {
                image: "r.io/e@sha256:1".to_owned(),
                home: "/opt/knack/packages/env-1".to_owned(),
            }),
            ..PodKind::plain(language)
        };
        let frame = |kind| start_frame(&resolved, &PodRequirements::of_pool(&resolved, &kind));
        let (plain, packaged) = (
            frame(PodKind::plain(Some(Language::Python))),
            frame(kind(Some(Language::Python))),
        );
        assert_eq!(plain.interpreter.unwrap().path, "/usr/bin/python3");
        assert_eq!(
            packaged.interpreter.unwrap().path,
            "/opt/knack/packages/env-1/bin/python3"
        );
        assert_eq!(
            packaged.environment["PATH"],
            format!("/opt/knack/packages/env-1/bin:{}", plain.environment["PATH"])
        );
        let more: Vec<_> = packaged
            .execute
            .iter()
            .filter(|path| !plain.execute.contains(path))
            .collect();
        assert_eq!(more, ["/opt/knack/packages/env-1"]);
        assert_eq!((packaged.read, packaged.write), (plain.read, plain.write));
        let node = frame(kind(Some(Language::Node)));
        assert_eq!(node.interpreter.unwrap().path, "/usr/bin/node");
    }
}
