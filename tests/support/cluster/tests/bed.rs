//! The bed itself: up, up again, after a crash, down without a trace.
//!
//! These tests drive the script, on a bed of their own beside the shared one.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test program: a failure is a panic, and helpers are tests too"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Two more beds at once would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const NAME: &str = "knack-bed-own";

fn bed(words: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cluster/bed"))
        .args(words)
        .env("KNACK_BED", NAME)
        .env_remove("KNACK_BED_DIR")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn succeeds(words: &[&str]) -> String {
    let output = bed(words, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "bed {words:?}: {text}{errors}");
    text
}

/// Milliseconds until the milestone whose line contains `what`.
fn milestone(text: &str, what: &str) -> Duration {
    let line = text.lines().find(|line| line.contains(what));
    let line = line.unwrap_or_else(|| panic!("no milestone {what} in {text}"));
    Duration::from_millis(line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn pods_cgroups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut folders = vec![root.join(NAME)];
    folders.extend(
        fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().path().join(NAME)),
    );
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Every process in the bed's mount namespace or in the cgroup of its pods. One that has ended and waits to be reaped
/// by the machine's PID 1, which takes its time, holds nothing of the bed.
fn processes() -> BTreeSet<u32> {
    let mark = format!("knack-bed:{NAME} ");
    let of_bed = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if status
            .lines()
            .any(|line| line.starts_with("State:\tZ") || line.starts_with("State:\tX"))
        {
            return false;
        }
        let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap_or_default();
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        mounts.contains(&mark) || cgroup.contains(&format!(":/{NAME}/"))
    };
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(of_bed)
        .collect()
}

/// Where beds keep their state.
fn beds() -> PathBuf {
    let cache =
        std::env::var("KNACK_CACHE").unwrap_or_else(|_| format!("{}/.cache/knack", std::env::var("HOME").unwrap()));
    Path::new(&cache).join("beds")
}

/// What of the bed can be seen on the host; empty when it is gone.
fn traces() -> Vec<String> {
    let mut traces = Vec::new();
    traces.extend(processes().iter().map(|pid| format!("process {pid}")));
    traces.extend(pods_cgroups().iter().map(|path| format!("cgroup {}", path.display())));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    traces.extend(
        mounts
            .lines()
            .filter(|line| line.contains(NAME))
            .map(|line| format!("mount {line}")),
    );
    for place in [NAME.to_owned(), format!("{NAME}-outside")] {
        let path = Path::new("/run/netns").join(place);
        traces.extend(path.exists().then(|| format!("namespace {}", path.display())));
    }
    for name in [NAME.to_owned(), format!("{NAME}.lock")] {
        let path = beds().join(name);
        traces.extend(path.exists().then(|| format!("file {}", path.display())));
    }
    traces
}

fn kubectl(words: &[&str]) -> String {
    let mut all = vec!["shell", "kubectl"];
    all.extend(words);
    succeeds(&all)
}

/// A pod that runs until it is deleted.
fn run_pod(name: &str) {
    kubectl(&["run", name, "--image=knack.local/busybox:bed", "--", "-c", "sleep 1000"]);
    kubectl(&[
        "wait",
        &format!("pod/{name}"),
        "--for=condition=Ready",
        "--timeout=300s",
    ]);
}

/// The components, the holder and the pod as processes. Others of the bed come and go by themselves: programs that kube-proxy,
/// kubelet and containerd call.
fn lasting() -> (String, String) {
    let pod = kubectl(&[
        "get",
        "pod",
        "first",
        "-o",
        "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}",
    ]);
    (succeeds(&["status"]), pod)
}

/// Takes the bed down however the test ends.
struct Down;

impl Drop for Down {
    fn drop(&mut self) {
        bed(&["down"], &[]);
    }
}

#[test]
fn a_bed_comes_up_fast_again_and_after_a_crash_and_leaves_nothing() {
    const TEST: &str = "a_bed_comes_up_fast_again_and_after_a_crash_and_leaves_nothing";
    if std::env::var_os("KNACK_NO_CLUSTER").is_some_and(|word| word == "1") {
        cluster_support::skip(TEST, "KNACK_NO_CLUSTER=1");
        return;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    succeeds(&["down"]);
    // Programs and images are made first: the budget is for a warm start.
    succeeds(&["binaries"]);
    let _down = Down;
    let ready = milestone(&succeeds(&["up"]), "node Ready");
    println!("figure warm_start_to_node_ready {} ms", ready.as_millis());
    run_pod("first");

    // Again: nothing is started, the pod runs on.
    let before = lasting();
    assert!(succeeds(&["up"]).contains("already up"));
    assert_eq!(before, lasting(), "processes were replaced");

    // Another switch on a running bed is reported, not ignored.
    let refused = bed(&["up"], &[("KNACK_BED_FSYNC", "1")]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("fsync=0"), "{errors}");

    // One component dies and comes back.
    succeeds(&["kill", "apiserver"]);
    assert!(!bed(&["status"], &[]).status.success());
    assert!(succeeds(&["up"]).contains("API server ready"));
    succeeds(&["start", "second-apiserver"]);
    // Started once: another one would find its port taken.
    let log = fs::read_to_string(beds().join(NAME).join("log/second-apiserver.log")).unwrap();
    assert!(!log.contains("address already in use"), "{log}");

    // Everything dies at once, as when a machine is cut off; twice, since the holder may go first.
    for _ in 0..2 {
        for pid in processes() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
        }
    }
    let text = succeeds(&["up"]);
    assert!(text.contains("cleaning up after a crash"), "{text}");
    run_pod("second");

    succeeds(&["down"]);
    assert_eq!(traces(), Vec::<String>::new());
    // Down twice is no error.
    succeeds(&["down"]);
}

#[test]
fn switches_reach_the_components() {
    const TEST: &str = "switches_reach_the_components";
    if std::env::var_os("KNACK_NO_CLUSTER").is_some_and(|word| word == "1") {
        cluster_support::skip(TEST, "KNACK_NO_CLUSTER=1");
        return;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let switches = [
        ("KNACK_BED", "knack-bed-switch"),
        ("KNACK_BED_FSYNC", "1"),
        ("KNACK_BED_PIDS", "-1"),
    ];
    let up = bed(&["up"], &switches);
    let status = bed(&["status"], &switches);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let etcd = text
        .lines()
        .find_map(|line| line.strip_prefix("etcd "))
        .unwrap_or_default();
    let command = fs::read_to_string(format!("/proc/{}/cmdline", etcd.trim())).unwrap_or_default();
    let config = bed(
        &["shell", "kubectl", "get", "--raw", "/api/v1/nodes/node-1/proxy/configz"],
        &switches,
    );
    bed(&["down"], &switches);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    assert!(
        command.contains("etcd") && !command.contains("unsafe-no-fsync"),
        "{command}"
    );
    let config = String::from_utf8_lossy(&config.stdout).into_owned();
    assert!(config.contains("\"podPidsLimit\":-1"), "{config}");
}
