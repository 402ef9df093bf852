//! Ids that name no skill of a view, or another one.

use knack_api::Skill;
use serde_json::json;

use super::tests::{allowed, reported, runtime, scope, skill, view};
use super::*;

/// A skill that carries ids.
fn carrying(namespace: &str, name: &str, ids: &[&str], from: &str) -> Skill {
    let mut skill = skill(namespace, name, json!({}), allowed(from));
    skill.status.as_mut().unwrap().ids = ids.iter().map(|id| (*id).to_owned()).collect();
    skill
}

#[test]
fn ids_that_name_no_skill_or_another_one_are_reported_where_a_caller_sees_both() {
    let (ok, shared) = ("Listed ok", "Listed ok,IdShared");
    let blue = |ids: &[&str]| carrying("blue", "a", ids, "Same");
    let everyone = json!({"skillSelector": {"namespaceSelector": {}}});
    let rows = vec![
        (
            "an id of its own",
            [blue(&["x"]), carrying("blue", "b", &["y"], "Same")],
            [ok, ok],
        ),
        (
            "of both",
            [blue(&["y", "x"]), carrying("blue", "b", &["x"], "Same")],
            [shared, shared],
        ),
        (
            "the name of another",
            [blue(&["b"]), carrying("blue", "b", &[], "Same")],
            [shared, ok],
        ),
        (
            "its own name",
            [blue(&["a"]), carrying("blue", "b", &[], "Same")],
            [ok, ok],
        ),
        (
            "a name, whoever else carries it",
            [blue(&["a"]), carrying("blue", "b", &["a"], "Same")],
            [ok, shared],
        ),
        (
            "in another namespace",
            [blue(&["x"]), carrying("red", "b", &["x"], "All")],
            [shared, shared],
        ),
    ];
    for (what, skills, expected) in rows {
        let seen = view(&runtime("blue", everyone.clone()), false, Audience::All, &skills);
        let names = [
            "blue/a",
            if what == "in another namespace" {
                "red/b"
            } else {
                "blue/b"
            },
        ];
        assert_eq!(
            seen,
            [0, 1].map(|at| format!("{} {}", names[at], expected[at])),
            "{what}"
        );
    }
    // At the cluster default each sees its own and what is shared.
    let home = runtime("home", json!({}));
    for (from, expected) in [
        ("SameOrClusterDefault", [ok, ok]),
        // Only callers of blue see both, and theirs is told of nobody else's.
        ("All", [shared, ok]),
    ] {
        let skills = [
            carrying("blue", "a", &["x"], "SameOrClusterDefault"),
            carrying("red", "b", &["x"], from),
        ];
        let seen = view(&home, true, Audience::All, &skills);
        assert_eq!(
            seen,
            [format!("blue/a {}", expected[0]), format!("red/b {}", expected[1])],
            "{from}"
        );
    }
    let skills = [blue(&["x"]), carrying("blue", "b", &["x"], "Same")];
    let pinned = runtime(
        "blue",
        json!({"skillSelector": {"skills": [{"name": "b", "mode": "Never"}]}}),
    );
    assert_eq!(
        view(&pinned, false, Audience::All, &skills),
        ["blue/a Listed ok", "blue/b Never ok"],
        "nothing names one of mode Never"
    );
    let (mine, none) = (runtime("blue", json!({})), NamespaceLabels::new());
    let message = reported(&select(&mine, &scope(&none), Audience::All, &skills)[0]);
    assert!(
        message.starts_with(
            "IdShared: other skills here carry its id x too, so requests with it are refused (skill_ambiguous); remove"
        ),
        "{message}"
    );
}
