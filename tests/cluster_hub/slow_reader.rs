//! A gateway that stops reading.

use cluster_support::run;
use knack_hub_api::ExecutionFrame;
use serde_json::json;

use super::answer::accepted;
use super::support::{Installation, SOON, fresh_id};

/// A reader that stops holds up neither its own run nor anybody else's, and gets the whole result when it reads on.
#[test]
fn a_stopped_reader_delays_no_other_and_gets_its_result() {
    run(
        "a_stopped_reader_delays_no_other_and_gets_its_result",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let client = installation.tenant(0).await;
            installation.skill(&installation.tenants[0], "loud", "print('x')").await;
            let skill = installation.served(&client, "loud").await;
            let id = fresh_id().to_string();
            let program = "import sys\nfor i in range(1000): sys.stdout.write(str(i % 10) * 1000)\nopen('end','w').write('e' * 3000000)";
            let mut post = installation.post(&skill, &id, &["python3", "-c", program]);
            post["live"] = json!(true);
            let mut unread = accepted(&client, post.to_string()).await;
            // Others run meanwhile; by the time that the third has run, the first is long over.
            for _ in 0..3 {
                let result = installation
                    .run_skill(
                        &client,
                        &installation.tenants[0],
                        "loud",
                        &["python3", "skills/loud/scripts/run.py"],
                    )
                    .await
                    .unwrap();
                assert_eq!(result.stdout.text(), "x\n");
            }
            let (mut file_bytes, mut stdout) = (0, Vec::new());
            let reading = async {
                while let Some(frame) = unread.next_value::<ExecutionFrame>().await.unwrap() {
                    match frame {
                        ExecutionFrame::File(piece) => file_bytes += piece.data.0.len(),
                        ExecutionFrame::Result(result) => stdout = result.stdout.0.to_vec(),
                        ExecutionFrame::Error(refusal) => panic!("{refusal:?}"),
                        _ => {}
                    }
                }
            };
            tokio::time::timeout(SOON, reading).await.expect("the result comes");
            assert_eq!(file_bytes, 3_000_000);
            assert_eq!(stdout.len(), 1_000_000);
        },
    );
}
