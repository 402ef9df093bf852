//! A hub that is terminated while it is in use.

use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use knack_hub_api::CatalogLine;
use knack_hub_api::client::LineReader;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::answer::{accepted, printed, until_it_prints};
use super::support::{Installation, InstallationOptions, Process, SOON, free_port, fresh_id, patiently};

/// How long the hub is given before it ends its catalogs, seconds: long enough for two requests to begin meanwhile, on a machine on
/// which each waits for seconds.
const PAUSE_SECONDS: u64 = 20;
/// How long the run takes, seconds: it outlives the pause by more than anything of the test takes.
const RUN_SECONDS: u64 = 60;

/// Waits until a hub says that it is not ready, and returns why.
async fn not_ready(probes: u16) -> String {
    let http = reqwest::Client::new();
    loop {
        let answer = http
            .get(format!("http://127.0.0.1:{probes}/readyz"))
            .send()
            .await
            .unwrap();
        if answer.status().as_u16() == 503 {
            return answer.text().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads a catalog until the hub ends it; how long after `told` that was.
async fn ended(mut catalog: LineReader, told: Instant) -> Duration {
    while catalog
        .next_value::<CatalogLine>()
        .await
        .expect("the catalog ends at the end of a line")
        .is_some()
    {}
    told.elapsed()
}

/// Waits until a process has ended.
async fn status_of(process: &mut Process) -> std::process::ExitStatus {
    loop {
        if let Some(status) = process.ended() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// After SIGTERM: not ready, and serving on; the run under way ends on the stream where it began; the catalog ends so that
/// its reader goes elsewhere; the Jobs say what they ran, the Lease is free at once, and the process ends well.
#[test]
fn a_hub_that_ends_cuts_no_stream() {
    run("a_hub_that_ends_cuts_no_stream", async |cluster| {
        let options = InstallationOptions::of(1, json!({}));
        let installation = Installation::install(cluster, options).await;
        let (port, probes) = (free_port(), free_port());
        let mut words = installation.hub_words(&format!("127.0.0.1:{port}"));
        words.retain(|word| !word.starts_with("--metrics-listen="));
        words.extend([
            format!("--metrics-listen=127.0.0.1:{probes}"),
            format!("--shutdown-pause-seconds={PAUSE_SECONDS}"),
            "--drain-seconds=200".to_owned(),
        ]);
        let mut hub = Process::start(cluster, installation.folder.path(), "hub", &words);
        let url = format!("https://127.0.0.1:{port}");
        installation.wait_for_hub_at(&url).await;
        let client = installation.hub_client_at(
            &url,
            &installation.token(&installation.tenants[0], "default", "knack").await,
        );
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        let skill = installation.served(&client, "steady").await;
        let post = |source: &str| {
            let mut post = installation.post(&skill, &fresh_id().to_string(), &["python3", "-c", source]);
            post["live"] = json!(true);
            post["limits"] = json!({"timeout_ms": 120_000});
            post.to_string()
        };
        let watched = format!("{}&watch=true", installation.catalog());
        let catalog = patiently(async || client.hub().watch(&watched).await).await.unwrap();
        let long = post(&format!(
            "import time; print('begun', flush=True); time.sleep({RUN_SECONDS}); print('whole')"
        ));
        let mut running = accepted(&client, long).await;
        until_it_prints(&mut running).await;
        progress("a run is under way");

        hub.terminate();
        let catalog = tokio::spawn(ended(catalog, Instant::now()));
        let told = Instant::now();
        let why = tokio::time::timeout(SOON, not_ready(probes))
            .await
            .expect("it is not ready any more");
        assert_eq!(why, "draining\n");
        // New requests are still served: a catalog, and a new run, which may end after the pause.
        assert_eq!(installation.names(&client).await.len(), 1);
        let mut short = accepted(&client, post("print('as usual')")).await;
        progress("a hub that ends serves on");

        let paused = catalog.await.unwrap();
        assert!(hub.ended().is_none(), "the run is still under way");
        assert!(paused >= Duration::from_secs(PAUSE_SECONDS - 1), "{paused:?}");
        assert_eq!(printed(&mut short).await, "as usual\n");
        progress("a run that began while it ended is told to its end");
        assert_eq!(printed(&mut running).await, "begun\nwhole\n");
        let status = tokio::time::timeout(SOON, status_of(&mut hub));
        let status = status.await.expect("it ends");
        assert!(status.success(), "{status}");
        println!(
            "a run of {RUN_SECONDS} s was told to its end, the hub ended after {:?}",
            told.elapsed()
        );
        let leases: Api<Lease> = Api::namespaced(installation.client.clone(), &installation.run);
        let lease = leases.get("knack-runtime-default").await.unwrap();
        assert_eq!(
            lease.spec.unwrap().holder_identity,
            None,
            "the next owner need not wait"
        );
        let jobs: Api<Job> = Api::namespaced(installation.client.clone(), &installation.run);
        let of_runs = ListParams::default().labels("knack.dev/execution");
        let of_runs = jobs.list(&of_runs).await.unwrap();
        let has_result = |job: &&Job| job.annotations().contains_key("knack.dev/result");
        let recorded = of_runs.items.iter().filter(has_result).count();
        assert_eq!(recorded, 2, "the records of both runs are written: {recorded} of 2");
    });
}
