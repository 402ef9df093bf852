//! The cluster as one runtime sees it: its APIs, each call with a time limit.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::facts::Cause;
use super::failure::{Trouble, event, failure, refusal};
use super::settings::JobClients;
use crate::api::vocabulary::FIELD_MANAGER_HUB;
use crate::events::Events;
use crate::execution::{ClusterFailureKind, ExecutionError};

/// Longest wait for one call. The client itself repeats refused ones (429, 503, 504) for minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Tries of a create whose answer was lost: an API server that restarts drops the connections of a moment.
const CREATE_TRIES: u32 = 3;
/// Between two of them.
const CREATE_PAUSE: Duration = Duration::from_millis(300);
/// What a pod that we end gets: the second lets its log be read to the end. Its own is for those whom others end.
const DELETE_GRACE_SECONDS: u32 = 1;
/// How many Events of one Job are looked at: it has a handful.
const MAX_EVENTS: u32 = 20;

/// The APIs; see the module.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Jobs of the runtime's namespace.
    pub(super) jobs: Api<Job>,
    /// Pods of the same.
    pub(super) pods: Api<Pod>,
    /// The same by the attach client.
    pub(super) attach: Api<Pod>,
    events: Api<Event>,
    /// Events of our own.
    pub(super) warnings: Events,
    /// For everything else.
    pub(super) client: Client,
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
        }
    }

    /// Creates a Job and returns its uid. Its name is unique, so a call whose answer was lost is repeated, and "already there"
    /// is success.
    pub(super) async fn create(&self, job: &Job) -> Result<String, ExecutionError> {
        let mut tried = 1;
        loop {
            match call(self.jobs.create(&PostParams::default(), job)).await {
                Ok(made) => return Ok(made.metadata.uid.unwrap_or_default()),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let made = call(self.jobs.get_metadata(job.metadata.name.as_deref().unwrap_or_default())).await;
                    return match made {
                        Ok(made) => Ok(made.metadata.uid.unwrap_or_default()),
                        Err(error) => Err(trouble_of(&error).error(false)),
                    };
                }
                Err(kube::Error::Api(status)) => return Err(trouble_of(&kube::Error::Api(status)).error(false)),
                Err(error) if tried >= CREATE_TRIES => return Err(trouble_of(&error).error(false)),
                Err(_) => {
                    tried += 1;
                    tokio::time::sleep(CREATE_PAUSE).await;
                }
            }
        }
    }

    /// Deletes a Job and, in the background, its pod. One that is gone is fine; one that cannot be deleted now goes with
    /// its deadline.
    pub(super) async fn delete_job(&self, job: &str) {
        let deleted = call(self.jobs.delete(job, &DeleteParams::background())).await;
        tell(deleted, "delete the Job", job);
    }

    /// Ends a pod and leaves its Job, as the record of what happened.
    pub(super) async fn delete_pod(&self, pod: &str, uid: &str) {
        let parameters = DeleteParams {
            grace_period_seconds: Some(DELETE_GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = call(self.pods.delete(pod, &parameters)).await;
        tell(deleted, "delete the pod", pod);
    }

    /// Writes labels and annotations of a Job in one patch.
    pub(super) async fn annotate(
        &self,
        job: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) {
        let patch = serde_json::json!({"metadata": {"labels": labels, "annotations": annotations}});
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER_HUB.to_owned()),
            ..PatchParams::default()
        };
        let patched = call(self.jobs.patch_metadata(job, &parameters, &Patch::Merge(&patch))).await;
        tell(patched, "write the record of the Job", job);
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

    /// Why a Job has no pod, if an Event tells.
    pub(super) async fn job_trouble(&self, job: &str) -> Option<Trouble> {
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

/// Bounds a call.
pub(super) async fn call<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(CALL_TIMEOUT, request)
        .await
        .unwrap_or_else(|_| Err(kube::Error::Service("no answer within 10 s".into())))
}

/// What a failed call means.
pub(super) fn trouble_of(error: &kube::Error) -> Trouble {
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
            Trouble {
                kind: found.kind,
                reason: found.reason,
                message: found.message,
                patience: Duration::ZERO,
            }
        }
    }
}

fn tell<T>(outcome: kube::Result<T>, what: &str, object: &str) {
    match outcome {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        Err(error) => tracing::warn!(%error, object, "could not {what}"),
    }
}
