//! Which versions of a skill a pin takes, and which revision is served while the newest one has another version.

use knack_api::SkillStatus;
use knack_api::skill_status::EarlierRevision;
use serde_json::{Value, json};

use super::tests::{runtime, scope, skill, told};
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
    let selected = select(&runtime, &scope(&none), Caller::All, std::slice::from_ref(&skill));
    let serves = selected[0].earlier.map(|earlier| earlier.revision.clone());
    (told(&selected[0]), serves)
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
        let (told, serves) = judged(Some(version), &json!([]), pinned(wanted));
        assert_eq!((told, serves), (expected, None), "{version} {wanted}");
    }
    let (told, _) = judged(None, &json!([]), pinned("^1"));
    assert!(
        told.starts_with("refused VersionNotMatched: it has no version (spec.version"),
        "{told}"
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
        let (told, served) = judged(Some("3.1.0"), &earlier, pinned(wanted));
        assert_eq!(served.as_deref(), serves, "{wanted}: {told}");
        if let Some(serves) = serves {
            let expected = format!(
                "EarlierRevision: revision {serves} stays in service here; the newest revision is not served: its version is \
                 3.1.0, and the pin requires {wanted}"
            );
            assert!(told.starts_with(&expected), "{told}");
        } else {
            assert_eq!(told, "served", "{wanted}");
        }
    }
    let (told, served) = judged(Some("3.1.0"), &earlier, pinned("^4"));
    assert!(
        told.starts_with("refused VersionNotMatched") && served.is_none(),
        "{told}"
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
