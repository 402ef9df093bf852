//! Two tenants behind one shared gateway: each is shown, and may run, what its own namespace sees, and neither waits for all that the
//! other asks for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cluster_support::{progress, run};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use knack_hub_api::client::{HubClient, HubError, LineReader};
use knack_hub_api::{CatalogLine, ContentIndex, RefusalCode, SkillLine};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::chat::{chat_with, content};
use super::support::{
    Installation, InstallationOptions, Process, SOON, code, free_port, fresh_id, listening, patiently, refused,
};

/// Runs that wait at a runtime where one runs at once.
const WAITING: usize = 8;
/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A model that lists the skills of its request, and runs the script of one when asked to.
const SCRIPT: &str = r#"
turns:
  - user: {regex: 'run own'}
    rounds:
      - when: {results: 0}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: own, command: 'python3 skills/own/scripts/run.py'}
      - when: {}
        reply: {text: "{{results}}"}
  - user: {contains: which skills}
    rounds:
      - reply: {text: "{{skills}}"}
        pick: {skills: {from: system, regex: '(?s)(<skill .*</skill>)'}}
  - user: {contains: hello}
    rounds:
      - reply: {text: "{{text}}"}
        pick: {text: {from: system, regex: '(?s)(.*)'}}
"#;

/// What the gateway's account may at the runtime.
async fn allow(installation: &Installation, verbs: &[&str]) {
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "gateway"},
        "rules": [{"apiGroups": ["knack.dev"], "resources": ["skillruntimes"], "resourceNames": ["default"], "verbs": verbs}],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "gateway"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gateway"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": installation.system.name()}],
    }))
    .unwrap();
    let roles: Api<Role> = Api::namespaced(installation.client.clone(), installation.run.name());
    let bindings: Api<RoleBinding> = Api::namespaced(installation.client.clone(), installation.run.name());
    roles.create(&PostParams::default(), &role).await.unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

/// A gateway with the account of the system's namespace, which knows its clients, and a model behind it.
async fn gateway(installation: &Installation) -> (Process, Process, u16) {
    let folder: &Path = installation.folder.path();
    let (script, token) = (folder.join("tenants.yaml"), folder.join("gateway-token"));
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::write(
        &token,
        installation.token(installation.system.name(), "default", "knack").await,
    )
    .unwrap();
    let (model, port) = (free_port(), free_port());
    let words = [
        "mock".to_owned(),
        format!("--listen=127.0.0.1:{model}"),
        format!("--script={}", script.display()),
    ];
    let mock = Process::start(installation.cluster, folder, "tenants-mock", &words);
    listening(model).await;
    let words = [
        "gateway".to_owned(),
        format!("--listen=127.0.0.1:{port}"),
        format!("--hub={}", installation.url()),
        format!("--hub-ca={}", installation.authorities_file().display()),
        format!("--token-file={}", token.display()),
        format!("--runtime={}", installation.runtime()),
        format!("--upstream-openai=http://127.0.0.1:{model}"),
        "--client-auth=token-review".to_owned(),
        "--metrics-listen=127.0.0.1:0".to_owned(),
    ];
    let gateway = Process::start(installation.cluster, folder, "tenants-gateway", &words);
    listening(port).await;
    (mock, gateway, port)
}

#[derive(Clone)]
struct Client {
    port: u16,
    token: String,
}

impl Client {
    async fn of(installation: &Installation, tenant: usize, port: u16) -> Self {
        let token = installation
            .token(&installation.tenants[tenant], "default", "knack-gateway")
            .await;
        Self { port, token }
    }

    async fn ask(&self, text: &str, skills: Option<&str>) -> (u16, String) {
        let mut headers = vec![("x-knack-token", self.token.as_str())];
        headers.extend(skills.map(|skills| ("x-knack-skills", skills)));
        chat_with(self.port, text, &headers).await
    }

