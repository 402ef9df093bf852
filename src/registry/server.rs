//! The registry's process: watches, the sweep, and the TLS listener.

use std::collections::BTreeSet;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, header};
use knack_gateway::user_files::FILES_PATH;
use knack_hub_api::{Problem, ProblemCode, is_label};
use knack_memory::MemoryBudget;
use knack_registry::{
    Asked, CLAIM_PATH, Call, Catalogs, Denial, Dialect, History as _, OmniRoute, Owner, REPORT_MAX_BYTES, REPORT_PATH,
    Reader, Registry as Apis, Stamp, deny, route,
};
use knack_serving::bodies::HeldBody;
use knack_serving::probes::Probes;
use knack_serving::{Bounds, Peer, Serving, Stop, Stopping, serve};
use knack_vocabulary::{HEADER_CLIENT, TOKEN_AUDIENCE};
use kube::Client;
use kube::core::DeserializeGuard;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::asked::{Asked as AskedStore, Shared};
use super::catalogs::ClusterCatalogs;
use super::cluster::Cluster;
use super::files::{ClusterFiles, FilesOptions};
use super::history::{ClusterHistory, HistoryOptions};
use super::metrics::Metrics;
use super::sweep::{self, sweep};
use crate::hub::auth::{Authenticator, Caller, Pace, Rights, Sources};
use crate::hub::body::Bodies;
use crate::hub::tls::Certificate;
use crate::hub::watch;
use crate::sources::archive::unpack_upload;

/// Bounds of the listener: gateways relay their callers' requests over a few connections each.
const BOUNDS: Bounds = Bounds {
    connections: 2048,
    connections_per_peer: 512,
    head: Duration::from_secs(32),
    // Longer than a gateway keeps an unused connection.
    idle: Duration::from_mins(2),
    stalled: Duration::from_mins(1),
    http2: false,
};
/// Changes by the ServiceAccounts of one namespace: 60 a minute, 30 of them in a row, 4 at once. Each is several writes to etcd.
const CHANGES: Pace = Pace {
    at_once: 4,
    burst: 30,
    refill: Duration::from_secs(1),
};
/// Of the process's memory budget, the part for content that is downloaded.
const DOWNLOADS_DIVISOR: usize = 4;
/// How long answers may take that are under way when the drain is over.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);
/// The begin of an address that names a namespace.
const NAMESPACES: &str = "/namespaces/";

/// Settings of a registry process.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// Namespaces whose Skills are served; empty: all.
    pub watch_namespaces: BTreeSet<String>,
    /// The history of executions, if one is kept.
    pub history: Option<HistoryOptions>,
    /// The files of gateways' clients, if they are kept.
    pub files: Option<FilesOptions>,
    /// The catalogs to install from, if one is named.
    pub catalogs: Option<Catalogs>,
}

impl RegistrySettings {
    fn scopes(&self) -> Vec<Option<String>> {
        if self.watch_namespaces.is_empty() {
            return vec![None];
        }
        self.watch_namespaces.iter().cloned().map(Some).collect()
    }

    fn serves(&self, namespace: &str) -> bool {
        self.watch_namespaces.is_empty() || self.watch_namespaces.contains(namespace)
    }
}

/// A registry that is ready to run.
#[derive(Debug)]
pub struct Registry {
    state: Arc<Served>,
    watches: JoinSet<()>,
}

/// What every request shares.
#[derive(Debug)]
struct Served {
    reader: Arc<Reader>,
    shared: Arc<Shared>,
    callers: Authenticator,
    bodies: Bodies,
    changes: Arc<Sources>,
    memory: MemoryBudget,
    metrics: Metrics,
    history: Option<ClusterHistory>,
    files: Option<ClusterFiles>,
    catalogs: Option<ClusterCatalogs>,
    settings: RegistrySettings,
    lists: usize,
    draining: AtomicBool,
}

