//! Owners that die: nothing is lost and nothing runs twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_support::Cluster;
use knack::execution::job::JobExecutor;
use knack::execution::{ExecutionError, ExecutionId, ExecutionRequest, Executor as _, Exit};
use serde_json::json;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python};

/// In flight at any kill.
/// An execution that was asked for: its id, its label, and its output.
type Asked = (
    ExecutionId,
    String,
    tokio::task::JoinHandle<Result<String, ExecutionError>>,
);

const IN_FLIGHT: usize = 10;
/// Executions of an ordinary test run; `KNACK_RECOVERY=full` runs 200 with 10 kills.
const EXECUTIONS: usize = 40;
/// Kills of an ordinary test run.
const KILLS: usize = 3;

/// A replica with a runtime of its own, so that it can be taken away between any two instructions: no task of it runs on,
/// no connection stays, no Lease is released.
struct Replica {
    name: String,
    runtime: Runtime,
    executor: Arc<JobExecutor>,
}

type Replicas = Arc<Mutex<Vec<(String, Handle, Arc<JobExecutor>)>>>;

impl Replica {
    async fn start(fixture: &Fixture, name: String) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.handle().clone();
        let executor = {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let (config, view, replica) = (fixture.cluster.config().await, fixture.view.clone(), name.clone());
            runtime.spawn(async move {
                let clients = knack::execution::job::JobClients::new(config).unwrap();
                let mut settings = knack::execution::job::JobSettings::new(
                    replica.clone(),
                    format!("https://{replica}:8443"),
                    [9; 32],
                );
                settings.lease_duration = Duration::from_secs(3);
                let _ = sender.send(JobExecutor::new(clients, view, settings));
            });
            receiver.await.unwrap()
        };
        Self {
            name,
            runtime,
            executor,
        }
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Asks again until there is an answer, as a gateway does.
async fn insist(replicas: Replicas, request: ExecutionRequest) -> Result<String, ExecutionError> {
    loop {
        let owner = {
            let replicas = replicas.lock().unwrap();
            replicas.iter().find(|(_, _, executor)| executor.is_owner()).cloned()
        };
        let Some((_, handle, executor)) = owner else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let again = request.clone();
        let asked = handle.spawn(async move { executor.execute(again, CancellationToken::new()).await });
        match asked.await {
            Ok(Ok(result)) => {
                assert_eq!(result.exit, Exit::Code(0), "{result:?}");
                return Ok(result.stdout.text().into_owned());
            }
            Ok(Err(ExecutionError::NotOwner { .. })) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// How often each execution has started, over the journals of all pods.
fn starts(cluster: &Cluster, namespace: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let pods = cluster.kubectl(&[
        "get",
        "pods",
        "-n",
        namespace,
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ]);
    for pod in pods.split_whitespace() {
        let log = cluster.try_kubectl(&["logs", "-n", namespace, pod]).stdout;
        for line in String::from_utf8_lossy(&log).lines() {
            let frame: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            if frame["type"] == "started" {
                *counts.entry(frame["id"].as_str().unwrap().to_owned()).or_insert(0) += 1;
            }
        }
    }
    counts
}

#[test]
fn killed_owners_lose_nothing_and_double_nothing() {
    cluster_support::run("killed_owners_lose_nothing_and_double_nothing", async |cluster| {
        let is_full = std::env::var("KNACK_RECOVERY").is_ok_and(|word| word == "full");
        let (executions, kills) = if is_full { (200, 10) } else { (EXECUTIONS, KILLS) };
        let spec = json!({
            "warmPool": {"replicas": 2}, "concurrency": {"maxRuns": 16, "maxQueued": 300, "queueTimeoutSeconds": 300},
            "sandbox": {"ttlSecondsAfterFinished": 3600, "maxTimeoutSeconds": 60},
        });
        let fixture = Fixture::new(cluster, spec).await;
        let replicas: Replicas = Arc::default();
        let mut alive = Vec::new();
        for index in 0..2 {
            alive.push(Replica::start(&fixture, format!("replica-{index}")).await);
        }
        let tell = |alive: &[Replica]| {
            let list = alive.iter().map(|replica| {
                (
                    replica.name.clone(),
                    replica.runtime.handle().clone(),
                    Arc::clone(&replica.executor),
                )
            });
            *replicas.lock().unwrap() = list.collect();
        };
        tell(&alive);
        let slots = Arc::new(tokio::sync::Semaphore::new(IN_FLIGHT));
        let mut asked: Vec<Asked> = Vec::new();
        for index in 0..executions {
            let mut request = python(&format!(
                "import time; time.sleep({}); print('done {index}')",
                2 + index % 7
            ));
            request.limits.timeout = Duration::from_secs(30);
            let (slots, replicas, id) = (Arc::clone(&slots), Arc::clone(&replicas), request.id);
            asked.push((
                id,
                format!("done {index}\n"),
                tokio::spawn(async move {
                    let _slot = slots.acquire_owned().await.unwrap();
                    insist(replicas, request).await
                }),
            ));
        }
        for kill in 0..kills {
            eventually(120, "an owner has runs in flight", async || {
                alive.iter().any(|replica| {
                    let counts = replica.executor.counts();
                    replica.executor.is_owner() && counts.running + counts.queued >= 8
                }) || asked.iter().filter(|(_, _, task)| !task.is_finished()).count() < IN_FLIGHT
            })
            .await;
            // Anywhere in the second after: between claim and run, during a run, between result and ack.
            tokio::time::sleep(Duration::from_millis(150 * (kill as u64 % 7))).await;
            let position = alive
                .iter()
                .position(|replica| replica.executor.is_owner())
                .unwrap_or(0);
            let dead = alive.remove(position);
            println!("kill {kill}: {}", dead.name);
            tell(&alive);
            dead.kill();
            alive.push(Replica::start(&fixture, format!("replica-{}", kill + 2)).await);
            tell(&alive);
        }
        let mut ids = Vec::new();
        for (id, expected, task) in asked {
            let outcome = tokio::time::timeout(Duration::from_mins(4), task)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(outcome, Ok(expected), "{id}");
            ids.push(id.to_string());
        }
        let counts = starts(cluster, &fixture.namespace);
        for id in &ids {
            assert_eq!(counts.get(id), Some(&1), "{id}");
        }
        println!("{} executions, {kills} kills: 0 lost, 0 doubled", ids.len());
        for replica in alive {
            replica.executor.shutdown().await;
            replica.kill();
        }
    });
}