    /// Asks until the answer satisfies: a changed catalog comes within moments.
    async fn until(&self, text: &str, what: &str, fits: impl Fn(&str) -> bool) {
        let asked = async {
            loop {
                let (status, body) = self.ask(text, None).await;
                if status == 200 && fits(&content(&body)) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let answered = tokio::time::timeout(SOON, asked).await;
        assert!(answered.is_ok(), "{what}: {:?}", self.ask(text, None).await);
    }
}

async fn names(client: &HubClient, catalog: &str) -> Result<Vec<String>, HubError> {
    let mut lines = patiently(async || client.hub().watch(catalog).await).await?;
    let mut names = Vec::new();
    while let Some(line) = lines.next_value::<CatalogLine>().await? {
        if let CatalogLine::Skill(skill) = line {
            names.push(format!("{}/{}", skill.namespace, skill.name));
        }
    }
    Ok(names)
}

async fn share(installation: &Installation, namespace: &str, name: &str) {
    let api: Api<knack_api::Skill> = Api::namespaced(installation.client.clone(), namespace);
    let patch = json!({"spec": {"allowedRuntimes": {"namespaces": {"from": "All"}}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

#[test]
fn a_client_of_a_shared_gateway_sees_and_runs_what_its_namespace_sees() {
    run(
        "a_client_of_a_shared_gateway_sees_and_runs_what_its_namespace_sees",
        async |cluster| {
            let installation = Installation::start(cluster, 2, json!({})).await;
            allow(&installation, &["use", "use-for"]).await;
            let (_mock, _gateway, port) = gateway(&installation).await;
            let (a, b) = (
                Client::of(&installation, 0, port).await,
                Client::of(&installation, 1, port).await,
            );
            let (in_a, in_b) = (installation.tenants[0].name(), installation.tenants[1].name());
            installation.skill(in_a, "own", "print('of a')").await;
            installation.skill(in_b, "own", "print('of b')").await;
            installation.skill(in_b, "secret-of-b", "print('secret')").await;
            let shows = |name: &'static str| move |text: &str| text.contains(&format!("name=\"{name}\""));

            // Each gets its own skills only, under their plain names, and runs its own code by them.
            b.until("which skills", "b sees its skills", |text| {
                shows("own")(text) && shows("secret-of-b")(text)
            })
            .await;
            a.until("which skills", "a sees its skill", |text| {
                shows("own")(text) && !text.contains("secret-of-b")
            })
            .await;
            for (client, expected) in [(&a, "of a"), (&b, "of b")] {
                let (status, body) = client.ask("run own", None).await;
                assert_eq!(status, 200, "{body}");
                assert!(content(&body).contains(expected), "{body}");
            }
            // Naming another tenant's skill is naming none.
            let (status, body) = a.ask("which skills", Some("secret-of-b")).await;
            assert_eq!(status, 404, "{body}");
            assert!(body.contains("skill_not_found"), "{body}");

            // What b shares is shown to a, and takes no name away from it, whatever the namespaces are called.
            share(&installation, in_b, "own").await;
            let full = format!("name=\"{in_b}/own\"");
            a.until("which skills", "a sees what b shares", |text| text.contains(&full))
                .await;
            let (_, body) = a.ask("run own", None).await;
            assert!(content(&body).contains("of a"), "{body}");
            let (_, body) = a.ask("@own hello", None).await;
            let told: Value = serde_json::from_str(&body).unwrap();
            assert!(told["choices"][0]["message"]["content"].is_string(), "{body}");
            b.until("which skills", "b's own keeps its name", |text| {
                shows("own")(text) && !text.contains(&full)
            })
            .await;
        },
    );
}

/// The hub asks for the right to ask for others, and narrows by itself: what a gateway says widens nothing.
#[test]
fn asking_for_a_client_takes_a_right_and_shows_what_the_client_sees() {
    run(
        "asking_for_a_client_takes_a_right_and_shows_what_the_client_sees",
        async |cluster| {
            let installation = Installation::start(cluster, 2, json!({})).await;
            let (in_a, in_b) = (installation.tenants[0].name(), installation.tenants[1].name());
            installation.skill(in_b, "of-b", "print('b')").await;
            let b = installation.tenant(1).await;
            let of_b = installation.served(&b, "of-b").await;
            let catalog = installation.catalog();

            // A tenant's own gateway may ask for its own namespace by name, and for no other.
            let a = installation.tenant(0).await;
            assert_eq!(names(&a.for_namespace(in_a), &catalog).await.unwrap(), [""; 0]);
            assert_eq!(
                code(names(&a.for_namespace(in_b), &catalog).await),
                RefusalCode::Forbidden
            );

            allow(&installation, &["use", "use-for"]).await;
            let shared =
                installation.hub_client(&installation.token(installation.system.name(), "default", "knack").await);
            let expected = [format!("{in_b}/of-b")];
            let seen = async {
                while names(&shared.for_namespace(in_b), &catalog).await.ok().as_deref() != Some(&expected) {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(SOON, seen).await.expect("what b sees");
            assert_eq!(
                names(&shared, &catalog).await.unwrap(),
                [""; 0],
                "for itself it sees nothing of b"
            );
            for (client, taken) in [
                (shared.for_namespace(in_b), true),
                (shared.for_namespace(in_a), false),
                (shared.clone(), false),
            ] {
                let index = format!("/v1/content/{}?runtime={}", of_b.digest, installation.runtime());
                let found = patiently(async || client.hub().get::<ContentIndex>(&index).await).await;
                assert_eq!(found.is_ok(), taken);
                let post = installation.post(
                    &of_b,
                    &fresh_id().to_string(),
                    &["python3", "skills/of-b/scripts/run.py"],
                );
                if taken {
                    let post = bytes::Bytes::from(post.to_string());
                    let answer = patiently(async || client.hub().post_stream("/v1/executions", post.clone()).await);
                    answer.await.unwrap();
                } else {
                    assert_eq!(refused(&client, post.to_string()).await.code, RefusalCode::NotFound);
                }
            }
            let odd = shared.for_namespace("not a namespace");
            assert_eq!(code(names(&odd, &catalog).await), RefusalCode::Invalid);
        },
    );
}

/// A runtime where one run at a time has a place, and [`WAITING`] wait.
async fn narrow(cluster: &'static cluster_support::Cluster) -> Installation {
    let concurrency = json!({"maxRuns": 1, "maxQueued": WAITING, "queueTimeoutSeconds": 300});
    Installation::install(cluster, InstallationOptions::of(2, json!({"concurrency": concurrency}))).await
}

/// A hub, and the port of its metrics.
async fn metered_hub(installation: &Installation) -> (Process, u16) {
    let metrics = free_port();
    let mut words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
    words.retain(|word| !word.starts_with("--metrics-listen"));
    words.push(format!("--metrics-listen=127.0.0.1:{metrics}"));
    let hub = Process::start(installation.cluster, installation.folder.path(), "hub", &words);
    installation.wait_for_hub_at(&installation.url()).await;
    (hub, metrics)
}

/// Waits until a hub counts so many runs that wait.
async fn queued(metrics: u16, count: usize) {
    let counted = async {
        loop {
            let answer = reqwest::get(format!("http://127.0.0.1:{metrics}/metrics"))
                .await
                .unwrap();
            let text = answer.text().await.unwrap();
            let line = text.lines().find(|line| line.starts_with("knack_hub_queued{"));
            if line.is_some_and(|line| line.ends_with(&format!(" {count}"))) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let counted = tokio::time::timeout(SOON, counted).await;
    counted.expect("the queue is full");
}

/// The hub shares its places between the clients of a gateway, which is one caller to it.
#[test]
fn a_client_that_fills_the_queue_lets_the_others_of_its_gateway_run() {
    run(
        "a_client_that_fills_the_queue_lets_the_others_of_its_gateway_run",
        async |cluster| {
            let installation = narrow(cluster).await;
            let (_hub, metrics) = metered_hub(&installation).await;
            allow(&installation, &["use", "use-for"]).await;
            let (_mock, _gateway, port) = gateway(&installation).await;
            let (a, b) = (
                Client::of(&installation, 0, port).await,
                Client::of(&installation, 1, port).await,
            );
            for (tenant, client, script) in [
                // The queue is full before the first of them ends, also on a slow machine.
                (0, &a, "import time; time.sleep(20); print('of a')"),
                (1, &b, "print('of b')"),
            ] {
                installation.skill(&installation.tenants[tenant], "own", script).await;
                client
                    .until("which skills", "a client sees its skill", |text| {
                        text.contains("name=\"own\"")
                    })
                    .await;
            }

            let (mut flood, ended) = (JoinSet::new(), Arc::<AtomicUsize>::default());
            for _ in 0..=WAITING {
                let (a, ended) = (a.clone(), Arc::clone(&ended));
                flood.spawn(async move {
                    let answer = a.ask("run own", None).await;
                    ended.fetch_add(1, Ordering::SeqCst);
                    progress("one of the flood has ended");
                    answer
                });
            }
            queued(metrics, WAITING).await;
            let before = ended.load(Ordering::SeqCst);
            let (status, body) = b.ask("run own", None).await;
            let during = ended.load(Ordering::SeqCst) - before;
            assert_eq!(status, 200, "{body}");
            assert!(content(&body).contains("of b"), "{body}");
            // The one that ran, the one that gave its seat to b, and what ended between b's run and its answer.
            assert!(during <= WAITING / 2, "{during} of a's runs ended before that of b");
            println!("{during} of the other client's runs ended before this one's");
            let Some(first) = flood.join_next().await else { panic!() };
            let (status, body) = first.unwrap();
            assert_eq!(status, 200, "{body}");
        },
    );
}

/// A run in the name of a client, longer than all that the test does.
fn post_of(installation: &Installation, skill: &SkillLine, client: &str) -> Value {
    let words = ["python3", "skills/slow/scripts/run.py"];
    let mut post = installation.post(skill, &fresh_id().to_string(), &words);
    post["client"] = json!(client);
    post["limits"] = json!({"timeout_ms": 120_000});
    post
}

/// Posts it, and gives what the hub says of it, from a head on that it sends within half a second.
async fn post_for(
    installation: &Installation,
    caller: &HubClient,
    skill: &SkillLine,
    client: &str,
) -> Result<LineReader, HubError> {
    let body = bytes::Bytes::from(post_of(installation, skill, client).to_string());
    patiently(async || caller.hub().post_stream("/v1/executions", body.clone()).await).await
}

/// A caller that may not act for others has one share of the queue, whatever clients it names; one that may has theirs.
#[test]
fn clients_that_a_caller_names_without_the_right_are_one_sharer() {
    run(
        "clients_that_a_caller_names_without_the_right_are_one_sharer",
        async |cluster| {
            let installation = narrow(cluster).await;
            let (_hub, metrics) = metered_hub(&installation).await;
            allow(&installation, &["use", "use-for"]).await;
            let tenant = installation.tenants[0].name();
            installation.skill(tenant, "slow", "import time; time.sleep(110)").await;
            let own = installation.tenant(0).await;
            let line = installation.served(&own, "slow").await;
            let shared =
                installation.hub_client(&installation.token(installation.system.name(), "default", "knack").await);
            let shared = shared.for_namespace(tenant);

            // One runs, and all seats are taken by a caller without the right.
            let posts = (0..=WAITING).map(|_| post_for(&installation, &own, &line, "one"));
            let mut streams = futures::future::try_join_all(posts).await.unwrap();
            // The head of an answer may come before its run has a seat.
            queued(metrics, WAITING).await;
            progress("one runs, the others wait");
            let full = async |client: &str| {
                let body = post_of(&installation, &line, client).to_string();
                assert_eq!(refused(&own, body).await.code, RefusalCode::TooManyRequests);
            };
            full("two").await;
            // The same of one that has it: each client is a sharer, and the longest line gives a seat up.
            for client in ["one", "two", "three"] {
                streams.push(post_for(&installation, &shared, &line, client).await.unwrap());
                progress("a run waits");
            }
            full("three").await;
        },
    );
}
