//! `knack skill run --runtime` while pods of the hub are killed.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster_support::progress;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use knack::lease::replica_of;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::beside;
use super::journals::Journals;
use super::support::{Installation, InstallationOptions, SOON};

/// Runs, of 3 to 6 s.
const RUNS: usize = 40;
/// Pods of the hub that are killed; each is the owner.
const KILLS: usize = 4;
/// Runs that have ended from one kill to the next.
const ENDED_BETWEEN: usize = 8;
/// Programs at once.
const PROGRAMS: usize = 10;
/// Runs under way at a kill. On a machine so busy that they end as fast as they start there are never so many.
const IN_FLIGHT: usize = 3;
/// Runs that have ended beyond [`ENDED_BETWEEN`] while it was waited for so many: then [`SOME_IN_FLIGHT`] do.
const ENDED_LATE: usize = 3;
/// One, and the probe of the owner, which counts as a run under way for good.
const SOME_IN_FLIGHT: usize = 2;

/// The hub as the chart installs it, with the program of this build: two pods behind the Service.
fn hub(installation: &Installation) -> Value {
    let (system, labels) = (
        installation.system.name(),
        json!({"app.kubernetes.io/name": "knack", "app.kubernetes.io/component": "hub"}),
    );
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let words = [
        "hub".to_owned(),
        format!("--namespace={system}"),
        format!("--runtime-namespaces={}", installation.run.name()),
        format!("--default-runtime={}/default", installation.run.name()),
        format!("--watch-namespace={}", installation.run.name()),
        format!("--watch-namespace={}", installation.tenants[0].name()),
        "--allow-image-tags".to_owned(),
        "--tls-dir=/etc/knack/tls".to_owned(),
        "--journal-key=/etc/knack/journal/journal.key".to_owned(),
        "--metrics-listen=0.0.0.0:9090".to_owned(),
    ];
    let pod = json!({
        "containers": [{
            "name": "hub", "image": installation.cluster.image("sandbox-python"), "command": ["/program/knack"], "args": words,
            "env": [field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP")],
            "ports": [{"name": "https", "containerPort": 8443}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9090}, "periodSeconds": 1, "timeoutSeconds": 5},
            "volumeMounts": [
                {"name": "program", "mountPath": "/program/knack", "readOnly": true},
                {"name": "tls", "mountPath": "/etc/knack/tls", "readOnly": true},
                {"name": "journal", "mountPath": "/etc/knack/journal", "readOnly": true},
            ],
        }],
        "volumes": [
            {"name": "program", "hostPath": {"path": env!("CARGO_BIN_EXE_knack"), "type": "File"}},
            {"name": "tls", "secret": {"secretName": "knack-hub-tls"}},
            {"name": "journal", "secret": {"secretName": "knack-hub-journal"}},
        ],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": system},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": system}]},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "knack-hub", "namespace": system},
            "spec": {"selector": labels, "ports": [{"name": "https", "port": 8443, "targetPort": "https"}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "knack-hub", "namespace": system},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod}}},
    ]})
}

/// Deletes what no namespace takes with it.
struct Binding<'w>(&'w Installation);

impl Drop for Binding<'_> {
    fn drop(&mut self) {
        let words = ["delete", "clusterrolebinding", self.0.system.name(), "--wait=false"];
        let _ = self.0.cluster.try_kubectl(&words);
    }
}

/// Waits until both pods of the hub are ready.
async fn ready(pods: &Api<Pod>) {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let both = async {
        while pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .iter()
            .filter(|pod| is_ready(pod))
            .count()
            < 2
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(SOON, both)
        .await
        .expect("both pods of the hub are ready");
    progress("both pods of the hub are ready");
}

/// The process that holds the runtime's Lease: its pod's name, and some letters.
async fn holder(installation: &Installation) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(installation.client.clone(), &installation.run);
    let lease = leases.get_opt("knack-runtime-default").await.ok()??;
    lease.spec?.holder_identity
}

/// How often the runtime's Lease has passed to another owner.
async fn transitions(installation: &Installation) -> usize {
    let leases: Api<Lease> = Api::namespaced(installation.client.clone(), &installation.run);
    let lease = leases.get("knack-runtime-default").await.unwrap();
    let count = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
    usize::try_from(count).unwrap()
}

