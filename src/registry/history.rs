//! The history of executions of a cluster: what gateways report of their runs, for the ServiceAccounts that they are.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use knack_registry::{FolderHistory, HistorySettings, REPORT_EXECUTIONS, Report};

use super::metrics::Metrics;
use crate::hub::auth::{Caller, Pace, Sources};

/// Reports of the gateways of one namespace: 2 a second, 120 of them in a row, 8 at once; each has 64 executions. A namespace that
/// fills the history faster than that pushes out what others have in it.
const REPORTS: Pace = Pace {
    at_once: 8,
    burst: 120,
    refill: Duration::from_millis(500),
};

/// How much is kept, and where.
#[derive(Debug, Clone)]
pub struct HistoryOptions {
    /// The folder; this process alone writes it.
    pub folder: std::path::PathBuf,
    /// Age of the oldest execution, days.
    pub days: u32,
    /// Bytes on the disk.
    pub most_bytes: u64,
}

/// The history of this registry.
#[derive(Debug)]
pub(super) struct ClusterHistory {
    pub(super) kept: Arc<FolderHistory>,
    reports: Arc<Sources>,
    /// One report is taken after the other: whose an id is must not change while it is looked up.
    taking: Mutex<()>,
}

impl ClusterHistory {
    /// Opens the folder, which is made if it is not there. Errors: the disk fails, or another process has it.
    pub(super) fn open(options: &HistoryOptions) -> anyhow::Result<Self> {
        let settings = HistorySettings::of_days(options.days).within(options.most_bytes);
        let folder: &Path = &options.folder;
        std::fs::create_dir_all(folder).with_context(|| format!("--history-dir {}", folder.display()))?;
        let opened = FolderHistory::open(folder, settings, |text| tracing::warn!("{text}"))
            .with_context(|| format!("--history-dir {}", folder.display()))?;
        if opened.broken > 0 {
            tracing::warn!(
                lines = opened.broken,
                "lines of the history cannot be read and are left out"
            );
        }
        Ok(Self {
            kept: Arc::new(opened.history),
            reports: Arc::new(Sources::new(REPORTS)),
            taking: Mutex::default(),
        })
    }

    /// Takes a report of a gateway, as the account that it proved to be.
    pub(super) fn take(&self, caller: &Caller, body: &[u8], metrics: &Metrics) -> (StatusCode, &'static str) {
        let Some(_turn) = self.reports.take(&caller.namespace, tokio::time::Instant::now()) else {
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "too many reports of this namespace; try again",
            );
        };
        let report: Report = match serde_json::from_slice(body) {
            Ok(report) => report,
            Err(error) => {
                tracing::info!(%error, caller = caller.name(), "a report of executions cannot be read");
                return (StatusCode::BAD_REQUEST, "it is no report of executions");
            }
        };
        if report.executions.len() > REPORT_EXECUTIONS {
            return (StatusCode::PAYLOAD_TOO_LARGE, "too many executions in one report");
        }
        let _one = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        for execution in report.executions {
            let is_taken = self.kept.take((&caller.namespace, &caller.service_account), execution);
            metrics.reported(is_taken);
        }
        (StatusCode::NO_CONTENT, "")
    }
}
