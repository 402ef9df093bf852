//! The status of a runtime from its selection. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use knack_api::runtime_sandbox::EnvSource;
use knack_api::runtime_status::SkillCounts;
use knack_api::{SkillRuntime, SkillRuntimeStatus};
use knack_skill::call::LITELLM_TIMEOUT_SECONDS;
use knack_vocabulary::{ANNOTATION_REQUESTED_AT, CONDITION_READY, CONDITION_RECONCILING, CONDITION_STALLED};
use kube::ResourceExt as _;

use super::summary::Summary;
use crate::condition_value::is_true;
use crate::controller::conditions::{Verdict, VerdictState, conditions};
use crate::controller::reason::ConditionReason;
use crate::counted::counted;
use crate::selection::{Scope, reaches, rules};
use crate::shortened::cut;

/// Conditions that the controller owns; `Isolated` is the hub's.
const OWN_CONDITIONS: [&str; 3] = [CONDITION_READY, CONDITION_RECONCILING, CONDITION_STALLED];

/// Pins, or grants, without a Skill that a message names; the others are counted.
const MISSING_SHOWN: usize = 5;

/// The first problem of a runtime's spec, if it has any.
pub(super) fn spec_problem(runtime: &SkillRuntime, scope: &Scope<'_>) -> Option<Verdict> {
    let sandbox = &runtime.spec.sandbox;
    let Some(image) = sandbox.own_image().or(scope.default_image) else {
        return Some(Verdict::new(
            VerdictState::Stalled,
            ConditionReason::NoSandboxImage,
            "no image for sandboxes: set spec.sandbox.image (or --sandbox-image of the controller)",
        ));
    };
    let named = sandbox.images.iter().find(|named| !scope.is_pinned(&named.image));
    let field = match named {
        Some(named) => Some(format!("spec.sandbox.images: {} ({})", named.name, named.image)),
        None => (!scope.is_pinned(image)).then(|| format!("spec.sandbox.image {image}")),
    };
    if let Some(field) = field {
        return Some(Verdict::new(
            VerdictState::Stalled,
            ConditionReason::ImageNotPinned,
            format!("{field} has no digest; write registry/repository@sha256:<digest>"),
        ));
    }
    // The definition refuses most of them.
    let text = rules(runtime.spec.packages.as_ref()?).err()?;
    Some(Verdict::new(
        VerdictState::Stalled,
        ConditionReason::InvalidConstraints,
        text,
    ))
}

/// How a runtime without a problem reads. `is_there`: whether a Skill exists, by namespace and name.
pub(super) fn serving(
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    counts: &SkillCounts,
    is_there: impl Fn(&str, &str) -> bool,
) -> Verdict {
    if runtime.spec.is_suspended() {
        return Verdict::new(
            VerdictState::Ready,
            ConditionReason::Suspended,
            "spec.suspend is true: nothing is injected, executions are refused with 503",
        );
    }
    let mut message = format!(
        "{} served, {} rejected",
        counted(counts.accepted, "skill"),
        counts.rejected
    );
    // The runtime stays ready: who applies a folder may bring the Skill a moment later.
    let pins = pins_without_skill(runtime, &is_there);
    let granted = grants_without_skill(runtime, scope, &is_there);
    for (field, missing) in [("spec.skillSelector.skills", pins), ("spec.env[].skills", granted)] {
        if !missing.is_empty() {
            message.push_str(&format!(
                "; {field}: no readable Skill is named {}; check namespace and name, or create it",
                first_of(&missing)
            ));
        }
    }
    let pinned = repeated_pins(runtime);
    if !pinned.is_empty() {
        message.push_str(&format!(
            "; spec.skillSelector.skills names {} more than once: version, mode and inputs of the first pin count, and config of all; keep one pin for each skill",
            first_of(&pinned)
        ));
    }
    let granted = grants_that_differ(runtime);
    if !granted.is_empty() {
        message.push_str(&format!(
            "; spec.env grants {} from more than one Secret key, of which one reaches the runs; keep one grant of each variable for a skill",
            first_of(&granted)
        ));
    }
    if let Some(seconds) = runtime.spec.sandbox.max_timeout_seconds
        && seconds < LITELLM_TIMEOUT_SECONDS
    {
        message.push_str(&format!(
            "; code of skills named by a litellm id is stopped after {seconds} s instead of {LITELLM_TIMEOUT_SECONDS} s: spec.sandbox.maxTimeoutSeconds"
        ));
    }
    if runtime.spec.default && !scope.cluster_default {
        message.push_str(
            "; spec.default has no effect on a cluster: gateways name their runtime, and the cluster default is the controller's --default-runtime",
        );
    }
    Verdict::new(VerdictState::Ready, ConditionReason::Serving, message)
}

