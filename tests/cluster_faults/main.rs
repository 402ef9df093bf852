//! What happens to executions when something of the installation or of the cluster goes: replicas of the hub, their
//! network, containerd, kubelet, etcd, the API server, the node, the runtime, its namespace, the certificate.
//!
//! Controller, hubs and gateway are processes of this build. Tests that break the shared bed mend it, and run alone.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, outside of test functions, fail the test that calls them; figures are printed"
)]

use std::sync::{PoisonError, RwLock};

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

/// Held by each test; by one that breaks the shared bed, alone.
static BED: RwLock<()> = RwLock::new(());

/// Runs a test that takes parts of the shared bed away, or changes what all of its namespaces share: no other runs beside it.
fn alone(test: &str, body: impl AsyncFnOnce(&'static Cluster) + Send) {
    // A test that failed has mended the bed too.
    let _alone = BED.write().unwrap_or_else(PoisonError::into_inner);
    cluster_support::run(test, body);
}

/// Runs a test that breaks only what it has brought: its hubs, their network, its namespaces.
fn beside(test: &str, body: impl AsyncFnOnce(&'static Cluster) + Send) {
    let _whole = BED.read().unwrap_or_else(PoisonError::into_inner);
    cluster_support::run(test, body);
}
