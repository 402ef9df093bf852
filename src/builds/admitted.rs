//! The images of the repository of environments that the hub may run, by runtime: a resource name for each, which the admission
//! policy `sandbox-environments` checks against the hub's rights. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use knack_packages::{EnvironmentStatus, EnvironmentStatuses, State};
use knack_vocabulary::{GROUP, RESOURCE_ENVIRONMENTS, VERB_USE};

use super::decide::pending;
use super::image::repository_mark;
use super::wanted::NeededEnvironment;

/// An image that a runtime no longer needs stays admitted for this long, seconds: a request that began with the revision
/// continues with it. A conversation's request lasts minutes.
const LET_GO_SECONDS: i64 = 60 * 60;
/// Most images that are no longer needed and still admitted; 250 bytes each in a ConfigMap and a Role of 1 MiB. The oldest go first.
const LET_GO_MAX: usize = 400;

/// Most bytes of the lines of needed images: 1,500 of the longest, 3,000 of usual ones. Their ConfigMap holds 1 MiB, of which 1,000
/// statuses take half, and the API server's note of who owns each of its keys counts in the 1.5 MiB of a request to etcd.
const NEEDED_MAX_BYTES: usize = 300 << 10;

/// The images that the hub may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Admitted {
    /// The lines by image: the mark of the repository of its base ([`repository_mark`]), and of one that is not needed any more since
    /// when, in seconds since the Unix epoch.
    pub(super) lines: BTreeMap<String, String>,
    /// How many needed images had no room, by namespace.
    pub(super) left_out: BTreeMap<String, usize>,
}

/// The images that the hub may run; `written` has the lines that were written last. Of the bases whose marks `is_taken` does not have,
/// none is, from now on: the administrator's list of images is about requests that began before, too.
pub(super) fn admitted(
    statuses: &EnvironmentStatuses,
    wanted: &BTreeMap<String, NeededEnvironment>,
    is_taken: impl Fn(&str) -> bool,
    written: &BTreeMap<String, String>,
    now: i64,
) -> Admitted {
    let mut needed = BTreeMap::new();
    for (key, wanted) in wanted {
        let Some(status) = statuses.get(key) else { continue };
        let mark = repository_mark(&wanted.asked.base);
        needed.extend(names(status, wanted).map(|name| (name, mark.clone())));
    }
    let left_out = bound(&mut needed, written);
    let mut lines = needed;
    let mut let_go: Vec<(i64, String, &str)> = written
        .iter()
        .filter(|(line, _)| line.contains('_') && !lines.contains_key(*line))
        .map(|(line, value)| {
            let (mark, since) = mark_and_since(value);
            (since.unwrap_or(now), line.clone(), mark)
        })
        .filter(|(since, _, mark)| is_taken(mark) && (0..LET_GO_SECONDS).contains(&(now - since)))
        .collect();
    let_go.sort();
    let excess = let_go.len().saturating_sub(LET_GO_MAX);
    let let_go = let_go.drain(excess..);
    lines.extend(let_go.map(|(since, line, mark)| (line, format!("{mark} {since}"))));
    Admitted { lines, left_out }
}

/// The names of an environment's image in the Role, one for each runtime that needs it. Empty where it is not built.
fn names<'a>(status: &'a EnvironmentStatus, wanted: &'a NeededEnvironment) -> impl Iterator<Item = String> + 'a {
    let environment = status.environment.as_ref();
    let digest = environment.and_then(|environment| environment.image.rsplit_once("@sha256:"));
    digest.into_iter().flat_map(|(_, digest)| {
        let runtimes = wanted.runtimes.iter();
        // Neither a name nor a namespace contains an underscore.
        runtimes.map(move |(namespace, runtime)| format!("{namespace}_{runtime}_{digest}"))
    })
}

/// The value of a line: the mark of the base, and since when the image is not needed.
fn mark_and_since(value: &str) -> (&str, Option<i64>) {
    match value.split_once(' ') {
        Some((mark, since)) => (mark, since.parse().ok()),
        None => (value, None),
    }
}

