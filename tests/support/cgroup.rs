//! A memory control group for a process of a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where a version of control groups has what.
#[derive(Debug, Clone, Copy)]
struct Version {
    top: &'static str,
    /// Its controller in `/proc/self/cgroup`.
    controller: &'static str,
    limit: &'static str,
    /// Kernels before 5.19 report none with version 2.
    peak: &'static str,
    events: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        top: "/sys/fs/cgroup/memory",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
        events: "memory.oom_control",
    },
    Version {
        top: "/sys/fs/cgroup",
        controller: "",
        limit: "memory.max",
        peak: "memory.peak",
        events: "memory.events",
    },
];

/// A memory control group of this test's own; removed when dropped.
pub(crate) struct Group {
    folder: PathBuf,
    version: Version,
}

impl Group {
    /// `None`: this user or this machine cannot make one.
    pub(crate) fn new(limit_bytes: usize) -> Option<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |controller: &str| {
            let line = groups.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
            line.splitn(3, ':')
                .nth(2)
                .map(|path| path.trim_start_matches('/').to_owned())
        };
        for version in VERSIONS {
            let Some(path) = own(version.controller) else { continue };
            let folder = Path::new(version.top)
                .join(path)
                .join(format!("knack-test-{}-{number}", std::process::id()));
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self { folder, version };
            if std::fs::write(group.folder.join(version.limit), limit_bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Words before a command line that start it in this group.
    pub(crate) fn words(&self) -> [String; 4] {
        let join = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        ["sh".to_owned(), "-c".to_owned(), join, "sh".to_owned()]
    }

    /// What the chart sets for the C library of a process (`knack.memory` of charts/knack): how soon free memory is
    /// returned to the system.
    pub(crate) const ENVIRONMENT: (&'static str, &'static str) = ("MALLOC_MMAP_THRESHOLD_", "1048576");

    /// The most that was in use, bytes, caches of files included; `None`: the kernel does not report it.
    pub(crate) fn peak_bytes(&self) -> Option<usize> {
        let text = std::fs::read_to_string(self.folder.join(self.version.peak)).ok()?;
        text.trim().parse().ok()
    }

    /// How many of its processes were killed for want of memory.
    pub(crate) fn killed(&self) -> usize {
        let text = std::fs::read_to_string(self.folder.join(self.version.events)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing can await in a drop; the kernel frees the group within milliseconds"
    )]
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What a process holds of physical memory now, MiB; 0 once it is gone.
pub(crate) fn resident_mib(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kibibytes.unwrap_or(0) >> 10
}
