//! Whether sandboxes start: condition `SandboxesReady` of the SkillRuntime.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use knack_api::SkillRuntime;
use knack_api::runtime_status::UnpulledEnvironment;
use knack_execution::{ClusterFailure, ClusterFailureKind, ExecutionError};
use knack_vocabulary::{CONDITION_SANDBOXES_READY, FIELD_MANAGER_HUB_STARTS};
use serde_json::json;
use tokio::sync::watch;

use crate::api_call::CallError;
use crate::condition_value::{ConditionStatus, ConditionValue};
use crate::jobs::cluster::Cluster;
use crate::jobs::resolved_runtime::ResolvedRuntime;
use crate::status_write::{Writer, condition_of};

/// Between two writes: a cluster that starts some pods and some not must not cost a write for each.
const PAUSE: Duration = Duration::from_secs(5);

/// The time of a failed pull moves this often: builders compare it with that of the image, and ask for no more.
const UNPULLED_STEP: SignedDuration = SignedDuration::from_mins(10);

/// How the last start went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LastStart {
    /// None was tried yet.
    #[default]
    Unknown,
    /// A sandbox was ready.
    Succeeded,
    /// It does not, or not yet.
    Failing(ClusterFailure),
}

/// The result of launches.
#[derive(Debug, Clone, Default)]
pub(in crate::jobs) struct StartReports(Arc<watch::Sender<StartState>>);

/// What is known of starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StartState {
    start: LastStart,
    /// The last environment of packages that could not be pulled, until it could: builders make it again.
    unpulled: Option<UnpulledEnvironment>,
}

impl StartReports {
    /// A sandbox of an image is ready.
    pub(in crate::jobs) fn succeeded(&self, image: &str) {
        self.change(|known| {
            known.start = LastStart::Succeeded;
            known.unpulled.take_if(|unpulled| unpulled.image == image);
        });
    }

    /// A sandbox did not start, or waits with a failure that lasts. Only failures that the cluster reports count.
    pub(in crate::jobs) fn failed(&self, error: &ExecutionError) {
        if let ExecutionError::Cluster(failure) = error {
            self.change(|known| known.start = LastStart::Failing(failure.clone()));
        }
    }

    /// A sandbox of an environment of packages did not start; counts if its image could not be pulled.
    pub(super) fn unpulled(&self, error: &ExecutionError, image: &str, now: Timestamp) {
        let is_pull = |failure: &ClusterFailure| failure.kind == ClusterFailureKind::ImagePullFailed;
        if !matches!(error, ExecutionError::Cluster(failure) if is_pull(failure)) {
            return;
        }
        self.change(|known| {
            let before = known.unpulled.as_ref().filter(|unpulled| unpulled.image == image);
            if before.is_none_or(|before| now.duration_since(before.failed_at.0) >= UNPULLED_STEP) {
                known.unpulled = Some(UnpulledEnvironment {
                    image: image.to_owned(),
                    failed_at: Time(now),
                });
            }
        });
    }

    /// The runtime was edited: the condition is of another generation.
    pub(in crate::jobs) fn notify_edited(&self) {
        self.0.send_modify(|_| {});
    }

    fn change(&self, change: impl FnOnce(&mut StartState)) {
        self.0.send_if_modified(|known| {
            let before = known.clone();
            change(known);
            *known != before
        });
    }
}

impl LastStart {
    /// What the condition says; `None`: nothing is known.
    fn condition(&self) -> Option<ConditionValue> {
        let (status, reason, message) = match self {
            Self::Unknown => return None,
            Self::Succeeded => (ConditionStatus::True, "Started", "the last sandbox became ready"),
            Self::Failing(failure) => (ConditionStatus::False, word(&failure.reason), &*failure.message),
        };
        Some(ConditionValue::new(status, reason, message))
    }
}

/// Kubernetes' own word, if a condition can hold it.
fn word(reason: &str) -> &str {
    let is_word = reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_word { reason } else { "StartFailed" }
}

