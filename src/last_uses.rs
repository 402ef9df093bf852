//! When skills were used last, as the hub's replicas note it for the controller: one ConfigMap of the release namespace, with a line
//! `namespace_name: time` for each skill.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use knack_skill::model::SkillRef;

/// A time moves only if the later one is at least so much later, in the ConfigMap and in the status of a Skill: a skill that is in use
/// all day costs one write of each in this time.
const STEP: SignedDuration = SignedDuration::from_mins(5);
/// How long a line is kept: several times as long as the controller takes to write the times of 10,000 skills.
const KEPT: SignedDuration = SignedDuration::from_hours(2);
/// How far a time may be ahead, since the clocks of nodes differ. One that is further ahead would stand still until then.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(1);
/// Most bytes of all lines: with the entry of each key in `managedFields`, an object of them has less than the 1.5 MiB that etcd takes.
/// Those that were used last stay.
const BYTES_MAX: usize = 700 << 10;
/// Between namespace and name: a character that keys of a ConfigMap may have, and names of objects have not.
const SEPARATOR: char = '_';

/// The lines of the ConfigMap, by their keys.
pub(crate) type Lines = BTreeMap<String, String>;

/// The last use of each skill.
pub(crate) type LastUses = BTreeMap<SkillRef, Timestamp>;

/// The time now, in whole seconds as in the lines and in statuses.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The last uses that lines tell; other lines are nobody's.
pub(crate) fn read(lines: &Lines) -> LastUses {
    let uses = lines.iter().filter_map(|(key, time)| {
        let (namespace, name) = key.split_once(SEPARATOR)?;
        let skill = SkillRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some((skill, time.parse().ok()?))
    });
    uses.collect()
}

/// Whether a time moves from `before` to `used`. `None`: there is none yet.
pub(crate) fn moves(before: Option<Timestamp>, used: Timestamp, now: Timestamp) -> bool {
    before.is_none_or(|before| is_ahead(before, now) || used.duration_since(before) >= STEP)
}

/// Whether a time is further ahead than clocks may differ.
pub(crate) fn is_ahead(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) > AHEAD_MAX
}

/// Whether a last use is recent enough to be kept.
pub(crate) fn is_kept(used: Timestamp, now: Timestamp) -> bool {
    now.duration_since(used) <= KEPT && !is_ahead(used, now)
}

/// The changes that bring later uses into the lines, and take out what is old or beyond [`BYTES_MAX`]; `None` removes a line.
pub(crate) fn changes(lines: &Lines, uses: &LastUses, now: Timestamp) -> BTreeMap<String, Option<String>> {
    let mut wanted = read(lines);
    wanted.retain(|_, used| is_kept(*used, now));
    for (skill, used) in uses {
        if is_kept(*used, now) && moves(wanted.get(skill).copied(), *used, now) {
            wanted.insert(skill.clone(), *used);
        }
    }
    let mut latest: Vec<(&SkillRef, &Timestamp)> = wanted.iter().collect();
    latest.sort_by(|one, other| other.1.cmp(one.1));
    let mut bytes = 0;
    let written = latest.into_iter().map(|(skill, used)| {
        let key = format!("{}{SEPARATOR}{}", skill.namespace, skill.name);
        (key, used.to_string())
    });
    let written: Lines = written
        .take_while(|(key, time)| {
            bytes += key.len() + time.len();
            bytes <= BYTES_MAX
        })
        .collect();
    let removed = lines.keys().filter(|key| !written.contains_key(*key));
    let removed: Vec<String> = removed.cloned().collect();
    let set = written.into_iter().filter(|(key, time)| lines.get(key) != Some(time));
    set.map(|(key, time)| (key, Some(time)))
        .chain(removed.into_iter().map(|key| (key, None)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn skill(word: &str) -> SkillRef {
        let (namespace, name) = word.split_once('/').unwrap();
        SkillRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn uses(list: &[(&str, i64)]) -> LastUses {
        list.iter().map(|(word, used)| (skill(word), at(*used))).collect()
    }

    fn lines(list: &[(&str, i64)]) -> Lines {
        let list = list
            .iter()
            .map(|(key, used)| ((*key).to_owned(), at(*used).to_string()));
        list.collect()
    }

    #[test]
    fn a_time_moves_where_there_is_none_or_an_old_one_and_never_back() {
        let step = STEP.as_secs();
        for (before, used, expected) in [
            (None, 0, true),
            (Some(0), 0, false),
            (Some(0), step - 1, false),
            (Some(0), step, true),
            (Some(step), 0, false),
            // A clock was ahead when it was written.
            (Some(2 * step + 61), 2 * step, true),
            (Some(2 * step + 60), 2 * step, false),
        ] {
            let moved = moves(before.map(at), at(used), at(2 * step));
            assert_eq!(moved, expected, "{before:?} {used}");
        }
    }

    #[test]
    fn lines_get_what_is_later_and_lose_what_is_old_or_nobodys() {
        let (now, step, kept) = (10_000, STEP.as_secs(), KEPT.as_secs());
        let mut present = lines(&[
            ("team_pdf", now - step),
            ("team_csv", now - step + 1),
            ("team_old", now - kept - 1),
            ("team_kept", now - kept),
            ("team_ahead", now + 61),
            ("nobody", now),
        ]);
        present.insert("team_words".to_owned(), "yesterday".to_owned());
        let new = uses(&[
            ("team/pdf", now),
            ("team/csv", now),
            ("other/pdf", now - 30),
            ("other/old", now - kept - 1),
        ]);
        let set = |seconds: i64| Some(at(seconds).to_string());
        let expected = [
            ("nobody", None),
            ("other_pdf", set(now - 30)),
            ("team_ahead", None),
            ("team_old", None),
            ("team_pdf", set(now)),
            ("team_words", None),
        ];
        let expected: BTreeMap<_, _> = expected.map(|(key, change)| (key.to_owned(), change)).into();
        assert_eq!(changes(&present, &new, at(now)), expected);
        assert!(changes(&Lines::new(), &LastUses::new(), at(now)).is_empty());
    }

    #[test]
    fn what_is_noted_is_read() {
        let noted = uses(&[("team/pdf", 5), ("a-b/c-d", 6)]);
        let made = changes(&Lines::new(), &noted, at(7));
        assert_eq!(made["team_pdf"].as_deref(), Some("2027-01-15T08:00:05Z"));
        let lines = made.into_iter().filter_map(|(key, line)| Some((key, line?)));
        assert_eq!(read(&lines.collect()), noted);
    }

    #[test]
    fn skills_without_end_make_no_object_without_end() {
        let name = |number: usize| format!("{number:063}");
        let list = (0..10_000).map(|number| {
            let skill = SkillRef {
                namespace: name(0),
                name: name(number),
            };
            (skill, at(i64::try_from(number).unwrap() / 10))
        });
        let made = changes(&Lines::new(), &list.collect(), at(1_000));
        let bytes: usize = made
            .iter()
            .map(|(key, line)| key.len() + line.as_ref().unwrap().len())
            .sum();
        assert!((BYTES_MAX - 200..=BYTES_MAX).contains(&bytes), "{bytes}");
        // Those that were used last.
        assert!(made.contains_key(&format!("{}_{}", name(0), name(9_999))));
        assert!(!made.contains_key(&format!("{}_{}", name(0), name(0))));
        // As many as a cluster usefully has, with names as they usually are.
        let list = (0..10_000).map(|number| {
            (
                skill(&format!("team-analytics/skill-of-usual-length-{number:05}")),
                at(0),
            )
        });
        assert_eq!(changes(&Lines::new(), &list.collect(), at(1)).len(), 10_000);
    }
}
