//! A takeover before an API server in memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode};
use knack_execution::records::Claim;
use knack_runner::protocol::{Exit, RunnerLink};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::fixture::{done, list, not_found};
use crate::jobs::cluster::journal::tests::{started, written_journal};
use crate::jobs::keys::Keys;
use crate::jobs::pods::spec::tests::resolved;
use crate::jobs::settings::JobClients;
use crate::lease::Keeper;

/// What the kubelet says to a read of a pod's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// A run that a runner with another key reports.
    Foreign,
    /// An error, each time.
    Broken,
    /// Nothing: the node has no power.
    Silent,
    /// A run of the owner before, with its result.
    Ended,
    /// A run of the owner before in a pod that has ended; the result is there when it is read again, and comes late.
    EndedAndLong,
    /// Nothing ran; the content comes late.
    Slow,
    /// Nothing ran, and the pod is gone after that is read.
    Ending,
    /// The pod is gone by now.
    Gone,
}

/// What the second read of a long journal takes.
const LONG: Duration = Duration::from_secs(25);

#[derive(Default)]
struct FakeCluster {
    jobs: Mutex<BTreeMap<String, Value>>,
    /// The Lease of the runtime.
    lease: Mutex<Option<Value>>,
    pods: Mutex<BTreeMap<String, Log>>,
    /// Pods that the watch says are gone.
    lost: Notify,
    /// How many lists of Jobs are refused before one is answered.
    refused_lists: AtomicU32,
    /// Pods whose log was read.
    read: Mutex<BTreeSet<String>>,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the executions were asked for.
static ASKED: LazyLock<Duration> = LazyLock::new(|| now().saturating_sub(Duration::from_mins(3)));

fn id(call: &str) -> ExecutionId {
    ExecutionId::new(*ASKED, "request", 0, call)
}

fn call_of(pod: &str) -> ExecutionId {
    id(&format!("of {pod}"))
}

fn pod(name: &str, log: Log) -> Value {
    let phase = if log == Log::EndedAndLong {
        "Succeeded"
    } else {
        "Running"
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "uid": name, "labels": {},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true}],
        },
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": phase},
    })
}

impl FakeCluster {
    /// With a pod and its Job for each log.
    fn of(pods: &[(String, Log)]) -> Arc<Self> {
        let fake_cluster = Self::default();
        for (name, log) in pods {
            lock(&fake_cluster.pods).insert(name.clone(), *log);
            let job = json!({"metadata": {"name": name, "namespace": "sandboxes"}, "status": {"active": 1}});
            lock(&fake_cluster.jobs).insert(name.clone(), job);
        }
        Arc::new(fake_cluster)
    }

    /// What the job controller does of Jobs whose pods are gone.
    fn settle(&self) {
        let pods = lock(&self.pods).clone();
        let ended = k8s_openapi::jiff::Timestamp::now().to_string();
        for (_, job) in lock(&self.jobs)
            .iter_mut()
            .filter(|(name, _)| !pods.contains_key(*name))
        {
            let failed = json!({"type": "Failed", "status": "True", "lastTransitionTime": ended});
            job["status"] = json!({"failed": 1, "conditions": [failed]});
        }
    }

    /// Takes the runtime over, as a new owner.
    async fn take_over(self: &Arc<Self>) -> Arc<Records> {
        Box::pin(self.take_over_with(&resolved(), &PendingWrites::default())).await
    }

    /// Takes over with these settings; what it has to write goes to `unwritten`.
    async fn take_over_with(self: &Arc<Self>, resolved: &ResolvedRuntime, unwritten: &PendingWrites) -> Arc<Records> {
        let clients = clients_before(Router::new().fallback(answer).with_state(Arc::clone(self)));
        let settings = JobSettings::new("me-1", "https://me:1", [0; 32]);
        let services = TermServices::start(&clients, resolved, &settings, unwritten.clone())
            .await
            .unwrap();
        recover(&services, resolved, &settings, &CancellationToken::new()).await;
        services.records
    }

