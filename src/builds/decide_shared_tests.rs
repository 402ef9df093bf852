//! Tests of environments that several namespaces need, and of those whose content cannot be read.

use super::*;

/// The plan while some content is unread, where nothing is built.
fn decide_beside(wanted: &NeededEnvironments, known: &EnvironmentStatuses, unread: &Unread, now: i64) -> BuildPlan {
    let facts = BuildFacts {
        wanted,
        known,
        builds: &BTreeMap::new(),
        unpulled: &BTreeMap::new(),
        now,
    };
    facts.decide(&StartOrder::default(), unread)
}

/// So many keys of environments that these namespaces need.
fn many(namespaces: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{namespaces}/{number:04}")).collect()
}

#[test]
fn an_environment_that_a_greedy_namespace_needs_too_has_the_turn_of_the_modest_one() {
    let names = many("greedy", 500);
    let others = ["modest+greedy/1", "modest/2", "other/1"];
    let keys: Vec<&str> = names.iter().map(String::as_str).chain(others).collect();
    let all = wanted(&keys);
    for (running, expected) in [
        (
            &["greedy/0000", "greedy/0001"][..],
            &[("modest+greedy/1", "modest"), ("other/1", "other")][..],
        ),
        // It counts for the one with the fewest: none is first in turn with as many.
        (
            &["greedy/0000", "modest+greedy/1"],
            &[("greedy/0001", "greedy"), ("other/1", "other")],
        ),
        (
            &["greedy/0000", "greedy/0001", "modest+greedy/1"],
            &[("other/1", "other")],
        ),
        (
            &["greedy/0000", "other/1", "modest+greedy/1"],
            &[("greedy/0001", "greedy")],
        ),
    ] {
        let builds = running.iter().map(|key| ((*key).into(), Build::Running)).collect();
        let none = EnvironmentStatuses::default();
        let plan = decide(&all, &none, &builds, &BTreeMap::new(), NOW);
        let starts: Vec<(&str, &str)> = plan
            .start
            .iter()
            .map(|key| (key.as_str(), plan.turns[key].as_str()))
            .collect();
        assert_eq!(starts, expected, "{running:?}");
        assert_eq!(plan.turns.len(), plan.start.len());
    }
}

#[test]
fn namespaces_that_need_all_together_have_no_more_than_their_shares() {
    let names = many("a+b", 99);
    let keys: Vec<&str> = names.iter().map(String::as_str).chain(["c/1", "d/1"]).collect();
    let builds = [&names[0], &names[1]]
        .map(|key| (key.as_str().into(), Build::Running))
        .into();
    let none = EnvironmentStatuses::default();
    let plan = decide(&wanted(&keys), &none, &builds, &BTreeMap::new(), NOW);
    assert_eq!(started(&plan), ["c/1", "d/1"]);
}

#[test]
fn the_status_of_a_shared_environment_is_not_dropped_with_those_of_a_greedy_namespace() {
    let names = many("greedy", MAX_STATUSES);
    let keys: Vec<&str> = names.iter().map(String::as_str).chain(["modest+greedy/1"]).collect();
    let ready = names.iter().map(|key| (key.as_str().into(), status(State::Ready, 100)));
    let known = EnvironmentStatuses(ready.collect());
    let plan = decide(&wanted(&keys), &known, &BTreeMap::new(), &BTreeMap::new(), NOW);
    assert_eq!(plan.statuses.0.len(), MAX_STATUSES);
    assert!(plan.statuses.get(&"modest+greedy/1".into()).is_some());
    assert_eq!(started(&plan), ["modest+greedy/1"]);
}

#[test]
fn an_environment_waits_only_while_none_of_its_skills_can_be_read() {
    let all = wanted(&["a+b/1"]);
    let askers: Vec<&Asker> = all[&"a+b/1".into()].sources().collect();
    let mut unread = Unread::default();
    let starts = |unread: &Unread| {
        decide_beside(&all, &EnvironmentStatuses::default(), unread, NOW)
            .start
            .len()
    };
    unread.failed(askers[0], NOW);
    assert_eq!(starts(&unread), 1);
    unread.failed(askers[1], NOW);
    assert_eq!(starts(&unread), 0);
}

/// As many as there are builds at once: with a place at every reconcile nothing else of their namespace would be built.
#[test]
fn skills_whose_content_cannot_be_read_leave_their_turns_to_others() {
    let mut all = wanted(&["a1", "a2", "a3", "a4", "z"]);
    for (key, asked) in &mut all {
        for asker in asked.askers.values_mut().flatten() {
            asker.skill.name = key.to_string();
        }
    }
    let (mut known, mut unread) = (EnvironmentStatuses::default(), Unread::default());
    let reconcile = |known: &EnvironmentStatuses, unread: &Unread, now| decide_beside(&all, known, unread, now);
    let plan = reconcile(&known, &unread, NOW);
    assert_eq!(started(&plan), ["a1", "a2", "a3", "a4"]);
    known = plan.statuses;
    for key in &plan.start {
        let why = Refusal::Unread(format!("the build waits for the content of {key}"));
        known.0.insert(key.clone(), not_started(None, &why, NOW));
        for asker in all[key].sources() {
            unread.failed(asker, NOW);
        }
    }
    let plan = reconcile(&known, &unread, NOW + 1);
    assert_eq!(started(&plan), ["z"]);
    let kept = plan.statuses.get(&"a1".into()).unwrap();
    assert_eq!(
        (kept.state, kept.message.as_str()),
        (State::Resolving, "the build waits for the content of a1")
    );
    assert_eq!(started(&reconcile(&known, &unread, NOW + 2)), ["a1", "a2", "a3", "a4"]);
}
