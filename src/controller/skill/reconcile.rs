//! One skill, once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use knack_api::skill_status::ConfigMapStatus;
use knack_api::{Skill, SkillStatus};
use knack_vocabulary::defaults::REVISION_HISTORY;
use knack_vocabulary::{CONDITION_READY, CONDITION_RECONCILING, KIND_SKILL};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info, warn};

use super::deliver::{Undelivered, deliver, is_delivered};
use super::judge::{JUDGE, ValidatedSkill, judge};
use super::outline::Outline;
use super::pinned_versions::add_chosen;
use super::prune::prune;
use super::resolve::{ResolvedSource, Unresolved, is_as_read, resolve, verdict as source_verdict};
use super::status::{self, content, delivered, requested_at, status, unreported, with_last_good};
use super::verdicts::verdicts;
use crate::condition_value::is_true;
use crate::controller::cluster_state::WatchedSkill;
use crate::controller::conditions::{Verdict, VerdictState, has_reason, transition};
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::controller::events;
use crate::controller::reason::ConditionReason;
use crate::controller::reconciled::{ReconcileOutcome, Reconciled};
use crate::controller::refusal;
use crate::controller::settings::{RESYNC, RETRY_MAX};
use crate::controller::undecodable;
use crate::selection::candidates;

/// Reconciles what a watch brought.
pub(in crate::controller) async fn reconcile(
    watched: Arc<WatchedSkill>,
    context: Arc<Context>,
) -> Result<Action, ControllerError> {
    context.cluster_state.ready().await;
    let started = Instant::now();
    let result = match &watched.0 {
        Ok(skill) if skill.metadata.deletion_timestamp.is_some() => {
            Ok(Reconciled::until_change(ReconcileOutcome::Deleted))
        }
        Ok(skill) => {
            let done = reconcile_skill(&context, skill).await;
            if let Err(error) = &done {
                report_failure(&context, skill, error).await;
            }
            done
        }
        // All of it is the controller's, and all but uses is applied.
        Err(invalid) => {
            let own = |status: SkillStatus| SkillStatus {
                last_used_time: None,
                ..status
            };
            undecodable::report(&context, &*watched, invalid, own).await
        }
    };
    let outcome = result.as_ref().map_or(ReconcileOutcome::Error, |done| done.outcome);
    context.metrics.reconciled(KIND_SKILL, outcome, started.elapsed());
    result.map(|done| done.next)
}

/// The next step after the API server failed.
#[expect(clippy::needless_pass_by_value, reason = "the signature kube asks for")]
pub(in crate::controller) fn failed(
    watched: Arc<WatchedSkill>,
    error: &ControllerError,
    context: Arc<Context>,
) -> Action {
    let pause = context
        .memory
        .retries
        .retry_after(&watched.meta().uid.clone().unwrap_or_default());
    tracing::warn!(skill = %watched.name_any(), namespace = watched.namespace(), %error, ?pause, "reconcile failed");
    Action::requeue(pause)
}

/// Says in a Skill's status that the API server fails for it, once that has happened several times in a row. What is in service stays.
async fn report_failure(context: &Context, watched: &Skill, error: &ControllerError) {
    let outline = Outline::of(watched);
    let (before, generation) = (outline.before(), watched.metadata.generation);
    let Some(verdict) = refusal::repeated(error, context.memory.retries.failures(outline.uid())) else {
        return;
    };
    if has_reason(&before.conditions, CONDITION_RECONCILING, verdict.reason, generation) {
        return;
    }
    let verdict = with_last_good(verdict, before);
    let verdicts = verdicts(context, &outline, before);
    let after = unreported(&outline, &verdict, &verdicts, Timestamp::now());
    match write(context, &outline, &after).await {
        Ok(StatusWrite::Nothing) => {}
        Ok(StatusWrite::Changed) => {
            context
                .memory
                .writes
                .remember_change(outline.uid(), watched.resource_version());
            events::publish(&context.recorder, &outline.reference(), &verdict).await;
        }
        Err(error) => {
            debug!(skill = outline.name(), namespace = outline.namespace(), %error, "the failure could not be written into the status");
        }
    }
}

