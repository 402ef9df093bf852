//! One runtime, once.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use knack_api::skill_status::{RuntimeVerdict, STATUS_RUNTIMES_MAX};
use knack_api::{Skill, SkillRuntime, SkillRuntimeStatus};
use knack_vocabulary::{CONDITION_RECONCILING, KIND_SKILL_RUNTIME};
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info, warn};

use super::evaluation::{Evaluation, EvaluationInputs, TakenEvaluation};
use super::guard;
use super::status::{failing, own_members, own_part, serving, spec_problem, status};
use super::summary::Summary;
use crate::controller::cluster_state::{WatchedRuntime, decoded};
use crate::controller::conditions::{Verdict, has_reason, transition};
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::controller::events;
use crate::controller::reason::{VerdictParts, verdict_parts};
use crate::controller::reconciled::{ReconcileOutcome, Reconciled};
use crate::controller::refusal;
use crate::controller::settings::FENCE_CHECK_INTERVAL;
use crate::controller::skill::packages_status;
use crate::controller::undecodable;
use crate::object_name::ObjectName;
use crate::selection::{Audience, Scope, Selected, namespaces_reached, select};
use crate::status_write::Target;

/// Reconciles what a watch brought.
pub(in crate::controller) async fn reconcile(
    watched: Arc<WatchedRuntime>,
    context: Arc<Context>,
) -> Result<Action, ControllerError> {
    context.cluster_state.ready().await;
    let started = Instant::now();
    let result = match &watched.0 {
        Ok(runtime) if runtime.metadata.deletion_timestamp.is_some() => {
            Ok(Reconciled::until_change(ReconcileOutcome::Deleted))
        }
        Ok(runtime) => {
            let done = reconcile_runtime(&context, runtime).await;
            if let Err(error) = &done {
                report_failure(&context, runtime, error).await;
            }
            done
        }
        Err(invalid) => undecodable::report(&context, &*watched, invalid, own_members).await,
    };
    let outcome = result.as_ref().map_or(ReconcileOutcome::Error, |done| done.outcome);
    context
        .metrics
        .reconciled(KIND_SKILL_RUNTIME, outcome, started.elapsed());
    result.map(|done| done.next)
}

/// The next step after the API server failed.
#[expect(clippy::needless_pass_by_value, reason = "the signature kube asks for")]
pub(in crate::controller) fn failed(
    watched: Arc<WatchedRuntime>,
    error: &ControllerError,
    context: Arc<Context>,
) -> Action {
    let uid = watched.uid().unwrap_or_default();
    // The fence is checked meanwhile, too.
    let pause = context.memory.retries.retry_after(&uid).min(FENCE_CHECK_INTERVAL);
    warn!(runtime = %watched.name_any(), namespace = watched.namespace(), %error, ?pause, "reconcile failed");
    Action::requeue(pause)
}

/// Says in a runtime's status that the API server fails for it, once that has happened several times in a row.
async fn report_failure(context: &Context, runtime: &SkillRuntime, error: &ControllerError) {
    let (uid, before) = (runtime.uid().unwrap_or_default(), own_part(runtime));
    let Some(verdict) = refusal::repeated(error, context.memory.retries.failures(&uid)) else {
        return;
    };
    let generation = runtime.metadata.generation;
    if has_reason(&before.conditions, CONDITION_RECONCILING, verdict.reason, generation) {
        return;
    }
    let after = failing(runtime, &verdict, Timestamp::now());
    match write(context, runtime, &before, &after).await {
        Ok(None) => {}
        Ok(Some(_)) => {
            context.memory.writes.remember_change(&uid, runtime.resource_version());
            events::publish(&context.recorder, &runtime.object_ref(&()), &verdict).await;
        }
        Err(error) => {
            debug!(runtime = %runtime.name_any(), namespace = runtime.namespace(), %error, "the failure could not be written into the status");
        }
    }
}

