//! Which pod is taken, and what becomes of one that comes too late.

use axum::Router;
use axum::extract::Path;
use axum::routing::delete;
use tokio::sync::mpsc;

use super::*;
use crate::fixture::{done, list};
use crate::jobs::attach::Attachment;
use crate::jobs::cluster::Cluster;
use crate::jobs::keys::Keys;
use crate::jobs::pods::PodIndex;
use crate::jobs::recovery::tests::clients_before;
use crate::jobs::spec::tests::resolved;

#[tokio::test]
async fn a_pod_that_has_died_is_not_given_to_a_run_that_takes_it_now() {
    use std::future::{pending, ready};
    let (take, taken) = oneshot::channel();
    take.send(()).unwrap();
    assert!(!lasts(taken, ready(())).await);
    let (take, taken) = oneshot::channel();
    take.send(()).unwrap();
    assert!(lasts(taken, pending()).await);
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
        assert_eq!(best(pods.iter().copied()), place, "{pods:?}");
    }
}

#[tokio::test]
async fn a_pod_that_is_ready_after_the_end_of_its_pool_is_deleted() {
    let (deleted, mut deletions) = mpsc::unbounded_channel();
    let delete_job = move |Path(job): Path<String>| async move {
        deleted.send(job).unwrap();
        done()
    };
    let no_pods = || async { list("PodList", &[]) };
    let jobs = "/apis/batch/v1/namespaces/sandboxes/jobs/{job}";
    let clients = clients_before(Router::new().route(jobs, delete(delete_job)).fallback(no_pods));
    let cluster = Cluster::new(&clients, "sandboxes");
    let (index, _watch) = PodIndex::start(cluster.pods.clone(), "default");
    let keys = Keys::new([0; 32]);
    let patience = Duration::from_secs(5);
    let launcher = Launcher::new(
        cluster,
        Arc::clone(&index),
        keys.clone(),
        "me-1".to_owned(),
        patience,
        None,
    );
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
        let (stdin, _runner_stdin) = tokio::io::duplex(64);
        let (stdout, _runner_stdout) = tokio::io::duplex(64);
        let sandbox = Sandbox {
            attached: Attachment::over(stdin, stdout, (), keys.runner("uid")),
            job: end.to_owned(),
            pod: "pod".to_owned(),
            uid: "uid".to_owned(),
            node: "node".to_owned(),
            env: Vec::new(),
            state: index.follow(end),
            locks: None,
            dies: Instant::now() + Duration::from_mins(10),
            since: Instant::now(),
        };
        pool.put(kind, "key".to_owned(), sandbox);
        let job = tokio::time::timeout(patience, deletions.recv()).await;
        assert_eq!(job.ok().flatten().as_deref(), Some(end));
        assert!(pool.reserve().is_none());
    }
}
