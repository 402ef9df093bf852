//! Lists the pods that ask for a sidecar, and reports what is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use knack_api::SkillRuntime;
use knack_hub_api::RuntimeName;
use knack_vocabulary::{CONDITION_PODS_INJECTED, FIELD_MANAGER_SIDECARS};
use kube::ResourceExt as _;
use kube::runtime::events::{Event, EventType};
use serde_json::json;
use tracing::warn;

use super::callers::Callers;
use super::check::{ReportKey, ReportedPod, SidecarFindings, observe};
use super::count::{InjectionState, Tally};
use super::restart::Restarts;
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::events::NOTE_MAX_CHARS;
use crate::status_write::{Target, Writer};

/// How often the pods that ask are listed. A watch would hold all of them for one check a minute.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// After the publisher of the authorities has failed in a namespace: it is in the middle of a round, in which others may fail too.
const ROUND: Duration = Duration::from_secs(2);
/// Events of one check: a delivery that is away concerns every new pod, and the condition says how many there are.
const EVENTS_AT_ONCE: usize = 20;

/// Checks until the task is ended; only the leader does. `default` is the SkillRuntime of pods that name none.
pub(in crate::controller) async fn run(context: Arc<Context>, default: RuntimeName) {
    context.cluster_state.ready().await;
    let (mut reported, mut callers) = (BTreeSet::new(), Callers::default());
    let image = context.settings.sidecar_image.clone();
    let mut restarts = image
        .filter(|_| context.settings.roll_stale_sidecars)
        .map(Restarts::new);
    loop {
        match observe(&context, &default, &mut callers).await {
            Ok(found) => publish(&context, found, &mut reported).await,
            Err(error) => warn!(%error, "pods without a sidecar cannot be counted; retrying"),
        }
        if let Some(restarts) = &mut restarts {
            restarts.restart_outdated(&context).await;
        }
        let failed = tokio::time::timeout(CHECK_INTERVAL, context.trust.failed.notified());
        if failed.await.is_ok() {
            tokio::time::sleep(ROUND).await;
        }
    }
}

async fn publish(context: &Context, found: SidecarFindings, reported: &mut BTreeSet<ReportKey>) {
    for state in InjectionState::ALL {
        let counts = found.by_runtime.values().map(|tally| tally.count(state));
        context.metrics.sidecars(state.word(), counts.sum());
    }
    for runtime in context.cluster_state.runtimes().iter() {
        let Ok(runtime) = &runtime.0 else { continue };
        let name = RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any());
        if let Err(error) = condition(context, runtime, found.by_runtime.get(&Some(name.clone()))).await {
            warn!(%error, runtime = %name, "condition {CONDITION_PODS_INJECTED} could not be written; retrying");
        }
    }
    reported.retain(|key| found.reported.contains_key(key));
    let mut fresh = found.reported;
    fresh.retain(|key, _| !reported.contains(key));
    for (key, one) in fresh.into_iter().take(EVENTS_AT_ONCE) {
        let what = || "write an Event about a pod".to_owned();
        let written = context
            .call(what, context.recorder.publish(&event(key.0, &one), &one.pod))
            .await;
        match written {
            Ok(()) => drop(reported.insert(key)),
            Err(error) => warn!(%error, "an Event about a pod could not be written"),
        }
    }
}

fn event(state: InjectionState, ReportedPod { why, remedy, .. }: &ReportedPod) -> Event {
    let (reason, action, note) = match state {
        InjectionState::Refused => {
            let note = format!("the hub refuses the sidecar of Knack: {why}; {remedy}");
            ("SidecarRefused", "Use", note)
        }
        InjectionState::Untrusting => {
            let note = format!("the sidecar of Knack does not trust the hub: {why}");
            ("AuthoritiesNotShared", "Share", note)
        }
        InjectionState::Ignored => {
            let note = format!("has the sidecar of Knack, but {why}; {remedy}");
            ("AnnotationIgnored", "Inject", note)
        }
        InjectionState::Stale => {
            let note = format!(
                "has the sidecar of Knack with the image {why}, and this installation has another one; {remedy}"
            );
            ("SidecarOutdated", "Restart", note)
        }
        InjectionState::Without | InjectionState::Partly | InjectionState::Injected => {
            let note = format!("asks for the sidecar of Knack but does not have it: {why}");
            ("NoSidecar", "Inject", note)
        }
    };
    // An older sidecar carries skills.
    let is_normal = state == InjectionState::Stale;
    Event {
        type_: if is_normal {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: reason.to_owned(),
        note: Some(note.chars().take(NOTE_MAX_CHARS).collect()),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Writes the condition if it differs; removes it where no pod asks any more.
async fn condition(context: &Context, runtime: &SkillRuntime, tally: Option<&Tally>) -> Result<(), ControllerError> {
    let conditions = runtime
        .status
        .as_ref()
        .map_or(&[][..], |status| status.conditions.as_slice());
    let before = conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION_PODS_INJECTED);
    let after = tally.map(Tally::condition);
    // One of an earlier generation counts as none.
    let is_current = before.is_none_or(|before| before.observed_generation == runtime.metadata.generation);
    let is_said = match (before, &after) {
        (Some(before), Some(after)) => after.is_said_by(before),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_current && is_said {
        return Ok(());
    }
    let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
    let generation = runtime.metadata.generation;
    let made = after.map(|after| after.into_condition(CONDITION_PODS_INJECTED, generation, before, Timestamp::now()));
    let writer = Writer {
        client: &context.client,
        manager: FIELD_MANAGER_SIDECARS,
        conditions: &[CONDITION_PODS_INJECTED],
    };
    let target = Target {
        namespace: &namespace,
        name: &name,
        uid: runtime.metadata.uid.as_deref(),
    };
    let status = json!({"conditions": made.into_iter().collect::<Vec<_>>()});
    // A runtime that is gone has no condition.
    writer.write::<SkillRuntime>(&target, &status).await?;
    context.metrics.wrote("SkillRuntimeStatus");
    Ok(())
}
