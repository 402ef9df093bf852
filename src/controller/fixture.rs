//! An API server that holds the leader's Lease, what a test answers, and nothing else.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::{Method, StatusCode};
use knack_vocabulary::LEASE_CONTROLLER;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::ControllerError;
use super::process::run;
use super::settings::ControllerSettings;
use crate::fixture::{failed, list};
use crate::lease::Keeper;

/// The Lease, and how often it was written.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) lease: Option<Value>,
    writes: usize,
}

pub(super) type Shared = Arc<Mutex<Stored>>;

/// How often the Lease was written.
pub(super) fn writes(stored: &Shared) -> usize {
    stored.lock().unwrap_or_else(PoisonError::into_inner).writes
}

fn of_the_lease(stored: &Shared, method: &Method, body: &[u8]) -> Response {
    let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
    if *method != Method::GET {
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        stored.writes += 1;
        lease["metadata"]["resourceVersion"] = json!(stored.writes.to_string());
        stored.lease = Some(lease);
    }
    let lease = stored.lease.clone();
    lease.map_or_else(|| failed(404, "NotFound", "m"), |lease| Json(lease).into_response())
}

/// The answers of a test, by method, path and body. The path of a list of one object ends with `?name=` and its name.
type Answers = Arc<dyn Fn(&Method, &str, &[u8]) -> Option<Value> + Send + Sync>;

/// How often a test is asked for the next event of a watch.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// The events of a watch: the test is asked for each by the path with `?watch=` and its number. `null`: there is none yet. `None`:
/// there are no more.
fn events(answers: Answers, path: String) -> Response {
    let lines = futures::stream::unfold(0_usize, move |number| {
        let (answers, path) = (Arc::clone(&answers), path.clone());
        async move {
            loop {
                tokio::time::sleep(WATCH_PAUSE).await;
                match answers(&Method::GET, &format!("{path}?watch={number}"), &[]) {
                    Some(Value::Null) => {}
                    Some(event) => return Some((Ok::<_, Infallible>(format!("{event}\n")), number + 1)),
                    None => std::future::pending().await,
                }
            }
        }
    });
    Body::from_stream(lines).into_response()
}

/// The name of the only object that a list is asked for.
fn one_name(query: &str) -> Option<&str> {
    let (_, name) = query.split_once("fieldSelector=metadata.name%3D")?;
    Some(name.split('&').next().unwrap_or(name))
}

/// Watches and lists that the test does not answer are empty, and nothing else may be read or written.
async fn serve(State((stored, answers)): State<(Shared, Answers)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut path = parts.uri.path().to_owned();
    let is_list = parts.method == Method::GET && !path.ends_with(LEASE_CONTROLLER);
    if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
        return events(answers, path);
    }
    if let Some(name) = parts.uri.query().and_then(one_name) {
        path = format!("{path}?name={name}");
    }
    if let Some(answer) = answers(&parts.method, &path, &body) {
        let code = (answer["kind"] == "Status").then(|| answer["code"].as_u64()).flatten();
        let code = code.map_or(StatusCode::OK, |code| {
            StatusCode::from_u16(code.try_into().unwrap()).unwrap()
        });
        return (code, Json(answer)).into_response();
    }
    if path.contains("/namespaces/home/leases") && !is_list {
        return of_the_lease(&stored, &parts.method, &body);
    }
    if path.contains("/configmaps/") {
        return failed(404, "NotFound", "m");
    }
    if is_list && !path.contains("/secrets/") {
        return list("List", &[]);
    }
    failed(403, "Forbidden", "m")
}

/// The API server on a thread of its own, which the test's thread cannot hold up.
pub(super) fn start(
    answers: impl Fn(&Method, &str, &[u8]) -> Option<Value> + Send + Sync + 'static,
) -> (SocketAddr, Shared) {
    let (stored, (address, started)) = (Shared::default(), mpsc::channel());
    let answers: Answers = Arc::new(answers);
    let state = (Arc::clone(&stored), answers);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            address.send(listener.local_addr().unwrap()).unwrap();
            let router = Router::new().fallback(serve).with_state(state);
            axum::serve(listener, router).await.unwrap();
        });
    });
    (started.recv().unwrap(), stored)
}

/// A controller of this API server, and what ends it.
pub(super) async fn lead(
    address: SocketAddr,
    settings: ControllerSettings,
) -> (JoinHandle<Result<(), ControllerError>>, CancellationToken) {
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let leases = Keeper::start(config.clone()).unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let shutdown = CancellationToken::new();
    let leading = run(client, leases, settings, listener, None, shutdown.clone());
    (tokio::spawn(leading), shutdown)
}

/// The settings of a controller of all namespaces.
pub(super) fn settings() -> ControllerSettings {
    ControllerSettings {
        namespace: "home".to_owned(),
        identity: "busy".to_owned(),
        default_runtime: None,
        watch_namespaces: Vec::new(),
        runtime_namespaces: Vec::new(),
        default_image: None,
        allow_image_tags: false,
        packages: false,
        priority_class: None,
        allow_archive_networks: Vec::new(),
        roots: knack_trust::Roots::default(),
        hub_names: Vec::new(),
        registry_names: None,
        injection_runtime: None,
        sidecar_image: None,
        roll_stale_sidecars: false,
        trust_bundle: None,
        webhook: None,
        metrics_listen: (Ipv4Addr::LOCALHOST, 0).into(),
    }
}
