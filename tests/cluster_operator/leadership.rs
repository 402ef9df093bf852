//! One replica leads, the others are on standby; a dead leader is replaced, one that releases its Lease at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster_support::Cluster;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use knack::lease::{Keeper, Lease, LeaseHolder, LeaseSettings};
use knack_vocabulary::LEASE_CONTROLLER;
use kube::Api;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::objects::{create, document, inline, reads, skills};
use crate::wait::until;

/// A lease of 15 s, a look every 3 s, and a busy machine, on which reading the cluster takes its time, too.
const FOLLOWED_WITHIN: Duration = Duration::from_mins(2);

/// Who holds the Lease of the controllers of an installation.
async fn holder(leases: &Api<LeaseObject>) -> Option<String> {
    leases.get(LEASE_CONTROLLER).await.unwrap().spec?.holder_identity
}

#[test]
fn a_dead_leader_is_followed_and_a_polite_one_at_once() {
    cluster_support::run("a_dead_leader_is_followed_and_a_polite_one_at_once", async |cluster| {
        cluster.install_definitions();
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
        let leases: Api<LeaseObject> = Api::namespaced(client.clone(), name);
        let left = holder(&leases).await;
        assert!(left.is_some(), "the second one leads");
        second.stop();
        // Not by the time that the next one takes to lead, which is the machine's: the Lease is free, or is the next one's already.
        assert_ne!(holder(&leases).await, left, "it gave its Lease back before it ended");
        third.until_phase("leading").await;
        third.stop();
    });
}

/// It cannot have noticed that its Lease ran out; what it would write from then on would be a second leader's.
#[test]
fn a_leader_that_stood_still_ends_when_another_one_has_followed() {
    cluster_support::run(
        "a_leader_that_stood_still_ends_when_another_one_has_followed",
        async |cluster| {
            cluster.install_definitions();
            let namespace = cluster.namespace("operator-still").await;
            let name = namespace.name();
            let mut first = Controller::start(cluster, name, &[name], &[], "leading").await;
            let mut second = Controller::start(cluster, name, &[name], &[], "standing by").await;
            first.signal(Signal::STOP);
            second.until_phase("leading").await;
            first.signal(Signal::CONT);
            let status = first.until_ended().await;
            assert!(!status.success(), "it says that it was no regular end: {status}");
            second.until_phase("leading").await;
            second.stop();
        },
    );
}

/// Of the Lease in the test below: some renewals and its end come while every thread of the runtime is busy.
const SHORT: Duration = Duration::from_secs(3);
/// How often the test is done, each time with a Lease of twice the length: a machine may be so busy, or its API server so slow, that
/// no process could renew the first one in time.
const ATTEMPTS: u32 = 5;

/// Requests that keep every thread of the process busy take no Lease from it; the control shows that they would.
#[test]
fn a_lease_is_kept_while_every_thread_of_its_process_is_busy() {
    cluster_support::run(
        "a_lease_is_kept_while_every_thread_of_its_process_is_busy",
        async |cluster| {
            let namespace = cluster.namespace("operator-busy").await;
            for attempt in 0..ATTEMPTS {
                if is_kept_while_busy(cluster, namespace.name(), attempt).await {
                    return;
                }
                cluster_support::progress(format!("attempt {attempt} has lost its Lease"));
            }
            panic!("no Lease is kept");
        },
    );
}

/// Whether the Lease that a thread of its own keeps was held all the time. The control must be lost.
async fn is_kept_while_busy(cluster: &Cluster, namespace: &str, attempt: u32) -> bool {
    let duration = SHORT * 2_u32.pow(attempt);
    let (apart, among_requests) = (format!("apart-{attempt}"), format!("among-requests-{attempt}"));
    let settings = |name: &str| LeaseSettings {
        duration,
        interval: duration / 3,
        ..LeaseSettings::new(namespace, name, "busy")
    };
    let shutdown = CancellationToken::new();
    let keeper = Keeper::start(cluster.config().await).unwrap();
    let (kept, holder) = keeper.keep(settings(&apart), shutdown.clone());
    let (lease, control) = Lease::new(cluster.client().await, settings(&among_requests));
    let among = tokio::spawn(lease.run(shutdown.clone()));
    let is_mine = |holder: &watch::Receiver<LeaseHolder>| holder.borrow().is_mine(tokio::time::Instant::now());
    for holder in [&holder, &control] {
        let mut holder = holder.clone();
        holder
            .wait_for(|holder| holder.is_mine(tokio::time::Instant::now()))
            .await
            .unwrap();
    }
    // What a thread observes that serves no requests.
    let (lost, done) = (
        Arc::new([AtomicBool::new(false), AtomicBool::new(false)]),
        Arc::new(AtomicBool::new(false)),
    );
    let looks = {
        let (lost, done, holders) = (Arc::clone(&lost), Arc::clone(&done), [holder.clone(), control.clone()]);
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for (lost, holder) in lost.iter().zip(&holders) {
                    lost.fetch_or(!is_mine(holder), Ordering::Relaxed);
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        })
    };
    // More tasks than threads, and none of them lets others run.
    let busy = Instant::now();
    let threads = tokio::runtime::Handle::current().metrics().num_workers() + 1;
    let spinning = (0..threads).map(|_| {
        tokio::spawn(async move {
            while busy.elapsed() < duration * 3 {
                std::hint::spin_loop();
            }
        })
    });
    let spinning: Vec<_> = spinning.collect();
    while busy.elapsed() < duration * 3 {
        std::hint::spin_loop();
    }
    done.store(true, Ordering::Relaxed);
    looks.join().unwrap();
    let [is_lost, is_control_lost] = [0, 1].map(|index| lost[index].load(Ordering::Relaxed));
    assert!(is_control_lost, "the control: one among the requests is not kept");
    for task in spinning {
        task.await.unwrap();
    }
    if !is_lost {
        let leases: Api<LeaseObject> = Api::namespaced(cluster.client().await, namespace);
        let held = leases.get(&apart).await.unwrap().spec.unwrap();
        assert_eq!(
            (held.holder_identity.as_deref(), held.lease_transitions),
            (Some("busy"), Some(1))
        );
    }
    shutdown.cancel();
    kept.await.unwrap();
    among.await.unwrap();
    !is_lost
}
