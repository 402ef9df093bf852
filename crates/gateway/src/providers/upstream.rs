//! The providers behind the gateway: the address of a request, and the keys that go there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use knack_trust::{CertificateRefusal, Roots};
use knack_vocabulary::HEADER_VIA;
use knack_wire::Fault;

use super::base_url::BaseUrl;
use super::forwarded_headers::CREDENTIAL_HEADERS;
use super::hop::HopMark;
use super::operator_key::{self, KeyScope};
use super::provider::Api;
use super::websocket;

/// Time to connect. A provider that does not answer a SYN for this long is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections kept per provider: reconnecting costs a TLS handshake.
const POOL_IDLE_PER_HOST: usize = 64;

/// Addresses by API, and the one client they share.
#[derive(Debug, Clone)]
pub struct Upstreams {
    client: reqwest::Client,
    /// The client for websockets: by HTTP/1.1.
    websockets: reqwest::Client,
    /// Replaced as a whole when the runtime names other addresses.
    bases: Arc<ArcSwap<BTreeMap<Api, ProviderEndpoint>>>,
    /// APIs whose address was configured here: the runtime cannot change them.
    fixed: Arc<BTreeSet<Api>>,
    /// The requests for which callers may use the operator's keys.
    scope: KeyScope,
    /// APIs whose address was configured and cannot be read: nothing is sent for them.
    unreadable: Arc<BTreeSet<Api>>,
    /// APIs whose upstream is another gateway of Knack: a header says that this one has injected the skills.
    knack: Arc<BTreeSet<Api>>,
    /// By which it knows its own requests.
    pub(crate) mark: HopMark,
}

/// One provider's base address, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEndpoint {
    /// Where requests go.
    pub url: BaseUrl,
    /// A key of the operator's own, sent instead of the client's.
    pub key: Option<HeaderValue>,
}

impl ProviderEndpoint {
    /// The public address of an API.
    fn public(api: Api) -> Self {
        Self {
            url: BaseUrl::parse(api.default_url()).expect("the table of public addresses has URLs"),
            key: None,
        }
    }
}

impl Upstreams {
    /// A client for these addresses, which trusts these authorities; an API without an address gets its public one.
    pub fn new(configured: &BTreeMap<Api, ProviderEndpoint>, roots: &Roots) -> Result<Self, reqwest::Error> {
        let builder = || {
            roots
                .http()
                .connect_timeout(CONNECT_TIMEOUT)
                // No read timeout here: a model may think for minutes before its answer begins. Silence inside an answer is
                // handled by the loop, which has the state for it.
                .pool_max_idle_per_host(POOL_IDLE_PER_HOST)
                .tcp_nodelay(true)
                // A redirect would carry the client's key to an address that is not configured.
                .redirect(reqwest::redirect::Policy::none())
        };
        let (client, websockets) = (builder().build()?, builder().http1_only().build()?);
        let bases = Api::ALL
            .into_iter()
            .map(|api| {
                (
                    api,
                    configured
                        .get(&api)
                        .cloned()
                        .unwrap_or_else(|| ProviderEndpoint::public(api)),
                )
            })
            .collect();
        Ok(Self {
            client,
            websockets,
            bases: Arc::new(ArcSwap::from_pointee(bases)),
            fixed: Arc::new(configured.keys().copied().collect()),
            scope: KeyScope::default(),
            unreadable: Arc::default(),
            knack: Arc::default(),
            mark: HopMark::random(),
        })
    }

    /// These upstreams with another scope of the operator's keys.
    #[must_use]
    pub fn with_key_scope(self, scope: KeyScope) -> Self {
        Self { scope, ..self }
    }

    /// These upstreams, which then send nothing for some APIs, because their configured URL is not valid.
    #[must_use]
    pub(crate) fn without(self, unreadable: BTreeSet<Api>) -> Self {
        Self {
            unreadable: Arc::new(unreadable),
            ..self
        }
    }