/// A runtime is gone: the skills that name it are reconciled, and so are the runtimes that shared a quota with it.
pub(in crate::controller) async fn forget(context: &Context, namespace: &str, name: &str) {
    context.memory.forget_namespace(namespace);
    context.evaluations.forget(&ObjectName::new(namespace, name));
    context.changes.skills_of(namespace);
    for skill in context.cluster_state.skills() {
        let Some(skill) = decoded(&skill) else { continue };
        let status = skill.status.as_ref();
        let named = status.is_some_and(|status| {
            status
                .runtimes
                .iter()
                .any(|runtime| runtime.namespace == namespace && runtime.name == name)
        });
        if named {
            context
                .trigger_skill(&skill.namespace().unwrap_or_default(), &skill.name_any())
                .await;
        }
    }
}

async fn reconcile_runtime(context: &Context, runtime: &SkillRuntime) -> Result<Reconciled, ControllerError> {
    let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
    let uid = runtime.uid().unwrap_or_default();
    if context
        .memory
        .writes
        .is_superseded(&uid, runtime.metadata.resource_version.as_deref())
    {
        return Ok(Reconciled::until_change(ReconcileOutcome::Superseded));
    }
    if context
        .memory
        .writes
        .is_as_written(&uid, runtime.metadata.resource_version.as_deref())
        && let Some((_, next_evaluation)) = context.memory.fences.get(runtime)
    {
        return Ok(Reconciled::new(
            ReconcileOutcome::Unchanged,
            Action::requeue(next_evaluation),
        ));
    }
    // Before the cluster state is read: what changes meanwhile asks for another reconcile.
    let triggers = context.memory.writes.triggers();
    let labels = context.cluster_state.namespace_labels();
    let environments = context.environments();
    let scope = context.scope(&labels, environments.as_deref(), &namespace, &name);
    let inputs = EvaluationInputs {
        uid: runtime.metadata.uid.clone(),
        generation: runtime.metadata.generation,
        labels: Arc::clone(&labels),
        environments: environments.clone(),
    };
    let found = find(context, runtime, &scope, &inputs);
    let (guard, next_evaluation) = guarded(context, runtime, &scope).await?;
    let verdict = guard.or_else(|| spec_problem(runtime, &scope)).unwrap_or_else(|| {
        serving(runtime, &scope, &found.summary.counts, |namespace, name| {
            context.cluster_state.skill(namespace, name).is_some()
        })
    });
    let before = own_part(runtime);
    let after = status(runtime, &verdict, found.summary, Timestamp::now());
    let written = write(context, runtime, &before, &after).await?;
    let changed = written.is_some();
    if let Some(version) = written {
        context.memory.writes.remember_change(&uid, runtime.resource_version());
        context.memory.writes.remember_written(&uid, version, triggers);
    }
    if changed && transition(&before.conditions, &after.conditions) {
        info!(runtime = %name, %namespace, reason = verdict.reason.as_str(), message = %verdict.message, "the state of a SkillRuntime changed");
        events::publish(&context.recorder, &runtime.object_ref(&()), &verdict).await;
    }
    for skill in found.outdated {
        context.trigger_skill(&skill.namespace, &skill.name).await;
    }
    if let Some((evaluation, at)) = found.kept {
        context
            .evaluations
            .keep(&ObjectName::new(namespace, name), inputs, evaluation, at);
    }
    context.memory.retries.succeeded(&uid);
    Ok(Reconciled::new(
        ReconcileOutcome::of_write(changed),
        Action::requeue(next_evaluation),
    ))
}

/// The obstacle of a runtime's fence, and when it is checked again: changes of skills do not affect it.
async fn guarded(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
) -> Result<(Option<Verdict>, Duration), ControllerError> {
    if let Some(known) = context.memory.fences.get(runtime) {
        return Ok(known);
    }
    let verdict = guard::apply(context, runtime, scope).await?;
    context.memory.fences.remember(runtime, verdict.clone());
    Ok((verdict, FENCE_CHECK_INTERVAL))
}

/// The result of a runtime's evaluation of skills.
struct EvaluationOutcome {
    summary: Summary,
    /// Skills whose status differs from this runtime's selection.
    outdated: Vec<ObjectName>,
    /// To be kept once the rest is written, with the time at which all skills were evaluated.
    kept: Option<(Evaluation, Instant)>,
}

