//! The end of a server, in one order for all that have a listener.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Stop;

/// How long connections may take to be dropped that were cut: what they held is freed by then.
const CUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The steps after the stop signal, in order.
#[derive(Debug, Clone, Copy)]
pub struct Stopping {
    /// How long new connections are still taken, with `/readyz` failing: until load balancers have noticed.
    pub pause: Duration,
    /// How long what is under way may take then.
    pub drain: Duration,
}

impl Stopping {
    /// For a program that a person starts and ends: there is no load balancer, and a stop should not take minutes.
    pub const AT_ONCE: Self = Self {
        pause: Duration::ZERO,
        drain: Duration::from_secs(25),
    };

    /// Ends a server that serves by [`super::serve`]: `serving` is that future, or its task.
    pub async fn end(self, stops: &Stop, unready: impl FnOnce(), serving: impl Future) {
        self.end_after(stops, unready, async { self.drain }, serving).await;
    }

    /// Ends a server that hands something over before its listener closes. `hand_over` gives how long answers may take from
    /// then on.
    ///
    /// ```text
    /// unready ── leave ── pause ── hand over ── close ── drain ── cut
    /// everything is served on ─────────────────▶│ no new connection
    /// ```
    ///
    /// Connections are served through all steps, and nothing is skipped if `serving` ends early.
    pub async fn end_after(
        self,
        stops: &Stop,
        unready: impl FnOnce(),
        hand_over: impl Future<Output = Duration>,
        serving: impl Future,
    ) {
        let served = CancellationToken::new();
        let serving = async {
            serving.await;
            served.cancel();
            pending::<()>().await;
        };
        let steps = async {
            unready();
            stops.leave.cancel();
            sleep(self.pause).await;
            let begun = Instant::now();
            let drain = hand_over.await;
            stops.close.cancel();
            if timeout(drain, served.cancelled()).await.is_err() {
                let seconds = begun.elapsed().as_secs();
                tracing::warn!("answers still running after {seconds} s were aborted");
                stops.cut.cancel();
                let _ = timeout(CUT_TIMEOUT, served.cancelled()).await;
            }
        };
        tokio::select! { () = steps => {} () = serving => {} }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const STOPPING: Stopping = Stopping {
        pause: Duration::from_secs(5),
        drain: Duration::from_secs(30),
    };
    /// How long the handing over of these tests takes, and how long answers have after it.
    const HAND_OVER: Duration = Duration::from_secs(7);
    const AFTER_HAND_OVER: Duration = Duration::from_secs(3);

    /// What a server does that is asked to end.
    #[derive(Debug, Clone, Copy)]
    enum Server {
        /// It ends so many seconds after it closes.
        Ends(u64),
        /// It ends when it is cut.
        EndsCut,
        /// It does not end.
        Hangs,
        /// It has ended before.
        IsOver,
    }

    async fn serving(server: Server, stops: &Stop) {
        match server {
            Server::Ends(seconds) => {
                stops.close.cancelled().await;
                sleep(Duration::from_secs(seconds)).await;
            }
            Server::EndsCut => stops.cut.cancelled().await,
            Server::Hangs => pending().await,
            Server::IsOver => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_steps_have_one_order_whatever_the_server_does() {
        for (server, with_hand_over, expected) in [
            (Server::Ends(2), false, "0 unready, 0 leave, 5 close, 7 end"),
            (Server::EndsCut, false, "0 unready, 0 leave, 5 close, 35 cut, 35 end"),
            (Server::Hangs, false, "0 unready, 0 leave, 5 close, 35 cut, 40 end"),
            (Server::IsOver, false, "0 unready, 0 leave, 5 close, 5 end"),
            (
                Server::Ends(2),
                true,
                "0 unready, 0 leave, 5 hand over, 12 close, 14 end",
            ),
            (
                Server::EndsCut,
                true,
                "0 unready, 0 leave, 5 hand over, 12 close, 15 cut, 15 end",
            ),
            (
                Server::IsOver,
                true,
                "0 unready, 0 leave, 5 hand over, 12 close, 12 end",
            ),
        ] {
            let (begun, stops, steps) = (Instant::now(), Stop::default(), RefCell::new(Vec::new()));
            let note = |step: &str| {
                let seconds = begun.elapsed().as_secs();
                steps.borrow_mut().push(format!("{seconds} {step}"));
            };
            let unready = || {
                assert!(
                    !stops.leave.is_cancelled(),
                    "not ready before any client is asked to leave"
                );
                note("unready");
            };
            let ended = async {
                if with_hand_over {
                    let hand_over = async {
                        note("hand over");
                        sleep(HAND_OVER).await;
                        AFTER_HAND_OVER
                    };
                    let end = STOPPING.end_after(&stops, unready, hand_over, serving(server, &stops));
                    end.await;
                } else {
                    STOPPING.end(&stops, unready, serving(server, &stops)).await;
                }
                // The last step is noted first.
                tokio::task::yield_now().await;
                note("end");
            };
            let noted = async {
                for (step, token) in [("leave", &stops.leave), ("close", &stops.close), ("cut", &stops.cut)] {
                    token.cancelled().await;
                    note(step);
                }
                pending::<()>().await;
            };
            tokio::select! { biased; () = noted => {} () = ended => {} }
            assert_eq!(steps.borrow().join(", "), expected, "{server:?}, {with_hand_over}");
        }
    }
}
