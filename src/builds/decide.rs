//! Decides the next builds, from the wanted environments, their records and the running Jobs. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use knack_packages::{EnvironmentRecord, Records, State};

use super::outcome::Outcome;
use super::wanted::Wanted;

/// Builds at once: each takes a CPU for seconds, up to 2 GiB of a node's disk and memory, and the index's patience.
pub(super) const BUILDS_AT_ONCE: usize = 4;
/// Most records at once. Their ConfigMap holds 1 MiB, and a record takes at most 700 bytes with its line for the
/// admission policy.
pub(super) const MAX_RECORDS: usize = 1000;
/// Most bytes of a record's message.
pub(super) const MESSAGE_MAX_BYTES: usize = 300;
/// A transient failure is retried after this long, seconds: an index or a registry that was unavailable for a while.
const RETRY_SECONDS: i64 = 5 * 60;
/// Any other failure is retried after this long, seconds: the index may have a missing package by then.
const RETRY_LASTING_SECONDS: i64 = 6 * 60 * 60;
/// An environment without a request for this long is forgotten, seconds. A skill that comes back is built again.
pub(super) const UNUSED_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The time of the last request for an environment is written this often, seconds.
const USED_STEP_SECONDS: i64 = 24 * 60 * 60;

/// The state of a builder Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Build {
    /// It runs, or waits for a node.
    Running,
    /// It has ended.
    Ended(Outcome),
}

/// The decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Keys to build now.
    pub(super) start: Vec<String>,
    /// Keys whose Jobs are no longer needed.
    pub(super) remove: Vec<String>,
    /// The records from now on.
    pub(super) records: Records,
}

/// Decides; `now` in seconds since the Unix epoch.
pub(super) fn decide(
    wanted: &BTreeMap<String, Wanted>,
    known: &Records,
    builds: &BTreeMap<String, Build>,
    now: i64,
) -> Decision {
    let mut decision = Decision {
        records: unused(wanted, known, now),
        ..Decision::default()
    };
    let chosen = chosen(wanted, known, builds, now);
    for (key, build) in builds {
        if matches!(build, Build::Ended(_)) {
            decision.remove.push(key.clone());
        }
    }
    for (key, asked) in wanted {
        let before = known.get(key);
        // Nothing is built for replaced revisions; their existing environments stay.
        if asked.is_earlier && !builds.contains_key(key) {
            if let Some(record) = before.filter(|record| !record.state.is_pending()) {
                decision.records.0.insert(key.clone(), used(record.clone(), now));
            }
            continue;
        }
        let record = match (before, builds.get(key)) {
            (_, Some(Build::Ended(outcome))) => of(outcome, now),
            // An earlier failure stays in the record until there is a new result.
            (Some(record), Some(Build::Running)) if !record.state.is_pending() => record.clone(),
            (before, Some(Build::Running)) => pending(before, State::Building, "the packages are being installed", now),
            (Some(record), None) if !is_due(record, now) => record.clone(),
            (before, None) => {
                let is_chosen = chosen.contains(key.as_str());
                if is_chosen {
                    decision.start.push(key.clone());
                }
                match before {
                    Some(record) if !record.state.is_pending() => record.clone(),
                    _ if is_chosen => pending(before, State::Building, "the packages are being installed", now),
                    _ => pending(
                        before,
                        State::Resolving,
                        "other environments are being built first",
                        now,
                    ),
                }
            }
        };
        decision.records.0.insert(key.clone(), used(record, now));
    }
    bound(&mut decision.records, wanted);
    let kept = &decision.records;
    decision.start.retain(|key| kept.get(key).is_some());
    decision
}

