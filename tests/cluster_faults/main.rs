//! What happens to executions when something of the installation or of the cluster goes: replicas of the hub, their
//! network, containerd, kubelet, etcd, the API server, the node, the runtime, its namespace, the certificate.
//!
//! Controller, hubs and gateway are processes of this build. These tests break the shared bed and mend it, so they run one
//! after another, and no other tests beside them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, outside of test functions, fail the test that calls them; figures are printed"
)]

use std::sync::{Mutex, PoisonError};

use cluster_support::Cluster;

mod anew;
mod calls;
#[path = "../cluster_hub/chat.rs"]
mod chat;
mod components;
mod cut;
mod deletion;
mod journals;
mod lost_key;
mod loud;
mod node;
#[path = "../support/port.rs"]
mod port;
mod recovery;
mod replicas;
mod retention;
mod rotation;
mod service;
mod skill_run;
mod spread;
#[path = "../cluster_hub/support.rs"]
#[expect(dead_code, reason = "some of it is for the hub's other tests")]
mod support;
mod undecodable;

/// One test at a time, whatever the number of threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test on the bed, with the bed for itself.
fn alone(test: &str, body: impl AsyncFnOnce(&'static Cluster) + Send) {
    // A test that failed has mended the bed too.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    cluster_support::run(test, body);
}
