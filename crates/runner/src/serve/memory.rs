//! Whether the kernel has killed for memory: the counters of the runner's own memory cgroup.

use std::path::{Path, PathBuf};

/// The file that counts kills, found once.
#[derive(Debug, Clone)]
pub(super) struct KillCounter {
    file: Option<PathBuf>,
    before: u64,
}

impl KillCounter {
    /// Finds the counter of the calling process's cgroup (v2 or v1).
    pub(super) fn find() -> Self {
        let file = std::fs::read_to_string("/proc/self/cgroup")
            .ok()
            .and_then(|text| find(&text, Path::is_file));
        Self { file, before: 0 }
    }

    /// Counts from now on.
    pub(super) fn started(mut self) -> Self {
        self.before = self.file.as_deref().and_then(read).unwrap_or(0);
        self
    }

    /// Whether there was a kill since [`KillCounter::started`].
    pub(super) fn has_killed(&self) -> bool {
        self.file.as_deref().and_then(read).is_some_and(|now| now > self.before)
    }
}

fn read(file: &Path) -> Option<u64> {
    kills(&std::fs::read_to_string(file).ok()?)
}

/// The value of the line `oom_kill <n>`, which both versions have.
fn kills(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|value| value.trim().parse().ok())
}

/// The counter's file, from the text of /proc/self/cgroup. In a container the path may be the host's: then the mount's
/// top is the own cgroup.
fn find(text: &str, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut candidates = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mounts, file): (&[&str], _) = if controllers.is_empty() {
            (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.events")
        } else if controllers.split(',').any(|name| name == "memory") {
            (&["/sys/fs/cgroup/memory"], "memory.oom_control")
        } else {
            continue;
        };
        for mount in mounts {
            candidates.push(Path::new(mount).join(path.trim_start_matches('/')).join(file));
            candidates.push(Path::new(mount).join(file));
        }
    }
    candidates.into_iter().find(|path| exists(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_versions() {
        assert_eq!(kills("low 0\nhigh 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"), Some(5));
        assert_eq!(kills(""), None);
    }

    #[test]
    fn finds_the_own_group_first() {
        let v1 = "8:pids:/\n4:memory:/a/b\n0::/\n";
        let all = |_: &Path| true;
        assert_eq!(
            find(v1, all).unwrap(),
            Path::new("/sys/fs/cgroup/memory/a/b/memory.oom_control")
        );
        assert_eq!(
            find("0::/x\n", all).unwrap(),
            Path::new("/sys/fs/cgroup/x/memory.events")
        );
        let top = |path: &Path| path == Path::new("/sys/fs/cgroup/memory.events");
        assert_eq!(find("0::/x\n", top).unwrap(), Path::new("/sys/fs/cgroup/memory.events"));
        assert_eq!(find("1:cpu:/\n", all), None);
    }
}