/// The result of reading the content.
struct ReadOutcome {
    /// The outline of the object that was reconciled; the watched one may be older.
    outline: Arc<Outline>,
    verdict: Verdict,
    /// New content, if it was read and is valid.
    content: Option<SkillStatus>,
}

async fn reconcile_skill(context: &Context, watched: &Skill) -> Result<Reconciled, ControllerError> {
    let uid = watched.uid().unwrap_or_default();
    let version = watched.resource_version();
    if context.memory.writes.is_superseded(&uid, version.as_deref()) {
        return Ok(Reconciled::until_change(ReconcileOutcome::Superseded));
    }
    match read_content(context, watched).await? {
        ReadResult::Read(read) => conclude(context, *read, watched).await,
        ReadResult::Gone => Ok(Reconciled::until_change(ReconcileOutcome::Deleted)),
        ReadResult::Retry(pause) => Ok(Reconciled::new(ReconcileOutcome::Waiting, Action::requeue(pause))),
    }
}

/// Reports what was read, and removes what nothing serves any more.
async fn conclude(context: &Context, read: ReadOutcome, watched: &Skill) -> Result<Reconciled, ControllerError> {
    let outline = &*read.outline;
    let before = outline.before();
    let mut verdict = with_last_good(read.verdict, before);
    let mut candidate = read.content.clone().unwrap_or_else(|| before.clone());
    candidate.earlier = candidates(before, &candidate);
    candidate
        .earlier
        .retain(|earlier| is_all_there(context, outline.namespace(), &earlier.config_maps));
    if !outline.is_suspended() {
        add_chosen(context, watched, outline, &mut candidate).await?;
    }
    let mut verdicts = verdicts(context, outline, &candidate);
    if outline.is_suspended() {
        // Nothing serves it; what did goes on when it comes back.
        verdicts.earlier = candidate.earlier;
    }
    let mut after = status(outline, read.content, &verdict, &verdicts, Timestamp::now());
    let written = match write(context, outline, &after).await {
        Err(error) => {
            // The second write fails as well if the controller has no rights on the status; the reconcile is retried then.
            let refused = refusal::verdict(&error).ok_or(error)?;
            warn!(skill = outline.name(), namespace = outline.namespace(), message = %refused.message, "the API server refused the status");
            verdict = with_last_good(refused, before);
            after = unreported(outline, &verdict, &verdicts, Timestamp::now());
            write(context, outline, &after).await?
        }
        written => written?,
    };
    let changed = written == StatusWrite::Changed;
    if changed {
        context
            .memory
            .writes
            .remember_change(outline.uid(), watched.resource_version());
    }
    if changed && transition(&before.conditions, &after.conditions) {
        info!(skill = outline.name(), namespace = outline.namespace(), reason = verdict.reason.as_str(), message = %verdict.message, "the state of a Skill changed");
        events::publish(&context.recorder, &outline.reference(), &verdict).await;
    }
    if let Some(artifact) = &after.artifact
        && !outline.is_suspended()
    {
        let served = after.earlier.iter().map(|earlier| earlier.revision.as_str());
        let in_service: Vec<&str> = std::iter::once(artifact.revision.as_str()).chain(served).collect();
        let keep = verdicts.history.unwrap_or(REVISION_HISTORY);
        prune(context, outline, &in_service, keep).await?;
    }
    let outcome = ReconcileOutcome::of_write(changed);
    if verdict.state == VerdictState::Retrying {
        let pause = context.memory.retries.retry_after(outline.uid());
        return Ok(Reconciled::new(outcome, Action::requeue(pause)));
    }
    context.memory.retries.succeeded(outline.uid());
    let is_taken = verdict.reason == ConditionReason::NameConflict;
    let pause = if is_taken { RETRY_MAX } else { RESYNC };
    Ok(Reconciled::new(outcome, Action::requeue(pause)))
}

/// The outcome of [`read_content`].
enum ReadResult {
    Read(Box<ReadOutcome>),
    /// The skill is gone.
    Gone,
    /// Its archive waits for those of others: try again after this time.
    Retry(Duration),
}

