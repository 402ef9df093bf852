//! The hub serves what the controller has judged: content by the Skill's status, runtimes by their conditions.

use std::time::{Duration, Instant};

use cluster_support::run;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::client::HubClient;
use knack_hub_api::{CatalogLine, HubRefusal, RefusalCode};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::answer::{accepted, posted, printed, until_it_prints};
use super::support::{Installation, SOON, fresh_id, patiently};

/// How long a run goes on after its first line: its Skill is deleted meanwhile, with its ConfigMaps, which a busy cluster takes its time
/// to collect.
const RUNS_ON: Duration = Duration::from_secs(40);

async fn soon<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            match ask().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(SOON, asked).await.expect(what)
}

/// `sandbox.maxTimeoutSeconds` of the runtime as the hub has it now: its catalog has a spec before anybody has judged it.
async fn highest_limit(installation: &Installation, client: &HubClient) -> Option<u64> {
    let mut lines = patiently(async || client.hub().watch(&installation.catalog()).await)
        .await
        .unwrap();
    while let Some(line) = lines.next_value::<CatalogLine>().await.unwrap() {
        if let CatalogLine::Runtime(runtime) = line {
            return Some(runtime.max_timeout_seconds);
        }
    }
    None
}

/// The refusal whose message has this part; any other one is of a hub, or an API server, that is busy.
async fn refusal_of(client: &HubClient, body: &str, part: &str) -> Option<HubRefusal> {
    let refused = refusal(client, body).await;
    refused.filter(|refusal| refusal.message.contains(part))
}

async fn refusal(client: &HubClient, body: &str) -> Option<HubRefusal> {
    posted(client, body.to_owned()).await.err()
}

/// Who may write ConfigMaps, but not Skills, puts another text in the place of a reviewed one.
#[test]
fn a_swapped_config_map_is_never_served_and_the_skill_says_so() {
    run(
        "a_swapped_config_map_is_never_served_and_the_skill_says_so",
        async |cluster| {
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            let namespace = installation.tenants[0].name().to_owned();
            installation.skill(&namespace, "reviewed", "print('good')").await;
            installation.served(&client, "reviewed").await;
            // The controller is away, so that it cannot restore the object; the hub restarts, so that it has to read.
            installation.stop_controller();
            installation.kill_hub();
            let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &namespace);
            let status = skills.get("reviewed").await.unwrap().status.unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(installation.client.clone(), &namespace);
            let name = &status.config_maps[0].name;
            let mut map = maps.get(name).await.unwrap();
            maps.delete(name, &DeleteParams::default()).await.unwrap();
            let text = serde_json::to_string(&map.data)
                .unwrap()
                .replace("A skill of a test.", "Do as I say, now!.");
            map.data = serde_json::from_str(&text).unwrap();
            map.metadata.resource_version = None;
            map.metadata.uid = None;
            soon("the swapped ConfigMap is made", async || {
                maps.create(&PostParams::default(), &map).await.ok()
            })
            .await;
            installation.restart_hub().await;
            let events: Api<Event> = Api::namespaced(installation.client.clone(), &namespace);
            let note = soon("the Skill has an Event", async || {
                let found = events.list(&ListParams::default()).await.unwrap();
                let mine = found
                    .items
                    .into_iter()
                    .find(|event| event.reason.as_deref() == Some("ArtifactSwapped"));
                mine.and_then(|event| event.note)
            })
            .await;
            assert!(
                note.contains(name.as_str()) && note.contains("status.configMaps"),
                "{note}"
            );
            assert!(installation.names(&client).await.is_empty(), "it is not in the catalog");
        },
    );
}

/// Posts a run of the skill's script, which prints a letter.
async fn code_runs(client: &HubClient, mut post: serde_json::Value) {
    post["limits"] = json!({"timeout_ms": 100_000});
    let mut lines = accepted(client, post.to_string()).await;
    assert_eq!(printed(&mut lines).await, "x\n");
}

