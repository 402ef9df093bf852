//! The root of a release: the authority that signs its certificates for ten years, in a Secret of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_vocabulary::{KEY_HUB_CA, SECRET_ROOT};
use kube::Api;
use serde::{Deserialize, Serialize};

use super::issue::issue_root;
use super::objects::{CertificateError, apply_secret, is_owned};
use crate::api_call::call;

/// Life of a root. What clients trust changes once in it: a pod, or a copy of the ConfigMap that somebody made by hand, outlives
/// every certificate.
pub(super) const ROOT_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);
/// A root with less time left than this is replaced: longer than any certificate that it signs lives.
const RENEWED_BEFORE: Duration = Duration::from_hours(365 * 24);

const KEY_ROOT: &str = "root.json";

/// An authority and its key. Times are seconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// PEM of its certificate.
    pub certificate: String,
    /// PEM of its key.
    pub key: String,
    /// Valid from.
    pub not_before: u64,
    /// Valid until.
    pub not_after: u64,
}

impl std::fmt::Debug for Root {
    /// The key is not shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Root")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Root {
    /// Whether certificates are signed by it at this time.
    fn signs(&self, now: u64) -> bool {
        self.not_before <= now && now + RENEWED_BEFORE.as_secs() < self.not_after
    }
}

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
        tracing::info!(secret = SECRET_ROOT, "a new root signs certificates");
    }
    Ok(root)
}

/// A root that cannot be read is none: another one is made.
fn root_of(secret: &Secret) -> Option<Root> {
    serde_json::from_slice(&secret.data.as_ref()?.get(KEY_ROOT)?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_root_signs_for_nine_years() {
        let root = issue_root(100 * DAY).unwrap();
        for (day, signs) in [
            (99, false),
            (100, true),
            (100 + 9 * 365 - 1, true),
            (100 + 9 * 365, false),
            (100 + 11 * 365, false),
        ] {
            assert_eq!(root.signs(day * DAY), signs, "day {day}");
        }
    }

    #[test]
    fn a_root_that_cannot_be_read_is_none_and_its_key_is_never_shown() {
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
        assert!(!format!("{root:?}").contains("PRIVATE"));
    }
}