/// Evaluates what changed, where that is known of every skill and changes nothing for others, or else all of them. For
/// runtimes that select in few namespaces an evaluation is cheap, and is not kept.
fn find(context: &Context, runtime: &SkillRuntime, scope: &Scope<'_>, inputs: &EvaluationInputs) -> EvaluationOutcome {
    let is_wide = namespaces_reached(runtime, scope).is_none();
    let name = ObjectName::of(runtime);
    let kept = is_wide.then(|| context.evaluations.take(&name, inputs)).flatten();
    if let Some(TakenEvaluation {
        mut evaluation,
        changed,
        at,
    }) = kept
        && let Some(outdated) = find_changed(context, runtime, scope, &mut evaluation, &changed)
    {
        return EvaluationOutcome {
            summary: evaluation.summary.clone(),
            outdated,
            kept: Some((evaluation, at)),
        };
    }
    let at = Instant::now();
    let is_edited = !context.memory.fences.has_seen(runtime);
    // After an edit of the runtime, also the skills that it selected before.
    let watched = if is_edited {
        context.cluster_state.skills()
    } else {
        context.cluster_state.candidates(runtime, scope)
    };
    let skills: Vec<&Skill> = watched.iter().filter_map(|skill| decoded(skill)).collect();
    let selected = select(runtime, scope, Audience::All, skills.iter().copied());
    let mut outdated = outdated(runtime, &skills, &selected);
    if is_edited {
        outdated.extend(with_texts_of_runtime(&selected));
        outdated.extend(with_other_packages(runtime, scope, &selected));
        // Which versions of uploaded skills pins choose is decided with the skill.
        outdated.extend(skills_pinned_at_versions(runtime));
        outdated.sort_unstable();
        outdated.dedup();
    }
    if !is_wide {
        return EvaluationOutcome {
            summary: Summary::of(runtime, &selected),
            outdated,
            kept: None,
        };
    }
    let evaluation = Evaluation::new(runtime, &selected);
    EvaluationOutcome {
        summary: evaluation.summary.clone(),
        outdated,
        kept: Some((evaluation, at)),
    }
}

/// The skills of whose verdicts the texts may have changed with the runtime: those that it refuses, or serves with a reservation.
fn with_texts_of_runtime(selected: &[Selected<'_>]) -> Vec<ObjectName> {
    let restricted = selected.iter().filter(|item| !matches!(item.accepted, Ok(None)));
    restricted.map(|item| ObjectName::of(item.skill)).collect()
}

/// The skills whose status says something else of their packages at a runtime: it gives other packages, or adds them to another image.
fn with_other_packages(runtime: &SkillRuntime, scope: &Scope<'_>, selected: &[Selected<'_>]) -> Vec<ObjectName> {
    let name = ObjectName::of(runtime);
    let differ = selected.iter().filter(|item| {
        let reported = reported(item.skill, &name);
        reported.is_some_and(|reported| reported.packages != packages_status(runtime, item, scope))
    });
    differ.map(|item| ObjectName::of(item.skill)).collect()
}

/// The skills of which a runtime's pins require versions.
fn skills_pinned_at_versions(runtime: &SkillRuntime) -> impl Iterator<Item = ObjectName> {
    let own = runtime.own_namespace();
    let pins = runtime.spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    let skills = pins.filter(|pin| pin.version.is_some()).map(move |pin| pin.skill(own));
    skills.map(|(namespace, name)| ObjectName::new(namespace, name))
}

/// Takes changed skills into a kept evaluation, and returns those of them whose status differs. `None`: all are to be
/// evaluated.
fn find_changed(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    evaluation: &mut Evaluation,
    changed: &BTreeSet<ObjectName>,
) -> Option<Vec<ObjectName>> {
    let own = ObjectName::of(runtime);
    let mut outdated = Vec::new();
    for skill_name in changed {
        let (namespace, name) = (&*skill_name.namespace, &*skill_name.name);
        let watched = context.cluster_state.skill(namespace, name);
        let skill = watched.as_deref().and_then(decoded);
        let selected = select(runtime, scope, Audience::All, skill);
        if !evaluation.take_in(runtime, (namespace, name), selected.first()) {
            return None;
        }
        if skill.is_some_and(|skill| differs(skill, &own, evaluation.verdict((namespace, name)))) {
            outdated.push(skill_name.clone());
        }
    }
    Some(outdated)
}

