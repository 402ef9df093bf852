//! The links of `knack gateway` to the registry: Skills APIs, history, uploads and containers.

use std::sync::Arc;

use knack_serving::tasks::TaskEnded;

use super::args::ServeArgs;
use super::sidecar::or_ignored;
use crate::Gateway;
use crate::callers::caller::CallerSecret;
use crate::catalog::LiveCatalog;
use crate::files::user_files::{RemoteFiles, UserFiles};
use crate::http_server::budget::RequestMemory;
use crate::replicas::Replicas;
use crate::runs::execution_reporter::{ReportSender, Reports};
use crate::skills_api::registry_relay::Relay;

/// The gateway's links to the registry of its cluster.
pub(super) struct RegistryLinks {
    /// `--registry`.
    pub(super) relay: Option<Arc<Relay>>,
    /// `--history`.
    pub(super) reports: Option<Arc<Reports>>,
    reporting: Option<ReportSender>,
}

impl RegistryLinks {
    /// Opens the links that flags ask for.
    pub(super) fn open(
        args: &ServeArgs,
        catalog: &Arc<LiveCatalog>,
        secret: &Arc<CallerSecret>,
    ) -> anyhow::Result<Self> {
        let history = args.registry_client("--history", args.history.as_ref());
        let history = or_ignored("KNACK_HISTORY", history, || None)?;
        let (reports, reporting) = history.map(Reports::start).unzip();
        let registry = args.registry_client("--registry", args.registry.as_ref());
        let registry = or_ignored("KNACK_REGISTRY", registry, || None)?;
        let relay = registry.map(|registry| {
            let relay = Relay::new(registry, Arc::clone(catalog), Arc::clone(secret), reports.clone());
            Arc::new(relay)
        });
        Ok(Self {
            relay,
            reports,
            reporting,
        })
    }

    /// Gives the relay its gateway.
    pub(super) fn run_by(&self, gateway: &Arc<Gateway>) {
        if let Some(relay) = &self.relay {
            relay.run_by(gateway);
        }
    }

    /// Resolves when a task of theirs has failed.
    pub(super) async fn ended(&mut self) -> TaskEnded {
        match &mut self.reporting {
            Some(reporting) => reporting.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Sends the last reports.
    pub(super) async fn close(self) {
        if let Some(reporting) = self.reporting {
            reporting.close().await;
        }
    }
}

/// Uploads and containers that a registry keeps, if one is named for it.
pub(super) fn files_of_registry(
    args: &ServeArgs,
    replicas: Option<&Arc<Replicas>>,
    requests: &RequestMemory,
) -> anyhow::Result<Option<Arc<UserFiles>>> {
    let client = args.registry_client("--files-registry", args.files_registry.as_ref());
    let client = or_ignored("KNACK_FILES_REGISTRY", client, || None)?;
    let files = |client| RemoteFiles::new(client, replicas.cloned(), requests.process());
    Ok(client.map(|client| UserFiles::of(files(client))))
}
