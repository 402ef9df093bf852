//! What streams say of skills that are not served, and to whom.

use knack_hub_api::{CatalogLine, PROTOCOLS};

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
    let never = json!({"spec": {"activation": {"mode": "Never"}}});
    cluster.apply("a", "one", never).await;
    let view = cluster.view(Some("a"));
    assert_eq!(unserved(&view), ["a/s: its activation is Never"]);
}
