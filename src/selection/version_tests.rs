//! Which versions of a skill a pin takes, and which revision is served while the newest one has another version.

use knack_api::SkillStatus;
use knack_api::skill_status::{EarlierRevision, STATUS_CHOSEN_MAX};
use serde_json::{Value, json};

use super::tests::{reported, runtime, scope, skill};
use super::*;

fn pinned(version: &str) -> Value {
    json!({"skillSelector": {"skills": [{"name": "word", "version": version}]}})
}

/// How a skill is judged whose newest revision has a version, and the revision that is served instead.
fn judged(version: Option<&str>, earlier: &Value, spec: Value) -> (String, Option<String>) {
    let mut skill = skill("blue", "word", json!({}), json!({}));
    let status = skill.status.as_mut().unwrap();
    status.version = version.map(str::to_owned);
    status.earlier = serde_json::from_value(earlier.clone()).unwrap();
    let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
    let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
    let serves = selected[0].earlier.map(|earlier| earlier.revision.clone());
    (reported(&selected[0]), serves)
}

#[test]
fn a_pin_takes_the_versions_of_its_constraint() {
    let other = |version: &str, wanted: &str| {
        format!(
            "refused VersionNotMatched: its version is {version}, and the pin requires {wanted}; change \
             spec.skillSelector.skills[].version of the runtime to serve it"
        )
    };
    for (version, wanted, is_taken) in [
        ("1.2.0", "1.2.0", true),
        ("1.2.0", "==1.2.0", true),
        ("1.2.1", "1.2.0", false),
        ("1.2.0", "^1", true),
        ("2.0.0", "^1", false),
        ("1.2.9", "~1.2", true),
        ("1.3.0", "~1.2", false),
        ("1.2.0", ">1.2.0", false),
        ("3.0.0", ">=1", true),
        ("1.9.9", "<2", true),
        ("2.0.0", "<=1.2", false),
        ("2.0.0-rc.1", "2.0.0-rc.1", true),
        ("2.0.0-rc.1", "^2", false),
        // The definition refuses it: one version alone is no latest one.
        ("1.2.0", "latest", false),
    ] {
        let expected = if is_taken {
            "served".to_owned()
        } else {
            other(version, wanted)
        };
        let (reported, serves) = judged(Some(version), &json!([]), pinned(wanted));
        assert_eq!((reported, serves), (expected, None), "{version} {wanted}");
    }
    let (reported, _) = judged(None, &json!([]), pinned("^1"));
    assert!(
        reported.starts_with("refused VersionNotMatched: it has no version (spec.version"),
        "{reported}"
    );
    for spec in [json!({}), json!({"skillSelector": {"skills": [{"name": "word"}]}})] {
        assert_eq!(judged(None, &json!([]), spec).0, "served", "without a requirement");
    }
}

#[test]
fn the_last_revision_whose_version_is_taken_serves_on() {
    let revision = |name: &str, version: Value| json!({"revision": name, "digest": name, "version": version});
    let earlier = json!([
        revision("unknown", Value::Null),
        revision("two", json!("2.0.0")),
        revision("one-two", json!("1.2.0")),
        revision("one", json!("1.0.0")),
    ]);
    for (wanted, serves) in [
        ("^3", None),
        ("^2", Some("two")),
        ("^1", Some("one-two")),
        ("~1.0", Some("one")),
        ("<=1.1", Some("one")),
    ] {
        let (reported, served) = judged(Some("3.1.0"), &earlier, pinned(wanted));
        assert_eq!(served.as_deref(), serves, "{wanted}: {reported}");
        if let Some(serves) = serves {
            let expected = format!(
                "EarlierRevision: revision {serves} stays in service here; the newest revision is not served: its version is \
                 3.1.0, and the pin requires {wanted}"
            );
            assert!(reported.starts_with(&expected), "{reported}");
        } else {
            assert_eq!(reported, "served", "{wanted}");
        }
    }
    let (reported, served) = judged(Some("3.1.0"), &earlier, pinned("^4"));
    assert!(
        reported.starts_with("refused VersionNotMatched") && served.is_none(),
        "{reported}"
    );
}