/// Takes away what has no room: of the namespace whose lines have the most bytes first what was not written before. Returns how many
/// lines each namespace lost.
fn bound(needed: &mut BTreeMap<String, String>, written: &BTreeMap<String, String>) -> BTreeMap<String, usize> {
    let mut left_out = BTreeMap::new();
    let size = |line: &str, mark: &str| line.len() + mark.len();
    let mut total: usize = needed.iter().map(|(line, mark)| size(line, mark)).sum();
    if total <= NEEDED_MAX_BYTES {
        return left_out;
    }
    let mut by_namespace: BTreeMap<String, (usize, BTreeSet<(bool, String)>)> = BTreeMap::new();
    for (line, mark) in needed.iter() {
        let namespace = line.split('_').next().unwrap_or_default().to_owned();
        let (bytes, lines) = by_namespace.entry(namespace).or_default();
        *bytes += size(line, mark);
        let is_new = written.get(line).is_none_or(|value| mark_and_since(value).1.is_some());
        lines.insert((is_new, line.clone()));
    }
    while total > NEEDED_MAX_BYTES {
        let largest = by_namespace.iter_mut().max_by_key(|(_, (bytes, _))| *bytes);
        let Some((namespace, (bytes, lines))) = largest else {
            break;
        };
        let Some((_, line)) = lines.pop_last() else { break };
        let size = size(&line, &needed.remove(&line).unwrap_or_default());
        *bytes -= size;
        total -= size;
        *left_out.entry(namespace.clone()).or_default() += 1;
    }
    left_out
}

/// The statuses while the API server refuses the Role with these `lines`, of which it has `current_rules`: an environment that
/// the hub may not run yet stays what it was `before`, or waits and says `why`. Of the lines those stay that the Role has.
pub(super) fn held_back(
    statuses: &EnvironmentStatuses,
    before: &EnvironmentStatuses,
    wanted: &BTreeMap<String, NeededEnvironment>,
    lines: &mut BTreeMap<String, String>,
    current_rules: &[PolicyRule],
    why: &str,
    now: i64,
) -> EnvironmentStatuses {
    let allowed = current_rules
        .iter()
        .flat_map(|rule| rule.resource_names.iter().flatten());
    let allowed: BTreeSet<&str> = allowed.map(String::as_str).collect();
    let mut held = statuses.clone();
    for (key, wanted) in wanted {
        let Some(status) = statuses.get(key) else { continue };
        // What had no room is refused to nobody but its runtime.
        if names(status, wanted).all(|name| allowed.contains(name.as_str()) || !lines.contains_key(&name)) {
            continue;
        }
        let status = match before.get(key) {
            Some(known) if known.state == State::Ready => known.clone(),
            known => pending(known, State::Building, why, now),
        };
        held.0.insert(key.clone(), status);
    }
    lines.retain(|name, _| allowed.contains(name.as_str()));
    held
}

/// The rules of the Role: the hub may `use` these images. A rule without names would be one for all of them, so without a
/// line there is none.
pub(super) fn rules(lines: &BTreeMap<String, String>) -> Vec<PolicyRule> {
    let names: Vec<String> = lines.keys().filter(|line| line.contains('_')).cloned().collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![PolicyRule {
        api_groups: Some(vec![GROUP.to_owned()]),
        resources: Some(vec![RESOURCE_ENVIRONMENTS.to_owned()]),
        resource_names: Some(names),
        verbs: vec![VERB_USE.to_owned()],
        ..PolicyRule::default()
    }]
}

#[cfg(test)]
mod tests {
    use knack_packages::environment::EnvironmentImage;
    use knack_skill::model::SkillRef;

    use super::*;
    use crate::builds::wanted::Asker;
    use crate::selection::EnvironmentRequest;

    const NOW: i64 = 1_000_000;
    /// The base of [`wanted`].
    const BASE: &str = "r.io/base@sha256:0";

    /// Lines with values.
    fn lines_of(lines: &[(&str, String)]) -> BTreeMap<String, String> {
        let lines = lines.iter();
        lines.map(|(line, value)| ((*line).to_owned(), value.clone())).collect()
    }

    fn asker() -> Asker {
        Asker {
            skill: SkillRef {
                namespace: "n".to_owned(),
                name: "s".to_owned(),
            },
            artifact: "a".to_owned(),
        }
    }

    fn wanted(all: &[(&str, &[(&str, &str)])]) -> BTreeMap<String, NeededEnvironment> {
        let one = |key: &str, runtimes: &[(&str, &str)]| NeededEnvironment {
            asked: EnvironmentRequest {
                key: key.to_owned(),
                base: BASE.to_owned(),
                constraints: Vec::new(),
                exclude_newer: None,
            },
            askers: BTreeMap::from([("n".to_owned(), vec![asker()])]),
            skills: Vec::new(),
            digest: "d".to_owned(),
            is_listed: true,
            is_earlier: false,
            runtimes: runtimes
                .iter()
                .map(|(one, two)| ((*one).to_owned(), (*two).to_owned()))
                .collect(),
        };
        let all = all.iter();
        all.map(|(key, runtimes)| ((*key).to_owned(), one(key, runtimes)))
            .collect()
    }

