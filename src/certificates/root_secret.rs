//! The root in its Secret: read, made, and made again.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_vocabulary::{KEY_HUB_CA, SECRET_ROOT};
use kube::Api;

use super::issue::issue_root;
use super::objects::{CertificateError, apply_secret, is_owned};
use super::root::Root;
use crate::api_call::call;

const KEY_ROOT: &str = "root.json";

/// The root in its Secret; a new one if there is none that signs. Only one task may do this at a time.
pub(super) async fn ensure_root(
    secrets: &Api<Secret>,
    owner: Option<&OwnerReference>,
    now: u64,
) -> Result<Root, CertificateError> {
    let existing = call(|| format!("get Secret {SECRET_ROOT}"), secrets.get_opt(SECRET_ROOT)).await?;
    let known = existing.as_ref().and_then(root_of).filter(|root| root.signs(now));
    let is_new = known.is_none();
    let root = known.map_or_else(|| issue_root(now), Ok)?;
    if is_new || !existing.as_ref().is_some_and(|secret| is_owned(secret, owner)) {
        let data = BTreeMap::from([
            (KEY_HUB_CA.to_owned(), ByteString(root.certificate.clone().into_bytes())),
            (KEY_ROOT.to_owned(), ByteString(serde_json::to_vec(&root)?)),
        ]);
        apply_secret(secrets, SECRET_ROOT, owner, None, data).await?;
    }
    if is_new {
        tracing::info!(secret = SECRET_ROOT, "certificates are now signed by a new root");
    }
    Ok(root)
}

/// The root in the Secret; `None` if it cannot be read: then a new one is created.
fn root_of(secret: &Secret) -> Option<Root> {
    serde_json::from_slice(&secret.data.as_ref()?.get(KEY_ROOT)?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_root_that_cannot_be_read_is_none() {
        let root = issue_root(DAY).unwrap();
        let secret = |text: &str| Secret {
            data: Some(BTreeMap::from([(
                "root.json".to_owned(),
                ByteString(text.as_bytes().to_vec()),
            )])),
            ..Secret::default()
        };
        assert_eq!(root_of(&secret(&serde_json::to_string(&root).unwrap())).unwrap(), root);
        assert_eq!(root_of(&secret("nonsense")), None);
        assert_eq!(root_of(&Secret::default()), None);
    }
}
