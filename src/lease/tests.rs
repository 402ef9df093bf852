//! What keeping a Lease costs an API server that counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fixture::failed;

/// One Lease, and how often it was read and written.
#[derive(Debug, Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    reads: usize,
    writes: usize,
    /// How many writes find that another writer of the same holder came first.
    conflicts: usize,
    /// How long an answer takes.
    delay: Duration,
}

type Shared = Arc<Mutex<Server>>;

fn answer(server: &mut Server, method: &Method, body: Option<Value>) -> Response {
    let refuse = |code: u16| {
        let reason = if code == 404 { "NotFound" } else { "Conflict" };
        failed(code, reason, "m")
    };
    let Some(mut object) = body else {
        server.reads += 1;
        return server
            .lease
            .clone()
            .map_or_else(|| refuse(404), |lease| Json(lease).into_response());
    };
    server.writes += 1;
    if server.conflicts > 0 {
        server.conflicts -= 1;
        server.version += 1;
        let version = json!(server.version.to_string());
        if let Some(lease) = &mut server.lease {
            lease["metadata"]["resourceVersion"] = version;
        }
    }
    let known = server
        .lease
        .as_ref()
        .map(|lease| lease["metadata"]["resourceVersion"].clone());
    if *method == Method::PUT && known.as_ref() != Some(&object["metadata"]["resourceVersion"])
        || *method == Method::POST && known.is_some()
    {
        return refuse(409);
    }
    server.version += 1;
    object["metadata"]["resourceVersion"] = json!(server.version.to_string());
    server.lease = Some(object.clone());
    Json(object).into_response()
}

async fn serve(State(server): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let body = (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).unwrap());
    let delay = server.lock().unwrap_or_else(PoisonError::into_inner).delay;
    tokio::time::sleep(delay).await;
    let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
    answer(&mut server, &parts.method, body)
}

/// A client of that server. Both are in memory, so that the clock of a test can stand still while they work: a Lease is then not lost
/// to a slow machine, and no call comes because of one.
fn start() -> (kube::Client, Shared) {
    let server = Shared::default();
    let router = Router::new().fallback(serve).with_state(Arc::clone(&server));
    (kube::Client::new(router, "n"), server)
}

