//! Tests of what is built next.

use knack_hub_api::RuntimeName;
use knack_packages::environment::EnvironmentImage;
use knack_skill::model::SkillRef;

use super::*;
use crate::builds::wanted::Asker;
use crate::selection::EnvironmentRequest;

#[path = "decide_shared_tests.rs"]
mod shared;

const NOW: i64 = 1_000_000_000;

/// The skills that need the environment of a key: `s` of each of the namespaces before its slash (`a+b/1`), else of `n`.
fn askers(key: &str) -> BTreeMap<String, Vec<Asker>> {
    let namespaces = key.split_once('/').map_or("n", |(namespaces, _)| namespaces);
    let of_one = |namespace: &str| {
        let asker = Asker {
            skill: SkillRef {
                namespace: namespace.to_owned(),
                name: "s".to_owned(),
            },
            artifact: "a".to_owned(),
        };
        (namespace.to_owned(), vec![asker])
    };
    namespaces.split('+').map(of_one).collect()
}

fn wanted(keys: &[&str]) -> NeededEnvironments {
    let one = |key: &str| NeededEnvironment {
        asked: EnvironmentRequest {
            key: key.into(),
            base: "b@sha256:0".to_owned(),
            constraints: Vec::new(),
            exclude_newer: None,
        },
        askers: askers(key),
        skills: Vec::new(),
        digest: "d".to_owned(),
        is_listed: true,
        is_earlier: key.starts_with("earlier"),
        runtimes: vec![RuntimeName::new("n", "r")],
    };
    keys.iter().map(|key| ((*key).into(), one(key))).collect()
}

fn status(state: State, age: i64) -> EnvironmentStatus {
    EnvironmentStatus {
        state,
        message: "before".to_owned(),
        environment: (state == State::Ready).then(|| EnvironmentImage {
            image: format!("r@sha256:{}", "a".repeat(64)),
            home: "/e".to_owned(),
        }),
        is_partial: false,
        since: NOW - age,
        used: NOW - age,
    }
}

/// The plan where no namespace had a build before.
fn decide(
    wanted: &NeededEnvironments,
    known: &EnvironmentStatuses,
    builds: &BTreeMap<EnvironmentKey, Build>,
    unpulled: &BTreeMap<String, i64>,
    now: i64,
) -> BuildPlan {
    let facts = BuildFacts {
        wanted,
        known,
        builds,
        unpulled,
        now,
    };
    facts.decide(&StartOrder::default(), &Unread::default())
}

/// The keys of builds that are started.
fn started(plan: &BuildPlan) -> Vec<&str> {
    plan.start.iter().map(EnvironmentKey::as_str).collect()
}

