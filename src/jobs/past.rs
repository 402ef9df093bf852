//! The executions of an earlier owner, from its Jobs, where no journal is left. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use knack_execution::ExecutionId;
use knack_execution::records::RecordSettings;
use knack_vocabulary::LABEL_EXECUTION;

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
            let Some((ended, name)) = finished_at(job) else {
                continue;
            };
            ends.push(ended);
            let labels = job.metadata.labels.as_ref();
            let label = |name: &str| labels.and_then(|labels| labels.get(name));
            if with_pod.contains(name) || label(LABEL_PROBE).is_some() {
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
        let ended = Duration::from_secs(u64::try_from(ended).unwrap_or(0)) + ROUNDING;
        self.floor = self.floor.max((ended + RecordSettings::CLOCK_SKEW).min(now));
    }
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
