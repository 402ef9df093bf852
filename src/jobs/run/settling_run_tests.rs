//! How a run ended that the stream did not show: every end, from a journal and a pod before an API server in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::StreamExt as _;
use knack_execution::conversation::DEADLINE_MARGIN;
use knack_memory::MemoryBudget;
use knack_runner::fixture::mk_result;
use knack_runner::protocol::{Data, Exit as WireExit, FromRunner, Output, OutputStream, RunnerLink};
use tokio::sync::watch;

use super::*;
use crate::fixture::{done, list, not_found};
use crate::jobs::cluster::Cluster;
use crate::jobs::cluster::journal::tests::started;
use crate::jobs::cluster::pod_facts::{Cause, ContainerFacts, Phase, PodFacts};
use crate::jobs::keys::Keys;
use crate::jobs::ownership::recovery::tests::clients_before;
use crate::jobs::pods::pod_index::PodIndex;
use crate::jobs::run::spool::Spool;

/// The run, and another one.
const RUN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const OTHER: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
const POD: &str = "p";
/// What the run may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much later than it could be an end is known: some tries, and a deleted pod.
const A_FEW_TRIES: Duration = Duration::from_secs(4);
/// Ends, as [`determined`] returns them.
const CODE: &str = "Code(3) after 0ns";
const TIMED_OUT: &str = "Timeout after 10s";
const OVER: &str = "failed: internal";
const UNREADABLE: &str = "failed: api_unavailable";
const CONTAINER: &str = "failed: container_failed";
/// Room for one output of [`Line::Output`].
const ROOM_BYTES: usize = 64 << 10;

/// A frame of a journal.
#[derive(Debug, Clone, Copy)]
enum Line {
    /// The run has started.
    Started,
    /// A frame that the log no longer has.
    Lost,
    /// A start that a runner with another key reports.
    Foreign,
    /// 40 KiB of output.
    Output,
    /// The run has ended with code 3.
    Result,
    /// Another run has.
    ResultOfOther,
}

