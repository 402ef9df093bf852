//! What a probe proves, and which pods may run code.

use knack_runner::protocol::Dial;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn live(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn nodes(results: &[(&str, Option<ProbeResult>)], at: Instant) -> Nodes {
    let mut nodes = Nodes::default();
    for (name, result) in results {
        nodes.record_probe((*name).to_owned(), at, *result);
    }
    nodes
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn open_late_isolated_and_a_closed_target_are_distinguished() {
    use DialOutcome::{Connected, Failed, Refused, Silence, Unreachable};
    let out = || DialOutcome::Answered("right".to_owned());
    let wrong = || DialOutcome::Answered("wrong".to_owned());
    let late = Some(ProbeResult::Late(SECOND * 2));
    for (what, control, is_asked, outcomes, expected) in [
        (
            "out to the end",
            true,
            true,
            vec![out(), out(), out()],
            Some(ProbeResult::Open),
        ),
        (
            "out, and no control",
            false,
            true,
            vec![out(), out()],
            Some(ProbeResult::Open),
        ),
        (
            "dropped",
            true,
            false,
            vec![Silence, Silence],
            Some(ProbeResult::Isolated),
        ),
        (
            "refused",
            true,
            false,
            vec![Refused, Refused],
            Some(ProbeResult::Isolated),
        ),
        (
            "no route",
            true,
            false,
            vec![Unreachable, Unreachable],
            Some(ProbeResult::Isolated),
        ),
        (
            "a proxy in the pod takes it",
            true,
            false,
            vec![Connected, Connected],
            Some(ProbeResult::Isolated),
        ),
        (
            "another answers",
            true,
            false,
            vec![wrong(), wrong()],
            Some(ProbeResult::Isolated),
        ),
        (
            "an answer of an older probe",
            true,
            false,
            vec![wrong(), Silence],
            Some(ProbeResult::Isolated),
        ),
        ("the target is closed", false, false, vec![Refused, Refused], None),
        ("the target is away", false, false, vec![Silence, Silence], None),
        ("asked once only", true, false, vec![Silence], None),
        ("nothing was tried", true, false, vec![], None),
        ("it cannot dial", true, false, vec![Failed, Failed], None),
        (
            "the answer is lost, the question came",
            true,
            true,
            vec![Silence, Silence],
            Some(ProbeResult::Open),
        ),
        ("shut after a second", true, true, vec![out(), Silence, Silence], late),
        (
            "not yet up, then late",
            true,
            true,
            vec![out(), Refused, Silence, Silence],
            late,
        ),
        ("shut once", true, true, vec![out(), Silence], Some(ProbeResult::Open)),
        (
            "late, and the target went away",
            false,
            true,
            vec![out(), Silence, Silence],
            Some(ProbeResult::Open),
        ),
        (
            "not up at first, then open",
            true,
            true,
            vec![Silence, out()],
            Some(ProbeResult::Open),
        ),
        (
            "in between",
            true,
            true,
            vec![out(), Silence, out()],
            Some(ProbeResult::Open),
        ),
    ] {
        let dials = (1..).zip(outcomes).map(|(second, outcome)| Dial {
            at_ms: second * 1000,
            outcome,
        });
        let probe = Probe {
            target: "10.0.0.7:9440".parse().unwrap(),
            question: "q".to_owned(),
            dials: dials.collect(),
        };
        assert_eq!(probe_result(control, is_asked, &probe, "right"), expected, "{what}");
    }
}

#[test]
fn a_run_starts_only_where_its_node_was_seen_to_isolate() {
    let begin = Instant::now();
    let late = ProbeResult::Late(SECOND * 3);
    let known = nodes(
        &[
            ("isolated", Some(ProbeResult::Isolated)),
            ("late", Some(late)),
            ("open", Some(ProbeResult::Open)),
            ("mute", None),
        ],
        begin,
    );
    let hours = |hours: u32| begin + EVERY * hours;
    for (what, node, now, since, expected) in [
        ("isolated", "isolated", begin, begin, Clearance::Go),
        ("open", "open", begin, begin, Clearance::Open),
        ("never asked", "new", begin, begin, Clearance::Ask),
        ("asked just now", "mute", begin + SECOND, begin, Clearance::Unknown),
        ("asked a minute ago", "mute", begin + AGAIN, begin, Clearance::Ask),
        ("late, and new", "late", begin, begin, Clearance::Wait(SECOND * 8)),
        (
            "late, and older",
            "late",
            begin + SECOND * 6,
            begin,
            Clearance::Wait(SECOND * 2),
        ),
        ("late, and old enough", "late", begin + SECOND * 8, begin, Clearance::Go),
        ("due, and still good", "isolated", hours(1), begin, Clearance::Go),
        ("too old", "isolated", hours(2), begin, Clearance::Ask),
        ("open, and too old", "open", hours(2), begin, Clearance::Ask),
    ] {
        assert_eq!(known.clearance(node, now, since), expected, "{what}");
    }
}

#[test]
fn the_best_node_comes_first() {
    let mut found = [
        Clearance::Open,
        Clearance::Ask,
        Clearance::Wait(SECOND),
        Clearance::Unknown,
        Clearance::Go,
    ];
    found.sort();
    assert_eq!(found[..3], [Clearance::Go, Clearance::Wait(SECOND), Clearance::Ask]);
}

#[test]
fn every_node_with_sandboxes_is_asked_once_an_hour() {
    let begin = Instant::now();
    let mut nodes = nodes(&[("a", Some(ProbeResult::Isolated)), ("b", None)], begin);
    assert!(nodes.due(begin + AGAIN / 2, &live(&["a", "b"])).is_empty());
    assert_eq!(nodes.due(begin + AGAIN, &live(&["a", "b", "c"])), ["b", "c"]);
    assert_eq!(nodes.due(begin + EVERY, &live(&["a"])), ["a"]);
    let many: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let many = many.into_iter().collect();
    assert_eq!(nodes.due(begin, &many).len(), NODES_PER_CHECK);
}

#[test]
fn a_probe_that_fails_leaves_what_was_known_until_that_is_stale() {
    let begin = Instant::now();
    let mut nodes = nodes(&[("a", Some(ProbeResult::Isolated))], begin);
    let again = begin + EVERY;
    nodes.record_probe("a".to_owned(), again, None);
    assert_eq!(nodes.clearance("a", again, begin), Clearance::Go);
    assert!(nodes.due(again + SECOND, &live(&["a"])).is_empty());
    assert_eq!(nodes.due(again + AGAIN, &live(&["a"])), ["a"]);
    let stale = begin + STALE;
    assert_eq!(nodes.clearance("a", stale, begin), Clearance::Ask);
    assert_eq!(nodes.counts(stale).unknown, ["a"]);
}

#[test]
fn nodes_are_counted_apart_and_open_ones_are_passed_over() {
    let begin = Instant::now();
    let (isolated, open, late) = (ProbeResult::Isolated, ProbeResult::Open, ProbeResult::Late(SECOND));
    for (results, enforces, is_open, avoided) in [
        (vec![], None, false, vec![]),
        (vec![("a", None)], None, false, vec![]),
        (vec![("a", Some(isolated)), ("b", None)], Some(true), false, vec![]),
        (
            vec![("a", Some(isolated)), ("b", Some(open))],
            Some(false),
            false,
            vec!["b"],
        ),
        (vec![("a", Some(late))], Some(false), false, vec![]),
        (vec![("a", None), ("b", Some(open))], Some(false), true, vec!["b"]),
    ] {
        let nodes = nodes(&results, begin);
        let counts = nodes.counts(begin);
        assert_eq!(counts.nodes(), results.len());
        assert_eq!(
            (counts.enforces(), counts.is_open_everywhere()),
            (enforces, is_open),
            "{results:?}"
        );
        assert_eq!(nodes.avoided(begin), avoided, "{results:?}");
    }
}

#[test]
fn a_node_that_is_gone_is_forgotten_within_the_hour() {
    let begin = Instant::now();
    let mut nodes = nodes(&[("a", Some(ProbeResult::Open))], begin);
    nodes.due(begin + EVERY / 2, &live(&[]));
    assert_eq!(nodes.counts(begin + EVERY / 2).open, ["a"]);
    nodes.due(begin + EVERY, &live(&[]));
    assert!(nodes.is_empty());
}