    fn status(digest: Option<&str>) -> EnvironmentStatus {
        EnvironmentStatus {
            state: if digest.is_some() { State::Ready } else { State::NoWheel },
            message: String::new(),
            environment: digest.map(|digest| EnvironmentImage {
                image: format!("r/e@sha256:{digest}"),
                home: "/e".to_owned(),
            }),
            is_partial: false,
            since: 0,
            used: 0,
        }
    }

    #[test]
    fn a_runtime_may_run_the_environments_of_its_own_skills_only() {
        let digest = "a".repeat(64);
        let statuses = EnvironmentStatuses(
            [
                ("ready", Some(digest.as_str())),
                ("unused", Some("b")),
                ("failed", None),
            ]
            .map(|(key, digest)| (key.to_owned(), status(digest)))
            .into(),
        );
        let all = wanted(&[
            ("ready", &[("a", "main"), ("b", "main")]),
            ("failed", &[("c", "main")]),
            ("new", &[("c", "main")]),
        ]);
        let lines: Vec<String> = admitted(&statuses, &all, |_| true, &BTreeMap::new(), NOW)
            .lines
            .into_keys()
            .collect();
        assert_eq!(lines, [format!("a_main_{digest}"), format!("b_main_{digest}")]);
    }

    #[test]
    fn a_request_that_began_with_a_revision_goes_on_for_an_hour() {
        let statuses = EnvironmentStatuses([("k".to_owned(), status(Some("new")))].into());
        let all = wanted(&[("k", &[("a", "main")])]);
        let mark = repository_mark(BASE);
        let let_go = |since: i64| format!("{mark} {since}");
        let (since, past) = (NOW - LET_GO_SECONDS + 1, NOW - LET_GO_SECONDS);
        for (what, before, expected) in [
            ("replaced just now", ("a_main_old", mark.clone()), Some(NOW)),
            ("replaced", ("a_main_old", let_go(since)), Some(since)),
            ("long ago", ("a_main_old", let_go(past)), None),
            ("in the future", ("a_main_old", let_go(NOW + 9)), None),
            ("a record", ("0123456789abcdef", "{}".to_owned()), None),
        ] {
            let line = before.0;
            let lines = admitted(&statuses, &all, |_| true, &lines_of(&[before]), NOW).lines;
            assert_eq!(lines.get("a_main_new"), Some(&mark), "{what}");
            assert_eq!(lines.get(line).cloned(), expected.map(let_go), "{what}");
        }
        // It is needed again.
        let lines = admitted(
            &statuses,
            &all,
            |_| true,
            &lines_of(&[("a_main_new", let_go(since))]),
            NOW,
        )
        .lines;
        assert_eq!(lines, lines_of(&[("a_main_new", mark.clone())]));
    }

    #[test]
    fn no_request_goes_on_with_an_image_on_a_base_that_the_list_no_longer_has() {
        // Marks of an image that was needed until now, and of one that was replaced before.
        let (listed, other) = (repository_mark(BASE), repository_mark("r.io/other:1"));
        let written = lines_of(&[
            ("a_main_1", listed.clone()),
            ("a_main_2", format!("{listed} {NOW}")),
            ("a_main_3", other.clone()),
            ("a_main_4", format!("{other} {NOW}")),
            ("a_main_5", String::new()),
        ]);
        let none = (EnvironmentStatuses::default(), BTreeMap::new());
        let kept = |is_taken: &dyn Fn(&str) -> bool| -> Vec<String> {
            let lines = admitted(&none.0, &none.1, is_taken, &written, NOW).lines;
            lines.into_keys().collect()
        };
        assert_eq!(kept(&|mark| mark == listed), ["a_main_1", "a_main_2"]);
        assert_eq!(kept(&|_| true).len(), 5, "without a list");
    }