#[test]
fn what_an_edit_replaces_keeps_its_version() {
    let status = |revision: &str, version: &str| -> SkillStatus {
        serde_json::from_value(json!({
            "version": version, "artifact": {"revision": revision, "digest": "d", "size": 1, "fileCount": 1},
        }))
        .unwrap()
    };
    let earlier = candidates(&status("one", "1.0.0"), &status("two", "2.0.0"));
    let expected = EarlierRevision {
        revision: "one".to_owned(),
        digest: "d".to_owned(),
        version: Some("1.0.0".to_owned()),
        ..EarlierRevision::default()
    };
    assert_eq!(earlier, [expected]);
}

#[test]
fn requirements_choose_the_highest_of_the_versions_of_an_upload() {
    // A repair of an old line is made after a new one, one version carries none, and one was uploaded twice.
    let made = ["1.0.0", "1.2.0", "2.0.0", "1.2.1", "", "1.0.0", "3.0.0-rc.1"];
    for (what, default, wanted, expected) in [
        ("no pin requires a version", Some(2), vec![], vec![]),
        ("the default version does not match", Some(2), vec!["^1"], vec![3]),
        ("a higher one than the default matches", Some(1), vec!["^1"], vec![3]),
        ("the default is the highest", Some(3), vec!["^1", "~1.2"], vec![]),
        ("an exact version", Some(2), vec!["1.2.0"], vec![1]),
        ("of equal ones that made last", Some(2), vec!["1.0.0"], vec![5]),
        ("of equal ones the default", Some(0), vec!["==1.0.0"], vec![]),
        ("two pins", Some(4), vec!["^1", ">=1", "^1"], vec![3, 2]),
        ("a text that is no constraint", Some(2), vec!["3.0.0-rc.1"], vec![6]),
        ("a pre-release meets no constraint", Some(2), vec!["^3"], vec![]),
        ("latest is no constraint", Some(0), vec!["latest"], vec![]),
        ("nothing matches", Some(0), vec!["<1", "^4"], vec![]),
        ("no default", None, vec!["^2"], vec![2]),
    ] {
        assert_eq!(chosen_versions(&made, default, wanted), expected, "{what}");
    }
    assert!(chosen_versions(&[], None, ["^1"]).is_empty());
    let many = ["1.0.0", "2.0.0", "3.0.0", "4.0.0", "5.0.0", "6.0.0"];
    assert_eq!(STATUS_CHOSEN_MAX, 4);
    let chosen = chosen_versions(&many, Some(5), ["^5", "^1", "^6", "^2", "^3", "^4"]);
    assert_eq!(chosen, [4, 0, 1, 2], "those of the first pins");
}

#[test]
fn a_pin_serves_the_highest_version_of_an_upload_that_it_takes() {
    let version = |name: &str, version: &str, number: u32| -> Value {
        json!({"revision": name, "digest": name, "version": version, "uploadVersion": number})
    };
    let held = json!({"revision": "held", "digest": "held", "version": "1.2.0"});
    let (one, two) = (version("one", "1.0.0", 1), version("two", "1.3.0", 2));
    let kept = |served: &str, wanted: &str, end: &str| {
        let number = if served == "one" { "1.0.0" } else { "1.3.0" };
        format!(
            "KeptVersion: version {number} (revision {served}) is served here: the registry keeps it, and it is the highest one in \
             service that the pin takes ({wanted}); {end}"
        )
    };
    for (what, newest, earlier, wanted, expected) in [
        (
            "the default version does not match",
            Some("2.0.0"),
            json!([one, two]),
            "^1",
            (kept("two", "^1", "the default version is 2.0.0"), Some("two")),
        ),
        (
            "it matches, and another one is higher",
            Some("1.2.0"),
            json!([two, one]),
            ">=1",
            (kept("two", ">=1", "the default version is 1.2.0"), Some("two")),
        ),
        (
            "it matches, and is the highest",
            Some("1.4.0"),
            json!([one, two]),
            "^1",
            ("served".to_owned(), None),
        ),
        (
            "it matches, and another one is equal",
            Some("1.3.0"),
            json!([two]),
            "^1",
            ("served".to_owned(), None),
        ),
        (
            "it has no number",
            None,
            json!([one]),
            "^1",
            (kept("one", "^1", "the default version has no number"), Some("one")),
        ),
        (
            "one that is not kept any more is higher",
            Some("2.0.0"),
            json!([held, one]),
            "^1",
            (kept("one", "^1", "the default version is 2.0.0"), Some("one")),
        ),
        (
            "one that is not kept any more is lower",
            Some("2.0.0"),
            json!([held, two]),
            "^1",
            (kept("two", "^1", "the default version is 2.0.0"), Some("two")),
        ),
        (
            "none that is kept matches",
            Some("2.0.0"),
            json!([held, version("three", "3.0.0", 3)]),
            "^1",
            (
                "EarlierRevision: revision held stays in service here; the newest revision is not served: its version is 2.0.0, and \
                 the pin requires ^1; change spec.skillSelector.skills[].version of the runtime to serve it"
                    .to_owned(),
                Some("held"),
            ),
        ),
        (
            "another pin has chosen",
            Some("1.2.0"),
            json!([two]),
            "~1.2",
            ("served".to_owned(), None),
        ),
    ] {
        let (reported, serves) = judged(newest, &earlier, pinned(wanted));
        assert_eq!((reported, serves.as_deref()), expected, "{what}");
    }
    for spec in [json!({}), json!({"skillSelector": {"skills": [{"name": "word"}]}})] {
        let judged = judged(Some("1.0.0"), &json!([two]), spec);
        assert_eq!(judged, ("served".to_owned(), None), "a runtime without a requirement");
    }
}

