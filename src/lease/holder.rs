//! The holder of a Lease, and the end of its hold by the own clock.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The holder of a Lease, as far as this process has observed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseHolder {
    /// Identity of the holder, if there is one.
    pub holder: Option<String>,
    /// Where the holder answers, if it says so.
    pub address: Option<String>,
    /// Until when this process holds it without another renewal; `None` if another one does.
    pub mine_until: Option<Instant>,
    /// How often the holder changed: a fencing number.
    pub transitions: i32,
}

impl LeaseHolder {
    /// Whether this process holds the Lease at a moment.
    pub fn is_mine(&self, now: Instant) -> bool {
        self.mine_until.is_some_and(|until| now < until)
    }

    /// Returns when this process does not hold the Lease: it was taken or given back, its last renewal ran out by the
    /// monotonic clock (one that hangs reports nothing), or the task that renews it is gone. At once if it is so already.
    pub async fn lost(mut holder: watch::Receiver<Self>) {
        loop {
            let until = holder.borrow_and_update().mine_until;
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                changed = holder.changed() => if changed.is_err() { return },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn held_for(seconds: u64) -> LeaseHolder {
        LeaseHolder {
            mine_until: Some(Instant::now() + Duration::from_secs(seconds)),
            ..LeaseHolder::default()
        }
    }

    #[test]
    fn a_lease_ends_by_the_own_clock() {
        let holder = held_for(1);
        let until = holder.mine_until.unwrap();
        assert!(holder.is_mine(until.checked_sub(Duration::from_millis(1)).unwrap()));
        assert!(!holder.is_mine(until));
    }

    /// The events of a Lease of 10 s, and after how many seconds it is lost.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_lost_when_it_runs_out_is_taken_or_not_renewed_and_not_before() {
        type Story = fn(watch::Sender<LeaseHolder>) -> tokio::task::JoinHandle<()>;
        let stories: [(&str, Story, u64); 5] = [
            (
                "a renewal that hangs",
                |holder| tokio::spawn(async move { holder.closed().await }),
                10,
            ),
            (
                "renewed after 9 s",
                |holder| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(9)).await;
                        holder.send_replace(held_for(10));
                        holder.closed().await;
                    })
                },
                19,
            ),
            (
                "taken after 4 s",
                |holder| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        holder.send_replace(LeaseHolder::default());
                        holder.closed().await;
                    })
                },
                4,
            ),
            (
                "the task that renews it ends after 3 s",
                |holder| {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        drop(holder);
                    })
                },
                3,
            ),
            (
                "never held",
                |holder| {
                    holder.send_replace(LeaseHolder::default());
                    tokio::spawn(async move { holder.closed().await })
                },
                0,
            ),
        ];
        for (what, story, expected) in stories {
            let (holder, seen) = watch::channel(held_for(10));
            let (begun, running) = (Instant::now(), story(holder));
            LeaseHolder::lost(seen).await;
            assert_eq!(begun.elapsed().as_secs(), expected, "{what}");
            running.await.unwrap();
        }
    }
}
