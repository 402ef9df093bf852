//! The images of the repository of environments that the hub may run, by runtime: a resource name for each, which the admission
//! policy `sandbox-environments` checks against the hub's rights. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use knack_packages::{EnvironmentStatus, EnvironmentStatuses, State};

use super::admitted_image::{AdmittedImage, AdmittedImages, ImageAdmission};
use super::decide::{BuildFacts, pending};
use super::image::repository_mark;
use super::published::PublishedStatuses;
use super::wanted::NeededEnvironment;

/// An image that a runtime no longer needs stays admitted for this long, seconds: a request that began with the revision
/// continues with it. A conversation's request lasts minutes.
const LET_GO_SECONDS: i64 = 60 * 60;
/// Most images that are no longer needed and still admitted; 250 bytes each in a ConfigMap and a Role of 1 MiB. The oldest go first.
const LET_GO_MAX: usize = 400;

/// Most bytes of the lines of needed images: 1,500 of the longest, 3,000 of usual ones. Their ConfigMap holds 1 MiB, of which 1,000
/// statuses take half, and the API server's note of who owns each of its keys counts in the 1.5 MiB of a request to etcd.
const NEEDED_MAX_BYTES: usize = 300 << 10;

/// The images that the hub may run from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Admitted {
    /// The images.
    pub(super) images: AdmittedImages,
    /// How many needed images had no room, by namespace.
    pub(super) left_out: BTreeMap<String, usize>,
}

impl Admitted {
    /// The images of these statuses; `written` are those that were written last. Of the bases whose marks `is_taken` does not have, none is,
    /// from now on: the administrator's list of images is about requests that began before, too.
    pub(super) fn of(
        facts: &BuildFacts<'_>,
        statuses: &EnvironmentStatuses,
        written: &AdmittedImages,
        is_taken: impl Fn(&str) -> bool,
    ) -> Self {
        let mut images = AdmittedImages::new();
        for (key, wanted) in facts.wanted {
            let Some(status) = statuses.get(key) else { continue };
            let admission = ImageAdmission {
                mark: repository_mark(&wanted.asked.base),
                unused_since: None,
            };
            images.extend(images_of(status, wanted).map(|image| (image, admission.clone())));
        }
        let left_out = bound(&mut images, written);
        let mut let_go: Vec<(i64, AdmittedImage, &str)> = written
            .iter()
            .filter(|(image, _)| !images.contains_key(*image))
            .map(|(image, admission)| {
                let since = admission.unused_since.unwrap_or(facts.now);
                (since, image.clone(), admission.mark.as_str())
            })
            .filter(|(since, _, mark)| is_taken(mark) && (0..LET_GO_SECONDS).contains(&(facts.now - since)))
            .collect();
        let_go.sort();
        let excess = let_go.len().saturating_sub(LET_GO_MAX);
        images.extend(let_go.drain(excess..).map(|(since, image, mark)| {
            let admission = ImageAdmission {
                mark: mark.to_owned(),
                unused_since: Some(since),
            };
            (image, admission)
        }));
        Self { images, left_out }
    }
}

/// The images of an environment in the Role, one for each runtime that needs it. Empty where it is not built.
fn images_of<'a>(
    status: &'a EnvironmentStatus,
    wanted: &'a NeededEnvironment,
) -> impl Iterator<Item = AdmittedImage> + 'a {
    let environment = status.environment.as_ref();
    let digest = environment.and_then(|environment| environment.image.rsplit_once("@sha256:"));
    digest.into_iter().flat_map(|(_, digest)| {
        wanted.runtimes.iter().map(move |runtime| AdmittedImage {
            runtime: runtime.clone(),
            digest: digest.to_owned(),
        })
    })
}

/// Takes away what has no room: of the namespace whose lines have the most bytes first what was not written before. Returns how many
/// lines each namespace lost.
fn bound(needed: &mut AdmittedImages, written: &AdmittedImages) -> BTreeMap<String, usize> {
    let mut left_out = BTreeMap::new();
    let size = |image: &AdmittedImage, admission: &ImageAdmission| image.bytes() + admission.mark.len();
    let mut total: usize = needed.iter().map(|(image, admission)| size(image, admission)).sum();
    if total <= NEEDED_MAX_BYTES {
        return left_out;
    }
    let mut by_namespace: BTreeMap<String, (usize, BTreeSet<(bool, AdmittedImage)>)> = BTreeMap::new();
    for (image, admission) in needed.iter() {
        let (bytes, images) = by_namespace.entry(image.runtime.namespace.clone()).or_default();
        *bytes += size(image, admission);
        let is_new = written.get(image).is_none_or(|before| before.unused_since.is_some());
        images.insert((is_new, image.clone()));
    }
    while total > NEEDED_MAX_BYTES {
        let largest = by_namespace.iter_mut().max_by_key(|(_, (bytes, _))| *bytes);
        let Some((namespace, (bytes, images))) = largest else {
            break;
        };
        let Some((_, image)) = images.pop_last() else { break };
        let size = needed.remove(&image).map_or(0, |admission| size(&image, &admission));
        *bytes -= size;
        total -= size;
        *left_out.entry(namespace.clone()).or_default() += 1;
    }
    left_out
}

