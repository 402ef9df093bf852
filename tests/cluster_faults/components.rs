//! Parts of the cluster that are killed and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster_support::{Cluster, Component, STILL};
use knack_execution::ExecutionError;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use super::alone;
use super::calls::{Calls, is_named};
use super::chat::{Model, chat, content};
use super::journals::Journals;
use super::support::Installation;

/// Longest wait for the answer to a request without skills, whatever is down.
const PROXIED_WITHIN: Duration = Duration::from_mins(1);
/// Longest call of an execution, whatever is down: its own limit, and the 3 minutes that a gateway asks on after it.
const CALL_WITHIN: Duration = Duration::from_mins(4);
/// How soon code runs again after the part is back, on a machine on which other suites run. How long it took is printed.
const RECOVERED_WITHIN: Duration = Duration::from_mins(3);
/// Callers that run one execution after another all the time.
const CALLERS: usize = 3;
/// Executions that are under way when a part is killed: one of each caller, and the long one.
const UNDER_WAY: usize = CALLERS + 1;

/// A part that is down; it is started again when dropped, so that a test that fails leaves a whole bed.
pub(crate) struct Down<'c> {
    cluster: &'c Cluster,
    component: Component,
}

impl<'c> Down<'c> {
    pub(crate) fn kill(cluster: &'c Cluster, component: Component) -> Self {
        cluster.kill(component);
        Self { cluster, component }
    }
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.cluster.start(self.component);
    }
}

