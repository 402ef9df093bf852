//! The Secrets of certificates, the metadata of their objects, and the errors of a round.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_vocabulary::FIELD_MANAGER;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};

use super::issue::IssueError;
use crate::api_call::{CallError, call};

/// Why a round failed; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A call to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The chart's object for the webhook is not there, so the API server cannot call it.
    #[error(
        "MutatingWebhookConfiguration {0} not found; install the chart with injection.delivery=Webhook, or start the controller without --webhook-listen"
    )]
    NoConfiguration(String),
    /// Keys could not be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The state could not be written down.
    #[error("state.json: {0}")]
    State(#[from] serde_json::Error),
}

/// Whether an object goes with the owner, if there is one.
pub(super) fn is_owned(object: &impl Resource, owner: Option<&OwnerReference>) -> bool {
    owner.is_none_or(|owner| object.owner_references().iter().any(|other| other.uid == owner.uid))
}

pub(super) fn metadata(name: &str, owner: Option<&OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Writes one of Knack's Secrets as a whole.
pub(super) async fn apply_secret(
    api: &Api<Secret>,
    name: &str,
    owner: Option<&OwnerReference>,
    type_: Option<String>,
    data: BTreeMap<String, ByteString>,
) -> Result<(), CertificateError> {
    let secret = Secret {
        metadata: metadata(name, owner),
        type_,
        data: Some(data),
        ..Secret::default()
    };
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&secret);
    call(|| format!("apply Secret {name}"), api.patch(name, &apply, &patch)).await?;
    Ok(())
}
