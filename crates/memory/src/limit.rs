//! The memory limit of this process, from its control group.

use std::path::{Path, PathBuf};

/// From this value on a limit is none: cgroup v1 writes "no limit" as the largest multiple of a page that fits into 63
/// bits, and no machine has an exbibyte.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The memory limit of the calling process, bytes: the smallest of its control group and the groups above it, v2 or v1.
/// `None` without a limit, or where no control group can be read.
#[must_use]
pub fn process_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest(&groups, |path| std::fs::read_to_string(path).ok())
}

fn smallest(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    files(groups)
        .iter()
        .filter_map(|path| read(path)?.trim().parse::<u64>().ok())
        .filter(|limit| *limit < NO_LIMIT_BYTES)
        .min()
}

/// Every file that may hold a limit, from the text of `/proc/self/cgroup`. In a container the path may be the host's:
/// then only the mount's top, which is the container's own group, can be read.
fn files(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (tops, name): (&[&str], &str) = match controllers {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for top in tops {
            let own = Path::new(top).join(path.trim_start_matches('/'));
            found.extend(
                own.ancestors()
                    .take_while(|folder| folder.starts_with(top))
                    .map(|folder| folder.join(name)),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        smallest(groups, |path| {
            files
                .iter()
                .find(|(name, _)| Path::new(name) == path)
                .map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_is_the_processs() {
        let v2 = "0::/kubepods/pod1/c\n";
        let v1 = "7:cpu:/a\n4:memory:/a/b\n0::/x\n";
        for (groups, files, expected) in [
            (
                v2,
                &[("/sys/fs/cgroup/kubepods/pod1/c/memory.max", "1000\n")][..],
                Some(1000),
            ),
            (
                v2,
                &[
                    ("/sys/fs/cgroup/kubepods/pod1/c/memory.max", "max\n"),
                    ("/sys/fs/cgroup/kubepods/pod1/memory.max", "700\n"),
                    ("/sys/fs/cgroup/kubepods/memory.max", "900\n"),
                ],
                Some(700),
            ),
            // The host's path inside a container: the mount's top is the own group.
            (v2, &[("/sys/fs/cgroup/memory.max", "512\n")], Some(512)),
            (
                v1,
                &[("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "300\n")],
                Some(300),
            ),
            (
                v1,
                &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")],
                None,
            ),
            (v2, &[], None),
            ("nonsense", &[("/sys/fs/cgroup/memory.max", "5\n")], None),
        ] {
            assert_eq!(limit(groups, files), expected, "{groups} {files:?}");
        }
    }
}
