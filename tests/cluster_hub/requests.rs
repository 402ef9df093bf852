//! Bad requests, each with its own answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster_support::run;
use knack_api::SkillRuntime;
use knack_execution::ExecutionId;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ExecutionView, ProblemCode};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::support::{SOON, World, fresh_id};

/// The master switch: executions of a suspended runtime answer 503 by its name, until it is on again.
async fn suspended_is_503(world: &World, client: &HubClient, body: impl Fn() -> String) {
    let runtimes: Api<SkillRuntime> = Api::namespaced(world.client.clone(), world.run.name());
    let set = async |suspend: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        runtimes
            .patch("default", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    let refusal = async || match client.post_stream(None, "/v1/executions", body().into()).await {
        Err(HubError::Refused(problem)) => Some(problem),
        Err(other) => panic!("{other:?}"),
        Ok(_) => None,
    };
    set(true).await;
    let refused = tokio::time::timeout(SOON, async {
        loop {
            match refusal().await {
                Some(problem) if problem.message.contains("suspended") => return problem,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await
    .unwrap();
    assert_eq!((refused.code, refused.code.status()), (ProblemCode::Unavailable, 503));
    assert!(refused.message.contains(&world.runtime().to_string()), "{refused}");
    set(false).await;
    tokio::time::timeout(SOON, async {
        while refusal().await.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of bad requests and their answers")]
fn bad_requests_are_refused_by_name() {
    run("bad_requests_are_refused_by_name", async |cluster| {
        let world = World::start(cluster, 1, json!({})).await;
        let client = world.tenant(0).await;
        world.skill(&world.tenants[0], "plain", "print('x')").await;
        let skill = world.served(&client, "plain").await;
        let good = || world.post(&skill, &fresh_id().to_string(), &["python3", "-c", "print(1)"]);
        let with = |change: &dyn Fn(&mut Value)| {
            let mut post = good();
            change(&mut post);
            post.to_string()
        };
        let old = ExecutionId::new(Duration::from_secs(1_700_000_000), "r", 0, "c").to_string();
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let tomorrow = today + Duration::from_hours(24);
        let early = ExecutionId::new(tomorrow, "r", 0, "c").to_string();
        let fifty_megabytes = "x".repeat(50 << 20);
        for (body, code, word) in [
            ("{".to_owned(), ProblemCode::Invalid, "cannot be read"),
            (with(&|post| post["id"] = json!("1; drop")), ProblemCode::Invalid, "id"),
            (
                with(&|post| post["id"] = json!("5f0c6a1e-2d7b-4a53-9f3c-111111111111")),
                ProblemCode::Invalid,
                "version 7",
            ),
            (with(&|post| post["id"] = json!(old)), ProblemCode::Gone, "retention"),
            (with(&|post| post["id"] = json!(early)), ProblemCode::Invalid, "future"),
            (
                with(&|post| post["protocol"] = json!(99)),
                ProblemCode::Invalid,
                "upgrade",
            ),
            (
                with(&|post| post["runtime"] = json!("kube-system/x")),
                ProblemCode::Forbidden,
                "may not use",
            ),
            (
                with(&|post| post["mounts"][0]["mount"] = json!("../..")),
                ProblemCode::Invalid,
                "folder name",
            ),
            (
                with(&|post| post["mounts"][0]["digest"] = json!("0".repeat(64))),
                ProblemCode::NotFound,
                "changed",
            ),
            (
                with(&|post| post["mounts"][0]["name"] = json!("other")),
                ProblemCode::NotFound,
                "no longer) served",
            ),
            (with(&|post| post["skill"] = json!(7)), ProblemCode::Invalid, "skill"),
            (
                with(&|post| post["program"]["argv"] = json!([])),
                ProblemCode::Invalid,
                "argv",
            ),
            (
                with(&|post| post["inputs"] = json!([{"path": "../../etc/passwd", "data": {"text": "x"}}])),
                ProblemCode::Invalid,
                "passwd",
            ),
            (
                with(&|post| post["inputs"] = json!([{"path": "big", "data": {"text": &fifty_megabytes}}])),
                ProblemCode::TooLarge,
                "32 MiB",
            ),
        ] {
            let shown: String = body.chars().take(120).collect();
            match client.post_stream(None, "/v1/executions", body.into()).await {
                Err(HubError::Refused(problem)) => {
                    assert_eq!(problem.code, code, "{shown}: {problem}");
                    assert!(problem.message.contains(word), "{shown}: {problem}");
                }
                other => panic!("{shown}: {other:?}"),
            }
        }
        // Ids that do not exist, that are not valid, and that are older than the retention.
        let foreign = ProblemCode::NotFound;
        for (id, code) in [
            (fresh_id().to_string(), foreign),
            ("5f0c6a1e-2d7b-4a53-9f3c-111111111111".to_owned(), foreign),
            ("nonsense".to_owned(), foreign),
            ("..%2f..".to_owned(), foreign),
            (old, ProblemCode::Gone),
        ] {
            let path = format!("/v1/executions/{id}?runtime={}", world.runtime());
            let read = client.get::<ExecutionView>(&path).await.map(|_| ());
            for answer in [read, client.delete(None, &path).await] {
                match answer {
                    Err(HubError::Refused(problem)) => assert_eq!(problem.code, code, "{id}: {problem}"),
                    other => panic!("{id}: {other:?}"),
                }
            }
        }
        // Each of another id: one that has run is answered.
        suspended_is_503(&world, &client, || good().to_string()).await;
        // After all of it an honest request runs.
        let result = world
            .run_skill(
                &client,
                &world.tenants[0],
                "plain",
                &["python3", "skills/plain/scripts/run.py"],
            )
            .await
            .unwrap();
        assert_eq!(result.stdout.text(), "x\n");
    });
}