/// The executions that Jobs of the skill say they have run, once there are as many as runs; each Job says it at its end.
async fn recorded(installation: &Installation) -> BTreeSet<String> {
    let jobs: Api<Job> = Api::namespaced(installation.client.clone(), &installation.run);
    let of_skill = ListParams::default().labels("knack.dev/skill=steady");
    let all = async {
        loop {
            let listed = jobs.list(&of_skill).await.unwrap().items;
            let ids = listed
                .into_iter()
                .filter_map(|job| job.metadata.labels?.remove("knack.dev/execution"));
            let ids: Vec<String> = ids.collect();
            let distinct: BTreeSet<String> = ids.iter().cloned().collect();
            assert_eq!(ids.len(), distinct.len(), "two Jobs have run one execution: {ids:?}");
            if distinct.len() == RUNS {
                return distinct;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(SOON, all)
        .await
        .expect("each run is recorded in a Job")
}

/// SIGKILL to the program in a pod, which is a process of this machine.
fn kill(pod: &str) {
    let mark = format!("POD_NAME={pod}");
    let is_its = |id: &u32| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found: Vec<u32> = ids.filter(is_its).collect();
    assert!(!found.is_empty(), "{pod} has a process");
    for id in found {
        let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
}

/// One run of the program; what it printed.
async fn skill_run(
    words: Vec<String>,
    kubeconfig: std::path::PathBuf,
    folder: std::path::PathBuf,
) -> (bool, String, String) {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_knack"))
        .args(words)
        .env("KUBECONFIG", kubeconfig)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// The command line of one run.
fn words(installation: &Installation, index: usize) -> Vec<String> {
    let source = format!("import time; time.sleep({}); print('done {index}')", 3 + index % 4);
    [
        "skill",
        "run",
        &format!("{}/steady", installation.tenants[0].name()),
        &format!("--runtime={}", installation.runtime()),
        &format!("--service-account={}/default", installation.tenants[0].name()),
        &format!("--hub-namespace={}", installation.system.name()),
        "--timeout=60",
        "--",
        "python3",
        "-c",
        &source,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Whether enough runs have ended and are under way for this kill.
fn is_due(kill_index: usize, done: usize, under_way: usize) -> bool {
    let due = kill_index * ENDED_BETWEEN;
    let enough = if done < due + ENDED_LATE {
        IN_FLIGHT
    } else {
        SOME_IN_FLIGHT
    };
    done >= due && under_way >= enough
}

/// Waits for all runs, each of which must have printed its line once. How many had to ask again.
async fn asked_again(mut running: JoinSet<(usize, (bool, String, String))>) -> usize {
    let mut again = 0;
    while let Some(joined) = running.join_next().await {
        let (index, (success, stdout, stderr)) = joined.unwrap();
        assert!(success, "run {index}: {stderr}");
        let lines = stdout.matches(&format!("done {index}\n")).count();
        assert_eq!(lines, 1, "run {index}: {stdout} {stderr}");
        again += usize::from(stderr.contains("retrying: "));
    }
    again
}

#[test]
fn skill_runs_of_the_command_line_outlive_killed_hubs() {
    beside("skill_runs_of_the_command_line_outlive_killed_hubs", async |cluster| {
        let options = InstallationOptions {
            tenants: 1,
            spec: json!({
                "warmPool": {"replicas": 2}, "concurrency": {"maxRuns": 8, "maxQueued": 100, "queueTimeoutSeconds": 300},
                "sandbox": {"ttlSecondsAfterFinished": 3600, "maxTimeoutSeconds": 60},
            }),
            hub_names: Vec::new(),
            hub_words: Vec::new(),
        };
        let installation = Installation::install(cluster, options).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        let file = installation.folder.path().join("hub.json");
        std::fs::write(&file, hub(&installation).to_string()).unwrap();
        let _binding = Binding(&installation);
        cluster.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        let pods: Api<Pod> = Api::namespaced(installation.client.clone(), &installation.system);
        ready(&pods).await;

        let (places, ended) = (Arc::new(Semaphore::new(PROGRAMS)), Arc::new(AtomicUsize::new(0)));
        let (mut running, begun) = (JoinSet::new(), Instant::now());
        for index in 0..RUNS {
            let words = words(&installation, index);
            let (places, ended) = (Arc::clone(&places), Arc::clone(&ended));
            let (kubeconfig, folder) = (cluster.kubeconfig().to_owned(), installation.folder.path().to_owned());
            running.spawn(async move {
                let _place = places.acquire_owned().await.unwrap();
                let outcome = skill_run(words, kubeconfig, folder).await;
                progress(format!(
                    "{} of {RUNS} runs have ended",
                    ended.fetch_add(1, Ordering::Relaxed) + 1
                ));
                (index, outcome)
            });
        }
        let mut killed = None;
        for kill_index in 0..KILLS {
            let victim = loop {
                journals.look();
                let done = ended.load(Ordering::Relaxed);
                if done == RUNS {
                    let outcomes = running.join_all().await;
                    panic!("all have ended before kill {kill_index}: {outcomes:?}");
                }
                let under_way = journals.started().count().saturating_sub(done);
                if is_due(kill_index, done, under_way)
                    && let Some(holder) = holder(&installation).await
                    && killed.as_ref() != Some(&holder)
                {
                    println!(
                        "{:>5.1} s: kill {kill_index} of {holder}, {under_way} under way, {done} ended",
                        begun.elapsed().as_secs_f64()
                    );
                    break holder;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            kill(replica_of(&victim));
            killed = Some(victim);
            progress(format!("kill {kill_index} of {KILLS}"));
            // The next one is another process, also where the same pod has the Lease again.
            ready(&pods).await;
        }
        let again = asked_again(running).await;
        let starts = journals.starts();
        println!(
            "{RUNS} runs, {KILLS} kills, {again} asked again, all ended after {:?}",
            begun.elapsed()
        );
        let ids = recorded(&installation).await;
        assert!(ids.iter().all(|id| starts.get(id) == Some(&1)), "{ids:?} {starts:?}");
        // An owner tries once, at its beginning, whether a run could open a socket. One that gets no processor time loses its Lease
        // without being killed.
        let owners = 1 + transitions(&installation).await;
        assert!(starts.len() <= RUNS + owners, "{owners} owners: {starts:?}");
        assert!(again > 0, "no run has met a kill");
    });
}
