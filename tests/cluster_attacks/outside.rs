//! What is outside of the bed: an address that answers as internet, metadata service and DNS.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cluster_support::Cluster;

/// From the block for documentation (RFC 5737): never routed anywhere.
pub(crate) const V4: &str = "203.0.113.1";

/// The peer and its addresses; both go when dropped.
pub(crate) struct Peer {
    namespace: String,
    process: Child,
}

const ADDRESSES: [&str; 2] = ["203.0.113.1/32", "169.254.169.254/32"];

impl Peer {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let namespace = cluster.outside().to_string_lossy().into_owned();
        for address in ADDRESSES {
            // Left behind by a run that was killed: not an error.
            ip(&namespace, &["addr", "replace", address, "dev", "lo"]);
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/targets.py");
        let mut process = Command::new("nsenter")
            .arg(format!("--net={namespace}"))
            .args(["--", "/usr/bin/python3"])
            .arg(script)
            .arg("peer")
            .env("KNACK_V4", V4)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(process.stdin.take().unwrap(), "go").unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the peer did not start");
        Self { namespace, process }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for address in ADDRESSES {
            ip(&self.namespace, &["addr", "del", address, "dev", "lo"]);
        }
    }
}

fn ip(namespace: &str, words: &[&str]) {
    let status = Command::new("nsenter")
        .arg(format!("--net={namespace}"))
        .args(["--", "ip"])
        .args(words)
        .status()
        .unwrap();
    assert!(status.success(), "ip {words:?}");
}
