//! Two tenants of one runtime.

use std::time::Duration;

use cluster_support::run;
use knack_hub_api::client::HubClient;
use knack_hub_api::{ContentIndex, ExecutionFrame, ExecutionState, RefusalCode};
use serde_json::json;

use super::support::{Installation, SOON, code, fresh_id, patiently, refused};

/// One tenant cannot see, run, read, cancel or repeat what is another's.
#[test]
fn a_tenant_sees_nothing_of_another() {
    run("a_tenant_sees_nothing_of_another", async |cluster| {
        let installation = Installation::start(cluster, 2, json!({})).await;
        let (a, b) = (installation.tenant(0).await, installation.tenant(1).await);
        installation
            .skill(&installation.tenants[0], "secret-of-a", "print('a')")
            .await;
        installation.skill(&installation.tenants[1], "of-b", "print('b')").await;
        let of_a = installation.served(&a, "secret-of-a").await;
        let of_b = installation.served(&b, "of-b").await;
        assert_eq!(
            installation.names(&a).await,
            [format!("{}/secret-of-a", installation.tenants[0].name())]
        );
        assert_eq!(
            installation.names(&b).await,
            [format!("{}/of-b", installation.tenants[1].name())]
        );

        // Content by digest is of what one sees.
        let runtime = installation.runtime();
        let index = format!("/v1/content/{}?runtime={runtime}", of_a.digest);
        let file = format!("/v1/content/{}/scripts/run.py?runtime={runtime}", of_a.digest);
        let index_of =
            async |client: &HubClient| patiently(async || client.hub().get::<ContentIndex>(&index).await).await;
        let file_of = async |client: &HubClient| patiently(async || client.hub().get_bytes(&file, 1 << 20).await).await;
        assert_eq!(index_of(&a).await.unwrap().files.len(), 2);
        assert_eq!(&file_of(&a).await.unwrap()[..], b"print('a')");
        assert_eq!(code(index_of(&b).await), RefusalCode::NotFound);
        assert_eq!(code(file_of(&b).await), RefusalCode::NotFound);

        // A foreign skill cannot be mounted.
        let post = installation.post(
            &of_a,
            &fresh_id().to_string(),
            &["python3", "skills/secret-of-a/scripts/run.py"],
        );
        assert_eq!(refused(&b, post.to_string()).await.code, RefusalCode::NotFound);

        // A foreign execution is one that does not exist: not read, not cancelled, and its id is another one's for B.
        let id = fresh_id().to_string();
        let words = ["python3", "-c", "import time; time.sleep(8); print('of a')"];
        let post = installation.post(&of_a, &id, &words);
        let mut running = patiently(async || a.hub().post_stream("/v1/executions", post.to_string().into()).await)
            .await
            .unwrap();
        let path = format!("/v1/executions/{id}?runtime={runtime}");
        // The head of its answer comes after half a second at most, also where the hub has not placed it yet.
        let known = async {
            while a.hub().get::<ExecutionState>(&path).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, known).await.expect("its owner reads it");
        let read = patiently(async || b.hub().get::<ExecutionState>(&path).await).await;
        assert_eq!(code(read), RefusalCode::NotFound);
        let deleted = patiently(async || b.hub().delete(&path).await).await;
        assert_eq!(code(deleted), RefusalCode::NotFound);
        let same_id = installation.post(&of_b, &id, &["python3", "-c", "print('of b')"]);
        let mut repeated = patiently(async || b.hub().post_stream("/v1/executions", same_id.to_string().into()).await)
            .await
            .unwrap();
        assert_eq!(stdout(&mut repeated).await, "of b\n");
        assert_eq!(stdout(&mut running).await, "of a\n");
    });
}

async fn stdout(lines: &mut knack_hub_api::client::LineReader) -> String {
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await.unwrap() {
        match frame {
            ExecutionFrame::Result(result) => return String::from_utf8(result.stdout.0.to_vec()).unwrap(),
            ExecutionFrame::Error(refusal) => panic!("{refusal:?}"),
            _ => {}
        }
    }
    panic!("no result");
}
