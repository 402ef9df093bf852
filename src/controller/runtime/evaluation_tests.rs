//! A kept evaluation says what an evaluation of everything says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use knack_api::skill_status::EarlierRevision;
use knack_api::{Skill, SkillRuntime};
use proptest::prelude::*;
use serde_json::json;

use super::evaluation::{Evaluation, EvaluationInputs, Evaluations};
use super::summary::Summary;
use crate::controller::pending_changes::PendingChanges;
use crate::object_name::ObjectName;
use crate::selection::{Audience, NamespaceLabels, Scope, select};

type Skills = BTreeMap<(String, String), Skill>;

/// One change of one skill; numbers choose among few values, so that names, modes and verdicts meet.
#[derive(Debug, Clone)]
struct Change {
    namespace: u8,
    name: u8,
    /// The rest of the skill, or `None`: it goes.
    to: Option<(u8, u8, u8, bool, u8)>,
}

fn runtime() -> SkillRuntime {
    serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
        "metadata": {"name": "main", "namespace": "n0", "uid": "u", "generation": 1},
        "spec": {"maxActivation": "Listed", "skillSelector": {"matchExpressions": [
            {"key": "hidden", "operator": "DoesNotExist"},
        ]}},
    }))
    .unwrap()
}

fn scope(labels: &NamespaceLabels) -> Scope<'_> {
    Scope {
        cluster_default: true,
        namespaces: labels,
        default_image: None,
        allow_image_tags: false,
        environments: None,
    }
}

fn skill(namespace: &str, name: &str, to: (u8, u8, u8, bool, u8)) -> Skill {
    let (revision, mode, description, suspend, kind) = to;
    let mode = ["Listed", "Always", "OnRequest"][usize::from(mode % 3)];
    let from = ["Same", "SameOrClusterDefault", "All"][usize::from(kind % 3)];
    // An id that is shared, and one that is the name of a skill.
    let ids = match kind {
        3 => json!(["vendor"]),
        4 => json!(["s0"]),
        _ => json!([]),
    };
    let labels = if kind == 5 { json!({"hidden": "yes"}) } else { json!({}) };
    serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "uid": format!("{namespace}{name}")},
        "spec": {"source": {}, "suspend": suspend, "allowedRuntimes": {"namespaces": {"from": from}}},
        "status": {
            "observedGeneration": 1, "activation": mode, "ids": ids,
            "description": "d".repeat(usize::from(description)),
            "artifact": {"revision": format!("r{revision}"), "digest": "d", "size": 1, "fileCount": 1}},
    }))
    .unwrap()
}

fn whole(runtime: &SkillRuntime, scope: &Scope<'_>, skills: &Skills) -> Evaluation {
    Evaluation::new(runtime, &select(runtime, scope, Audience::All, skills.values()))
}

fn change() -> impl Strategy<Value = Change> {
    // Mostly another revision alone, as content changes; at times all of the rest.
    let to = prop_oneof![
        4 => (0..9_u8).prop_map(|revision| Some((revision, 0, 3, false, 2))),
        2 => (0..9_u8, 0..3_u8, 0..3_u8, any::<bool>(), 0..6_u8).prop_map(Some),
        1 => Just(None),
    ];
    (0..3_u8, 0..3_u8, to).prop_map(|(namespace, name, to)| Change { namespace, name, to })
}

proptest! {
    #[test]
    fn a_kept_evaluation_with_changes_is_an_evaluation_of_everything(changes in proptest::collection::vec(change(), 1..40)) {
        let (labels, runtime) = (NamespaceLabels::new(), runtime());
        let scope = scope(&labels);
        let mut skills = Skills::new();
        let mut kept = whole(&runtime, &scope, &skills);
        for Change { namespace, name, to } in changes {
            let key = (format!("n{namespace}"), format!("s{name}"));
            match to {
                Some(to) => skills.insert(key.clone(), skill(&key.0, &key.1, to)),
                None => skills.remove(&key),
            };
            let expected = whole(&runtime, &scope, &skills);
            let changed = select(&runtime, &scope, Audience::All, skills.get(&key));
            if !kept.take_in(&runtime, (&key.0, &key.1), changed.first()) {
                kept = whole(&runtime, &scope, &skills);
            }
            prop_assert_eq!(&kept.summary, &expected.summary);
            for (namespace, name) in skills.keys() {
                prop_assert_eq!(kept.verdict((namespace, name)), expected.verdict((namespace, name)));
            }
        }
    }
}