/// Reads the content if something about it can have changed.
async fn read_content(context: &Context, watched: &Skill) -> Result<ReadResult, ControllerError> {
    let unchanged = |verdict| {
        Ok(ReadResult::Read(Box::new(ReadOutcome {
            outline: Arc::new(Outline::of(watched)),
            verdict,
            content: None,
        })))
    };
    if watched.spec.is_suspended() {
        let text = "spec.suspend is true: the skill is out of service and its content is not read";
        return unchanged(Verdict::new(VerdictState::Ready, ConditionReason::Suspended, text));
    }
    if let Some(message) = settled(context, watched) {
        return unchanged(Verdict::new(VerdictState::Ready, ConditionReason::Delivered, message));
    }
    if let Some(verdict) = context.memory.retries.stalled(&watched.metadata) {
        return unchanged(verdict);
    }
    let _permit = if watched.spec.source.archive.is_some() {
        let namespace = watched.namespace().unwrap_or_default();
        let now = Instant::now();
        match context.archive_permits.take(&namespace, &watched.name_any(), now) {
            Ok(permit) => Some(permit),
            Err(pause) => {
                announce(context, &Outline::of(watched), "waiting for other archives to be read").await?;
                return Ok(ReadResult::Retry(pause));
            }
        }
    } else {
        None
    };
    let Some(skill) = fetch_with_files(context, watched).await? else {
        return Ok(ReadResult::Gone);
    };
    let outline = Arc::new(Outline::of(&skill));
    if skill.spec.source.archive.is_some() {
        announce(context, &outline, "fetching the archive").await?;
    }
    let is_of_config_maps = skill.spec.source.config_maps().next().is_some();
    let (verdict, content) = match make(context, skill, &outline).await? {
        Ok((verdict, content)) => (verdict, Some(content)),
        Err(verdict) => (verdict, None),
    };
    // Nothing reports that a name is free again, so a conflict is never remembered.
    let is_lasting = verdict.state == VerdictState::Stalled && verdict.reason != ConditionReason::NameConflict;
    if is_lasting && !is_of_config_maps {
        context.memory.retries.remember_stalled(outline.meta(), &verdict);
    }
    Ok(ReadResult::Read(Box::new(ReadOutcome {
        outline,
        verdict,
        content,
    })))
}

/// The verdict and status of the content in service, or why there is none.
type ContentResult = Result<(Verdict, SkillStatus), Verdict>;

/// Resolve, judge, build, deliver. The object ends with the first of them.
async fn make(context: &Context, skill: Skill, outline: &Arc<Outline>) -> Result<ContentResult, ControllerError> {
    let resolved = resolve(context, &skill).await;
    drop(skill);
    // The room is held until the content is delivered, and its files with it.
    let ResolvedSource { files, room: _room } = match resolved {
        Ok(resolved) => resolved,
        Err(Unresolved::Source(error)) => return Ok(Err(source_verdict(&error))),
        Err(Unresolved::Api(error)) => return Err(error),
    };
    let whose = Arc::clone(outline);
    // Hashing 8 MiB is work for a processor, not for the threads that serve sockets.
    let judged = tokio::task::spawn_blocking(move || judge(whose, files))
        .await
        .map_err(|error| ControllerError::Stopped(format!("judging {}: {error}", outline.name())))?;
    match judged {
        Ok(validated) => put_in_service(context, &validated).await,
        Err(verdict) => Ok(Err(verdict)),
    }
}

/// Delivers what is valid, and reports ConfigMaps that others had replaced.
async fn put_in_service(context: &Context, validated: &ValidatedSkill) -> Result<ContentResult, ControllerError> {
    match deliver(context, validated).await {
        Ok(made) => {
            if !made.replaced.is_empty() {
                let (outline, event) = (validated.outline(), status::replaced(&made.replaced));
                warn!(skill = outline.name(), namespace = outline.namespace(), message = %event.message, "ConfigMaps of a Skill were replaced");
                events::publish(&context.recorder, &outline.reference(), &event).await;
            }
            Ok(Ok((delivered(validated, &made), content(validated, made.config_maps))))
        }
        Err(Undelivered::Verdict(verdict)) => Ok(Err(verdict)),
        Err(Undelivered::Api(error)) => Err(error),
    }
}