impl Probes for Served {
    fn ready(&self) -> Result<String, String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".to_owned());
        }
        let complete = self.shared.cluster.look(super::index::Index::complete);
        if complete < self.lists {
            return Err("waiting for the first list of Skill".to_owned());
        }
        Ok(String::new())
    }

    fn metrics(&self) -> String {
        if let Some(history) = &self.history {
            self.metrics.dropped(history.kept.dropped());
        }
        if let Some(files) = &self.files {
            self.metrics.files(files.held());
        }
        self.metrics.memory(self.memory.held_bytes(), self.memory.total_bytes());
        self.metrics.text()
    }
}

impl Registry {
    /// Starts the watches. Must be called inside a tokio runtime. Errors: the history or the files cannot be opened.
    pub fn start(client: &Client, settings: RegistrySettings) -> anyhow::Result<Self> {
        let history = settings.history.as_ref().map(ClusterHistory::open).transpose()?;
        let memory = MemoryBudget::of_process();
        let scopes = settings.scopes();
        let shared = Arc::new(Shared {
            cluster: Cluster::new(client.clone()),
            rights: Rights::new(client.clone()),
            downloads: memory.part(memory.total_bytes() / DOWNLOADS_DIVISOR),
        });
        let catalogs = settings.catalogs.clone();
        let catalogs = catalogs.map(|catalogs| ClusterCatalogs::new(catalogs, shared.downloads.clone()));
        let files = settings.files.as_ref();
        let files = files.map(|options| ClusterFiles::open(options, shared.downloads.clone()));
        let state = Arc::new(Served {
            reader: Arc::new(Reader::new(unpack_upload)),
            callers: Authenticator::new(client.clone(), TOKEN_AUDIENCE),
            bodies: Bodies::of(&memory),
            changes: Arc::new(Sources::new(CHANGES)),
            memory,
            metrics: Metrics::default(),
            history,
            files: files.transpose()?,
            catalogs,
            lists: scopes.len(),
            draining: AtomicBool::new(false),
            settings,
            shared,
        });
        let mut watches = JoinSet::new();
        for scope in scopes.clone() {
            watches.spawn(follow(client.clone(), Arc::clone(&state), scope));
        }
        watches.spawn(sweeping(Arc::clone(&state), scopes));
        Ok(Self { state, watches })
    }

    /// State that the probes' port reports.
    pub fn probes(&self) -> Arc<dyn Probes> {
        Arc::clone(&self.state) as Arc<dyn Probes>
    }
}

async fn follow(client: Client, state: Arc<Served>, scope: Option<String>) {
    let api = watch::api::<DeserializeGuard<knack_api::Skill>>(&client, scope.as_deref());
    watch::follow(api, "Skill", |event| {
        if let Some(event) = watch::decoded(event, "Skill") {
            state.shared.cluster.take(scope.as_deref(), event);
        }
        future::ready(())
    })
    .await;
}

/// Removes what ended changes have left, first of all what this replica's last life has.
async fn sweeping(state: Arc<Served>, scopes: Vec<Option<String>>) {
    while state.ready().is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    loop {
        match Box::pin(sweep(&state.shared.cluster, &scopes, Stamp::of_now().now)).await {
            Ok(removed) => {
                state.metrics.swept.inc_by(removed);
                if removed > 0 {
                    tracing::info!(removed, "ConfigMaps of ended changes were removed");
                }
            }
            Err(error) => {
                state.metrics.sweep_failures.inc();
                tracing::warn!(%error, "what ended changes have left could not be removed; trying again later");
            }
        }
        tokio::time::sleep(sweep::EVERY).await;
    }
}

