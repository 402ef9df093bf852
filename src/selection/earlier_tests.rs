//! Which revision of a skill with packages a runtime serves, and which of those before the newest are kept.

use std::collections::BTreeMap;

use knack_api::skill_runtime::SkillPin;
use knack_api::skill_status::EarlierRevision;
use knack_packages::environment::EnvironmentImage;
use knack_packages::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses, Rules, State};
use knack_skill::model::ActivationMode;
use serde_json::{Value, json};

use super::tests::{reported, runtime, skill};
use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn the_last_revision_whose_packages_are_there_serves_on() {
    let base = "r.io/default@sha256:00";
    let image = |digest: &str| EnvironmentImage {
        image: format!("r.io/environments@sha256:{digest}"),
        home: "/opt/knack/packages/env-1".to_owned(),
    };
    let declares = |digest: &str| json!({"source": "requirements.txt", "python": ["mcp>=1"], "digest": digest});
    let locked = json!({"source": "requirements.lock", "locked": true, "python": ["mcp==1"], "digest": "d1"});
    let revision = |name: &str, packages: Value| json!({"revision": name, "digest": name, "packages": packages});
    let nothing = || revision("plain", Value::Null);
    for (what, newest, known, earlier, spec, serves, said) in [
        (
            "the newest one is there",
            State::Ready,
            State::Ready,
            vec![revision("one", declares("d1"))],
            json!({}),
            None,
            "served",
        ),
        (
            "the newest one is being made",
            State::Building,
            State::Ready,
            vec![revision("one", declares("d1"))],
            json!({}),
            Some("one"),
            "EarlierRevision: revision one stays in service here; the newest revision is not served: its packages are not available (Building)",
        ),
        (
            "the newest one cannot be made",
            State::NoWheel,
            State::Ready,
            vec![revision("one", declares("d1"))],
            json!({}),
            Some("one"),
            "EarlierRevision: revision one stays",
        ),
        (
            "one without packages",
            State::NoWheel,
            State::Ready,
            vec![nothing()],
            json!({}),
            Some("plain"),
            "EarlierRevision",
        ),
        (
            "the newest of those that are there",
            State::NoWheel,
            State::Ready,
            vec![
                revision("bad", declares("d2")),
                revision("one", declares("d1")),
                nothing(),
            ],
            json!({}),
            Some("one"),
            "EarlierRevision",
        ),
        (
            "none is there",
            State::NoWheel,
            State::Conflict,
            vec![revision("one", declares("d1"))],
            json!({}),
            None,
            "refused PackagesFailed",
        ),
        (
            "the earlier one was made for another image",
            State::NoWheel,
            State::Ready,
            vec![revision("one", declares("d1"))],
            json!({"sandbox": {"image": "r.io/other@sha256:00"}}),
            None,
            "refused PackagesBuilding",
        ),
        (
            "the earlier one breaks a rule, too",
            State::Ready,
            State::Ready,
            vec![revision("one", declares("d1"))],
            json!({"packages": {"requireLock": true}}),
            None,
            "refused LockRequired",
        ),
        (
            "an edit added packages that are not allowed",
            State::Ready,
            State::Ready,
            vec![revision("one", declares("d1")), nothing()],
            json!({"packages": {"allowed": "Standard"}}),
            Some("plain"),
            "EarlierRevision: revision plain stays in service here; the newest revision is not served: spec.packages.allowed of the runtime is Standard",
        ),
        (
            "an edit lost the lock",
            State::Ready,
            State::Ready,
            vec![revision("one", locked)],
            json!({"packages": {"requireLock": true}}),
            Some("one"),
            "EarlierRevision: revision one stays in service here; the newest revision is not served: packages are declared without a lock",
        ),
    ] {
        let record = |state, digest: &str| EnvironmentStatus {
            state,
            message: "said".to_owned(),
            environment: (state == State::Ready).then(|| image(digest)),
            is_partial: false,
            since: 0,
            used: 0,
        };
        let open = |digest| EnvironmentKey::of(digest, false, &Rules::default(), base);
        let records = EnvironmentStatuses(BTreeMap::from([
            (open("d2"), record(newest, "two")),
            (open("d1"), record(known, "one")),
            (
                EnvironmentKey::of("d1", true, &Rules::default(), base),
                record(known, "one"),
            ),
        ]));
        let mut skill = skill("blue", "pdf", json!({}), json!({}));
        let status = skill.status.as_mut().unwrap();
        status.packages = serde_json::from_value(declares("d2")).unwrap();
        status.earlier = serde_json::from_value(Value::from(earlier)).unwrap();
        let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
        let scope = Scope {
            cluster_default: false,
            namespaces: &none,
            default_image: Some(base),
            allow_image_tags: true,
            environments: Some(&records),
        };
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert!(reported.starts_with(said), "{what}: {reported}");
        let served = selected[0].earlier;
        assert_eq!(served.map(|earlier| earlier.revision.as_str()), serves, "{what}");
        // Each revision has its own environment, whichever is newest.
        if let Some(earlier) = served.filter(|earlier| earlier.packages.is_some()) {
            let given = environment(&runtime, Revision::earlier(&skill, earlier), &scope);
            assert_eq!(given.unwrap(), Some(&image("one")), "{what}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_earlier_revision_is_kept_while_it_serves_or_may() {
    let declared = json!({"source": "requirements.txt", "python": ["mcp>=1"], "digest": "d1"});
    let earlier: EarlierRevision =
        serde_json::from_value(json!({"revision": "one", "digest": "d", "version": "1.0.0", "packages": declared}))
            .unwrap();
    let skill = skill("blue", "pdf", json!({}), json!({}));
    let key = EnvironmentKey::of("d1", false, &Rules::default(), "r.io/default@sha256:00");
    let record = |state| EnvironmentStatus {
        state,
        message: String::new(),
        environment: None,
        is_partial: false,
        since: 0,
        used: 0,
    };
    for (what, known, is_in_service, refused, wanted, expected) in [
        (
            "it serves",
            Some(State::NoWheel),
            true,
            None,
            None,
            EarlierState::Serves,
        ),
        ("the newest one serves", None, false, None, None, EarlierState::Useless),
        (
            "the newest one is not allowed",
            None,
            false,
            Some(RejectionReason::ImageNotAllowed),
            None,
            EarlierState::Useless,
        ),
        (
            "nothing is known yet, as after a start",
            None,
            false,
            Some(RejectionReason::PackagesBuilding),
            None,
            EarlierState::Possible,
        ),
        (
            "it is being made",
            Some(State::Building),
            false,
            Some(RejectionReason::PackagesFailed),
            None,
            EarlierState::Possible,
        ),
        (
            "neither can be made",
            Some(State::NoWheel),
            false,
            Some(RejectionReason::PackagesFailed),
            None,
            EarlierState::Useless,
        ),
        (
            "it has the version that the newest one has not, and nothing else is known of it",
            None,
            false,
            Some(RejectionReason::VersionNotMatched),
            Some("^1"),
            EarlierState::Possible,
        ),
        (
            "it has the version, and cannot be made",
            Some(State::NoWheel),
            false,
            Some(RejectionReason::VersionNotMatched),
            Some("^1"),
            EarlierState::Useless,
        ),
        (
            "neither has the version",
            None,
            false,
            Some(RejectionReason::VersionNotMatched),
            Some("^2"),
            EarlierState::Useless,
        ),
        (
            "the newest one has the version and waits, and this one has another",
            None,
            false,
            Some(RejectionReason::PackagesBuilding),
            Some("^2"),
            EarlierState::Useless,
        ),
    ] {
        let records = EnvironmentStatuses(known.map(|state| (key.clone(), record(state))).into_iter().collect());
        let scope = Scope {
            cluster_default: false,
            namespaces: &NO_NAMESPACES,
            default_image: Some("r.io/default@sha256:00"),
            allow_image_tags: true,
            environments: Some(&records),
        };
        let pin = SkillPin {
            version: wanted.map(str::to_owned),
            ..SkillPin::default()
        };
        let item = Selected {
            skill: &skill,
            pin: Some(&pin),
            earlier: is_in_service.then_some(&earlier),
            mode: ActivationMode::Listed,
            accepted: refused.map_or(Ok(None), |reason| {
                Err(Rejection {
                    reason,
                    message: String::new(),
                })
            }),
        };
        let found = earlier_state(&runtime("blue", json!({})), &item, &earlier, &scope);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_version_that_a_pin_chooses_is_kept_whatever_serves() {
    let skill = skill("blue", "pdf", json!({}), json!({}));
    let chosen: EarlierRevision =
        serde_json::from_value(json!({"revision": "one", "digest": "d", "version": "1.0.0", "uploadVersion": 1}))
            .unwrap();
    let scope = Scope {
        cluster_default: false,
        namespaces: &NO_NAMESPACES,
        default_image: None,
        allow_image_tags: true,
        environments: None,
    };
    for (what, wanted, is_in_service, expected) in [
        ("it serves", Some("^1"), true, EarlierState::Serves),
        ("the newest one serves", Some("^1"), false, EarlierState::Possible),
        ("the pin requires another one", Some("^2"), false, EarlierState::Useless),
        ("the pin requires none", None, false, EarlierState::Useless),
    ] {
        let pin = SkillPin {
            version: wanted.map(str::to_owned),
            ..SkillPin::default()
        };
        let item = Selected {
            skill: &skill,
            pin: Some(&pin),
            earlier: is_in_service.then_some(&chosen),
            mode: ActivationMode::Listed,
            accepted: Ok(None),
        };
        let found = earlier_state(&runtime("blue", json!({})), &item, &chosen, &scope);
        assert_eq!(found, expected, "{what}");
    }
}

static NO_NAMESPACES: NamespaceLabels = NamespaceLabels::new();
