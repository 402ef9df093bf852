//! A controller process of the test's own, which looks at the test's namespaces only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cluster_support::Cluster;

use crate::cgroup::{Group, resident_mib};
use crate::port::free_port;
use crate::wait::BOUND;

/// Pause between looks at `/readyz`, which has no other signal.
const PAUSE: Duration = Duration::from_millis(50);

/// A running `knack controller`, ended with the value.
pub(crate) struct Controller {
    child: Child,
    address: SocketAddr,
}

impl Controller {
    /// Starts one on the bed and waits until it answers `phase` at `/readyz`.
    pub(crate) async fn start(cluster: &Cluster, home: &str, watch: &[&str], more: &[&str], phase: &str) -> Self {
        let mut controller = Self::launch(cluster.kubeconfig(), home, watch, more);
        controller.until_phase(phase).await;
        controller
    }

    /// Starts one.
    pub(crate) fn launch(kubeconfig: &Path, home: &str, watch: &[&str], more: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_knack")), kubeconfig, home, watch, more)
    }

    /// Starts one under a memory limit, with what the chart sets for its C library.
    pub(crate) fn launch_within(group: &Group, kubeconfig: &Path, home: &str, watch: &[&str], more: &[&str]) -> Self {
        let [shell, before @ ..] = group.words();
        let mut command = Command::new(shell);
        command.args(before).arg(env!("CARGO_BIN_EXE_knack"));
        command.env(Group::ENVIRONMENT.0, Group::ENVIRONMENT.1);
        Self::spawn(command, kubeconfig, home, watch, more)
    }

    /// `program`: the command line up to its subcommand.
    fn spawn(mut program: Command, kubeconfig: &Path, home: &str, watch: &[&str], more: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        // Code may run wherever it looks, unless the test says where.
        let run_in = (!watch.is_empty() && !more.contains(&"--runtime-namespaces")).then(|| watch.join(","));
        program
            .args([
                "controller",
                "--namespace",
                home,
                "--metrics-listen",
                &address.to_string(),
            ])
            .args(watch.iter().flat_map(|namespace| ["--watch-namespace", namespace]))
            .args(more)
            .args(run_in.map(|namespaces| format!("--runtime-namespaces={namespaces}")))
            .env("KUBECONFIG", kubeconfig)
            .env("KNACK_LOG", "warn")
            .stdout(Stdio::null());
        Self {
            child: program.spawn().unwrap(),
            address,
        }
    }

    /// Waits until the answer of `/readyz` contains a text.
    pub(crate) async fn until_phase(&mut self, phase: &str) {
        let started = Instant::now();
        loop {
            assert!(self.child.try_wait().unwrap().is_none(), "the controller ended");
            let answer = self.get("/readyz");
            if answer.as_deref().is_some_and(|answer| answer.contains(phase)) {
                return;
            }
            assert!(started.elapsed() < BOUND, "the controller is not {phase}: {answer:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The answer to a GET, head and body, if there is one.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The sum of a counter over its labels.
    pub(crate) fn counter(&self, name: &str) -> f64 {
        let text = self.get("/metrics").unwrap();
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// What it holds of physical memory now, MiB.
    pub(crate) fn resident_mib(&self) -> usize {
        resident_mib(self.child.id())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) async fn until_ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < BOUND, "the controller does not end");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// SIGTERM, and waits for a clean end.
    pub(crate) fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the controller ended with {status}");
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
