//! The authorities that clients trust: where they are published, and how they are read back.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_vocabulary::{
    CONFIG_MAP_HUB_CA, CONFIG_MAP_REGISTRY_CA, FIELD_MANAGER, KEY_HUB_CA, SECRET_HUB_TLS, SECRET_REGISTRY_TLS,
    SECRET_WEBHOOK_TLS, SERVICE_HUB, SERVICE_REGISTRY, SERVICE_WEBHOOK,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::objects::{CertificateError, is_owned, metadata};
use crate::api_call::call;

/// The user of a certificate: it decides its Secret, its names, and where its authorities are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    /// The hub's: ConfigMap `knack-hub-ca` of the release namespace.
    Hub,
    /// The registry's: ConfigMap `knack-registry-ca` of the release namespace.
    Registry,
    /// The webhook's: `caBundle` of every entry of this MutatingWebhookConfiguration, which is the chart's.
    Webhook(String),
}

/// Where authorities are published.
enum Target<'a> {
    /// The ConfigMap of this name in the release namespace.
    ConfigMap(&'static str),
    /// The MutatingWebhookConfiguration of this name.
    Configuration(&'a str),
}

impl Publication {
    /// The Secret with certificate and key.
    pub(crate) fn secret(&self) -> &'static str {
        match self {
            Self::Hub => SECRET_HUB_TLS,
            Self::Registry => SECRET_REGISTRY_TLS,
            Self::Webhook(_) => SECRET_WEBHOOK_TLS,
        }
    }

    /// The Service in front of it.
    pub(super) fn service(&self) -> &'static str {
        match self {
            Self::Hub => SERVICE_HUB,
            Self::Registry => SERVICE_REGISTRY,
            Self::Webhook(_) => SERVICE_WEBHOOK,
        }
    }

    fn target(&self) -> Target<'_> {
        match self {
            Self::Hub => Target::ConfigMap(CONFIG_MAP_HUB_CA),
            Self::Registry => Target::ConfigMap(CONFIG_MAP_REGISTRY_CA),
            Self::Webhook(name) => Target::Configuration(name),
        }
    }

    /// The published authorities; `None` if there are none, or not everywhere, or not with their owner.
    pub(super) async fn published(
        &self,
        client: &Client,
        namespace: &str,
        owner: Option<&OwnerReference>,
    ) -> Result<Option<String>, CertificateError> {
        match self.target() {
            Target::ConfigMap(name) => {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let map = call(|| format!("get ConfigMap {namespace}/{name}"), api.get_opt(name)).await?;
                // A ConfigMap that an earlier version made has no owner yet.
                let map = map.filter(|map| is_owned(map, owner));
                Ok(map.and_then(|map| map.data?.remove(KEY_HUB_CA)))
            }
            Target::Configuration(name) => Ok(trusted(&configuration(client, name).await?)),
        }
    }

    /// Publishes.
    pub(super) async fn publish(
        &self,
        client: &Client,
        namespace: &str,
        owner: Option<&OwnerReference>,
        authorities: &str,
    ) -> Result<(), CertificateError> {
        match self.target() {
            Target::ConfigMap(name) => {
                let map = ConfigMap {
                    metadata: metadata(name, owner),
                    data: Some(BTreeMap::from([(KEY_HUB_CA.to_owned(), authorities.to_owned())])),
                    ..ConfigMap::default()
                };
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let apply = PatchParams::apply(FIELD_MANAGER).force();
                let patch = Patch::Apply(&map);
                let patched = api.patch(name, &apply, &patch);
                call(|| format!("apply ConfigMap {namespace}/{name}"), patched).await?;
            }
            Target::Configuration(name) => {
                let patch = Patch::Strategic(bundles(&configuration(client, name).await?, authorities));
                let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
                let params = PatchParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                call(
                    || format!("patch MutatingWebhookConfiguration {name}"),
                    api.patch(name, &params, &patch),
                )
                .await?;
            }
        }
        Ok(())
    }
}

async fn configuration(client: &Client, name: &str) -> Result<MutatingWebhookConfiguration, CertificateError> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = call(|| format!("get MutatingWebhookConfiguration {name}"), api.get_opt(name)).await?;
    found.ok_or_else(|| CertificateError::NoConfiguration(name.to_owned()))
}

/// The authorities of all entries; `None` if they differ or are absent.
fn trusted(configuration: &MutatingWebhookConfiguration) -> Option<String> {
    let mut bundles = configuration
        .webhooks
        .iter()
        .flatten()
        .map(|webhook| webhook.client_config.ca_bundle.as_ref());
    let first = bundles.next()??;
    let same = bundles.all(|bundle| bundle == Some(first));
    same.then(|| String::from_utf8_lossy(&first.0).into_owned())
}

/// A strategic merge, which finds entries by name and changes nothing else of them.
fn bundles(configuration: &MutatingWebhookConfiguration, authorities: &str) -> serde_json::Value {
    let bundle = ByteString(authorities.as_bytes().to_vec());
    let entries = configuration.webhooks.iter().flatten();
    let entries: Vec<_> = entries
        .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
        .collect();
    json!({"webhooks": entries, "metadata": {"name": configuration.name_any()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(bundles: &[Option<&str>]) -> MutatingWebhookConfiguration {
        let entries: Vec<_> = bundles
            .iter()
            .enumerate()
            .map(|(number, bundle)| {
                json!({
                    "name": format!("{number}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "clientConfig": {"caBundle": bundle.map(|text| ByteString(text.as_bytes().to_vec()))},
                })
            })
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "knack-injection"}, "webhooks": entries})).unwrap()
    }

    #[test]
    fn what_is_trusted_is_what_every_entry_trusts() {
        for (bundles, expected) in [
            (&[][..], None),
            (&[None, None], None),
            (&[Some("a"), None], None),
            (&[None, Some("a")], None),
            (&[Some("a"), Some("b")], None),
            (&[Some("a"), Some("a")], Some("a")),
        ] {
            assert_eq!(trusted(&configuration(bundles)).as_deref(), expected, "{bundles:?}");
        }
    }

    #[test]
    fn the_patch_names_every_entry_and_nothing_but_its_bundle() {
        let patch = bundles(&configuration(&[None, Some("a")]), "b");
        let entry = |name| json!({"name": name, "clientConfig": {"caBundle": "Yg=="}});
        assert_eq!(
            patch["webhooks"],
            json!([entry("0.example.org"), entry("1.example.org")])
        );
    }
}
