//! The leader's Lease while this process is busy, at an API server that holds that Lease and nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::{Method, StatusCode};
use knack_vocabulary::LEASE_CONTROLLER;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::process::run;
use super::settings::ControllerSettings;
use crate::lease::Keeper;

/// A few renewals of a Lease of 15 s, and less than that.
const BUSY: Duration = Duration::from_secs(12);
/// How long the leader may take until it has its Lease.
const SOON: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);

/// The Lease, and how often it was written.
#[derive(Debug, Default)]
struct Stored {
    lease: Option<Value>,
    writes: usize,
}

type Shared = Arc<Mutex<Stored>>;

fn writes(stored: &Shared) -> usize {
    stored.lock().unwrap_or_else(PoisonError::into_inner).writes
}

fn refuse(code: u16, reason: &str) -> Response {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"});
    (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
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
    lease.map_or_else(|| refuse(404, "NotFound"), |lease| Json(lease).into_response())
}

/// Lists are empty, watches report nothing, and nothing else may be read or written.
async fn serve(State(stored): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    let is_list = parts.method == Method::GET && !path.ends_with(LEASE_CONTROLLER);
    if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
        return std::future::pending().await;
    }
    if path.contains("/namespaces/home/leases") && !is_list {
        return of_the_lease(&stored, &parts.method, &body);
    }
    if is_list && !path.contains("/secrets/") {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        return Json(list).into_response();
    }
    refuse(403, "Forbidden")
}

/// The API server on a thread of its own, which the test's thread cannot hold up.
fn start() -> (SocketAddr, Shared) {
    let (stored, (address, started)) = (Shared::default(), mpsc::channel());
    let state = Arc::clone(&stored);
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

fn settings() -> ControllerSettings {
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
        hub_names: Vec::new(),
        injection_runtime: None,
        roll_stale_sidecars: None,
        webhook: None,
        metrics_listen: (Ipv4Addr::LOCALHOST, 0).into(),
    }
}

/// This test has one thread, and the controller runs on it.
#[tokio::test]
async fn a_leader_renews_its_lease_while_every_thread_of_its_work_is_busy() {
    let (address, stored) = start();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let leases = Keeper::start(config.clone()).unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let shutdown = CancellationToken::new();
    let leading = tokio::spawn(run(client, leases, settings(), listener, None, shutdown.clone()));
    let begun = Instant::now();
    while writes(&stored) == 0 {
        assert!(begun.elapsed() < SOON && !leading.is_finished(), "it gets the Lease");
        tokio::time::sleep(PAUSE).await;
    }
    let (before, begun) = (writes(&stored), Instant::now());
    while writes(&stored) < before + 2 && begun.elapsed() < BUSY {
        // Not the sleep of the runtime: nothing else gets this thread meanwhile.
        std::thread::park_timeout(PAUSE);
    }
    let renewals = writes(&stored) - before;
    assert!(renewals >= 2, "{renewals} renewals in {:?}", begun.elapsed());
    assert!(!leading.is_finished(), "it leads on");
    shutdown.cancel();
    leading.await.unwrap().unwrap();
    let lease = stored.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease["spec"].get("holderIdentity"), None, "given back at the end");
}
