//! Counts of objects by state, for metrics: from the watched stores, without a call to the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knack_vocabulary::{CONDITION_ISOLATED, CONDITION_READY, CONDITION_STALLED, KIND_SKILL, KIND_SKILL_RUNTIME};

use super::cluster_state::decoded;
use super::context::Context;
use crate::condition_value::ConditionStatus;

/// How often objects are counted: as often as a Prometheus asks, at a hundredth of a second for ten thousand skills.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);

/// States of an object, as metrics have them.
const STATES: [&str; 3] = ["ready", "stalled", "reconciling"];

/// Counts until the task ends; only the leader does.
pub(super) async fn run(context: Arc<Context>) {
    context.cluster_state.ready().await;
    loop {
        let skills = context.cluster_state.skills();
        let skills = skills.iter().filter_map(|skill| decoded(skill));
        let skills = skills.map(|skill| skill.status.as_ref().map_or(&[][..], |status| &status.conditions));
        let runtimes = context.cluster_state.runtimes();
        let runtimes = runtimes.iter().filter_map(|runtime| runtime.0.as_ref().ok());
        let runtimes: Vec<_> = runtimes
            .map(|runtime| {
                runtime
                    .status
                    .as_ref()
                    .map_or(&[][..], |status| status.conditions.as_slice())
            })
            .collect();
        for (kind, counts) in [
            (KIND_SKILL, counts(skills)),
            (KIND_SKILL_RUNTIME, counts(runtimes.iter().copied())),
        ] {
            for (state, count) in STATES.into_iter().zip(counts) {
                context.metrics.objects(kind, state, count);
            }
        }
        context.metrics.not_isolated(
            runtimes
                .iter()
                .filter(|one| is(one, CONDITION_ISOLATED, ConditionStatus::False))
                .count(),
        );
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

/// How many are in each of [`STATES`].
fn counts<'a>(objects: impl Iterator<Item = &'a [Condition]>) -> [usize; STATES.len()] {
    let mut counts = [0; STATES.len()];
    for conditions in objects {
        let state = if is(conditions, CONDITION_STALLED, ConditionStatus::True) {
            1
        } else {
            usize::from(!is(conditions, CONDITION_READY, ConditionStatus::True)) * 2
        };
        counts[state] += 1;
    }
    counts
}

fn is(conditions: &[Condition], kind: &str, status: ConditionStatus) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == kind && status.is_of(condition))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn alerts_and_dashboard_know_the_states() {
        for word in crate::fixture::monitored_words("knack_controller_objects", "state") {
            assert!(STATES.contains(&word.as_str()), "{word}");
        }
    }

    #[test]
    fn an_object_is_ready_stalled_or_on_its_way() {
        let conditions = |words: &[(&str, &str)]| -> Vec<Condition> {
            let made = words.iter().map(|(kind, status)| {
                let text = json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
                serde_json::from_value(text).unwrap()
            });
            made.collect()
        };
        for (words, expected) in [
            (&[("Ready", "True")][..], [1, 0, 0]),
            (&[("Ready", "False"), ("Stalled", "True")], [0, 1, 0]),
            (&[("Ready", "False"), ("Reconciling", "True")], [0, 0, 1]),
            (&[("Ready", "Unknown")], [0, 0, 1]),
            (&[("Ready", "True"), ("PodsInjected", "False")], [1, 0, 0]),
            (&[], [0, 0, 1]),
        ] {
            let made = conditions(words);
            assert_eq!(counts([made.as_slice()].into_iter()), expected, "{words:?}");
        }
    }
}