/// Whether a skill's status says something else of a runtime than its selection.
fn differs(skill: &Skill, runtime: &ObjectName, now: Option<VerdictParts<'_>>) -> bool {
    // A skill that was never reconciled is in the queue already.
    let Some(status) = skill
        .status
        .as_ref()
        .filter(|status| status.observed_generation.unwrap_or(-1) >= 0)
    else {
        return false;
    };
    let reported =
        reported(skill, runtime).map(|known| (known.accepted, known.reason.as_str(), known.serves.as_deref()));
    reported != now && (reported.is_some() || status.runtimes.len() < STATUS_RUNTIMES_MAX)
}

/// What a skill's status says of a runtime.
fn reported<'a>(skill: &'a Skill, runtime: &ObjectName) -> Option<&'a RuntimeVerdict> {
    let mut known = skill.status.as_ref()?.runtimes.iter();
    known.find(|known| known.namespace == runtime.namespace && known.name == runtime.name)
}

/// Skills whose status differs from this runtime's selection.
fn outdated<'a>(runtime: &SkillRuntime, skills: &[&'a Skill], selected: &[Selected<'a>]) -> Vec<ObjectName> {
    let own = ObjectName::of(runtime);
    let of_selected = selected
        .iter()
        .filter(|item| differs(item.skill, &own, Some(verdict_parts(runtime, item))));
    let mut outdated: Vec<&Skill> = of_selected.map(|item| item.skill).collect();
    // Where all are selected, as at the cluster default, none is left over.
    if selected.len() < skills.len() {
        let known: HashSet<*const Skill> = selected.iter().map(|item| std::ptr::from_ref(item.skill)).collect();
        let left_over = skills
            .iter()
            .filter(|skill| !known.contains(&std::ptr::from_ref(**skill)));
        outdated.extend(left_over.filter(|skill| differs(skill, &own, None)));
    }
    outdated.into_iter().map(ObjectName::of).collect()
}

/// Writes a status if it differs. Returns the version of the object if it is another one now: its event comes.
async fn write(
    context: &Context,
    runtime: &SkillRuntime,
    before: &SkillRuntimeStatus,
    after: &SkillRuntimeStatus,
) -> Result<Option<String>, ControllerError> {
    if before == after {
        return Ok(None);
    }
    let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
    let target = Target {
        namespace: &namespace,
        name: &name,
        uid: runtime.metadata.uid.as_deref(),
    };
    let Some(version) = context.status().write::<SkillRuntime>(&target, &json!(after)).await? else {
        return Ok(None);
    };
    context.metrics.wrote("SkillRuntimeStatus");
    Ok(Some(version).filter(|version| Some(version) != runtime.metadata.resource_version.as_ref()))
}