    #[test]
    fn what_the_role_does_not_admit_yet_waits_and_says_why_and_nothing_else_does() {
        let status_of = |state: State, digest: Option<&str>| EnvironmentStatus {
            state,
            ..status(digest)
        };
        let statuses = |list: &[(&str, State, Option<&str>)]| {
            let all = list.iter();
            EnvironmentStatuses(
                all.map(|(key, state, digest)| ((*key).to_owned(), status_of(*state, *digest)))
                    .collect(),
            )
        };
        let before = statuses(&[
            ("built", State::Building, None),
            ("known", State::Ready, Some("k")),
            ("remade", State::Ready, Some("old")),
        ]);
        let now = statuses(&[
            ("built", State::Ready, Some("b")),
            ("failed", State::NoWheel, None),
            ("known", State::Ready, Some("k")),
            ("remade", State::Ready, Some("new")),
            ("first", State::Ready, Some("f")),
        ]);
        let main: &[(&str, &str)] = &[("a", "main")];
        let all = wanted(&[
            ("built", main),
            ("failed", main),
            // A second runtime needs it: it waits for nobody at the first one.
            ("known", &[("a", "main"), ("b", "main")]),
            ("remade", main),
            ("first", main),
        ]);
        let mut lines = admitted(&now, &all, |_| true, &BTreeMap::new(), NOW).lines;
        let current = rules(&lines_of(&[("a_main_k", String::new()), ("a_main_old", String::new())]));
        let held = held_back(&now, &before, &all, &mut lines, &current, "why", NOW);
        let reported: Vec<(&str, State, &str)> = held
            .0
            .iter()
            .map(|(key, status)| {
                let image = status.environment.as_ref().map_or("", |of| of.image.as_str());
                let said = if image.is_empty() {
                    status.message.as_str()
                } else {
                    image
                };
                (key.as_str(), status.state, said)
            })
            .collect();
        assert_eq!(
            reported,
            [
                ("built", State::Building, "why"),
                ("failed", State::NoWheel, ""),
                ("first", State::Building, "why"),
                ("known", State::Ready, "r/e@sha256:k"),
                ("remade", State::Ready, "r/e@sha256:old"),
            ]
        );
        assert_eq!(lines.into_keys().collect::<Vec<_>>(), ["a_main_k"]);
    }

    #[test]
    fn what_is_let_go_is_bounded() {
        let line = |number: usize| {
            (
                format!("a_main_{number:04}"),
                format!("m {}", NOW - 3000 + i64::try_from(number).unwrap()),
            )
        };
        let written: BTreeMap<String, String> = (0..LET_GO_MAX + 7).map(line).collect();
        let lines = admitted(
            &EnvironmentStatuses::default(),
            &BTreeMap::new(),
            |_| true,
            &written,
            NOW,
        )
        .lines;
        assert_eq!(lines.len(), LET_GO_MAX);
        assert!(!lines.contains_key("a_main_0006") && lines.contains_key("a_main_0007"));
    }

    #[test]
    fn a_namespace_with_many_runtimes_and_environments_takes_no_other_one_its_images() {
        // A hundred runtimes with a hundred environments each, and a namespace with one of each.
        let runtimes: Vec<String> = (0..100).map(|number| format!("runtime-{number:03}")).collect();
        let greedy: Vec<(&str, &str)> = runtimes.iter().map(|name| ("greedy", name.as_str())).collect();
        let keys: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        let mut asked: Vec<(&str, &[(&str, &str)])> =
            keys.iter().map(|key| (key.as_str(), greedy.as_slice())).collect();
        asked.push(("zz", &[("modest", "main")]));
        let all = wanted(&asked);
        let digest = |key: &str| format!("{key:0>64}");
        let statuses = all.keys().map(|key| (key.clone(), status(Some(&digest(key)))));
        let statuses = EnvironmentStatuses(statuses.collect());
        let first = admitted(&statuses, &all, |_| true, &BTreeMap::new(), NOW);
        let bytes: usize = first.lines.iter().map(|(line, mark)| line.len() + mark.len()).sum();
        assert!(bytes <= NEEDED_MAX_BYTES, "{bytes}");
        assert!(first.lines.contains_key(&format!("modest_main_{}", digest("zz"))));
        let left = BTreeMap::from([("greedy".to_owned(), 10_001 - first.lines.len())]);
        assert_eq!(first.left_out, left);
        // One more environment of the namespace takes none of its other ones their place.
        asked.push(("000a", &greedy));
        let all = wanted(&asked);
        let mut statuses = statuses;
        statuses.0.insert("000a".to_owned(), status(Some(&digest("000a"))));
        let second = admitted(&statuses, &all, |_| true, &first.lines, NOW + 9);
        assert_eq!(second.lines, first.lines);
        assert_eq!(second.left_out["greedy"], left["greedy"] + 100);
    }

    #[test]
    fn the_role_names_every_image_and_never_all_of_them() {
        let lines = |names: &[&str]| -> BTreeMap<String, String> {
            names.iter().map(|name| ((*name).to_owned(), String::new())).collect()
        };
        for (what, names, expected) in [
            ("nothing", &[] as &[&str], None),
            ("records alone", &["0123456789abcdef"], None),
            (
                "both",
                &["0123456789abcdef", "a_main_x", "b_main_x"],
                Some(vec!["a_main_x".to_owned(), "b_main_x".to_owned()]),
            ),
        ] {
            let rules = rules(&lines(names));
            assert_eq!(
                rules.first().and_then(|rule| rule.resource_names.clone()),
                expected,
                "{what}"
            );
            assert_eq!(rules.is_empty(), expected.is_none(), "{what}");
        }
    }
}