/// A Role that the API server refuses to change.
pub(super) struct RefusedRole<'a> {
    /// The rules that it has.
    pub(super) current_rules: &'a [PolicyRule],
    /// The reason, for the environments that wait for it.
    pub(super) why: &'a str,
}

/// What is published while the Role does not admit what is to be: an environment that the hub may not run yet stays what it was `before`,
/// or waits and says why. Of the images those stay that the Role has.
pub(super) fn held_back(
    facts: &BuildFacts<'_>,
    published: &PublishedStatuses,
    before: &EnvironmentStatuses,
    role: &RefusedRole<'_>,
) -> PublishedStatuses {
    let allowed = role
        .current_rules
        .iter()
        .flat_map(|rule| rule.resource_names.iter().flatten());
    let allowed: BTreeSet<AdmittedImage> = allowed.filter_map(|name| name.parse().ok()).collect();
    let mut held = published.clone();
    for (key, wanted) in facts.wanted {
        let Some(status) = published.statuses.get(key) else {
            continue;
        };
        // What had no room is refused to nobody but its runtime.
        if images_of(status, wanted).all(|image| allowed.contains(&image) || !published.admitted.contains_key(&image)) {
            continue;
        }
        let status = match before.get(key) {
            Some(known) if known.state == State::Ready => known.clone(),
            known => pending(known, State::Building, role.why, facts.now),
        };
        held.statuses.0.insert(key.clone(), status);
    }
    held.admitted.retain(|image, _| allowed.contains(image));
    held
}

#[cfg(test)]
mod tests {
    use knack_hub_api::RuntimeName;
    use knack_packages::environment::EnvironmentImage;
    use knack_skill::model::SkillRef;

    use super::*;
    use crate::builds::published::rules;
    use crate::builds::wanted::{Asker, NeededEnvironments};
    use crate::selection::EnvironmentRequest;

    const NOW: i64 = 1_000_000;
    /// The base of [`wanted`].
    const BASE: &str = "r.io/base@sha256:0";

