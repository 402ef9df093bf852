//! What runtimes cost that do nothing: calls to the API server, counted by the API server.

use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use knack_api::{Skill, SkillRuntime};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::support::{Installation, InstallationOptions, SOON};

/// Runtimes, and Skills that each of them serves.
const RUNTIMES: u32 = 5;
const SKILLS: u32 = 100;
/// How long nothing is done: as long as the longest period of anything that is looked at. A third of it has all of these looks
/// or none.
const IDLE: Duration = Duration::from_mins(1);
/// Minutes of which the least busy one is judged, since other tests of the cluster make namespaces and Skills meanwhile, of which
/// controller and hub are told.
const MINUTES: u32 = 3;
/// Calls of controller and hub together, per idle runtime and second. By their periods it is about 0.3: a Lease each 5 s,
/// looks at fence and quota each minute, and both processes' own Leases over five runtimes.
const CALLS_PER_SECOND: f64 = 0.5;
/// Namespaces without Skills and runtimes that come and go, and calls for all of them together.
const NAMESPACES: usize = 40;
const CALLS_FOR_NAMESPACES: f64 = 30.0;
/// Tries of which the one with the fewest calls is judged, for the same reason.
const TRIES: u32 = 3;
/// Calls for one Skill's change: reads of the Skill, its ConfigMaps, status and Event, and for each runtime that serves it a
/// status at most.
const CALLS_PER_CHANGE: f64 = 40.0;
/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A user of the API server whose calls are counted; it may do everything.
pub(crate) struct Counted {
    client: kube::Client,
    pub(crate) name: String,
}

impl Counted {
    pub(crate) async fn new(client: kube::Client, name: String) -> Self {
        let user = json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({
            "metadata": {"name": name}, "subjects": [user],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        });
        let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        bindings.create(&PostParams::default(), &binding).await.unwrap();
        let everything = json!({
            "subjects": [{"kind": "User", "user": {"name": name}}],
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        });
        let schema = json!({
            "metadata": {"name": name},
            "spec": {
                "matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "workload-high"},
                "distinguisherMethod": {"type": "ByUser"}, "rules": [everything],
            },
        });
        let schema: FlowSchema = serde_json::from_value(schema).unwrap();
        let schemas: Api<FlowSchema> = Api::all(client.clone());
        schemas.create(&PostParams::default(), &schema).await.unwrap();
        Self { client, name }
    }

