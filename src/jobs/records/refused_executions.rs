//! The executions of an earlier owner, from its Jobs, where no journal is left. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use knack_execution::ExecutionId;
use knack_execution::records::RecordSettings;
use knack_vocabulary::LABEL_EXECUTION;

use super::finished_jobs::finished_at;
use super::job_record;
use crate::jobs::cluster::pod_facts::PodFacts;
use crate::jobs::names::LABEL_PROBE;

/// Jobs have times in whole seconds, rounded down.
const ROUNDING: Duration = Duration::from_secs(1);

/// Executions that must not run again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::jobs) struct PastExecutions {
    /// Executions that Jobs name. What their journals say of them goes first.
    pub(in crate::jobs) ids: Vec<ExecutionId>,
    /// Executions whose ids carry a time before this may have run.
    pub(in crate::jobs) floor: Duration,
    /// The Jobs that say so: they stay for the owner after this one.
    pub(in crate::jobs) jobs: BTreeSet<String>,
}

impl PastExecutions {
    /// From the Jobs of a runtime and how many pods each of them has that can be read. `kept`: how many finished Jobs the owners
    /// keep. `now` is since the Unix epoch.
    pub(in crate::jobs) fn of(jobs: &[Job], pods: &BTreeMap<String, usize>, kept: usize, now: Duration) -> Self {
        let mut past = Self::default();
        let mut ends: Vec<i64> = Vec::new();
        for job in jobs {
            let ended = finished_at(job).map(|(ended, _)| ended);
            ends.extend(ended);
            let labels = job.metadata.labels.as_ref();
            let label = |name: &str| labels.and_then(|labels| labels.get(name));
            if label(LABEL_PROBE).is_some() || job_record::ran_nothing(job.metadata.annotations.as_ref()) {
                continue;
            }
            let name = job.metadata.name.as_deref().unwrap_or_default();
            match label(LABEL_EXECUTION).and_then(|id| id.parse().ok()) {
                Some(id) => past.ids.push(id),
                None if !lacks_pod(job, pods.get(name).copied().unwrap_or_default()) => continue,
                // A pod of it was deleted, with the journal.
                None => match ended {
                    Some(ended) => past.raise(ended, now),
                    None => past.floor = now,
                },
            }
            past.jobs.insert(name.to_owned());
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

/// The time below which an unknown id may belong to the run of a pod that is gone and whose journal was not read. A pod that was
/// never bound to a node, and a probe, ran nothing.
pub(in crate::jobs) fn floor_of_gone(pod: &PodFacts, now: Duration) -> Duration {
    if pod.is_probe || pod.node.is_none() {
        return Duration::ZERO;
    }
    pod.container_times.map_or(now, |(_, ended)| floor_of_end(ended, now))
}

fn floor_of_end(ended: i64, now: Duration) -> Duration {
    let ended = Duration::from_secs(u64::try_from(ended).unwrap_or(0)) + ROUNDING;
    (ended + RecordSettings::CLOCK_SKEW).min(now)
}

/// Whether a Job had more pods than the `seen` ones: the job controller counts a pod that has ended before it lets it go, and
/// only then says that the Job is finished. One that runs may not have been seen yet.
fn lacks_pod(job: &Job, seen: usize) -> bool {
    let status = job.status.as_ref();
    let count = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
    let uncounted = status.and_then(|status| status.uncounted_terminated_pods.as_ref());
    let uncounted = uncounted.map_or(0, |pods| {
        [&pods.failed, &pods.succeeded]
            .into_iter()
            .flatten()
            .map(Vec::len)
            .sum()
    });
    let ended = status.map_or(0, |status| count(status.failed) + count(status.succeeded)) + uncounted;
    let others = status.map_or(0, |status| count(status.active) + count(status.terminating));
    if seen == 0 {
        ended > 0 || finished_at(job).is_some()
    } else {
        ended > 0 && ended + others > seen
    }
}

#[cfg(test)]
mod tests {
    use knack_vocabulary::ANNOTATION_RESULT;
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "019aa8f0-0000-7000-8000-000000000001";

    #[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
    fn job(name: &str, second: u32, labels: Value) -> Job {
        let ended = json!([{"type": "Complete", "status": "True", "lastTransitionTime": format!("1970-01-01T00:00:{second:02}Z")}]);
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": ended}}))
            .unwrap()
    }

    fn of(jobs: &[Job], with_pod: &[&str], kept: usize) -> PastExecutions {
        of_at(jobs, with_pod, kept, Duration::from_hours(1))
    }

    fn of_at(jobs: &[Job], with_pod: &[&str], kept: usize, now: Duration) -> PastExecutions {
        let mut pods = BTreeMap::new();
        for job in with_pod {
            *pods.entry((*job).to_owned()).or_default() += 1;
        }
        PastExecutions::of(jobs, &pods, kept, now)
    }

    #[test]
    fn a_job_without_its_pod_has_its_execution_or_when_it_ended() {
        let jobs = [
            job("told", 5, json!({LABEL_EXECUTION: ID})),
            job("untold", 7, json!({})),
            job("probe", 9, json!({LABEL_PROBE: "enabled"})),
            serde_json::from_value(json!({"metadata": {"name": "runs"}})).unwrap(),
        ];
        let recorded = PastExecutions {
            ids: vec![ID.parse().unwrap()],
            floor: Duration::ZERO,
            jobs: BTreeSet::from(["told".to_owned()]),
        };
        // Its journal may be that of another pod.
        assert_eq!(of(&jobs, &["told", "untold"], 500), recorded);
        assert_eq!(
            of(&jobs, &[], 500),
            PastExecutions {
                floor: Duration::from_secs(8 + 60),
                jobs: BTreeSet::from(["told".to_owned(), "untold".to_owned()]),
                ..recorded
            }
        );
    }

    #[test]
    fn a_job_that_is_known_to_have_run_nothing_refuses_nothing() {
        let ran = |result: Value| -> Job {
            let ended = json!([{"type": "Failed", "status": "True", "lastTransitionTime": "1970-01-01T00:00:05Z"}]);
            let annotations = json!({ANNOTATION_RESULT: result.to_string()});
            serde_json::from_value(json!({
                "metadata": {"name": "a", "labels": {LABEL_EXECUTION: ID}, "annotations": annotations},
                "status": {"conditions": ended, "failed": 1},
            }))
            .unwrap()
        };
        for (result, is_refused) in [
            (json!({"status": "error", "mayHaveRun": false}), false),
            (json!({"status": "error", "mayHaveRun": true}), true),
            (json!({"status": "error"}), true),
            (json!("mayHaveRun"), true),
        ] {
            let job = ran(result.clone());
            assert_eq!(
                !of(std::slice::from_ref(&job), &[], 500).ids.is_empty(),
                is_refused,
                "{result}"
            );
            // Another try of the same execution is distinguished.
            let other = self::job("b", 6, json!({LABEL_EXECUTION: ID}));
            assert!(of(&[job, other], &[], 500).ids.contains(&ID.parse().unwrap()));
        }
        // A pod that was counted, and a Job that is not finished yet.
        let mut unfinished = ran(json!({"mayHaveRun": false}));
        unfinished.status.as_mut().unwrap().conditions = None;
        assert_eq!(of(&[unfinished], &[], 500), PastExecutions::default());
    }

    #[test]
    fn a_pod_that_is_there_says_nothing_of_another_one_of_its_job_that_is_gone() {
        let now = Duration::from_hours(1);
        for (status, pods, is_refused) in [
            (json!({"active": 1}), 1, false),
            (json!({"active": 2}), 1, false),
            // The watch was behind.
            (json!({"failed": 1}), 1, false),
            (json!({"active": 1, "failed": 1}), 1, true),
            (json!({"terminating": 1, "failed": 1}), 1, true),
            (json!({"failed": 2}), 1, true),
            (
                json!({"failed": 1, "uncountedTerminatedPods": {"failed": ["uid"]}}),
                1,
                true,
            ),
            (json!({"active": 1, "failed": 1}), 2, false),
            (json!({"failed": 1, "succeeded": 1}), 2, false),
        ] {
            for is_finished in [false, true] {
                let mut job = job("a", 5, json!({}));
                let conditions = job.status.take().unwrap().conditions.filter(|_| is_finished);
                job.status = Some(serde_json::from_value(status.clone()).unwrap());
                job.status.as_mut().unwrap().conditions = conditions;
                let past = of_at(&[job], &vec!["a"; pods], 500, now);
                assert_eq!(!past.floor.is_zero(), is_refused, "{status} {pods}");
                assert_eq!(past.jobs.contains("a"), is_refused, "{status} {pods}");
            }
        }
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