/// Waits until the bed is whole: the API server answers, the node is ready, names resolve.
pub(crate) async fn whole(cluster: &Cluster) {
    let begun = Instant::now();
    let is = |words: &[&str]| cluster.try_kubectl(words).status.success();
    loop {
        let ready = is(&["get", "--raw", "/readyz"])
            && is(&["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=5s"])
            && is(&[
                "-n",
                "kube-system",
                "wait",
                "--for=condition=Available",
                "deployment/coredns",
                "--timeout=5s",
            ]);
        if ready {
            return;
        }
        assert!(begun.elapsed() < STILL, "the bed does not become whole");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Requests without skills through the gateway, four a second, until cancelled.
struct Traffic {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(usize, Duration)>,
}

impl Traffic {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let (status, body) = tokio::time::timeout(PROXIED_WITHIN, chat(port, "hello", None))
                    .await
                    .expect("a request without skills is proxied, whatever is down");
                assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
                count += 1;
                longest = longest.max(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            (count, longest)
        });
        Self { stop, task }
    }

    async fn end(self) -> (usize, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// How an execution ended.
struct Ended {
    id: String,
    took: Duration,
    outcome: Result<String, ExecutionError>,
}

async fn one(calls: &Calls, seconds: f64) -> Ended {
    let request = calls.sleeper(seconds, "woke");
    let (id, asked) = (request.id.to_string(), Instant::now());
    let outcome = tokio::time::timeout(CALL_WITHIN, calls.text(request))
        .await
        .unwrap_or_else(|_| panic!("execution {id} hangs"));
    Ended {
        id,
        took: asked.elapsed(),
        outcome,
    }
}

/// Runs short executions one after another, `CALLERS` at once, until cancelled.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Ended>>,
}

impl Load {
    fn start(calls: &Calls) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..CALLERS {
            let (stop, calls) = (Arc::clone(&stop), calls.clone());
            tasks.spawn(async move {
                let mut ended = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let last = one(&calls, 1.0).await;
                    let is_refused = last.outcome.is_err();
                    ended.push(last);
                    if is_refused {
                        // Refusals at once must not make a hot loop of the test.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                ended
            });
        }
        Self { stop, tasks }
    }

    async fn end(self) -> Vec<Ended> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

/// Whether an error says what is the matter. `Gone` does so only of an owner that has said in its log why it does not know what ran
/// before it came back, as where it cannot read the log of a container that went with containerd.
fn is_told(installation: &Installation, error: &ExecutionError) -> bool {
    is_named(error) || (*error == ExecutionError::Gone && !rejections(installation).is_empty())
}

/// What the hub's log says of executions that it does not know.
fn rejections(installation: &Installation) -> Vec<String> {
    let log = std::fs::read_to_string(installation.folder.path().join("hub.log")).unwrap_or_default();
    let lines = log
        .lines()
        .filter(|line| line.contains("rejecting unknown execution ids"));
    lines.map(str::to_owned).collect()
}

/// One outage, with runs of every age, callers that go on, and traffic without skills.
async fn outage(
    installation: &Installation,
    calls: &Calls,
    port: u16,
    journals: &mut Journals,
    component: Component,
    down: Duration,
) {
    let name = component.name();
    let (traffic, load) = (Traffic::start(port), Load::start(calls));
    let long = tokio::spawn({
        let calls = calls.clone();
        async move { one(&calls, down.as_secs_f64() / 2.0 + 2.0).await }
    });
    let before = journals.started().count();
    let begun = Instant::now();
    while journals.started().count() < before + CALLERS {
        journals.look();
        assert!(
            begun.elapsed() < RECOVERED_WITHIN,
            "{name}: nothing runs before it is killed"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let broken = Down::kill(installation.cluster, component);
    tokio::time::sleep(down).await;
    drop(broken);
    let back = Instant::now();
    let mut last = one(calls, 0.0).await;
    while let Err(error) = &last.outcome {
        assert!(is_told(installation, error), "{name}: {error:?}");
        assert!(
            back.elapsed() < RECOVERED_WITHIN,
            "{name} is back and no code runs: {error}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
        last = one(calls, 0.0).await;
    }
    let recovered = back.elapsed();
    loop {
        let (status, body) = chat(port, "run it", None).await;
        if status == 200 && content(&body).contains("steady ran") {
            break;
        }
        // What is back may still be too busy for one of them.
        assert!(back.elapsed() < RECOVERED_WITHIN, "{name}: {status} {body}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut all = load.end().await;
    all.push(long.await.unwrap());
    all.push(last);
    let (requests, longest) = traffic.end().await;
    whole(installation.cluster).await;

    let starts = journals.starts();
    let (mut failed, mut unlogged) = (Vec::new(), 0);
    let slowest = all.iter().map(|ended| ended.took).max().unwrap();
    for ended in &all {
        let count = starts.get(&ended.id).copied().unwrap_or(0);
        assert!(count <= 1, "{name}: {} started {count} times", ended.id);
        match &ended.outcome {
            Ok(text) => {
                assert_eq!(text, "woke\n", "{name}: {}", ended.id);
                unlogged += 1 - count;
            }
            Err(error) => {
                assert!(is_told(installation, error), "{name}: {error:?}");
                failed.push(error.to_string());
            }
        }
    }
    // containerd writes the logs: what it has read when it is killed, and not yet written, is in no log.
    let may_be_lost = if component == Component::Containerd {
        UNDER_WAY
    } else {
        0
    };
    assert!(
        unlogged <= may_be_lost,
        "{name}: {unlogged} executions have a result and no start in a log"
    );
    println!(
        "{name} away for {} s: code runs {:.1} s after it is back; {} executions, {} failed by name, the slowest took {:.1} s; \
         {requests} requests proxied, the slowest took {} ms",
        down.as_secs(),
        recovered.as_secs_f64(),
        all.len(),
        failed.len(),
        slowest.as_secs_f64(),
        longest.as_millis()
    );
    for line in failed.into_iter().chain(rejections(installation)) {
        println!("  {line}");
    }
}

/// containerd, kubelet, etcd and the API server are killed in turn under load. The gateway goes on proxying; executions end
/// with their result or fail by name, in bounded time, and never run twice; code runs again when the part is back.
#[test]
fn parts_of_the_cluster_go_and_come_back() {
    alone("parts_of_the_cluster_go_and_come_back", async |cluster| {
        let spec = json!({
            "warmPool": {"replicas": 1}, "concurrency": {"maxRuns": 6},
            "sandbox": {"ttlSecondsAfterFinished": 3600, "maxTimeoutSeconds": 60},
        });
        let installation = Installation::start(cluster, 1, spec).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        let calls = Calls::new(&installation, installation.tenant(0).await).await;
        let model = Model::start(&installation).await;
        let (_gateway, port) = model.gateway(&installation, "gateway").await;
        for (component, seconds) in [
            (Component::Containerd, 8),
            (Component::Kubelet, 8),
            (Component::Etcd, 10),
            (Component::Apiserver, 30),
        ] {
            outage(
                &installation,
                &calls,
                port,
                &mut journals,
                component,
                Duration::from_secs(seconds),
            )
            .await;
        }
    });
}
