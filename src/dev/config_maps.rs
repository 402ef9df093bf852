//! ConfigMaps beside Skills in a manifest file.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::skill::ConfigMapSource;
use knack_vocabulary::DEFAULT_NAMESPACE;
use kube::ResourceExt as _;

use crate::sources::{Files, config_map_files};

/// The ConfigMaps of one file, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct ConfigMaps<'m>(BTreeMap<(String, String), &'m ConfigMap>);

impl<'m> ConfigMaps<'m> {
    pub(super) fn of(maps: impl Iterator<Item = &'m ConfigMap>) -> Self {
        let key = |map: &ConfigMap| {
            let namespace = map.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
            (namespace, map.name_any())
        };
        Self(maps.map(|map| (key(map), map)).collect())
    }

    /// The files that a source takes; the error names the field.
    pub(super) fn files(&self, namespace: &str, source: &ConfigMapSource) -> Result<Files, String> {
        let map = self.0.get(&(namespace.to_owned(), source.name.clone())).ok_or_else(|| {
            format!(
                "spec.source.configMap: there is no ConfigMap {namespace}/{} in this file; in a cluster it may be elsewhere, \
                 here it must be in the same file",
                source.name
            )
        })?;
        config_map_files(source, map).map_err(|error| error.message)
    }
}
