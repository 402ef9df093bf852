//! Tables of packages: what a skill that declares some, or none, is at a runtime, by what builders say.

use knack_packages::{EnvironmentKey, EnvironmentStatuses, Rules, State};
use serde_json::{Value, json};

use super::packages_tests::record;
use super::tests::{reported, runtime, scope, skill};
use super::*;

/// A skill that declares packages, at a runtime.
struct Case {
    what: &'static str,
    /// What a builder says of the environment on the image `default`.
    known: Option<State>,
    /// `spec` of the Skill.
    skill: Value,
    /// `spec` of the SkillRuntime.
    runtime: Value,
    /// How the verdict begins.
    said: &'static str,
    state: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            what: "",
            known: None,
            skill: json!({}),
            runtime: json!({}),
            said: "",
            state: "",
        }
    }
}

impl Case {
    fn check(self) {
        let what = self.what;
        let base = "r.io/default@sha256:00";
        let key = EnvironmentKey::of("d1", false, &Rules::default(), base);
        let records = EnvironmentStatuses(self.known.map(|state| (key, record(state))).into_iter().collect());
        let declared = json!({"source": "requirements.txt", "python": ["mcp>=1"], "digest": "d1"});
        let mut skill = skill("blue", "pdf", json!({}), self.skill);
        skill.status.as_mut().unwrap().packages = serde_json::from_value(declared).unwrap();
        let (runtime, none) = (runtime("blue", self.runtime), NamespaceLabels::new());
        let scope = Scope {
            default_image: Some(base),
            allow_image_tags: true,
            environments: Some(&records),
            ..scope(&none)
        };
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert!(reported.starts_with(self.said), "{what}: {reported}");
        let found = packages(&runtime, Revision::newest(&skill), &scope).unwrap();
        assert_eq!(found.state.as_str(), self.state, "{what}");
        let given = environment(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(given.is_err(), self.said.starts_with("refused"), "{what}");
        assert_eq!(
            given.is_ok_and(|given| given.is_some()),
            self.state == "Ready",
            "{what}"
        );
    }
}

fn check_all<const N: usize>(cases: [Case; N]) {
    for case in cases {
        case.check();
    }
}

/// A runtime whose own image is this one.
fn at(image: &str) -> Value {
    json!({"sandbox": {"image": image}})
}

/// A runtime that names the images `default` and `office`.
fn naming_images() -> Value {
    json!({"sandbox": {"images": [
        {"name": "default", "image": "r.io/default@sha256:00"}, {"name": "office", "image": "r.io/office@sha256:00"},
    ]}})
}

/// A Skill, or a SkillRuntime, that asks for a named image.
fn image_named(name: &str) -> Value {
    json!({"sandbox": {"imageName": name}})
}

#[test]
fn a_skill_is_served_with_its_environment_or_not_at_all() {
    check_all([
        Case {
            what: "nobody has checked",
            said: "refused PackagesBuilding: its packages are not available (Resolving)",
            state: "Resolving",
            ..Case::default()
        },
        Case {
            what: "it is being made",
            known: Some(State::Building),
            said: "refused PackagesBuilding",
            state: "Building",
            ..Case::default()
        },
        Case {
            what: "it is there",
            known: Some(State::Ready),
            said: "served",
            state: "Ready",
            ..Case::default()
        },
        Case {
            what: "it cannot be made",
            known: Some(State::NoWheel),
            said: "refused PackagesFailed: its packages are not available (NoWheel): said",
            state: "NoWheel",
            ..Case::default()
        },
        Case {
            what: "of another base",
            known: Some(State::Ready),
            runtime: at("r.io/other@sha256:00"),
            said: "refused PackagesBuilding",
            state: "Resolving",
            ..Case::default()
        },
        Case {
            what: "of other constraints",
            known: Some(State::Ready),
            runtime: json!({"packages": {"constraints": ["mcp<2"]}}),
            said: "refused PackagesBuilding",
            state: "Resolving",
            ..Case::default()
        },
        Case {
            what: "a rule is broken",
            known: Some(State::Ready),
            runtime: json!({"packages": {"requireLock": true}}),
            said: "refused LockRequired",
            state: "Refused",
            ..Case::default()
        },
    ]);
}

#[test]
fn an_environment_is_of_the_image_that_the_skill_runs_in() {
    let mut own_named = naming_images();
    own_named["sandbox"]["imageName"] = json!("default");
    check_all([
        Case {
            what: "an image of the skill's own",
            known: Some(State::Ready),
            skill: json!({"sandbox": {"image": "r.io/office@sha256:00"}}),
            runtime: json!({"sandbox": {"allowedImages": ["r.io/office"]}}),
            said: "served",
            state: "PackagesOff",
        },
        Case {
            what: "an image that the runtime names",
            known: Some(State::Ready),
            skill: image_named("default"),
            runtime: naming_images(),
            said: "served",
            state: "Ready",
        },
        Case {
            what: "another image that the runtime names",
            known: Some(State::Ready),
            skill: image_named("office"),
            runtime: naming_images(),
            said: "refused PackagesBuilding",
            state: "Resolving",
        },
        Case {
            what: "the named image that is the runtime's own",
            known: Some(State::Ready),
            runtime: own_named,
            said: "served",
            state: "Ready",
            ..Case::default()
        },
    ]);
}

#[test]
fn where_packages_cannot_be_added_code_runs_without() {
    let off = || Case {
        known: Some(State::PackagesOff),
        said: "PackagesMissing: its code runs without",
        state: "PackagesOff",
        ..Case::default()
    };
    check_all([
        Case {
            what: "a base that packages cannot be added to",
            ..off()
        },
        Case {
            what: "the same, by the runtime's own word",
            runtime: at("r.io/default@sha256:00"),
            ..off()
        },
        Case {
            what: "the same, by a name",
            skill: image_named("default"),
            runtime: naming_images(),
            ..off()
        },
    ]);
}

/// A skill at a runtime that may give the standard environment.
struct StandardCase {
    what: &'static str,
    /// `status.packages` of the Skill.
    declared: Value,
    /// `spec` of the SkillRuntime.
    runtime: Value,
    /// What a builder says of the standard environment.
    known: Option<State>,
    /// How the verdict begins.
    said: &'static str,
    state: Option<&'static str>,
}

impl Default for StandardCase {
    fn default() -> Self {
        Self {
            what: "",
            declared: Value::Null,
            runtime: json!({"packages": {"standard": true, "requireLock": true}}),
            known: Some(State::Ready),
            said: "served",
            state: Some("Ready"),
        }
    }
}

impl StandardCase {
    fn check(self) {
        let what = self.what;
        let base = "r.io/default@sha256:00";
        let key = EnvironmentKey::of(&standard_digest(), true, &Rules::default(), base);
        let records = EnvironmentStatuses(self.known.map(|state| (key, record(state))).into_iter().collect());
        let is_own = !self.declared.is_null();
        let mut skill = skill("blue", "pdf", json!({}), json!({}));
        skill.status.as_mut().unwrap().packages = serde_json::from_value(self.declared).unwrap();
        let (runtime, none) = (runtime("blue", self.runtime), NamespaceLabels::new());
        let scope = Scope {
            default_image: Some(base),
            environments: Some(&records),
            ..scope(&none)
        };
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert!(reported.starts_with(self.said), "{what}: {reported}");
        let found = packages(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(found.as_ref().map(|found| found.state.as_str()), self.state, "{what}");
        let source = found.and_then(|found| found.given);
        let expected = (self.state.is_some() && !is_own).then_some("standard environment, by the runtime");
        assert_eq!(source, expected, "{what}");
        let given = environment(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(given.is_err(), self.said.starts_with("refused"), "{what}");
        assert_eq!(
            given.is_ok_and(|given| given.is_some()),
            self.state == Some("Ready"),
            "{what}"
        );
    }
}

fn standard_digest() -> String {
    knack_packages::environment::Input::of(&knack_packages::given::standard_environment().unwrap()).digest()
}

/// The packages of a skill that asks for the standard environment.
fn asks() -> Value {
    json!({"source": "standard environment", "locked": true, "python": ["numpy==2"], "digest": standard_digest()})
}

/// What a runtime gives may be missing: the skill is served all the same, and what it declares wins.
#[test]
fn a_runtime_gives_the_standard_environment_to_skills_that_declare_nothing() {
    for case in [
        StandardCase {
            what: "it is there",
            ..StandardCase::default()
        },
        StandardCase {
            what: "a runtime that gives nothing",
            runtime: json!({}),
            state: None,
            ..StandardCase::default()
        },
        StandardCase {
            what: "it is being made",
            known: Some(State::Building),
            said: "PackagesMissing: its code runs without the standard environment that this runtime gives",
            state: Some("Building"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "it cannot be made",
            known: Some(State::NoWheel),
            said: "PackagesMissing: its code",
            state: Some("NoWheel"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "constraints exclude it",
            runtime: json!({"packages": {"standard": true, "constraints": ["numpy<1"]}}),
            said: "PackagesMissing: its code",
            state: Some("Conflict"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "constraints leave a version for some Pythons, and a builder knows which one it is",
            runtime: json!({"packages": {"standard": true, "constraints": ["numpy>=2.3"]}}),
            said: "PackagesMissing: its code",
            state: Some("Resolving"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "what is declared wins",
            declared: json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"}),
            said: "refused PackagesBuilding",
            state: Some("Resolving"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "nothing is asked for",
            declared: json!({"source": "spec.packages.python"}),
            state: None,
            ..StandardCase::default()
        },
    ] {
        case.check();
    }
}

#[test]
fn a_skill_may_ask_for_the_standard_environment() {
    let only_standard = || json!({"packages": {"allowed": "Standard"}});
    for case in [
        StandardCase {
            what: "the skill asks for it",
            declared: asks(),
            runtime: json!({}),
            ..StandardCase::default()
        },
        StandardCase {
            what: "the skill asks for it, and the runtime allows nothing else",
            declared: asks(),
            runtime: only_standard(),
            ..StandardCase::default()
        },
        StandardCase {
            what: "the skill asks for it, for some versions of Python, and the runtime allows nothing else",
            declared: json!({"source": "standard environment", "locked": true, "python": ["numpy==2"], "digest": "d2"}),
            runtime: only_standard(),
            said: "refused PackagesBuilding",
            state: Some("Resolving"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "the skill asks for packages of Node besides, and the runtime allows nothing else",
            declared: json!({"source": "standard environment; package-lock.json", "locked": true, "python": ["numpy==2"], "node": ["c@1.0.0"], "digest": "d3"}),
            runtime: only_standard(),
            said: "refused PackagesNotAllowed",
            state: Some("Refused"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "the skill asks for it, and the runtime allows nothing",
            declared: asks(),
            runtime: json!({"packages": {"allowed": "None"}}),
            said: "refused PackagesNotAllowed",
            state: Some("Refused"),
            ..StandardCase::default()
        },
        StandardCase {
            what: "the skill asks for it, and it is not there",
            declared: asks(),
            known: Some(State::Building),
            said: "refused PackagesBuilding",
            state: Some("Building"),
            ..StandardCase::default()
        },
    ] {
        case.check();
    }
}
