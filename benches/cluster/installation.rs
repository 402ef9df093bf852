//! Knack as the chart installs it, one skill, and an account that may call the hub.

use std::path::Path;
use std::time::Duration;

use cluster_support::Cluster;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_hub_api::{CatalogLine, RuntimeName, SkillLine};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Namespace of the release.
pub(crate) const SYSTEM: &str = "knack-system";
/// Namespace of the chart's runtime: code runs here.
pub(crate) const SANDBOXES: &str = "knack-sandboxes";
/// The chart's runtime.
const RUNTIME: &str = "default";
/// Namespace of the caller and of the skill.
pub(crate) const TENANT: &str = "bench";
/// Namespaces of teams with a runtime of their own each, besides the chart's: code may run there.
pub(crate) const TEAMS: [&str; 2] = ["team-1", "team-2"];
/// The namespace of many more runtimes.
pub(crate) const OTHERS: &str = "other-teams";
/// The skill of every call.
const SKILL: &str = "measured";
/// Size of its files together.
const SKILL_BYTES: usize = 20 << 10;
/// Port of this process that gateways take for a provider.
pub(crate) const UPSTREAM_PORT: u16 = 18_080;
/// The node, as pods reach it.
const NODE: &str = "10.99.0.1";
/// How long anything that should come soon may take.
const SOON: Duration = Duration::from_mins(2);
/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);
/// After the last pod runs: attach, bind, start of the interpreter, and the node's own work.
const SETTLE: Duration = Duration::from_millis(1500);
/// Life of the caller's token: longer than the bench.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// The installation.
pub(crate) struct Installation {
    pub(crate) cluster: &'static Cluster,
    /// All rights.
    pub(crate) client: kube::Client,
    /// The caller's.
    pub(crate) hub: HubClient,
    /// The skill as the hub serves it.
    pub(crate) skill: SkillLine,
}

impl Installation {
    /// Installs with helm and waits until everything has come to rest.
    pub(crate) async fn new(cluster: &'static Cluster) -> Self {
        let client = cluster.client().await;
        for namespace in TEAMS.into_iter().chain([OTHERS]) {
            let body = json!({"metadata": {}});
            apply::<Namespace>(&Api::all(client.clone()), namespace, "v1", "Namespace", body).await;
        }
        helm_install(cluster);
        let namespace = json!({"metadata": {"name": TENANT, "labels": {"knack.dev/inject": "enabled"}}});
        apply::<Namespace>(&Api::all(client.clone()), TENANT, "v1", "Namespace", namespace).await;
        let skills: Api<Skill> = Api::namespaced(client.clone(), TENANT);
        apply(
            &skills,
            SKILL,
            "knack.dev/v1alpha1",
            "Skill",
            json!({"spec": skill_spec(SKILL, SKILL_BYTES)}),
        )
        .await;
        let hub = hub_client(&client, "default").await;
        // The isolation probe runs once at the start; what it takes must not be measured.
        let runtimes: Api<SkillRuntime> = Api::namespaced(client.clone(), SANDBOXES);
        eventually("the isolation probe has ended", async || {
            let runtime = runtimes.get(RUNTIME).await.expect("the chart's runtime");
            // Of both locks: each is tried by a pod of its own.
            let isolation = runtime.status.and_then(|status| status.isolation);
            isolation.is_some_and(|found| found.cni.is_some() && found.runner.is_some())
        })
        .await;
        let skill = served(&hub).await;
        Self {
            cluster,
            client,
            hub,
            skill,
        }
    }

    /// The runtime that runs everything here.
    pub(crate) fn runtime() -> RuntimeName {
        RuntimeName::new(SANDBOXES, RUNTIME)
    }