    fn job_names(&self) -> Vec<String> {
        lock(&self.jobs).keys().cloned().collect()
    }
}

/// Clients of an API server in memory. No Lease is kept.
pub(crate) fn clients_before(router: Router) -> JobClients {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = kube::Client::new(router, "sandboxes");
    // Nothing listens there.
    let keeper = Keeper::start(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    JobClients::from_clients(client.clone(), client, keeper)
}

async fn answer(State(fake_cluster): State<Arc<FakeCluster>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path: Vec<&str> = parts.uri.path().trim_start_matches('/').split('/').collect();
    let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch"));
    match (&parts.method, path.as_slice()) {
        (&Method::GET, [.., "pods"]) if is_watch => watched(&fake_cluster).await,
        (&Method::GET, [.., "pods"]) => list(
            "PodList",
            &lock(&fake_cluster.pods)
                .iter()
                .map(|(name, log)| pod(name, *log))
                .collect::<Vec<_>>(),
        ),
        (&Method::GET, [.., "pods", name, "log"]) => log(&fake_cluster, name).await,
        (&Method::DELETE, [.., "pods", name]) => {
            // The kubelet of a node without power confirms nothing.
            lock(&fake_cluster.pods).retain(|known, log| known != name || *log == Log::Silent);
            done()
        }
        (&Method::GET, [.., "jobs"])
            if fake_cluster
                .refused_lists
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok() =>
        {
            forbidden()
        }
        (&Method::GET, [.., "jobs"]) => list(
            "JobList",
            &lock(&fake_cluster.jobs).values().cloned().collect::<Vec<_>>(),
        ),
        (&Method::GET, [.., "jobs", name]) => {
            let job = lock(&fake_cluster.jobs).get(*name).cloned();
            job.map_or_else(not_found, |job| axum::Json(job).into_response())
        }
        (&Method::PATCH, [.., "jobs", name]) => {
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let patch: Value = serde_json::from_slice(&bytes).unwrap();
            let mut jobs = lock(&fake_cluster.jobs);
            let Some(job) = jobs.get_mut(*name) else {
                return not_found();
            };
            for part in ["labels", "annotations"] {
                for (key, value) in patch["metadata"][part].as_object().into_iter().flatten() {
                    job["metadata"][part][key] = value.clone();
                }
            }
            axum::Json(job.clone()).into_response()
        }
        (&Method::DELETE, [.., "jobs", name]) => {
            lock(&fake_cluster.jobs).remove(*name);
            lock(&fake_cluster.pods).remove(*name);
            done()
        }
        (&Method::GET, [.., "leases", "knack-runtime-default"]) => {
            let lease = lock(&fake_cluster.lease).clone();
            lease.map_or_else(not_found, |lease| axum::Json(lease).into_response())
        }
        (&Method::PUT, [.., "leases", _]) => {
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let lease: Value = serde_json::from_slice(&bytes).unwrap();
            lock(&fake_cluster.lease).replace(lease.clone());
            axum::Json(lease).into_response()
        }
        _ => not_found(),
    }
}

fn forbidden() -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403});
    (StatusCode::FORBIDDEN, axum::Json(status)).into_response()
}

/// Says that a pod is gone once its log was asked for.
async fn watched(fake_cluster: &FakeCluster) -> Response {
    fake_cluster.lost.notified().await;
    let event = json!({"type": "DELETED", "object": pod("a", Log::Gone)}).to_string() + "\n";
    let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(event)]);
    Body::from_stream(first.chain(futures::stream::pending())).into_response()
}