    /// These upstreams, of which some APIs are served by another gateway of Knack.
    #[must_use]
    pub fn through_knack(self, apis: impl IntoIterator<Item = Api>) -> Self {
        Self {
            knack: Arc::new(apis.into_iter().collect()),
            ..self
        }
    }

    /// Whether an API is called with the operator's key, of which callers may only use what its scope says.
    fn is_restricted(&self, api: Api) -> bool {
        self.scope == KeyScope::Models && self.bases.load()[&api].key.is_some()
    }

    /// Whether a request may go to this API. Errors (403, 502): the text names what is refused.
    pub(crate) fn admit(&self, api: Api, method: &Method, path: &str) -> Result<(), Fault> {
        let refused = |status, message| Fault {
            retry: false,
            ..Fault::new(status, message)
        };
        if self.unreadable.contains(&api) {
            let variable = api.as_str().to_uppercase();
            return Err(refused(
                502,
                format!(
                    "KNACK_UPSTREAM_{variable} of this gateway cannot be used as a base URL, so nothing is sent; its log says why."
                ),
            ));
        }
        if self.is_restricted(api) && !operator_key::is_model_request(api, method, path) {
            return Err(refused(
                403,
                format!(
                    "{method} {path} is not allowed here: this gateway calls the provider with its operator's key, and callers may use that key only to call models, count tokens and list models, by the paths of OpenAI, Anthropic and the Gemini API, not by those of Azure deployments and Vertex AI."
                ),
            ));
        }
        Ok(())
    }

    /// Uses the addresses that a runtime names, for APIs that have none configured. A key is never sent to such an
    /// address: a user who may set it need not be allowed to read the key. Returns what is not used, and why.
    pub(crate) fn follow(&self, named: &BTreeMap<String, String>) -> Vec<String> {
        let mut refused = Vec::new();
        let mut followed = BTreeMap::new();
        for api in Api::ALL.into_iter().filter(|api| !self.fixed.contains(api)) {
            let base = match named.get(api.as_str()) {
                Some(url) => match BaseUrl::parse(url) {
                    Ok(url) => ProviderEndpoint { url, key: None },
                    Err(error) => {
                        refused.push(format!("{}: {error}", api.as_str()));
                        continue;
                    }
                },
                None => ProviderEndpoint::public(api),
            };
            followed.insert(api, base);
        }
        self.bases.rcu(|bases| {
            let mut bases = (**bases).clone();
            bases.extend(followed.clone());
            bases
        });
        refused
    }

    /// Replaces changed keys of APIs that have one. An API without a key gets none: whether it may have one is decided
    /// at start, together with who may reach this gateway. Returns the APIs whose key changed.
    pub(crate) fn rekey(&self, keys: &BTreeMap<Api, HeaderValue>) -> Vec<Api> {
        let changed: Vec<Api> = self
            .bases
            .load()
            .iter()
            .filter(|(api, base)| base.key.is_some() && keys.get(api).is_some_and(|key| base.key.as_ref() != Some(key)))
            .map(|(api, _)| *api)
            .collect();
        if !changed.is_empty() {
            self.bases.rcu(|bases| {
                let mut bases = (**bases).clone();
                for api in &changed {
                    if let Some(base) = bases.get_mut(api) {
                        base.key = keys.get(api).cloned();
                    }
                }
                bases
            });
        }
        changed
    }

    /// Host and port of an API's address, for telemetry.
    pub fn server(&self, api: Api) -> Option<(String, u16)> {
        let bases = self.bases.load();
        let server = &bases.get(&api)?.url.server;
        Some((server.host_str()?.to_owned(), server.port_or_known_default()?))
    }

    /// Starts a request: the client's path and query below the configured base, with the headers given.
    pub fn request(&self, api: Api, method: Method, path: &str, headers: HeaderMap) -> reqwest::RequestBuilder {
        let (url, headers) = self.addressed(api, path, headers);
        self.client.request(method, url).headers(headers)
    }