    /// Changes the runtime and waits until `warmPool.replicas` pods are ready and nothing else happens.
    pub(crate) async fn configure(&self, spec: Value) {
        let api: Api<SkillRuntime> = Api::namespaced(self.client.clone(), SANDBOXES);
        let patch = json!({"spec": spec});
        api.patch(RUNTIME, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("the runtime can be changed");
        let replicas = spec["warmPool"]["replicas"]
            .as_u64()
            .expect("every part says how many stand");
        self.standing(replicas as usize).await;
    }

    /// Waits until exactly so many sandboxes run, and a moment longer.
    pub(crate) async fn standing(&self, count: usize) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), SANDBOXES);
        let mut calm_since: Option<tokio::time::Instant> = None;
        eventually(&format!("{count} sandboxes stand"), async || {
            let pods = api.list(&ListParams::default()).await.expect("pods can be listed");
            let phase = |pod: &Pod| {
                pod.status
                    .as_ref()
                    .and_then(|status| status.phase.clone())
                    .unwrap_or_default()
            };
            let alive: Vec<&Pod> = pods
                .items
                .iter()
                .filter(|pod| !matches!(phase(pod).as_str(), "Succeeded" | "Failed"))
                .collect();
            let stand = alive
                .iter()
                .all(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none());
            if alive.len() == count && stand {
                return calm_since.get_or_insert_with(tokio::time::Instant::now).elapsed() >= SETTLE;
            }
            calm_since = None;
            false
        })
        .await;
    }

    /// Waits until no finished Job is left here, and the same of `namespace`.
    pub(crate) async fn swept(&self, namespace: &str) {
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        eventually("finished Jobs are gone", async || {
            let jobs = api.list(&ListParams::default()).await.expect("Jobs can be listed");
            let ended = |job: &Job| {
                job.status
                    .as_ref()
                    .is_none_or(|status| status.active.unwrap_or(0) == 0 || status.terminating.unwrap_or(0) > 0)
            };
            let pods = pods.list(&ListParams::default()).await.expect("pods can be listed");
            !jobs.items.iter().any(ended) && pods.items.len() == jobs.items.len()
        })
        .await;
        tokio::time::sleep(SETTLE).await;
    }

    /// Deletes the finished Jobs here and those of `namespace`, so that no part meets what another left.
    pub(crate) async fn cleared(&self, namespace: &str) {
        let finished = ListParams::default().fields("status.successful=1");
        for namespace in [SANDBOXES, namespace] {
            let jobs: Api<Job> = Api::namespaced(self.client.clone(), namespace);
            jobs.delete_collection(&DeleteParams::background(), &finished)
                .await
                .expect("finished Jobs can be deleted");
        }
        self.swept(namespace).await;
    }

    /// Sets how many gateways there are and waits for them; their addresses.
    pub(crate) async fn gateways(&self, count: usize) -> Vec<String> {
        let replicas = format!("--replicas={count}");
        self.cluster
            .kubectl(&["-n", SYSTEM, "scale", "deployment/knack-gateway", &replicas]);
        self.cluster.kubectl(&[
            "-n",
            SYSTEM,
            "rollout",
            "status",
            "deployment/knack-gateway",
            // With ten thousand Skills each fetches as many.
            "--timeout=180s",
        ]);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let gateways = ListParams::default().labels("app.kubernetes.io/component=gateway");
        let mut addresses = Vec::new();
        eventually("the gateways are there", async || {
            let pods = api.list(&gateways).await.expect("pods can be listed");
            addresses = pods
                .items
                .iter()
                .filter_map(|pod| pod.status.as_ref()?.pod_ip.clone())
                .collect();
            pods.items.len() == count && addresses.len() == count
        })
        .await;
        addresses
    }
}

