//! A client of OpenAI's Skills API: that of `knack dev --registry`, or the provider's own.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use knack_gateway::http_server::host_guard::is_local;
use knack_trust::{CaArgs, read_answer};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::terminal;
use crate::retry_after::retry_after;
use crate::sources::archive::ARCHIVE_MAX_BYTES;

/// A whole exchange: an upload of 32 MiB at 0.5 MiB/s.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(64);
/// Pauses before one request together: at a gateway of a cluster the next change is due after 2 s, and a server that is replaced is
/// back within a minute.
const WAIT_MAX: Duration = Duration::from_mins(2);
/// A pause at least, for a server that names none.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Bytes of an answer: a page of 100 skills with descriptions of 1,024 characters is far below.
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Items of a page, the most that the API gives.
const PAGE: usize = 100;
/// Pages that are read of one list: the registry keeps 10,000 skills.
const PAGES_MAX: usize = 100;

/// Where a Skills API is, and who asks.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address of the Skills API: a gateway with --registry, or the provider; with or without `/v1`
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4141")]
    to: Url,
    /// Environment variable that holds the API key; skills belong to it
    #[arg(long, value_name = "NAME", default_value = "OPENAI_API_KEY")]
    key_env: String,
    /// Connect to this address instead of resolving the name in the URL: 127.0.0.1 with kubectl port-forward
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    #[command(flatten)]
    ca: CaArgs,
}

/// A skill as the API shows it; members that are not used here are left out.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub id: String,
    pub name: String,
    pub default_version: Option<String>,
}

/// A version of a skill.
#[derive(Debug, Deserialize)]
pub(super) struct ListedVersion {
    pub id: String,
    pub version: String,
    /// Seconds since 1970.
    pub created_at: i64,
    pub description: Option<String>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<T> {
    data: Vec<T>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
}

/// An error in the API's shape.
#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    error: RefusedBody,
}

#[derive(Debug, Deserialize)]
struct RefusedBody {
    message: String,
}

/// The client.
pub(super) struct SkillsApi {
    client: reqwest::Client,
    base: String,
    key: HeaderValue,
}

/// The key in an environment variable as a header for a server. It is read from there, so that no list of processes shows it.
pub(super) fn bearer(variable: &str, server: &Url) -> anyhow::Result<HeaderValue> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    let key = key.with_context(|| {
        format!("{variable} is not set; it holds the API key, or name another variable by --key-env")
    })?;
    let mut key = HeaderValue::try_from(format!("Bearer {key}"))
        .with_context(|| format!("{variable}: the key contains characters that are not allowed in a header"))?;
    key.set_sensitive(true);
    let host = server.host_str().unwrap_or_default();
    if server.scheme() == "http" && !is_local(host) {
        terminal::note(&format!(
            "{host}: the key in {variable} goes there unencrypted; https:// protects it"
        ));
    }
    Ok(key)
}

impl SkillsApi {
    /// A client for a server.
    pub(super) fn new(args: &ServerArgs) -> anyhow::Result<Self> {
        let key = bearer(&args.key_env, &args.to)?;
        // A key goes to the host that was named, and nowhere else.
        let mut client = args
            .ca
            .roots()?
            .http()
            .redirect(Policy::none())
            .timeout(EXCHANGE_TIMEOUT)
            .user_agent(concat!("knack/", env!("CARGO_PKG_VERSION")));
        if let (Some(address), Some(host)) = (args.address, args.to.host_str()) {
            // A proxy would look the name up itself. Port 0 leaves that of the URL.
            client = client.no_proxy().resolve(host, SocketAddr::new(address, 0));
        }
        let client = client.build()?;
        let base = args.to.as_str().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        Ok(Self {
            client,
            base: format!("{base}/v1/skills"),
            key,
        })
    }

    /// The caller's skills.
    pub(super) async fn skills(&self) -> anyhow::Result<Vec<Listed>> {
        self.list("").await
    }

    /// All versions of a skill, the newest first.
    pub(super) async fn versions(&self, skill: &Listed) -> anyhow::Result<Vec<ListedVersion>> {
        self.list(&format!("/{}/versions", skill.id)).await
    }

    /// A new skill of a zip.
    pub(super) async fn create(&self, name: &str, zip: &[u8]) -> anyhow::Result<Listed> {
        self.ask(self.upload("", name, zip, false)).await
    }

