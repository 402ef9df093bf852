//! The images of the repository of environments that the hub may run, by runtime: a resource name for each, which the admission
//! policy `sandbox-environments` checks against the hub's rights. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use knack_packages::EnvironmentStatuses;
use knack_vocabulary::{GROUP, RESOURCE_ENVIRONMENTS, VERB_USE};

use super::wanted::NeededEnvironment;

/// An image that a runtime no longer needs stays admitted for this long, seconds: a request that began with the revision
/// continues with it. A conversation's request lasts minutes.
const LET_GO_SECONDS: i64 = 60 * 60;
/// Most images that are no longer needed and still admitted; 250 bytes each in a ConfigMap and a Role of 1 MiB. The oldest go first.
const LET_GO_MAX: usize = 400;

/// Most bytes of the names of needed images: 1,500 of the longest, 3,000 of usual ones. Their ConfigMap holds 1 MiB, of which 1,000
/// statuses take half, and the API server's note of who owns each of its keys counts in the 1.5 MiB of a request to etcd.
const NEEDED_MAX_BYTES: usize = 300 << 10;

/// The images that the hub may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Admitted {
    /// The lines by image: empty for a needed one, else since when it is not needed, in seconds since the Unix epoch.
    pub(super) lines: BTreeMap<String, String>,
    /// How many needed images had no room, by namespace.
    pub(super) left_out: BTreeMap<String, usize>,
}

/// The images that the hub may run; `written` has the lines that were written last.
pub(super) fn admitted(
    statuses: &EnvironmentStatuses,
    wanted: &BTreeMap<String, NeededEnvironment>,
    written: &BTreeMap<String, String>,
    now: i64,
) -> Admitted {
    let mut needed = BTreeSet::new();
    for (key, wanted) in wanted {
        let environment = statuses.get(key).and_then(|status| status.environment.as_ref());
        let digest = environment.and_then(|environment| environment.image.rsplit_once("@sha256:"));
        let Some((_, digest)) = digest else { continue };
        for (namespace, runtime) in &wanted.runtimes {
            // Neither a name nor a namespace contains an underscore.
            needed.insert(format!("{namespace}_{runtime}_{digest}"));
        }
    }
    let left_out = bound(&mut needed, written);
    let mut lines: BTreeMap<String, String> = needed.into_iter().map(|line| (line, String::new())).collect();
    let mut let_go: Vec<(i64, String)> = written
        .iter()
        .filter(|(line, _)| line.contains('_') && !lines.contains_key(*line))
        .map(|(line, since)| (since.parse().unwrap_or(now), line.clone()))
        .filter(|(since, _)| (0..LET_GO_SECONDS).contains(&(now - since)))
        .collect();
    let_go.sort();
    let excess = let_go.len().saturating_sub(LET_GO_MAX);
    lines.extend(let_go.drain(excess..).map(|(since, line)| (line, since.to_string())));
    Admitted { lines, left_out }
}

