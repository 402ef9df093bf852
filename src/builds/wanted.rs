//! The environments that the skills of a cluster need. Pure.

use std::collections::BTreeMap;

use knack_api::skill_runtime::SkillPin;
use knack_api::{Skill, SkillRuntime};
use knack_hub_api::RuntimeName;
use knack_packages::EnvironmentKey;
use knack_skill::model::SkillRef;
use kube::ResourceExt as _;

use crate::selection::{
    Audience, EnvironmentRequest, RejectionReason, Revision, Scope, Selected, asked, counted, is_chosen,
    newest_version, select, version_matches,
};

/// Skills of one namespace whose content may be read for an environment. Whoever spoils the content of one skill can spoil that of all of
/// its namespace, so more of them would only delay the others.
const ASKERS_PER_NAMESPACE: usize = 4;

/// A skill that needs an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asker {
    /// The skill.
    pub(super) skill: SkillRef,
    /// The digest of its content.
    pub(super) artifact: String,
}

/// The environments that are needed, by key.
pub(super) type NeededEnvironments = BTreeMap<EnvironmentKey, NeededEnvironment>;

/// A needed environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NeededEnvironment {
    /// The declared packages.
    pub(super) asked: EnvironmentRequest,
    /// Skills that declare them, or get them from their runtime, by namespace: at most [`ASKERS_PER_NAMESPACE`] of each. Of one that can be
    /// read the content is read.
    pub(super) askers: BTreeMap<String, Vec<Asker>>,
    /// All skills that need it, sorted.
    pub(super) skills: Vec<SkillRef>,
    /// The digest of what it declares.
    pub(super) digest: String,
    /// Whether the installation adds packages to the image.
    pub(super) is_listed: bool,
    /// Whether only revisions before the newest one need it: it is kept but not built.
    pub(super) is_earlier: bool,
    /// The runtimes that need it, sorted.
    pub(super) runtimes: Vec<RuntimeName>,
}

impl NeededEnvironment {
    /// The skills whose content may be read for it: the first of each namespace, then the second of each, so that none of another namespace
    /// waits for all of one.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Asker> {
        (0..ASKERS_PER_NAMESPACE).flat_map(move |nth| self.askers.values().filter_map(move |askers| askers.get(nth)))
    }

    /// The namespaces that need it.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.askers.keys().map(String::as_str)
    }
}

/// The environments of all runtimes, for the skills that they serve, or would serve with their packages. `is_listed` says of an image whether
/// the installation adds packages to it.
pub(super) fn wanted<'a>(
    runtimes: impl IntoIterator<Item = (&'a SkillRuntime, Scope<'a>)>,
    skills: &[&'a Skill],
    is_listed: impl Fn(&str) -> bool,
) -> NeededEnvironments {
    let mut all = NeededEnvironments::new();
    for (runtime, scope) in runtimes {
        let gives = runtime.spec.packages.as_ref().is_some_and(|rules| rules.standard);
        let packaged = skills.iter().copied().filter(|skill| gives || has_packages(skill));
        for item in select(runtime, &scope, Audience::All, packaged) {
            let is_wanted = is_wanted(&item);
            let own = RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any());
            let revisions = revisions(item.skill, item.pin);
            // Nothing is built of a revision that the pin does not take.
            let taken = revisions.filter(|(_, version, ..)| is_wanted && version_matches(item.pin, *version));
            for (revision, _, artifact, is_earlier) in taken {
                let wanted = asked(runtime, revision, &scope).and_then(|asked| {
                    let skill = SkillRef {
                        namespace: item.skill.namespace().unwrap_or_default(),
                        name: item.skill.name_any(),
                    };
                    let asker = Asker {
                        skill: skill.clone(),
                        artifact: artifact.to_owned(),
                    };
                    Some(NeededEnvironment {
                        is_listed: is_listed(&asked.base),
                        asked,
                        askers: BTreeMap::from([(skill.namespace.clone(), vec![asker])]),
                        skills: vec![skill],
                        digest: counted(runtime, revision)?.digest.clone()?,
                        is_earlier,
                        runtimes: vec![own.clone()],
                    })
                });
                if let Some(wanted) = wanted {
                    add(&mut all, wanted);
                }
            }
        }
    }
    for wanted in all.values_mut() {
        wanted.runtimes.sort();
        wanted.runtimes.dedup();
        wanted.skills.sort();
        wanted.skills.dedup();
    }
    all
}

