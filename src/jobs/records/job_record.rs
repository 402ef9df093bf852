//! The traces of an execution in the cluster: labels and a summary on its Job, an Event if it failed.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use knack_execution::conversation::RunEnd;
use knack_execution::records::Outcome;
use knack_execution::{ExecutionError, ExecutionId, ExecutionResult, ExecutionStatus, Exit};
use knack_vocabulary::{
    ANNOTATION_RESULT, API_VERSION, KIND_SKILL_RUNTIME, LABEL_EXECUTION, LABEL_REVISION, LABEL_SKILL,
    LABEL_SKILL_NAMESPACE,
};
use serde::Serialize;
use tokio_util::task::TaskTracker;

use super::lease_notes;
use crate::jobs::cluster::Cluster;
use crate::jobs::request::{JobRequest, RunSkill};
use crate::jobs::resolved_runtime::ResolvedRuntime;

/// Longest value of a label.
const LABEL_BYTES: usize = 63;
/// Hex digits of the hash that ends a shortened value.
const HASH_DIGITS: usize = 10;
/// How long the end of a term waits for what is still to be written of its runs. An API server that answers takes milliseconds;
/// meanwhile the runtime has no owner, and a hub that ends has 20 s for all of its handover.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// The caller that a Job ran for.
#[derive(Debug, Clone)]
pub(in crate::jobs) struct JobExecution {
    /// The execution.
    pub(in crate::jobs) id: ExecutionId,
    /// The skill that it belongs to.
    pub(in crate::jobs) skill: Option<RunSkill>,
}

impl JobExecution {
    /// The record of a request.
    pub(in crate::jobs) fn of(request: &JobRequest) -> Self {
        Self {
            id: request.execution.id,
            skill: request.skill.clone(),
        }
    }

    /// Its labels; values that are too long, or no label values, end in a hash.
    pub(in crate::jobs) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(LABEL_EXECUTION.to_owned(), self.id.to_string())]);
        if let Some(RunSkill { id, revision }) = &self.skill {
            labels.insert(LABEL_SKILL_NAMESPACE.to_owned(), label_value(&id.namespace));
            labels.insert(LABEL_SKILL.to_owned(), label_value(&id.name));
            let revision = revision.as_deref().map(label_value);
            labels.extend(revision.map(|revision| (LABEL_REVISION.to_owned(), revision)));
        }
        labels
    }
}

/// A summary of how it ended: the value of the annotation. It keeps no output in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::jobs) struct Summary {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `false`: it is shown that nothing ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_have_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_millis: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<usize>,
}

impl Summary {
    /// The record of the end of a run. If the run has not started, the next owner refuses no ids because of its Job.
    pub(in crate::jobs) fn of_end(end: &RunEnd) -> Self {
        match end {
            RunEnd::Ended(result) => Self::of_result(result),
            RunEnd::Failed(error) => Self::of_error(error),
            RunEnd::NotStarted(error) => Self {
                may_have_run: Some(false),
                ..Self::of_error(error)
            },
        }
    }

    /// The record of an outcome, which does not show whether a run has started.
    pub(in crate::jobs) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(result) => Self::of_result(result),
            Err(error) => Self::of_error(error),
        }
    }

    fn of_result(result: &ExecutionResult) -> Self {
        Self {
            status: result.status().as_str(),
            exit: Some(exit_word(result.exit)),
            reason: None,
            may_have_run: None,
            start: Some(result.timings.start.as_str()),
            run_millis: Some(result.timings.run.as_millis()),
            output_bytes: Some(result.stdout.bytes.len() + result.stderr.bytes.len()),
            files: Some(result.files.len()),
        }
    }

    fn of_error(error: &ExecutionError) -> Self {
        Self {
            status: ExecutionStatus::Error.as_str(),
            exit: None,
            reason: Some(reason(error)),
            may_have_run: None,
            start: None,
            run_millis: None,
            output_bytes: None,
            files: None,
        }
    }
}

/// Whether the record of a Job says that nothing ran in it.
pub(in crate::jobs) fn ran_nothing(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let record = annotations.and_then(|annotations| annotations.get(ANNOTATION_RESULT));
    let record = record.and_then(|record| serde_json::from_str::<serde_json::Value>(record).ok());
    record.is_some_and(|record| record.get("mayHaveRun").and_then(serde_json::Value::as_bool) == Some(false))
}

/// What is still to be written of the runs of a term: records, and Events of failures.
#[derive(Debug, Clone, Default)]
pub(in crate::jobs) struct PendingWrites(TaskTracker);

impl PendingWrites {
    /// Spawns a task that writes, now or once a run has ended. It ends soon after its term.
    pub(in crate::jobs) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Waits until all of it is written, in bounded time: a process that ends takes along what is not, and the next owner finds
    /// Jobs that do not say what they ran. Called once the term is over.
    pub(in crate::jobs) async fn written(&self) {
        self.0.close();
        if tokio::time::timeout(WRITE_PATIENCE, self.0.wait()).await.is_err() {
            tracing::warn!(
                left = self.0.len(),
                "records of runs could not be written within {} s",
                WRITE_PATIENCE.as_secs()
            );
        }
    }
}

/// Writes the record of an ended run: one patch of its Job. Where the Job of what may have run is gone, the Lease of the runtime says
/// so.
pub(in crate::jobs) async fn write(
    cluster: &Cluster,
    resolved: &ResolvedRuntime,
    job: &str,
    job_execution: &JobExecution,
    summary: &Summary,
) {
    let text = serde_json::to_string(summary).unwrap_or_default();
    let annotations = BTreeMap::from([(ANNOTATION_RESULT.to_owned(), text)]);
    let is_there = cluster.annotate(job, job_execution.labels(), annotations).await;
    if !is_there && summary.may_have_run != Some(false) {
        tracing::warn!(%job, execution = %job_execution.id, "the Job of an execution that may have run is gone");
        lease_notes::refuse_lost(cluster, resolved, job_execution.id).await;
    }
}

