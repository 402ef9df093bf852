//! A gateway of this release and hubs of other ones: what is served, what is not, and the words.

use knack_hub_api::{PROTOCOL_MIN, PROTOCOLS};

use super::saved_catalog::{chat, cluster, gateway, until};

/// Seconds that a catalog is served without the hub: a test waits for them to pass.
const KEPT_SECONDS: u64 = 3;

#[tokio::test]
async fn a_hub_of_another_protocol_confirms_no_catalog() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    hub.keep_for(KEPT_SECONDS);
    hub.start();
    let gateway = gateway(folder.path(), &model, &hub).await;
    let is_served = async || chat(&gateway).await.contains("Say larches.");
    until("the skill is served", is_served).await;

    // One that is too new, one that is too old: it greets again and again, and the catalog gets old all the same.
    let (newer, older) = (PROTOCOLS.max + 1, PROTOCOLS.min - 1);
    for (oldest, newest, said) in [
        (Some(newer), newer + 1, format!("{newer} to {}", newer + 1)),
        (None, older, older.to_string()),
    ] {
        hub.kill();
        hub.speak(oldest, newest);
        hub.start();
        let why =
            format!("the hub (version 1) speaks protocol {said}, this gateway {PROTOCOLS}; upgrade the older one");
        until("it says why there is no catalog any more", async || {
            let (status, text) = gateway.ready().await;
            status == 200 && text.contains(&format!("without catalog: {why}"))
        })
        .await;
        let answer = chat(&gateway).await;
        assert!(answer.contains("You said: hello"), "{answer}");

        // As a hub of the release before greets.
        hub.kill();
        hub.speak(None, PROTOCOL_MIN);
        hub.start();
        until("the skill is served again, by a catalog of the hub", async || {
            let (_, text) = gateway.ready().await;
            is_served().await && text.contains("skills=1") && !text.contains("catalog=")
        })
        .await;
    }
}