/// What the kubelet says to a read of the log.
#[derive(Debug, Clone, Copy)]
enum Log {
    Has(&'static [Line]),
    /// The second part is written so late that no deadline holds, and is not in a stream that was opened before.
    HasLate(&'static [Line], &'static [Line]),
    /// An error, each time.
    Broken,
    /// There is no such pod.
    Gone,
}

/// The pod.
#[derive(Debug, Clone, Copy)]
enum Pod {
    Runs,
    /// Its container has ended, by Kubernetes' reason.
    Ended(&'static str),
    /// It was deleted.
    Gone,
}

/// When an end is known.
#[derive(Debug, Clone, Copy)]
enum When {
    /// At once.
    Now,
    /// When it is shown that nothing starts.
    Unstarted,
    /// When a result could have come by the log.
    Late,
    /// When the journal is given up.
    GivenUp,
}

impl When {
    /// The earliest time from the beginning. It is known a few tries later.
    fn earliest(self) -> Duration {
        match self {
            Self::Now => Duration::ZERO,
            Self::Unstarted => STARTED_PATIENCE,
            Self::Late => TIMEOUT + DEADLINE_MARGIN + LATE_GRACE,
            Self::GivenUp => TIMEOUT + DEADLINE_MARGIN + SETTLE_PATIENCE,
        }
    }
}

impl Pod {
    fn state(self) -> PodState {
        let running = PodFacts {
            phase: Phase::Running,
            container: ContainerFacts::Running,
            has_begun: true,
            ..PodFacts::default()
        };
        let facts = match self {
            Self::Runs | Self::Gone => running,
            Self::Ended(reason) => PodFacts {
                phase: Phase::Failed,
                container: ContainerFacts::Terminated {
                    cause: Cause {
                        reason: reason.to_owned(),
                        message: String::new(),
                    },
                    exit_code: 137,
                },
                ..running
            },
        };
        PodState {
            facts: Some(facts),
            is_gone: matches!(self, Self::Gone),
        }
    }
}

/// The API server: a pod, its log, and how often the pod was deleted.
struct ClusterState {
    log: Log,
    pod: watch::Sender<PodState>,
    begun: Instant,
    deletions: AtomicU64,
}

fn written(parts: &[&[Line]]) -> Vec<u8> {
    let keys = Keys::new([0; 32]);
    let mut runner = RunnerLink::new(&keys.runner(POD));
    let mut stranger = RunnerLink::new(&Keys::new([9; 32]).runner(POD));
    let result = |id: &str| FromRunner::Result(mk_result(id, WireExit::Code { code: 3 }));
    let mut bytes = Vec::new();
    for line in parts.concat() {
        bytes.extend(match line {
            Line::Started => runner.encode(&started(RUN)),
            Line::Foreign => stranger.encode(&started(OTHER)),
            Line::Output => runner.encode(&FromRunner::Output(Output {
                stream: OutputStream::Stdout,
                data: Data(vec![b'x'; 40 << 10]),
            })),
            Line::Result => runner.encode(&result(RUN)),
            Line::ResultOfOther => runner.encode(&result(OTHER)),
            Line::Lost => {
                drop(runner.encode(&started(OTHER)));
                Vec::new()
            }
        });
    }
    bytes
}

async fn log(
    State(cluster_state): State<Arc<ClusterState>>,
    Query(query): Query<std::collections::BTreeMap<String, String>>,
) -> Response {
    let follows = query.get("follow").is_some_and(|follow| follow == "true");
    let is_late = cluster_state.begun.elapsed() >= When::Late.earliest();
    let bytes = match cluster_state.log {
        Log::Has(lines) => written(&[lines]),
        Log::HasLate(first, then) if is_late => written(&[first, then]),
        Log::HasLate(first, _) => written(&[first]),
        Log::Broken => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Log::Gone => return not_found(),
    };
    if !follows {
        return bytes.into_response();
    }
    let mut pod = cluster_state.pod.subscribe();
    let ended = async move {
        let _ = pod.wait_for(PodState::has_ended).await;
        Ok(Vec::new())
    };
    let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
    Body::from_stream(first.chain(futures::stream::once(ended))).into_response()
}

/// A deleted pod is gone at once.
async fn delete(State(cluster_state): State<Arc<ClusterState>>) -> Response {
    cluster_state.deletions.fetch_add(1, Ordering::Relaxed);
    cluster_state.pod.send_modify(|pod| pod.is_gone = true);
    done()
}

/// No other pod or Job is there, and none comes.
async fn others(Query(query): Query<std::collections::BTreeMap<String, String>>) -> Response {
    if query.contains_key("watch") {
        std::future::pending::<()>().await;
    }
    if query.contains_key("labelSelector") {
        return list("PodList", &[]);
    }
    not_found()
}

/// What is determined of the run, in words, when, and how often its pod was deleted.
async fn determined(pod: Pod, has_started: bool, log_of_pod: Log) -> (String, Duration, u64) {
    let cluster_state = Arc::new(ClusterState {
        log: log_of_pod,
        pod: watch::Sender::new(pod.state()),
        begun: Instant::now(),
        deletions: AtomicU64::new(0),
    });
    let path = format!("/api/v1/namespaces/sandboxes/pods/{POD}");
    let router = Router::new()
        .route(&format!("{path}/log"), get(log))
        .route(&path, axum::routing::delete(delete))
        .fallback(others)
        .with_state(Arc::clone(&cluster_state));
    let cluster = Cluster::new(&clients_before(router), "sandboxes");
    let (index, _watch) = PodIndex::start(cluster.pods.clone(), "default");
    let (keys, memory) = (Keys::new([0; 32]), Some(MemoryBudget::new(ROOM_BYTES)));
    let launcher = Launcher::new(cluster, index, keys, "me-1".to_owned(), TIMEOUT, memory);
    let pod = PodRef {
        job: "j".to_owned(),
        pod: POD.to_owned(),
        uid: POD.to_owned(),
        state: cluster_state.pod.subscribe(),
    };
    let settling = SettlingRun {
        launcher: &launcher,
        pod: &pod,
        reference: ExecutionRef {
            id: RUN.parse().unwrap(),
            is_command: true,
        },
        start: StartKind::Cold,
        timeout: TIMEOUT,
        deadline: cluster_state.begun + TIMEOUT + DEADLINE_MARGIN,
    };
    let mut events = EventWriter::new(Spool::new(None));
    let end = Box::pin(settling.determine_end(has_started, &mut events)).await;
    let words = match end {
        RunEnd::Ended(result) => format!("{:?} after {:?}", result.exit, result.timings.run),
        RunEnd::Failed(error) => format!("failed: {}", error.metric_label()),
        RunEnd::NotStarted(error) => format!("not started: {}", error.metric_label()),
    };
    (
        words,
        cluster_state.begun.elapsed(),
        cluster_state.deletions.load(Ordering::Relaxed),
    )
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_run_is_determined_from_its_journal_and_its_pod() {
    use Line::{Foreign, Lost, Output, Result, ResultOfOther, Started};
    use Log::{Broken, Has, HasLate};
    use When::{GivenUp, Late, Now, Unstarted};
    for (pod, has_started, log, expected, when, deletions) in [
        // The journal has the result, whatever the pod does.
        (Pod::Runs, true, Has(&[Started, Result]), CODE, Now, 0),
        (Pod::Runs, false, Has(&[Started, Result]), CODE, Now, 0),
        (Pod::Ended("OOMKilled"), true, Has(&[Started, Result]), CODE, Now, 0),
        (
            Pod::Runs,
            true,
            Has(&[Started, ResultOfOther]),
            "failed: internal",
            Now,
            0,
        ),
        // More output than there is room for.
        (Pod::Runs, true, Has(&[Started, Output, Output]), OVER, Now, 1),
        (Pod::Ended("Error"), true, Has(&[Started, Output, Output]), OVER, Now, 0),
        // The runner hangs: the run is over its time, unless the journal has its result after all or has lost frames.
        (Pod::Runs, true, Has(&[Started, Output]), TIMED_OUT, Late, 1),
        (Pod::Runs, false, Has(&[Started]), TIMED_OUT, Late, 1),
        (Pod::Runs, true, HasLate(&[Started], &[Result]), CODE, Late, 0),
        (Pod::Runs, true, HasLate(&[Started], &[Output, Output]), OVER, Late, 1),
        (Pod::Runs, true, Has(&[Lost, Started]), UNREADABLE, GivenUp, 1),
        (Pod::Runs, true, Has(&[Foreign]), UNREADABLE, GivenUp, 1),
        (Pod::Runs, true, Broken, UNREADABLE, GivenUp, 1),
        (Pod::Ended("Error"), true, Broken, UNREADABLE, GivenUp, 1),
        // The pod ended first.
        (
            Pod::Ended("OOMKilled"),
            true,
            Has(&[Started]),
            "OutOfMemory after 0ns",
            Now,
            0,
        ),
        (
            Pod::Ended("OOMKilled"),
            true,
            Has(&[Lost, Started]),
            "failed: pod_out_of_memory",
            Now,
            0,
        ),
        (Pod::Ended("Error"), true, Has(&[Started]), CONTAINER, Now, 0),
        (Pod::Ended("Error"), false, Has(&[Started]), CONTAINER, Now, 0),
        (Pod::Ended("Error"), false, Has(&[Foreign]), CONTAINER, Now, 0),
        (
            Pod::Ended("Error"),
            false,
            Has(&[]),
            "not started: container_failed",
            Now,
            0,
        ),
        (Pod::Gone, true, Log::Gone, "failed: pod_deleted", Now, 0),
        (Pod::Gone, false, Log::Gone, "failed: pod_deleted", Now, 0),
        // Nothing says that it began.
        (
            Pod::Runs,
            false,
            Has(&[]),
            "not started: container_failed",
            Unstarted,
            1,
        ),
    ] {
        let (found, took, deleted) = Box::pin(determined(pod, has_started, log)).await;
        let case = format!("{pod:?}, started: {has_started}, {log:?}: {found} after {took:?}");
        assert_eq!((&*found, deleted), (expected, deletions), "{case}");
        let earliest = when.earliest();
        assert!(took >= earliest && took < earliest + A_FEW_TRIES, "{case}");
    }
}
