//! A hub that starts again on a cluster with many skills.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster_support::run;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{CatalogLine, ContentIndex, HubRefusal, RefusalCode};
use serde_json::json;

use super::support::{Installation, SOON, patiently};

/// Skills: reading their ConfigMaps takes longer than one list.
const SKILLS: usize = 150;
/// Restarts: each is another try to be asked too early.
const RESTARTS: usize = 3;

/// The digests of a catalog; the error of a hub that is not there, or has no catalog yet.
async fn catalog(installation: &Installation, client: &HubClient) -> Result<BTreeSet<String>, HubError> {
    let mut lines = client.hub().watch(&installation.catalog()).await?;
    let mut digests = BTreeSet::new();
    while let Some(line) = lines.next_value::<CatalogLine>().await? {
        if let CatalogLine::Skill(skill) = line {
            digests.insert(skill.digest);
        }
    }
    Ok(digests)
}

/// Asks for the content of a digest until the hub gives it. It never says that it does not know it.
async fn content(installation: &Installation, client: &HubClient, digest: &str) {
    let path = format!("/v1/content/{digest}?runtime={}", installation.runtime());
    loop {
        match client.hub().get::<ContentIndex>(&path).await {
            Ok(index) => return assert_eq!(index.digest, digest),
            Err(HubError::Refused(HubRefusal { code, message, .. })) => {
                assert_eq!(code, RefusalCode::Unavailable, "{message}");
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Gateways drop what an index does not name, so the first index of a hub that has just started names everything.
#[test]
fn a_hub_that_starts_again_lacks_no_skill_from_its_first_answer_on() {
    run(
        "a_hub_that_starts_again_lacks_no_skill_from_its_first_answer_on",
        async |cluster| {
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            for index in 0..SKILLS {
                installation
                    .skill(
                        &installation.tenants[0],
                        &format!("s{index}"),
                        &format!("print({index})"),
                    )
                    .await;
            }
            let all = async {
                loop {
                    let served = patiently(async || catalog(&installation, &client).await).await.unwrap();
                    cluster_support::progress(format!("{} of {SKILLS} skills are served", served.len()));
                    if served.len() == SKILLS {
                        return served;
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            // One after another, by a controller that shares the machine.
            let all = tokio::time::timeout(3 * SOON, all)
                .await
                .expect("all skills are served");
            for restart in 0..RESTARTS {
                installation.kill_hub();
                let _hub = installation.replica("hub", installation.port);
                let first = async {
                    loop {
                        match catalog(&installation, &client).await {
                            Ok(served) => return served,
                            Err(error) => assert!(error.is_transient(), "{error}"),
                        }
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                };
                let last = all.last().unwrap();
                let ((), first) = tokio::time::timeout(
                    SOON,
                    futures::future::join(content(&installation, &client, last), first),
                )
                .await
                .expect("the hub answers");
                assert_eq!(first.len(), SKILLS, "restart {restart}: skills of the first catalog");
            }
        },
    );
}
