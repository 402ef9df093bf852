//! One skill, once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use knack_api::skill_status::ConfigMapStatus;
use knack_api::{Skill, SkillStatus};
use knack_skill::model::SkillRef;
use knack_vocabulary::defaults::REVISION_HISTORY;
use knack_vocabulary::{CONDITION_READY, KIND_SKILL};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info, warn};

use super::super::conditions::{Verdict, VerdictState, transition};
use super::super::context::Context;
use super::super::error::ControllerError;
use super::super::events;
use super::super::reason::Reason;
use super::super::settings::{RESYNC, RETRY_MAX};
use super::super::undecodable;
use super::super::world::WatchedSkill;
use super::deliver::{Undelivered, deliver, is_delivered};
use super::judge::{JUDGE, judge};
use super::prune::prune;
use super::resolve::{Resolved, Unresolved, is_as_read, resolve, verdict as source_verdict};
use super::status::{self, content, delivered, requested_at, status, with_last_good};
use super::verdicts::verdicts;
use crate::selection::candidates;
use crate::status_write::Target;

/// Reconciles what a watch brought.
pub(in super::super) async fn reconcile(
    watched: Arc<WatchedSkill>,
    context: Arc<Context>,
) -> Result<Action, ControllerError> {
    context.world.ready().await;
    let started = Instant::now();
    let result = match &watched.0 {
        Ok(skill) if skill.metadata.deletion_timestamp.is_some() => Ok(("deleted", Action::await_change())),
        Ok(skill) => one(&context, skill).await,
        Err(invalid) => undecodable::report(&context, &*watched, invalid).await,
    };
    let outcome = result.as_ref().map_or("error", |(outcome, _)| *outcome);
    context.metrics.reconciled(KIND_SKILL, outcome, started.elapsed());
    result.map(|(_, action)| action)
}

/// The next step after the API server failed.
#[expect(clippy::needless_pass_by_value, reason = "the signature kube asks for")]
pub(in super::super) fn failed(watched: Arc<WatchedSkill>, error: &ControllerError, context: Arc<Context>) -> Action {
    let pause = context
        .memory
        .retry_after(&watched.meta().uid.clone().unwrap_or_default());
    tracing::warn!(skill = %watched.name_any(), namespace = watched.namespace(), %error, ?pause, "reconcile failed");
    Action::requeue(pause)
}

/// The result of reading the content.
struct ReadOutcome {
    /// The object that was reconciled; the watched one may be older.
    skill: Skill,
    verdict: Verdict,
    /// New content, if it was read and is valid.
    content: Option<SkillStatus>,
}

async fn one(context: &Context, watched: &Skill) -> Result<(&'static str, Action), ControllerError> {
    let uid = watched.uid().unwrap_or_default();
    if context
        .memory
        .is_superseded(&uid, watched.metadata.resource_version.as_deref())
    {
        return Ok(("superseded", Action::await_change()));
    }
    let looked = match look(context, watched).await? {
        LookOutcome::Done(looked) => *looked,
        LookOutcome::Gone => return Ok(("deleted", Action::await_change())),
        LookOutcome::Later(pause) => return Ok(("waiting", Action::requeue(pause))),
    };
    let skill = &looked.skill;
    let before = skill.status.clone().unwrap_or_default();
    let verdict = with_last_good(looked.verdict, &before);
    let mut candidate = looked.content.clone().unwrap_or_else(|| before.clone());
    candidate.earlier = candidates(&before, &candidate);
    candidate
        .earlier
        .retain(|earlier| is_all_there(context, skill, &earlier.config_maps));
    let mut verdicts = verdicts(context, skill, &candidate);
    if skill.spec.suspend {
        // Nothing serves it; what did goes on when it comes back.
        verdicts.earlier = candidate.earlier;
    }
    let after = status(skill, looked.content, &verdict, &verdicts, Timestamp::now());
    let written = write(context, skill, &before, &after).await?;
    let changed = written == StatusWrite::Changed;
    if changed {
        context.memory.remember_change(&uid, watched.resource_version());
    }
    if changed && transition(&before.conditions, &after.conditions) {
        info!(skill = %skill.name_any(), namespace = skill.namespace(), reason = verdict.reason.as_str(), message = %verdict.message, "skill");
        events::publish(&context.recorder, skill, &verdict).await;
    }
    if let Some(artifact) = &after.artifact
        && !skill.spec.suspend
    {
        let served = after.earlier.iter().map(|earlier| earlier.revision.as_str());
        let in_service: Vec<&str> = std::iter::once(artifact.revision.as_str()).chain(served).collect();
        prune(
            context,
            skill,
            &in_service,
            verdicts.history.unwrap_or(REVISION_HISTORY),
        )
        .await?;
    }
    let outcome = if changed { "changed" } else { "unchanged" };
    if verdict.state == VerdictState::Retrying {
        return Ok((outcome, Action::requeue(context.memory.retry_after(&uid))));
    }
    context.memory.succeeded(&uid);
    let is_taken = verdict.reason == Reason::NameConflict;
    Ok((outcome, Action::requeue(if is_taken { RETRY_MAX } else { RESYNC })))
}

/// What came of a look.
enum LookOutcome {
    Done(Box<ReadOutcome>),
    /// The skill is gone.
    Gone,
    /// Its archive waits for those of others: look again after this time.
    Later(Duration),
}

