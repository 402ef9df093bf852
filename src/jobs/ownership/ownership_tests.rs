//! The end of a term, and of a takeover, before an API server in memory.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{Method, StatusCode};
use knack_execution::conversation::RunEnd;
use knack_execution::{ClusterFailureKind, ExecutionError, ExecutionId, ExecutionRequest, Missing, Program};
use knack_memory::MemoryBudget;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::fixture::{done, list};
use crate::jobs::cluster::failure::failure;
use crate::jobs::cluster::journal::tests::written_journal;
use crate::jobs::{Defaults, JobRequest, ResultMemory};

/// What was written of runs.
type Written = Arc<Mutex<Vec<&'static str>>>;

/// Has no pods and no Jobs, and takes what is written.
async fn answer(
    State(written): State<Written>,
    Query(query): Query<std::collections::BTreeMap<String, String>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if query.contains_key("watch") {
        return std::future::pending().await;
    }
    let mut path = parts.uri.path().split('/');
    let kind = path.find(|part| matches!(*part, "jobs" | "events"));
    match (parts.method, kind) {
        (Method::GET, _) => list("List", &[]),
        (Method::PATCH | Method::POST, Some(kind)) => {
            let what = if kind == "jobs" { "record" } else { "event" };
            written.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            Json(serde_json::from_slice::<Value>(&bytes).unwrap()).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The ownership of a runtime without warm pods, and what gives it away.
async fn ownership(written: &Written) -> (Ownership, watch::Sender<Peers>) {
    ownership_before(Router::new().fallback(answer).with_state(Arc::clone(written))).await
}

async fn ownership_before(router: Router) -> (Ownership, watch::Sender<Peers>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let runtime = serde_json::from_value(json!({
        "metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "spec": {"warmPool": {"replicas": 0}},
    }));
    let resolved = ResolvedRuntime::of(&runtime.unwrap(), &Defaults::new("image"));
    let (leaving, peers) = watch::channel(Peers::default());
    let ownership = Ownership {
        read_request: ReadRequest::default(),
        clients: JobClients::new(kube::Config::new(url.parse().unwrap())).unwrap(),
        resolved: Arc::new(ArcSwap::from_pointee(resolved)),
        settings: JobSettings {
            peers,
            ..JobSettings::new("me-1", "https://me:1", [0; 32])
        },
        state: watch::Sender::default(),
        shutdown: CancellationToken::new(),
        retired: Arc::default(),
        wall_clock: knack_execution::now,
    };
    (ownership, leaving)
}

/// A Lease that is held for longer than a test takes.
fn held() -> LeaseHolder {
    LeaseHolder {
        mine_until: Some(Instant::now() + Duration::from_mins(10)),
        ..LeaseHolder::default()
    }
}

/// The term, once it serves.
async fn serving(states: &mut watch::Receiver<ServingState>) -> Arc<Term> {
    let is_serving = |state: &ServingState| matches!(state, ServingState::Serving(_));
    let state = states.wait_for(is_serving).await.unwrap().clone();
    let ServingState::Serving(term) = state else {
        panic!("it serves")
    };
    term
}

#[tokio::test]
async fn a_term_ends_once_the_records_of_its_last_runs_are_written() {
    for is_handed_over in [true, false] {
        let written = Written::default();
        let (ownership, leaving) = ownership(&written).await;
        let (_renewing, holder) = watch::channel(held());
        let mut states = ownership.state.subscribe();
        let last_run = async {
            let term = serving(&mut states).await;
            let program = Program::Command {
                argv: vec!["true".to_owned()],
            };
            let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let request: JobRequest = ExecutionRequest::new(id, "c", program).into();
            let failed = failure(ClusterFailureKind::OutOfMemory, "OOMKilled", "m", true);
            term.record("r-1".to_owned(), &request, &RunEnd::Failed(failed));
            if is_handed_over {
                leaving.send_modify(Peers::leave);
            } else {
                ownership.shutdown.cancel();
            }
        };
        let (end, ()) = tokio::join!(ownership.serve(holder, None), last_run);
        assert_eq!(matches!(end, TermEnd::GivenUp(None)), is_handed_over);
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        written.sort_unstable();
        assert_eq!(written, ["event", "record"], "handed over: {is_handed_over}");
    }
}

#[tokio::test]
async fn a_run_without_memory_for_what_is_sent_is_refused_before_it_has_a_pod_and_may_be_tried_again() {
    let written = Written::default();
    let (mut ownership, _leaving) = ownership(&written).await;
    let memory = MemoryBudget::new(1 << 20);
    ownership.settings.memory = Some(ResultMemory::of(&memory));
    let (_renewing, holder) = watch::channel(held());
    let mut states = ownership.state.subscribe();
    let run = async {
        let term = serving(&mut states).await;
        let program = Program::Command {
            argv: vec!["true".to_owned()],
        };
        let id = ExecutionId::new(knack_execution::now(), "r", 0, "c");
        let request: JobRequest = ExecutionRequest::new(id, "c", program).into();
        let _others = memory.try_take(memory.total_bytes()).unwrap();
        let (events, _reader) = tokio::sync::mpsc::channel(1);
        let outcome = term.execute(request, &CancellationToken::new(), events).await;
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, ExecutionError::Unavailable(_)) && error.to_string().contains("no memory"),
            "{error}"
        );
        assert!(term.known("c", id).unwrap().is_none(), "the id may be used again");
        ownership.shutdown.cancel();
    };
    tokio::join!(ownership.serve(holder, None), run);
    let written = written.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(written.is_empty(), "no Job was made: {written:?}");
}

/// One place for runs, and no pod that comes: the first run has the place until it is cancelled.
#[tokio::test]
async fn a_run_that_waits_for_a_place_does_not_start_once_the_runtime_is_stopped() {
    let written = Written::default();
    let (ownership, _leaving) = ownership(&written).await;
    let set = |stopped: Option<Missing>| {
        let resolved = ResolvedRuntime {
            max_runs: 1,
            stopped,
            ..(*ownership.resolved.load_full()).clone()
        };
        ownership.resolved.store(Arc::new(resolved));
    };
    set(None);
    let (_renewing, holder) = watch::channel(held());
    let mut states = ownership.state.subscribe();
    let request = |call: &str| -> JobRequest {
        let program = Program::Command {
            argv: vec!["true".to_owned()],
        };
        let id = ExecutionId::new(knack_execution::now(), "r", 0, call);
        ExecutionRequest::new(id, "c", program).into()
    };
    let is_written = || !written.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    let runs = async {
        let term = serving(&mut states).await;
        let (cancel, never) = (CancellationToken::new(), CancellationToken::new());
        let why = Missing::new("no fence", "wait");
        let first = async {
            let (events, _) = tokio::sync::mpsc::channel(1);
            term.execute(request("first"), &cancel, events).await
        };
        let second = async {
            while !is_written() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let (events, _) = tokio::sync::mpsc::channel(1);
            term.execute(request("second"), &never, events).await
        };
        let stop = async {
            while term.counts().queued == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            set(Some(why.clone()));
            term.renew();
            cancel.cancel();
        };
        let (first, second, ()) = tokio::join!(first, second, stop);
        assert_eq!(first.err(), Some(ExecutionError::Cancelled));
        assert_eq!(second.err(), Some(ExecutionError::Unavailable(why)));
        ownership.shutdown.cancel();
    };
    tokio::join!(ownership.serve(holder, None), runs);
    let written = written.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(*written, ["record"], "one Job was made, that of the first run");
}

/// Has a pod whose run broke, and one whose log does not come; says when the record of the first one is read, and
/// answers that once `over`.
fn takeover_api(written: &Written, looked_for: &Arc<Notify>, over: &Arc<Notify>) -> Router {
    let pod = |name: &str| {
        json!({
            "metadata": {
                "name": name, "uid": name, "labels": {},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true}],
            },
            "status": {"phase": "Failed"},
        })
    };
    let pods = json!({
        "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod("broken"), pod("silent")],
    });
    let listed = move |Query(query): Query<std::collections::BTreeMap<String, String>>| async move {
        if query.contains_key("watch") {
            return std::future::pending().await;
        }
        Json(pods)
    };
    let job = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "broken", "namespace": "ns"},
    });
    let (looked_for, over, at_patch) = (Arc::clone(looked_for), Arc::clone(over), Arc::clone(written));
    let look = move || async move {
        looked_for.notify_one();
        over.notified().await;
        Json(job)
    };
    let patch = move |body: Json<Value>| async move {
        at_patch.lock().unwrap_or_else(PoisonError::into_inner).push("record");
        body
    };
    let namespace = "/api/v1/namespaces/ns/pods";
    Router::new()
        .route(namespace, get(listed))
        .route(
            &format!("{namespace}/broken/log"),
            get(|| async { written_journal("broken", "01890a5d-ac96-774b-bcce-b302099a8057", None) }),
        )
        .route(&format!("{namespace}/silent/log"), get(std::future::pending::<()>))
        .route("/apis/batch/v1/namespaces/ns/jobs/broken", get(look).patch(patch))
        .fallback(answer)
        .with_state(Arc::clone(written))
}

