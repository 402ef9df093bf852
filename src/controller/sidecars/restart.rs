//! Restarts workloads whose pods have an older sidecar than this installation's, where namespaces ask for it.
//!
//! A pod keeps its sidecar as long as it lives. [`super::roll`] decides, [`super::workloads`] reads what it decides on.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::ObjectReference;
use knack_vocabulary::{ANNOTATION_ROLLED_FOR, FIELD_MANAGER_SIDECARS, LABEL_ROLL};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use super::count::ALIVE;
use super::lists::{PAGE, namespaces_enabled, next_page};
use super::roll::{Decision, Workload, decide};
use super::workloads::{PodInBrief, daemon_set, deployment, stale_image, stateful_set, workload_of};
use crate::controller::context::Context;
use crate::controller::error::ControllerError;
use crate::events::NOTE_MAX_CHARS;

/// How long a controller leads before it restarts anything: what injects must be of this release too. A policy is in force about
/// a second after `helm upgrade` has changed it; a webhook reads its parameters from a volume, which a kubelet may refresh two
/// minutes later, and one of the release before is gone when its pod is. A little less than three minutes, so that it is over at the
/// fourth check.
const SETTLE: Duration = Duration::from_secs(175);
/// How long a workload that could not be restarted is passed over if it does not change: what refuses it, such as a policy or
/// a webhook of the cluster, may have changed.
const REFUSED_FOR: Duration = Duration::from_hours(1);
/// The statuses of an object that is not as it was read: gone, or changed.
const CHANGED: [u16; 2] = [404, 409];
/// Restarts that one check begins in all namespaces together. There is a check every minute, so that an upgrade of
/// hundreds of namespaces pulls the sidecar's image and starts pods over many minutes and not at once.
const ROLLS_PER_CHECK: usize = 5;

/// The state of the restarts between two checks.
#[derive(Debug)]
pub(super) struct Restarts {
    /// The sidecar's image of this installation.
    image: String,
    begun: Instant,
    /// Workloads whose restart was refused, by uid: the version that was refused, and when.
    refused: HashMap<String, (String, Instant)>,
}

/// The counts of one check in one namespace.
#[derive(Debug, Default)]
struct NamespaceRestarts {
    /// Pods with an older sidecar.
    stale: usize,
    /// Restarts that were tried.
    tried: usize,
}

/// A workload with what its change needs.
struct WorkloadObject {
    reference: ObjectReference,
    version: String,
}

impl Restarts {
    /// With the image that the sidecars should have; from now on time counts.
    pub(super) fn new(image: String) -> Self {
        Self {
            image,
            begun: Instant::now(),
            refused: HashMap::new(),
        }
    }

    /// One check of all namespaces that ask.
    pub(super) async fn restart_outdated(&mut self, context: &Context) {
        if self.begun.elapsed() < SETTLE {
            return;
        }
        self.refused.retain(|_, (_, at)| at.elapsed() < REFUSED_FOR);
        let (mut stale, mut left) = (0, ROLLS_PER_CHECK);
        for namespace in namespaces_enabled(context, LABEL_ROLL) {
            let mut counts = NamespaceRestarts::default();
            if let Err(error) = self.namespace(context, &namespace, left, &mut counts).await {
                warn!(%error, namespace, "older sidecars cannot be replaced; retrying");
            }
            stale += counts.stale;
            left = left.saturating_sub(counts.tried);
        }
        context.metrics.stale_sidecars(stale);
    }

