//! The state of a builder Job, by its status and that of its pod. Pure.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use knack_packages::State;

use super::decide::Build;
use super::outcome::Outcome;

/// The state of a Job. The message of a builder counts only if it names an image of the repository.
pub(super) fn job_state(job: &Job, pod: Option<&Pod>, repository: &str) -> Build {
    let condition = |kind: &str| {
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|found| found.type_ == kind && found.status == "True")
    };
    let terminated = pod.and_then(terminated);
    let message = terminated.and_then(|ended| Outcome::read(ended.message.as_deref()?, repository));
    if let Some(outcome) = message {
        return Build::Ended(outcome);
    }
    let status = pod.and_then(|pod| pod.status.as_ref());
    let is_evicted = status.is_some_and(|status| status.reason.as_deref() == Some("Evicted"));
    let failed = condition("Failed");
    let (state, why) = if terminated.is_some_and(|ended| ended.reason.as_deref() == Some("OOMKilled")) {
        (
            State::TooLarge,
            "the builder ran out of memory; declare fewer or smaller packages".to_owned(),
        )
    } else if is_evicted {
        let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
        let state = if is_own_fault(&message) {
            State::TooLarge
        } else {
            State::Failed
        };
        (state, format!("the builder was evicted: {message}"))
    } else if let Some(failed) = failed.filter(|failed| failed.reason.as_deref() == Some("DeadlineExceeded")) {
        let waits = waiting(pod).unwrap_or_else(|| failed.message.clone().unwrap_or_default());
        (State::TimedOut, format!("the builder did not finish in time: {waits}"))
    } else if failed.is_some() || condition("Complete").is_some() || terminated.is_some() {
        let message = terminated.map(|ended| format!("exit code {}", ended.exit_code));
        let message = message.unwrap_or_else(|| "its pod is gone".to_owned());
        (
            State::Failed,
            format!("the builder ended without a result ({message}); its log says more"),
        )
    } else {
        return Build::Running;
    };
    Build::Ended(Outcome::failed(state, why))
}

/// The duration of a build, from the start of its Job to the end of its container, in seconds.
pub(super) fn seconds(job: &Job, pod: &Pod) -> Option<f64> {
    let (start, end) = (
        job.status.as_ref()?.start_time.as_ref()?,
        terminated(pod)?.finished_at.as_ref()?,
    );
    let seconds = end.0.duration_since(start.0).as_secs_f64();
    (seconds >= 0.0).then_some(seconds)
}

/// Whether the builder has begun, for which it has its request.
pub(super) fn has_begun(pod: Option<&Pod>) -> bool {
    let begun = || {
        let statuses = pod?.status.as_ref()?.container_statuses.as_ref()?;
        let state = statuses.first()?.state.as_ref()?;
        Some(state.running.is_some() || state.terminated.is_some())
    };
    begun().unwrap_or_default()
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.first()?.state.as_ref()?.terminated.as_ref()
}