#[cfg(test)]
mod tests {
    use knack_packages::environment::{EnvironmentImage, Input};
    use knack_packages::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses, Rules, State};

    use super::*;
    use crate::selection::NamespaceLabels;

    #[test]
    fn a_status_is_outdated_if_it_says_something_else_of_a_runtime() {
        let skill: Skill = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "word", "namespace": "n"},
            "spec": {"source": {}},
            "status": {"observedGeneration": 1, "runtimes": [
                {"namespace": "n", "name": "main", "accepted": true, "reason": "EarlierRevision", "serves": "r1"},
            ]},
        }))
        .unwrap();
        let runtime = ObjectName::new("n", "main");
        for (now, expected) in [
            (Some((true, "EarlierRevision", Some("r1"))), false),
            (Some((true, "EarlierRevision", Some("r2"))), true),
            (Some((true, "Accepted", None)), true),
            (Some((false, "VersionNotMatched", None)), true),
            (None, true),
        ] {
            assert_eq!(differs(&skill, &runtime, now), expected, "{now:?}");
        }
        let other = ObjectName::new("n", "other");
        assert!(!differs(&skill, &other, None), "neither knows the other");
    }

    /// The verdict stays `Accepted`, and what runs have there is something else.
    #[test]
    fn an_edit_of_a_runtime_asks_the_skills_whose_packages_are_others_there() {
        let image = |digest: &str| format!("r.io/python@sha256:{digest}");
        let standard = declared_standard();
        let of = |base: &str| EnvironmentKey::of(&standard, true, &Rules::default(), base);
        let record = |digest: &str| EnvironmentStatus {
            state: State::Ready,
            message: "said".to_owned(),
            environment: Some(EnvironmentImage {
                image: image(digest),
                home: "/opt/env".to_owned(),
            }),
            is_partial: false,
            since: 0,
            used: 0,
        };
        let records = EnvironmentStatuses([(of(&image("1")), record("e1")), (of(&image("2")), record("e2"))].into());
        let reported = |packages: serde_json::Value| -> Skill {
            serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "word", "namespace": "n"},
                "spec": {"source": {}},
                "status": {"observedGeneration": 1, "artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1},
                    "runtimes": [{"namespace": "n", "name": "main", "accepted": true, "reason": "Accepted", "packages": packages}]},
            }))
            .unwrap()
        };
        let given = |digest: &str| json!({"state": "Ready", "message": "said", "source": "standard environment, by the runtime", "environment": image(digest)});
        let none = NamespaceLabels::new();
        let scope = Scope {
            environments: Some(&records),
            ..Scope::plain(&none)
        };
        for (what, is_standard, base, packages, expected) in [
            ("as reported", true, "1", given("e1"), false),
            ("another image", true, "2", given("e1"), true),
            (
                "the standard environment is given no more",
                false,
                "1",
                given("e1"),
                true,
            ),
            ("it is given now", true, "1", json!(null), true),
            ("it is not, and was not", false, "1", json!(null), false),
            ("an image without an environment", true, "3", given("e1"), true),
        ] {
            let runtime: SkillRuntime = serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": "main", "namespace": "n"},
                "spec": {"sandbox": {"image": image(base)}, "packages": {"standard": is_standard}},
            }))
            .unwrap();
            let skill = reported(packages);
            let selected = select(&runtime, &scope, Audience::All, [&skill]);
            let restricted = with_other_packages(&runtime, &scope, &selected);
            assert_eq!(restricted.len(), usize::from(expected), "{what}");
        }
    }

    fn declared_standard() -> String {
        Input::of(&knack_packages::given::standard_environment().unwrap()).digest()
    }

    #[test]
    fn suspended_runtime_serves_nothing_and_its_skills_are_reconciled() {
        let skill = |reason: &str, accepted: bool| -> Skill {
            serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "word", "namespace": "n"},
                "spec": {"source": {}},
                "status": {"observedGeneration": 1, "artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1},
                    "runtimes": [{"namespace": "n", "name": "main", "accepted": accepted, "reason": reason}]},
            }))
            .unwrap()
        };
        let none = NamespaceLabels::new();
        let scope = Scope::plain(&none);
        for (suspend, reason, accepted, expected) in [
            (true, "Accepted", true, true),
            (true, "RuntimeSuspended", false, false),
            (false, "RuntimeSuspended", false, true),
            (false, "Accepted", true, false),
        ] {
            let runtime: SkillRuntime = serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": "main", "namespace": "n"},
                "spec": {"suspend": suspend},
            }))
            .unwrap();
            let skill = skill(reason, accepted);
            let selected = select(&runtime, &scope, Audience::All, [&skill]);
            assert!(
                selected[0].accepted.is_ok(),
                "selection, which the hub asks too, is as before"
            );
            let restricted = outdated(&runtime, &[&skill], &selected);
            assert_eq!(restricted.len(), usize::from(expected), "{suspend} {reason}");
            let evaluation = Evaluation::new(&runtime, &selected);
            assert_eq!(
                evaluation.verdict(("n", "word")),
                Some(verdict_parts(&runtime, &selected[0]))
            );
        }
    }
}
