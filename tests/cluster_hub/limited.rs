//! A hub under a memory limit.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use cluster_support::Cluster;

use super::cgroup::Group;
use super::support::{Installation, Process, free_port};

const MIB: usize = 1 << 20;
/// Time for the metrics of a hub that a failed test asks.
const METRICS_WITHIN: Duration = Duration::from_secs(10);

/// A hub in a control group.
pub(crate) struct Limited {
    pub(crate) process: Process,
    pub(crate) group: Group,
    metrics: String,
}

impl Limited {
    /// Starts one at the address of the installation, and waits until it answers.
    pub(crate) async fn start(installation: &Installation, cluster: &Cluster, group: Group) -> Self {
        let metrics = format!("127.0.0.1:{}", free_port());
        let mut words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
        words.retain(|word| !word.starts_with("--metrics-listen"));
        words.push(format!("--metrics-listen={metrics}"));
        let [shell, before @ ..] = group.words();
        let mut command = Command::new(shell);
        command.args(before).arg(super::released::knack()).args(words);
        command.env("KUBECONFIG", cluster.kubeconfig());
        command.env(Group::ENVIRONMENT.0, Group::ENVIRONMENT.1);
        let process = Process::spawn(installation.folder.path(), "hub", &mut command);
        installation.wait_for_hub_at(&installation.url()).await;
        Self {
            process,
            group,
            metrics,
        }
    }

    /// Whether it runs, what its control group counted, and which connections it closed itself.
    pub(crate) fn state(&mut self) -> String {
        let ended = self
            .process
            .ended()
            .map_or_else(|| "runs".to_owned(), |status| status.to_string());
        format!(
            "{ended}; {} killed for want of memory, peak {:?} MiB; {}",
            self.group.killed(),
            self.group.peak_bytes().map(|bytes| bytes / MIB),
            self.closed()
                .unwrap_or_else(|error| format!("its metrics cannot be read: {error}"))
        )
    }

    /// The metrics of its connections, read without a runtime: also while a test fails.
    fn closed(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.metrics)?;
        stream.set_read_timeout(Some(METRICS_WITHIN))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("knack_hub_listener_connections"));
        Ok(lines.collect::<Vec<_>>().join(", "))
    }

    /// A figure of its metrics.
    pub(crate) async fn metric(&self, name: &str) -> usize {
        let text = reqwest::get(format!("http://{}/metrics", self.metrics)).await.unwrap();
        let text = text.text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
    }
}

impl Drop for Limited {
    /// Where the test fails, it says what became of the hub, whichever assertion failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = self.state();
            let _ = writeln!(std::io::stderr(), "the hub: {state}");
        }
    }
}