/// The builds to start now. The namespace with the fewest comes first, so that one that asks for hundreds keeps nobody waiting for
/// longer than a build.
fn chosen<'a>(
    wanted: &'a BTreeMap<String, Wanted>,
    known: &Records,
    builds: &BTreeMap<String, Build>,
    now: i64,
) -> BTreeSet<&'a str> {
    let running = || {
        let running = builds.iter().filter(|(_, build)| **build == Build::Running);
        running.map(|(key, _)| wanted.get(key))
    };
    let mut building: BTreeMap<&str, usize> = BTreeMap::new();
    for asked in running().flatten() {
        *building.entry(&asked.skill.namespace).or_default() += 1;
    }
    let mut due: BTreeMap<&str, VecDeque<&str>> = BTreeMap::new();
    for (key, asked) in wanted {
        let is_known = known.get(key).is_some_and(|record| !is_due(record, now));
        if !asked.is_earlier && !builds.contains_key(key) && !is_known {
            due.entry(&asked.skill.namespace).or_default().push_back(key);
        }
    }
    let mut chosen = BTreeSet::new();
    for _ in running().count()..BUILDS_AT_ONCE {
        let next = due.iter_mut().filter(|(_, keys)| !keys.is_empty());
        let Some((namespace, keys)) = next.min_by_key(|(namespace, _)| building.get(**namespace).copied()) else {
            break;
        };
        chosen.extend(keys.pop_front());
        *building.entry(namespace).or_default() += 1;
    }
    chosen
}

/// Records of environments that nothing asks for, but that are kept for a while.
fn unused(wanted: &BTreeMap<String, Wanted>, known: &Records, now: i64) -> Records {
    let kept = known.0.iter().filter(|(key, record)| {
        !wanted.contains_key(*key) && now - record.used < UNUSED_SECONDS && record.state == State::Ready
    });
    Records(kept.map(|(key, record)| (key.clone(), record.clone())).collect())
}

/// A record with the time of its last request, in steps of [`USED_STEP_SECONDS`].
fn used(mut record: EnvironmentRecord, now: i64) -> EnvironmentRecord {
    if now - record.used >= USED_STEP_SECONDS {
        record.used = now;
    }
    record
}

/// Whether a build is to be started for a record without one.
fn is_due(record: &EnvironmentRecord, now: i64) -> bool {
    let age = now - record.since;
    match record.state {
        State::Ready => false,
        // Its Job is gone without a result.
        State::Resolving | State::Building => true,
        state if state.may_pass() => age >= RETRY_SECONDS,
        _ => age >= RETRY_LASTING_SECONDS,
    }
}

fn pending(before: Option<&EnvironmentRecord>, state: State, message: &str, now: i64) -> EnvironmentRecord {
    match before.filter(|record| record.state == state && record.message == message) {
        Some(record) => record.clone(),
        None => EnvironmentRecord {
            state,
            message: message.to_owned(),
            environment: None,
            is_partial: false,
            since: now,
            used: now,
        },
    }
}

fn of(outcome: &Outcome, now: i64) -> EnvironmentRecord {
    let end = outcome.message.floor_char_boundary(MESSAGE_MAX_BYTES);
    EnvironmentRecord {
        state: outcome.state,
        message: outcome.message[..end].to_owned(),
        environment: outcome.environment.clone(),
        is_partial: outcome.is_partial,
        since: now,
        used: now,
    }
}

