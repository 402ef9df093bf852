//! Which pod is taken, and what becomes of one that comes too late.

use axum::Router;
use axum::extract::Path;
use axum::routing::delete;
use knack_runner::fixture::mk_result;
use knack_runner::protocol::{Exit, RunnerLink};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::*;
use crate::fixture::{done, list};
use crate::jobs::cluster::Cluster;
use crate::jobs::keys::Keys;
use crate::jobs::ownership::recovery::tests::clients_before;
use crate::jobs::pods::attach::Attachment;
use crate::jobs::pods::pod_index::{PodIndex, PodRef};
use crate::jobs::pods::spec::tests::resolved;

#[tokio::test]
async fn a_pod_that_has_died_is_not_given_to_a_run_that_takes_it_now() {
    use std::future::{pending, ready};
    let (take, taken) = oneshot::channel();
    take.send(()).unwrap();
    assert!(!taken_before_death(taken, ready(())).await);
    let (take, taken) = oneshot::channel();
    take.send(()).unwrap();
    assert!(taken_before_death(taken, pending()).await);
}

#[test]
fn a_pod_that_may_be_used_at_once_comes_first_and_then_the_oldest() {
    use Clearance::{Ask, Go, Open, Unknown, Wait};
    let (one, two) = (Duration::from_secs(1), Duration::from_secs(2));
    for (pods, place) in [
        (&[][..], None),
        (&[Some(Go), Some(Go)], Some(0)),
        (&[Some(Wait(one)), Some(Go), Some(Go)], Some(1)),
        (&[Some(Wait(two)), Some(Wait(one)), Some(Wait(one))], Some(1)),
        (&[Some(Ask), Some(Wait(two))], Some(1)),
        (&[None, Some(Ask)], Some(1)),
        (&[Some(Open), Some(Unknown), None], None),
        (&[Some(Open), None, Some(Wait(two))], Some(2)),
    ] {
        assert_eq!(choose_pod(pods.iter().copied()), place, "{pods:?}");
    }
}

/// A launcher whose API server has no pods and says which Jobs it is asked to delete.
fn launcher() -> (Launcher, mpsc::UnboundedReceiver<String>, AbortOnDropHandle<()>) {
    let (deleted, deletions) = mpsc::unbounded_channel();
    let delete_job = move |Path(job): Path<String>| async move {
        deleted.send(job).unwrap();
        done()
    };
    let no_pods = || async { list("PodList", &[]) };
    let jobs = "/apis/batch/v1/namespaces/sandboxes/jobs/{job}";
    let clients = clients_before(Router::new().route(jobs, delete(delete_job)).fallback(no_pods));
    let cluster = Cluster::new(&clients, "sandboxes");
    let (index, watch) = PodIndex::start(cluster.pods.clone(), "default");
    let keys = Keys::new([0; 32]);
    let launcher = Launcher::new(cluster, index, keys, "me-1".to_owned(), PATIENCE, None);
    (launcher, deletions, watch)
}

/// Longest wait for a deletion.
const PATIENCE: Duration = Duration::from_mins(1);

/// A warm pod, and the runner's ends of its streams.
fn sandbox(launcher: &Launcher, job: &str) -> (Sandbox, [DuplexStream; 2]) {
    let (stdin, runner_stdin) = tokio::io::duplex(4096);
    let (stdout, runner_stdout) = tokio::io::duplex(4096);
    let sandbox = Sandbox {
        attached: Attachment::over(stdin, stdout, (), launcher.keys.runner("uid")),
        pod: PodRef {
            job: job.to_owned(),
            pod: "pod".to_owned(),
            uid: "uid".to_owned(),
            state: launcher.index.follow(job),
        },
        node: "node".to_owned(),
        env: Vec::new(),
        locks: None,
        dies: Instant::now() + Duration::from_mins(10),
        since: Instant::now(),
    };
    (sandbox, [runner_stdin, runner_stdout])
}

#[tokio::test]
async fn a_pod_that_is_ready_after_the_end_of_its_pool_is_deleted() {
    let (launcher, mut deletions, _watch) = launcher();
    for end in ["closed", "abandoned"] {
        let (pool, refillers) = Pool::start(launcher.clone(), Arc::new(ArcSwap::from_pointee(resolved())));
        // Nothing sweeps it any more.
        drop(refillers);
        if end == "closed" {
            pool.close().await;
        } else {
            pool.abandon();
        }
        // A run that was let in a moment before.
        let kind = PodKind::plain(None);
        assert!(pool.take(&kind, Duration::from_secs(1)).await.is_none());
        let (sandbox, _runner) = sandbox(&launcher, end);
        pool.put(kind, "key".to_owned(), sandbox);
        let job = tokio::time::timeout(PATIENCE, deletions.recv()).await;
        assert_eq!(job.ok().flatten().as_deref(), Some(end));
        assert!(pool.reserve().is_none());
    }
}

/// A runner whose interpreter dies says so, and then waits 2 s for an answer with its stream open.
#[tokio::test]
async fn a_pod_whose_runner_has_said_its_end_is_no_longer_in_the_pool() {
    let (launcher, mut deletions, _watch) = launcher();
    let (pool, refillers) = Pool::start(launcher.clone(), Arc::new(ArcSwap::from_pointee(resolved())));
    drop(refillers);
    let kind = PodKind::plain(None);
    let key = key(&resolved(), &kind);
    let (sandbox, [_stdin, mut stdout]) = sandbox(&launcher, "j");
    pool.put(kind.clone(), key, sandbox);
    let exit = Exit::NotStarted {
        reason: "the interpreter ended before it was ready".to_owned(),
        of_program: Some(false),
    };
    let result = FromRunner::Result(mk_result("", exit));
    let line = RunnerLink::new(&launcher.keys.runner("uid")).encode(&result);
    stdout.write_all(&line).await.unwrap();
    let job = tokio::time::timeout(PATIENCE, deletions.recv()).await;
    assert_eq!(job.ok().flatten().as_deref(), Some("j"));
    let taken = pool.take(&kind, Duration::from_secs(1)).await;
    assert!(taken.is_none(), "a run would lose a try");
}
