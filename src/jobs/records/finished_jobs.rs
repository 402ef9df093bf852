//! Finished Jobs are the history of a runtime, and capped.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::batch::v1::Job;
use knack_execution::records::RecordSettings;
use knack_vocabulary::LABEL_RUNTIME;
use kube::api::ListParams;

use crate::jobs::cluster::{Cluster, call};
use crate::jobs::resolved_runtime::ResolvedRuntime;

/// How often finished Jobs are counted; between two counts a busy node finishes some 300.
const EVERY: Duration = Duration::from_mins(1);

/// Deletes the oldest finished Jobs beyond `kept`, without end.
pub(in crate::jobs) async fn cap(cluster: Cluster, resolved: Arc<ArcSwap<ResolvedRuntime>>, kept: usize) {
    loop {
        tokio::time::sleep(EVERY).await;
        let parameters = ListParams::default().labels(&format!("{LABEL_RUNTIME}={}", resolved.load().name));
        // Metadata gives the count; only if there are too many are the whole objects fetched, which say which have
        // ended.
        match call(cluster.jobs.list_metadata(&parameters)).await {
            Ok(jobs) if jobs.items.len() <= kept => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "Jobs could not be counted");
                continue;
            }
        }
        match call(cluster.jobs.list(&parameters)).await {
            Ok(jobs) => {
                for job in surplus(&jobs.items, kept, knack_execution::now()) {
                    cluster.delete_job(&job).await;
                }
            }
            Err(error) => tracing::warn!(%error, "finished Jobs could not be counted"),
        }
    }
}

/// The names of the finished Jobs beyond `kept`, oldest first. One that ended just now stays: the id of its execution may still
/// be ahead of `now`, and a next owner could not tell it from a new one.
fn surplus(jobs: &[Job], kept: usize, now: Duration) -> Vec<String> {
    let settled = now.saturating_sub(RecordSettings::CLOCK_SKEW).as_secs();
    let mut finished: Vec<(i64, &str)> = jobs.iter().filter_map(finished_at).collect();
    finished.sort_unstable();
    let count = finished.len().saturating_sub(kept);
    finished
        .into_iter()
        .take(count)
        .filter(|(ended, _)| u64::try_from(*ended).unwrap_or(0) < settled)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// When a Job ended, seconds since the epoch, and its name; `None` while it runs.
pub(in crate::jobs) fn finished_at(job: &Job) -> Option<(i64, &str)> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    let ended = conditions
        .iter()
        .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")?;
    let at = ended.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
    Some((at, job.metadata.name.as_deref()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_finished_go_and_running_ones_stay() {
        let job = |name: &str, ended: Option<&str>| -> Job {
            let conditions =
                ended.map(|time| json!([{"type": "Complete", "status": "True", "lastTransitionTime": time}]));
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": conditions}})).unwrap()
        };
        let jobs = [
            job("new", Some("2026-01-01T00:00:03Z")),
            job("runs", None),
            job("old", Some("2026-01-01T00:00:01Z")),
            job("middle", Some("2026-01-01T00:00:02Z")),
        ];
        let ended: jiff::Timestamp = "2026-01-01T00:00:02Z".parse().unwrap();
        let later = |seconds| Duration::from_secs(ended.as_second().unsigned_abs() + seconds);
        assert_eq!(surplus(&jobs, 1, later(3600)), ["old", "middle"]);
        assert!(surplus(&jobs, 3, later(3600)).is_empty());
        // The id of the other one may be ahead of the clock.
        assert_eq!(surplus(&jobs, 1, later(60)), ["old"]);
    }
}