/// Drops records beyond the bound: those that nothing asks for, the longest unused first, and then those of the namespace that has the
/// most.
fn bound(records: &mut Records, wanted: &BTreeMap<String, Wanted>) {
    let excess = records.0.len().saturating_sub(MAX_RECORDS);
    if excess == 0 {
        return;
    }
    let mut unasked = Vec::new();
    let mut asked: BTreeMap<&str, BTreeSet<(i64, String)>> = BTreeMap::new();
    for (key, record) in &records.0 {
        let dropped = (record.used, key.clone());
        match wanted.get(key) {
            None => unasked.push(dropped),
            Some(one) => drop(asked.entry(&one.skill.namespace).or_default().insert(dropped)),
        }
    }
    unasked.sort();
    let of_the_largest = std::iter::from_fn(|| {
        let largest = asked.values_mut().max_by_key(|keys| keys.len())?;
        largest.pop_first()
    });
    for (_, key) in unasked.into_iter().chain(of_the_largest).take(excess) {
        records.0.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use knack_packages::environment::EnvironmentImage;
    use knack_skill::model::SkillRef;

    use super::*;
    use crate::selection::Asked;

    const NOW: i64 = 1_000_000_000;

    fn wanted(keys: &[&str]) -> BTreeMap<String, Wanted> {
        let one = |key: &str| Wanted {
            asked: Asked {
                key: key.to_owned(),
                base: "b@sha256:0".to_owned(),
                constraints: Vec::new(),
            },
            skill: SkillRef {
                namespace: key.split_once('/').map_or("n", |(namespace, _)| namespace).to_owned(),
                name: "s".to_owned(),
            },
            digest: "d".to_owned(),
            artifact: "a".to_owned(),
            is_earlier: key.starts_with("earlier"),
            runtimes: vec![("n".to_owned(), "r".to_owned())],
        };
        keys.iter().map(|key| ((*key).to_owned(), one(key))).collect()
    }

    fn record(state: State, age: i64) -> EnvironmentRecord {
        EnvironmentRecord {
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

    fn ended(state: State) -> Build {
        Build::Ended(Outcome {
            environment: record(state, 0).environment,
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
                Some(record(Building, 9)),
                Some(Build::Running),
                false,
                Some((Building, "the packages are being installed")),
            ),
            (
                "is ready",
                true,
                Some(record(Building, 9)),
                Some(ended(Ready)),
                false,
                Some((Ready, "after")),
            ),
            (
                "stays ready",
                true,
                Some(record(Ready, 9)),
                None,
                false,
                Some((Ready, "before")),
            ),
            (
                "fails",
                true,
                Some(record(Building, 9)),
                Some(ended(NoWheel)),
                false,
                Some((NoWheel, "after")),
            ),
            (
                "its Job was deleted",
                true,
                Some(record(Building, 9)),
                None,
                true,
                Some((Building, "the packages are being installed")),
            ),
            (
                "waited",
                true,
                Some(record(Resolving, 9)),
                None,
                true,
                Some((Building, "the packages are being installed")),
            ),
            (
                "failed lately",
                true,
                Some(record(IndexUnreachable, RETRY_SECONDS - 1)),
                None,
                false,
                Some((IndexUnreachable, "before")),
            ),
            (
                "is tried again",
                true,
                Some(record(IndexUnreachable, RETRY_SECONDS)),
                None,
                true,
                Some((IndexUnreachable, "before")),
            ),
            (
                "keeps its reason meanwhile",
                true,
                Some(record(Failed, 999)),
                Some(Build::Running),
                false,
                Some((Failed, "before")),
            ),
            (
                "lasts",
                true,
                Some(record(Conflict, RETRY_SECONDS)),
                None,
                false,
                Some((Conflict, "before")),
            ),
            (
                "lasts for hours",
                true,
                Some(record(Conflict, RETRY_LASTING_SECONDS)),
                None,
                true,
                Some((Conflict, "before")),
            ),
            (
                "is kept for a while",
                false,
                Some(record(Ready, UNUSED_SECONDS - 1)),
                None,
                false,
                Some((Ready, "before")),
            ),
            (
                "is forgotten",
                false,
                Some(record(Ready, UNUSED_SECONDS)),
                None,
                false,
                None,
            ),
            (
                "is not wanted any more",
                false,
                Some(record(NoWheel, 9)),
                None,
                false,
                None,
            ),
            ("was never wanted", false, None, Some(Build::Running), false, None),
        ] {
            let known = Records(before.into_iter().map(|record| ("k".to_owned(), record)).collect());
            let is_ended = matches!(build, Some(Build::Ended(_)));
            let builds = build.into_iter().map(|build| ("k".to_owned(), build)).collect();
            let keys: &[&str] = if is_wanted { &["k"] } else { &[] };
            let decision = decide(&wanted(keys), &known, &builds, NOW);
            assert_eq!(!decision.start.is_empty(), starts, "{what}");
            assert_eq!(!decision.remove.is_empty(), is_ended, "{what}");
            let record = decision.records.get("k");
            let actual = record.map(|record| (record.state, record.message.as_str()));
            assert_eq!(actual, after, "{what}");
            let is_ready = record.is_some_and(|record| record.environment.is_some());
            assert_eq!(is_ready, after.is_some_and(|(state, _)| state == Ready), "{what}");
        }
    }

    #[test]
    fn what_earlier_revisions_have_stays_and_nothing_is_made_for_them() {
        use State::{Building, NoWheel, Ready};
        let old = UNUSED_SECONDS + 1;
        for (what, before, build, after) in [
            ("it serves, however long", Some(record(Ready, old)), None, Some(Ready)),
            ("it failed", Some(record(NoWheel, old)), None, Some(NoWheel)),
            ("it was never made", None, None, None),
            ("its Job is gone", Some(record(Building, 9)), None, None),
            (
                "it is being made",
                Some(record(Building, 9)),
                Some(Build::Running),
                Some(Building),
            ),
            ("it came", Some(record(Building, 9)), Some(ended(Ready)), Some(Ready)),
        ] {
            let key = || "earlier".to_owned();
            let known = Records(before.into_iter().map(|record| (key(), record)).collect());
            let builds = build.into_iter().map(|build| (key(), build)).collect();
            let decision = decide(&wanted(&["earlier"]), &known, &builds, NOW);
            assert_eq!(decision.start, [""; 0], "{what}");
            assert_eq!(
                decision.records.get("earlier").map(|record| record.state),
                after,
                "{what}"
            );
        }
    }

    #[test]
    fn what_is_written_settles() {
        let (all, none) = (wanted(&["a", "b"]), BTreeMap::new());
        let first = decide(&all, &Records::default(), &none, NOW);
        let running = first.start.iter().map(|key| (key.clone(), Build::Running)).collect();
        let second = decide(&all, &first.records, &running, NOW + 5);
        assert_eq!((second.records, second.start), (first.records, vec![]));
    }

    #[test]
    fn few_are_built_at_once_and_few_are_known() {
        let names: Vec<String> = (0..MAX_RECORDS + 10).map(|number| format!("k{number:04}")).collect();
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let builds = BTreeMap::from([("k0000".to_owned(), Build::Running)]);
        let decision = decide(&wanted(&keys), &Records::default(), &builds, NOW);
        assert!(decision.start.len() < BUILDS_AT_ONCE);
        assert_eq!(decision.records.0.len(), MAX_RECORDS);
        let waiting = decision
            .records
            .0
            .values()
            .filter(|record| record.state == State::Resolving)
            .count();
        assert!(waiting >= MAX_RECORDS - BUILDS_AT_ONCE - 10, "{waiting}");
    }

    #[test]
    fn a_namespace_that_asks_for_hundreds_keeps_no_other_one_waiting() {
        let names: Vec<String> = (0..500).map(|number| format!("greedy/{number:03}")).collect();
        let keys: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .chain(["modest/1", "modest/2", "other/1"])
            .collect();
        let builds = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), Build::Running)).collect();
        for (running, expected) in [
            (&[][..], &["greedy/000", "greedy/001", "modest/1", "other/1"][..]),
            (&["greedy/000"], &["greedy/001", "modest/1", "other/1"]),
            (&["greedy/000", "greedy/001", "greedy/002"], &["modest/1"]),
            (&["greedy/000", "greedy/001", "modest/1", "other/1"], &[]),
        ] {
            let decision = decide(&wanted(&keys), &Records::default(), &builds(running), NOW);
            assert_eq!(decision.start, expected, "{running:?}");
        }
    }

    #[test]
    fn a_namespace_that_asks_for_thousands_takes_no_other_one_its_record() {
        let names: Vec<String> = (0..2 * MAX_RECORDS)
            .map(|number| format!("greedy/{number:04}"))
            .collect();
        let others = ["a/1", "modest/1", "modest/2", "z/1"];
        let keys: Vec<&str> = names.iter().map(String::as_str).chain(others).collect();
        // The oldest of all.
        let known = Records(
            others
                .iter()
                .map(|key| ((*key).to_owned(), record(State::Ready, 100)))
                .collect(),
        );
        let decision = decide(&wanted(&keys), &known, &BTreeMap::new(), NOW);
        assert_eq!(decision.records.0.len(), MAX_RECORDS);
        for key in others {
            assert!(decision.records.get(key).is_some(), "{key}");
        }
    }
}
