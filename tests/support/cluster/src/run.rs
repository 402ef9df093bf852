//! One test on the cluster: the thread, the runtime, the watch over its progress.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::time::Duration;

use crate::bed::{Cluster, Switches};
use crate::progress::{STILL, forget, stands_still};

#[path = "../../skip.rs"]
mod skipping;

/// Runs a test on the shared cluster, inside its network. `KNACK_NO_CLUSTER=1`: prints `SKIPPED test` and the name instead.
pub fn run(test: &str, body: impl AsyncFnOnce(&'static Cluster) + Send) {
    run_within(test, STILL, body);
}

/// Runs a test in which one step takes longer, for what measures.
pub fn run_within(test: &str, bound: Duration, body: impl AsyncFnOnce(&'static Cluster) + Send) {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    if skipped(test) {
        return;
    }
    // A panic inside leaves the cell empty: every test then says why, not only the first.
    inside(test, bound, SHARED.get_or_init(Cluster::shared), body);
}

/// Runs a test on a cluster of its own, named `name`, that it may break. The cluster ends with the test.
pub fn own(test: &str, name: &str, switches: Switches, body: impl AsyncFnOnce(&Cluster) + Send) {
    if skipped(test) {
        return;
    }
    inside(test, STILL, &Cluster::named(name, switches), body);
}

fn skipped(test: &str) -> bool {
    let skipped = std::env::var_os("KNACK_NO_CLUSTER").is_some_and(|word| word == "1");
    if skipped {
        skip(test, "KNACK_NO_CLUSTER=1");
    }
    skipped
}

/// Says that a test is skipped, as tests without a cluster do.
pub fn skip(test: &str, why: &str) {
    skipping::skip(test, why);
}

/// The namespace is a thread's: a fresh thread enters it before its runtime starts workers.
fn inside<'c>(test: &str, bound: Duration, cluster: &'c Cluster, body: impl AsyncFnOnce(&'c Cluster) + Send) {
    // The first provider counts; others of the same process have installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name(test.to_owned())
            .spawn_scoped(scope, || {
                cluster.enter();
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap()
                    .block_on(async {
                        tokio::select! {
                            () = body(cluster) => {}
                            still = stands_still(bound) => panic!("{test}: {still}"),
                        }
                        forget();
                    });
            })
            .unwrap()
            .join()
    });
    // The test's own message and place, not "a scoped thread panicked".
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
}