/// The first names of a list, and how many more there are.
fn first_of(missing: &[String]) -> String {
    let (shown, more) = missing.split_at(missing.len().min(MISSING_SHOWN));
    let more = if more.is_empty() {
        String::new()
    } else {
        format!(" and {} more", more.len())
    };
    format!("{}{more}", shown.join(", "))
}

/// The Skills that a runtime's grants name and that it cannot serve, since they do not exist or it selects none of their namespace,
/// as namespace/name. What changes in such a namespace does not lead to another reconcile.
fn grants_without_skill(
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    is_there: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let own = runtime.own_namespace();
    let granted = runtime.spec.env.iter().flat_map(|grant| grant.named(own));
    let mut missing: Vec<String> = granted
        .filter(|(namespace, name)| !reaches(runtime, scope, namespace) || !is_there(namespace, name))
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    missing.sort();
    missing.dedup();
    missing
}

/// The Skills that a runtime's pins name and that do not exist, as namespace/name.
fn pins_without_skill(runtime: &SkillRuntime, is_there: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let own = runtime.own_namespace();
    let pins = runtime.spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    pins.map(|pin| pin.skill(own))
        .filter(|(namespace, name)| !is_there(namespace, name))
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect()
}

/// The Skills that several pins of a runtime name, as namespace/name. An ambiguous pin is no problem of the spec: that would stop a runtime that
/// served before an upgrade.
fn repeated_pins(runtime: &SkillRuntime) -> Vec<String> {
    let own = runtime.own_namespace();
    let pins = runtime.spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for pin in pins {
        *counts.entry(pin.skill(own)).or_default() += 1;
    }
    let repeated = counts.into_iter().filter(|(_, count)| *count > 1);
    repeated
        .map(|((namespace, name), _)| format!("{namespace}/{name}"))
        .collect()
}

/// The variables that a runtime grants a Skill from different Secret keys.
fn grants_that_differ(runtime: &SkillRuntime) -> Vec<String> {
    let own = runtime.own_namespace();
    let mut known: BTreeMap<(&str, &str, &str), &EnvSource> = BTreeMap::new();
    let mut differ = BTreeSet::new();
    for grant in &runtime.spec.env {
        for (namespace, name) in grant.named(own) {
            let first = known
                .entry((grant.name.as_str(), namespace, name))
                .or_insert(&grant.value_from);
            if **first != grant.value_from {
                differ.insert(format!("{} to {namespace}/{name}", grant.name));
            }
        }
    }
    differ.into_iter().collect()
}

/// The controller's part of the status.
pub(super) fn status(
    runtime: &SkillRuntime,
    verdict: &Verdict,
    summary: Summary,
    now: Timestamp,
) -> SkillRuntimeStatus {
    let before = own_part(runtime);
    let generation = runtime.metadata.generation.unwrap_or_default();
    SkillRuntimeStatus {
        observed_generation: Some(generation),
        last_handled_reconcile_at: runtime
            .annotations()
            .get(ANNOTATION_REQUESTED_AT)
            .map(|value| cut(value, 256)),
        conditions: conditions(&before.conditions, generation, verdict, None, now),
        skills: Some(summary.counts),
        rejected_skills: summary.rejected,
        listing: summary.listing,
        catalog_revision: Some(summary.revision.to_string()),
        warm_pool: None,
        isolation: None,
        owner: None,
        unpulled_environment: None,
    }
}