/// The message of condition Ready, if what is in service was made from this very object and is still all there.
fn settled(context: &Context, skill: &Skill) -> Option<String> {
    let status = skill.status.as_ref()?;
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION_READY)?;
    let same_object = status.observed_generation == skill.metadata.generation
        && status.last_handled_reconcile_at == requested_at(&skill.metadata)
        && status.judged_by.as_deref() == Some(JUDGE)
        && is_true(ready)
        && ready.reason == ConditionReason::Delivered.as_str();
    // A ConfigMap may have changed without the skill; archives are pinned by their digest.
    let source = &skill.spec.source;
    let is_read_again = source.config_map.is_some()
        || source
            .upload
            .as_ref()
            .is_some_and(|upload| !is_as_read(context, skill, upload));
    if !same_object || is_read_again || status.config_maps.is_empty() {
        return None;
    }
    let namespace = skill.namespace().unwrap_or_default();
    is_all_there(context, &namespace, &status.config_maps).then(|| ready.message.clone())
}

fn is_all_there(context: &Context, namespace: &str, config_maps: &[ConfigMapStatus]) -> bool {
    config_maps.iter().all(|known| is_delivered(context, namespace, known))
}

/// The object with its file contents, which watches leave out.
async fn fetch_with_files(context: &Context, watched: &Skill) -> Result<Option<Skill>, ControllerError> {
    if watched.spec.source.inline.is_none() {
        return Ok(Some(watched.clone()));
    }
    let name = watched.name_any();
    let api = api(context, watched);
    let found = context.call(|| format!("get Skill {name}"), api.get_opt(&name)).await?;
    Ok(found.filter(|skill| skill.metadata.deletion_timestamp.is_none() && skill.metadata.uid == watched.metadata.uid))
}

/// Before slow work on a new generation: observed, and what is being done. A generation that has a verdict keeps it meanwhile.
async fn announce(context: &Context, outline: &Outline, step: &str) -> Result<(), ControllerError> {
    let (before, generation) = (outline.before(), outline.meta().generation);
    let mut announced = before.conditions.iter().filter(|condition| {
        condition.type_ == CONDITION_READY && condition.reason == ConditionReason::Progressing.as_str()
    });
    let announced = announced.find(|condition| condition.observed_generation == generation);
    if announced.map_or(before.observed_generation == generation, |announced| {
        announced.message == step
    }) {
        return Ok(());
    }
    let verdict = Verdict::new(VerdictState::Progressing, ConditionReason::Progressing, step);
    let verdicts = verdicts(context, outline, before);
    let after = status(outline, None, &verdict, &verdicts, Timestamp::now());
    if write(context, outline, &after).await? == StatusWrite::Changed {
        // A Skill that waits asks again before its event comes.
        context
            .memory
            .writes
            .remember_change(outline.uid(), outline.meta().resource_version.clone());
    }
    Ok(())
}

