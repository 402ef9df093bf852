//! Knack's processes on this machine, and the kernel's counters of them.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::installation::SYSTEM;

/// Ticks of the counters in `/proc/PID/stat` per second (USER_HZ), on every architecture that Knack is built for.
const TICKS_PER_SECOND: u32 = 100;

/// The process of a component with one replica: the one in the cgroup of its pod that has the component's name among its
/// words. `None` while it does not run.
pub(crate) async fn find(client: &kube::Client, component: &str) -> Option<u32> {
    let api: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    let list = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    let pods = api.list(&list).await.expect("pods can be listed");
    let uid = pods.items.first().and_then(|pod| pod.metadata.uid.clone())?;
    let is_its = |pid: u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        read("cgroup").contains(&uid) && read("cmdline").contains(component)
    };
    let processes = std::fs::read_dir(Path::new("/proc")).expect("/proc can be read");
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_its(*pid))
}

/// The process of a component that runs.
pub(crate) async fn running(client: &kube::Client, component: &str) -> u32 {
    let found = find(client, component).await;
    found.unwrap_or_else(|| panic!("the {component} runs on this machine"))
}

/// CPU time of a process in user and kernel mode so far, of all its threads, living and ended; in steps of 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    // The name stands in parentheses and may hold blanks; utime and stime are the 12th and 13th field behind it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks: u32 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u32>().expect("a number of ticks"))
        .sum();
    Duration::from_secs(1) * ticks / TICKS_PER_SECOND
}

/// Resident set of a process, bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    kilobytes(pid, "VmRSS:") * 1024
}

/// The largest resident set that a process has had, bytes.
pub(crate) fn peak(pid: u32) -> u64 {
    kilobytes(pid, "VmHWM:") * 1024
}

fn kilobytes(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let value = status.lines().find_map(|text| text.strip_prefix(line));
    let value = value.and_then(|value| value.trim().trim_end_matches("kB").trim().parse().ok());
    value.expect("Linux tells it")
}