/// The status of a runtime for which calls to the API server fail: as it was, and the condition Reconciling says why. One that is ready
/// stays so, of the generation that was judged: the hub runs no code of another one, and goes on with that.
pub(super) fn failing(runtime: &SkillRuntime, verdict: &Verdict, now: Timestamp) -> SkillRuntimeStatus {
    let mut status = own_part(runtime);
    let generation = runtime.metadata.generation.unwrap_or_default();
    let mut made = conditions(&status.conditions, generation, verdict, None, now);
    let is_ready = |condition: &&Condition| condition.type_ == CONDITION_READY && is_true(condition);
    if let Some(ready) = status.conditions.iter().find(is_ready) {
        made.retain(|condition| condition.type_ != CONDITION_READY);
        made.insert(0, ready.clone());
    } else {
        status.observed_generation = Some(generation);
    }
    status.conditions = made;
    status
}

/// The part of the present status that the controller wrote.
pub(super) fn own_part(runtime: &SkillRuntime) -> SkillRuntimeStatus {
    own_members(runtime.status.clone().unwrap_or_default())
}

/// The part of a status that the controller writes.
pub(super) fn own_members(status: SkillRuntimeStatus) -> SkillRuntimeStatus {
    // Without a rest: who writes a new member is decided here.
    let SkillRuntimeStatus {
        observed_generation,
        last_handled_reconcile_at,
        mut conditions,
        skills,
        rejected_skills,
        listing,
        catalog_revision,
        warm_pool: _,
        isolation: _,
        owner: _,
        unpulled_environment: _,
    } = status;
    conditions.retain(|condition| OWN_CONDITIONS.contains(&condition.type_.as_str()));
    SkillRuntimeStatus {
        observed_generation,
        last_handled_reconcile_at,
        conditions,
        skills,
        rejected_skills,
        listing,
        catalog_revision,
        warm_pool: None,
        isolation: None,
        owner: None,
        unpulled_environment: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knack_api::runtime_status::STATUS_REJECTED_MAX;
    use serde_json::{Value, json};

    use crate::selection::{Audience, NamespaceLabels, select};

    const NONE: SkillCounts = SkillCounts {
        accepted: 0,
        rejected: 0,
    };

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn runtime(sandbox: Value) -> SkillRuntime {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "main", "namespace": "n", "generation": 2}, "spec": {"sandbox": sandbox},
            "status": {"conditions": [
                {"type": "Isolated", "status": "True", "reason": "Probed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ], "owner": "hub-1", "warmPool": {"ready": 1, "desired": 2}},
        }))
        .unwrap()
    }

    fn scope(namespaces: &NamespaceLabels, cluster_default: bool) -> Scope<'_> {
        Scope {
            cluster_default,
            namespaces,
            default_image: None,
            allow_image_tags: false,
            environments: None,
        }
    }

    #[test]
    fn a_default_that_is_not_the_clusters_is_reported_as_without_effect() {
        let none = NamespaceLabels::new();
        for (default, cluster_default, expected) in [(true, false, true), (true, true, false), (false, false, false)] {
            let mut runtime = runtime(json!({}));
            runtime.spec.default = default;
            let message = serving(&runtime, &scope(&none, cluster_default), &NONE, |_, _| true).message;
            assert_eq!(message.contains("spec.default has no effect"), expected, "{message}");
        }
    }

    #[test]
    fn pins_of_skills_that_are_not_there_are_named() {
        let none = NamespaceLabels::new();
        let message = |pins: Value| {
            let mut runtime = runtime(json!({}));
            runtime.spec.skill_selector = serde_json::from_value(json!({"skills": pins})).unwrap();
            let is_there = |namespace: &str, name: &str| (namespace, name) == ("n", "prices");
            let verdict = serving(&runtime, &scope(&none, false), &NONE, is_there);
            assert_eq!(verdict.state, VerdictState::Ready, "the others are served");
            verdict.message
        };
        assert_eq!(message(json!([{"name": "prices"}])), "0 skills served, 0 rejected");
        let reported = message(json!([{"name": "prices"}, {"name": "pricse"}, {"name": "prices", "namespace": "m"}]));
        assert!(
            reported.contains("no readable Skill is named n/pricse, m/prices; check"),
            "{reported}"
        );
        let many: Vec<Value> = (0..7).map(|number| json!({"name": format!("s{number}")})).collect();
        let reported = message(json!(many));
        assert!(
            reported.contains("n/s0, n/s1, n/s2, n/s3, n/s4 and 2 more"),
            "{reported}"
        );
    }

    #[test]
    fn skills_that_are_not_there_and_get_values_are_named() {
        let none = NamespaceLabels::new();
        let message = |skills: Value| {
            let mut runtime = runtime(json!({}));
            let value = json!({"secretKeyRef": {"name": "s", "key": "k"}});
            let grant = json!({"name": "TOKEN", "valueFrom": value, "skills": skills});
            runtime.spec.env = serde_json::from_value(json!([grant, grant])).unwrap();
            let is_there = |_: &str, name: &str| name == "prices";
            serving(&runtime, &scope(&none, false), &NONE, is_there).message
        };
        assert_eq!(message(json!(["prices", "n/prices"])), "0 skills served, 0 rejected");
        let reported = message(json!(["pricse", "m/prices"]));
        assert!(
            reported.ends_with("; spec.env[].skills: no readable Skill is named m/prices, n/pricse; check namespace and name, or create it"),
            "{reported}"
        );
    }

    #[test]
    fn what_a_spec_says_twice_is_named_and_stops_nothing() {
        let none = NamespaceLabels::new();
        let message = |pins: Value, env: Value| {
            let mut runtime = runtime(json!({}));
            runtime.spec.skill_selector = serde_json::from_value(json!({"skills": pins})).unwrap();
            runtime.spec.env = serde_json::from_value(env).unwrap();
            let verdict = serving(&runtime, &scope(&none, true), &NONE, |_, _| true);
            assert_eq!(verdict.state, VerdictState::Ready);
            verdict.message
        };
        let grant = |name: &str, key: &str, skill: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}, "skills": [skill]});
        for (what, pins, env) in [
            (
                "namesakes",
                json!([{"name": "a"}, {"name": "a", "namespace": "m"}]),
                json!([]),
            ),
            (
                "other skills",
                json!([]),
                json!([grant("T", "k", "a"), grant("T", "l", "b")]),
            ),
            (
                "other variables",
                json!([]),
                json!([grant("T", "k", "a"), grant("U", "l", "a")]),
            ),
            (
                "the same value",
                json!([]),
                json!([grant("T", "k", "a"), grant("T", "k", "n/a")]),
            ),
        ] {
            assert_eq!(message(pins, env), "0 skills served, 0 rejected", "{what}");
        }
        let reported = message(
            json!([{"name": "a", "mode": "Always"}, {"name": "b"}, {"name": "a", "namespace": "n"}]),
            json!([grant("T", "k", "a"), grant("T", "l", "n/a")]),
        );
        assert!(
            reported.contains("; spec.skillSelector.skills names n/a more than once: version, mode")
                && reported.contains("; spec.env grants T to n/a from more than one Secret key"),
            "{reported}"
        );
    }

    #[test]
    fn images_must_be_there_and_pinned() {
        let none = NamespaceLabels::new();
        for (sandbox, default_image, tags, expected) in [
            (json!({}), None, false, Some(ConditionReason::NoSandboxImage)),
            (json!({}), Some("r/a@sha256:00"), false, None),
            (
                json!({"image": "r/a:1"}),
                None,
                false,
                Some(ConditionReason::ImageNotPinned),
            ),
            (json!({"image": "r/a:1"}), None, true, None),
            (json!({"image": "r/a@sha256:00"}), None, false, None),
            (
                json!({"imageName": "a", "images": [{"name": "a", "image": "r/a@sha256:00"}]}),
                None,
                false,
                None,
            ),
            (
                json!({"images": [{"name": "a", "image": "r/a@sha256:00"}]}),
                None,
                false,
                Some(ConditionReason::NoSandboxImage),
            ),
            (
                json!({"image": "r/a@sha256:00", "images": [{"name": "a", "image": "r/a:1"}]}),
                None,
                false,
                Some(ConditionReason::ImageNotPinned),
            ),
            (
                json!({"image": "r/a@sha256:00", "images": [{"name": "a", "image": "r/a:1"}]}),
                None,
                true,
                None,
            ),
        ] {
            let scope = Scope {
                default_image,
                allow_image_tags: tags,
                ..Scope::plain(&none)
            };
            assert_eq!(
                spec_problem(&runtime(sandbox), &scope).map(|verdict| verdict.reason),
                expected
            );
        }
    }

    #[test]
    fn a_constraint_that_cannot_be_read_is_an_objection() {
        let none = NamespaceLabels::new();
        let mut runtime = runtime(json!({"image": "r/a@sha256:00"}));
        for (constraint, expected) in [
            ("mcp<2", None),
            ("mcp<=two2", Some(ConditionReason::InvalidConstraints)),
        ] {
            runtime.spec.packages = serde_json::from_value(json!({"constraints": [constraint]})).unwrap();
            let found = spec_problem(&runtime, &scope(&none, false));
            assert_eq!(found.as_ref().map(|verdict| verdict.reason), expected);
            assert!(found.is_none_or(|found| found.message.starts_with("spec.packages.constraints[0]: ")));
        }
    }

    /// An API server that fails for a moment ends no code.
    #[test]
    fn a_runtime_that_is_ready_stays_so_while_the_api_server_fails() {
        let verdict = Verdict::new(VerdictState::Retrying, ConditionReason::ApiServerUnavailable, "why");
        let ready = |status: &str| json!({"type": "Ready", "status": status, "reason": "Serving", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
        for (before, observed, expected) in [
            (json!([]), 2, "Ready=False/2 Reconciling=True/2"),
            (json!([ready("True")]), 1, "Ready=True/1 Reconciling=True/2"),
            (json!([ready("False")]), 2, "Ready=False/2 Reconciling=True/2"),
        ] {
            let mut runtime = runtime(json!({}));
            let status = runtime.status.as_mut().unwrap();
            status.conditions = serde_json::from_value(before).unwrap();
            status.observed_generation = Some(1);
            let after = failing(&runtime, &verdict, Timestamp::UNIX_EPOCH);
            let reported: Vec<String> = after
                .conditions
                .iter()
                .map(|one| format!("{}={}/{}", one.type_, one.status, one.observed_generation.unwrap()))
                .collect();
            assert_eq!(
                (after.observed_generation, reported.join(" ")),
                (Some(observed), expected.to_owned())
            );
            assert_eq!(after.conditions.last().unwrap().reason, "ApiServerUnavailable");
        }
    }

    #[test]
    fn a_ceiling_below_the_time_of_a_dialect_is_reported() {
        let none = NamespaceLabels::new();
        let message = |sandbox: Value| serving(&runtime(sandbox), &scope(&none, false), &NONE, |_, _| true).message;
        assert!(message(json!({"maxTimeoutSeconds": 60})).contains("after 60 s instead of 120 s"));
        for sandbox in [
            json!({}),
            json!({"maxTimeoutSeconds": 120}),
            json!({"maxTimeoutSeconds": 600}),
        ] {
            assert_eq!(message(sandbox), "0 skills served, 0 rejected");
        }
    }

    #[test]
    fn the_hubs_part_is_left_alone_and_long_lists_are_cut() {
        let runtime = runtime(json!({"image": "r/a@sha256:00"}));
        let skills: Vec<knack_api::Skill> = (0..30)
            .map(|number| {
                serde_json::from_value(json!({
                    "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
                    "metadata": {"name": format!("s{number:02}"), "namespace": "n"},
                    "spec": {"source": {}, "activation": {"mode": "Always"}, "suspend": number >= 25},
                    "status": {"artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
                }))
                .unwrap()
            })
            .collect();
        let none = NamespaceLabels::new();
        let scope = scope(&none, false);
        let selected = select(&runtime, &scope, Audience::All, &skills);
        let summary = Summary::of(&runtime, &selected);
        let verdict = serving(&runtime, &scope, &summary.counts, |_, _| true);
        let made = status(&runtime, &verdict, summary, Timestamp::UNIX_EPOCH);
        assert_eq!(
            made.skills,
            Some(SkillCounts {
                accepted: 25,
                rejected: 5
            })
        );
        assert_eq!(made.rejected_skills.len(), STATUS_REJECTED_MAX);
        assert!(
            made.rejected_skills[..5]
                .iter()
                .all(|skill| skill.reason == "Suspended")
        );
        assert_eq!((made.owner.as_deref(), made.warm_pool), (None, None));
        assert!(made.conditions.iter().all(|condition| condition.type_ != "Isolated"));
    }
}
