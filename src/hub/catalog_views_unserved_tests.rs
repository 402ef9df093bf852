//! What streams say of skills that are not served, and to whom.

use knack_hub_api::{CatalogLine, PROTOCOLS, UNSERVED_MAX};

use super::*;
use crate::hub::catalog_view::{changes, index};

/// What a stream with this view says of skills that are not served.
fn unserved(view: &CatalogView) -> Vec<String> {
    let lines = index(view, "1", PROTOCOLS.max, None, None);
    lines.into_iter().flat_map(reported).collect()
}

fn reported(line: CatalogLine) -> Vec<String> {
    match line {
        CatalogLine::Unserved(unserved) => {
            let skills = unserved.skills.into_iter();
            skills
                .map(|skill| format!("{}/{}: {}", skill.namespace, skill.name, skill.why))
                .collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn who_may_see_a_skill_hears_why_it_is_not_served() {
    let cluster = Cluster::start().await;
    let ready = json!([{"type": "Ready", "status": "False", "reason": "InvalidSkill", "message": "SKILL.md:3: no YAML",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let broken = cluster.deliver("a", "one", &json!({"status": {"artifact": null, "conditions": ready}}));
    let (before, _) = cluster.look();
    cluster.take(Event::Apply(broken));
    let (views, _) = cluster.look();
    let why = "a/s: InvalidSkill: SKILL.md:3: no YAML".to_owned();
    assert_eq!(
        views.each_ref().map(|view| unserved(view)),
        [vec![why.clone()], vec![], vec![why.clone()]],
        "another namespace does not know that it is there"
    );
    let lines = |before: &Arc<CatalogView>, after: &Arc<CatalogView>| {
        let lines = changes(before, after, "1").into_iter();
        lines.flat_map(reported).collect::<Vec<_>>()
    };
    assert_eq!(lines(&before[0], &views[0]), [why]);
    assert!(changes(&before[1], &views[1], "1").is_empty());
    cluster.apply("a", "one", json!({})).await;
    let (mended, _) = cluster.look();
    assert_eq!(mended.each_ref().map(|view| unserved(view).len()), [0; 3]);
    assert!(
        changes(&views[0], &mended[0], "1")
            .iter()
            .any(|line| matches!(line, CatalogLine::Unserved(unserved) if unserved.skills.is_empty())),
        "a stream hears that it is mended"
    );
    cluster.apply("a", "one", json!({"spec": {"suspend": true}})).await;
    assert_eq!(
        unserved(&cluster.view(Some("a"))),
        ["a/s: Suspended: spec.suspend is true"]
    );
}

#[tokio::test]
async fn a_skill_of_mode_never_says_who_decided_that() {
    let cluster = Cluster::start().await;
    let never = json!({"activation": {"mode": "Never"}});
    let uploaded = json!({"labels": {LABEL_UPLOAD_OF: "s", LABEL_UPLOAD_VERSION: "2"}});
    let pin = json!({"skillSelector": {"skills": [{"name": "s", "namespace": "a", "mode": "Never"}]}});
    let pin_without_mode = json!({"skillSelector": {"skills": [{"name": "s", "namespace": "a"}]}});
    let here = "a/s: the SkillRuntime sets its activation to Never";
    for (runtime, change, expected) in [
        (json!({}), json!({"spec": never}), "a/s: its activation is Never"),
        (pin_without_mode, json!({"spec": never}), "a/s: its activation is Never"),
        (
            json!({}),
            json!({"spec": never, "metadata": uploaded}),
            "a/s: its mode is off",
        ),
        (pin.clone(), json!({}), here),
        (pin, json!({"metadata": uploaded}), here),
        (json!({"maxActivation": "Never"}), json!({}), here),
    ] {
        let object = json!({"metadata": {"namespace": "run", "name": "default"}, "spec": runtime});
        let object = serde_json::from_value(object).unwrap();
        cluster
            .shared
            .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(object)));
        cluster.apply("a", "one", change).await;
        assert_eq!(unserved(&cluster.view(Some("a"))), [expected], "{runtime}");
    }
}

/// A stream names a limited number of skills.
#[test]
fn skills_of_mode_never_come_last() {
    let runtime = json!({"metadata": {"namespace": "a", "name": "r"}, "spec": {}});
    let runtime: SkillRuntime = serde_json::from_value(runtime).unwrap();
    let skill = |name: &str, spec: serde_json::Value| -> Skill {
        serde_json::from_value(json!({
            "metadata": {"namespace": "a", "name": name}, "spec": spec,
            "status": {"artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
        }))
        .unwrap()
    };
    let namespaces = NamespaceLabels::new();
    let view = |skills: &[Skill]| {
        let line = runtime_line(&runtime, &[]);
        let scope = Scope::plain(&namespaces);
        Arc::new(build(&runtime, line, &scope, Audience::All, skills, |_, _| None))
    };
    let never = json!({"source": {}, "activation": {"mode": "Never"}});
    let mut skills: Vec<Skill> = (0..=UNSERVED_MAX)
        .map(|number| skill(&format!("n{number:03}"), never.clone()))
        .collect();
    let before = view(&skills);
    assert_eq!(unserved(&before).len(), UNSERVED_MAX);
    skills.push(skill("z", json!({"source": {}, "suspend": true})));
    let lines: Vec<String> = changes(&before, &view(&skills), "1")
        .into_iter()
        .flat_map(reported)
        .collect();
    assert_eq!(lines.len(), UNSERVED_MAX);
    assert_eq!(
        lines[..2],
        [
            "a/z: Suspended: spec.suspend is true",
            "a/n000: its activation is Never"
        ]
    );
}