async fn log(fake_cluster: &FakeCluster, name: &str) -> Response {
    let log = lock(&fake_cluster.pods).get(name).copied();
    match log {
        Some(Log::Foreign) => {
            let key = Keys::new([9; 32]).runner(name);
            RunnerLink::new(&key)
                .encode(&started(&id("foreign").to_string()))
                .into_response()
        }
        Some(Log::Ended) => {
            written_journal(name, &id("known").to_string(), Some(Exit::Code { code: 0 })).into_response()
        }
        Some(Log::EndedAndLong) => {
            let exit = Some(Exit::Code { code: 0 });
            let journal = written_journal(name, &call_of(name).to_string(), exit);
            if lock(&fake_cluster.read).insert(name.to_owned()) {
                return written_journal(name, &call_of(name).to_string(), None).into_response();
            }
            let late = async {
                tokio::time::sleep(LONG).await;
                Ok::<_, std::convert::Infallible>(journal)
            };
            Body::from_stream(futures::stream::once(late)).into_response()
        }
        Some(Log::Broken) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Log::Silent) => std::future::pending().await,
        Some(Log::Slow) => {
            let late = async {
                tokio::time::sleep(Duration::from_secs(25)).await;
                Ok::<_, std::convert::Infallible>("\n")
            };
            Body::from_stream(futures::stream::once(late)).into_response()
        }
        Some(Log::Ending) => {
            lock(&fake_cluster.pods).insert(name.to_owned(), Log::Gone);
            "\n".into_response()
        }
        Some(Log::Gone) | None => {
            lock(&fake_cluster.pods).remove(name);
            fake_cluster.lost.notify_one();
            not_found()
        }
    }
}