    /// Images of lines with values.
    fn images_of_lines(lines: &[(&str, String)]) -> AdmittedImages {
        let lines = lines.iter();
        lines
            .map(|(line, value)| (line.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    /// The lines of images.
    fn lines_of(images: &AdmittedImages) -> BTreeMap<String, String> {
        let images = images.iter();
        images
            .map(|(image, admission)| (image.to_string(), admission.to_string()))
            .collect()
    }

    /// The facts that images depend on.
    fn facts(wanted: &NeededEnvironments, now: i64) -> BuildFacts<'_> {
        const NOTHING: &BuildFacts<'_> = &BuildFacts {
            wanted: &BTreeMap::new(),
            known: &EnvironmentStatuses(BTreeMap::new()),
            builds: &BTreeMap::new(),
            unpulled: &BTreeMap::new(),
            now: NOW,
        };
        BuildFacts {
            wanted,
            now,
            ..*NOTHING
        }
    }

    /// The images of a release without a list of bases.
    fn admitted(statuses: &EnvironmentStatuses, wanted: &NeededEnvironments, written: &AdmittedImages) -> Admitted {
        Admitted::of(&facts(wanted, NOW), statuses, written, |_| true)
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

    fn wanted(all: &[(&str, &[(&str, &str)])]) -> NeededEnvironments {
        let one = |key: &str, runtimes: &[(&str, &str)]| NeededEnvironment {
            asked: EnvironmentRequest {
                key: key.into(),
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
                .map(|(namespace, name)| RuntimeName::new(*namespace, *name))
                .collect(),
        };
        let all = all.iter();
        all.map(|(key, runtimes)| ((*key).into(), one(key, runtimes))).collect()
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
            .map(|(key, digest)| (key.into(), status(digest)))
            .into(),
        );
        let all = wanted(&[
            ("ready", &[("a", "main"), ("b", "main")]),
            ("failed", &[("c", "main")]),
            ("new", &[("c", "main")]),
        ]);
        let images = admitted(&statuses, &all, &AdmittedImages::new()).images;
        let lines: Vec<String> = lines_of(&images).into_keys().collect();
        assert_eq!(lines, [format!("a_main_{digest}"), format!("b_main_{digest}")]);
    }

    #[test]
    fn a_request_that_began_with_a_revision_goes_on_for_an_hour() {
        let statuses = EnvironmentStatuses([("k".into(), status(Some("new")))].into());
        let all = wanted(&[("k", &[("a", "main")])]);
        let mark = repository_mark(BASE);
        let let_go = |since: i64| format!("{mark} {since}");
        let (since, past) = (NOW - LET_GO_SECONDS + 1, NOW - LET_GO_SECONDS);
        for (what, before, expected) in [
            ("replaced just now", ("a_main_old", mark.clone()), Some(NOW)),
            ("replaced", ("a_main_old", let_go(since)), Some(since)),
            ("long ago", ("a_main_old", let_go(past)), None),
            ("in the future", ("a_main_old", let_go(NOW + 9)), None),
        ] {
            let line = before.0;
            let lines = lines_of(&admitted(&statuses, &all, &images_of_lines(&[before])).images);
            assert_eq!(lines.get("a_main_new"), Some(&mark), "{what}");
            assert_eq!(lines.get(line).cloned(), expected.map(let_go), "{what}");
        }
        // It is needed again.
        let written = images_of_lines(&[("a_main_new", let_go(since))]);
        let images = admitted(&statuses, &all, &written).images;
        assert_eq!(images, images_of_lines(&[("a_main_new", mark)]));
    }

    #[test]
    fn no_request_goes_on_with_an_image_on_a_base_that_the_list_no_longer_has() {
        // Marks of an image that was needed until now, and of one that was replaced before.
        let (listed, other) = (repository_mark(BASE), repository_mark("r.io/other:1"));
        let written = images_of_lines(&[
            ("a_main_1", listed.clone()),
            ("a_main_2", format!("{listed} {NOW}")),
            ("a_main_3", other.clone()),
            ("a_main_4", format!("{other} {NOW}")),
            ("a_main_5", String::new()),
        ]);
        let none = (EnvironmentStatuses::default(), NeededEnvironments::new());
        let kept = |is_taken: &dyn Fn(&str) -> bool| -> Vec<String> {
            let images = Admitted::of(&facts(&none.1, NOW), &none.0, &written, is_taken).images;
            lines_of(&images).into_keys().collect()
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
                all.map(|(key, state, digest)| ((*key).into(), status_of(*state, *digest)))
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
        let published = PublishedStatuses {
            admitted: admitted(&now, &all, &AdmittedImages::new()).images,
            statuses: now,
        };
        let current = images_of_lines(&[("a_main_k", String::new()), ("a_main_old", String::new())]);
        let role = RefusedRole {
            current_rules: &rules(&current),
            why: "why",
        };
        let held = held_back(&facts(&all, NOW), &published, &before, &role);
        let reported: Vec<(&str, State, &str)> = held
            .statuses
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
        let lines: Vec<String> = lines_of(&held.admitted).into_keys().collect();
        assert_eq!(lines, ["a_main_k"]);
    }

    #[test]
    fn what_is_let_go_is_bounded() {
        let line = |number: usize| {
            let since = NOW - 3000 + i64::try_from(number).unwrap();
            let image: AdmittedImage = format!("a_main_{number:04}").parse().unwrap();
            (image, format!("m {since}").parse().unwrap())
        };
        let written: AdmittedImages = (0..LET_GO_MAX + 7).map(line).collect();
        let none = (EnvironmentStatuses::default(), NeededEnvironments::new());
        let lines = lines_of(&admitted(&none.0, &none.1, &written).images);
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
        let statuses = all.keys().map(|key| (key.clone(), status(Some(&digest(key.as_str())))));
        let statuses = EnvironmentStatuses(statuses.collect());
        let first = admitted(&statuses, &all, &AdmittedImages::new());
        let lines = lines_of(&first.images);
        let bytes: usize = lines.iter().map(|(line, mark)| line.len() + mark.len()).sum();
        assert!(bytes <= NEEDED_MAX_BYTES, "{bytes}");
        assert!(lines.contains_key(&format!("modest_main_{}", digest("zz"))));
        let left = BTreeMap::from([("greedy".to_owned(), 10_001 - lines.len())]);
        assert_eq!(first.left_out, left);
        // One more environment of the namespace takes none of its other ones their place.
        asked.push(("000a", &greedy));
        let all = wanted(&asked);
        let mut statuses = statuses;
        statuses.0.insert("000a".into(), status(Some(&digest("000a"))));
        let second = Admitted::of(&facts(&all, NOW + 9), &statuses, &first.images, |_| true);
        assert_eq!(second.images, first.images);
        assert_eq!(second.left_out["greedy"], left["greedy"] + 100);
    }
}
