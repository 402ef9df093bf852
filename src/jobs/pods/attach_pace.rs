//! When a pod is tried to attach to. Pure.
//!
//! Each try is a call that the API server passes to the kubelet, and none counts against its fairness limits: a node
//! that pulls an image must not be called all the time.

use std::time::Duration;

use tokio::time::Instant;

/// When a container that is not reported as running is tried nevertheless, after its pod was bound: with the image on
/// the node it takes 300 ms to run, and the report of it as long again.
const EARLY_MS: [u64; 8] = [150, 230, 310, 390, 480, 590, 730, 900];
/// After those, in case the watch is late.
const LATE: Duration = Duration::from_secs(10);
/// Between two tries at a container that is reported as running: it may take a moment until it can be attached to.
const RUNNING_FIRST: Duration = Duration::from_millis(20);
/// Between two later tries at it.
const RUNNING_LAST: Duration = Duration::from_millis(100);

/// The tries at one pod.
#[derive(Debug)]
pub(super) struct Pace {
    bound: Instant,
    /// Tries while the container was not reported as running.
    early: usize,
    last: Option<Instant>,
    retry: Duration,
}

impl Pace {
    /// The pace for a pod that was bound to its node at `bound`.
    pub(super) fn new(bound: Instant) -> Self {
        Self {
            bound,
            early: 0,
            last: None,
            retry: RUNNING_FIRST,
        }
    }

    /// When the next try is due.
    pub(super) fn due(&self, is_running: bool) -> Instant {
        match (is_running, EARLY_MS.get(self.early), self.last) {
            (true, _, Some(last)) if self.retry > RUNNING_FIRST => last + self.retry,
            (true, _, _) => self.bound,
            (false, Some(after), _) => self.bound + Duration::from_millis(*after),
            (false, None, last) => last.unwrap_or(self.bound) + LATE,
        }
    }

    /// A try has failed now.
    pub(super) fn tried(&mut self, is_running: bool, now: Instant) {
        self.last = Some(now);
        if is_running {
            self.retry = (self.retry * 3 / 2).min(RUNNING_LAST);
        } else {
            self.early += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries from one time to another, where the watch wakes the task every 10 ms.
    fn tries(pace: &mut Pace, from: u64, until: u64, is_running: bool) -> Vec<u64> {
        let begin = pace.bound;
        let mut tries = Vec::new();
        for time in (from..until).step_by(10) {
            let now = begin + Duration::from_millis(time);
            if pace.due(is_running) <= now {
                pace.tried(is_running, now);
                tries.push(time);
            }
        }
        tries
    }

    #[test]
    fn a_container_that_is_being_made_is_tried_ten_times_in_ten_seconds_at_most() {
        let mut pace = Pace::new(Instant::now());
        let early = tries(&mut pace, 0, 10_000, false);
        assert_eq!(early, EARLY_MS, "none before it can run, none while an image is pulled");
        assert_eq!(tries(&mut pace, 10_000, 60_000, false).len(), 5);
    }

    #[test]
    fn one_that_runs_is_tried_at_once_and_then_ten_times_a_second() {
        let mut pace = Pace::new(Instant::now());
        tries(&mut pace, 0, 5_000, false);
        let running = tries(&mut pace, 5_000, 6_000, true);
        assert_eq!(running.first(), Some(&5_000));
        assert!((9..=14).contains(&running.len()), "{running:?}");
    }
}