/// Writes the condition whenever it or the runtime changes, until the task ends.
pub(in crate::jobs) async fn watch(cluster: Cluster, resolved: Arc<ArcSwap<ResolvedRuntime>>, starts: StartReports) {
    let mut changes = starts.0.subscribe();
    changes.mark_changed();
    loop {
        if changes.changed().await.is_err() {
            return;
        }
        let known = changes.borrow_and_update().clone();
        match write(&cluster, &resolved.load_full(), &known).await {
            Ok(true) => {}
            Ok(false) => changes.mark_changed(),
            Err(error) => {
                tracing::warn!(%error, "condition {CONDITION_SANDBOXES_READY} could not be written");
                changes.mark_changed();
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// `Ok(false)`: the runtime is another one or another version by now.
async fn write(cluster: &Cluster, resolved: &ResolvedRuntime, known: &StartState) -> Result<bool, CallError> {
    let Some(said) = known.start.condition() else {
        return Ok(true);
    };
    let writer = Writer {
        client: &cluster.client,
        manager: FIELD_MANAGER_HUB_STARTS,
        conditions: &[CONDITION_SANDBOXES_READY],
    };
    let target = resolved.target();
    let Some(current) = writer.stored::<SkillRuntime>(&target).await? else {
        return Ok(false);
    };
    let before = condition_of(&current, CONDITION_SANDBOXES_READY);
    if before
        .as_ref()
        .is_some_and(|before| said.is_said_by(before) && before.observed_generation == current.metadata.generation)
        && current.data["status"]["unpulledEnvironment"] == json!(known.unpulled)
    {
        return Ok(true);
    }
    let generation = current.metadata.generation;
    let condition = said.into_condition(CONDITION_SANDBOXES_READY, generation, before.as_ref(), Timestamp::now());
    let mut status = json!({"conditions": [condition]});
    if let Some(unpulled) = &known.unpulled {
        status["unpulledEnvironment"] = json!(unpulled);
    }
    let written = writer.write::<SkillRuntime>(&target, &status).await?;
    Ok(written.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::cluster::failure::failure;
    use knack_execution::ClusterFailureKind;

    #[test]
    fn a_condition_has_the_word_and_the_message_of_kubernetes() {
        let starts = StartReports::default();
        assert_eq!(starts.0.borrow().start.condition(), None);
        starts.failed(&ExecutionError::Cancelled);
        assert_eq!(starts.0.borrow().start.condition(), None, "nobody's fault");
        for (reason, expected) in [
            ("ImagePullBackOff", "ImagePullBackOff"),
            ("", "StartFailed"),
            ("no word", "StartFailed"),
        ] {
            starts.failed(&failure(ClusterFailureKind::ImagePullFailed, reason, "why", false));
            let said = ConditionValue::new(ConditionStatus::False, expected, "why");
            assert_eq!(starts.0.borrow().start.condition(), Some(said));
        }
        starts.succeeded("i");
        let said = starts.0.borrow().start.condition().unwrap();
        assert_eq!(said.status.as_str(), "True");
    }

    #[test]
    fn an_environment_that_cannot_be_pulled_is_named_until_it_can() {
        let now = Timestamp::UNIX_EPOCH;
        let pull = |kind| failure(kind, "ErrImagePull", "not found", false);
        let starts = StartReports::default();
        let said = || {
            let unpulled = starts.0.borrow().unpulled.clone();
            unpulled.map(|unpulled| (unpulled.image, unpulled.failed_at.0.as_second()))
        };
        starts.unpulled(&pull(ClusterFailureKind::Unschedulable), "a", now);
        starts.unpulled(&ExecutionError::Cancelled, "a", now);
        assert_eq!(said(), None, "nothing was pulled");
        let gone = pull(ClusterFailureKind::ImagePullFailed);
        for (seconds, image, expected) in [(9, "a", 9), (600, "a", 9), (609, "a", 609), (610, "b", 610)] {
            starts.unpulled(&gone, image, now + SignedDuration::from_secs(seconds));
            assert_eq!(said(), Some((image.to_owned(), expected)), "{seconds}");
        }
        starts.succeeded("a");
        assert_eq!(said(), Some(("b".to_owned(), 610)), "another one");
        starts.succeeded("b");
        assert_eq!(said(), None);
    }
}
