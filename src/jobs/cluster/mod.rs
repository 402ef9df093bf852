//! The cluster as one runtime sees it: its APIs, each call with a time limit.

pub(super) mod failure;
pub(super) mod journal;
pub(super) mod out_of_memory;
pub(super) mod pod_facts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use knack_execution::{ClusterFailureKind, ExecutionError};
use knack_vocabulary::FIELD_MANAGER_HUB;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::time::Instant;

use self::failure::{PodFailure, event, failure, refusal};
use self::pod_facts::Cause;
use super::settings::JobClients;
use crate::api_call::within;
use crate::events::Events;

/// Longest wait for one call: less than elsewhere, since a run waits for it, whose caller has a deadline.
const RUN_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Grace periods of a deleted pod: the second lets its log be read to the end. The pod's own grace period is for
/// deletions by others.
const DELETE_GRACE_SECONDS: u32 = 1;
/// Tries of the creation of a Job, which a run waits for, and of a call that decides which executions the next owner refuses: ending
/// a pod, deleting a Job (one that stays without its pod may have had a run), and what a takeover reads. Retried are a conflict, an
/// API server that is overloaded, stops, or waits for a leader of etcd, and a lost answer; of reads a refusal (403), too.
const TRIES: u32 = 4;
/// The pause after the first of them; it doubles.
const TRIES_PAUSE: Duration = Duration::from_millis(300);
/// All of them together: a caller that waits for the end of a run waits for this too. A pod that remains is deleted by
/// its Job's deadline.
const TRIES_TIMEOUT: Duration = Duration::from_secs(20);
/// How many Events of one Job are read: it has a handful.
const MAX_EVENTS: u32 = 20;

/// The APIs; see the module.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Jobs of the runtime's namespace.
    pub(super) jobs: Api<Job>,
    /// Pods of the same.
    pub(super) pods: Api<Pod>,
    /// Pods by the attach client.
    pub(super) attach: Api<Pod>,
    events: Api<Event>,
    /// Events that Knack writes.
    pub(super) warnings: Events,
    /// For everything else.
    pub(super) client: Client,
    /// Serializes the writing of notes on the Lease of the runtime: many Jobs may be deleted at one time.
    pub(super) lease_notes: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// The APIs of a namespace.
    pub(super) fn new(clients: &JobClients, namespace: &str) -> Self {
        Self {
            jobs: Api::namespaced(clients.api.clone(), namespace),
            pods: Api::namespaced(clients.api.clone(), namespace),
            attach: Api::namespaced(clients.attach.clone(), namespace),
            events: Api::namespaced(clients.api.clone(), namespace),
            warnings: clients.events.clone(),
            client: clients.api.clone(),
            lease_notes: Arc::default(),
        }
    }

    /// Creates a Job and returns its uid. Its name is unique, so a call that failed for a moment, or whose answer was lost, is
    /// repeated, and "already there" is success.
    pub(super) async fn create(&self, job: &Job) -> Result<String, ExecutionError> {
        let (mut tried, begun) = (1, Instant::now());
        loop {
            match call(self.jobs.create(&PostParams::default(), job)).await {
                Ok(made) => return Ok(made.metadata.uid.unwrap_or_default()),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let made = call(self.jobs.get_metadata(job.metadata.name.as_deref().unwrap_or_default())).await;
                    return match made {
                        Ok(made) => Ok(made.metadata.uid.unwrap_or_default()),
                        Err(error) => Err(api_failure(&error).error(false)),
                    };
                }
                Err(error) if tried >= TRIES || begun.elapsed() >= TRIES_TIMEOUT || !may_pass(&error) => {
                    return Err(api_failure(&error).error(false));
                }
                Err(_) => tokio::time::sleep(pause_after(tried)).await,
            }
            tried += 1;
        }
    }

    /// Deletes a Job and, in the background, its pod. One that is gone is fine; one that cannot be deleted now ends by
    /// its deadline.
    pub(super) async fn delete_job(&self, job: &str) {
        let parameters = DeleteParams::background();
        let deleted = until_deleted(|| call(self.jobs.delete(job, &parameters))).await;
        log_failure(deleted, "delete the Job", job);
    }

    /// Ends a pod and leaves its Job, as the record of the run.
    pub(super) async fn delete_pod(&self, pod: &str, uid: &str) {
        let parameters = DeleteParams {
            grace_period_seconds: Some(DELETE_GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = until_deleted(|| call(self.pods.delete(pod, &parameters))).await;
        log_failure(deleted, "delete the pod", pod);
    }

    /// Writes labels and annotations of a Job in one patch. Returns whether the Job is there, as far as the API server answers.
    pub(super) async fn annotate(
        &self,
        job: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) -> bool {
        let patch = serde_json::json!({"metadata": {"labels": labels, "annotations": annotations}});
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER_HUB.to_owned()),
            ..PatchParams::default()
        };
        let patched = call(self.jobs.patch_metadata(job, &parameters, &Patch::Merge(&patch))).await;
        let is_there = !matches!(&patched, Err(kube::Error::Api(status)) if status.is_not_found());
        log_failure(patched, "write the record of the Job", job);
        is_there
    }

    /// Why the Job failed, if it did.
    pub(super) async fn job_failed(&self, job: &str) -> Option<Cause> {
        let job = call(self.jobs.get(job)).await.ok()?;
        let conditions = job.status?.conditions?;
        let failed = conditions.into_iter().find(|condition| {
            matches!(condition.type_.as_str(), "Failed" | "FailureTarget") && condition.status == "True"
        })?;
        Some(Cause {
            reason: failed.reason.unwrap_or_default(),
            message: failed.message.unwrap_or_default(),
        })
    }

    /// Why a Job has no pod, if an Event says so.
    pub(super) async fn job_trouble(&self, job: &str) -> Option<PodFailure> {
        let parameters = ListParams::default()
            .fields(&format!("involvedObject.kind=Job,involvedObject.name={job}"))
            .limit(MAX_EVENTS);
        let events = call(self.events.list(&parameters)).await.ok()?;
        events.items.into_iter().rev().find_map(|found| {
            event(
                found.reason.as_deref().unwrap_or_default(),
                found.message.as_deref().unwrap_or_default(),
            )
        })
    }
}

