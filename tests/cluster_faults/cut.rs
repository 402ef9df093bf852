//! A hub whose network is cut.

use std::process::Command;
use std::time::{Duration, Instant};

use cluster_support::Cluster;
use serde_json::json;
use tokio::task::JoinSet;

use super::beside;
use super::calls::Calls;
use super::journals::Journals;
use super::replicas::owner;
use super::service::Service;
use super::support::{Installation, InstallationOptions, Process, SOON, free_port};

/// How long nothing passes.
const CUT: Duration = Duration::from_secs(10);
/// Addresses of the pair that joins the hub's network to the bed's.
const BED_SIDE: &str = "10.97.0.1";
const HUB_SIDE: &str = "10.97.0.2";
/// The node's address, at which the API server answers those who are not on its loopback.
const NODE: &str = "10.99.0.1";

/// A network namespace for one hub, joined to the bed's by a cable that can be pulled. Gone when dropped.
struct Cable {
    namespace: String,
}

impl Cable {
    /// The test's thread is inside the bed's network, so that is where the near end is.
    fn lay() -> Self {
        let cable = Self {
            namespace: format!("knack-cut-{}", std::process::id()),
        };
        let name = &cable.namespace;
        run("ip", &["netns", "add", name]);
        run(
            "ip",
            &[
                "link",
                "add",
                "knackcut0",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            ],
        );
        run("ip", &["addr", "add", &format!("{BED_SIDE}/30"), "dev", "knackcut0"]);
        run("ip", &["link", "set", "knackcut0", "up"]);
        run(
            "ip",
            &["-n", name, "addr", "add", &format!("{HUB_SIDE}/30"), "dev", "eth0"],
        );
        run("ip", &["-n", name, "link", "set", "lo", "up"]);
        run("ip", &["-n", name, "link", "set", "eth0", "up"]);
        run("ip", &["-n", name, "route", "add", "default", "via", BED_SIDE]);
        cable
    }

    /// A program at its far end.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg(program);
        command
    }

    /// Every packet is lost from now on, in both directions, without a word to anybody.
    fn pull(&self) {
        self.rules(&[
            "add table inet cut",
            "add chain inet cut in { type filter hook input priority 0; policy drop; }",
            "add chain inet cut out { type filter hook output priority 0; policy drop; }",
        ]);
    }

    fn plug_in(&self) {
        self.rules(&["delete table inet cut"]);
    }

    fn rules(&self, rules: &[&str]) {
        for rule in rules {
            let output = self.program("nft").arg(rule).output().unwrap();
            assert!(
                output.status.success(),
                "nft {rule}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

// The pair goes with the namespace of its far end.
impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A hub at the far end of the cable.
fn remote_hub(cluster: &Cluster, installation: &Installation, cable: &Cable, port: u16) -> Process {
    let kubeconfig = installation.folder.path().join("remote.kubeconfig");
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    std::fs::write(
        &kubeconfig,
        text.replace("https://127.0.0.1:", &format!("https://{NODE}:")),
    )
    .unwrap();
    let mut command = cable.program(env!("CARGO_BIN_EXE_knack"));
    command
        .args(installation.hub_words(&format!("{HUB_SIDE}:{port}")))
        .env("KUBECONFIG", kubeconfig);
    Process::spawn(installation.folder.path(), "remote-hub", &mut command)
}

/// The owner's network is cut for 10 s, towards the API server and towards gateways, with runs in every state. All end with
/// their results, and none runs twice.
#[test]
fn a_hub_that_is_cut_off_loses_nothing() {
    beside("a_hub_that_is_cut_off_loses_nothing", async |cluster| {
        let options = InstallationOptions {
            tenants: 1,
            spec: json!({"warmPool": {"replicas": 1}, "concurrency": {"maxRuns": 8}}),
            hub_names: vec!["127.0.0.1".to_owned(), HUB_SIDE.to_owned()],
            hub_words: Vec::new(),
        };
        let installation = Installation::install(cluster, options).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        let (cable, service) = (Cable::lay(), Service::start().await);
        let remote = format!("{HUB_SIDE}:8443");
        let _remote = remote_hub(cluster, &installation, &cable, 8443);
        service.point_to([remote.clone()]);
        installation.wait_for_hub_at(&service.url).await;
        tokio::time::timeout(SOON, async {
            while owner(&installation).await.as_ref() != Some(&remote) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("the remote hub owns the runtime");
        let port = free_port();
        let near = format!("127.0.0.1:{port}");
        let _near = installation.replica("near-hub", port);
        installation.wait_for_hub_at(&format!("https://{near}")).await;
        service.point_to([remote, near]);
        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let calls = Calls::new(&installation, installation.hub_client_at(&service.url, &token)).await;

        let (mut asked, mut ids) = (JoinSet::new(), Vec::new());
        let mut ask = |asked: &mut JoinSet<_>, seconds: f64| {
            let word = format!("slept {seconds}");
            let request = calls.sleeper(seconds, &word);
            ids.push(request.id.to_string());
            let calls = calls.clone();
            asked.spawn(async move { (format!("{word}\n"), calls.text(request).await) });
        };
        // Some end during the cut, some after it, some only start then.
        for seconds in [3.0, 5.0, 7.0, 9.0, 12.0, 14.0] {
            ask(&mut asked, seconds);
        }
        tokio::time::timeout(SOON, async {
            while journals.started().count() < 6 {
                journals.look();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("six have started");
        cable.pull();
        let begun = Instant::now();
        for _ in 0..5 {
            ask(&mut asked, 1.0);
            tokio::time::sleep(CUT / 5).await;
        }
        cable.plug_in();
        let bounded = tokio::time::timeout(SOON, async {
            while let Some(ended) = asked.join_next().await {
                let (expected, outcome) = ended.unwrap();
                assert_eq!(outcome.as_ref(), Ok(&expected));
                println!(
                    "{:>5.1} s after the cut: {}",
                    begun.elapsed().as_secs_f64(),
                    expected.trim()
                );
            }
        });
        bounded.await.expect("every call ends");
        println!("owner after it: {:?}", owner(&installation).await);
        let starts = journals.starts();
        for id in ids {
            assert_eq!(starts.get(&id), Some(&1), "{id}");
        }
    });
}
