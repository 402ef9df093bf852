//! `HubClient`: requests to a hub, and their answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use knack_telemetry::{TRACEPARENT, TraceContext};
use knack_trust::{AnswerError, read_answer};
use knack_vocabulary::HEADER_FOR;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::{self, HubClock};
use super::error::{HubError, cause};
use super::lines::LineReader;
use super::resolver::HubResolver;
use super::route::Route;
use super::sources::{Authorities, CachedFile, Token};
use crate::{HEADER_PROTOCOL, HubRefusal, PROTOCOL, RefusalCode};

/// Time to connect, TLS included: the hub is in the same cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole answer that is not a stream: a file of at most 8 MiB.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until the head of a stream: the hub answers at once or within its own short wait.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until the head of the answer to another one's request: the registry ends a change by itself after 2 minutes, and a
/// change without an answer is repeated.
const RELAY_TIMEOUT: Duration = Duration::from_secs(130);
/// Longest body of a refusal.
const PROBLEM_MAX_BYTES: usize = 64 << 10;

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct HubClientSettings {
    /// `https://host:port`, nothing behind it.
    pub url: String,
    /// Whom to trust.
    pub authorities: Authorities,
    /// The caller.
    pub token: Token,
    /// Resolve every name to this address: a forwarded port.
    pub address: Option<IpAddr>,
}

/// A client of one hub. Clones share connections.
#[derive(Debug, Clone)]
pub struct HubClient {
    inner: Arc<Inner>,
    /// The namespace that its requests are for; absent: the caller's own.
    client_namespace: Option<Arc<str>>,
    /// Leads to the replicas; absent: their own addresses are reached.
    route: Option<Arc<dyn Route>>,
}

#[derive(Debug)]
struct Inner {
    url: String,
    authorities: TextSource,
    token: TextSource,
    address: Option<IpAddr>,
    /// The client for the authorities that it was made with.
    current: ArcSwapOption<(String, reqwest::Client)>,
    clock: HubClock,
}

enum TextSource {
    File(CachedFile),
    Fixed(String),
}

impl std::fmt::Debug for TextSource {
    /// The text may be a token.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(file) => write!(formatter, "{:?}", std::ptr::from_ref(file)),
            Self::Fixed(_) => formatter.write_str("Fixed"),
        }
    }
}

impl TextSource {
    async fn text(&self) -> Result<String, HubError> {
        match self {
            Self::File(file) => file.text().await.map_err(HubError::Configuration),
            Self::Fixed(text) => Ok(text.clone()),
        }
    }

    /// What it holds, and its file, for an error.
    fn shown(&self, what: &str) -> String {
        match self {
            Self::File(file) => format!("{what} in {}", file.path.display()),
            Self::Fixed(_) => what.to_owned(),
        }
    }
}

