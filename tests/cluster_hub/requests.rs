//! Bad requests, each with its own answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster_support::run;
use knack_api::SkillRuntime;
use knack_execution::ExecutionId;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ExecutionState, RefusalCode};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::answer::posted;
use super::support::{Installation, SOON, fresh_id, patiently, refused};

/// The master switch: executions of a suspended runtime answer 503 by its name, until it is on again.
async fn suspended_is_503(installation: &Installation, client: &HubClient, body: impl Fn() -> String) {
    let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
    let set = async |suspend: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        runtimes
            .patch("default", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    let refusal = async || posted(client, body()).await.err();
    set(true).await;
    let refused = tokio::time::timeout(SOON, async {
        loop {
            match refusal().await {
                Some(refusal) if refusal.message.contains("suspended") => return refusal,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await
    .unwrap();
    assert_eq!((refused.code, refused.code.status()), (RefusalCode::Unavailable, 503));
    assert!(
        refused.message.contains(&installation.runtime().to_string()),
        "{refused}"
    );
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
        let installation = Installation::start(cluster, 1, json!({})).await;
        let client = installation.tenant(0).await;
        installation
            .skill(&installation.tenants[0], "plain", "print('x')")
            .await;
        let skill = installation.served(&client, "plain").await;
        let good = || installation.post(&skill, &fresh_id().to_string(), &["python3", "-c", "print(1)"]);
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
            ("{".to_owned(), RefusalCode::Invalid, "cannot be read"),
            (with(&|post| post["id"] = json!("1; drop")), RefusalCode::Invalid, "id"),
            (
                with(&|post| post["id"] = json!("5f0c6a1e-2d7b-4a53-9f3c-111111111111")),
                RefusalCode::Invalid,
                "version 7",
            ),
            (
                with(&|post| post["id"] = json!(old)),
                RefusalCode::Gone,
                "no longer kept",
            ),
            (with(&|post| post["id"] = json!(early)), RefusalCode::Invalid, "future"),
            (
                with(&|post| post["protocol"] = json!(99)),
                RefusalCode::Invalid,
                "upgrade",
            ),
            (
                with(&|post| post["runtime"] = json!("kube-system/x")),
                RefusalCode::Forbidden,
                "may not use",
            ),
            (
                with(&|post| post["mounts"][0]["mount"] = json!("../..")),
                RefusalCode::Invalid,
                "folder name",
            ),
            (
                with(&|post| post["mounts"][0]["digest"] = json!("0".repeat(64))),
                RefusalCode::NotFound,
                "changed",
            ),
            (
                with(&|post| post["mounts"][0]["name"] = json!("other")),
                RefusalCode::NotFound,
                "no longer) served",
            ),
            (with(&|post| post["skill"] = json!(7)), RefusalCode::Invalid, "skill"),
            (
                with(&|post| post["program"]["argv"] = json!([])),
                RefusalCode::Invalid,
                "argv",
            ),
            (
                with(&|post| post["inputs"] = json!([{"path": "../../etc/passwd", "data": {"text": "x"}}])),
                RefusalCode::Invalid,
                "passwd",
            ),
            (
                with(&|post| post["inputs"] = json!([{"path": "big", "data": {"text": &fifty_megabytes}}])),
                RefusalCode::TooLarge,
                "32 MiB",
            ),
        ] {
            let shown: String = body.chars().take(120).collect();
            let refusal = refused(&client, body).await;
            assert_eq!(refusal.code, code, "{shown}: {refusal}");
            assert!(refusal.message.contains(word), "{shown}: {refusal}");
        }
        // Ids that do not exist, that are not valid, and that are older than the retention.
        let foreign = RefusalCode::NotFound;
        for (id, code) in [
            (fresh_id().to_string(), foreign),
            ("5f0c6a1e-2d7b-4a53-9f3c-111111111111".to_owned(), foreign),
            ("nonsense".to_owned(), foreign),
            ("..%2f..".to_owned(), foreign),
            (old, RefusalCode::Gone),
        ] {
            let path = format!("/v1/executions/{id}?runtime={}", installation.runtime());
            let read = patiently(async || client.hub().get::<ExecutionState>(&path).await).await;
            let deleted = patiently(async || client.hub().delete(&path).await).await;
            for answer in [read.map(|_| ()), deleted] {
                match answer {
                    Err(HubError::Refused(refusal)) => assert_eq!(refusal.code, code, "{id}: {refusal}"),
                    other => panic!("{id}: {other:?}"),
                }
            }
        }
        // Each of another id: one that has run is answered.
        suspended_is_503(&installation, &client, || good().to_string()).await;
        // After all of it an honest request runs.
        let result = installation
            .run_skill(
                &client,
                &installation.tenants[0],
                "plain",
                &["python3", "skills/plain/scripts/run.py"],
            )
            .await
            .unwrap();
        assert_eq!(result.stdout.text(), "x\n");
    });
}