    /// Starts a websocket: the client's path and query below the configured base, with the headers given.
    pub(crate) fn websocket(&self, api: Api, path_and_query: &str, headers: HeaderMap) -> reqwest::RequestBuilder {
        let (url, mut headers) = self.addressed(api, path_and_query, headers);
        websocket::insert_upgrade(&mut headers);
        self.websockets.get(url).headers(headers)
    }

    /// The address of a request, and its headers as they go there.
    fn addressed(&self, api: Api, path_and_query: &str, mut headers: HeaderMap) -> (reqwest::Url, HeaderMap) {
        let restricted = self.is_restricted(api);
        let bases = self.bases.load();
        let base = &bases[&api];
        if let Some(key) = &base.key {
            replace_key(api, &mut headers, key);
        }
        let url = if restricted {
            operator_key::strip(&mut headers);
            base.url.join(api, &operator_key::strip_query(path_and_query))
        } else {
            base.url.join(api, path_and_query)
        };
        self.mark.put(&base.url.server, &mut headers);
        if self.knack.contains(&api) {
            headers.insert(HeaderName::from_static(HEADER_VIA), HeaderValue::from_static("knack"));
        }
        (url, headers)
    }

    /// A request with a JSON body, to be sent.
    pub fn post(&self, api: Api, path_and_query: &str, headers: HeaderMap, body: Bytes) -> reqwest::RequestBuilder {
        self.request(api, Method::POST, path_and_query, headers).body(body)
    }
}

/// Why a provider gave no answer, for the log: the whole chain of causes, since the outermost one says only that a request was
/// sent. The address is left out: it may hold a credential. It is not for callers: the innermost causes name what is behind the
/// gateway.
pub(crate) fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

/// The message to a caller about a provider whose certificate is not accepted; `None`: the error is about something else. The
/// address is left out: it may be the operator's own.
pub(crate) fn certificate_fault(error: &reqwest::Error) -> Option<Fault> {
    let refusal = CertificateRefusal::of(error)?;
    Some(Fault {
        retry: false,
        ..Fault::new(
            502,
            format!("The gateway does not accept the provider's certificate, which {refusal}."),
        )
    })
}