    /// Counts the pods with an older sidecar in one namespace, and restarts one workload of it. One whose restart is refused is
    /// passed over for the next one; `most` are tried.
    async fn namespace(
        &mut self,
        context: &Context,
        namespace: &str,
        most: usize,
        counts: &mut NamespaceRestarts,
    ) -> Result<(), ControllerError> {
        let mut stale: BTreeMap<Option<(&'static str, String)>, usize> = BTreeMap::new();
        let mut seen = None;
        each::<PodInBrief>(context, namespace, |pod| {
            if let Some(image) = stale_image(&pod, &self.image) {
                seen.get_or_insert_with(|| image.to_owned());
                *stale.entry(workload_of(&pod)).or_default() += 1;
            }
        })
        .await?;
        counts.stale = stale.values().sum();
        let Some(seen) = seen.filter(|_| most > 0) else {
            return Ok(());
        };
        let (mut workloads, found) = workloads(context, namespace, &stale).await?;
        let object = |one: &Workload| found.get(&(one.kind, one.name.clone()));
        for one in &mut workloads {
            one.refused = object(one).is_some_and(|object| self.is_refused(object));
        }
        while counts.tried < most {
            let one = match decide(&workloads, &self.image) {
                Decision::Nothing => return Ok(()),
                Decision::Wait(one) => {
                    info!(
                        namespace,
                        kind = one.kind,
                        name = one.name,
                        "waiting for a restart to end"
                    );
                    return Ok(());
                }
                Decision::Roll(one) => one.clone(),
            };
            counts.tried += 1;
            let Some(object) = object(&one) else { return Ok(()) };
            match self.roll(context, namespace, &one, object).await {
                Ok(()) => {
                    self.report(context, &one, object, &seen).await;
                    return Ok(());
                }
                // Without an answer another one would fare no better.
                Err(error) if error.status().is_none() => return Err(error),
                Err(error) => {
                    warn!(%error, namespace, kind = one.kind, name = one.name, "a workload with an older sidecar cannot be restarted");
                    self.refuse(context, object, &error).await;
                    let same = |other: &&mut Workload| (other.kind, &other.name) == (one.kind, &one.name);
                    if let Some(one) = workloads.iter_mut().find(same) {
                        one.refused = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the restart of a workload was refused as it is now.
    fn is_refused(&self, object: &WorkloadObject) -> bool {
        let uid = object.reference.uid.as_deref().unwrap_or_default();
        let refused = self.refused.get(uid);
        refused.is_some_and(|(version, _)| *version == object.version)
    }

    /// Remembers that a restart was refused, and writes an Event for the workload. A workload that was changed since is tried again.
    async fn refuse(&mut self, context: &Context, object: &WorkloadObject, error: &ControllerError) {
        // A transient error: the next check tries again.
        let passes = |status: u16| CHANGED.contains(&status) || status == 429 || status >= 500;
        if error.status().is_some_and(passes) {
            return;
        }
        let uid = object.reference.uid.clone().unwrap_or_default();
        self.refused.insert(uid, (object.version.clone(), Instant::now()));
        let note = format!(
            "its pods have another sidecar image than this installation's, and it cannot be restarted: {error}; restart it with \
             kubectl rollout restart"
        );
        publish(context, object, EventType::Warning, "SidecarNotRolled", &note).await;
    }

    /// Changes the pod template, if the workload is still as it was read.
    async fn roll(
        &self,
        context: &Context,
        namespace: &str,
        one: &Workload,
        found: &WorkloadObject,
    ) -> Result<(), ControllerError> {
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": found.version},
            "spec": {"template": {"metadata": {"annotations": {ANNOTATION_ROLLED_FOR: self.image}}}},
        }));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER_SIDECARS.to_owned()),
            ..PatchParams::default()
        };
        let what = || format!("restart {} {namespace}/{}", one.kind, one.name);
        let (client, name) = (context.client.clone(), one.name.as_str());
        match one.kind {
            "Deployment" => {
                let api = Api::<Deployment>::namespaced(client, namespace);
                context.call(what, api.patch_metadata(name, &params, &patch)).await?;
            }
            "StatefulSet" => {
                let api = Api::<StatefulSet>::namespaced(client, namespace);
                context.call(what, api.patch_metadata(name, &params, &patch)).await?;
            }
            _ => {
                let api = Api::<DaemonSet>::namespaced(client, namespace);
                context.call(what, api.patch_metadata(name, &params, &patch)).await?;
            }
        }
        context.metrics.wrote("Workload");
        Ok(())
    }

    async fn report(&self, context: &Context, one: &Workload, found: &WorkloadObject, seen: &str) {
        let note = format!(
            "restarts, since {} of its pods have another sidecar image than this installation's: {seen} instead of {}",
            one.stale, self.image
        );
        publish(context, found, EventType::Normal, "SidecarRolled", &note).await;
    }
}

/// Writes an Event on a workload.
async fn publish(context: &Context, object: &WorkloadObject, type_: EventType, reason: &str, note: &str) {
    let event = Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.chars().take(NOTE_MAX_CHARS).collect()),
        action: "Restart".to_owned(),
        secondary: None,
    };
    let what = || "write an Event about a restart".to_owned();
    let written = context
        .call(what, context.recorder.publish(&event, &object.reference))
        .await;
    if let Err(error) = written {
        warn!(%error, "an Event about a restart could not be written");
    }
}

/// The workloads of a namespace, with how many of their pods are stale.
async fn workloads(
    context: &Context,
    namespace: &str,
    stale: &BTreeMap<Option<(&'static str, String)>, usize>,
) -> Result<(Vec<Workload>, BTreeMap<(&'static str, String), WorkloadObject>), ControllerError> {
    let (mut all, mut found) = (Vec::new(), BTreeMap::new());
    let mut take = |one: Option<Workload>, reference: ObjectReference, version: Option<String>| {
        let (Some(mut one), Some(version)) = (one, version) else {
            return;
        };
        let key = (one.kind, one.name.clone());
        one.stale = stale.get(&Some(key.clone())).copied().unwrap_or(0);
        all.push(one);
        found.insert(key, WorkloadObject { reference, version });
    };
    each::<Deployment>(context, namespace, |one| {
        take(deployment(&one), one.object_ref(&()), one.resource_version());
    })
    .await?;
    each::<StatefulSet>(context, namespace, |one| {
        take(stateful_set(&one), one.object_ref(&()), one.resource_version());
    })
    .await?;
    each::<DaemonSet>(context, namespace, |one| {
        take(daemon_set(&one), one.object_ref(&()), one.resource_version());
    })
    .await?;
    Ok((all, found))
}

/// Goes through a list, page by page; pods that have ended are left out.
async fn each<K>(context: &Context, namespace: &str, mut take: impl FnMut(K)) -> Result<(), ControllerError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let mut params = ListParams::default().limit(PAGE);
    if K::kind(&()) == "Pod" {
        params = params.fields(ALIVE);
    }
    loop {
        let what = || format!("list {} of {namespace}", K::plural(&()));
        let page = next_page(context, what, &api, &mut params).await?;
        page.into_iter().for_each(&mut take);
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}
