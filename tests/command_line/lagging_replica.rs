//! A gateway whose requests for files meet a replica of the hub that is behind the one that sent the catalog.

use super::saved_catalog::{chat, cluster, gateway, until};

/// Requests that meet the replica that is behind.
const BEHIND: usize = 3;

#[tokio::test]
async fn files_that_a_replica_does_not_know_yet_are_asked_for_again() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    hub.be_behind(BEHIND);
    hub.start();
    let gateway = gateway(folder.path(), &model, &hub).await;
    until("the skill is served", async || {
        chat(&gateway).await.contains("Say larches.")
    })
    .await;
    // Meanwhile the version before stays in use.
    hub.be_behind(BEHIND);
    hub.skill("spruces");
    until("the edit is served", async || {
        let said = chat(&gateway).await;
        assert!(said.contains("Say larches.") || said.contains("Say spruces."), "{said}");
        said.contains("Say spruces.")
    })
    .await;
}
