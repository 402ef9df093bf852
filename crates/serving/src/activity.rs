//! The activity of a connection, and whether it should have done more by now.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::DroppableBody;
use super::{Bounds, Closed};

/// The activity of a connection so far, as a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActivityState {
    /// Requests that are being answered.
    open: usize,
    /// Answers whose reader has stopped. Nothing is left of them but some bytes, for which HTTP/2 waits.
    stalled: usize,
    /// Whether a request came at all.
    served: bool,
    /// Whether it serves several requests at once (HTTP/2), so that bytes between requests need not be a head.
    multiplexed: bool,
    /// Since when no request is open; at first since the connection was accepted, or its handshake ended.
    quiet_since: Instant,
    /// When the first byte came while no request was open.
    heard_at: Option<Instant>,
    /// Since when the socket takes no byte although there are some for it.
    blocked_since: Option<Instant>,
}

impl ActivityState {
    fn accepted(now: Instant) -> Self {
        Self {
            open: 0,
            stalled: 0,
            served: false,
            multiplexed: false,
            quiet_since: now,
            heard_at: None,
            blocked_since: None,
        }
    }

    /// Why the connection is to be closed, if it is.
    fn overdue(&self, now: Instant, bounds: &Bounds) -> Option<Closed> {
        let longer = |since: Option<Instant>, bound: Duration| since.is_some_and(|since| now - since >= bound);
        if longer(self.blocked_since, bounds.stalled) {
            return Some(Closed::Stalled);
        }
        if self.open > 0 {
            return None;
        }
        if self.stalled > 0 && longer(Some(self.quiet_since), bounds.stalled) {
            return Some(Closed::Stalled);
        }
        let head_since = if !self.served {
            Some(self.quiet_since)
        } else if self.multiplexed {
            None
        } else {
            self.heard_at
        };
        if longer(head_since, bounds.head) {
            return Some(Closed::Head);
        }
        (self.served && longer(Some(self.quiet_since), bounds.idle)).then_some(Closed::Idle)
    }
}

/// The state of one connection, shared by what reads and writes it.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<ActivityState>,
    /// Bodies of a multiplexed connection: each has its own reader, which may stop while the others continue.
    bodies: Mutex<Vec<Weak<DroppableBody>>>,
}

/// One request that is being answered; over when dropped.
#[derive(Debug)]
pub(super) struct Open {
    activity: Arc<Activity>,
    /// Its reader has stopped.
    is_stalled: bool,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ActivityState::accepted(now)),
            bodies: Mutex::default(),
        })
    }

    /// The TLS handshake is complete: what it took is not taken from the time for the first head.
    pub(super) fn shaken(&self) {
        self.lock().quiet_since = Instant::now();
    }

    /// A request's head is complete.
    pub(super) fn open(self: &Arc<Self>, multiplexed: bool) -> Open {
        let mut state = self.lock();
        state.open += 1;
        state.served = true;
        state.multiplexed |= multiplexed;
        state.heard_at = None;
        Open {
            activity: Arc::clone(self),
            is_stalled: false,
        }
    }

    /// Bytes came.
    pub(super) fn received(&self) {
        let mut state = self.lock();
        if state.open == 0 && state.heard_at.is_none() {
            state.heard_at = Some(Instant::now());
        }
    }

    /// The socket took bytes.
    pub(super) fn wrote(&self) {
        let mut state = self.lock();
        if state.blocked_since.is_some() {
            state.blocked_since = None;
        }
    }

    /// The socket takes no more bytes.
    pub(super) fn blocked(&self) {
        let mut state = self.lock();
        if state.blocked_since.is_none() {
            state.blocked_since = Some(Instant::now());
        }
    }

    /// Watches the body of one of several answers.
    pub(super) fn watch(&self, body: &Arc<DroppableBody>) {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.retain(|body| body.strong_count() > 0);
        bodies.push(Arc::downgrade(body));
    }

    /// Why the connection must be closed, if it must. Bodies whose reader has stopped are dropped here.
    pub(super) fn check(&self, bounds: &Bounds) -> Option<Closed> {
        let now = Instant::now();
        for body in &*self.bodies.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Some(body) = body.upgrade() {
                body.drop_if_stalled(now, bounds.stalled);
            }
        }
        self.lock().overdue(now, bounds)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActivityState {
    /// One request is not being answered any more.
    fn over(&mut self) {
        self.open -= 1;
        if self.open == 0 {
            self.quiet_since = Instant::now();
        }
    }
}

impl Open {
    /// The reader has stopped: the answer does not keep its connection open any more.
    pub(super) fn stalled(&mut self) {
        if !std::mem::replace(&mut self.is_stalled, true) {
            let mut state = self.activity.lock();
            state.over();
            state.stalled += 1;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        if self.is_stalled {
            state.stalled -= 1;
        } else {
            state.over();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_head_has_its_whole_time_after_a_slow_handshake() {
        let bounds = Bounds {
            connections: 1,
            connections_per_peer: 1,
            head: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            stalled: Duration::from_secs(30),
            http2: false,
        };
        let activity = Activity::new(Instant::now());
        tokio::time::advance(Duration::from_secs(9)).await;
        activity.shaken();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(activity.check(&bounds), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(activity.check(&bounds), Some(Closed::Head));
    }

    #[test]
    fn a_connection_is_closed_for_what_it_does_not_do_in_time() {
        let bounds = Bounds {
            connections: 1,
            connections_per_peer: 1,
            head: Duration::from_secs(10),
            idle: Duration::from_mins(1),
            stalled: Duration::from_secs(30),
            http2: true,
        };
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let new = ActivityState::accepted(begin);
        let served = ActivityState { served: true, ..new };
        let received = ActivityState {
            heard_at: Some(at(20)),
            ..served
        };
        let open = ActivityState { open: 1, ..served };
        let stalled = ActivityState { stalled: 1, ..served };
        for (what, state, now, expected) in [
            ("a new connection in time", new, 9, None),
            ("a new connection without a request", new, 10, Some(Closed::Head)),
            ("between requests", served, 59, None),
            ("idle for too long", served, 60, Some(Closed::Idle)),
            ("half a head in time", received, 29, None),
            ("half a head for too long", received, 30, Some(Closed::Head)),
            (
                "frames between requests are no head",
                ActivityState {
                    multiplexed: true,
                    ..received
                },
                59,
                None,
            ),
            ("an answer may take its time", open, 10_000, None),
            ("an answer that was dropped", stalled, 29, None),
            (
                "nothing but an answer that was dropped",
                stalled,
                30,
                Some(Closed::Stalled),
            ),
            (
                "an answer beside one that was dropped",
                ActivityState { stalled: 1, ..open },
                10_000,
                None,
            ),
            (
                "a reader that stops",
                ActivityState {
                    blocked_since: Some(at(100)),
                    ..open
                },
                130,
                Some(Closed::Stalled),
            ),
            (
                "a reader that pauses",
                ActivityState {
                    blocked_since: Some(at(100)),
                    ..open
                },
                129,
                None,
            ),
        ] {
            assert_eq!(state.overdue(at(now), &bounds), expected, "{what}");
        }
    }
}