impl HubClient {
    /// Makes a client; nothing is read or connected yet.
    ///
    /// Errors: [`HubError::Configuration`] for a URL that is not `https://host[:port]`.
    pub fn new(settings: HubClientSettings) -> Result<Self, HubError> {
        let url = settings.url.trim_end_matches('/').to_owned();
        let parsed: http::Uri = url
            .parse()
            .map_err(|_| HubError::Configuration(format!("{url:?} is not a URL")))?;
        if parsed.scheme_str() != Some("https") || parsed.host().is_none() || parsed.path() != "/" {
            return Err(HubError::Configuration(format!(
                "{url:?} is not the address of a server; write https://host:port"
            )));
        }
        let authorities = match settings.authorities {
            Authorities::File(path) => TextSource::File(CachedFile::new(path)),
            Authorities::Pem(text) => TextSource::Fixed(text),
        };
        let token = match settings.token {
            Token::File(path) => TextSource::File(CachedFile::new(path)),
            Token::Fixed(text) => TextSource::Fixed(text),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                authorities,
                token,
                address: settings.address,
                current: ArcSwapOption::empty(),
                clock: HubClock::default(),
            }),
            client_namespace: None,
            route: None,
        })
    }

    /// This client, led to the replicas of the hub by `route`.
    #[must_use]
    pub fn routed(self, route: Arc<dyn Route>) -> Self {
        Self {
            route: Some(route),
            ..self
        }
    }

    /// This client, asking for a client of another namespace: it is shown, and may run, what that namespace sees.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            client_namespace: Some(Arc::from(namespace)),
            route: self.route.clone(),
        }
    }

    /// The namespace that its requests are for, if not the caller's own.
    pub fn client_namespace(&self) -> Option<&str> {
        self.client_namespace.as_deref()
    }

    /// The address that it was made with.
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Now, by the hub's clock as its last answer showed it, within about a second; before any answer by this machine's. Since the
    /// Unix epoch.
    pub fn now(&self) -> Duration {
        self.inner.clock.at(clock::own())
    }

    /// Requests to `replica` (its `https://host:port`), or to this hub.
    pub const fn at<'a>(&'a self, replica: Option<&'a str>) -> Target<'a> {
        Target { client: self, replica }
    }

    /// Requests to this hub.
    pub const fn hub(&self) -> Target<'_> {
        self.at(None)
    }

    /// Sends the request of another client with this caller's token and `headers`, to which the caller's own credential
    /// must not belong. The answer is passed back as it comes, refusals included.
    ///
    /// Errors: no connection, or no answer began within 130 s.
    pub async fn relay(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, HubError> {
        let request = self.hub().request(method, path_and_query).await?.headers(headers);
        match tokio::time::timeout(RELAY_TIMEOUT, self.send(request.body(body))).await {
            Ok(response) => response,
            Err(_) => Err(no_answer(RELAY_TIMEOUT)),
        }
    }

    /// The client for the authorities of now.
    async fn http(&self) -> Result<reqwest::Client, HubError> {
        let pem = self.inner.authorities.text().await?;
        if let Some(current) = &*self.inner.current.load()
            && current.0 == pem
        {
            return Ok(current.1.clone());
        }
        let shown = || self.inner.authorities.shown("the authorities");
        let roots = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
            .map_err(|error| HubError::Configuration(format!("{}: {error}", shown())))?;
        if roots.is_empty() {
            return Err(HubError::Configuration(format!("{} contain no certificate", shown())));
        }
        let client = reqwest::Client::builder()
            // Exactly these: a public authority has no say about a name inside a cluster.
            .tls_certs_only(roots)
            // One connection for each stream, so that a slow reader delays no other.
            .http1_only()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(HubResolver {
                fixed: self.inner.address,
            })
            .build()
            .map_err(|error| HubError::Configuration(cause(error)))?;
        self.inner.current.store(Some(Arc::new((pem, client.clone()))));
        Ok(client)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, HubError> {
        let asked = clock::own();
        let response = request.send().await.map_err(|error| {
            if error.is_connect() {
                HubError::Unreachable(cause(error))
            } else {
                HubError::broken(error)
            }
        })?;
        self.inner.clock.note(response.headers(), asked, clock::own());
        Ok(response)
    }

    async fn open_stream(&self, request: reqwest::RequestBuilder) -> Result<LineReader, HubError> {
        let head = async { check(self.send(request).await?).await };
        match tokio::time::timeout(HEAD_TIMEOUT, head).await {
            Ok(response) => Ok(LineReader::new(response?)),
            Err(_) => Err(no_answer(HEAD_TIMEOUT)),
        }
    }

    /// Sends what is answered without a body.
    async fn done(&self, request: reqwest::RequestBuilder) -> Result<(), HubError> {
        timed(async { check(self.send(request).await?).await.map(drop) }).await
    }

    async fn read_value<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, HubError> {
        let answer = async {
            let response = check(self.send(request).await?).await?;
            let bytes = response.bytes().await.map_err(HubError::broken)?;
            serde_json::from_slice(&bytes)
                .map_err(|error| HubError::Protocol(format!("a body that cannot be read: {error}")))
        };
        timed(answer).await
    }
}

/// Where a request goes: this hub, or one of its replicas.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    client: &'a HubClient,
    /// `https://host:port`; `None`: the address of the client.
    replica: Option<&'a str>,
}