/// Takes away what has no room: of the namespace whose lines have the most bytes first what was not written before. Returns how many
/// lines each namespace lost.
fn bound(needed: &mut BTreeSet<String>, written: &BTreeMap<String, String>) -> BTreeMap<String, usize> {
    let mut left_out = BTreeMap::new();
    let mut total: usize = needed.iter().map(String::len).sum();
    if total <= NEEDED_MAX_BYTES {
        return left_out;
    }
    let mut by_namespace: BTreeMap<String, (usize, BTreeSet<(bool, String)>)> = BTreeMap::new();
    for line in needed.iter() {
        let namespace = line.split('_').next().unwrap_or_default().to_owned();
        let (bytes, lines) = by_namespace.entry(namespace).or_default();
        *bytes += line.len();
        let is_new = written.get(line).is_none_or(|since| !since.is_empty());
        lines.insert((is_new, line.clone()));
    }
    while total > NEEDED_MAX_BYTES {
        let largest = by_namespace.iter_mut().max_by_key(|(_, (bytes, _))| *bytes);
        let Some((namespace, (bytes, lines))) = largest else {
            break;
        };
        let Some((_, line)) = lines.pop_last() else { break };
        *bytes -= line.len();
        total -= line.len();
        *left_out.entry(namespace.clone()).or_default() += 1;
        needed.remove(&line);
    }
    left_out
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

/// Whether a Role has exactly these rules.
pub(super) fn has_rules(role: Option<&Role>, rules: &[PolicyRule]) -> bool {
    role.is_some_and(|role| role.rules.as_deref().unwrap_or_default() == rules)
}

#[cfg(test)]
mod tests {
    use knack_packages::environment::EnvironmentImage;
    use knack_packages::{EnvironmentStatus, State};
    use knack_skill::model::SkillRef;

    use super::*;
    use crate::selection::EnvironmentRequest;

    const NOW: i64 = 1_000_000;

    fn wanted(all: &[(&str, &[(&str, &str)])]) -> BTreeMap<String, NeededEnvironment> {
        let one = |key: &str, runtimes: &[(&str, &str)]| NeededEnvironment {
            asked: EnvironmentRequest {
                key: key.to_owned(),
                base: "b".to_owned(),
                constraints: Vec::new(),
            },
            skill: SkillRef {
                namespace: "n".to_owned(),
                name: "s".to_owned(),
            },
            skills: Vec::new(),
            digest: "d".to_owned(),
            artifact: "a".to_owned(),
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
        let lines: Vec<String> = admitted(&statuses, &all, &BTreeMap::new(), NOW)
            .lines
            .into_keys()
            .collect();
        assert_eq!(lines, [format!("a_main_{digest}"), format!("b_main_{digest}")]);
    }

    #[test]
    fn a_request_that_began_with_a_revision_goes_on_for_an_hour() {
        let statuses = EnvironmentStatuses([("k".to_owned(), status(Some("new")))].into());
        let all = wanted(&[("k", &[("a", "main")])]);
        let written = |lines: &[(&str, String)]| -> BTreeMap<String, String> {
            let lines = lines.iter();
            lines.map(|(line, since)| ((*line).to_owned(), since.clone())).collect()
        };
        let (since, past) = (NOW - LET_GO_SECONDS + 1, NOW - LET_GO_SECONDS);
        for (what, before, expected) in [
            ("replaced just now", ("a_main_old", String::new()), Some(NOW)),
            ("replaced", ("a_main_old", since.to_string()), Some(since)),
            ("long ago", ("a_main_old", past.to_string()), None),
            ("in the future", ("a_main_old", (NOW + 9).to_string()), None),
            ("a record", ("0123456789abcdef", "{}".to_owned()), None),
        ] {
            let line = before.0;
            let lines = admitted(&statuses, &all, &written(&[before]), NOW).lines;
            assert_eq!(lines.get("a_main_new").map(String::as_str), Some(""), "{what}");
            assert_eq!(
                lines.get(line).cloned(),
                expected.map(|since| since.to_string()),
                "{what}"
            );
        }
        // It is needed again.
        let lines = admitted(&statuses, &all, &written(&[("a_main_new", since.to_string())]), NOW).lines;
        assert_eq!(lines, written(&[("a_main_new", String::new())]));
    }

    #[test]
    fn what_is_let_go_is_bounded() {
        let line = |number: usize| {
            (
                format!("a_main_{number:04}"),
                (NOW - 3000 + i64::try_from(number).unwrap()).to_string(),
            )
        };
        let written: BTreeMap<String, String> = (0..LET_GO_MAX + 7).map(line).collect();
        let lines = admitted(&EnvironmentStatuses::default(), &BTreeMap::new(), &written, NOW).lines;
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
        let first = admitted(&statuses, &all, &BTreeMap::new(), NOW);
        let bytes: usize = first.lines.keys().map(String::len).sum();
        assert!(bytes <= NEEDED_MAX_BYTES, "{bytes}");
        assert!(first.lines.contains_key(&format!("modest_main_{}", digest("zz"))));
        let left = BTreeMap::from([("greedy".to_owned(), 10_001 - first.lines.len())]);
        assert_eq!(first.left_out, left);
        // One more environment of the namespace takes none of its other ones their place.
        asked.push(("000a", &greedy));
        let all = wanted(&asked);
        let mut statuses = statuses;
        statuses.0.insert("000a".to_owned(), status(Some(&digest("000a"))));
        let second = admitted(&statuses, &all, &first.lines, NOW + 9);
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
            let role = |rules| Role {
                rules,
                ..Role::default()
            };
            assert!(has_rules(Some(&role(Some(rules.clone()))), &rules), "{what}");
            assert_eq!(has_rules(Some(&role(None)), &rules), rules.is_empty(), "{what}");
            assert!(!has_rules(None, &rules), "{what}");
        }
    }
}
