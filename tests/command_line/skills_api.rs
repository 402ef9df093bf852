//! The Skills APIs of `knack dev --registry` over HTTP: OmniRoute's rows and LiteLLM's records, and what models are served of them.

mod catalogs;
mod deleted;
mod executions;
mod floods;
mod granted;
mod indexed;
mod litellm;
mod omniroute;
mod runs;
mod uploads;

use reqwest::Method;
use serde_json::{Value, json};

use super::program::{Program, folder};

/// A runtime whose runs have a minute: no test waits for the default of 10 s to pass, and on a machine that stands still for some of them an
/// interpreter may need the rest to start.
pub(super) const RUNTIME: (&str, &str) = (
    "runtime.yaml",
    "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: knack-dev}\nspec: {maxActivation: Always, maxRisk: Critical, sandbox: {timeoutSeconds: 60}}\n",
);
/// Between the parts of a form.
const BOUNDARY: &str = "knack-test-boundary";

/// A form with these fields and perhaps a file.
fn form(fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, text) in fields {
        let part = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    if let Some((name, bytes)) = file {
        let head = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"content-type: application/zip\r\n\r\n");
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

/// One program with a scripted model, files beside the registry, and a client.
struct Served {
    program: Program,
    client: reqwest::Client,
    registry: tempfile::TempDir,
}

impl Served {
    async fn start(script: &str, files: &[(&str, &str)]) -> Self {
        Self::with(script, files, &[], &[]).await
    }

    /// Starts the program with more arguments and variables.
    async fn with(script: &str, files: &[(&str, &str)], more: &[&str], variables: &[(&str, &str)]) -> Self {
        let registry = tempfile::tempdir().unwrap();
        let program = Self::program(script, files, &registry, (more, variables)).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            program,
            client,
            registry,
        }
    }

    async fn program(
        script: &str,
        files: &[(&str, &str)],
        registry: &tempfile::TempDir,
        (more, variables): (&[&str], &[(&str, &str)]),
    ) -> Program {
        let files = folder(&[&[("script.yaml", script), ("skills/README", ""), RUNTIME], files].concat());
        let registry = registry.path().to_str().unwrap();
        let arguments = [
            &[RUNTIME.0, "--upstream", "mock=script.yaml", "--registry", registry],
            more,
        ]
        .concat();
        Program::start(files, &arguments, variables).await
    }

    /// Sends a request with a key, none if it is empty; the answer is status and body, and an id of it is there.
    async fn send(&self, request: reqwest::RequestBuilder, key: &str) -> (u16, Value) {
        let request = if key.is_empty() {
            request
        } else {
            request.bearer_auth(key)
        };
        let response = request.send().await.unwrap();
        let has_id = ["x-request-id", "request-id"]
            .iter()
            .any(|name| response.headers().contains_key(*name));
        assert!(has_id, "{:?}", response.headers());
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"));
        (status, body)
    }

    /// Sends what [`form`] made.
    async fn send_form(&self, path: &str, body: Vec<u8>, key: &str) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.program.url));
        let request = request
            .header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"))
            .body(body);
        self.send(request, key).await
    }

    async fn call(&self, method: &str, path: &str, body: &Value, key: &str) -> (u16, Value) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.program.url));
        if !body.is_null() {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        self.send(request, key).await
    }

    /// What a model answers to a text.
    async fn chat(&self, text: &str, key: &str, headers: &[(&'static str, &str)]) -> String {
        let authorization = format!("Bearer {key}");
        let headers = [&[("authorization", authorization.as_str())], headers].concat();
        let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]});
        self.program.post("/v1/chat/completions", &body, &headers).await
    }
}