/// Whether some revision of a skill declares packages.
fn has_packages(skill: &Skill) -> bool {
    skill.status.as_ref().is_some_and(|status| {
        status.packages.is_some() || status.earlier.iter().any(|earlier| earlier.packages.is_some())
    })
}

/// Whether a runtime serves some revision of a skill, or would with its packages.
fn is_wanted(item: &Selected<'_>) -> bool {
    let Err(refused) = &item.accepted else {
        return true;
    };
    matches!(
        refused.reason,
        RejectionReason::VersionNotMatched | RejectionReason::PackagesBuilding | RejectionReason::PackagesFailed
    )
}

/// The revisions of a skill with version and digest of the content of each, and whether it is an earlier one. What a pin chooses is
/// built as the newest one is.
fn revisions<'a>(
    skill: &'a Skill,
    pin: Option<&'a SkillPin>,
) -> impl Iterator<Item = (Revision<'a>, Option<&'a str>, &'a str, bool)> {
    let status = skill.status.iter();
    let newest = status.clone().filter_map(|status| status.artifact.as_ref());
    let newest = newest.map(|artifact| {
        let digest = artifact.digest.as_str();
        (Revision::newest(skill), newest_version(skill), digest, false)
    });
    let earlier = status.flat_map(|status| &status.earlier).map(move |earlier| {
        let digest = earlier.digest.as_str();
        (
            Revision::earlier(skill, earlier),
            earlier.version.as_deref(),
            digest,
            !is_chosen(pin, earlier),
        )
    });
    newest.chain(earlier)
}