/// Serves until `stop`: then not ready and served on for a pause, then what is under way has time to end.
pub async fn run(
    registry: Registry,
    certificate: Arc<Certificate>,
    listener: TcpListener,
    stopping: Stopping,
    stop: CancellationToken,
) {
    let Registry { state, watches } = registry;
    let (tasks, ending, stops) = (TaskTracker::new(), CancellationToken::new(), Stop::default());
    tasks.spawn(Arc::clone(&certificate).follow(ending.clone()));
    let serving = Serving {
        bounds: BOUNDS,
        tls: Some(TlsAcceptor::from(Arc::new(certificate.server_config()))),
        metrics: state.metrics.listener.clone(),
        beacon: None,
    };
    let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
    let mut connections = tasks.spawn(serve(listener, router, serving, stops.clone()));
    stop.cancelled().await;
    state.draining.store(true, Ordering::Release);
    stops.leave.cancel();
    tokio::time::sleep(stopping.pause).await;
    stops.close.cancel();
    if tokio::time::timeout(stopping.drain, &mut connections).await.is_err() {
        tracing::warn!("answers still under way after {} s were cut", stopping.drain.as_secs());
        stops.cut.cancel();
        let _ = tokio::time::timeout(HAND_OVER_TIMEOUT, connections).await;
    }
    if let Some(history) = &state.history {
        history.kept.flush().await;
    }
    ending.cancel();
    drop(watches);
}

