//! Builder Jobs and their requests, in the namespace of builds.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use knack_packages::environment::Input;
use knack_packages::{EnvironmentKey, Request, State};
use knack_vocabulary::LABEL_ENVIRONMENT;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::decide::{Build, Refusal};
use super::job::{BuilderSettings, compressed, job, name, request};
use super::job_state::{has_begun, job_state, seconds};
use super::outcome::Outcome;
use super::wanted::NeededEnvironment;
use crate::api_call::{CallError, call};

/// Largest request, compressed: what a ConfigMap holds, with room for its metadata.
const REQUEST_MAX_BYTES: usize = 900 << 10;

/// Builder Jobs, by key.
#[derive(Default)]
pub(super) struct Builds {
    pub(super) by_key: BTreeMap<EnvironmentKey, Build>,
    /// How long those took that have ended.
    pub(super) seconds: BTreeMap<EnvironmentKey, f64>,
    /// The uids of those that have ended.
    pub(super) ended: BTreeMap<EnvironmentKey, String>,
    /// The uids of those that run and have not begun.
    pub(super) waiting: BTreeMap<EnvironmentKey, String>,
}

/// The namespace of builds.
pub(super) struct Builders {
    jobs: Api<Job>,
    pods: Api<Pod>,
    requests: Api<ConfigMap>,
    settings: BuilderSettings,
}

impl Builders {
    /// The builders of an installation.
    pub(super) fn new(client: &Client, settings: BuilderSettings) -> Self {
        Self {
            jobs: Api::namespaced(client.clone(), &settings.namespace),
            pods: Api::namespaced(client.clone(), &settings.namespace),
            requests: Api::namespaced(client.clone(), &settings.namespace),
            settings,
        }
    }

    /// The builds for which a Job exists, by key.
    pub(super) async fn found(&self) -> Result<Builds, CallError> {
        let of_builders = ListParams::default().labels(LABEL_ENVIRONMENT);
        let jobs = call(|| "list Jobs of builders".to_owned(), self.jobs.list(&of_builders)).await?;
        if jobs.items.is_empty() {
            return Ok(Builds::default());
        }
        let pods = call(|| "list pods of builders".to_owned(), self.pods.list(&of_builders)).await?;
        let repository = &self.settings.repository;
        let of_job = |job: &Job| {
            let uid = job.metadata.uid.as_deref();
            pods.items.iter().find(|pod| {
                let owners = pod.metadata.owner_references.iter().flatten();
                owners.into_iter().any(|owner| Some(owner.uid.as_str()) == uid)
            })
        };
        let jobs = jobs
            .items
            .iter()
            .filter(|job| job.metadata.deletion_timestamp.is_none());
        let mut known = Builds::default();
        for job in jobs {
            let Some(key) = job.labels().get(LABEL_ENVIRONMENT) else {
                continue;
            };
            let key = EnvironmentKey::from(key.as_str());
            if job.name_any() != name(&key) {
                continue;
            }
            let pod = of_job(job);
            let build = job_state(job, pod, repository);
            let uid = job.metadata.uid.clone().unwrap_or_default();
            match build {
                Build::Ended(_) => drop(known.ended.insert(key.clone(), uid)),
                Build::Running if !has_begun(pod) => drop(known.waiting.insert(key.clone(), uid)),
                Build::Running => {}
            }
            known.by_key.insert(key.clone(), build);
            if let Some(took) = pod.and_then(|pod| seconds(job, pod)) {
                known.seconds.insert(key, took);
            }
        }
        Ok(known)
    }

    /// Makes the Job of a key, and returns its uid. `None`: there is one.
    pub(super) async fn job(&self, key: &EnvironmentKey) -> Result<Option<String>, CallError> {
        let job = job(&self.settings, key);
        let what = || format!("create Job {}", name(key));
        match call(what, self.jobs.create(&PostParams::default(), &job)).await {
            Ok(made) => Ok(Some(made.metadata.uid.unwrap_or_default())),
            // Another replica was faster, or the last one is still going.
            Err(error) if error.code() == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the request of a Job. `false`: one of its name is there; it may be that of the last Job, which is deleted after it.
    pub(super) async fn request(&self, key: &EnvironmentKey, uid: &str, bytes: Vec<u8>) -> Result<bool, CallError> {
        let object = request(&self.settings, key, uid, bytes);
        let what = || format!("create ConfigMap {}", name(key));
        match call(what, self.requests.create(&PostParams::default(), &object)).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The request of a builder, compressed. Errors: it is too large.
    pub(super) fn packed(&self, input: Input, wanted: &NeededEnvironment) -> Result<Vec<u8>, &'static str> {
        let asked = Request {
            input,
            constraints: wanted.asked.constraints.clone(),
            exclude_newer: wanted.asked.exclude_newer.clone(),
            base: wanted.asked.base.clone(),
        };
        let bytes = compressed(&asked);
        // The same ConfigMap holds both.
        let beside = self.settings.authorities.as_ref().map_or(0, String::len);
        if bytes.len() + beside > REQUEST_MAX_BYTES {
            let text = "its lock exceeds the maximum size for a builder; lock fewer packages, or for fewer platforms";
            return Err(text);
        }
        Ok(bytes)
    }

    /// Removes the Job of a key that has this uid; its request goes with it. Another one of its name stays.
    pub(super) async fn remove(&self, key: &EnvironmentKey, uid: &str) -> Result<(), CallError> {
        let what = || format!("delete Job {}", name(key));
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        match call(what, self.jobs.delete(&name(key), &params)).await {
            Err(error) if !matches!(error.code(), Some(404 | 409)) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Why a Job was not created.
pub(super) fn refusal(error: &CallError) -> Refusal {
    let Some(status) = error.answer() else {
        return Refusal::Passing(format!("the builder Job waits for the API server: {error}"));
    };
    let message = &status.message;
    // The quota counts Jobs for a moment after they were deleted, and one that has just been made counts none yet. It names itself in
    // no other way.
    let of_quota = ["exceeded quota", "status unknown for quota"];
    let is_quota = status.code == 403 && of_quota.iter().any(|words| message.contains(words));
    let asks_again = status
        .details
        .as_ref()
        .is_some_and(|details| details.retry_after_seconds > 0);
    // 401: its token was replaced a moment ago.
    if is_quota || asks_again || status.reason == "ServerTimeout" || matches!(status.code, 401 | 429 | 503 | 504) {
        return Refusal::Passing(format!("the builder Job waits: {message}"));
    }
    let why = format!("the builder Job was refused: {message}");
    Refusal::Lasting(Outcome::failed(State::Failed, why))
}
