//! A gateway process while its hub is away.

use std::time::Duration;

use cluster_support::run;
use serde_json::json;

use super::chat::{Model, chat, content};
use super::support::{Installation, Process, SOON, free_port, listening};

/// Traffic flows and the last catalog serves while the hub is gone; a gateway that never had a catalog says so where a
/// skill is named; when the hub is back, code runs again.
#[test]
fn a_gateway_goes_on_without_its_hub() {
    run("a_gateway_goes_on_without_its_hub", async |cluster| {
        let mut installation = Installation::start(cluster, 1, json!({})).await;
        let client = installation.tenant(0).await;
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        installation.served(&client, "steady").await;
        let model = Model::start(&installation).await;
        let (_gateway, port) = model.gateway(&installation, "gateway").await;
        let (status, body) = chat(port, "run it", None).await;
        assert_eq!(status, 200, "{body}");
        assert!(content(&body).contains("steady ran"), "{body}");

        installation.kill_hub();
        let (status, body) = chat(port, "hello", Some("steady")).await;
        assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
        let (late, folder) = (free_port(), installation.folder.path());
        let _late = Process::start(cluster, folder, "late-gateway", &model.gateway_words(late));
        listening(late).await;
        let (status, body) = chat(late, "hello", None).await;
        assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
        let (status, body) = chat(late, "hello", Some("steady")).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no catalog") && !body.contains("127.0.0.1"), "{body}");

        // A call that is under way is asked again until the hub is back.
        let waiting = tokio::spawn(chat(port, "run it", None));
        installation.restart_hub().await;
        let (status, body) = waiting.await.unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(content(&body).contains("steady ran"), "{body}");
        tokio::time::timeout(SOON, async {
            while chat(late, "hello", Some("steady")).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
        .await
        .expect("the late gateway gets its catalog");
    });
}