#[test]
fn another_content_affects_no_other_and_everything_else_evaluates_all() {
    let (labels, runtime) = (NamespaceLabels::new(), runtime());
    let scope = scope(&labels);
    let before = (1, 0, 3, false, 2);
    for (to, affects, what) in [
        (Some(before), false, "nothing"),
        (Some((2, 0, 3, false, 2)), false, "another content"),
        (Some((1, 1, 3, false, 2)), true, "another activation"),
        (Some((1, 0, 4, false, 2)), true, "another description"),
        (Some((1, 0, 3, true, 2)), true, "suspended"),
        (Some((1, 0, 3, false, 1)), true, "no longer for everybody"),
        (Some((1, 0, 3, false, 5)), true, "not selected any more"),
        (None, true, "gone"),
    ] {
        let mut evaluation = Evaluation::new(
            &runtime,
            &select(&runtime, &scope, Audience::All, [&skill("n1", "s", before)]),
        );
        let now = to.map(|to| skill("n1", "s", to));
        let selected = select(&runtime, &scope, Audience::All, &now);
        assert_eq!(
            !evaluation.take_in(&runtime, ("n1", "s"), selected.first()),
            affects,
            "{what}"
        );
    }
    let mut evaluation = Evaluation::new(&runtime, &[]);
    let new = skill("n1", "s", before);
    let selected = select(&runtime, &scope, Audience::All, [&new]);
    assert!(
        !evaluation.take_in(&runtime, ("n1", "s"), selected.first()),
        "a new one"
    );
    assert!(
        evaluation.take_in(&runtime, ("n1", "elsewhere"), None),
        "one that is not selected"
    );
}

/// The names that an evaluation may be used with; `None`: it is made anew.
fn taken(evaluations: &Evaluations, inputs: &EvaluationInputs) -> Option<Vec<String>> {
    let taken = evaluations.take(&ObjectName::new("n0", "main"), inputs);
    taken.map(|taken| taken.changed.into_iter().map(|found| found.name).collect())
}

#[test]
fn an_evaluation_is_used_once_with_what_changed_since_and_only_on_its_basis() {
    let name = ObjectName::new("n0", "main");
    let inputs = |generation| EvaluationInputs {
        uid: Some("u".to_owned()),
        generation: Some(generation),
        labels: Arc::default(),
        environments: None,
    };
    let evaluation = || Evaluation::new(&runtime(), &[]);
    let (evaluations, first) = (Evaluations::default(), inputs(1));
    let keep = |inputs: &EvaluationInputs| evaluations.keep(&name, inputs.clone(), evaluation(), Instant::now());
    let pending = PendingChanges::default();
    let note = |change: &dyn Fn()| {
        change();
        evaluations.note(&name, &pending.take());
    };

    keep(&first);
    assert_eq!(
        taken(&evaluations, &first),
        None,
        "nobody took an evaluation for which changes were noted"
    );
    note(&|| pending.skill("n1", "meanwhile"));
    keep(&first);
    assert_eq!(
        taken(&evaluations, &first),
        Some(vec!["meanwhile".to_owned()]),
        "what changes while an evaluation is made is noted for the next one"
    );
    assert_eq!(
        taken(&evaluations, &first),
        None,
        "one whose results were not written is not kept"
    );
    keep(&first);
    assert_eq!(taken(&evaluations, &first), Some(Vec::new()));
    for (what, change) in [
        ("labels", &(|| pending.labels_of("n".to_owned())) as &dyn Fn()),
        ("any of a namespace", &|| pending.skills_of("n")),
        ("a new list", &|| pending.list_of_skills()),
    ] {
        keep(&first);
        note(&|| pending.skill("n1", "a"));
        note(change);
        note(&|| pending.skill("n1", "b"));
        assert_eq!(taken(&evaluations, &first), None, "{what}");
    }
    keep(&first);
    assert_eq!(taken(&evaluations, &inputs(1)), None, "labels were read anew");
    keep(&first);
    let edited = EvaluationInputs {
        generation: Some(2),
        ..first.clone()
    };
    assert_eq!(taken(&evaluations, &edited), None, "the runtime was edited");
    keep(&first);
    evaluations.forget(&name);
    assert_eq!(taken(&evaluations, &first), None, "it is gone");
}

#[test]
fn the_revision_changes_with_what_is_served_and_with_nothing_else() {
    let (labels, runtime) = (NamespaceLabels::new(), runtime());
    let scope = scope(&labels);
    let revision = |skills: &[Skill]| {
        let selected = select(&runtime, &scope, Audience::All, skills);
        Summary::of(&runtime, &selected).revision.to_string()
    };
    let [one, two] = [1, 2].map(|revision| skill("n1", "s", (revision, 0, 3, false, 2)));
    let suspended = skill("n1", "t", (1, 0, 3, true, 2));
    assert_eq!(revision(&[]), "000000000000");
    assert_eq!(revision(std::slice::from_ref(&one)).len(), 12);
    assert_ne!(
        revision(std::slice::from_ref(&one)),
        revision(std::slice::from_ref(&two))
    );
    assert_eq!(
        revision(&[one.clone(), suspended]),
        revision(std::slice::from_ref(&one))
    );
    // What is served counts, not what is newest.
    let earlier = EarlierRevision {
        revision: "r1".to_owned(),
        ..EarlierRevision::default()
    };
    let mut held = select(&runtime, &scope, Audience::All, [&two]);
    held[0].earlier = Some(&earlier);
    assert_eq!(Summary::of(&runtime, &held).revision.to_string(), revision(&[one]));
}
