//! A registry of images (OCI distribution API): the calls that adding a layer to an image needs.
//!
//! Bodies are streamed: a layer may be larger than the memory of a builder.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use knack_egress::{AddressRefusal, Guard};
use knack_trust::{CertificateRefusal, Roots, read_answer};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio_util::io::ReaderStream;

use super::credentials::{Credentials, RegistryError, parameters};
use super::image::Reference;
use super::reach::{address, built, client, guarded, refused_by_guard};
use crate::retry_after::retry_after;

/// Largest manifest or config: those of images with a hundred layers are below 100 KiB.
const DOCUMENT_MAX_BYTES: usize = 4 << 20;
/// Longest answer of a token server.
const TOKEN_MAX_BYTES: usize = 64 << 10;
/// Longest part of a registry's error code that is shown.
const CODE_MAX_BYTES: usize = 200;

/// Pauses before a call is tried again that failed in a way that passes: a limit of rate, a registry that restarts. An installation
/// of minutes precedes a push.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Kinds of manifests that are read.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The use of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Images are read.
    Pull,
    /// Images are read and written.
    PullPush,
}

/// A registry, for one repository; with its token after the first challenge.
#[derive(Debug)]
pub struct ImageRegistry {
    client: Client,
    base: Url,
    host: String,
    repository: String,
    access: Access,
    basic: Option<String>,
    /// What may be connected to; `None`: whatever the registry names.
    guard: Option<Guard>,
    authorization: tokio::sync::Mutex<Authorization>,
    /// Whether it was seen not to mount blobs of another repository: each is copied then.
    mounts_nothing: AtomicBool,
}

#[derive(Debug, Default)]
struct Authorization {
    value: Option<HeaderValue>,
    /// The repository that blobs are mounted from, for which a token has to be good too.
    source: Option<String>,
}

/// A call that was not answered.
struct Unanswered {
    error: RegistryError,
    /// Whether the same call may be answered later.
    is_transient: bool,
    /// The pause that was asked for.
    pause: Option<Duration>,
}

impl From<Unanswered> for RegistryError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

impl ImageRegistry {
    /// The registry of a repository, whose certificate is checked against these authorities. Errors: its name cannot be an address, or there is no client.
    pub fn new(
        of: &Reference,
        access: Access,
        credentials: &Credentials,
        plain_http: bool,
        roots: &Roots,
    ) -> Result<Self, RegistryError> {
        let base = address(of, plain_http)?.join(&format!("v2/{}/", of.repository));
        let base = base.map_err(|_| RegistryError(format!("{} is not the name of a repository", of.repository)))?;
        Ok(Self {
            client: built(client(roots))?,
            guard: None,
            base,
            host: of.registry.clone(),
            repository: of.repository.clone(),
            access,
            basic: credentials.of(of),
            authorization: tokio::sync::Mutex::default(),
            mounts_nothing: AtomicBool::new(false),
        })
    }

    /// The client of a registry that no administrator has named: it connects to no address that the guard refuses, be it the registry's,
    /// that of a redirect, or that of a token server. Errors: its own address is refused by its text.
    pub fn guarded(self, guard: Guard, roots: &Roots) -> Result<Self, RegistryError> {
        guard.check(&self.base).map_err(|refusal| self.denied(refusal))?;
        Ok(Self {
            client: built(guarded(client(roots), &guard))?,
            guard: Some(guard),
            ..self
        })
    }

    /// A manifest with its media type. Errors: it is absent, or does not have the digest.
    pub async fn manifest(&self, version: &str) -> Result<(Value, String), RegistryError> {
        let url = self.url(&format!("manifests/{version}"))?;
        let response = self
            .ask(|| self.client.get(url.clone()).header(ACCEPT, MANIFESTS))
            .await?;
        let response = self
            .expect(response, &format!("manifest {version}"), &[StatusCode::OK])
            .await?;
        let kind = header(response.headers(), CONTENT_TYPE.as_str()).unwrap_or_default();
        let bytes = self.document(response, version).await?;
        let value = serde_json::from_slice(&bytes);
        Ok((
            value.map_err(|_| self.error(&format!("manifest {version} is not JSON")))?,
            kind,
        ))
    }

