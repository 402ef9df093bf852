//! Events on transitions, best effort: a lost event loses no state.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use tracing::warn;

use super::conditions::{Verdict, VerdictState};
use crate::events::NOTE_MAX_CHARS;
use crate::shortened::cut;

/// Publishes how an object fares now.
pub(super) async fn publish(recorder: &Recorder, object: &ObjectReference, verdict: &Verdict) {
    let event = Event {
        type_: match verdict.state {
            VerdictState::Ready | VerdictState::Progressing => EventType::Normal,
            VerdictState::Retrying | VerdictState::Stalled => EventType::Warning,
        },
        reason: verdict.reason.as_str().to_owned(),
        note: Some(cut(&verdict.message, NOTE_MAX_CHARS)),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, object).await {
        warn!(%error, "event");
    }
}