    /// Its calls so far.
    pub(crate) async fn calls(&self) -> f64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let schema = format!("flow_schema=\"{}\"", self.name);
        let lines = text.lines().filter(|line| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{") && line.contains(&schema)
        });
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    pub(crate) async fn remove(self) {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings.delete(&self.name, &DeleteParams::default()).await.unwrap();
        let schemas: Api<FlowSchema> = Api::all(self.client.clone());
        schemas.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

/// Waits until every runtime is Ready and serves this many Skills.
async fn all_serve(api: &Api<SkillRuntime>, skills: u32) {
    let begun = Instant::now();
    let serves = |runtime: &SkillRuntime| {
        let status = runtime.status.clone().unwrap_or_default();
        status.skills.unwrap_or_default().accepted == i64::from(skills) && status.owner.is_some()
    };
    while !api
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .iter()
        .all(serves)
    {
        assert!(begun.elapsed() < SOON, "every runtime serves every Skill");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    progress("every runtime serves every Skill");
}

/// Waits until calls come as seldom as they ever will: what follows a change is over.
async fn calm(counted: &Counted) {
    let begun = Instant::now();
    loop {
        let before = counted.calls().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        if counted.calls().await - before <= 3.0 * CALLS_PER_SECOND * f64::from(RUNTIMES) {
            progress("it has come to rest");
            return;
        }
        assert!(begun.elapsed() < SOON, "it comes to rest");
    }
}

/// Edits a Skill and waits until the controller has judged it.
async fn edit(installation: &Installation, tag: &str) {
    let skills: Api<Skill> = Api::namespaced(installation.client.clone(), installation.run.name());
    let edit: Value = json!({"spec": {"activation": {"tags": [tag]}}});
    let params = PatchParams::default();
    let edited = skills.patch("s0", &params, &Patch::Merge(&edit)).await.unwrap();
    let judged = |skill: &Skill| {
        let status = skill.status.as_ref();
        status.is_some_and(|status| status.observed_generation == edited.metadata.generation)
    };
    let begun = Instant::now();
    while !judged(&skills.get(&edited.name_any()).await.unwrap()) {
        assert!(begun.elapsed() < SOON, "the edit is judged");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The calls for what `act` does, until all is calm again, without those of the same time at rest: the fewest of a few tries, or of
/// the first that stays within `limit`. `act` gets the number of the try. A try takes as long as the time at rest was measured, so
/// that both have all that is done once in this time.
async fn fewest(counted: &Counted, per_second: f64, limit: f64, act: impl AsyncFn(u32)) -> f64 {
    let mut fewest = f64::INFINITY;
    for number in 0..TRIES {
        let (before, begun) = (counted.calls().await, Instant::now());
        act(number).await;
        tokio::time::sleep(IDLE.saturating_sub(begun.elapsed())).await;
        calm(counted).await;
        let rest = per_second * begun.elapsed().as_secs_f64();
        fewest = fewest.min(counted.calls().await - before - rest);
        progress(format!("{fewest:.1} calls"));
        if fewest <= limit {
            break;
        }
    }
    fewest
}

#[test]
fn runtimes_that_do_nothing_cost_the_api_server_next_to_nothing() {
    run(
        "runtimes_that_do_nothing_cost_the_api_server_next_to_nothing",
        async |cluster| {
            let options = InstallationOptions::of(1, json!({}));
            let mut installation = Installation::install(cluster, options).await;
            installation.stop_controller();
            let counted = Counted::new(
                installation.client.clone(),
                format!("counted-{}", installation.run.name()),
            )
            .await;
            installation.acts_as(&counted.name);
            installation.start_controller();
            installation.restart_hub().await;
            let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
            let mut more = runtimes.get("default").await.unwrap();
            more.metadata = kube::api::ObjectMeta::default();
            more.status = None;
            for number in 1..RUNTIMES {
                more.metadata.name = Some(format!("more-{number}"));
                runtimes.create(&PostParams::default(), &more).await.unwrap();
            }
            for number in 0..SKILLS {
                installation
                    .skill(&installation.run, &format!("s{number}"), "print('x')")
                    .await;
            }
            all_serve(&runtimes, SKILLS).await;
            calm(&counted).await;

            let mut idle = f64::INFINITY;
            for _ in 0..MINUTES {
                let (before, begun) = (counted.calls().await, Instant::now());
                tokio::time::sleep(IDLE).await;
                let calls = counted.calls().await - before;
                idle = idle.min(calls / begun.elapsed().as_secs_f64() / f64::from(RUNTIMES));
                println!("{idle:.2} calls per idle runtime and second");
                progress("a minute is over");
                if idle <= CALLS_PER_SECOND {
                    break;
                }
            }
            assert!(idle > 0.0, "they are counted");
            assert!(idle <= CALLS_PER_SECOND, "{idle:.2} calls per idle runtime and second");

            let per_second = idle * f64::from(RUNTIMES);
            let change = fewest(&counted, per_second, CALLS_PER_CHANGE, async |number| {
                edit(&installation, &format!("edited-{number}")).await;
            });
            let change = change.await;
            println!("{change:.1} calls for one Skill's change, of {SKILLS} Skills and {RUNTIMES} runtimes");
            assert!(change <= CALLS_PER_CHANGE, "{change:.1} calls for one Skill's change");

            let churn = fewest(&counted, per_second, CALLS_FOR_NAMESPACES, async |_| {
                for _ in 0..NAMESPACES {
                    drop(cluster.namespace_with("hub-other", &[("team", "other")]).await);
                }
            });
            let churn = churn.await;
            println!("{churn:.1} calls for {NAMESPACES} namespaces that come and go");
            assert!(
                churn <= CALLS_FOR_NAMESPACES,
                "{churn:.1} calls for {NAMESPACES} namespaces"
            );
            counted.remove().await;
        },
    );
}
