//! Programs of two protocols at one hub: the gateway of this tree, and one that was built from the last commit of the oldest protocol
//! that the hub understands (`make test-skew` builds it).

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use serde_json::json;

use super::chat::{Model, chat, content};
use super::support::{Installation, Process, SOON, free_port, listening};

/// Asks each gateway until its answer has what the skill prints now.
async fn all_run(gateways: &[(&str, u16)], printed: &str) {
    for (name, port) in gateways {
        let begun = Instant::now();
        loop {
            let (status, body) = chat(*port, "run it", Some("steady")).await;
            if status == 200 && content(&body).contains(printed) {
                break;
            }
            assert!(begun.elapsed() < SOON, "the {name} gateway: {status} {body}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        progress(format!("{printed}: run through the {name} gateway"));
    }
}

/// Runs the skill through every gateway after an edit of it.
async fn edited_and_run(installation: &Installation, gateways: &[(&str, u16)], text: &str) {
    let code = format!("print('{text}')");
    installation.skill(&installation.tenants[0], "steady", &code).await;
    all_run(gateways, text).await;
}

/// A path that `make test-skew` gives: `KNACK_OLDER_PROGRAM` of the older protocol, `KNACK_OLDER_RUNNER` of its commit.
fn older(variable: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable}: make test-skew"))
}

/// A hub that the older program is, with its runner and the options that it knows: a rollback installs the chart and the images of its
/// release.
fn older_hub(installation: &Installation, program: &OsStr, runner_image: &str) -> Process {
    let help = Command::new(program).args(["hub", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let is_known = |word: &String| {
        let option = word.split('=').next().unwrap_or_default();
        !option.starts_with("--") || help.split_whitespace().any(|known| known == option)
    };
    let words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
    let mut command = Command::new(program);
    command
        .args(words.into_iter().filter(is_known))
        .arg(format!("--runner-image={runner_image}"))
        .env("KUBECONFIG", &installation.kubeconfig);
    Process::spawn(installation.folder.path(), "hub-older", &mut command)
}

/// A model, beside a skill that the hub serves.
async fn serving(installation: &Installation) -> Model {
    let hub = installation.tenant(0).await;
    installation
        .skill(&installation.tenants[0], "steady", "print('printed first')")
        .await;
    installation.served(&hub, "steady").await;
    Model::start(installation).await
}

/// The other order of an upgrade, or a hub that is rolled back: the hub is the older one, the gateway of this tree. An edit reaches it,
/// and a hub of this tree that takes over serves it on.
#[test]
#[ignore = "needs a build of an earlier commit: make test-skew"]
fn a_gateway_of_this_protocol_is_served_by_a_hub_of_the_last_one() {
    run(
        "a_gateway_of_this_protocol_is_served_by_a_hub_of_the_last_one",
        async |cluster| {
            let program = older("KNACK_OLDER_PROGRAM");
            // An image volume at /knack.
            let runner = older("KNACK_OLDER_RUNNER");
            let runner = cluster.image_of_program("runner-of-before", Path::new(&runner), "/knack-runner");
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            installation.kill_hub();
            let mut older = older_hub(&installation, &program, &runner);
            installation.wait_for_hub_at(&installation.url()).await;
            let model = serving(&installation).await;
            let (_gateway, port) = model.gateway(&installation, "gateway-this").await;
            let gateways = [("newer", port)];

            all_run(&gateways, "printed first").await;
            edited_and_run(&installation, &gateways, "printed second").await;
            older.assert_runs();
            older.stop();
            let _hub = installation.replica("hub", installation.port);
            edited_and_run(&installation, &gateways, "printed third").await;
        },
    );
}

/// An edit reaches both, and a hub that was restarted serves both on.
#[test]
#[ignore = "needs a build of an earlier commit: make test-skew"]
fn gateways_of_the_last_protocol_and_of_this_one_serve_at_one_hub() {
    run(
        "gateways_of_the_last_protocol_and_of_this_one_serve_at_one_hub",
        async |cluster| {
            let program = older("KNACK_OLDER_PROGRAM");
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            let model = serving(&installation).await;
            let (_this, port) = model.gateway(&installation, "gateway-this").await;
            let older_port = free_port();
            let mut command = Command::new(program);
            command.args(model.gateway_words(older_port));
            let mut older = Process::spawn(installation.folder.path(), "gateway-older", &mut command);
            listening(older_port).await;
            let gateways = [("newer", port), ("older", older_port)];

            all_run(&gateways, "printed first").await;
            edited_and_run(&installation, &gateways, "printed second").await;
            installation.kill_hub();
            let _hub = installation.replica("hub", installation.port);
            edited_and_run(&installation, &gateways, "printed third").await;
            older.assert_runs();
        },
    );
}