/// Answers a request, counts it and logs it.
async fn answer(State(state): State<Arc<Served>>, request: Request) -> Response<Body> {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if [REPORT_PATH, CLAIM_PATH, FILES_PATH].contains(&path.as_str()) {
        return of_gateway(&state, request, begun).await;
    }
    let (named, bare) = match namespace_of(&path) {
        Ok((named, bare)) => (named, bare.to_owned()),
        Err(text) => return no_api(&text),
    };
    let Some(call) = route(&method, &bare, request.uri().query(), request.headers()) else {
        return no_api(
            "there is no such skill here, or no such path of a Skills API; ids of uploaded skills begin with skill_knack_",
        );
    };
    let (who, response) = respond(&state, &call, named, request).await;
    let (status, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
    state.metrics.answered(api_of(&call), status, seconds);
    let id = ["request-id", "x-request-id"]
        .iter()
        .find_map(|name| response.headers().get(*name));
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    tracing::info!(request_id = id, %method, path, status, seconds, caller = who, "answered");
    response.map(Body::from)
}

/// Answers a gateway that reports executions or keeps files. Not logged: each gateway does so all the time.
async fn of_gateway(state: &Served, request: Request, begun: Instant) -> Response<Body> {
    let (api, answer) = if request.uri().path() == FILES_PATH {
        ("files", files(state, request).await)
    } else {
        ("history", report(state, request).await)
    };
    let (status, body) = answer.unwrap_or_else(|problem| (status_of(&problem), problem.message.into()));
    let seconds = begun.elapsed().as_secs_f64();
    state.metrics.answered(api, status.as_u16(), seconds);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

async fn report(state: &Served, request: Request) -> Result<(StatusCode, Bytes), Problem> {
    let Some(history) = &state.history else {
        let text = "this registry keeps no history of executions";
        return Ok((StatusCode::NOT_FOUND, text.into()));
    };
    let is_claim = request.uri().path() == CLAIM_PATH;
    let (caller, held) = match posted(state, request).await? {
        Ok(posted) => posted,
        Err(refused) => return Ok(refused),
    };
    if held.bytes.len() > REPORT_MAX_BYTES {
        return Ok((StatusCode::PAYLOAD_TOO_LARGE, "the report is too large".into()));
    }
    if is_claim {
        return Ok(history.claim(&caller, &held.bytes).await);
    }
    let (status, text) = history.take(&caller, &held.bytes, &state.metrics).await;
    Ok((status, text.into()))
}

async fn files(state: &Served, request: Request) -> Result<(StatusCode, Bytes), Problem> {
    let Some(files) = &state.files else {
        return Ok((StatusCode::NOT_FOUND, "this registry keeps no files".into()));
    };
    match posted(state, request).await? {
        Ok((caller, held)) => Ok(files.answer(&caller, &held.bytes, &state.metrics).await),
        Err(refused) => Ok(refused),
    }
}

/// What a gateway posts, and the account that it proved to be; or why it is not served.
async fn posted(state: &Served, request: Request) -> Result<Result<(Caller, HeldBody), (StatusCode, Bytes)>, Problem> {
    if request.method() != Method::POST {
        return Ok(Err((StatusCode::METHOD_NOT_ALLOWED, "it is posted".into())));
    }
    let (parts, body) = request.into_parts();
    let caller = authenticated(state, &parts).await?;
    if !state.settings.serves(&caller.namespace) {
        let text = format!(
            "namespace {} is not one of those that this installation serves",
            caller.namespace
        );
        return Ok(Err((StatusCode::FORBIDDEN, text.into())));
    }
    let held = state.bodies.read(&caller.key(), &parts.headers, body).await?;
    Ok(Ok((caller, held)))
}

fn status_of(problem: &Problem) -> StatusCode {
    match problem.code {
        ProblemCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ProblemCode::Throttled | ProblemCode::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        ProblemCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

async fn authenticated(state: &Served, parts: &Parts) -> Result<Caller, Problem> {
    let peer = parts
        .extensions
        .get::<Peer>()
        .map(|peer| peer.0.to_string())
        .unwrap_or_default();
    match token(&parts.headers) {
        Some(token) => state.callers.authenticate(&token, &peer).await,
        None => Err(Problem::new(
            ProblemCode::Unauthenticated,
            "send a ServiceAccount token for the audience knack as API key: Authorization: Bearer <token>, or x-api-key",
        )),
    }
}

/// Whose executions a request is about: the account's, of which a gateway asks for those of one of its clients.
fn runs_of(caller: &Caller, headers: &HeaderMap) -> Owner {
    let client = headers.get(HEADER_CLIENT).and_then(|client| client.to_str().ok());
    Owner::account(&caller.namespace, &caller.service_account, client)
}

/// The caller's name for the log, and the answer.
async fn respond(
    state: &Arc<Served>,
    call: &Call,
    named: Option<String>,
    request: Request,
) -> (String, Response<Bytes>) {
    let (parts, body) = request.into_parts();
    let refuse = |problem: &Problem| denied(call, problem);
    let caller = match authenticated(state, &parts).await {
        Ok(caller) => caller,
        Err(problem) => return (String::new(), refuse(&problem)),
    };
    let who = caller.name();
    if let Err(text) = state.ready() {
        let problem = Problem::new(ProblemCode::Unavailable, format!("this replica is not ready: {text}"));
        if text != "draining" {
            return (who, refuse(&problem.retry_after(1)));
        }
    }
    let namespace = named.unwrap_or_else(|| caller.namespace.clone());
    if !state.settings.serves(&namespace) {
        let text = format!("namespace {namespace} is not one of those that this installation serves");
        return (who, refuse(&Problem::new(ProblemCode::Invalid, text)));
    }
    let is_change = !matches!(parts.method, Method::GET | Method::HEAD);
    // By the namespace of whoever asks: nobody uses up the turns of others.
    let turn = is_change.then(|| state.changes.take(&caller.namespace, tokio::time::Instant::now()));
    if matches!(turn, Some(None)) {
        let text = format!(
            "ServiceAccounts of namespace {} make too many changes of skills: {} at once, and one a second, are taken",
            caller.namespace, CHANGES.at_once
        );
        return (
            who,
            refuse(&Problem::new(ProblemCode::TooManyRequests, text).retry_after(2)),
        );
    }
    let held = match state.bodies.read(&caller.key(), &parts.headers, body).await {
        Ok(held) => held,
        // Bytes in flight: the caller is asked to come again.
        Err(problem) if problem.code == ProblemCode::Unavailable => {
            let problem = Problem::new(ProblemCode::TooManyRequests, problem.message).retry_after(1);
            return (who, refuse(&problem));
        }
        Err(problem) => return (who, refuse(&problem)),
    };
    let is_of_runs = matches!(call, Call::OmniRoute(OmniRoute::Executions | OmniRoute::Execution(_)));
    if is_of_runs && namespace != caller.namespace {
        let text = format!(
            "executions are shown to the ServiceAccount whose they are; {who} is not one of namespace {namespace}"
        );
        return (who, refuse(&Problem::new(ProblemCode::Invalid, text)));
    }
    let owner = if is_of_runs {
        runs_of(&caller, &parts.headers)
    } else {
        Owner::namespace(&namespace)
    };
    let asked = Asked {
        call: call.clone(),
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers,
        body: held.bytes.clone(),
    };
    let store = Arc::new(AskedStore::new(Arc::clone(&state.shared), caller.clone()));
    let mut apis = Apis::new(Arc::clone(&store) as Arc<_>, &state.reader);
    let mut fetch = None;
    if let Some(catalogs) = &state.catalogs {
        match catalogs.admit(call, &store, (&owner, &caller)).await {
            Ok(admitted) => fetch = admitted,
            Err(problem) => return (who, refuse(&problem)),
        }
        apis = apis.with_catalogs(catalogs.catalogs.clone());
    }
    let apis = match &state.history {
        Some(history) => apis.with_history(Arc::clone(&history.kept) as Arc<_>),
        None => apis,
    };
    let response = apis.answer(Some(&owner), asked, &[]).await;
    drop((held, turn, fetch));
    (who, response)
}

/// The namespace that an address names, and the rest of the address.
fn namespace_of(path: &str) -> Result<(Option<String>, &str), String> {
    let Some(rest) = path.strip_prefix(NAMESPACES) else {
        return Ok((None, path));
    };
    let (namespace, _) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_label(namespace) {
        return Err(format!("{path}: write {NAMESPACES}<name of a namespace>/v1/skills"));
    }
    let bare = rest.get(namespace.len()..).unwrap_or_default();
    Ok((Some(namespace.to_owned()), bare))
}

/// The token of a request, where SDKs put API keys.
fn token(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
    let bearer = bearer
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token);
    bearer
        .or_else(|| text("x-api-key"))
        .map(|token| token.trim().to_owned())
}

fn denied(call: &Call, problem: &Problem) -> Response<Bytes> {
    let denial = match problem.code {
        ProblemCode::Unauthenticated => Denial::NoCredential,
        ProblemCode::Throttled | ProblemCode::TooManyRequests => Denial::Throttled,
        ProblemCode::Forbidden => Denial::Forbidden,
        ProblemCode::TooLarge => Denial::TooLarge,
        ProblemCode::Unavailable => Denial::Unavailable,
        _ => Denial::Invalid,
    };
    deny(call, denial, problem.message.clone(), problem.retry_after_seconds)
}

fn no_api(text: &str) -> Response<Body> {
    let body = serde_json::json!({"error": {"message": text, "type": "invalid_request_error"}}).to_string();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// The word of an API in metrics.
const fn api_of(call: &Call) -> &'static str {
    match call {
        Call::Skills(Dialect::Anthropic { .. }, _) => "anthropic",
        Call::Skills(Dialect::OpenAi, _) => "openai",
        Call::AgentFlow(_) => "agent_flow",
        Call::OmniRoute(_) => "omniroute",
        Call::LiteLlm(_) => "litellm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_name_a_namespace() {
        for (path, expected) in [
            ("/v1/skills", Ok((None, "/v1/skills"))),
            ("/namespaces/team/v1/skills", Ok((Some("team"), "/v1/skills"))),
            (
                "/namespaces/skills/api/v1/skills/a",
                Ok((Some("skills"), "/api/v1/skills/a")),
            ),
            ("/namespaces/team", Ok((Some("team"), ""))),
            ("/namespaces/", Err(())),
            ("/namespaces/../v1/skills", Err(())),
            ("/namespaces/A_b/v1/skills", Err(())),
        ] {
            let found = namespace_of(path);
            let found = found
                .as_ref()
                .map(|(named, bare)| (named.as_deref(), *bare))
                .map_err(|_| ());
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_token_is_where_sdks_put_api_keys() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            };
            pairs.iter().map(pair).collect()
        };
        for (pairs, expected) in [
            (vec![("authorization", "Bearer a.b.c")], Some("a.b.c")),
            (vec![("x-api-key", "a.b.c")], Some("a.b.c")),
            (vec![("authorization", "Bearer a"), ("x-api-key", "b")], Some("a")),
            (vec![("authorization", "Basic a"), ("x-api-key", "b")], Some("b")),
            (vec![], None),
        ] {
            assert_eq!(token(&headers(&pairs)).as_deref(), expected, "{pairs:?}");
        }
    }
}