impl Target<'_> {
    /// `GET` of a JSON value.
    pub async fn get<T: DeserializeOwned>(self, path_and_query: &str) -> Result<T, HubError> {
        let request = self.request(Method::GET, path_and_query).await?;
        self.client.read_value(request).await
    }

    /// `GET` of bytes, at most `max_bytes` of them.
    pub async fn get_bytes(self, path_and_query: &str, max_bytes: usize) -> Result<Bytes, HubError> {
        let request = self.request(Method::GET, path_and_query).await?;
        let answer = async {
            let response = check(self.client.send(request).await?).await?;
            read_bounded(response, max_bytes).await
        };
        timed(answer).await
    }

    /// `GET` of a stream.
    pub async fn watch(self, path_and_query: &str) -> Result<LineReader, HubError> {
        let request = self.request(Method::GET, path_and_query).await?;
        self.client.open_stream(request).await
    }

    /// `POST` of a JSON value for a JSON value.
    pub async fn post<T: DeserializeOwned>(self, path: &str, body: &(impl Serialize + Sync)) -> Result<T, HubError> {
        let request = self.request(Method::POST, path).await?.body(to_json(body)?);
        self.client.read_value(request).await
    }

    /// `POST` of a JSON value that is answered without a body.
    pub async fn post_report(self, path_and_query: &str, body: &(impl Serialize + Sync)) -> Result<(), HubError> {
        let request = self.request(Method::POST, path_and_query).await?;
        self.client.done(request.body(to_json(body)?)).await
    }

    /// `POST` of a JSON body for a stream.
    pub async fn post_stream(self, path: &str, body: Bytes) -> Result<LineReader, HubError> {
        self.post_traced(path, body, None).await
    }

    /// [`Target::post_stream`] as part of a trace.
    pub async fn post_traced(
        self,
        path: &str,
        body: Bytes,
        trace: Option<TraceContext>,
    ) -> Result<LineReader, HubError> {
        let mut request = self.request(Method::POST, path).await?.body(body);
        if let Some(trace) = trace {
            request = request.header(TRACEPARENT, trace.text());
        }
        self.client.open_stream(request).await
    }

    /// `PUT` of bytes.
    pub async fn put_bytes(self, path_and_query: &str, body: Bytes) -> Result<(), HubError> {
        let request = self.request(Method::PUT, path_and_query).await?;
        let octets = HeaderValue::from_static("application/octet-stream");
        let request = request.headers([(header::CONTENT_TYPE, octets)].into_iter().collect());
        self.client.done(request.body(body)).await
    }

    /// `DELETE`.
    pub async fn delete(self, path_and_query: &str) -> Result<(), HubError> {
        let request = self.request(Method::DELETE, path_and_query).await?;
        self.client.done(request).await
    }

    async fn request(self, method: Method, path_and_query: &str) -> Result<reqwest::RequestBuilder, HubError> {
        let client = self.client;
        let http = client.http().await?;
        let token = client.inner.token.text().await?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
            let shown = client.inner.token.shown("the token");
            HubError::Configuration(format!("{shown} contains characters that are not allowed in a header"))
        })?;
        bearer.set_sensitive(true);
        let base = match self.replica {
            // TLS authenticates the server; a plain address would not.
            Some(at) if !at.starts_with("https://") => {
                return Err(HubError::Protocol("an owner's address that is not https".to_owned()));
            }
            at => match &client.route {
                Some(route) => route.base(at).await?,
                None => at.unwrap_or(&client.inner.url).trim_end_matches('/').to_owned(),
            },
        };
        let request = http
            .request(method, address(&base, path_and_query)?)
            .header(header::AUTHORIZATION, bearer)
            .header(header::CONTENT_TYPE, "application/json")
            .header(HEADER_PROTOCOL, PROTOCOL);
        Ok(match &client.client_namespace {
            Some(namespace) => request.header(HEADER_FOR, &**namespace),
            None => request,
        })
    }
}