/// Adds a needed environment. Equal ones are one, which is built if one of them is no earlier revision, and then from the content of one
/// that is none.
fn add(all: &mut NeededEnvironments, wanted: NeededEnvironment) {
    let Some(found) = all.get_mut(&wanted.asked.key) else {
        all.insert(wanted.asked.key.clone(), wanted);
        return;
    };
    found.runtimes.extend(wanted.runtimes);
    found.skills.extend(wanted.skills);
    if found.is_earlier && !wanted.is_earlier {
        found.is_earlier = false;
        found.askers = wanted.askers;
    } else if found.is_earlier == wanted.is_earlier {
        for asker in wanted.askers.into_values().flatten() {
            let known = found.askers.entry(asker.skill.namespace.clone()).or_default();
            if known.len() < ASKERS_PER_NAMESPACE && !known.contains(&asker) {
                known.push(asker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use knack_api::skill_status::EarlierRevision;
    use knack_packages::EnvironmentStatuses;
    use serde_json::{Value, json};

    use super::*;
    use crate::selection::NamespaceLabels;

    fn skill(name: &str, packages: &Value, spec: &Value) -> Skill {
        let mut whole = json!({"source": {}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name}, "spec": whole,
            "status": {"artifact": {"revision": "r", "digest": name, "size": 1, "fileCount": 1}, "packages": packages},
        }))
        .unwrap()
    }

    fn runtime(name: &str, spec: &Value) -> SkillRuntime {
        serde_json::from_value(json!({"metadata": {"namespace": "n", "name": name}, "spec": spec})).unwrap()
    }

    /// The scope of runtimes that are not the default, where environments are built unless there are no statuses.
    fn scope<'a>(namespaces: &'a NamespaceLabels, environments: Option<&'a EnvironmentStatuses>) -> Scope<'a> {
        Scope {
            cluster_default: false,
            namespaces,
            default_image: Some("r.io/base@sha256:0"),
            allow_image_tags: false,
            environments,
        }
    }

    /// The digests that are declared, and whether only an earlier revision needs them, sorted.
    fn digests(all: &NeededEnvironments) -> Vec<(&str, bool)> {
        let mut found: Vec<(&str, bool)> = all
            .values()
            .map(|wanted| (wanted.digest.as_str(), wanted.is_earlier))
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn equal_locks_are_built_once_for_all_runtimes_of_one_image() {
        let locked = json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"});
        let open = json!({"source": "requirements.txt", "python": ["six"], "digest": "d2"});
        let refused = json!({"source": "requirements.txt", "refused": "no"});
        let skills = [
            skill("a", &locked, &json!({})),
            skill("b", &locked, &json!({})),
            skill("c", &open, &json!({})),
            skill("d", &refused, &json!({})),
            skill("e", &Value::Null, &json!({})),
            skill("f", &open, &json!({"suspend": true})),
        ];
        let runtimes = [
            runtime("one", &json!({})),
            runtime("two", &json!({})),
            runtime("three", &json!({"sandbox": {"image": "r.io/other@sha256:1"}})),
            runtime("four", &json!({"packages": {"constraints": ["six<2"]}})),
        ];
        let (none, statuses) = (NamespaceLabels::new(), EnvironmentStatuses::default());
        let scope = |environments| scope(&none, environments);
        let skills: Vec<&Skill> = skills.iter().collect();
        let all = wanted(
            runtimes.iter().map(|runtime| (runtime, scope(Some(&statuses)))),
            &skills,
            |_| true,
        );
        let mut actual: Vec<(String, String, String)> = all
            .values()
            .map(|wanted| {
                let runtimes: Vec<&str> = wanted.runtimes.iter().map(|runtime| runtime.name.as_str()).collect();
                let first = wanted.sources().next().unwrap();
                (first.skill.name.clone(), wanted.asked.base.clone(), runtimes.join(" "))
            })
            .collect();
        actual.sort();
        let row = |skill: &str, base: &str, runtimes: &str| (skill.to_owned(), base.to_owned(), runtimes.to_owned());
        assert_eq!(
            actual,
            [
                // Constraints do not touch what a lock fixes.
                row("a", "r.io/base@sha256:0", "four one two"),
                row("a", "r.io/other@sha256:1", "three"),
                row("c", "r.io/base@sha256:0", "four"),
                row("c", "r.io/base@sha256:0", "one two"),
                row("c", "r.io/other@sha256:1", "three"),
            ]
        );
        // Each of them hears of it.
        let of_lock = all.values().find(|wanted| wanted.runtimes.len() == 3).unwrap();
        let of_it: Vec<&str> = of_lock.skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(of_it, ["a", "b"]);
        // An edit: what it replaced is kept where it is, and is not made anew unless another skill asks for it.
        let mut edited = skill(
            "a",
            &json!({"source": "requirements.txt", "python": ["mcp"], "digest": "d3"}),
            &json!({}),
        );
        let before: EarlierRevision =
            serde_json::from_value(json!({"revision": "r0", "digest": "a", "packages": locked})).unwrap();
        edited.status.as_mut().unwrap().earlier = vec![before];
        let other = skill("b", &locked, &json!({}));
        for (skills, expected) in [
            (vec![&edited], [("d1", true), ("d3", false)]),
            (vec![&edited, &other], [("d1", false), ("d3", false)]),
        ] {
            let all = wanted([(&runtimes[0], scope(Some(&statuses)))], &skills, |_| true);
            assert_eq!(digests(&all), expected);
        }
        // A runtime that gives the standard environment: one for all of its skills that declare nothing.
        let gives = runtime("gives", &json!({"packages": {"standard": true}}));
        let bare = ["x", "y"].map(|name| skill(name, &Value::Null, &json!({})));
        let bare: Vec<&Skill> = bare.iter().collect();
        let given = wanted([(&gives, scope(Some(&statuses)))], &bare, |_| true);
        assert_eq!(given.len(), 1, "{given:?}");
        assert!(wanted([(&runtimes[0], scope(Some(&statuses)))], &bare, |_| true).is_empty());
        let off = wanted(runtimes.iter().map(|runtime| (runtime, scope(None))), &skills, |_| true);
        assert!(off.is_empty(), "nothing builds");
    }

    #[test]
    fn an_environment_of_several_namespaces_is_that_of_each_of_them() {
        let locked = json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"});
        let of = |namespace: &str, name: &str| {
            let mut one = skill(name, &locked, &json!({}));
            one.metadata.namespace = Some(namespace.to_owned());
            one
        };
        let many = 2 * ASKERS_PER_NAMESPACE;
        let mut skills: Vec<Skill> = (0..many).map(|number| of("aaa", &format!("s{number}"))).collect();
        skills.extend(["y", "z"].map(|name| of("bbb", name)));
        let skills: Vec<&Skill> = skills.iter().collect();
        let runtimes = ["aaa", "bbb"].map(|namespace| {
            let mut one = runtime("r", &json!({}));
            one.metadata.namespace = Some(namespace.to_owned());
            one
        });
        let (none, statuses) = (NamespaceLabels::new(), EnvironmentStatuses::default());
        let scope = scope(&none, Some(&statuses));
        let all = wanted(runtimes.iter().map(|runtime| (runtime, scope)), &skills, |_| true);
        assert_eq!(all.len(), 1, "{all:?}");
        let shared = all.values().next().unwrap();
        let sources: Vec<String> = shared.sources().map(|asker| asker.skill.to_string()).collect();
        assert_eq!(sources, ["aaa/s0", "bbb/y", "aaa/s1", "bbb/z", "aaa/s2", "aaa/s3"]);
        assert_eq!(shared.namespaces().collect::<Vec<_>>(), ["aaa", "bbb"]);
        assert_eq!(shared.skills.len(), many + 2, "each hears of it");
    }

    #[test]
    fn nothing_is_built_of_a_revision_that_a_pin_does_not_take() {
        let declares = |digest: &str| json!({"source": "requirements.txt", "python": ["six"], "digest": digest});
        let mut held = skill("a", &declares("d2"), &json!({}));
        let status = held.status.as_mut().unwrap();
        status.version = Some("2.0.0".to_owned());
        let before = json!([{"revision": "r0", "digest": "a", "version": "1.0.0", "packages": declares("d1")}]);
        status.earlier = serde_json::from_value(before).unwrap();
        let (none, statuses) = (NamespaceLabels::new(), EnvironmentStatuses::default());
        let scope = scope(&none, Some(&statuses));
        for (wanted_version, expected) in [
            ("^1", vec![("d1", true)]),
            ("^2", vec![("d2", false)]),
            ("^3", vec![]),
            (">=1", vec![("d1", true), ("d2", false)]),
        ] {
            let pin = json!({"skillSelector": {"skills": [{"name": "a", "version": wanted_version}]}});
            let runtime = runtime("holds", &pin);
            let all = wanted([(&runtime, scope)], &[&held], |_| true);
            assert_eq!(digests(&all), expected, "{wanted_version}");
        }
    }

    #[test]
    fn what_a_pin_chooses_is_built_and_what_it_held_before_is_kept_whatever_the_newest_one_declares() {
        let declares = |digest: &str| json!({"source": "requirements.txt", "python": ["six"], "digest": digest});
        let mut uploaded = skill("a", &Value::Null, &json!({}));
        let status = uploaded.status.as_mut().unwrap();
        status.version = Some("2.0.0".to_owned());
        let earlier = json!([
            {"revision": "r0", "digest": "a", "version": "1.0.0", "packages": declares("d1")},
            {"revision": "r1", "digest": "b", "version": "1.1.0", "packages": declares("d2"), "uploadVersion": 2},
        ]);
        status.earlier = serde_json::from_value(earlier).unwrap();
        let (none, statuses) = (NamespaceLabels::new(), EnvironmentStatuses::default());
        let scope = scope(&none, Some(&statuses));
        for (pin, expected) in [
            (json!({"name": "a", "version": "^1"}), vec![("d1", true), ("d2", false)]),
            (json!({"name": "a", "version": "^2"}), vec![]),
            (json!({"name": "a"}), vec![("d1", true), ("d2", true)]),
        ] {
            let runtime = runtime("pins", &json!({"skillSelector": {"skills": [pin.clone()]}}));
            let all = wanted([(&runtime, scope)], &[&uploaded], |_| true);
            assert_eq!(digests(&all), expected, "{pin}");
        }
    }
}