#[tokio::test]
async fn a_takeover_that_is_broken_off_writes_what_it_has_found_ended() {
    for is_leaving in [true, false] {
        let (written, looked_for, over) = (Written::default(), Arc::default(), Arc::default());
        let (ownership, leaving) = ownership_before(takeover_api(&written, &looked_for, &over)).await;
        let (_renewing, holder) = watch::channel(held());
        let break_off = async {
            looked_for.notified().await;
            if is_leaving {
                leaving.send_modify(Peers::leave);
            } else {
                ownership.shutdown.cancel();
            }
            over.notify_one();
        };
        let (end, ()) = tokio::join!(ownership.serve(holder, None), break_off);
        assert_eq!(matches!(end, TermEnd::GivenUp(None)), is_leaving);
        assert_eq!(
            *written.lock().unwrap_or_else(PoisonError::into_inner),
            ["record"],
            "leaving: {is_leaving}"
        );
    }
}

#[tokio::test]
async fn a_term_whose_clock_was_stepped_ends_and_the_next_one_begins_with_the_same_lease() {
    static AHEAD_SECONDS: AtomicU64 = AtomicU64::new(7200);
    let (mut ownership, _leaving) = ownership(&Written::default()).await;
    ownership.wall_clock = || knack_execution::now() + Duration::from_secs(AHEAD_SECONDS.load(Ordering::Relaxed));
    let (_renewing, mut holder) = watch::channel(held());
    let mut states = ownership.state.subscribe();
    let step = async {
        let term = serving(&mut states).await;
        AHEAD_SECONDS.store(0, Ordering::Relaxed);
        term
    };
    let ending = async { tokio::join!(ownership.serve(holder.clone(), None), step) };
    let (end, term) = Box::pin(tokio::time::timeout(Duration::from_mins(1), ending))
        .await
        .expect("it would refuse by the wrong clock for two hours");
    assert!(matches!(end, TermEnd::Lost) && term.ended.is_cancelled());
    assert!(matches!(*states.borrow_and_update(), ServingState::Standby { .. }));
    ownership.wait_for_lease(&mut holder).await;
    let next = async {
        serving(&mut states).await;
        ownership.shutdown.cancel();
    };
    tokio::join!(ownership.serve(holder.clone(), None), next);
}

