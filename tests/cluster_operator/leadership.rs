//! One leads, the others stand by; a dead leader is followed, a polite one at once.

use std::time::{Duration, Instant};

use crate::controller::Controller;
use crate::objects::{create, document, inline, install_definitions, reads, skills};
use crate::wait::until;

/// A lease of 15 s, a look every 3 s, and a busy machine.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_dead_leader_is_followed_and_a_polite_one_at_once() {
    cluster_support::run("a_dead_leader_is_followed_and_a_polite_one_at_once", async |cluster| {
        install_definitions(cluster).await;
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-lease").await;
        let name = namespace.name();
        let api = skills(&client, name);
        let first = Controller::start(cluster, name, &[name], &[], "leading").await;
        let mut second = Controller::start(cluster, name, &[name], &[], "standing by").await;
        create(&api, "a", inline(&document("a", "x"))).await;
        until(&api, "a", "ready", reads("True/Delivered")).await;
        assert!(
            second.counter("knack_controller_writes_total").abs() < f64::EPSILON,
            "a stand-by writes nothing"
        );
        first.kill();
        let killed = Instant::now();
        second.until_phase("leading").await;
        assert!(killed.elapsed() < FOLLOWED_WITHIN, "{:?}", killed.elapsed());
        create(&api, "b", inline(&document("b", "x"))).await;
        until(&api, "b", "ready", reads("True/Delivered")).await;
        let mut third = Controller::start(cluster, name, &[name], &[], "standing by").await;
        let stopped = Instant::now();
        second.stop();
        third.until_phase("leading").await;
        assert!(
            stopped.elapsed() < Duration::from_secs(12),
            "before the lease ran out: {:?}",
            stopped.elapsed()
        );
        third.stop();
    });
}