/// The address of a path at a base. Error: a URL would have another path, as by dot segments or a `\`: the request would be
/// another one than was judged, with this caller's token.
fn address(base: &str, path_and_query: &str) -> Result<reqwest::Url, HubError> {
    let refused = || HubError::Configuration("a request whose path would be changed on its way is not sent".to_owned());
    let (path, _) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let url = reqwest::Url::parse(&format!("{base}{path_and_query}")).map_err(|_| refused())?;
    // Characters that a URL only encodes stay the same.
    let is_same = url.path() == path || percent_decode_str(url.path()).eq(percent_decode_str(path));
    if path.starts_with('/') && is_same {
        Ok(url)
    } else {
        Err(refused())
    }
}

fn to_json(body: &impl Serialize) -> Result<Vec<u8>, HubError> {
    serde_json::to_vec(body).map_err(|error| HubError::Configuration(format!("the request cannot be written: {error}")))
}

async fn timed<T>(answer: impl Future<Output = Result<T, HubError>>) -> Result<T, HubError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(result) => result,
        Err(_) => Err(no_answer(ANSWER_TIMEOUT)),
    }
}

fn no_answer(after: Duration) -> HubError {
    HubError::Broken(format!("no answer within {} s", after.as_secs()))
}

/// A success unchanged; a refusal as the problem in its body.
async fn check(response: reqwest::Response) -> Result<reqwest::Response, HubError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let protocol = response
        .headers()
        .get(HEADER_PROTOCOL)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let bytes = read_bounded(response, PROBLEM_MAX_BYTES).await.unwrap_or_default();
    let mut refusal = serde_json::from_slice(&bytes).unwrap_or_else(|_| by_status(status));
    refusal.retry_after_seconds = refusal.retry_after_seconds.or(retry_after);
    refusal.protocol = protocol;
    Err(HubError::Refused(refusal))
}

/// A refusal by something that is not a hub (a proxy, a mesh).
fn by_status(status: StatusCode) -> HubRefusal {
    let code = match status.as_u16() {
        401 => RefusalCode::Unauthenticated,
        403 => RefusalCode::Forbidden,
        404 => RefusalCode::NotFound,
        413 => RefusalCode::TooLarge,
        429 => RefusalCode::TooManyRequests,
        502..=504 => RefusalCode::Unavailable,
        _ => RefusalCode::Unknown,
    };
    HubRefusal::new(code, format!("the hub answered {status}"))
}

async fn read_bounded(mut response: reqwest::Response, max_bytes: usize) -> Result<Bytes, HubError> {
    read_answer(&mut response, max_bytes)
        .await
        .map_err(|error| match error {
            AnswerError::TooLarge { limit } => HubError::Protocol(format!("a body of more than {limit} bytes")),
            AnswerError::Broken(error) => HubError::broken(error),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_a_url_would_change_is_not_sent() {
        let base = "https://hub.example:8443";
        for path in [
            "/v1/catalog?runtime=a/b&watch=true",
            "/api/skills/a%2F%2E%2E%2Fb",
            "/v1/content/sha256/.hidden/a..b.txt",
            "/api/v1/skills/\"a\"",
            "/v1//skills",
            "/v1/skills?path=../x\\y",
        ] {
            let sent = address(base, path).unwrap();
            assert!(sent.as_str().starts_with(base), "{path}: {sent}");
        }
        for path in [
            "/api/skills/./executions",
            "/api/skills/../../knack/v1/executions?a=b",
            "/api/skills/%2e/executions",
            "/api/skills/x/%2E%2e/executions",
            "/api/skills/.%2E",
            "/api/skills/.",
            "/api/skills\\executions",
            "/v1/skills#x",
            "/v1/skills/a\tb",
            "v1/skills",
            "@other.example/v1/skills",
        ] {
            assert!(matches!(address(base, path), Err(HubError::Configuration(_))), "{path}");
        }
    }
}
