use std::collections::BTreeMap;

use super::*;

/// Names as a Deployment makes them.
fn replicas(set: u32, count: u32) -> Vec<String> {
    let name = |index| format!("knack-hub-7d4b9c{:04x}-{:05x}", set * 7919, set * 31 + index * 7877);
    (0..count).map(name).collect()
}

fn runtimes(count: u32) -> Vec<String> {
    (0..count)
        .map(|index| format!("team-{}/runtime-{index}", index % 20))
        .collect()
}

/// The owner of each runtime.
fn owners<'r>(runtimes: &[String], replicas: &'r [String]) -> Vec<&'r str> {
    let owner = |runtime: &String| preferred(runtime, replicas.iter().map(String::as_str)).unwrap();
    runtimes.iter().map(owner).collect()
}

/// How far the largest or smallest part is from an even one, per cent.
fn unevenness(owners: &[&str], replicas: &[String]) -> f64 {
    let mut parts: BTreeMap<&str, f64> = replicas.iter().map(|name| (name.as_str(), 0.0)).collect();
    for owner in owners {
        *parts.get_mut(owner).unwrap() += 1.0;
    }
    let count = |number: usize| f64::from(u32::try_from(number).unwrap());
    let even = count(owners.len()) / count(replicas.len());
    parts
        .values()
        .map(|part| 100.0 * (part - even).abs() / even)
        .fold(0.0, f64::max)
}

#[test]
fn two_hundred_runtimes_are_spread_evenly_over_three_replicas() {
    let runtimes = runtimes(200);
    let all: Vec<f64> = (1..=100)
        .map(|set| replicas(set, 3))
        .map(|names| unevenness(&owners(&runtimes, &names), &names))
        .collect();
    let within = all.iter().filter(|per_cent| **per_cent <= 20.0).count();
    let worst = all.iter().copied().fold(0.0, f64::max);
    let mean = all.iter().sum::<f64>() / 100.0;
    // Places are drawn, not dealt: a part is 67 with a standard deviation of 6.7.
    let measured = format!("mean {mean:.1} %, worst {worst:.1} %, {within} of 100 sets of names within 20 %");
    assert!(mean <= 13.0 && worst <= 30.0 && within >= 85, "{measured}");
}

#[test]
fn only_what_a_replica_held_moves_when_it_goes_and_only_what_it_wins_when_it_comes() {
    let (runtimes, three) = (runtimes(200), replicas(3, 3));
    for gone in 0..three.len() {
        let mut two = three.clone();
        let gone = two.remove(gone);
        let (before, after) = (owners(&runtimes, &three), owners(&runtimes, &two));
        let mut moved = 0;
        for (before, after) in before.iter().zip(&after) {
            if *before == gone {
                moved += 1;
                assert_ne!(*after, gone);
            } else {
                assert_eq!(before, after);
            }
        }
        assert!((40..=94).contains(&moved), "{moved}");
    }
}

#[test]
fn the_winner_does_not_depend_on_the_replica_or_the_order() {
    let three = replicas(1, 3);
    for runtime in runtimes(50) {
        let forth = preferred(&runtime, three.iter().map(String::as_str));
        let back = preferred(&runtime, three.iter().rev().map(String::as_str));
        assert_eq!(forth, back);
    }
    assert_eq!(preferred("n/r", []), None);
}

#[test]
fn whose_turn_it_is() {
    let names = ["a", "b", "c"];
    let best = preferred("n/r", names).unwrap();
    let rest: Vec<&str> = names.into_iter().filter(|name| *name != best).collect();
    let second = preferred("n/r", rest.iter().copied()).unwrap();
    let last = rest.into_iter().find(|name| *name != second).unwrap();
    let peers = |ready: &[&str]| {
        let mut peers = Peers::default();
        assert!(peers.see(ready.iter().map(|name| (*name).to_owned()).collect(), Instant::now()));
        peers
    };
    for (ready, me, gone, expected) in [
        (&names[..], best, None, Precedence::First),
        (&names, second, None, Precedence::Later),
        (&names, last, None, Precedence::Later),
        // A killed replica is not waited for, though it still counts as ready.
        (&names, second, Some(best), Precedence::First),
        (&names, last, Some(best), Precedence::Later),
        // It was this very replica, restarted.
        (&names, best, Some(best), Precedence::First),
        // Not ready yet: it lets the others go first.
        (&[second][..], best, None, Precedence::Later),
        (&[last], best, Some(last), Precedence::First),
        (&[], last, None, Precedence::First),
    ] {
        assert_eq!(
            peers(ready).precedence(me, "n/r", gone),
            expected,
            "{ready:?} {me} {gone:?}"
        );
    }
    let mut leaving = peers(&names);
    leaving.leave();
    assert_eq!(leaving.precedence(best, "n/r", None), Precedence::Never);
    assert_eq!(Peers::default().precedence("x", "n/r", None), Precedence::First);
    assert_eq!(Peers::default().better_than("x", "n/r"), None);
    assert_eq!(peers(&names).better_than(best, "n/r"), None);
    assert_eq!(peers(&names).better_than(last, "n/r"), Some(best));
}

#[test]
fn the_time_counts_from_the_last_change() {
    let (start, mut peers) = (Instant::now(), Peers::default());
    let later = start + std::time::Duration::from_secs(5);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert!(peers.see(set(&["a"]), start));
    assert!(!peers.see(set(&["a"]), later));
    assert_eq!(peers.since(), start);
    assert!(peers.see(set(&[]), later));
    assert_eq!(peers.since(), later);
}

#[test]
fn a_restarted_replica_is_another_holder_and_the_same_replica() {
    let (first, second) = (identity_of("knack-hub-abc-x1"), identity_of("knack-hub-abc-x1"));
    assert_ne!(first, second);
    assert_eq!(replica_of(&first), "knack-hub-abc-x1");
    assert_eq!(replica_of(&first), replica_of(&second));
}
