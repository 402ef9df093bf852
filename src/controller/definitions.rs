//! The definitions of Skill and SkillRuntime, without which the controller waits.

use knack_api::{Skill, SkillRuntime};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use tokio::time::sleep;
use tracing::warn;

use super::settings::{CRD_PAUSE, ControllerSettings};
use super::streams::scoped;
use crate::api_call::{CALL_TIMEOUT, within};

/// Waits until the API server serves both definitions, and logs once that it waits.
pub(super) async fn wait(client: &Client, settings: &ControllerSettings) {
    let mut logged = false;
    loop {
        let missing = match (
            served::<Skill>(client, settings).await,
            served::<SkillRuntime>(client, settings).await,
        ) {
            (Ok(true), Ok(true)) => return,
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            _ => "not installed; install the chart knack-crds, or kubectl apply --server-side -f crds/".to_owned(),
        };
        if !logged {
            warn!(%missing, "waiting for the definitions of Skill and SkillRuntime");
            logged = true;
        }
        sleep(CRD_PAUSE).await;
    }
}

/// Whether the API server serves a kind.
async fn served<K>(client: &Client, settings: &ControllerSettings) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let first = settings.namespaces().first().map(|name| (*name).to_owned());
    let api: Api<K> = scoped(client, first.as_ref());
    match within(CALL_TIMEOUT, api.list_metadata(&ListParams::default().limit(1))).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
