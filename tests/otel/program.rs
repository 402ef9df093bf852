//! `knack dev` as a child.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::runner;

const SKILL: &str =
    "---\nname: always\ndescription: Says the word.\nactivation: Always\n---\nRun code when somebody says so.\n";
/// Longest wait for anything: a start, an answer, an end.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running `knack dev`; killed when dropped.
pub(crate) struct Program {
    child: Child,
    url: String,
    client: reqwest::Client,
    /// Keeps the pipe open: a program whose output nobody reads must not fail for that.
    _lines: Lines<BufReader<ChildStdout>>,
    _folder: tempfile::TempDir,
}

fn command(folder: &tempfile::TempDir, provider: &str, environment: &[(&str, &str)]) -> Command {
    let skills = folder.path().join("skills/always");
    std::fs::create_dir_all(&skills).unwrap();
    std::fs::write(skills.join("SKILL.md"), SKILL).unwrap();
    std::fs::write(skills.join("say.py"), "print(1)\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
    command
        .args(["dev", "skills", "--listen", "127.0.0.1:0", "--upstream", provider])
        .current_dir(folder.path())
        .env("KNACK_RUNNER", runner::binary())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

impl Program {
    pub(crate) async fn start(provider: &str, environment: &[(&str, &str)]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let mut child = command(&folder, provider, environment)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let served = async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap();
                if let Some(url) = line.strip_prefix("knack serves ") {
                    return url.to_owned();
                }
            }
        };
        let url = tokio::time::timeout(PATIENCE, served).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self {
            child,
            url,
            client,
            _lines: lines,
            _folder: folder,
        }
    }

    /// Posts and reads the whole answer.
    pub(crate) async fn post(&self, path: &str, body: &Value, traceparent: Option<&str>) -> String {
        let mut request = self
            .client
            .post(format!("{}{path}?key=sk-client-query", self.url))
            .header("content-type", "application/json")
            .header("authorization", "Bearer sk-client")
            .body(body.to_string());
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Ends it as Kubernetes does, and waits for the end.
    pub(crate) async fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(status.success(), "{status}");
    }

    /// What it says when it does not start.
    pub(crate) async fn refused(environment: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let child = command(&folder, "http://127.0.0.1:9", environment).output();
        let output = tokio::time::timeout(PATIENCE, child).await.unwrap().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}