/// The list is acknowledged and never answered.
#[tokio::test(start_paused = true)]
async fn a_takeover_whose_pods_are_not_listed_gives_the_runtime_up() {
    let router = Router::new()
        .route("/api/v1/namespaces/ns/pods", get(std::future::pending::<()>))
        .fallback(answer)
        .with_state(Written::default());
    let (ownership, _leaving) = ownership_before(router).await;
    let (_renewing, holder) = watch::channel(held());
    let end = Box::pin(ownership.serve(holder, None)).await;
    assert!(
        matches!(end, TermEnd::GivenUp(None)),
        "it renews the Lease and serves nobody"
    );
}

/// Has no pods at first, and later one of this runtime and one of another of its name; keeps the names of pods that are deleted.
fn anew_api(later: &Arc<Notify>, deleted: &Arc<Mutex<Vec<String>>>) -> Router {
    let pod = |name: &str| {
        json!({"type": "ADDED", "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "uid": name, "labels": {}, "resourceVersion": "2",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true}],
            },
            "status": {"phase": "Running"},
        }})
    };
    let events = ["own", "orphan", "other"]
        .map(|name| pod(name).to_string() + "\n")
        .concat();
    let job = |name: &str, runtime: &str| {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
            "name": name, "uid": name, "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "r", "uid": runtime}],
        }})
    };
    let jobs = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"},
        "items": [job("own", "u"), job("other", "of the other")],
    });
    let (later, is_later) = (Arc::clone(later), Arc::new(AtomicBool::new(false)));
    let at_watch = Arc::clone(&is_later);
    let pods = move |Query(query): Query<std::collections::BTreeMap<String, String>>| async move {
        if !query.contains_key("watch") {
            return list("PodList", &[]);
        }
        later.notified().await;
        at_watch.store(true, Ordering::Relaxed);
        let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(events)]);
        let stream = futures::StreamExt::chain(first, futures::stream::pending());
        axum::body::Body::from_stream(stream).into_response()
    };
    let jobs = move || async move {
        let none = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
        Json(if is_later.load(Ordering::Relaxed) { jobs } else { none })
    };
    let deleted = Arc::clone(deleted);
    let delete = move |Path(name): Path<String>| async move {
        deleted.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        done()
    };
    Router::new()
        .route("/api/v1/namespaces/ns/pods", get(pods))
        .route("/api/v1/namespaces/ns/pods/{name}", axum::routing::delete(delete))
        .route("/apis/batch/v1/namespaces/ns/jobs", get(jobs))
        .fallback(answer)
        .with_state(Written::default())
}

#[tokio::test]
async fn a_runtime_that_is_gone_ends_its_own_pods_and_not_those_of_its_namesake() {
    let (later, deleted) = (Arc::default(), Arc::default());
    let (ownership, _peers) = ownership_before(anew_api(&later, &deleted)).await;
    let (_renewing, holder) = watch::channel(held());
    let mut states = ownership.state.subscribe();
    let retire = async {
        let term = serving(&mut states).await;
        later.notify_one();
        while term.launcher.index.all().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ownership.retired.store(true, Ordering::Relaxed);
        ownership.shutdown.cancel();
    };
    tokio::join!(ownership.serve(holder, None), retire);
    let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner).clone();
    deleted.sort_unstable();
    assert_eq!(deleted, ["orphan", "own"]);
}