#[test]
fn a_runtime_without_its_fence_runs_nothing_and_says_why() {
    run(
        "a_runtime_without_its_fence_runs_nothing_and_says_why",
        async |cluster| {
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            let namespace = installation.tenants[0].name().to_owned();
            installation.skill(&namespace, "plain", "print('x')").await;
            let skill = installation.served(&client, "plain").await;
            let template = installation.post(&skill, "ID", &["true"]).to_string();
            let post = || template.replace("ID", &fresh_id().to_string());
            soon("it runs", async || {
                refusal(&client, &post()).await.is_none().then_some(())
            })
            .await;
            // A foreign policy has the name of the fence.
            let policies: Api<NetworkPolicy> = Api::namespaced(installation.client.clone(), installation.run.name());
            let fence = "knack-sandbox-default";
            let mut foreign = policies.get(fence).await.unwrap();
            foreign.metadata.owner_references = None;
            foreign.metadata.managed_fields = None;
            policies.replace(fence, &PostParams::default(), &foreign).await.unwrap();
            let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
            let touch = json!({"metadata": {"annotations": {"knack.dev/requestedAt": "now"}}});
            let patch = kube::api::Patch::Merge(&touch);
            runtimes
                .patch("default", &kube::api::PatchParams::default(), &patch)
                .await
                .unwrap();
            let refused = soon("it stops", async || refusal_of(&client, &post(), fence).await).await;
            assert_eq!(refused.code, RefusalCode::Unavailable);
            policies.delete(fence, &DeleteParams::default()).await.unwrap();
            let touch = json!({"metadata": {"annotations": {"knack.dev/requestedAt": "again"}}});
            let patch = kube::api::Patch::Merge(&touch);
            runtimes
                .patch("default", &kube::api::PatchParams::default(), &patch)
                .await
                .unwrap();
            soon("it runs again", async || {
                refusal(&client, &post()).await.is_none().then_some(())
            })
            .await;
            // Without the controller the last judgement goes on, also under an edit that takes nothing away.
            installation.stop_controller();
            // But not without the fence, and as soon as it is opened.
            let mut stands = policies.get(fence).await.unwrap();
            stands.metadata.managed_fields = None;
            let open = json!({"spec": {"egress": [{}]}});
            policies
                .patch(
                    fence,
                    &kube::api::PatchParams::default(),
                    &kube::api::Patch::Merge(&open),
                )
                .await
                .unwrap();
            let why = "knack-sandbox-default is missing or open";
            let refused = soon("it stops", async || refusal_of(&client, &post(), why).await).await;
            assert_eq!(refused.code, RefusalCode::Unavailable);
            policies.delete(fence, &DeleteParams::default()).await.unwrap();
            soon("there is none now", async || {
                let refused = refusal(&client, &post()).await;
                let refused = refused.expect("a run without a fence is accepted");
                refused.message.contains(why).then_some(())
            })
            .await;
            stands.metadata.resource_version = None;
            stands.metadata.uid = None;
            policies.create(&PostParams::default(), &stands).await.unwrap();
            soon("it runs again", async || {
                refusal(&client, &post()).await.is_none().then_some(())
            })
            .await;
            let words = ["python3", "skills/plain/scripts/run.py"];
            code_runs(&client, installation.post(&skill, &fresh_id().to_string(), &words)).await;
            let set = async |spec: serde_json::Value| {
                let patch = kube::api::Patch::Merge(json!({ "spec": spec }));
                runtimes
                    .patch("default", &kube::api::PatchParams::default(), &patch)
                    .await
                    .unwrap();
            };
            set(json!({"sandbox": {"maxTimeoutSeconds": 300}})).await;
            soon("the hub has the edit", async || {
                (highest_limit(&installation, &client).await == Some(300)).then_some(())
            })
            .await;
            accepted(&client, post()).await;
            set(json!({"sandbox": {"enforcement": "Required"}})).await;
            let field = "spec.sandbox.enforcement";
            soon("it stops", async || refusal_of(&client, &post(), field).await).await;
        },
    );
}

/// A version that is deleted is one object that goes: what runs of it ends as it began, and the next request is refused.
#[test]
fn a_run_whose_skill_is_deleted_meanwhile_ends_as_it_began() {
    run(
        "a_run_whose_skill_is_deleted_meanwhile_ends_as_it_began",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            let namespace = installation.tenants[0].name().to_owned();
            let script = format!(
                "import time\nprint('begun', flush=True)\ntime.sleep({})\nprint(open('skills/short/SKILL.md').read())\n",
                RUNS_ON.as_secs()
            );
            installation.skill(&namespace, "short", &script).await;
            let skill = installation.served(&client, "short").await;
            let post = || {
                let words = ["python3", "skills/short/scripts/run.py"];
                let mut post = installation.post(&skill, &fresh_id().to_string(), &words);
                post["live"] = json!(true);
                post["limits"] = json!({"timeout_ms": 100_000});
                post.to_string()
            };
            let mut lines = accepted(&client, post()).await;
            until_it_prints(&mut lines).await;

            let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &namespace);
            let maps: Api<ConfigMap> = Api::namespaced(installation.client.clone(), &namespace);
            let map = &skills.get("short").await.unwrap().status.unwrap().config_maps[0].name;
            skills.delete("short", &DeleteParams::default()).await.unwrap();
            soon("its content is deleted", async || {
                maps.get_opt(map).await.unwrap().is_none().then_some(())
            })
            .await;
            soon("the next request is refused", async || {
                let refused = refusal(&client, &post()).await?;
                (refused.code == RefusalCode::NotFound).then_some(())
            })
            .await;

            let deleted = Instant::now();
            let stdout = printed(&mut lines).await;
            assert!(
                deleted.elapsed() > Duration::from_millis(100),
                "the run was over before its skill was deleted"
            );
            assert!(stdout.starts_with("begun\n---\nname: short\n"), "{stdout}");
        },
    );
}
