//! Which namespaces ask, and lists page by page.

use std::collections::BTreeSet;
use std::fmt::Debug;

use knack_vocabulary::ENABLED;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::count::is_reached;
use crate::controller::context::Context;
use crate::controller::error::ControllerError;

/// Pods, or workloads, in one answer of the API server: they come whole, at about 10 KiB each, but a user can make them of 1.5 MiB, which
/// are up to 8 MiB in JSON.
pub(super) const PAGE: u32 = 10;

/// The namespaces that say `enabled` by a label, of those that this controller manages and sidecars reach.
pub(super) fn namespaces_enabled(context: &Context, label: &str) -> BTreeSet<String> {
    let own = context.settings.namespace.as_str();
    let all = context.cluster_state.namespaces.state();
    let enabled = all
        .iter()
        .filter(|one| one.labels().get(label).map(String::as_str) == Some(ENABLED));
    let names = enabled.map(|one| one.name_any());
    names
        .filter(|name| context.settings.manages(name) && is_reached(name, own))
        .collect()
}

/// The next objects of a list; `params` has a `continue_token` where more follow.
///
/// Errors: the API server could not be asked; `what` says for what.
pub(super) async fn next_page<K: Clone + DeserializeOwned + Debug>(
    context: &Context,
    what: impl FnOnce() -> String,
    api: &Api<K>,
    params: &mut ListParams,
) -> Result<Vec<K>, ControllerError> {
    let page = context.call(what, api.list(params)).await?;
    params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
    Ok(page.items)
}
