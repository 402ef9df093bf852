//! Events on transitions, best effort: a lost event loses no state.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use tracing::warn;

use super::conditions::{Verdict, VerdictState};
use crate::api_call::{CALL_TIMEOUT, within};
use crate::events::NOTE_MAX_CHARS;
use crate::shortened::cut;

/// Publishes how an object fares now. Reconciles wait for it, so it has the time limit of every call.
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
    if let Err(error) = within(CALL_TIMEOUT, recorder.publish(&event, object)).await {
        warn!(%error, "an Event could not be written");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use kube::runtime::events::Reporter;
    use tokio::time::Instant;

    use super::*;
    use crate::controller::reason::ConditionReason;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_holds_no_reconcile() {
        // It takes connections and reads nothing.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let recorder = Recorder::new(client, Reporter::from("test".to_owned()));
        let object = ObjectReference {
            namespace: Some("n".to_owned()),
            ..ObjectReference::default()
        };
        let begun = Instant::now();
        let verdict = Verdict::new(VerdictState::Ready, ConditionReason::Delivered, "m");
        publish(&recorder, &object, &verdict).await;
        assert_eq!(begun.elapsed().as_secs(), CALL_TIMEOUT.as_secs());
    }
}
