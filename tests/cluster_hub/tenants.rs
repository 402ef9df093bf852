//! Two tenants of one runtime.

use cluster_support::run;
use knack_hub_api::{ContentIndex, ExecutionFrame, ExecutionState, RefusalCode};
use serde_json::json;

use super::support::{Installation, code, fresh_id, refused};

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
        assert_eq!(a.get::<ContentIndex>(&index).await.unwrap().files.len(), 2);
        assert_eq!(&a.get_bytes(&file, 1 << 20).await.unwrap()[..], b"print('a')");
        assert_eq!(code(b.get::<ContentIndex>(&index).await), RefusalCode::NotFound);
        assert_eq!(code(b.get_bytes(&file, 1 << 20).await), RefusalCode::NotFound);

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
        let mut running = a
            .post_stream(None, "/v1/executions", post.to_string().into())
            .await
            .unwrap();
        let path = format!("/v1/executions/{id}?runtime={runtime}");
        assert!(a.get::<ExecutionState>(&path).await.is_ok());
        assert_eq!(code(b.get::<ExecutionState>(&path).await), RefusalCode::NotFound);
        assert_eq!(code(b.delete(None, &path).await), RefusalCode::NotFound);
        let same_id = installation.post(&of_b, &id, &["python3", "-c", "print('of b')"]);
        let mut repeated = b
            .post_stream(None, "/v1/executions", same_id.to_string().into())
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
