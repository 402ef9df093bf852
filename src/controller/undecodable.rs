//! Objects that do not fit their type: stored before their definition was what it is.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::Action;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::conditions::{State, Verdict, conditions};
use super::context::Context;
use super::error::ControllerError;
use super::reason::Reason;
use crate::api::vocabulary::{API_VERSION, FIELD_MANAGER};

/// Says in the status of an object that it cannot be read, and why.
pub(super) async fn tell<K>(
    context: &Context,
    kind: &'static str,
    invalid: &InvalidObject,
) -> Result<(&'static str, Action), ControllerError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let meta = &invalid.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let verdict = Verdict::new(
        State::Stalled,
        Reason::InvalidObject,
        format!(
            "the object does not fit its definition: {}; write it anew",
            invalid.error
        ),
    );
    // The time of its making, so that the same trouble makes the same status.
    let time = meta
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let generation = meta.generation.unwrap_or_default();
    let body = json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": {"name": name, "namespace": meta.namespace, "uid": meta.uid},
        "status": {"observedGeneration": generation, "conditions": conditions(&[], generation, &verdict, None, time)},
    });
    let api: Api<K> = Api::namespaced(context.client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let written = context
        .call(|| format!("status of {kind} {name}"), async {
            // The answer does not fit the type either.
            match api.patch_status(&name, &params, &patch).await {
                Err(kube::Error::SerdeError(_)) => Ok(()),
                other => other.map(|_| ()),
            }
        })
        .await;
    match written {
        Err(error) if !matches!(error.status(), Some(404 | 409 | 422)) => Err(error),
        _ => Ok(("invalid", Action::await_change())),
    }
}