fn replace_key(api: Api, headers: &mut HeaderMap, key: &HeaderValue) {
    for name in CREDENTIAL_HEADERS {
        headers.remove(name);
    }
    let name = match api {
        Api::OpenAi => http::header::AUTHORIZATION,
        Api::Anthropic => HeaderName::from_static("x-api-key"),
        Api::Gemini => HeaderName::from_static("x-goog-api-key"),
    };
    let value = match api {
        Api::OpenAi => HeaderValue::from_bytes(&[b"Bearer ", key.as_bytes()].concat()),
        Api::Anthropic | Api::Gemini => Ok(key.clone()),
    };
    // It is a header's value in both forms. If it were not, the request would go without a key, not with one in another form.
    headers.extend(value.ok().map(|value| (name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BaseUrl {
        BaseUrl::parse(text).unwrap()
    }

    /// A resolver that knows no name: the test asks no server of the machine.
    struct NoNames;

    impl reqwest::dns::Resolve for NoNames {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(std::future::ready(Err("no such name".into())))
        }
    }

    /// A closed port, a name that is none, and TLS to a server without: each has its own cause, and none has the address with its key.
    #[tokio::test]
    async fn the_log_says_why_a_provider_cannot_be_reached() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = listener.local_addr().unwrap();
        // Nothing listens there, and nobody else is given the port meanwhile.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = closed.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                use tokio::io::AsyncWriteExt as _;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let client = reqwest::Client::builder()
            .no_proxy()
            .dns_resolver(NoNames)
            .build()
            .unwrap();
        for (url, expected) in [
            (format!("http://{port}/?key=sk-secret"), "Connection refused"),
            ("http://provider.invalid/?key=sk-secret".to_owned(), "dns"),
            (
                format!("https://user:sk-secret@{plain}/?key=sk-secret"),
                "corrupt message",
            ),
        ] {
            let text = causes(client.get(&url).send().await.unwrap_err());
            assert!(text.contains(expected), "{url}: {text}");
            assert!(!text.contains("sk-secret"), "{text}");
        }
    }

    #[test]
    fn a_key_is_replaced_where_there_is_one_and_only_there() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = |key: Option<&'static str>| ProviderEndpoint {
            url: url("http://a"),
            key: key.map(HeaderValue::from_static),
        };
        let upstreams = Upstreams::new(
            &[(Api::OpenAi, base(Some("old"))), (Api::Gemini, base(None))].into(),
            &Roots::default(),
        )
        .unwrap();
        let keys = |key: &'static str| -> BTreeMap<Api, HeaderValue> {
            Api::ALL.map(|api| (api, HeaderValue::from_static(key))).into()
        };
        assert_eq!(upstreams.rekey(&keys("new")), [Api::OpenAi]);
        assert_eq!(upstreams.rekey(&keys("new")), []);
        assert_eq!(
            upstreams.rekey(&BTreeMap::new()),
            [],
            "a file that is gone leaves the last key"
        );
        let bases = upstreams.bases.load();
        let found: Vec<_> = bases.values().map(|base| base.key.clone()).collect();
        assert_eq!(found, [Some(HeaderValue::from_static("new")), None, None]);
    }

    #[test]
    fn a_runtime_names_addresses_only_where_none_is_configured_and_never_gets_a_key() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let own = ProviderEndpoint {
            url: url("http://own"),
            key: Some(HeaderValue::from_static("key")),
        };
        let upstreams = Upstreams::new(&BTreeMap::from([(Api::OpenAi, own.clone())]), &Roots::default()).unwrap();
        let named = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(api, url)| ((*api).to_owned(), (*url).to_owned()))
                .collect()
        };
        let refused = upstreams.follow(&named(&[
            ("openai", "http://evil"),
            ("anthropic", "http://mine/x"),
            ("gemini", "file:///etc"),
        ]));
        assert_eq!(refused.len(), 1);
        let bases = upstreams.bases.load_full();
        assert_eq!(bases[&Api::OpenAi], own);
        assert_eq!(bases[&Api::Anthropic].url, url("http://mine/x"));
        assert_eq!(bases[&Api::Anthropic].key, None);
        assert_eq!(bases[&Api::Gemini], ProviderEndpoint::public(Api::Gemini));
        upstreams.follow(&named(&[]));
        assert_eq!(
            upstreams.bases.load()[&Api::Anthropic],
            ProviderEndpoint::public(Api::Anthropic)
        );
    }

    #[test]
    fn telemetry_gets_host_and_port_and_no_more() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (text, expected) in [
            ("http://127.0.0.1:4000/v1", Some(("127.0.0.1", 4000))),
            ("https://gw.example/x", Some(("gw.example", 443))),
            ("http://[::1]", Some(("[::1]", 80))),
        ] {
            let base = ProviderEndpoint {
                url: url(text),
                key: None,
            };
            let upstreams = Upstreams::new(&BTreeMap::from([(Api::OpenAi, base)]), &Roots::default()).unwrap();
            let expected = expected.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(upstreams.server(Api::OpenAi), expected, "{text}");
        }
    }

    #[test]
    fn an_operators_key_replaces_the_clients() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer client"));
        headers.insert("api-key", HeaderValue::from_static("client"));
        replace_key(Api::OpenAi, &mut headers, &HeaderValue::from_static("own"));
        assert_eq!(headers["authorization"], "Bearer own");
        assert!(!headers.contains_key("api-key"));
        replace_key(Api::Anthropic, &mut headers, &HeaderValue::from_static("own"));
        assert!(!headers.contains_key("authorization"));
        assert_eq!(headers["x-api-key"], "own");
    }
}
