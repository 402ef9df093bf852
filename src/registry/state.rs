//! What every request to the registry shares, and its settings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use knack_memory::MemoryBudget;
use knack_registry::{Catalogs, History as _, Reader};
use knack_serving::probes::Probes;
use knack_serving::sources::Sources;

use super::caller_store::Shared;
use super::catalogs::ClusterCatalogs;
use super::files::{ClusterFiles, FilesOptions};
use super::history::{ClusterHistory, HistoryOptions};
use super::metrics::Metrics;
use crate::account_auth::Authenticator;
use crate::installer_index::Site;
use crate::request_bodies::Bodies;

/// Settings of a registry process.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// Namespaces whose Skills are served; empty: all.
    pub watch_namespaces: BTreeSet<String>,
    /// The history of executions, if one is kept.
    pub history: Option<HistoryOptions>,
    /// The files of gateways' clients, if they are kept.
    pub files: Option<FilesOptions>,
    /// The catalogs to install from, if one is named.
    pub catalogs: Option<Catalogs>,
}

impl RegistrySettings {
    pub(super) fn scopes(&self) -> Vec<Option<String>> {
        if self.watch_namespaces.is_empty() {
            return vec![None];
        }
        self.watch_namespaces.iter().cloned().map(Some).collect()
    }

    pub(super) fn serves(&self, namespace: &str) -> bool {
        self.watch_namespaces.is_empty() || self.watch_namespaces.contains(namespace)
    }
}

/// What every request shares.
#[derive(Debug)]
pub(super) struct RegistryState {
    pub(super) reader: Arc<Reader>,
    pub(super) shared: Arc<Shared>,
    pub(super) callers: Authenticator,
    pub(super) bodies: Bodies,
    pub(super) changes: Arc<Sources>,
    pub(super) reads: Arc<Sources>,
    pub(super) memory: MemoryBudget,
    pub(super) metrics: Metrics,
    pub(super) history: Option<ClusterHistory>,
    pub(super) files: Option<ClusterFiles>,
    pub(super) catalogs: Option<ClusterCatalogs>,
    pub(super) site: Site,
    pub(super) settings: RegistrySettings,
    pub(super) lists: usize,
    pub(super) draining: AtomicBool,
}

impl Probes for RegistryState {
    fn ready(&self) -> Result<String, String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".to_owned());
        }
        let complete = self.shared.cluster.read(super::index::SkillIndex::complete);
        if complete < self.lists {
            return Err("waiting for the first list of Skill".to_owned());
        }
        Ok(String::new())
    }

    fn metrics(&self) -> String {
        if let Some(history) = &self.history {
            self.metrics.dropped(history.kept.dropped());
        }
        if let Some(files) = &self.files {
            self.metrics.files(files.usage());
        }
        self.metrics.memory(self.memory.held_bytes(), self.memory.total_bytes());
        self.metrics.text()
    }
}