fn is_refused(records: &Records, id: ExecutionId) -> bool {
    match records.claim(now(), "c", id, None) {
        Ok(Claim::First(..)) => false,
        Err(ExecutionError::Gone) => true,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_power_holds_a_takeover_for_a_minute_at_most() {
    let pods: Vec<_> = (0..40).map(|index| (format!("p{index}"), Log::Silent)).collect();
    let fake_cluster = FakeCluster::of(&pods);
    let begun = Instant::now();
    let records = Box::pin(fake_cluster.take_over()).await;
    let took = begun.elapsed();
    assert!(took <= Duration::from_mins(1), "{took:?}");
    assert!(is_refused(&records, id("any")));
    assert_eq!(
        fake_cluster.job_names().len(),
        pods.len(),
        "the Jobs tell the owner after this one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_that_comes_slowly_is_read() {
    let fake_cluster = FakeCluster::of(&[("a".to_owned(), Log::Slow)]);
    let records = Box::pin(fake_cluster.take_over()).await;
    assert!(!is_refused(&records, id("any")));
    assert!(
        fake_cluster.job_names().is_empty(),
        "a pod that ran nothing goes with its Job"
    );
}

/// The owner before has deleted the Job, as it does with a pod of the pool that is no longer wanted; or somebody deletes the pod.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_owner_before_was_ending_refuses_nothing() {
    for (job_is_deleted, refuses) in [(true, false), (false, true)] {
        let fake_cluster = FakeCluster::of(&[("a".to_owned(), Log::Ending)]);
        if job_is_deleted {
            lock(&fake_cluster.jobs).clear();
        }
        let records = Box::pin(fake_cluster.take_over()).await;
        assert_eq!(is_refused(&records, id("any")), refuses, "deleted: {job_is_deleted}");
    }
}

/// As while an upgrade replaces the bindings of the hub's roles.
#[tokio::test(start_paused = true)]
async fn jobs_that_cannot_be_listed_for_a_moment_refuse_nothing() {
    for (refused, refuses) in [(2, false), (8, true)] {
        let fake_cluster = FakeCluster::of(&[]);
        fake_cluster.refused_lists.store(refused, Ordering::Relaxed);
        let records = Box::pin(fake_cluster.take_over()).await;
        assert_eq!(is_refused(&records, id("any")), refuses, "{refused} lists were refused");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_is_refused_by_the_owner_after_the_next_one_too() {
    for (log, refuses_others) in [
        (Log::Foreign, false),
        (Log::Broken, true),
        (Log::Silent, true),
        (Log::Gone, true),
    ] {
        let fake_cluster = FakeCluster::of(&[("a".to_owned(), log)]);
        for owner in ["the next", "the one after it"] {
            let records = Box::pin(fake_cluster.take_over()).await;
            assert!(is_refused(&records, id("foreign")), "{log:?} {owner}");
            assert_eq!(is_refused(&records, id("other")), refuses_others, "{log:?} {owner}");
            // Its node is deleted, if it does not answer.
            lock(&fake_cluster.pods).clear();
            fake_cluster.settle();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_jobs_of_a_shorter_retention_ran_is_refused_after_the_retention_was_raised() {
    let fake_cluster = FakeCluster::of(&[]);
    *lock(&fake_cluster.lease) = Some(json!({"metadata": {"name": "knack-runtime-default", "resourceVersion": "1"}}));
    let with = |minutes: u64| ResolvedRuntime {
        ttl: Duration::from_mins(minutes),
        ..resolved()
    };
    // Three minutes old: of a Job that is kept for two minutes nothing is left.
    let asked = id("of a Job that is gone");
    for (minutes, is_gone) in [(2, true), (60, true), (60, true)] {
        let records = Box::pin(fake_cluster.take_over_with(&with(minutes), &PendingWrites::default())).await;
        assert_eq!(is_refused(&records, asked), is_gone, "kept for {minutes} min");
    }
    let never_lower = FakeCluster::of(&[]);
    *lock(&never_lower.lease) = Some(json!({"metadata": {"name": "knack-runtime-default", "resourceVersion": "1"}}));
    for _ in 0..2 {
        let records = Box::pin(never_lower.take_over_with(&with(60), &PendingWrites::default())).await;
        assert!(!is_refused(&records, asked), "its Job would still be there");
    }
}

/// The journals for which there was no memory at first are read one after another, for as long as that takes.
#[tokio::test(start_paused = true)]
async fn runs_that_were_over_are_not_cancelled_while_they_wait_to_be_read() {
    let pods: Vec<_> = (0..10).map(|index| (format!("p{index}"), Log::EndedAndLong)).collect();
    let fake_cluster = FakeCluster::of(&pods);
    let unwritten = PendingWrites::default();
    let records = Box::pin(fake_cluster.take_over_with(&resolved(), &unwritten)).await;
    tokio::time::sleep(LONG * 11).await;
    for (name, _) in &pods {
        let known = records.claim_known(now(), "c", call_of(name));
        assert!(matches!(known, Ok(Some(Claim::Ended(Ok(_))))), "{name}: {known:?}");
    }
}

/// The owner that follows the run to its end finds that its Job was deleted, and the pod goes.
#[tokio::test(start_paused = true)]
async fn a_run_whose_job_somebody_deleted_is_refused_by_the_next_owner() {
    for is_deleted in [false, true] {
        let fake_cluster = FakeCluster::of(&[("a".to_owned(), Log::Ended)]);
        *lock(&fake_cluster.lease) =
            Some(json!({"metadata": {"name": "knack-runtime-default", "resourceVersion": "1"}}));
        if is_deleted {
            lock(&fake_cluster.jobs).clear();
        }
        let unwritten = PendingWrites::default();
        let records = Box::pin(fake_cluster.take_over_with(&resolved(), &unwritten)).await;
        unwritten.written().await;
        let known = records.claim_known(now(), "c", id("known"));
        assert!(matches!(known, Ok(Some(Claim::Ended(Ok(_))))), "{known:?}");
        lock(&fake_cluster.pods).clear();
        fake_cluster.settle();
        let records = Box::pin(fake_cluster.take_over()).await;
        assert!(is_refused(&records, id("known")), "deleted: {is_deleted}");
        let newer = ExecutionId::new(now(), "request", 0, "later");
        assert!(!is_refused(&records, newer), "deleted: {is_deleted}");
    }
}
