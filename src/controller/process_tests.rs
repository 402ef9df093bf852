//! The leader's Lease while this process is busy.

use std::time::{Duration, Instant};

use super::fixture::{lead, settings, start, writes};

/// Longest wait for a few renewals, which come every few seconds however busy this thread is, or never.
const BUSY: Duration = Duration::from_mins(1);
/// How long the leader may take until it has its Lease.
const SOON: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);

/// This test has one thread, and the controller runs on it.
#[tokio::test]
async fn a_leader_renews_its_lease_while_every_thread_of_its_work_is_busy() {
    let (address, stored) = start(|_, _, _| None);
    let (leading, shutdown) = lead(address, settings()).await;
    let begun = Instant::now();
    while writes(&stored) == 0 {
        assert!(begun.elapsed() < SOON && !leading.is_finished(), "it gets the Lease");
        tokio::time::sleep(PAUSE).await;
    }
    let (before, begun) = (writes(&stored), Instant::now());
    while writes(&stored) < before + 2 && begun.elapsed() < BUSY {
        // Not the sleep of the runtime: nothing else gets this thread meanwhile.
        std::thread::park_timeout(PAUSE);
    }
    let renewals = writes(&stored) - before;
    assert!(renewals >= 2, "{renewals} renewals in {:?}", begun.elapsed());
    assert!(!leading.is_finished(), "it leads on");
    shutdown.cancel();
    leading.await.unwrap().unwrap();
    let lease = stored.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease["spec"].get("holderIdentity"), None, "given back at the end");
}
