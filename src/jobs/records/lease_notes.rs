//! What an owner leaves on the Lease of its runtime for the owners after it: of which executions no Job may tell any more.
//!
//! A Job records what ran for as long as it is kept. Two things end that sooner than a new owner could know: the
//! retention was shorter when the Job was made, or somebody else deleted the Job.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use knack_execution::ExecutionId;
use knack_execution::records::RecordSettings;
use knack_vocabulary::LEASE_RUNTIME_PREFIX;
use kube::Api;
use kube::api::PostParams;

use crate::jobs::cluster::{Cluster, call, read_with_retries};
use crate::jobs::names::{ANNOTATION_REFUSED_BEFORE, ANNOTATION_RETENTION, ANNOTATION_RETENTION_RAISED};
use crate::jobs::resolved_runtime::ResolvedRuntime;

/// Tries of a write. The Lease is renewed every 5 s, so a second one seldom meets a conflict.
const WRITE_TRIES: u32 = 5;
/// Between two tries.
const WRITE_PAUSE: Duration = Duration::from_millis(100);

/// The notes on a Lease. Times are since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LeaseNotes {
    /// The shortest retention of Jobs that counts.
    retention: Option<Duration>,
    /// From when on Jobs are kept for longer, where owners have seen that.
    raised_at: Option<Duration>,
    /// Executions whose ids carry a time before this may have run, whatever the Jobs say.
    refused_before: Option<Duration>,
}

impl LeaseNotes {
    fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = |name: &str| annotations.and_then(|annotations| annotations.get(name));
        let time = |name: &str| {
            let time = text(name)?.parse::<Timestamp>().ok()?;
            Some(Duration::from_secs(u64::try_from(time.as_second()).ok()?))
        };
        let retention = text(ANNOTATION_RETENTION).and_then(|seconds| seconds.parse().ok());
        Self {
            retention: retention.map(Duration::from_secs),
            raised_at: time(ANNOTATION_RETENTION_RAISED),
            refused_before: time(ANNOTATION_REFUSED_BEFORE),
        }
    }

    fn write(&self, annotations: &mut BTreeMap<String, String>) {
        let time = |time: Duration| Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok();
        let time = |at: Option<Duration>| at.and_then(time).map(|time| time.to_string());
        for (name, value) in [
            (
                ANNOTATION_RETENTION,
                self.retention.map(|retention| retention.as_secs().to_string()),
            ),
            (ANNOTATION_RETENTION_RAISED, time(self.raised_at)),
            (ANNOTATION_REFUSED_BEFORE, time(self.refused_before)),
        ] {
            match value {
                Some(value) => annotations.insert(name.to_owned(), value),
                None => annotations.remove(name),
            };
        }
    }

    /// An owner with this retention takes over `now`. Returns before which time it refuses ids that it does not know: their Jobs
    /// may be gone.
    fn take_over(&mut self, retention: Duration, now: Duration) -> Duration {
        let mut floor = now.saturating_sub(retention);
        match self.retention {
            Some(shorter) if shorter < retention => {
                let raised = *self
                    .raised_at
                    .get_or_insert(whole_seconds(now + RecordSettings::CLOCK_SKEW));
                if floor >= raised {
                    (self.retention, self.raised_at) = (Some(retention), None);
                }
                floor = floor.max(raised.min(now.saturating_sub(shorter)));
            }
            _ => (self.retention, self.raised_at) = (Some(retention), None),
        }
        floor.max(self.refused_before.unwrap_or_default().min(now))
    }

    /// Jobs are kept for less than before from now on.
    fn lower(&mut self, retention: Duration) {
        self.retention = Some(self.retention.unwrap_or(retention).min(retention));
        self.raised_at = None;
    }

    /// The Job of this execution is gone.
    fn refuse(&mut self, id: ExecutionId) {
        let after = whole_seconds(id.time() + Duration::from_millis(1));
        self.refused_before = Some(self.refused_before.unwrap_or_default().max(after));
    }
}

/// A time as an annotation has it, rounded up.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// Takes the notes of the owners before this one over. Returns before which time unknown ids are refused.
pub(in crate::jobs) async fn take_over(cluster: &Cluster, resolved: &ResolvedRuntime, now: Duration) -> Duration {
    match change(cluster, resolved, |notes| _ = notes.take_over(resolved.ttl, now)).await {
        Ok(mut found) => found.take_over(resolved.ttl, now),
        Err(error) => {
            tracing::error!(%error, "the Lease of the last owner cannot be read; rejecting unknown execution ids");
            now
        }
    }
}

/// The retention is shorter from now on.
pub(in crate::jobs) async fn lower_retention(cluster: &Cluster, resolved: &ResolvedRuntime) {
    if let Err(error) = change(cluster, resolved, |notes| notes.lower(resolved.ttl)).await {
        tracing::warn!(%error, "a shorter retention could not be noted on the Lease of the runtime");
    }
}

