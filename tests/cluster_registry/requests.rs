//! Requests as programs send them.

use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::installation::SOON;

/// Before the second try of a request for which the API server had no time.
const AGAIN: Duration = Duration::from_millis(500);

/// Whose shapes are asked for.
#[derive(Clone, Copy)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

/// What is sent.
#[derive(Clone)]
pub(crate) enum Sent {
    Json(Value),
    Form(String, Vec<u8>),
    Bytes(Vec<u8>),
}

impl From<Value> for Sent {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

/// The files of a small skill's folder, which takes more than one ConfigMap.
pub(crate) fn files(name: &str, text: &str) -> [(&'static str, String); 2] {
    let document = format!("---\nname: {name}\ndescription: About {name}.\n---\n{text}\n");
    [("SKILL.md", document), ("data.txt", "x".repeat(1_500_000))]
}

/// Its form.
pub(crate) fn folder(name: &str, text: &str) -> Sent {
    let files = files(name, text);
    form(name, files.iter().map(|(path, content)| (*path, content.as_bytes())))
}

/// The form of the files of a folder.
pub(crate) fn form<'a>(folder: &str, files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Sent {
    let boundary = "a-boundary".to_owned();
    let mut body = Vec::new();
    for (path, content) in files {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"files[]\"; filename=\"{folder}/{path}\"\r\nContent-Type: text/plain\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Sent::Form(boundary, body)
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// A program with a token.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) token: String,
    /// The client whose request it is, as a gateway says it.
    pub(crate) client: Option<&'static str>,
}

impl Program {
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn for_client(&self, client: &'static str) -> Self {
        Self {
            client: Some(client),
            ..self.clone()
        }
    }

    /// An answer, if there is one.
    pub(crate) async fn try_send(
        &self,
        dialect: Dialect,
        method: &str,
        path: &str,
        sent: Option<Sent>,
    ) -> Option<Answer> {
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        request = match dialect {
            Dialect::OpenAi if self.token.is_empty() => request,
            Dialect::OpenAi => request.bearer_auth(&self.token),
            Dialect::Anthropic => request
                .header("x-api-key", &self.token)
                .header("anthropic-version", "2023-06-01"),
        };
        if let Some(client) = self.client {
            request = request.header("x-knack-client", client);
        }
        request = match sent {
            None => request,
            Some(Sent::Json(value)) => request
                .header("content-type", "application/json")
                .body(value.to_string()),
            Some(Sent::Form(boundary, body)) => request
                .header("content-type", format!("multipart/form-data; boundary={boundary}"))
                .body(body),
            Some(Sent::Bytes(body)) => request.header("content-type", "application/octet-stream").body(body),
        };
        let response = request.send().await.ok()?;
        Some(Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes().await.ok()?.to_vec(),
        })
    }

    /// The answer, once the API server behind the registry has time: until it has said who may do what, or has made the change, the
    /// registry asks to try again.
    pub(crate) async fn send(&self, dialect: Dialect, method: &str, path: &str, sent: Option<Sent>) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.try_send(dialect, method, path, sent.clone()).await;
            let answer = answer.unwrap_or_else(|| panic!("no answer to {method} {path}"));
            if answer.status != StatusCode::SERVICE_UNAVAILABLE || begun.elapsed() > SOON {
                return answer;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The body of a success.
    pub(crate) async fn json(&self, dialect: Dialect, method: &str, path: &str) -> Value {
        let answer = self.send(dialect, method, path, None).await;
        assert_eq!(answer.status, StatusCode::OK, "{method} {path}: {}", answer.text());
        answer.json()
    }
}
