//! The executions of an earlier owner, from its Jobs, where no journal is left. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use knack_execution::ExecutionId;
use knack_execution::records::RecordSettings;
use knack_vocabulary::LABEL_EXECUTION;

use super::facts::PodFacts;
use super::history::finished_at;
use super::names::LABEL_PROBE;

/// Jobs have times in whole seconds, rounded down.
const ROUNDING: Duration = Duration::from_secs(1);

/// Executions that must not run again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// Executions whose pods are gone.
    pub(super) ids: Vec<ExecutionId>,
    /// Executions whose ids carry a time before this may have run.
    pub(super) floor: Duration,
}

impl Past {
    /// From the Jobs of a runtime and those of them that have a pod. `kept`: how many finished Jobs the owners keep. `now` is
    /// since the Unix epoch.
    pub(super) fn of(jobs: &[Job], with_pod: &BTreeSet<String>, kept: usize, now: Duration) -> Self {
        let mut past = Self::default();
        let mut ends: Vec<i64> = Vec::new();
        for job in jobs {
            let labels = job.metadata.labels.as_ref();
            let label = |name: &str| labels.and_then(|labels| labels.get(name));
            let has_pod = |name: &str| with_pod.contains(name) || label(LABEL_PROBE).is_some();
            let Some((ended, name)) = finished_at(job) else {
                let name = job.metadata.name.as_deref().unwrap_or_default();
                if pod_ended(job) && !has_pod(name) {
                    past.floor = now;
                }
                continue;
            };
            ends.push(ended);
            if has_pod(name) {
                continue;
            }
            // Its pod was deleted, with the journal.
            match label(LABEL_EXECUTION).and_then(|id| id.parse().ok()) {
                Some(id) => past.ids.push(id),
                None => past.raise(ended, now),
            }
        }
        // Older ones may have been deleted for being too many: all of them had ended before the oldest that is left, and long
        // enough ago that no id of theirs is ahead of this clock.
        if ends.len() >= kept
            && let Some(oldest) = ends.into_iter().min()
        {
            past.raise(oldest, now);
        }
        past
    }

    /// For a run that ended then, and those before it, whose ids may have been ahead of the clock. Ids of new executions are not
    /// before `now`.
    fn raise(&mut self, ended: i64, now: Duration) {
        self.floor = self.floor.max(floor_of_end(ended, now));
    }
}

/// Below what unknown ids may be of the run of a pod that went before its journal was read. One that was never bound to a node,
/// and a probe, ran nothing.
pub(super) fn floor_of_gone(pod: &PodFacts, now: Duration) -> Duration {
    if pod.is_probe || pod.node.is_none() {
        return Duration::ZERO;
    }
    pod.container_times.map_or(now, |(_, ended)| floor_of_end(ended, now))
}

fn floor_of_end(ended: i64, now: Duration) -> Duration {
    let ended = Duration::from_secs(u64::try_from(ended).unwrap_or(0)) + ROUNDING;
    (ended + RecordSettings::CLOCK_SKEW).min(now)
}

/// Whether the pod of a Job that is not finished has ended: the job controller counts it before it lets it go, and only then
/// says that the Job is finished.
fn pod_ended(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| {
        let counted = status.uncounted_terminated_pods.as_ref().is_some_and(|uncounted| {
            let some = |uids: &Option<Vec<String>>| uids.as_ref().is_some_and(|uids| !uids.is_empty());
            some(&uncounted.failed) || some(&uncounted.succeeded)
        });
        counted
            || [status.failed, status.succeeded]
                .iter()
                .any(|count| count.unwrap_or(0) > 0)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "019aa8f0-0000-7000-8000-000000000001";

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn job(name: &str, second: u32, labels: Value) -> Job {
        let ended = json!([{"type": "Complete", "status": "True", "lastTransitionTime": format!("1970-01-01T00:00:{second:02}Z")}]);
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": ended}}))
            .unwrap()
    }

    fn of(jobs: &[Job], with_pod: &[&str], kept: usize) -> Past {
        of_at(jobs, with_pod, kept, Duration::from_hours(1))
    }

    fn of_at(jobs: &[Job], with_pod: &[&str], kept: usize, now: Duration) -> Past {
        let with_pod = with_pod.iter().map(ToString::to_string).collect();
        Past::of(jobs, &with_pod, kept, now)
    }

    #[test]
    fn a_job_without_its_pod_has_its_execution_or_when_it_ended() {
        let jobs = [
            job("told", 5, json!({LABEL_EXECUTION: ID})),
            job("untold", 7, json!({})),
            job("probe", 9, json!({LABEL_PROBE: "enabled"})),
            serde_json::from_value(json!({"metadata": {"name": "runs"}})).unwrap(),
        ];
        assert_eq!(of(&jobs, &["told", "untold"], 500), Past::default());
        assert_eq!(
            of(&jobs, &[], 500),
            Past {
                ids: vec![ID.parse().unwrap()],
                floor: Duration::from_secs(8 + 60)
            }
        );
    }

    #[test]
    fn a_job_whose_pod_went_before_the_job_was_finished_may_have_run() {
        let now = Duration::from_hours(1);
        for (status, pods, expected) in [
            (json!({}), vec![], Duration::ZERO),
            (
                json!({"active": 0, "uncountedTerminatedPods": {}}),
                vec![],
                Duration::ZERO,
            ),
            // Just made: the watch may not have its pod yet.
            (json!({"active": 1}), vec![], Duration::ZERO),
            (json!({"failed": 1}), vec!["a"], Duration::ZERO),
            (json!({"uncountedTerminatedPods": {"failed": ["uid"]}}), vec![], now),
            (json!({"uncountedTerminatedPods": {"succeeded": ["uid"]}}), vec![], now),
            (json!({"failed": 1}), vec![], now),
        ] {
            let job = serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap();
            assert_eq!(of_at(&[job], &pods, 500, now).floor, expected, "{status} {pods:?}");
        }
    }

    #[test]
    fn a_pod_that_went_unread_may_have_run_until_its_container_ended() {
        let (now, bound) = (Duration::from_hours(1), Some("node".to_owned()));
        let pod = |node: &Option<String>, is_probe, container_times| PodFacts {
            node: node.clone(),
            is_probe,
            container_times,
            ..PodFacts::default()
        };
        for (pod, expected) in [
            (pod(&None, false, None), Duration::ZERO),
            (pod(&bound, true, None), Duration::ZERO),
            (pod(&bound, false, None), now),
            (pod(&bound, false, Some((1, 20))), Duration::from_secs(21 + 60)),
            (pod(&bound, false, Some((1, 3590))), now),
        ] {
            assert_eq!(floor_of_gone(&pod, now), expected, "{pod:?}");
        }
    }

    #[test]
    fn where_the_history_is_full_the_oldest_that_is_left_bounds_what_is_gone() {
        let jobs = [
            job("a", 30, json!({})),
            job("b", 20, json!({})),
            job("c", 40, json!({})),
        ];
        let all = ["a", "b", "c"];
        assert_eq!(of(&jobs, &all, 4).floor, Duration::ZERO);
        assert_eq!(of(&jobs, &all, 3).floor, Duration::from_secs(21 + 60));
        assert_eq!(of(&jobs, &all, 2).floor, Duration::from_secs(21 + 60));
        assert_eq!(of(&[], &[], 0).floor, Duration::ZERO);
        // What was deleted for being too many had ended a minute ago at least: new executions are not refused.
        let soon = Duration::from_secs(70);
        assert_eq!(of_at(&jobs, &all, 3, soon).floor, soon);
    }
}
