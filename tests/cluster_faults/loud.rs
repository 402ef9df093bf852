//! 40 MB of output, and gateways that stop reading.

use std::time::Instant;

use knack_execution::Exit;
use knack_hub_api::ExecutionFrame;
use knack_hub_api::client::LineReader;
use serde_json::json;
use tokio::task::JoinSet;

use super::beside;
use super::calls::Calls;
use super::journals::Journals;
use super::replicas::install;
use super::support::{Process, SOON, free_port, fresh_id};

/// Readers that stop, each with 1 MB of output and 3 MB of files: 40 MB.
const READERS: usize = 10;
const OUTPUT: usize = 1_000_000;
const FILE: usize = 3_000_000;
/// The runner's own bound of a journal, and what containerd adds to each line.
const JOURNAL_MAX: u64 = 8 << 20;
/// What the hub may need for it: each stopped reader's result once as it is and once as text, and room to move.
const MEMORY_MAX: u64 = 400 << 20;

fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes << 10
}

async fn read(mut lines: LineReader) -> (usize, usize) {
    let (mut output, mut files) = (0, 0);
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await.unwrap() {
        match frame {
            ExecutionFrame::File(piece) => files += piece.data.0.len(),
            ExecutionFrame::Result(result) => output = result.stdout.0.len(),
            ExecutionFrame::Error(refusal) => panic!("{refusal:?}"),
            _ => {}
        }
    }
    (output, files)
}

/// Ten gateways stop reading 4 MB each, and a program writes 40 MB at once. Others run meanwhile as ever, the containers end
/// by themselves, the logs stay below kubelet's rotation, and who reads on gets everything.
#[test]
fn stopped_readers_and_forty_megabytes_harm_no_other_run() {
    beside(
        "stopped_readers_and_forty_megabytes_harm_no_other_run",
        async |cluster| {
            let spec = json!({"concurrency": {"maxRuns": 4}, "sandbox": {"ttlSecondsAfterFinished": 3600}});
            let installation = install(cluster, spec).await;
            let port = free_port();
            let hub = installation.replica("hub-loud", port);
            let url = format!("https://127.0.0.1:{port}");
            installation.wait_for_hub_at(&url).await;
            let journals = Journals::keep(cluster, &installation.run);
            let token = installation.token(&installation.tenants[0], "default", "knack").await;
            let client = installation.hub_client_at(&url, &token);
            let calls = Calls::new(&installation, client.clone()).await;
            let skill = installation.served(&client, "steady").await;
            calls.text(calls.sleeper(0.0, "first")).await.unwrap();

            let program = format!(
                "import sys\nfor i in range({OUTPUT} // 1000): sys.stdout.write(str(i % 10) * 1000)\nopen('end','w').write('e' * {FILE})"
            );
            let mut unread = Vec::new();
            for _ in 0..READERS {
                let mut post = installation.post(&skill, &fresh_id().to_string(), &["python3", "-c", &program]);
                post["live"] = json!(true);
                let stream = client.hub().post_stream("/v1/executions", post.to_string().into());
                unread.push(stream.await.unwrap());
            }
            // Forty megabytes from one program: what is over its limit is not kept, and it is ended.
            let flood = "import sys\nfor i in range(40): sys.stdout.write('x' * 1000000)\nprint('not reached')";
            let flooded = calls.run(calls.python(flood, 60)).await.unwrap();
            assert_eq!(flooded.exit, Exit::OutputLimit);
            assert!(flooded.stdout.truncated && flooded.stdout.bytes.len() <= 1 << 20);
            // The queue is in order: by now all of the ten have run, though there was no reader.
            for _ in 0..3 {
                let begun = Instant::now();
                assert_eq!(calls.text(calls.sleeper(0.0, "quiet")).await.unwrap(), "quiet\n");
                println!("another execution: {:?}", begun.elapsed());
            }
            let pods = cluster.kubectl(&[
                "get",
                "pods",
                "-n",
                &installation.run,
                "-o",
                "jsonpath={range .items[*]}{.status.phase} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}",
            ]);
            assert!(
                pods.lines().all(|pod| pod != "Failed 0" && pod.ends_with('0')),
                "{pods}"
            );
            println!(
                "largest journal: {} bytes, the hub: {} MiB",
                journals.largest(),
                resident(&hub) >> 20
            );
            assert!(journals.largest() < JOURNAL_MAX, "{}", journals.largest());
            assert!(resident(&hub) < MEMORY_MAX, "{}", resident(&hub));

            let mut reading = JoinSet::new();
            for lines in unread {
                reading.spawn(read(lines));
            }
            let all = tokio::time::timeout(SOON, reading.join_all()).await;
            assert_eq!(all.expect("who reads on gets everything"), [(OUTPUT, FILE); READERS]);
        },
    );
}
