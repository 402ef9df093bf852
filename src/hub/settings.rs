//! The settings of a hub.

use std::collections::BTreeSet;

use knack_execution::Language;
use knack_hub_api::RuntimeName;
use knack_telemetry::Tracer;

use crate::cluster_reader::watch::WatchSettings;

/// Settings of one hub process.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// Namespace of the release: Service, Secret and ConfigMap are there.
    pub namespace: String,
    /// Namespaces in which this hub may run code.
    pub runtime_namespaces: BTreeSet<String>,
    /// The cluster default.
    pub default_runtime: Option<RuntimeName>,
    /// Namespaces whose Skills and SkillRuntimes are watched; empty: all.
    pub watch_namespaces: BTreeSet<String>,
    /// Image of runtimes that name none.
    pub default_image: Option<String>,
    /// Interpreters of that image, most used first.
    pub default_languages: Vec<Language>,
    /// Image that brings the runner into sandboxes; they have it themselves when absent.
    pub runner_image: Option<String>,
    /// Whether images may go without a digest.
    pub allow_image_tags: bool,
    /// Whether environments of packages are built on this cluster.
    pub packages: bool,
    /// PriorityClass of the sandboxes' pods; the cluster's default when absent.
    pub priority_class: Option<String>,
    /// This replica, unique among replicas and over restarts.
    pub replica: String,
    /// `https://host:port` under which other replicas' callers reach this one.
    pub address: String,
    /// Where spans go.
    pub tracer: Tracer,
}

impl HubSettings {
    /// The objects that the hub watches.
    pub fn watching(&self) -> WatchSettings {
        WatchSettings {
            namespace: self.namespace.clone(),
            watch_namespaces: self.watch_namespaces.clone(),
            runtime_namespaces: self.runtime_namespaces.clone(),
            packages: self.packages,
            fences: true,
        }
    }

    /// Whether a runtime is the cluster default.
    pub fn is_cluster_default(&self, runtime: &RuntimeName) -> bool {
        self.default_runtime.as_ref() == Some(runtime)
    }
}