#[test]
fn a_refusal_says_of_an_uploaded_skill_that_none_of_its_versions_matches() {
    let none = NamespaceLabels::new();
    for (labels, is_uploaded) in [
        (
            json!({"knack.dev/upload-of": "word", "knack.dev/upload-version": "2"}),
            true,
        ),
        // The object of one version, and a skill that was applied.
        (
            json!({"knack.dev/upload-of": "draw", "knack.dev/upload-version": "1"}),
            false,
        ),
        (json!({}), false),
    ] {
        let mut skill = skill("blue", "word", labels, json!({}));
        skill.status.as_mut().unwrap().version = Some("2.0.0".to_owned());
        let runtime = runtime("blue", pinned("^1"));
        let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        let begin = "refused VersionNotMatched: its version is 2.0.0, and the pin requires ^1; change";
        assert!(reported.starts_with(begin), "{reported}");
        assert_eq!(
            reported.contains("no other one that the registry keeps"),
            is_uploaded,
            "{reported}"
        );
    }
}

/// The default version of an upload may have no valid content, and the object none from before.
#[test]
fn a_kept_version_is_served_where_the_default_one_is_not_ready() {
    let kept = json!([
        {"revision": "one", "digest": "one", "version": "1.0.0", "uploadVersion": 1},
        {"revision": "two", "digest": "two", "version": "1.3.0", "uploadVersion": 2},
    ]);
    let limited = json!({"skillSelector": pinned("^1")["skillSelector"], "sandbox": {"images": []}});
    for (what, spec, sandbox, expected) in [
        ("a pin takes one", pinned("^1"), json!({}), Ok("two")),
        (
            "a pin takes none",
            pinned("^2"),
            json!({}),
            Err(RejectionReason::NotReady),
        ),
        ("without a pin", json!({}), json!({}), Err(RejectionReason::NotReady)),
        (
            "what the skill asks for is refused all the same",
            limited,
            json!({"sandbox": {"imageName": "office"}}),
            Err(RejectionReason::ImageUnknown),
        ),
    ] {
        let mut skill = skill("blue", "word", json!({}), sandbox);
        let earlier = serde_json::from_value(kept.clone()).unwrap();
        skill.status = Some(SkillStatus {
            earlier,
            ..SkillStatus::default()
        });
        let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
        let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
        let found = match &selected[0].accepted {
            Ok(_) => Ok(selected[0].earlier.map_or("", |earlier| earlier.revision.as_str())),
            Err(refused) => Err(refused.reason),
        };
        assert_eq!(found, expected, "{what}");
        if expected.is_ok() {
            let reported = reported(&selected[0]);
            let end = "the default version is not served: no valid content yet; see condition Ready of the skill";
            assert!(
                reported.starts_with("KeptVersion: version 1.3.0") && reported.ends_with(end),
                "{reported}"
            );
        }
    }
}
