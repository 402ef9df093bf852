//! When an owner gives its runtime to the replica that should have it: a function of what is there.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Peers;

/// How long nothing ran, before a runtime moves: the next call of a chain comes sooner.
const QUIET: Duration = Duration::from_secs(5);
/// How long the replicas are the same ones, before a runtime moves: a rollout replaces one in about ten seconds.
const SETTLED: Duration = Duration::from_secs(20);
/// How long an owner has served, before a runtime moves.
const TERM_MIN: Duration = Duration::from_secs(30);
/// How long after an owner gave a runtime away it does so again, with the same replicas: the one that should have it did not
/// keep it.
const AGAIN: Duration = Duration::from_mins(10);

/// What an owner sees of its runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Now.
    pub(super) now: Instant,
    /// Executions that wait, run, or are told.
    pub(super) in_flight: usize,
    /// Whether as many pods stand ready as shall.
    pub(super) pool_stands: bool,
    /// When something was last in flight.
    pub(super) busy_at: Instant,
    /// When the term began.
    pub(super) begun: Instant,
    /// When this process gave the runtime away before.
    pub(super) given_at: Option<Instant>,
}

/// What to do with a runtime that is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Serve on.
    Keep,
    /// Another replica should have it, and nothing is lost by a move.
    Move,
    /// This replica ends, and nothing is in flight.
    Leave,
}

/// Decides.
pub(super) fn wish(peers: &Peers, me: &str, lease: &str, moment: &Moment) -> Wish {
    if moment.in_flight > 0 {
        return Wish::Keep;
    }
    if peers.is_leaving() {
        return Wish::Leave;
    }
    let long_ago = |since: Instant, bound: Duration| moment.now.saturating_duration_since(since) >= bound;
    let is_calm = moment.pool_stands
        && long_ago(moment.busy_at, QUIET)
        && long_ago(peers.since(), SETTLED)
        && long_ago(moment.begun, TERM_MIN)
        && moment
            .given_at
            .is_none_or(|given| peers.since() > given || long_ago(given, AGAIN));
    if is_calm && peers.better_than(me, lease).is_some() {
        Wish::Move
    } else {
        Wish::Keep
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
        let calm = Moment {
            now: at(1000),
            in_flight: 0,
            pool_stands: true,
            busy_at: at(0),
            begun: at(0),
            given_at: None,
        };
        let mut peers = Peers::default();
        assert_eq!(
            wish(&peers, other, "n/r", &calm),
            Wish::Keep,
            "nobody knows the replicas"
        );
        peers.see(names.into_iter().map(str::to_owned).collect(), at(900));
        for (case, me, moment, expected) in [
            ("calm", other, calm, Wish::Move),
            ("where it should be", best, calm, Wish::Keep),
            ("a run", other, Moment { in_flight: 1, ..calm }, Wish::Keep),
            (
                "a pool that fills",
                other,
                Moment {
                    pool_stands: false,
                    ..calm
                },
                Wish::Keep,
            ),
            (
                "a run just now",
                other,
                Moment {
                    busy_at: at(996),
                    ..calm
                },
                Wish::Keep,
            ),
            (
                "a term just begun",
                other,
                Moment { begun: at(971), ..calm },
                Wish::Keep,
            ),
            (
                "replicas that change",
                other,
                Moment { now: at(919), ..calm },
                Wish::Keep,
            ),
            (
                "replicas that stand",
                other,
                Moment { now: at(920), ..calm },
                Wish::Move,
            ),
            (
                "it came back",
                other,
                Moment {
                    given_at: Some(at(950)),
                    ..calm
                },
                Wish::Keep,
            ),
            (
                "it came back, and the replicas are others since",
                other,
                Moment {
                    given_at: Some(at(899)),
                    ..calm
                },
                Wish::Move,
            ),
            (
                "it came back long ago",
                other,
                Moment {
                    now: at(1550),
                    given_at: Some(at(950)),
                    ..calm
                },
                Wish::Move,
            ),
        ] {
            assert_eq!(wish(&peers, me, "n/r", &moment), expected, "{case}");
        }
        peers.leave();
        let hurried = Moment {
            pool_stands: false,
            busy_at: at(1000),
            begun: at(1000),
            ..calm
        };
        assert_eq!(wish(&peers, best, "n/r", &hurried), Wish::Leave);
        assert_eq!(
            wish(
                &peers,
                best,
                "n/r",
                &Moment {
                    in_flight: 1,
                    ..hurried
                }
            ),
            Wish::Keep
        );
    }
}