/// Requests a deletion until it is accepted, within [`TRIES`] and [`TRIES_TIMEOUT`].
async fn until_deleted<T, F>(delete: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    retried(delete, may_pass).await
}

/// A read on which a takeover depends: a new owner that cannot read what ran refuses all executions that were asked for before.
pub(super) async fn read_with_retries<T, F>(mut read: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    // An upgrade that replaces the bindings of a role gives the rights back a moment later.
    let may_pass =
        |error: &kube::Error| may_pass(error) || matches!(error, kube::Error::Api(status) if status.is_forbidden());
    retried(|| call(read()), may_pass).await
}

async fn retried<T, F>(mut request: impl FnMut() -> F, may_pass: impl Fn(&kube::Error) -> bool) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let tries = async {
        let mut tried = 1;
        loop {
            match request().await {
                Err(error) if tried < TRIES && may_pass(&error) => {
                    tokio::time::sleep(pause_after(tried)).await;
                }
                answer => return answer,
            }
            tried += 1;
        }
    };
    within(TRIES_TIMEOUT, tries).await
}

/// The pause after so many tries.
fn pause_after(tried: u32) -> Duration {
    TRIES_PAUSE * 2_u32.pow(tried - 1)
}

/// Whether a call that failed in this way may succeed a moment later. The only precondition of a deletion is the uid:
/// where it does not hold, the pod is gone already.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => !status.message.to_ascii_lowercase().contains("precondition"),
            429 | 500..=599 => true,
            _ => false,
        },
        // A connection that broke, or no answer in time.
        _ => true,
    }
}

/// Bounds a call.
pub(super) fn call<T>(request: impl Future<Output = kube::Result<T>>) -> impl Future<Output = kube::Result<T>> {
    within(RUN_CALL_TIMEOUT, request)
}

