//! The hub's authorities as a ClusterTrustBundle: pods of every namespace mount it, and no namespace needs a copy.

use knack_vocabulary::{FIELD_MANAGER, LABEL_MANAGED_BY, MANAGED_BY};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::settings::AUTHORITIES_CHECK_INTERVAL;
use crate::api_call::{CallError, call};

const GROUP: &str = "certificates.k8s.io";
const KIND: &str = "ClusterTrustBundle";
/// The versions that may serve the kind: v1 since Kubernetes 1.37, v1beta1 since 1.33 where the cluster switches it on.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What was found or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BundleOutcome {
    /// It has the authorities.
    Right,
    Written,
    /// One of this name has another owner.
    Foreign,
    /// The API server does not serve the kind.
    Unserved,
}

/// Publishes the authorities as a ClusterTrustBundle.
pub(super) struct TrustBundle {
    client: Client,
    name: String,
    /// The authorities at the last check, and when that was.
    checked: Option<(String, Instant)>,
    /// What it found then, so that a fault is logged once.
    last: Option<BundleOutcome>,
}

/// Decides by the object that is there; `None`: it is to be written.
fn judge(present: &DynamicObject, authorities: &str) -> Option<BundleOutcome> {
    if present.labels().get(LABEL_MANAGED_BY).map(String::as_str) != Some(MANAGED_BY) {
        return Some(BundleOutcome::Foreign);
    }
    let text = present.data.pointer("/spec/trustBundle").and_then(Value::as_str);
    (text == Some(authorities)).then_some(BundleOutcome::Right)
}

/// The object without a signer: one of a signer would need the right to attest for it.
fn desired(version: &str, name: &str, authorities: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": KIND,
        "metadata": {"name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
        "spec": {"trustBundle": authorities},
    })
}

impl TrustBundle {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self {
            client,
            name,
            checked: None,
            last: None,
        }
    }

    /// Checks, unless it did within [`AUTHORITIES_CHECK_INTERVAL`] and the authorities are the same, and writes what
    /// differs.
    pub(super) async fn share(&mut self, authorities: &str, now: Instant) -> Result<(), CallError> {
        let recent = |(known, at): &(String, Instant)| known == authorities && now < *at + AUTHORITIES_CHECK_INTERVAL;
        if self.checked.as_ref().is_some_and(recent) {
            return Ok(());
        }
        let found = self.ensure(authorities).await?;
        self.report(found);
        self.last = Some(found);
        self.checked = Some((authorities.to_owned(), now));
        Ok(())
    }

    async fn ensure(&self, authorities: &str) -> Result<BundleOutcome, CallError> {
        for version in VERSIONS {
            let present = call(
                || format!("get {KIND} {}", self.name),
                self.api(version).get_opt(&self.name),
            )
            .await?;
            if let Some(found) = present.as_ref().and_then(|present| judge(present, authorities)) {
                return Ok(found);
            }
            // If the API server does not serve this version, the write fails, and the next version is tried.
            match self.apply(version, authorities).await {
                Ok(()) => return Ok(BundleOutcome::Written),
                Err(error) if error.code() == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BundleOutcome::Unserved)
    }

    async fn apply(&self, version: &str, authorities: &str) -> Result<(), CallError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(desired(version, &self.name, authorities));
        let written = self.api(version);
        call(
            || format!("apply {KIND} {}", self.name),
            written.patch(&self.name, &params, &patch),
        )
        .await
        .map(drop)
    }

    fn api(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(GROUP, version, KIND);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    fn report(&self, found: BundleOutcome) {
        let name = &self.name;
        match found {
            BundleOutcome::Written => info!(%name, "the hub's authorities are shared with the sidecars by a {KIND}"),
            _ if self.last == Some(found) => {}
            BundleOutcome::Right => {}
            BundleOutcome::Foreign => warn!(
                %name,
                "this {KIND} has another owner, so sidecars may not trust the hub; delete it, or label it {LABEL_MANAGED_BY}={MANAGED_BY}"
            ),
            BundleOutcome::Unserved => warn!(
                %name,
                "the API server serves no {KIND}, so new pods cannot have the sidecar; set injection.authorities to ConfigMap"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_another_owner_is_left_alone() {
        let object = |manager: Option<&str>, text: Option<&str>| {
            let mut object = json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": KIND,
                "metadata": {"name": "b", "labels": {}}, "spec": {},
            });
            if let Some(manager) = manager {
                object["metadata"]["labels"][LABEL_MANAGED_BY] = json!(manager);
            }
            if let Some(text) = text {
                object["spec"]["trustBundle"] = json!(text);
            }
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        for (present, expected) in [
            (object(Some("knack"), Some("a")), Some(BundleOutcome::Right)),
            (object(Some("knack"), Some("b")), None),
            (object(Some("knack"), None), None),
            (object(Some("Helm"), Some("a")), Some(BundleOutcome::Foreign)),
            (object(None, Some("b")), Some(BundleOutcome::Foreign)),
        ] {
            assert_eq!(judge(&present, "a"), expected, "{present:?}");
        }
        let own: DynamicObject = serde_json::from_value(desired("v1", "b", "a")).unwrap();
        assert_eq!(judge(&own, "a"), Some(BundleOutcome::Right));
    }
}
