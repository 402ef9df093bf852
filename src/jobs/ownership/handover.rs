//! When an owner gives its runtime to the replica that should have it: a function of the observed state.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Peers;

/// How long a runtime must be idle before it moves: the next call of a chain comes sooner.
const QUIET: Duration = Duration::from_secs(5);
/// How long the replicas are the same ones, before a runtime moves: a rollout replaces one in about ten seconds.
const SETTLED: Duration = Duration::from_secs(20);
/// How long an owner has served, before a runtime moves.
const TERM_MIN: Duration = Duration::from_secs(30);
/// How long after an owner gave a runtime away it does so again, with the same replicas: the one that should have it did not
/// keep it.
const AGAIN: Duration = Duration::from_mins(10);

/// The owner's view of its runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerState {
    /// Now.
    pub(super) now: Instant,
    /// Executions that wait, run, or whose callers get the result at this moment.
    pub(super) in_flight: usize,
    /// Whether as many pods are ready as there should be.
    pub(super) pool_stands: bool,
    /// When something was last in flight.
    pub(super) busy_at: Instant,
    /// When the term began.
    pub(super) begun: Instant,
    /// When this process gave the runtime away before.
    pub(super) given_at: Option<Instant>,
}

/// The decision about an owned runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandoverDecision {
    /// Serve on.
    Keep,
    /// Another replica should have it, and nothing is lost by a move.
    Move,
    /// This replica ends, and nothing is in flight.
    Leave,
}

/// Decides.
pub(super) fn decide(peers: &Peers, me: &str, lease: &str, state: &OwnerState) -> HandoverDecision {
    if state.in_flight > 0 {
        return HandoverDecision::Keep;
    }
    if peers.is_leaving() {
        return HandoverDecision::Leave;
    }
    let long_ago = |since: Instant, bound: Duration| state.now.saturating_duration_since(since) >= bound;
    let is_calm = state.pool_stands
        && long_ago(state.busy_at, QUIET)
        && long_ago(peers.since(), SETTLED)
        && long_ago(state.begun, TERM_MIN)
        && state
            .given_at
            .is_none_or(|given| peers.since() > given || long_ago(given, AGAIN));
    if is_calm && peers.better_than(me, lease).is_some() {
        HandoverDecision::Move
    } else {
        HandoverDecision::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::preferred;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_runtime_moves_when_nothing_is_lost_by_it_and_not_too_often() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let names = ["a", "b"];
        let best = preferred("n/r", names).unwrap();
        let other = names.into_iter().find(|name| *name != best).unwrap();
        let calm = OwnerState {
            now: at(1000),
            in_flight: 0,
            pool_stands: true,
            busy_at: at(0),
            begun: at(0),
            given_at: None,
        };
        let mut peers = Peers::default();
        assert_eq!(
            decide(&peers, other, "n/r", &calm),
            HandoverDecision::Keep,
            "nobody knows the replicas"
        );
        peers.see(names.into_iter().map(str::to_owned).collect(), at(900));
        for (case, me, state, expected) in [
            ("calm", other, calm, HandoverDecision::Move),
            ("where it should be", best, calm, HandoverDecision::Keep),
            (
                "a run",
                other,
                OwnerState { in_flight: 1, ..calm },
                HandoverDecision::Keep,
            ),
            (
                "a pool that fills",
                other,
                OwnerState {
                    pool_stands: false,
                    ..calm
                },
                HandoverDecision::Keep,
            ),
            (
                "a run just now",
                other,
                OwnerState {
                    busy_at: at(996),
                    ..calm
                },
                HandoverDecision::Keep,
            ),
            (
                "a term just begun",
                other,
                OwnerState { begun: at(971), ..calm },
                HandoverDecision::Keep,
            ),
            (
                "replicas that change",
                other,
                OwnerState { now: at(919), ..calm },
                HandoverDecision::Keep,
            ),
            (
                "replicas that stand",
                other,
                OwnerState { now: at(920), ..calm },
                HandoverDecision::Move,
            ),
            (
                "it came back",
                other,
                OwnerState {
                    given_at: Some(at(950)),
                    ..calm
                },
                HandoverDecision::Keep,
            ),
            (
                "it came back, and the replicas are others since",
                other,
                OwnerState {
                    given_at: Some(at(899)),
                    ..calm
                },
                HandoverDecision::Move,
            ),
            (
                "it came back long ago",
                other,
                OwnerState {
                    now: at(1550),
                    given_at: Some(at(950)),
                    ..calm
                },
                HandoverDecision::Move,
            ),
        ] {
            assert_eq!(decide(&peers, me, "n/r", &state), expected, "{case}");
        }
        peers.leave();
        let hurried = OwnerState {
            pool_stands: false,
            busy_at: at(1000),
            begun: at(1000),
            ..calm
        };
        assert_eq!(decide(&peers, best, "n/r", &hurried), HandoverDecision::Leave);
        assert_eq!(
            decide(
                &peers,
                best,
                "n/r",
                &OwnerState {
                    in_flight: 1,
                    ..hurried
                }
            ),
            HandoverDecision::Keep
        );
    }
}
