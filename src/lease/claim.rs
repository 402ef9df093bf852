//! The holder of a Lease, and the end of its hold by the own clock.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The holder of a Lease, as far as this process has observed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseClaim {
    /// Identity of the holder, if there is one.
    pub holder: Option<String>,
    /// Where the holder answers, if it says so.
    pub address: Option<String>,
    /// Until when this process holds it without another renewal; `None` if another one does.
    pub mine_until: Option<Instant>,
    /// How often the holder changed: a fencing number.
    pub transitions: i32,
}

impl LeaseClaim {
    /// Whether this process holds the Lease at a moment.
    pub fn is_mine(&self, now: Instant) -> bool {
        self.mine_until.is_some_and(|until| now < until)
    }

    /// Returns when this process does not hold the Lease: it was taken or given back, its last renewal ran out by the
    /// monotonic clock (one that hangs reports nothing), or the task that renews it is gone. At once if it is so already.
    pub async fn lost(mut claim: watch::Receiver<Self>) {
        loop {
            let until = claim.borrow_and_update().mine_until;
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                changed = claim.changed() => if changed.is_err() { return },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn held_for(seconds: u64) -> LeaseClaim {
        LeaseClaim {
            mine_until: Some(Instant::now() + Duration::from_secs(seconds)),
            ..LeaseClaim::default()
        }
    }

    #[test]
    fn a_claim_ends_by_the_own_clock() {
        let claim = held_for(1);
        let until = claim.mine_until.unwrap();
        assert!(claim.is_mine(until.checked_sub(Duration::from_millis(1)).unwrap()));
        assert!(!claim.is_mine(until));
    }

    /// The events of a claim of 10 s, and after how many seconds it is lost.
    #[tokio::test(start_paused = true)]
    async fn a_claim_is_lost_when_it_runs_out_is_taken_or_not_renewed_and_not_before() {
        type Story = fn(watch::Sender<LeaseClaim>) -> tokio::task::JoinHandle<()>;
        let stories: [(&str, Story, u64); 5] = [
            (
                "a renewal that hangs",
                |claim| tokio::spawn(async move { claim.closed().await }),
                10,
            ),
            (
                "renewed after 9 s",
                |claim| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(9)).await;
                        claim.send_replace(held_for(10));
                        claim.closed().await;
                    })
                },
                19,
            ),
            (
                "taken after 4 s",
                |claim| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        claim.send_replace(LeaseClaim::default());
                        claim.closed().await;
                    })
                },
                4,
            ),
            (
                "the task that renews it ends after 3 s",
                |claim| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        drop(claim);
                    })
                },
                3,
            ),
            (
                "never held",
                |claim| {
                    claim.send_replace(LeaseClaim::default());
                    tokio::spawn(async move { claim.closed().await })
                },
                0,
            ),
        ];
        for (what, story, expected) in stories {
            let (claim, seen) = watch::channel(held_for(10));
            let (begun, running) = (Instant::now(), story(claim));
            LeaseClaim::lost(seen).await;
            assert_eq!(begun.elapsed().as_secs(), expected, "{what}");
            running.await.unwrap();
        }
    }
}