/// The meaning of a failed call.
pub(super) fn api_failure(error: &kube::Error) -> PodFailure {
    match error {
        kube::Error::Api(status) => refusal(status.code, &status.reason, &status.message),
        other => {
            let ExecutionError::Cluster(found) = failure(
                ClusterFailureKind::ApiUnavailable,
                "NoAnswer",
                &other.to_string(),
                false,
            ) else {
                return refusal(500, "NoAnswer", "");
            };
            PodFailure {
                kind: found.kind,
                reason: found.reason,
                message: found.message,
                grace: Duration::ZERO,
            }
        }
    }
}

fn log_failure<T>(outcome: kube::Result<T>, what: &str, object: &str) {
    match outcome {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        Err(error) => tracing::warn!(%error, object, "could not {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::response::IntoResponse as _;
    use axum::routing::post;
    use axum::{Json, Router};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::fixture::failed;

    fn refused(code: u16, message: &str) -> kube::Error {
        let status: Status =
            serde_json::from_value(json!({"status": "Failure", "code": code, "message": message})).unwrap();
        kube::Error::Api(Box::new(status))
    }

    const OTHER_POD: &str = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated";

    #[test]
    fn a_deletion_that_may_still_succeed_differs_from_one_that_cannot() {
        for (code, message, expected) in [
            (404, "pods \"a\" not found", false),
            (409, OTHER_POD, false),
            (
                409,
                "Precondition failed: UID in precondition: a, UID in object meta: b",
                false,
            ),
            (
                409,
                "the object has been modified; please apply your changes to the latest version",
                true,
            ),
            (429, "too many requests", true),
            (500, "etcdserver: request timed out", true),
            (504, "timeout", true),
            (403, "pods is forbidden", false),
            (422, "denied by a policy", false),
        ] {
            assert_eq!(may_pass(&refused(code, message)), expected, "{code} {message}");
        }
        assert!(may_pass(&kube::Error::Service("connection closed".into())));
    }

    /// An API server that fails some creations with this code, and counts all.
    async fn failing(failures: u32, code: u16) -> (Cluster, Arc<AtomicU32>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&asked);
        let create = async move |Json(mut job): Json<serde_json::Value>| {
            if counted.fetch_add(1, Ordering::Relaxed) < failures {
                return failed(code, "InternalError", "etcdserver: leader changed");
            }
            job["metadata"]["uid"] = json!("u");
            Json(job).into_response()
        };
        let router = Router::new().route("/apis/batch/v1/namespaces/ns/jobs", post(create));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let clients = JobClients::new(kube::Config::new(url.parse().unwrap())).unwrap();
        (Cluster::new(&clients, "ns"), asked)
    }

    #[tokio::test]
    async fn a_job_is_made_though_the_api_server_fails_for_a_moment_and_what_is_refused_is_not_tried_again() {
        for (failures, code, expected_tries, is_ok) in [(2, 500, 3, true), (9, 500, TRIES, false), (9, 403, 1, false)] {
            let (cluster, asked) = failing(failures, code).await;
            let job = Job {
                metadata: ObjectMeta {
                    name: Some("j".to_owned()),
                    ..ObjectMeta::default()
                },
                ..Job::default()
            };
            let made = cluster.create(&job).await;
            assert_eq!(
                (asked.load(Ordering::Relaxed), made.is_ok()),
                (expected_tries, is_ok),
                "{failures} times {code}: {made:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_tried_again_within_bounds() {
        for (failures, code, expected_tries, is_ok) in [
            (0, 409, 1, true),
            (2, 409, 3, true),
            (3, 429, 4, true),
            (9, 500, 4, false),
            (9, 403, 1, false),
        ] {
            let mut tries = 0;
            let outcome = until_deleted(|| {
                tries += 1;
                let failed = tries <= failures;
                async move { if failed { Err(refused(code, "")) } else { Ok(()) } }
            })
            .await;
            assert_eq!(
                (tries, outcome.is_ok()),
                (expected_tries, is_ok),
                "{failures} times {code}"
            );
        }
        let begun = tokio::time::Instant::now();
        let silent = || call(std::future::pending::<kube::Result<()>>());
        assert!(until_deleted(silent).await.is_err());
        assert_eq!(begun.elapsed(), TRIES_TIMEOUT);
    }
}
