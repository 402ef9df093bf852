//! The condition `Isolated` of a SkillRuntime.

use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use knack_api::SkillRuntime;
use knack_api::runtime_status::IsolationStatus;
use knack_vocabulary::{CONDITION_ISOLATED, FIELD_MANAGER_HUB};
use serde_json::json;

use crate::api_call::CallError;
use crate::jobs::nodes::isolation_results::Isolation;
use crate::jobs::pods::launch::Launcher;
use crate::jobs::resolved_runtime::ResolvedRuntime;
use crate::status_write::{Writer, condition_of};

/// Between two writes: the probes of a cluster that has just been found must not cost a write each.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes the condition whenever a result arrives or the runtime changes, until the task ends.
pub(super) async fn publish(launcher: &Launcher, resolved: &ArcSwap<ResolvedRuntime>) {
    let mut changes = launcher.gate.listen();
    while changes.changed().await.is_ok() {
        let (found, resolved) = (launcher.gate.isolation(), resolved.load_full());
        let said = found.condition();
        tracing::info!(
            runtime = %resolved.reference(), isolated = said.status.as_str(), reason = said.reason, message = said.message,
            "isolation checked"
        );
        match write(launcher, &resolved, &found).await {
            Ok(true) => {}
            Ok(false) => changes.mark_changed(),
            Err(error) => {
                tracing::warn!(%error, "condition {CONDITION_ISOLATED} could not be written");
                changes.mark_changed();
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes the condition and `status.isolation`. `Ok(false)`: the runtime is another one or another version by now.
async fn write(launcher: &Launcher, resolved: &ResolvedRuntime, found: &Isolation) -> Result<bool, CallError> {
    let writer = Writer {
        client: &launcher.cluster.client,
        manager: FIELD_MANAGER_HUB,
        conditions: &[CONDITION_ISOLATED],
    };
    let target = resolved.target();
    let Some(current) = writer.stored::<SkillRuntime>(&target).await? else {
        return Ok(false);
    };
    let before = condition_of(&current, CONDITION_ISOLATED);
    let known = current.data.pointer("/status/isolation/checkedAt").cloned();
    let known = known.and_then(|at| serde_json::from_value::<Time>(at).ok());
    let generation = current.metadata.generation;
    let said = found.condition();
    let condition = said.into_condition(CONDITION_ISOLATED, generation, before.as_ref(), Timestamp::now());
    let isolation = IsolationStatus {
        runner: found.runner,
        cni: found.nodes.enforces(),
        // Until this owner has a result of its own, the last one is that of the owner before.
        checked_at: found.checked.map(Time).or(known),
    };
    let status = json!({"conditions": [condition], "isolation": isolation});
    let written = writer.write::<SkillRuntime>(&target, &status).await?;
    Ok(written.is_some())
}
