//! An execution that is asked for again after its skill is gone, and while its runtime is suspended.

use std::time::Duration;

use cluster_support::{progress, run};
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::RefusalCode;
use knack_hub_api::client::HubClient;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::answer::{accepted, posted, printed, until_it_prints};
use super::support::{Installation, SOON, fresh_id};

/// How long the run takes, seconds: longer than all that happens meanwhile.
const RUN_SECONDS: u64 = 20;

/// Posts until the hub refuses with this code; each time with another id.
async fn until_refused(client: &HubClient, post: &Value, code: RefusalCode) {
    let refused = async {
        loop {
            let mut fresh = post.clone();
            fresh["id"] = json!(fresh_id().to_string());
            fresh["program"] = json!({"kind": "command", "argv": ["true"]});
            match posted(client, fresh.to_string()).await {
                Err(refusal) if refusal.code == code => return,
                Err(_) | Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(SOON, refused).await.expect("others are refused");
}

#[test]
fn an_execution_is_answered_whatever_became_of_its_skill_and_its_runtime() {
    run(
        "an_execution_is_answered_whatever_became_of_its_skill_and_its_runtime",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({"sandbox": {"timeoutSeconds": 60}})).await;
            let client = installation.tenant(0).await;
            installation
                .skill(&installation.tenants[0], "brief", "print('x')")
                .await;
            let skill = installation.served(&client, "brief").await;
            let program = format!("import time; print('begun', flush=True); time.sleep({RUN_SECONDS}); print('whole')");
            let mut post = installation.post(&skill, &fresh_id().to_string(), &["python3", "-c", &program]);
            post["live"] = json!(true);
            let ask = async || accepted(&client, post.to_string()).await;
            until_it_prints(&mut ask().await).await;
            progress("a run is under way, and its stream broke");

            let skills: Api<Skill> = Api::namespaced(installation.client.clone(), installation.tenants[0].name());
            skills.delete("brief", &DeleteParams::default()).await.unwrap();
            until_refused(&client, &post, RefusalCode::NotFound).await;
            let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
            let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
            runtimes
                .patch("default", &PatchParams::default(), &suspend)
                .await
                .unwrap();
            until_refused(&client, &post, RefusalCode::Unavailable).await;
            progress("its skill is gone, and its runtime suspended");

            assert_eq!(printed(&mut ask().await).await, "begun\nwhole\n", "while it runs");
            assert_eq!(printed(&mut ask().await).await, "begun\nwhole\n", "once it has ended");
        },
    );
}