/// Looks at the content if something about it can have changed.
async fn look(context: &Context, watched: &Skill) -> Result<LookOutcome, ControllerError> {
    let unchanged = |verdict| {
        Ok(LookOutcome::Done(Box::new(ReadOutcome {
            skill: watched.clone(),
            verdict,
            content: None,
        })))
    };
    if watched.spec.suspend {
        let text = "spec.suspend is true: the skill is out of service and its content is not read";
        return unchanged(Verdict::new(VerdictState::Ready, Reason::Suspended, text));
    }
    if let Some(message) = settled(context, watched) {
        return unchanged(Verdict::new(VerdictState::Ready, Reason::Delivered, message));
    }
    if let Some(verdict) = context.memory.stalled(watched) {
        return unchanged(verdict);
    }
    let _turn = if watched.spec.source.archive.is_some() {
        let namespace = watched.namespace().unwrap_or_default();
        let now = Instant::now();
        match context.archive_turns.take(&namespace, &watched.name_any(), now) {
            Ok(turn) => Some(turn),
            Err(pause) => return Ok(LookOutcome::Later(pause)),
        }
    } else {
        None
    };
    let Some(skill) = whole(context, watched).await? else {
        return Ok(LookOutcome::Gone);
    };
    if skill.spec.source.archive.is_some() {
        announce(context, &skill).await?;
    }
    let (verdict, content) = match make(context, &skill).await? {
        Ok((verdict, content)) => (verdict, Some(content)),
        Err(verdict) => (verdict, None),
    };
    // Nothing reports that a name is free again, so a conflict is never remembered.
    let is_lasting = verdict.state == VerdictState::Stalled && verdict.reason != Reason::NameConflict;
    if is_lasting && skill.spec.source.config_maps().next().is_none() {
        context.memory.remember_stalled(&skill, &verdict);
    }
    Ok(LookOutcome::Done(Box::new(ReadOutcome {
        skill,
        verdict,
        content,
    })))
}

/// Resolve, judge, build, deliver.
async fn make(context: &Context, skill: &Skill) -> Result<Result<(Verdict, SkillStatus), Verdict>, ControllerError> {
    // Held until the content is delivered, and its files with it.
    let Resolved { files, turn: _turn } = match resolve(context, skill).await {
        Ok(resolved) => resolved,
        Err(Unresolved::Source(error)) => return Ok(Err(source_verdict(&error))),
        Err(Unresolved::Api(error)) => return Err(error),
    };
    let id = SkillRef {
        namespace: skill.namespace().unwrap_or_default(),
        name: skill.name_any(),
    };
    let overrides = skill.spec.overrides();
    // Hashing 8 MiB is work for a processor, not for the threads that serve sockets.
    let judged = tokio::task::spawn_blocking(move || judge(&id, files, &overrides))
        .await
        .map_err(|error| ControllerError::Stopped(format!("judging {}: {error}", skill.name_any())))?;
    let judged = match judged {
        Ok(judged) => judged,
        Err(verdict) => return Ok(Err(verdict)),
    };
    match deliver(context, skill, &judged.artifact).await {
        Ok(made) => {
            if !made.replaced.is_empty() {
                let event = status::replaced(&made.replaced);
                warn!(skill = %skill.name_any(), namespace = skill.namespace(), message = %event.message, "skill");
                events::publish(&context.recorder, skill, &event).await;
            }
            Ok(Ok((delivered(&judged, &made), content(&judged, made.config_maps))))
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
        && status.last_handled_reconcile_at == requested_at(skill)
        && status.judged_by.as_deref() == Some(JUDGE)
        && ready.status == "True"
        && ready.reason == Reason::Delivered.as_str();
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
    is_all_there(context, skill, &status.config_maps).then(|| ready.message.clone())
}

fn is_all_there(context: &Context, skill: &Skill, config_maps: &[ConfigMapStatus]) -> bool {
    let namespace = skill.namespace().unwrap_or_default();
    config_maps.iter().all(|known| is_delivered(context, &namespace, known))
}

/// The object with its file contents, which watches leave out.
async fn whole(context: &Context, watched: &Skill) -> Result<Option<Skill>, ControllerError> {
    if watched.spec.source.inline.is_none() {
        return Ok(Some(watched.clone()));
    }
    let name = watched.name_any();
    let api = api(context, watched);
    let found = context.call(|| format!("get Skill {name}"), api.get_opt(&name)).await?;
    Ok(found.filter(|skill| skill.metadata.deletion_timestamp.is_none() && skill.metadata.uid == watched.metadata.uid))
}

/// Before slow work on a new generation: observed, work has started.
async fn announce(context: &Context, skill: &Skill) -> Result<(), ControllerError> {
    let before = skill.status.clone().unwrap_or_default();
    if before.observed_generation == skill.metadata.generation {
        return Ok(());
    }
    let verdict = Verdict::new(VerdictState::Progressing, Reason::Progressing, "fetching the archive");
    let verdicts = verdicts(context, skill, &before);
    let after = status(skill, None, &verdict, &verdicts, Timestamp::now());
    write(context, skill, &before, &after).await.map(|_| ())
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
async fn write(
    context: &Context,
    skill: &Skill,
    before: &SkillStatus,
    after: &SkillStatus,
) -> Result<StatusWrite, ControllerError> {
    if before == after {
        return Ok(StatusWrite::Nothing);
    }
    let (namespace, name) = (skill.namespace().unwrap_or_default(), skill.name_any());
    let target = Target {
        namespace: &namespace,
        name: &name,
        uid: skill.metadata.uid.as_deref(),
    };
    let Some(version) = context.status().write::<Skill>(&target, &json!(after)).await? else {
        return Ok(StatusWrite::Nothing);
    };
    context.metrics.wrote("SkillStatus");
    debug!(skill = %name, %namespace, "status written");
    let same = Some(version) == skill.metadata.resource_version;
    Ok(if same {
        StatusWrite::Nothing
    } else {
        StatusWrite::Changed
    })
}