/// The Job of an execution that may have run is gone: owners after this one refuse what they do not know from up to then.
pub(super) async fn refuse_lost(cluster: &Cluster, resolved: &ResolvedRuntime, id: ExecutionId) {
    if let Err(error) = change(cluster, resolved, |notes| notes.refuse(id)).await {
        tracing::warn!(%id, %error, "an execution whose Job was deleted could not be noted on the Lease of the runtime");
    }
}

/// Changes the notes, and returns what they were. Without a Lease there are none: it goes with its runtime.
///
/// Errors: the Lease cannot be read. That it cannot be written is logged, since the notes are right until then.
async fn change(
    cluster: &Cluster,
    resolved: &ResolvedRuntime,
    edit: impl Fn(&mut LeaseNotes),
) -> kube::Result<LeaseNotes> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &resolved.namespace);
    let name = format!("{LEASE_RUNTIME_PREFIX}{}", resolved.name);
    let _turn = cluster.lease_notes.lock().await;
    let mut tried = 1;
    loop {
        let Some(mut lease) = read_with_retries(|| leases.get_opt(&name)).await? else {
            return Ok(LeaseNotes::default());
        };
        let before = LeaseNotes::of(lease.metadata.annotations.as_ref());
        let mut after = before.clone();
        edit(&mut after);
        if after == before {
            return Ok(before);
        }
        after.write(lease.metadata.annotations.get_or_insert_default());
        // With its resourceVersion: of this write and a renewal one is refused, and made again from what it finds.
        match call(leases.replace(&name, &PostParams::default(), &lease)).await {
            Ok(_) => return Ok(before),
            Err(error) if tried >= WRITE_TRIES => {
                tracing::warn!(lease = %name, %error, "the notes on the Lease of a runtime could not be written");
                return Ok(before);
            }
            Err(_) => tokio::time::sleep(WRITE_PAUSE).await,
        }
        tried += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u32) -> Duration {
        Duration::from_mins(1) * minutes
    }

    /// An owner that takes over with a retention, in minutes; returns before which minute it refuses.
    fn taken_over(notes: &mut LeaseNotes, retention: u32, now: u32) -> u64 {
        let floor = notes.take_over(at(retention), at(now));
        // As the next one finds them on the Lease.
        let mut annotations = BTreeMap::new();
        notes.write(&mut annotations);
        assert_eq!(LeaseNotes::of(Some(&annotations)), *notes, "{annotations:?}");
        floor.as_secs() / 60
    }

    #[test]
    fn jobs_that_were_kept_for_less_are_no_proof_of_what_never_ran() {
        let mut notes = LeaseNotes::default();
        assert_eq!(taken_over(&mut notes, 5, 100), 95, "by its own retention");
        // Raised to an hour at minute 105: the Jobs until then are gone after five minutes.
        assert_eq!(taken_over(&mut notes, 60, 110), 105);
        assert_eq!(
            taken_over(&mut notes, 60, 112),
            107,
            "a second takeover soon refuses no more than that"
        );
        assert_eq!(
            taken_over(&mut notes, 60, 130),
            111,
            "what ran before the takeover of minute 110"
        );
        assert_eq!(taken_over(&mut notes, 60, 200), 140, "by its own retention again");
        assert_eq!(notes.retention, Some(at(60)));
        // Lowered, and raised again, within one term.
        notes.lower(at(5));
        assert_eq!(taken_over(&mut notes, 60, 220), 215);
        // Lowered and raised, and owners have seen the raise.
        notes.lower(at(30));
        assert_eq!(taken_over(&mut notes, 60, 230), 225);
        assert_eq!(taken_over(&mut notes, 3, 240), 237, "lowered while nobody owned it");
        assert_eq!(notes.retention, Some(at(3)));
    }

    #[test]
    fn an_execution_whose_job_was_deleted_is_refused_and_later_ones_are_not() {
        let id = |minutes: u32| ExecutionId::new(at(minutes) + Duration::from_millis(7), "r", 0, "c");
        let mut notes = LeaseNotes::default();
        taken_over(&mut notes, 5, 100);
        notes.refuse(id(103));
        notes.refuse(id(101));
        let floor = notes.take_over(at(5), at(104));
        assert!(
            floor > id(103).time() && floor <= at(103) + Duration::from_secs(1),
            "{floor:?}"
        );
        // An id that is ahead of the clock refuses nothing that comes later.
        notes.refuse(id(106));
        assert_eq!(notes.take_over(at(5), at(105)), at(105));
    }

    #[test]
    fn notes_that_cannot_be_read_are_none() {
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let annotations = BTreeMap::from([
            text(ANNOTATION_RETENTION, "-1"),
            text(ANNOTATION_REFUSED_BEFORE, "soon"),
        ]);
        assert_eq!(LeaseNotes::of(Some(&annotations)), LeaseNotes::default());
        assert_eq!(LeaseNotes::of(None), LeaseNotes::default());
    }
}
