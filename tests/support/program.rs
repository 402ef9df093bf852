//! `knack` as a child process, and `knack dev` as one that serves.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::runner;

/// Longest wait for anything: a start, a line, an answer, an end.
const PATIENCE: Duration = Duration::from_mins(5);

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn command(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("KNACK_RUNNER", runner::binary())
        .env("XDG_STATE_HOME", folder.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let ours = |name: &String| name.starts_with("OTEL_") || name.starts_with("KNACK_UPSTREAM");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

/// Runs a command to its end, within a folder.
pub(crate) async fn knack(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let output = command(folder, arguments, environment).output();
    tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap()
}

/// A running `knack dev`; killed when dropped.
pub(crate) struct Program {
    child: Child,
    /// `http://address:port`.
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it printed when it began to serve.
    pub(crate) greeting: Vec<String>,
    folder: tempfile::TempDir,
}

impl Program {
    /// Serves the folder's `skills`.
    pub(crate) async fn start(folder: tempfile::TempDir, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let arguments = [&["skills"], arguments].concat();
        Self::start_with(folder, &arguments, environment).await
    }

    /// Serves what the arguments of `knack dev` name.
    pub(crate) async fn start_with(
        folder: tempfile::TempDir,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self::begin(folder, arguments, environment, Stdio::inherit()).await
    }

    /// Serves the folder's `skills`, with the log in a file, for [`Self::log`].
    pub(crate) async fn start_logged(
        folder: tempfile::TempDir,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let arguments = [&["skills"], arguments].concat();
        Self::begin(folder, &arguments, environment, log.into()).await
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    async fn begin(folder: tempfile::TempDir, arguments: &[&str], environment: &[(&str, &str)], log: Stdio) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let arguments = [&["dev", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = command(folder.path(), &arguments, environment)
            .stderr(log)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Self {
            child,
            url: String::new(),
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
            lines,
            greeting: Vec::new(),
            folder,
        };
        loop {
            let line = program.line().await;
            let words = line.strip_prefix("knack serves ");
            if let Some(url) = words.and_then(|words| words.split(' ').next()) {
                url.clone_into(&mut program.url);
            }
            let last = line.contains("  MCP clients ");
            program.greeting.push(line);
            if last {
                return program;
            }
        }
    }

    /// The next line for the person at the terminal.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.unwrap().unwrap().expect("a line")
    }

    /// A path in its working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Posts, with a key of its own where the headers have none, and reads the whole answer.
    pub(crate) async fn post(&self, path: &str, body: &Value, headers: &[(&'static str, &str)]) -> String {
        let mut request = self
            .client
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(body.to_string());
        if headers.iter().all(|(name, _)| *name != "authorization") {
            request = request.header("authorization", "Bearer sk-client");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Reads an address.
    pub(crate) async fn get(&self, path: &str, headers: &[(&'static str, &str)]) -> reqwest::Response {
        let mut request = self.client.get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    /// Ends it without any warning.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, as Kubernetes does.
    pub(crate) fn signal(&self) {
        self.send(rustix::process::Signal::TERM);
    }

    pub(crate) fn send(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether it was started with SIGHUP ignored, as by a test run under `nohup`.
    pub(crate) fn ignores_hangup(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
    }

    /// Asks it to end, and waits for the end.
    pub(crate) async fn stop(&mut self) {
        self.signal();
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}