/// Whether a pod was evicted for its own limits, by the kubelet's words (`pkg/kubelet/eviction`). Its node may also want room for
/// others: the same build passes another time.
fn is_own_fault(message: &str) -> bool {
    [
        "exceeds the limit",
        "exceeds the total limit of containers",
        "exceeded its local ephemeral storage limit",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// Why a pod waits, such as for its image.
fn waiting(pod: Option<&Pod>) -> Option<String> {
    let statuses = pod?.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.first()?.state.as_ref()?.waiting.as_ref()?;
    Some(
        waiting
            .message
            .clone()
            .or_else(|| waiting.reason.clone())
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn the_word_of_the_builder_counts_and_else_that_of_the_cluster() {
        let ready = format!(
            "{{\"state\":\"Ready\",\"message\":\"m\",\"image\":\"r/e@sha256:{}\",\"home\":\"/opt/e\"}}",
            "a".repeat(64)
        );
        let elsewhere = ready.replace("r/e@", "evil/e@");
        let failed = |reason: &str| json!([{"type": "Failed", "status": "True", "reason": reason, "message": "said"}]);
        let done = json!([{"type": "Complete", "status": "True"}]);
        let ended = |code: i32, reason: &str, message: &str| json!({"containerStatuses": [{"name": "builder", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}]});
        let waits = json!({"containerStatuses": [{"name": "builder", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]});
        for (what, conditions, pod, expected) in [
            ("waits for a pod", json!([]), Value::Null, None),
            ("pulls", json!([]), waits.clone(), None),
            (
                "ready",
                done.clone(),
                ended(0, "Completed", &ready),
                Some((State::Ready, "m")),
            ),
            (
                "ready, the Job is behind",
                json!([]),
                ended(0, "Completed", &ready),
                Some((State::Ready, "m")),
            ),
            (
                "an image of others",
                done.clone(),
                ended(0, "Completed", &elsewhere),
                Some((State::Failed, "exit code 0")),
            ),
            (
                "refused",
                failed("BackoffLimitExceeded"),
                ended(1, "Error", "{\"state\":\"NoWheel\",\"message\":\"no\"}"),
                Some((State::NoWheel, "no")),
            ),
            (
                "died",
                failed("BackoffLimitExceeded"),
                ended(101, "Error", ""),
                Some((State::Failed, "exit code 101")),
            ),
            (
                "memory",
                failed("BackoffLimitExceeded"),
                ended(137, "OOMKilled", ""),
                Some((State::TooLarge, "ran out of memory")),
            ),
            (
                "volume",
                failed("BackoffLimitExceeded"),
                json!({"reason": "Evicted", "message": "Usage of EmptyDir volume \"store\" exceeds the limit \"5Gi\". "}),
                Some((State::TooLarge, "EmptyDir")),
            ),
            (
                "disk of the pod",
                failed("BackoffLimitExceeded"),
                json!({"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "}),
                Some((State::TooLarge, "total limit")),
            ),
            (
                "disk of the container",
                failed("BackoffLimitExceeded"),
                json!({"reason": "Evicted", "message": "Container builder exceeded its local ephemeral storage limit \"1Gi\". "}),
                Some((State::TooLarge, "its local")),
            ),
            (
                "disk of the node",
                failed("BackoffLimitExceeded"),
                json!({"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage. Threshold quantity: 1, available: 0. Container builder was using 2Gi, request is 0, has larger consumption of ephemeral-storage. "}),
                Some((State::Failed, "low on resource")),
            ),
            (
                "processes of the node",
                failed("BackoffLimitExceeded"),
                json!({"reason": "Evicted", "message": "The node had condition: [PIDPressure]. "}),
                Some((State::Failed, "PIDPressure")),
            ),
            (
                "never started",
                failed("DeadlineExceeded"),
                waits,
                Some((State::TimedOut, "no such image")),
            ),
            (
                "slow",
                failed("DeadlineExceeded"),
                Value::Null,
                Some((State::TimedOut, "said")),
            ),
            (
                "pod deleted",
                failed("BackoffLimitExceeded"),
                Value::Null,
                Some((State::Failed, "its pod is gone")),
            ),
        ] {
            let job: Job =
                serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap();
            let pod: Option<Pod> =
                (!pod.is_null()).then(|| serde_json::from_value(json!({"metadata": {}, "status": pod})).unwrap());
            match (job_state(&job, pod.as_ref(), "r/e"), expected) {
                (Build::Running, None) => {}
                (Build::Ended(outcome), Some((state, part))) => {
                    assert_eq!(outcome.state, state, "{what}");
                    assert!(outcome.message.contains(part), "{what}: {}", outcome.message);
                }
                (found, expected) => panic!("{what}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_builder_that_waits_for_its_image_or_its_request_has_not_begun() {
        let status = |state: Value| json!({"containerStatuses": [{"name": "builder", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]});
        for (what, status, expected) in [
            ("no status", json!({}), false),
            (
                "waits",
                status(json!({"waiting": {"reason": "ContainerCreating"}})),
                false,
            ),
            ("runs", status(json!({"running": {}})), true),
            ("ended", status(json!({"terminated": {"exitCode": 1}})), true),
        ] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
            assert_eq!(has_begun(Some(&pod)), expected, "{what}");
        }
        assert!(!has_begun(None));
    }
}
