//! The hydra: 300 detached processes, each of which forks and exits as fast as it can, and a share of the processor for all of them
//! together.
//!
//! Each head has a session of its own. A kernel that shares the processor by session (autogroup), and one that shares it by process, give
//! each of them as much as everything that the machine does beside: tests, a cluster, their Leases stand still for seconds. In a control
//! group the heads are one, and take what nothing else wants. The runner stays outside: it may not be one of so many.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// They begin at the moment that all are there; and each looks at the clock, so that none can run away from the test.
pub(crate) const HYDRA: &str = include_str!("hydra.py");

/// Two at once, of this or another checkout, take the time from each other that they need to grow. The lock ends with
/// the file.
pub(crate) fn alone() -> File {
    let file =
        File::create(std::env::temp_dir().join(format!("knack-hydra-{}.lock", rustix::process::geteuid().as_raw())))
            .unwrap();
    file.lock().unwrap();
    file
}

/// The children of a process with this name in the kernel, those that have ended and are not reaped too. The kernel's lists of children
/// are asked, not every process of the machine.
pub(crate) fn children_named(parent: i32, comm: &str) -> Vec<i32> {
    let is_named =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim_end() == comm);
    // A thread has the children that it has made.
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        list.split_whitespace()
            .filter_map(|child| child.parse().ok())
            .collect::<Vec<i32>>()
    });
    pids.filter(is_named).collect()
}

/// Has a hydra grow whose main process is there and waits, in a control group of its own. `test`: who says so where none can be had.
/// The group is removed when it is dropped.
pub(crate) fn let_grow(test: &str, process: i32) -> Option<CpuGroup> {
    let group = CpuGroup::new().filter(|group| group.take(process).is_ok());
    if group.is_none() {
        // Past the harness, which keeps what a passing test prints by a macro.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(
            out,
            "\ntest {test}: no control group of the cpu can be made here (root, and a writable /sys/fs/cgroup): its hydra takes the \
             processor from everything beside it"
        )
        .and_then(|()| out.flush());
    }
    // In the namespace of its mounts. One that has reached its time limit meanwhile is gone.
    let _ = std::fs::write(format!("/proc/{process}/cwd/.tmp/go"), "");
    group
}

/// Where each version of control groups has the share of a group, by its name in `/proc/self/cgroup`.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("cpu", "/sys/fs/cgroup/cpu", "cpu.shares"),
    ("", "/sys/fs/cgroup", "cpu.weight"),
];

/// A control group with the usual share of the processor; removed when dropped.
pub(crate) struct CpuGroup {
    folder: PathBuf,
}

impl CpuGroup {
    /// `None`: this user or this machine cannot make one.
    fn new() -> Option<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "knack-hydra-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        for (controller, top, share) in VERSIONS {
            let mut lines = groups.lines().map(|line| line.splitn(3, ':').skip(1));
            let Some(own) = lines.find_map(|mut line| {
                let is_it = line.next()?.split(',').any(|named| named == controller);
                is_it.then(|| line.next()).flatten()
            }) else {
                continue;
            };
            // With version 2 a group that has processes has no groups with a share: then one at the top.
            for place in [own.trim_start_matches('/'), ""] {
                let folder = Path::new(top).join(place).join(&name);
                if std::fs::create_dir(&folder).is_err() {
                    continue;
                }
                let group = Self { folder };
                if group.folder.join(share).exists() {
                    return Some(group);
                }
            }
        }
        None
    }

    fn take(&self, process: i32) -> std::io::Result<()> {
        std::fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for CpuGroup {
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