fn api(context: &Context, skill: &Skill) -> Api<Skill> {
    Api::namespaced(context.client.clone(), &skill.namespace().unwrap_or_default())
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusWrite {
    /// The object is another one now, and its event comes.
    Changed,
    /// Nothing to write, or it was there already, or the object is gone.
    Nothing,
}

/// Writes a status if it differs.
async fn write(context: &Context, outline: &Outline, after: &SkillStatus) -> Result<StatusWrite, ControllerError> {
    if outline.before() == after {
        return Ok(StatusWrite::Nothing);
    }
    let target = outline.target();
    let Some(version) = context.status().write::<Skill>(&target, &json!(after)).await? else {
        return Ok(StatusWrite::Nothing);
    };
    context.metrics.wrote("SkillStatus");
    debug!(
        skill = outline.name(),
        namespace = outline.namespace(),
        "status written"
    );
    let same = Some(version) == outline.meta().resource_version;
    Ok(if same {
        StatusWrite::Nothing
    } else {
        StatusWrite::Changed
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::controller::fixture::{lead, settings, start};

    /// Whatever is wrong with it: the Skill says so, and what was in service is.
    #[tokio::test]
    async fn a_status_that_the_api_server_refuses_becomes_a_condition() {
        let before =
            json!({"observedGeneration": 1, "artifact": {"revision": "old", "digest": "d", "size": 1, "fileCount": 1}});
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "team", "name": "draw", "uid": "s", "resourceVersion": "10", "generation": 2},
            "spec": {"source": {"inline": {"files": {"SKILL.md": "---\nname: draw\ndescription: d\n---\nText."}}}},
            "status": before});
        let (written, reported) = tokio::sync::oneshot::channel();
        let written = Mutex::new(Some(written));
        let (address, _lease) = start(move |method, path, body| match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skills") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [skill]}))
            }
            (&Method::GET, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw") => Some(skill.clone()),
            (&Method::POST, "/api/v1/namespaces/team/configmaps") => {
                let mut made: Value = serde_json::from_slice(body).unwrap();
                made["metadata"]["uid"] = json!("made");
                Some(made)
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                if !sent["status"]["name"].is_null() {
                    return Some(
                        json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid",
                        "message": "status.tools[0].config[0].options: Too many: 65: must have at most 64 items"}),
                    );
                }
                if let Some(written) = written.lock().unwrap().take() {
                    written.send(sent["status"].clone()).unwrap();
                }
                Some(skill.clone())
            }
            _ => None,
        });
        let (leading, shutdown) = lead(address, settings()).await;
        let status = reported.await.unwrap();
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        assert_eq!(
            (&status["observedGeneration"], &status["artifact"]),
            (&json!(2), &before["artifact"])
        );
        let ready = &status["conditions"][0];
        assert_eq!(
            (&ready["type"], &ready["reason"]),
            (&json!(CONDITION_READY), &json!("RefusedByApiServer"))
        );
        let message = ready["message"].as_str().unwrap();
        assert!(
            message.contains("Too many: 65") && message.contains("Revision old stays in service"),
            "{message}"
        );
    }

    /// The first status that a Skill gets whose ConfigMap the API server does not create, and how often it was tried before.
    async fn undelivered(message: &str) -> (usize, Value) {
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "team", "name": "draw", "uid": "s", "resourceVersion": "10", "generation": 1},
            "spec": {"source": {"inline": {"files": {"SKILL.md": "---\nname: draw\ndescription: d\n---\nText."}}}}});
        let failure =
            json!({"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": message});
        let (written, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let tried = std::sync::atomic::AtomicUsize::new(0);
        let (address, _lease) = start(move |method, path, body| match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skills") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [skill]}))
            }
            (&Method::GET, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw") => Some(skill.clone()),
            (&Method::POST, "/api/v1/namespaces/team/configmaps") => {
                tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Some(failure.clone())
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                let tried = tried.load(std::sync::atomic::Ordering::Relaxed);
                let _ = written.send((tried, sent["status"].clone()));
                Some(skill.clone())
            }
            _ => None,
        });
        let (leading, shutdown) = lead(address, settings()).await;
        let first = reported.recv().await.unwrap();
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        first
    }

    /// A Skill without a status would say nothing, neither to its author nor to `kubectl wait`.
    #[tokio::test]
    async fn what_the_api_server_does_not_take_for_now_becomes_a_condition() {
        let webhook = "Internal error occurred: failed calling webhook \"check.example.org\": failed to call webhook: Post \"https://h:443\": dial tcp 10.0.0.1:443: connect: connection refused";
        for (message, tries, reason, part) in [
            (webhook, 1, "RefusedByApiServer", "admission webhook check.example.org"),
            (
                "etcdserver: request timed out",
                3,
                "ApiServerUnavailable",
                "etcdserver: request timed out",
            ),
        ] {
            let (tried, status) = undelivered(message).await;
            assert_eq!((tried, &status["observedGeneration"]), (tries, &json!(1)), "{status}");
            for (index, kind, state) in [(0, "Ready", "False"), (1, "Reconciling", "True")] {
                let condition = &status["conditions"][index];
                assert_eq!(
                    (&condition["type"], &condition["status"], &condition["reason"]),
                    (&json!(kind), &json!(state), &json!(reason)),
                    "{status}"
                );
                assert!(condition["message"].as_str().unwrap().contains(part), "{condition}");
            }
        }
    }
}
