//! Thousands of Skills to Ready, and what the controller holds meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use knack_api::Skill;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::Bench;
use crate::installation::{apply, eventually, skill_spec};
use crate::processes;
use crate::report::{Budget, Measured, Report};

/// Skills created at once: more only wait in the API server.
const CREATORS: usize = 32;
/// How often memory is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a line of progress is printed.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// The small ones.
pub(crate) const MANY: Load = Load {
    namespace: "many-small",
    count: 10_000,
    bytes: 2 << 10,
    seconds: "skills_10000_of_2k_ready_s",
    memory: "controller_peak_mb_10000_of_2k",
};
/// The large ones: fewer, since etcd keeps each twice and is given 2 GiB.
const LARGE: Load = Load {
    namespace: "some-large",
    count: 1_000,
    bytes: 50 << 10,
    seconds: "skills_1000_of_50k_ready_s",
    memory: "controller_peak_mb_1000_of_50k",
};

/// Skills of one size in a namespace of their own.
pub(crate) struct Load {
    pub(crate) namespace: &'static str,
    pub(crate) count: usize,
    bytes: usize,
    seconds: &'static str,
    memory: &'static str,
}

/// Both loads, each once: the second on top of the first.
pub(crate) async fn to_ready(bench: &mut Bench) {
    bench.installation.gateways(0).await;
    bench.installation.configure(json!({"warmPool": {"replicas": 0}})).await;
    let pid = processes::running(&bench.installation.client, "controller").await;
    for load in [MANY, LARGE] {
        bench.progress(&format!("{} Skills of {} bytes", load.count, load.bytes));
        let budgets = [
            Budget {
                name: load.seconds,
                limit: 60.0,
            },
            Budget {
                name: load.memory,
                limit: 150.0,
            },
        ];
        let client = bench.installation.client.clone();
        let sample = async || {
            let peak = Peak::watch(pid);
            let seconds = ready(&client, &load).await;
            let value = peak.megabytes();
            [seconds, value].map(|value| Measured { value, spread: 0.0 })
        };
        bench.report.steady(budgets, sample).await;
    }
}

/// Leaves the small ones, and makes them where they are not there yet.
pub(crate) async fn only_many(bench: &mut Bench) {
    let client = bench.installation.client.clone();
    bench.installation.gateways(0).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces
        .delete(LARGE.namespace, &DeleteParams::background())
        .await
        .is_ok()
    {
        bench.progress(&format!("deletes {}", LARGE.namespace));
        eventually("the large Skills are gone", async || {
            namespaces
                .get_opt(LARGE.namespace)
                .await
                .is_ok_and(|found| found.is_none())
        })
        .await;
    }
    if !is_there(&client, &MANY).await {
        bench.progress(&format!("{} Skills of {} bytes", MANY.count, MANY.bytes));
        ready(&client, &MANY).await;
    }
}

/// Whether there are Skills of a load.
pub(crate) async fn is_there(client: &kube::Client, load: &Load) -> bool {
    let api: Api<Skill> = Api::namespaced(client.clone(), load.namespace);
    let found = api.list_metadata(&ListParams::default().limit(1)).await;
    !found.expect("Skills can be listed").items.is_empty()
}

/// Seconds from before the first creation until the last one is Ready.
async fn ready(client: &kube::Client, load: &Load) -> f64 {
    apply::<Namespace>(
        &Api::all(client.clone()),
        load.namespace,
        "v1",
        "Namespace",
        json!({"metadata": {}}),
    )
    .await;
    let api: Api<Skill> = Api::namespaced(client.clone(), load.namespace);
    let begun = Instant::now();
    let creating = async {
        let names = futures::stream::iter(0..load.count);
        names
            .for_each_concurrent(CREATORS, async |number| {
                let name = format!("skill-{number:05}");
                let body = json!({"metadata": {"name": name}, "spec": skill_spec(&name, load.bytes)});
                let skill: Skill = serde_json::from_value(body).expect("a Skill");
                api.create(&PostParams::default(), &skill)
                    .await
                    .expect("a Skill can be made");
            })
            .await;
        begun.elapsed()
    };
    let waiting = async {
        let mut events = std::pin::pin!(
            watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .applied_objects()
        );
        let mut ready = HashSet::new();
        let mut told = Instant::now();
        while ready.len() < load.count {
            let event = tokio::time::timeout(Duration::from_mins(5), events.next()).await;
            let Some(Ok(skill)) = event.expect("Skills get Ready") else {
                continue;
            };
            let conditions = skill.status.map(|status| status.conditions).unwrap_or_default();
            if conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
            {
                ready.insert(skill.metadata.name);
            }
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                Report::note(&format!(
                    "  {} Ready after {:.0} s",
                    ready.len(),
                    begun.elapsed().as_secs_f64()
                ));
            }
        }
        begun.elapsed()
    };
    let (created, ready) = tokio::join!(creating, waiting);
    Report::note(&format!(
        "  all created after {:.1} s, all Ready after {:.1} s",
        created.as_secs_f64(),
        ready.as_secs_f64()
    ));
    ready.as_secs_f64()
}

/// The largest resident set that was seen.
struct Peak {
    bytes: Arc<AtomicU64>,
    _looking: AbortOnDropHandle<()>,
}

impl Peak {
    fn watch(pid: u32) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&bytes);
        let looking = tokio::spawn(async move {
            loop {
                seen.fetch_max(processes::resident(pid), Ordering::Relaxed);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Self {
            bytes,
            _looking: AbortOnDropHandle::new(looking),
        }
    }

    fn megabytes(&self) -> f64 {
        self.bytes.load(Ordering::Relaxed) as f64 / 1e6
    }
}