fn helm_install(cluster: &Cluster) {
    let values = json!({
        "image": {"repository": "knack.local/knack", "tag": "dev"},
        "gatewayImage": {"repository": "knack.local/knack-gateway"},
        "sandbox": {
            "images": {"python": cluster.image("sandbox-python"), "node": cluster.image("sandbox-node")},
            "allowImageTags": true,
        },
        "runtimeNamespaces": TEAMS.into_iter().chain([OTHERS]).collect::<Vec<_>>(),
        "defaultRuntime": {"spec": {"maxActivation": "Always", "warmPool": {"replicas": 0}}},
        // They come when they are measured.
        "gateway": {"replicas": 0, "upstreams": {"openai": format!("http://{NODE}:{UPSTREAM_PORT}")}},
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("values.json");
    std::fs::write(&file, values.to_string()).expect("a writable folder");
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/knack");
    let output = cluster
        .command("helm")
        .args(["upgrade", "--install", "knack"])
        .arg(&chart)
        .args([
            "--namespace",
            SYSTEM,
            "--create-namespace",
            // The parts change the runtime; a cluster that was kept is set back.
            "--force-conflicts",
            "--wait",
            "--timeout",
            "180s",
            "--values",
        ])
        .arg(&file)
        .output()
        .expect("helm starts");
    assert!(
        output.status.success(),
        "helm install: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A skill of about `bytes` bytes in four files.
pub(crate) fn skill_spec(name: &str, bytes: usize) -> Value {
    let text = format!(
        "---\nname: {name}\ndescription: A skill that is measured, number {name}.\n---\n# Steps\n\nRun scripts/run.py.\n"
    );
    let rest = bytes.saturating_sub(text.len()) / 3;
    let filler = |seed: usize| -> String {
        let words = (0..).map(|n| format!("# {:08x}\n", (n + seed).wrapping_mul(2_654_435_761) & 0xffff_ffff));
        let mut filler = String::with_capacity(rest + 16);
        for word in words {
            if filler.len() >= rest {
                break;
            }
            filler.push_str(&word);
        }
        filler
    };
    json!({"source": {"inline": {"files": {
        "SKILL.md": text,
        "scripts/run.py": format!("{}print('done')\n", filler(1)),
        "scripts/more.py": filler(2),
        "references/table.md": filler(3),
    }}}})
}

/// Applies an object; `body` is what it has besides its identity.
pub(crate) async fn apply<K>(api: &Api<K>, name: &str, version: &str, kind: &str, mut body: Value)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    body["apiVersion"] = version.into();
    body["kind"] = kind.into();
    body["metadata"]["name"] = name.into();
    let params = PatchParams::apply("bench").force();
    let applied = api.patch(name, &params, &Patch::Apply(&body)).await;
    applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
}

/// The hub, asked as a ServiceAccount of the tenant, at its Service's address.
pub(crate) async fn hub_client(client: &kube::Client, account: &str) -> HubClient {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), TENANT);
    eventually("the tenant has a ServiceAccount", async || {
        accounts.get_opt(account).await.is_ok_and(|found| found.is_some())
    })
    .await;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec!["knack".to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .expect("a token");
    let token = answer.status.expect("an answered request").token;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    let authorities = maps
        .get("knack-hub-ca")
        .await
        .expect("the hub's authorities")
        .data
        .unwrap_or_default();
    let services: Api<Service> = Api::namespaced(client.clone(), SYSTEM);
    let service = services.get("knack-hub").await.expect("the hub's Service");
    let address = service.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    HubClient::new(HubClientSettings {
        url: format!("https://knack-hub.{SYSTEM}.svc:8443"),
        authorities: Authorities::Pem(authorities["ca.crt"].clone()),
        token: Token::Fixed(token),
        address: Some(address.parse().expect("an IP address")),
    })
    .expect("a client")
}

/// The skill, once the hub serves it to the tenant.
async fn served(hub: &HubClient) -> SkillLine {
    let wait = async {
        loop {
            let path = format!("/v1/catalog?runtime={}&watch=true", Installation::runtime());
            if let Ok(mut lines) = hub.hub().watch(&path).await {
                while let Ok(Some(line)) = lines.next_value::<CatalogLine>().await {
                    if let CatalogLine::Skill(skill) = line
                        && skill.name == SKILL
                    {
                        return *skill;
                    }
                }
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(SOON, wait)
        .await
        .expect("the hub serves the skill")
}

/// Asks again until it holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = tokio::time::Instant::now() + SOON;
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "not within {SOON:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}