/// Names the execution that a Job has run, where no more is known of it.
pub(in crate::jobs) async fn name_execution(cluster: &Cluster, resolved: &ResolvedRuntime, job: &str, id: ExecutionId) {
    let labels = BTreeMap::from([(LABEL_EXECUTION.to_owned(), id.to_string())]);
    if !cluster.annotate(job, labels, BTreeMap::new()).await {
        lease_notes::refuse_lost(cluster, resolved, id).await;
    }
}

/// Reports a failure of the cluster as an Event of the runtime. It names no execution: runs with the same failure are
/// one Event with a count.
pub(in crate::jobs) async fn publish_failure(cluster: &Cluster, resolved: &ResolvedRuntime, error: &ExecutionError) {
    let runtime = ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(KIND_SKILL_RUNTIME.to_owned()),
        name: Some(resolved.name.clone()),
        namespace: Some(resolved.namespace.clone()),
        uid: Some(resolved.uid.clone()),
        ..ObjectReference::default()
    };
    let note = format!("an execution failed: {error}");
    cluster
        .warnings
        .warn(&runtime, "ExecutionFailed", "Execute", &note)
        .await;
}

/// Kubernetes' reason of a failure, or one of Knack's.
fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::Cluster(failure) => failure.reason.clone(),
        other => other.metric_label().to_owned(),
    }
}

fn exit_word(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::Timeout => "timeout".to_owned(),
        Exit::OutOfMemory => "out of memory".to_owned(),
        Exit::OutputLimit => "output limit".to_owned(),
        Exit::DiskLimit => "disk limit".to_owned(),
        Exit::ProcessLimit => "process limit".to_owned(),
    }
}

/// A value that a label can hold.
fn label_value(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = !text.is_empty()
        && text.len() <= LABEL_BYTES
        && text.bytes().all(is_plain)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric());
    if fits {
        return text.to_owned();
    }
    let hash = knack_skill::digest::sha256(text);
    let kept: String = text.bytes().filter(u8::is_ascii_alphanumeric).map(char::from).collect();
    let kept = kept.get(..LABEL_BYTES - HASH_DIGITS - 1).unwrap_or(&kept);
    let joint = if kept.is_empty() { "" } else { "-" };
    format!("{kept}{joint}{}", &hash[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_term_waits_for_its_records_and_not_for_ever() {
        let unwritten = PendingWrites::default();
        let begun = Instant::now();
        unwritten.written().await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "there is nothing to write");
        let takes = Duration::from_secs(2);
        unwritten.spawn(tokio::time::sleep(takes));
        unwritten.written().await;
        assert_eq!(begun.elapsed(), takes);
        unwritten.spawn(std::future::pending());
        unwritten.written().await;
        assert_eq!(begun.elapsed(), takes + WRITE_PATIENCE);
    }

    #[test]
    fn every_text_becomes_a_label_value_and_short_names_stay() {
        assert_eq!(label_value("pdf-processing"), "pdf-processing");
        for text in [&"x".repeat(64), "", "-a", "a/b", "ä", &"n".repeat(253)] {
            let value = label_value(text);
            assert!(value.len() <= LABEL_BYTES && !value.is_empty(), "{value}");
            assert!(
                value.starts_with(|first: char| first.is_ascii_alphanumeric()),
                "{value}"
            );
            assert_eq!(label_value(&value), value);
        }
        assert_ne!(label_value(&"x".repeat(64)), label_value(&"x".repeat(65)));
    }

    #[test]
    fn a_failure_keeps_the_word_of_kubernetes() {
        let outcome = Err(crate::jobs::cluster::failure::failure(
            knack_execution::ClusterFailureKind::OutOfMemory,
            "OOMKilled",
            "m",
            true,
        ));
        let text = serde_json::to_string(&Summary::of(&outcome)).unwrap();
        assert_eq!(text, r#"{"status":"error","reason":"OOMKilled"}"#);
    }

    #[test]
    fn only_what_is_shown_not_to_have_started_is_recorded_so() {
        let kind = knack_execution::ClusterFailureKind::ContainerFailed;
        // The word of the error is for the caller: how the run ended decides.
        for says_so in [false, true] {
            let error = || crate::jobs::cluster::failure::failure(kind, "NoResult", "m", says_so);
            for (end, expected) in [(RunEnd::NotStarted(error()), true), (RunEnd::Failed(error()), false)] {
                let summary = serde_json::to_string(&Summary::of_end(&end)).unwrap();
                let annotations = BTreeMap::from([(ANNOTATION_RESULT.to_owned(), summary)]);
                assert_eq!(ran_nothing(Some(&annotations)), expected, "{annotations:?}");
            }
            let adopted = serde_json::to_string(&Summary::of(&Err(error()))).unwrap();
            assert!(!adopted.contains("mayHaveRun"), "{adopted}");
        }
        assert!(!ran_nothing(None) && !ran_nothing(Some(&BTreeMap::new())));
    }

    #[test]
    fn the_labels_of_a_run_name_skill_revision_and_execution() {
        let job_execution = JobExecution {
            id: ExecutionId::new(Duration::from_secs(1_763_770_000), "r", 0, "c"),
            skill: Some(RunSkill {
                id: "team/pdf".parse().unwrap(),
                revision: None,
            }),
        };
        let names: Vec<String> = job_execution.labels().into_keys().collect();
        assert_eq!(names, [LABEL_EXECUTION, LABEL_SKILL, LABEL_SKILL_NAMESPACE]);
    }
}