    /// A new version of a skill.
    pub(super) async fn add(&self, skill: &Listed, zip: &[u8], is_default: bool) -> anyhow::Result<ListedVersion> {
        let path = format!("/{}/versions", skill.id);
        self.ask(self.upload(&path, &skill.name, zip, is_default)).await
    }

    fn upload(&self, path: &str, name: &str, zip: &[u8], is_default: bool) -> RequestBuilder {
        let (content_type, body) = form(name, zip, is_default);
        self.request(Method::POST, path)
            .header(CONTENT_TYPE, content_type)
            .body(body)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.header(AUTHORIZATION, self.key.clone())
    }

    async fn list<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        let mut found = Vec::new();
        let mut after = String::new();
        for _ in 0..PAGES_MAX {
            let page: Page<T> = self
                .ask(self.request(Method::GET, &format!("{path}?limit={PAGE}{after}")))
                .await?;
            found.extend(page.data);
            match page.last_id {
                Some(last) if page.has_more => after = format!("&after={last}"),
                _ => return Ok(found),
            }
        }
        bail!("{}: the list has more than {} items", self.base, PAGE * PAGES_MAX)
    }

    /// The zip of a skill's default version.
    pub(super) async fn content(&self, skill: &Listed) -> anyhow::Result<Bytes> {
        let path = format!("/{}/content", skill.id);
        self.bytes(self.request(Method::GET, &path), ARCHIVE_MAX_BYTES).await
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let bytes = self.bytes(request, ANSWER_MAX_BYTES).await?;
        serde_json::from_slice(&bytes).with_context(|| {
            format!(
                "{}: not an answer of OpenAI's Skills API; a gateway serves it with --registry",
                self.base
            )
        })
    }

    /// The answer to a request. One that the server has no time for, as one of a folder of skills at a gateway that limits changes,
    /// is sent again when the server says. A change is only with 429, which is said before anything is done: with 503 it may have been
    /// made.
    async fn send(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        let mut left = WAIT_MAX;
        loop {
            let again = request.try_clone();
            let read = again.as_ref().and_then(|again| again.try_clone()?.build().ok());
            let is_read = read.is_some_and(|request| request.method() == Method::GET);
            let response = request.send().await.with_context(|| self.base.clone())?;
            let status = response.status();
            let is_busy =
                status == StatusCode::TOO_MANY_REQUESTS || (status == StatusCode::SERVICE_UNAVAILABLE && is_read);
            let asked = retry_after(response.headers()).filter(|_| is_busy);
            let pause = asked.unwrap_or_default().max(PAUSE_MIN);
            match again {
                Some(again) if asked.is_some() && pause <= left => {
                    left -= pause;
                    terminal::note(&format!(
                        "{}: {status}; trying again in {} s, as the server asks",
                        self.base,
                        pause.as_secs()
                    ));
                    tokio::time::sleep(pause).await;
                    request = again;
                }
                _ => return Ok(response),
            }
        }
    }

    /// The body of a good answer.
    async fn bytes(&self, request: RequestBuilder, most: usize) -> anyhow::Result<Bytes> {
        let mut response = self.send(request).await?;
        let status = response.status();
        let bytes = read_answer(&mut response, most).await;
        let bytes = bytes.with_context(|| self.base.clone())?;
        if !status.is_success() {
            let why = serde_json::from_slice::<ErrorAnswer>(&bytes).map(|refused| refused.error.message);
            bail!(
                "{}: {status}{}",
                self.base,
                why.map_or_else(|_| String::new(), |why| format!(": {why}"))
            );
        }
        Ok(bytes)
    }
}

/// A multipart form with one zip: its content type, and its body.
fn form(name: &str, zip: &[u8], is_default: bool) -> (String, Bytes) {
    // The digest of a zip is not in the zip.
    let boundary = format!("knack-{}", knack_skill::digest::sha256(zip));
    let mut body = Vec::with_capacity(zip.len() + 512);
    if is_default {
        body.extend(
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"default\"\r\n\r\ntrue\r\n").bytes(),
        );
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"files\"; filename=\"{name}.zip\"\r\nContent-Type: application/zip\r\n\r\n"
    );
    body.extend(head.bytes());
    body.extend(zip);
    body.extend(format!("\r\n--{boundary}--\r\n").bytes());
    (format!("multipart/form-data; boundary={boundary}"), body.into())
}