    /// A small blob: a config. Errors: as for manifests.
    pub async fn config(&self, digest: &str) -> Result<Value, RegistryError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let response = self.ask(|| self.client.get(url.clone())).await?;
        let response = self
            .expect(response, &format!("config {digest}"), &[StatusCode::OK])
            .await?;
        let bytes = self.document(response, digest).await?;
        serde_json::from_slice(&bytes).map_err(|_| self.error(&format!("config {digest} is not JSON")))
    }

    /// Whether the repository has a blob.
    pub async fn has_blob(&self, digest: &str) -> Result<bool, RegistryError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let response = self.ask(|| self.client.head(url.clone())).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        self.expect(response, &format!("blob {digest}"), &[StatusCode::OK])
            .await
            .map(|_| true)
    }

    /// Copies a blob from another repository: within one registry by mounting, else byte for byte.
    pub async fn copy_blob(&self, digest: &str, size: u64, from: &Self) -> Result<(), RegistryError> {
        if self.has_blob(digest).await? {
            return Ok(());
        }
        let location = match self.mount(digest, from).await {
            Mounted::Done => return Ok(()),
            Mounted::Uploading(location) => Some(location),
            Mounted::Refused => None,
        };
        let source = from.url(&format!("blobs/{digest}"))?;
        let body = async || {
            let found = from.ask(|| from.client.get(source.clone())).await?;
            let found = from
                .expect(found, &format!("layer {digest}"), &[StatusCode::OK])
                .await?;
            Ok(Body::from(found))
        };
        self.upload(digest, size, location, body).await
    }

    /// Asks the registry to take a blob from another of its repositories. It may not: the account may read that repository by no
    /// token of this registry, or it takes the call as the begin of an upload.
    async fn mount(&self, digest: &str, from: &Self) -> Mounted {
        let may_mount = from.base.origin() == self.base.origin() && from.basic == self.basic;
        if !may_mount || self.mounts_nothing.load(Ordering::Relaxed) {
            return Mounted::Refused;
        }
        let Ok(mut url) = self.url("blobs/uploads/") else {
            return Mounted::Refused;
        };
        url.query_pairs_mut()
            .append_pair("mount", digest)
            .append_pair("from", &from.repository);
        self.authorization.lock().await.source = Some(from.repository.clone());
        let answer = self
            .ask(|| self.client.post(url.clone()).header(CONTENT_LENGTH, 0))
            .await;
        match answer {
            Ok(response) if response.status() == StatusCode::CREATED => Mounted::Done,
            Ok(response) if response.status() == StatusCode::ACCEPTED => self
                .upload_location(&response, digest)
                .map_or(Mounted::Refused, Mounted::Uploading),
            // The upload that follows says what is wrong, if it is not the mounting.
            Ok(_) | Err(_) => {
                self.mounts_nothing.store(true, Ordering::Relaxed);
                *self.authorization.lock().await = Authorization::default();
                Mounted::Refused
            }
        }
    }

    /// Pushes a file as a blob.
    pub async fn push_file(&self, digest: &str, size: u64, file: &Path) -> Result<(), RegistryError> {
        if self.has_blob(digest).await? {
            return Ok(());
        }
        let body = async || {
            let file = tokio::fs::File::open(file).await;
            let file = file.map_err(|error| RegistryError(format!("the layer cannot be read: {error}")))?;
            Ok(Body::wrap_stream(ReaderStream::new(file)))
        };
        self.upload(digest, size, None, body).await
    }

    /// Pushes bytes as a blob.
    pub async fn push_bytes(&self, digest: &str, bytes: Vec<u8>) -> Result<(), RegistryError> {
        if self.has_blob(digest).await? {
            return Ok(());
        }
        let bytes = Bytes::from(bytes);
        let body = async || Ok(Body::from(bytes.clone()));
        self.upload(digest, bytes.len() as u64, None, body).await
    }

    /// Pushes a manifest under its digest.
    pub async fn push_manifest(&self, digest: &str, kind: &str, bytes: Vec<u8>) -> Result<(), RegistryError> {
        let url = self.url(&format!("manifests/{digest}"))?;
        let put = || {
            self.client
                .put(url.clone())
                .header(CONTENT_TYPE, kind)
                .body(bytes.clone())
        };
        let response = self.ask(put).await?;
        let done = [StatusCode::CREATED, StatusCode::OK, StatusCode::ACCEPTED];
        self.expect(response, "the manifest", &done).await.map(|_| ())
    }

    async fn begin(&self, digest: &str) -> Result<Url, RegistryError> {
        let url = self.url("blobs/uploads/")?;
        let response = self
            .ask(|| self.client.post(url.clone()).header(CONTENT_LENGTH, 0))
            .await?;
        let response = self
            .expect(
                response,
                &format!("an upload location for {digest}"),
                &[StatusCode::ACCEPTED],
            )
            .await?;
        self.upload_location(&response, digest)
    }

    /// The upload URL that the registry answers.
    fn upload_location(&self, response: &Response, digest: &str) -> Result<Url, RegistryError> {
        let location =
            header(response.headers(), LOCATION.as_str()).and_then(|location| self.base.join(&location).ok());
        let mut location = location.ok_or_else(|| self.error("it returned no upload location"))?;
        location.query_pairs_mut().append_pair("digest", digest);
        Ok(location)
    }

    /// Uploads a blob, to `location` or one that the registry gives, and again from its beginning after a failure that passes.
    async fn upload(
        &self,
        digest: &str,
        size: u64,
        mut location: Option<Url>,
        body: impl AsyncFn() -> Result<Body, RegistryError>,
    ) -> Result<(), RegistryError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let location = match location.take() {
                Some(location) => location,
                None => self.begin(digest).await?,
            };
            let is_own = location.origin() == self.base.origin();
            let answer = self.put(location, size, body().await?).await;
            // A token may end during a long upload: the next begin gets a new one. Another host gets none.
            let is_unauthorized = |response: &Response| response.status() == StatusCode::UNAUTHORIZED;
            let is_expired = is_own && answer.as_ref().is_ok_and(is_unauthorized);
            match pauses.next() {
                Some(pause) if is_expired || may_pass(&answer) => {
                    tokio::time::sleep(pause_of(&answer, pause)).await;
                }
                _ => {
                    return self
                        .expect(answer?, "an upload", &[StatusCode::CREATED])
                        .await
                        .map(|_| ());
                }
            }
        }
    }

    async fn put(&self, location: Url, size: u64, body: Body) -> Result<Response, Unanswered> {
        let put = self.client.put(location.clone()).header(CONTENT_LENGTH, size);
        // The URL may be on another host, such as an object store: that host gets no credentials.
        let authorization = self.authorization.lock().await.value.clone();
        let put = put.header(CONTENT_TYPE, "application/octet-stream");
        let is_own = location.origin() == self.base.origin();
        let put = match authorization.filter(|_| is_own) {
            Some(value) => put.header(AUTHORIZATION, value),
            None => put,
        };
        put.body(body)
            .send()
            .await
            .map_err(|error| self.unreachable("", &error))
    }

    /// Sends a request; once more with credentials if the registry asks for them, and again after failures that pass.
    async fn ask(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, RegistryError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = self.ask_once(&request).await;
            match pauses.next() {
                Some(pause) if may_pass(&answer) => tokio::time::sleep(pause_of(&answer, pause)).await,
                _ => return Ok(answer?),
            }
        }
    }

    async fn ask_once(&self, request: &impl Fn() -> RequestBuilder) -> Result<Response, Unanswered> {
        let known = self.authorization.lock().await.value.clone();
        let send = async |authorization: Option<HeaderValue>| {
            let request = match authorization {
                Some(value) => request().header(AUTHORIZATION, value),
                None => request(),
            };
            request.send().await.map_err(|error| self.unreachable("", &error))
        };
        let response = send(known).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = header(response.headers(), WWW_AUTHENTICATE.as_str()).unwrap_or_default();
        let value = self.authorized(&challenge).await?;
        self.authorization.lock().await.value = Some(value.clone());
        send(Some(value)).await
    }

    async fn authorized(&self, challenge: &str) -> Result<HeaderValue, Unanswered> {
        let text = if let Some(parameters) = parameters(challenge) {
            format!("Bearer {}", self.token(&parameters).await?)
        } else {
            let basic = self.basic.as_ref();
            let basic = basic.ok_or_else(|| {
                let advice = self.advice(StatusCode::UNAUTHORIZED);
                self.fails(&format!(
                    "it requires credentials, but none are configured for it{advice}"
                ))
            })?;
            format!("Basic {basic}")
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| self.fails("its token cannot be sent"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn token(&self, parameters: &[(String, String)]) -> Result<String, Unanswered> {
        let of = |name: &str| {
            parameters
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let realm = of("realm").and_then(|realm| Url::parse(realm).ok());
        let mut realm = realm.ok_or_else(|| self.fails("it names no token server"))?;
        if realm.scheme() != "https" && self.base.scheme() == "https" {
            return Err(self.fails("it names a token server without TLS"));
        }
        if let Some(Err(refusal)) = self.guard.as_ref().map(|guard| guard.check(&realm)) {
            return Err(lasting(self.denied(refusal)));
        }
        let source = self.authorization.lock().await.source.clone();
        {
            let mut query = realm.query_pairs_mut();
            query.extend_pairs(of("service").map(|service| ("service", service)));
            let actions = match self.access {
                Access::Pull => "pull",
                Access::PullPush => "pull,push",
            };
            // All scopes at once: the server leaves out those that the account does not have.
            query.append_pair("scope", &format!("repository:{}:{actions}", self.repository));
            query.extend_pairs(source.map(|source| ("scope", format!("repository:{source}:pull"))));
        }
        let mut request = self.client.request(Method::GET, realm);
        if let Some(basic) = &self.basic {
            request = request.header(AUTHORIZATION, format!("Basic {basic}"));
        }
        let response = request.send().await;
        let response = response.map_err(|error| self.unreachable("its token server: ", &error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(Unanswered {
                error: self.error(&format!("its token server answers {status}{}", self.advice(status))),
                is_transient: is_transient(status),
                pause: retry_after(response.headers()),
            });
        }
        let bytes = bounded(response, TOKEN_MAX_BYTES)
            .await
            .ok_or_else(|| self.fails("the answer of its token server is too large"))?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = answer
            .get("token")
            .or_else(|| answer.get("access_token"))
            .and_then(Value::as_str);
        token
            .map(str::to_owned)
            .ok_or_else(|| self.fails("its token server returned no token"))
    }

    async fn expect(&self, response: Response, what: &str, wanted: &[StatusCode]) -> Result<Response, RegistryError> {
        if wanted.contains(&response.status()) {
            return Ok(response);
        }
        let status = response.status();
        let body = bounded(response, DOCUMENT_MAX_BYTES).await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = body
            .pointer("/errors/0/code")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let end = code.floor_char_boundary(CODE_MAX_BYTES);
        let message = format!("{what} of {}: it answers {status} {}", self.repository, &code[..end]);
        Err(self.error(&format!("{}{}", message.trim_end(), self.advice(status))))
    }

    /// What to do about an answer that refuses the account. A registry that no administrator has named gets none.
    fn advice(&self, status: StatusCode) -> &'static str {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.guard.is_none() => {
                "; the chart value packages.registrySecret names its credentials"
            }
            _ => "",
        }
    }

    /// A body, checked against its digest; a tag is not checked.
    async fn document(&self, response: Response, version: &str) -> Result<Bytes, RegistryError> {
        let bytes = bounded(response, DOCUMENT_MAX_BYTES).await;
        let bytes = bytes.ok_or_else(|| self.error(&format!("{version} is too large, or was interrupted")))?;
        if let Some(digest) = version.strip_prefix("sha256:")
            && knack_skill::digest::sha256(&bytes) != digest
        {
            return Err(self.error(&format!("the content of {version} does not match its digest")));
        }
        Ok(bytes)
    }

    fn url(&self, path: &str) -> Result<Url, RegistryError> {
        self.base
            .join(path)
            .map_err(|_| self.error(&format!("{path} is not a path")))
    }

    /// The error has no address or path, which may contain a secret.
    pub(super) fn error(&self, what: &str) -> RegistryError {
        RegistryError(format!("registry {}: {}", self.host, what.trim_end()))
    }

    /// A failure that does not pass.
    fn fails(&self, what: &str) -> Unanswered {
        lasting(self.error(what))
    }

    /// The error of an address that the guard refuses. It is one text for the registry and what it names, so that it shows no address
    /// of an inside network.
    fn denied(&self, refusal: AddressRefusal) -> RegistryError {
        let what = match refusal {
            AddressRefusal::OtherPort => "a host that the chart names with another port",
            _ => "an address that is not public",
        };
        self.error(&format!(
            "it is, or leads to, {what}; an administrator can name the image's repository in the chart value packages.baseRepositories"
        ))
    }

    /// Why `part` of the registry did not answer: a token server, or itself.
    fn unreachable(&self, part: &str, error: &reqwest::Error) -> Unanswered {
        if let Some(refusal) = refused_by_guard(error) {
            return lasting(self.denied(refusal));
        }
        if let Some(refusal) = CertificateRefusal::of(error) {
            return self.fails(&format!("{part}its certificate {refusal}"));
        }
        let what = if error.is_timeout() {
            "no answer in time"
        } else if error.is_connect() {
            "no connection"
        } else {
            "the transfer was interrupted"
        };
        Unanswered {
            error: self.error(&format!("{part}{what}")),
            is_transient: true,
            pause: None,
        }
    }
}

/// An error that does not pass.
const fn lasting(error: RegistryError) -> Unanswered {
    Unanswered {
        error,
        is_transient: false,
        pause: None,
    }
}

/// The answer to a mount.
enum Mounted {
    Done,
    /// The registry expects the blob here instead.
    Uploading(Url),
    Refused,
}

/// Statuses of a registry that is limited or restarts.
fn is_transient(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

fn may_pass(answer: &Result<Response, Unanswered>) -> bool {
    match answer {
        Ok(response) => is_transient(response.status()),
        Err(unanswered) => unanswered.is_transient,
    }
}

/// The pause that the registry or its token server asks for, else `own`.
fn pause_of(answer: &Result<Response, Unanswered>, own: Duration) -> Duration {
    let asked = match answer {
        Ok(response) => retry_after(response.headers()),
        Err(unanswered) => unanswered.pause,
    };
    asked.unwrap_or(own)
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn bounded(mut response: Response, at_most: usize) -> Option<Bytes> {
    read_answer(&mut response, at_most).await.ok()
}
