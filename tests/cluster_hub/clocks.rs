//! Machines whose clocks differ.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_support::{progress, run};
use serde_json::json;

use super::chat::{Model, chat, content};
use super::support::{Installation, Process, SOON, free_port, listening};

/// Where Debian has the library that gives a process another clock (package libfaketime), and where others have it.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// Starts this build's program with a clock that is apart from the machine's; durations are true.
fn start(installation: &Installation, library: &str, clock: &str, name: &str, words: &[String]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
    command.args(words).env("KUBECONFIG", installation.cluster.kubeconfig());
    command.envs([
        ("LD_PRELOAD", library),
        ("FAKETIME", clock),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    Process::spawn(installation.folder.path(), name, &mut command)
}

/// A gateway with such a clock, and its port.
async fn gateway(installation: &Installation, model: &Model, library: &str, clock: &str) -> (Process, u16) {
    let (name, port) = (format!("gateway{clock}"), free_port());
    let process = start(installation, library, clock, &name, &model.gateway_words(port));
    listening(port).await;
    (process, port)
}

/// The model's answer has what the skill printed: the run was accepted.
async fn runs(port: u16, printed: &str, what: &str) {
    let found = tokio::time::timeout(SOON, async {
        loop {
            let (status, body) = chat(port, "run it", Some("steady")).await;
            // A gateway that has just started has no catalog yet.
            if status == 200 && content(&body).contains(printed) {
                return;
            }
            assert!(!body.contains("in the future"), "{what}: {body}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(found.await.is_ok(), "{what}: {printed:?} is printed");
    progress(format!("{what}: code runs"));
}

/// The log of a process once it has a text: it is written beside the requests.
async fn said_in(process: &Process, text: &str) -> String {
    let said = async {
        loop {
            let log = process.log();
            if log.contains(text) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let said = tokio::time::timeout(SOON, said).await;
    said.unwrap_or_else(|_| panic!("{text:?} in {}", process.log()))
}

/// Nothing but certificates goes by a gateway's own clock: executions carry the hub's time, whichever of the two is wrong. A
/// gateway that is too far behind for the hub's certificate says so, and passes traffic on.
#[test]
fn clocks_that_differ_stop_no_run_and_are_reported() {
    run("clocks_that_differ_stop_no_run_and_are_reported", async |cluster| {
        let Some(library) = LIBRARIES.iter().find(|library| Path::new(library).exists()) else {
            cluster_support::skip("clocks that differ", "libfaketime is not installed");
            return;
        };
        let mut installation = Installation::start(cluster, 1, json!({})).await;
        let client = installation.tenant(0).await;
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        installation.served(&client, "steady").await;
        let model = Model::start(&installation).await;
        for (clock, said) in [
            ("+4m", Some("ahead of the hub's")),
            ("-4m", Some("behind the hub's")),
            ("+1h", Some("ahead of the hub's")),
            ("+0", None),
        ] {
            let (process, port) = gateway(&installation, &model, library, clock).await;
            runs(port, "steady ran", &format!("a gateway at {clock}")).await;
            let log = said_in(&process, said.unwrap_or_default()).await;
            assert_eq!(
                log.matches("the clock of this machine is").count(),
                usize::from(said.is_some()),
                "{log}"
            );
        }

        let (process, port) = gateway(&installation, &model, library, "-20m").await;
        let (status, body) = chat(port, "hello", None).await;
        assert_eq!((status, content(&body).as_str()), (200, "the model speaks"));
        let (status, body) = chat(port, "run it", Some("steady")).await;
        assert_eq!(status, 503, "{body}");
        said_in(&process, "certificate not valid yet").await;

        let (_steady, port) = gateway(&installation, &model, library, "+0").await;
        for clock in ["+4m", "-4m"] {
            installation.kill_hub();
            let words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
            let _hub = start(&installation, library, clock, &format!("hub{clock}"), &words);
            installation.wait_for_hub_at(&installation.url()).await;
            let printed = format!("the hub is at {clock}");
            installation
                .skill(&installation.tenants[0], "steady", &format!("print('{printed}')"))
                .await;
            runs(port, &printed, &printed).await;
        }
    });
}
