//! A gateway process with a scripted model behind it.

use std::path::Path;

use serde_json::{Value, json};

use super::support::{Installation, Process, SOON, free_port, listening};

/// A model that runs a skill's script by `run_code` when asked to, and says what came of it.
const SCRIPT: &str = r#"
turns:
  - user: {regex: 'run it'}
    rounds:
      - when: {results: 0}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: steady, command: 'python3 skills/steady/scripts/run.py'}
      - when: {}
        reply: {text: "{{results}}"}
  - rounds:
      - when: {}
        reply: {text: "the model speaks"}
"#;

/// The model, and what its gateways need.
pub(crate) struct Model {
    words: Vec<String>,
    _process: Process,
}

impl Model {
    /// Starts the model; its gateways come with a token of the first tenant.
    pub(crate) async fn start(installation: &Installation) -> Self {
        Self::start_for(installation, &installation.url(), &installation.authorities_file()).await
    }

    /// Starts the model; its gateways ask the hub at this URL and trust the authorities of this file.
    pub(crate) async fn start_for(installation: &Installation, hub: &str, authorities: &Path) -> Self {
        let folder = installation.folder.path();
        let (script, token, port) = (folder.join("script.yaml"), folder.join("token"), free_port());
        std::fs::write(&script, SCRIPT).unwrap();
        std::fs::write(
            &token,
            installation.token(&installation.tenants[0], "default", "knack").await,
        )
        .unwrap();
        let mock = [
            "mock",
            &format!("--listen=127.0.0.1:{port}"),
            &format!("--script={}", script.display()),
        ];
        let process = Process::start(installation.cluster, folder, "mock", &mock.map(str::to_owned));
        listening(port).await;
        let words = vec![
            format!("--hub={hub}"),
            format!("--hub-ca={}", authorities.display()),
            format!("--token-file={}", token.display()),
            format!("--runtime={}", installation.runtime()),
            format!("--upstream-openai=http://127.0.0.1:{port}"),
            "--metrics-listen=127.0.0.1:0".to_owned(),
        ];
        Self {
            words,
            _process: process,
        }
    }

    /// Starts a gateway and returns its port: it serves once it has its catalog.
    pub(crate) async fn gateway(&self, installation: &Installation, name: &str) -> (Process, u16) {
        let port = free_port();
        let mut words = self.gateway_words(port);
        words.push(with_catalog());
        let folder: &Path = installation.folder.path();
        let process = Process::start(installation.cluster, folder, name, &words);
        listening(port).await;
        (process, port)
    }

    /// The words of a gateway that listens at a port of loopback.
    pub(crate) fn gateway_words(&self, port: u16) -> Vec<String> {
        let mut words = vec!["gateway".to_owned(), format!("--listen=127.0.0.1:{port}")];
        words.extend(self.words.iter().cloned());
        words
    }
}

/// The word of a gateway that waits for its first catalog as long as a busy hub may take: the default is some seconds, after which it
/// passes requests on without skills.
pub(crate) fn with_catalog() -> String {
    format!("--start-wait-seconds={}", SOON.as_secs())
}

/// Asks the model through a gateway; `skills` are named in the header.
pub(crate) async fn chat(port: u16, text: &str, skills: Option<&str>) -> (u16, String) {
    let header = skills.map(|skills| ("x-knack-skills", skills));
    chat_with(port, text, header.as_slice()).await
}

/// As [`chat`], with headers of one's own.
pub(crate) async fn chat_with(port: u16, text: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}/v1/chat/completions"))
        .header("authorization", "Bearer sk-mock")
        .timeout(SOON)
        .header("content-type", "application/json")
        .body(json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]}).to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

/// What the model says.
pub(crate) fn content(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