fn ended(state: State) -> Build {
    Build::Ended(Outcome {
        environment: status(state, 0).environment,
        ..Outcome::failed(state, "after")
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_environment_goes_from_asked_for_to_built() {
    use State::{Building, Conflict, Failed, IndexUnreachable, NoWheel, Ready, Resolving};
    for (what, is_wanted, before, build, starts, after) in [
        (
            "new",
            true,
            None,
            None,
            true,
            Some((Building, "the packages are being installed")),
        ),
        (
            "runs",
            true,
            Some(status(Building, 9)),
            Some(Build::Running),
            false,
            Some((Building, "the packages are being installed")),
        ),
        (
            "is ready",
            true,
            Some(status(Building, 9)),
            Some(ended(Ready)),
            false,
            Some((Ready, "after")),
        ),
        (
            "stays ready",
            true,
            Some(status(Ready, 9)),
            None,
            false,
            Some((Ready, "before")),
        ),
        (
            "fails",
            true,
            Some(status(Building, 9)),
            Some(ended(NoWheel)),
            false,
            Some((NoWheel, "after")),
        ),
        (
            "its Job was deleted",
            true,
            Some(status(Building, 9)),
            None,
            true,
            Some((Building, "the packages are being installed")),
        ),
        (
            "waited",
            true,
            Some(status(Resolving, 9)),
            None,
            true,
            Some((Building, "the packages are being installed")),
        ),
        (
            "failed lately",
            true,
            Some(status(IndexUnreachable, RETRY_SECONDS - 1)),
            None,
            false,
            Some((IndexUnreachable, "before")),
        ),
        (
            "is tried again",
            true,
            Some(status(IndexUnreachable, RETRY_SECONDS)),
            None,
            true,
            Some((IndexUnreachable, "before")),
        ),
        (
            "keeps its reason meanwhile",
            true,
            Some(status(Failed, 999)),
            Some(Build::Running),
            false,
            Some((Failed, "before")),
        ),
        (
            "lasts",
            true,
            Some(status(Conflict, RETRY_SECONDS)),
            None,
            false,
            Some((Conflict, "before")),
        ),
        (
            "lasts for hours",
            true,
            Some(status(Conflict, RETRY_LASTING_SECONDS)),
            None,
            true,
            Some((Conflict, "before")),
        ),
        (
            "is kept for a while",
            false,
            Some(status(Ready, UNUSED_SECONDS - 1)),
            None,
            false,
            Some((Ready, "before")),
        ),
        (
            "is forgotten",
            false,
            Some(status(Ready, UNUSED_SECONDS)),
            None,
            false,
            None,
        ),
        (
            "is not wanted any more",
            false,
            Some(status(NoWheel, 9)),
            None,
            false,
            None,
        ),
        ("was never wanted", false, None, Some(Build::Running), false, None),
    ] {
        let known = EnvironmentStatuses(before.into_iter().map(|status| ("k".into(), status)).collect());
        let is_ended = matches!(build, Some(Build::Ended(_)));
        let builds = build.into_iter().map(|build| ("k".into(), build)).collect();
        let keys: &[&str] = if is_wanted { &["k"] } else { &[] };
        let plan = decide(&wanted(keys), &known, &builds, &BTreeMap::new(), NOW);
        assert_eq!(!plan.start.is_empty(), starts, "{what}");
        assert_eq!(!plan.remove.is_empty(), is_ended, "{what}");
        let status = plan.statuses.get(&"k".into());
        let actual = status.map(|status| (status.state, status.message.as_str()));
        assert_eq!(actual, after, "{what}");
        let is_ready = status.is_some_and(|status| status.environment.is_some());
        assert_eq!(is_ready, after.is_some_and(|(state, _)| state == Ready), "{what}");
    }
}

#[test]
fn what_earlier_revisions_have_stays_and_nothing_is_made_for_them() {
    use State::{Building, NoWheel, Ready};
    let old = UNUSED_SECONDS + 1;
    for (what, before, build, after) in [
        ("it serves, however long", Some(status(Ready, old)), None, Some(Ready)),
        ("it failed", Some(status(NoWheel, old)), None, Some(NoWheel)),
        ("it was never made", None, None, None),
        ("its Job is gone", Some(status(Building, 9)), None, None),
        (
            "it is being made",
            Some(status(Building, 9)),
            Some(Build::Running),
            Some(Building),
        ),
        ("it came", Some(status(Building, 9)), Some(ended(Ready)), Some(Ready)),
    ] {
        let key = || EnvironmentKey::from("earlier");
        let known = EnvironmentStatuses(before.into_iter().map(|status| (key(), status)).collect());
        let builds = build.into_iter().map(|build| (key(), build)).collect();
        let plan = decide(&wanted(&["earlier"]), &known, &builds, &BTreeMap::new(), NOW);
        assert_eq!(plan.start, [], "{what}");
        assert_eq!(
            plan.statuses.get(&"earlier".into()).map(|status| status.state),
            after,
            "{what}"
        );
    }
}

#[test]
fn what_is_written_settles() {
    let (all, none) = (wanted(&["a", "b"]), BTreeMap::new());
    let first = decide(&all, &EnvironmentStatuses::default(), &none, &BTreeMap::new(), NOW);
    let running = first.start.iter().map(|key| (key.clone(), Build::Running)).collect();
    let second = decide(&all, &first.statuses, &running, &BTreeMap::new(), NOW + 5);
    assert_eq!((second.statuses, second.start), (first.statuses, vec![]));
}

#[test]
fn few_are_built_at_once_and_few_are_known() {
    let names: Vec<String> = (0..MAX_STATUSES + 10).map(|number| format!("k{number:04}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let builds = BTreeMap::from([("k0000".into(), Build::Running)]);
    let plan = decide(
        &wanted(&keys),
        &EnvironmentStatuses::default(),
        &builds,
        &BTreeMap::new(),
        NOW,
    );
    assert!(plan.start.len() < BUILDS_AT_ONCE);
    assert_eq!(plan.statuses.0.len(), MAX_STATUSES);
    let waiting = plan
        .statuses
        .0
        .values()
        .filter(|status| status.state == State::Resolving)
        .count();
    assert!(waiting >= MAX_STATUSES - BUILDS_AT_ONCE - 10, "{waiting}");
}

#[test]
fn a_namespace_that_asks_for_hundreds_keeps_no_other_one_waiting() {
    let names: Vec<String> = (0..500).map(|number| format!("greedy/{number:03}")).collect();
    let keys: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .chain(["modest/1", "modest/2", "other/1"])
        .collect();
    let builds = |keys: &[&str]| keys.iter().map(|key| ((*key).into(), Build::Running)).collect();
    for (running, expected) in [
        (&[][..], &["greedy/000", "greedy/001", "modest/1", "other/1"][..]),
        (&["greedy/000"], &["greedy/001", "modest/1", "other/1"]),
        (&["greedy/000", "greedy/001", "greedy/002"], &["modest/1"]),
        (&["greedy/000", "greedy/001", "modest/1", "other/1"], &[]),
    ] {
        let plan = decide(
            &wanted(&keys),
            &EnvironmentStatuses::default(),
            &builds(running),
            &BTreeMap::new(),
            NOW,
        );
        assert_eq!(started(&plan), expected, "{running:?}");
    }
}

#[test]
fn several_namespaces_that_ask_for_hundreds_keep_no_other_one_waiting() {
    let greedy = ["a", "b", "c", "d"];
    let of_greedy = greedy
        .iter()
        .flat_map(|name| (0..99).map(move |number| format!("{name}/{number:03}")));
    let names: Vec<String> = of_greedy
        .chain(["team-x/1".to_owned(), "team-y/1".to_owned()])
        .collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = wanted(&keys);
    let (mut known, mut start_order) = (EnvironmentStatuses::default(), StartOrder::default());
    let mut running: VecDeque<EnvironmentKey> = VecDeque::new();
    let mut started: Vec<EnvironmentKey> = Vec::new();
    // At each reconcile the build that runs longest ends.
    for reconcile in 0..12 {
        let over = (running.len() == BUILDS_AT_ONCE).then(|| running.pop_front()).flatten();
        let mut builds: BTreeMap<EnvironmentKey, Build> =
            running.iter().map(|key| (key.clone(), Build::Running)).collect();
        builds.extend(over.map(|key| (key, ended(State::Ready))));
        let facts = BuildFacts {
            wanted: &all,
            known: &known,
            builds: &builds,
            unpulled: &BTreeMap::new(),
            now: NOW + reconcile,
        };
        let plan = facts.decide(&start_order, &Unread::default());
        for key in &plan.start {
            start_order.take(&plan.turns[key]);
        }
        running.extend(plan.start.iter().cloned());
        started.extend(plan.start);
        known = plan.statuses;
    }
    let namespaces: Vec<&str> = started
        .iter()
        .filter_map(|key| key.as_str().split('/').next())
        .collect();
    assert_eq!(namespaces[..6], ["a", "b", "c", "d", "team-x", "team-y"]);
    assert_eq!(namespaces[6..14], ["a", "b", "c", "d", "a", "b", "c", "d"], "in turns");
}

#[test]
fn who_asked_first_has_the_first_turn() {
    let all = wanted(&["a/1", "b/1", "c/1", "d/1", "e/1", "f/1"]);
    let waits = |key: &str, age| (key.into(), status(State::Resolving, age));
    let known = EnvironmentStatuses([waits("f/1", 9), waits("e/1", 8), waits("d/1", 7), waits("c/1", 6)].into());
    let plan = decide(&all, &known, &BTreeMap::new(), &BTreeMap::new(), NOW);
    assert_eq!(started(&plan), ["c/1", "d/1", "e/1", "f/1"]);
}

#[test]
fn the_order_of_starts_is_bounded() {
    let mut start_order = StartOrder::default();
    for number in 0..2 * MAX_NAMESPACES {
        start_order.take(&format!("n{number}"));
    }
    assert_eq!(start_order.0.len(), MAX_NAMESPACES);
    start_order.take("n1999");
    assert_eq!((start_order.0.len(), start_order.place("n0")), (MAX_NAMESPACES, None));
}

#[test]
fn a_build_that_cannot_be_started_waits_or_has_failed() {
    use State::{Building, Failed, NoWheel, Ready, Resolving};
    let lasting = Refusal::Lasting(Outcome::failed(Failed, "denied".repeat(99)));
    let passing = Refusal::Passing("exceeded quota".repeat(99));
    for (what, before, refusal, state, since) in [
        ("new, denied", None, &lasting, Failed, NOW),
        ("denied again", Some(status(Failed, 999)), &lasting, Failed, NOW),
        (
            "it serves, and is tried again later",
            Some(status(Ready, 999)),
            &lasting,
            Ready,
            NOW,
        ),
        ("new, waits", None, &passing, Resolving, NOW),
        (
            "its Job was deleted",
            Some(status(Building, 999)),
            &passing,
            Resolving,
            NOW,
        ),
        (
            "keeps its reason, and is due",
            Some(status(NoWheel, 999)),
            &passing,
            NoWheel,
            NOW - 999,
        ),
    ] {
        let status = not_started(before.as_ref(), refusal, NOW);
        assert_eq!((status.state, status.since), (state, since), "{what}");
        assert!(status.message.len() <= MESSAGE_MAX_BYTES, "{what}");
        if !matches!(state, Failed) || before.is_none() {
            let again = not_started(Some(&status), refusal, NOW);
            assert_eq!(again, status, "{what}: it settles");
        }
    }
}

#[test]
fn a_namespace_that_asks_for_thousands_takes_no_other_one_its_status() {
    let names: Vec<String> = (0..2 * MAX_STATUSES)
        .map(|number| format!("greedy/{number:04}"))
        .collect();
    let others = ["a/1", "modest/1", "modest/2", "z/1"];
    let keys: Vec<&str> = names.iter().map(String::as_str).chain(others).collect();
    // The oldest of all.
    let known = EnvironmentStatuses(
        others
            .iter()
            .map(|key| ((*key).into(), status(State::Ready, 100)))
            .collect(),
    );
    let plan = decide(&wanted(&keys), &known, &BTreeMap::new(), &BTreeMap::new(), NOW);
    assert_eq!(plan.statuses.0.len(), MAX_STATUSES);
    for key in others {
        assert!(plan.statuses.get(&key.into()).is_some(), "{key}");
    }
}

#[test]
fn what_a_registry_has_deleted_is_made_again_and_not_without_end() {
    use State::{NoWheel, Ready};
    let ready = status(Ready, REMAKE_SECONDS);
    let image = ready.environment.clone().unwrap().image;
    let failed = |age: i64| BTreeMap::from([(image.clone(), NOW - age)]);
    for (what, key, before, unpulled, starts) in [
        ("it is there", "k", &ready, BTreeMap::new(), false),
        ("it is gone", "k", &ready, failed(9), true),
        (
            "another one is gone",
            "k",
            &ready,
            BTreeMap::from([("r@sha256:b".to_owned(), NOW)]),
            false,
        ),
        ("it was made since", "k", &ready, failed(REMAKE_SECONDS + 9), false),
        (
            "it was made just now",
            "k",
            &status(Ready, REMAKE_SECONDS - 1),
            failed(9),
            false,
        ),
        (
            "nothing is made for replaced revisions",
            "earlier",
            &ready,
            failed(9),
            false,
        ),
    ] {
        let known = EnvironmentStatuses([(key.into(), before.clone())].into());
        let plan = decide(&wanted(&[key]), &known, &BTreeMap::new(), &unpulled, NOW);
        assert_eq!(!plan.start.is_empty(), starts, "{what}");
        assert_eq!(
            plan.statuses.get(&key.into()),
            Some(&used(before.clone(), NOW)),
            "{what}: it serves meanwhile"
        );
    }
    // A build that fails takes nothing away, and is not repeated at once.
    let known = EnvironmentStatuses([("k".into(), ready)].into());
    let over = BTreeMap::from([("k".into(), ended(NoWheel))]);
    let after = decide(&wanted(&["k"]), &known, &over, &failed(9), NOW).statuses;
    assert_eq!(
        after.get(&"k".into()).map(|status| (status.state, status.since)),
        Some((Ready, NOW))
    );
    assert_eq!(
        decide(&wanted(&["k"]), &after, &BTreeMap::new(), &failed(-9), NOW + 9).start,
        []
    );
    let made = BTreeMap::from([("k".into(), ended(Ready))]);
    let after = decide(&wanted(&["k"]), &known, &made, &failed(9), NOW).statuses;
    let again = decide(
        &wanted(&["k"]),
        &after,
        &BTreeMap::new(),
        &failed(9),
        NOW + REMAKE_SECONDS,
    );
    assert_eq!(again.start, [], "the failure was before the build");
}

#[test]
fn beyond_the_bound_what_serves_stays_and_builds_come_to_an_end() {
    let names: Vec<String> = (0..MAX_STATUSES + 9).map(|number| format!("k{number:04}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = wanted(&keys);
    // All but three of the places are taken.
    let ready = names[9..].iter().take(MAX_STATUSES - 3);
    let mut known = EnvironmentStatuses(
        ready
            .map(|key| (key.as_str().into(), status(State::Ready, 100)))
            .collect(),
    );
    let mut running: Vec<EnvironmentKey> = Vec::new();
    let mut started = 0;
    for step in 0..20 {
        // A build takes two reconciles.
        let outcome = |step| {
            if step % 3 == 2 {
                ended(State::Ready)
            } else {
                Build::Running
            }
        };
        let builds = running.iter().map(|key| (key.clone(), outcome(step))).collect();
        let plan = decide(&all, &known, &builds, &BTreeMap::new(), NOW + step);
        for (key, status) in &known.0 {
            let is_lost = status.state == State::Ready && plan.statuses.get(key).is_none();
            assert!(!is_lost, "reconcile {step}: {key} served");
        }
        assert!(plan.statuses.0.len() <= MAX_STATUSES, "reconcile {step}");
        running.retain(|key| !plan.remove.contains(key));
        started += plan.start.len();
        running.extend(plan.start);
        known = plan.statuses;
    }
    assert_eq!((started, running.len()), (3, 0), "one build for each free place");
    let states = known.0.values().filter(|status| status.state == State::Ready);
    assert_eq!(states.count(), MAX_STATUSES);
}

#[test]
fn on_an_image_that_is_not_listed_nothing_is_built_and_nothing_built_before_is_run() {
    let mut all = wanted(&["new", "built", "failed"]);
    let known = EnvironmentStatuses(
        [("built", State::Ready), ("failed", State::Failed)]
            .map(|(key, state)| (key.into(), status(state, 9)))
            .into(),
    );
    let reconcile = |all: &NeededEnvironments, known: &EnvironmentStatuses, now| {
        decide(all, known, &BTreeMap::new(), &BTreeMap::new(), now)
    };
    for one in all.values_mut() {
        one.is_listed = false;
    }
    let off = reconcile(&all, &known, NOW);
    assert!(off.start.is_empty());
    for (key, status) in &off.statuses.0 {
        assert_eq!(
            (status.state, &status.environment),
            (State::PackagesOff, &None),
            "{key}"
        );
        assert!(status.message.contains("b@sha256:0") && status.message.contains("imageAllowList"));
    }
    assert_eq!(
        reconcile(&all, &off.statuses, NOW + 9).statuses,
        off.statuses,
        "it settles"
    );
    // It is listed again.
    for one in all.values_mut() {
        one.is_listed = true;
    }
    assert_eq!(reconcile(&all, &off.statuses, NOW + 9).start.len(), 3);
}

#[test]
fn what_waits_keeps_its_place_whatever_it_waits_for() {
    let quota = Refusal::Passing("exceeded quota".to_owned());
    let first = not_started(None, &Refusal::Passing(OTHERS_FIRST.to_owned()), NOW);
    let later = not_started(Some(&first), &quota, NOW + 60);
    assert_eq!((later.since, later.message.as_str()), (NOW, "exceeded quota"));
}
