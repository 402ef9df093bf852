//! The oldest Kubernetes that is promised: its API server takes the custom resources, the examples and the Jobs.
//!
//! Objects go to an API server of that version with a store of its own; there is no node, so nothing runs.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test program: a failure is a panic, and helpers are tests too"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use cluster_support::{Cluster, Component, STILL, run};

/// kubectl at the oldest API server, with this text on standard input.
fn kubectl(cluster: &Cluster, words: &[&str], input: &str) -> Output {
    let mut command = cluster.kubectl_command();
    command
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig().with_file_name("oldest-admin.kubeconfig"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Runs kubectl, which must succeed; returns its standard output and its warnings.
fn succeeds(cluster: &Cluster, words: &[&str], input: &str) -> (String, String) {
    let output = kubectl(cluster, words, input);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {words:?}: {errors}\n{input}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
}

/// The objects of all files of a folder below the repository's root, by file name.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no {ending} in {}", folder.display());
    files
}

/// Stops the extra API server however the test ends.
struct Stop<'c>(&'c Cluster);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.kill(Component::OldestApiserver);
    }
}

#[test]
fn the_oldest_kubernetes_takes_what_knack_writes() {
    const TEST: &str = "the_oldest_kubernetes_takes_what_knack_writes";
    if std::env::var_os("KNACK_NO_CLUSTER").is_none() {
        Cluster::build("oldest");
    }
    run(TEST, async |cluster| {
        cluster.start(Component::OldestApiserver);
        let _stop = Stop(cluster);
        let (version, _) = succeeds(cluster, &["version"], "");
        assert!(version.contains("Server Version: v1.33."), "{version}");

        // A rule or a bound that this version does not know is refused here, or warned of.
        for (name, text) in files("crds", ".yaml") {
            let words = [
                "apply",
                "--server-side",
                "--force-conflicts",
                "--validate=strict",
                "-f",
                "-",
            ];
            let (_, warnings) = succeeds(cluster, &words, &text);
            assert!(warnings.is_empty(), "{name}: {warnings}");
        }
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"];
        succeeds(cluster, &established, "");
        // Its handlers hear a moment later than it writes that the definitions are established.
        let begun = Instant::now();
        for resource in ["skills", "skillruntimes"] {
            let list = format!("/apis/knack.dev/v1alpha1/namespaces/default/{resource}?limit=1");
            while !kubectl(cluster, &["get", "--raw", &list], "").status.success() {
                assert!(begun.elapsed() < STILL, "{resource} are not served");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        for (name, text) in files("examples/manifests", ".yaml") {
            let words = [
                "create",
                "--dry-run=server",
                "--validate=strict",
                "-n",
                "default",
                "-f",
                "-",
            ];
            let (_, warnings) = succeeds(cluster, &words, &text);
            assert!(warnings.is_empty(), "{name}: {warnings}");
        }

        // The Jobs of every kind of run, as the executor's own tests keep them. Pod Security says what it would refuse.
        let sandboxes = "apiVersion: v1\nkind: Namespace\nmetadata: {name: sandboxes, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}";
        succeeds(cluster, &["apply", "-f", "-"], sandboxes);
        for (name, text) in files("src/jobs/pods/golden", ".snap") {
            let job = text.splitn(3, "---\n").nth(2).unwrap();
            let words = [
                "create",
                "--dry-run=server",
                "--validate=strict",
                "-o",
                "yaml",
                "-f",
                "-",
            ];
            let (kept, warnings) = succeeds(cluster, &words, job);
            assert!(warnings.is_empty(), "{name}: {warnings}");
            // Image volumes are on by default from 1.35: before, the volume is silently left an empty folder, and the
            // runner has to be in the sandbox image. The maker of such a Job must check the version first.
            if job.contains("pullPolicy") {
                assert!(
                    !kept.contains("pullPolicy"),
                    "{name}: image volumes are kept here: {kept}"
                );
            }
        }
    });
}