/// Two fifths of the usual times, in their proportions: 15 s, 5 s and 7.5 s.
fn settings(identity: &str) -> LeaseSettings {
    let duration = Duration::from_secs(6);
    LeaseSettings {
        duration,
        interval: duration / 3,
        standby: duration / 2,
        ..LeaseSettings::new("n", "l", identity)
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_runtime_costs_half_a_call_a_second_with_three_replicas() {
    let (client, server) = start();
    let stop = CancellationToken::new();
    let (first, mut holder) = Lease::new(client.clone(), settings("first"));
    let mut running = vec![tokio::spawn(first.run(stop.clone()))];
    holder.wait_for(|holder| holder.mine_until.is_some()).await.unwrap();
    for name in ["second", "third"] {
        let (standby, _) = Lease::new(client.clone(), settings(name));
        running.push(tokio::spawn(standby.run(stop.clone())));
    }
    let count = || {
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        (server.reads, server.writes)
    };
    let (reads, writes) = count();
    // As 20 s of the usual times: 4 renewals, and 3 reads of each standby at most, with one more of each for the edges.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let (reads, writes) = (count().0 - reads, count().1 - writes);
    assert!(writes <= 5, "{writes} writes");
    assert!(reads <= 8, "{reads} reads: an owner renews without reading");
    assert!(holder.borrow().is_mine(tokio::time::Instant::now()));
    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
}

/// What else this process writes on a Lease may come between a reading and a renewal, also twice.
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_lost_to_notes_of_its_own_holder() {
    let (client, server) = start();
    let (mut lease, holder) = Lease::new(client, settings("first"));
    assert!(lease.step().await.unwrap());
    server.lock().unwrap_or_else(PoisonError::into_inner).conflicts = 2;
    assert!(lease.step().await.unwrap());
    assert!(holder.borrow().is_mine(tokio::time::Instant::now()));
    assert_eq!(server.lock().unwrap_or_else(PoisonError::into_inner).conflicts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_shows_by_the_refusal_and_a_request_to_read_finds_the_next_holder() {
    let (client, server) = start();
    let (mut first, holder) = Lease::new(client.clone(), settings("first"));
    assert!(first.step().await.unwrap() && first.step().await.unwrap());
    // Another replica has taken it, whatever the first one believes.
    {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lease = server.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = json!("thief");
        lease["metadata"]["resourceVersion"] = json!("99");
        server.lease = Some(lease);
    }
    assert!(!first.step().await.unwrap());
    assert_eq!(holder.borrow().holder.as_deref(), Some("thief"));
    assert!(holder.borrow().mine_until.is_none());

    // A standby with a long pause, asked to read: it takes what was given back at once.
    let patient = LeaseSettings {
        duration: Duration::from_mins(10),
        interval: Duration::from_mins(3),
        standby: Duration::from_mins(5),
        ..settings("patient")
    };
    let read_request = patient.read_request.clone();
    let (standby, mut holder) = Lease::new(client, patient);
    let stop = CancellationToken::new();
    let running = tokio::spawn(standby.run(stop.clone()));
    holder.wait_for(|holder| holder.holder.is_some()).await.unwrap();
    {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lease = server.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = Value::Null;
        server.lease = Some(lease);
    }
    read_request.request();
    let taken = holder.wait_for(|holder| holder.mine_until.is_some());
    tokio::time::timeout(Duration::from_secs(30), taken)
        .await
        .unwrap()
        .unwrap();
    stop.cancel();
    running.await.unwrap();
}

/// Replicas of one Service, of which `ready` get traffic.
fn peers(ready: &[&str]) -> watch::Sender<Peers> {
    let peers = watch::Sender::<Peers>::default();
    peers.send_modify(|peers| {
        peers.see(
            ready.iter().map(|name| (*name).to_owned()).collect(),
            tokio::time::Instant::now(),
        );
    });
    peers
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_goes_to_the_replica_that_should_have_it_also_when_another_gives_it_back() {
    let (client, _server) = start();
    let best = preferred("n/r", ["a", "b"]).unwrap();
    let other = if best == "a" { "b" } else { "a" };
    let stop = CancellationToken::new();
    let spread = |replica: &str, peers: &watch::Sender<Peers>| Spread {
        replica: replica.to_owned(),
        lease: "n/r".to_owned(),
        peers: peers.subscribe(),
    };
    // Alone, it takes what it should not have.
    let seen_by_other = peers(&[other]);
    let (wanted, is_wanted) = watch::channel(true);
    let (lease, mut held) = Lease::new(
        client.clone(),
        LeaseSettings {
            spread: Some(spread(other, &seen_by_other)),
            wanted: Some(is_wanted),
            ..settings(&identity_of(other))
        },
    );
    let mut running = vec![tokio::spawn(lease.run(stop.clone()))];
    let mine = |holder: &LeaseHolder| holder.mine_until.is_some();
    let patience = Duration::from_mins(1);
    tokio::time::timeout(patience, held.wait_for(mine))
        .await
        .unwrap()
        .unwrap();

    let seen_by_best = peers(&["a", "b"]);
    let (lease, mut taken) = Lease::new(
        client.clone(),
        LeaseSettings {
            spread: Some(spread(best, &seen_by_best)),
            ..settings(&identity_of(best))
        },
    );
    running.push(tokio::spawn(lease.run(stop.clone())));
    seen_by_other.send_modify(|peers| {
        peers.see(["a", "b"].map(str::to_owned).into(), tokio::time::Instant::now());
    });
    // A held Lease stays with its holder, even if another replica should have it.
    tokio::time::timeout(patience, taken.wait_for(|holder| holder.holder.is_some()))
        .await
        .unwrap()
        .unwrap();
    // Longer than a replica with later precedence waits: what was seen before it had the Lease must not count
    // afterwards.
    tokio::time::sleep(settings("x").standby + Duration::from_secs(6)).await;
    assert!(held.borrow().mine_until.is_some());

    wanted.send_replace(false);
    tokio::time::timeout(patience, held.wait_for(|holder| !mine(holder)))
        .await
        .unwrap()
        .unwrap();
    // From now on it competes again, and lets the other go first.
    wanted.send_replace(true);
    tokio::time::timeout(patience, taken.wait_for(mine))
        .await
        .unwrap()
        .unwrap();
    assert!(held.borrow().mine_until.is_none());
    assert_eq!(taken.borrow().transitions, 2, "nobody has had it in between");

    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
    // A replica that is ending takes nothing, even if no other is left.
    let alone = peers(&[other]);
    alone.send_modify(Peers::leave);
    let (leaving, mut none) = Lease::new(
        client,
        LeaseSettings {
            spread: Some(spread(other, &alone)),
            ..settings(&identity_of(other))
        },
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(leaving.run(stop.clone()));
    let never = tokio::time::timeout(settings("x").duration, none.wait_for(mine)).await;
    assert!(never.is_err());
    stop.cancel();
    running.await.unwrap();
}

/// A hub that ends gives its idle runtimes to others first, and its Leases back at the end: the second may come while the
/// first is under way.
#[tokio::test(start_paused = true)]
async fn a_shutdown_while_the_lease_is_given_back_gives_it_back() {
    let (client, server) = start();
    let (wanted, is_wanted) = watch::channel(true);
    let shutdown = CancellationToken::new();
    let (lease, mut holder) = Lease::new(
        client,
        LeaseSettings {
            wanted: Some(is_wanted),
            ..settings("a")
        },
    );
    let task = tokio::spawn(lease.run(shutdown.clone()));
    let is_mine = |holder: &LeaseHolder| holder.is_mine(tokio::time::Instant::now());
    holder.wait_for(is_mine).await.unwrap();
    server.lock().unwrap().delay = Duration::from_millis(300);
    wanted.send_replace(false);
    // Nobody here uses the runtime any more, and the API server has not heard of it.
    holder.wait_for(|holder| !is_mine(holder)).await.unwrap();
    shutdown.cancel();
    task.await.unwrap();
    let server = server.lock().unwrap();
    assert_eq!(server.lease.as_ref().unwrap()["spec"].get("holderIdentity"), None);
}
