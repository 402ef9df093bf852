//! The history of executions of a cluster: what gateways report of their runs, for the ServiceAccounts that they are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::StatusCode;
use knack_registry::{ClaimFailure, Execution, FolderHistory, HistorySettings, REPORT_EXECUTIONS, Report};
use knack_serving::sources::{Pace, Sources};
use knack_skill::digest::sha256;

use super::metrics::Metrics;
use super::shares::Shares;
use crate::account_auth::ServiceAccountCaller;

/// Reports of the gateways of one namespace: 2 a second, 120 of them in a row, 8 at once; each has 64 executions. A namespace that
/// fills the history pushes out its own oldest executions.
const REPORTS: Pace = Pace {
    at_once: 8,
    burst: 120,
    refill: Duration::from_millis(500),
};

/// Claims of runs by the gateways of one namespace: the same, so that reports do not keep them waiting, and three quarters of that for
/// one client. Each is one run, and one more for every 25 s that it takes.
const CLAIMS: Pace = REPORTS;

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
    claims: Shares,
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
            claims: Shares::of(CLAIMS),
        })
    }

    /// Takes a report of a gateway, as the account that it proved to be. It is answered once it is written, since a gateway forgets
    /// then what it reported. What the disk refuses or is too slow for is asked for again: a gateway sends one report after the
    /// other, so that it cannot come after what was reported later.
    pub(super) async fn take(
        &self,
        caller: &ServiceAccountCaller,
        body: &[u8],
        metrics: &Metrics,
    ) -> (StatusCode, &'static str) {
        let Some(_permit) = self.reports.take(&caller.namespace, tokio::time::Instant::now()) else {
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "too many reports of this namespace; try again",
            );
        };
        let report: Report = match serde_json::from_slice(body) {
            Ok(report) => report,
            Err(error) => {
                tracing::info!(%error, caller = caller.name(), "a report of executions cannot be read");
                return (
                    StatusCode::BAD_REQUEST,
                    "the request body is not a valid execution report",
                );
            }
        };
        if report.executions.len() > REPORT_EXECUTIONS {
            return (StatusCode::PAYLOAD_TOO_LARGE, "too many executions in one report");
        }
        let mut taken = Vec::new();
        for execution in report.executions {
            let id = execution.id.clone();
            let is_taken = self.kept.take((&caller.namespace, &caller.service_account), execution);
            metrics.reported(is_taken);
            taken.extend(is_taken.then_some(id));
        }
        if !self.kept.flush().await || taken.iter().any(|id| self.kept.is_refused(id)) {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "the report could not be written to disk; retry later",
            );
        }
        (StatusCode::NO_CONTENT, "")
    }

    /// Answers a gateway that is about to run something, as the account that it proved to be.
    pub(super) async fn claim(&self, caller: &ServiceAccountCaller, body: &[u8]) -> (StatusCode, Bytes) {
        let asked: Execution = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => {
                let text = format!("the body of a claim is not an execution: {error}");
                return (StatusCode::BAD_REQUEST, text.into());
            }
        };
        let Some(_permit) = self.claims.take(caller, &sha256(&*asked.caller.text())) else {
            let text = "too many claims of this client, or of this namespace; try again";
            return (StatusCode::TOO_MANY_REQUESTS, text.into());
        };
        let claimed = self.kept.claim((&caller.namespace, &caller.service_account), asked);
        match claimed.await {
            Ok(claimed) => match serde_json::to_vec(&claimed) {
                Ok(answer) => (StatusCode::OK, answer.into()),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
            },
            Err(error @ ClaimFailure::TooMany) => (StatusCode::TOO_MANY_REQUESTS, error.to_string().into()),
            Err(error @ ClaimFailure::Invalid) => (StatusCode::BAD_REQUEST, error.to_string().into()),
            Err(error) => {
                tracing::warn!(%error, caller = caller.name(), "a run cannot be claimed");
                (StatusCode::SERVICE_UNAVAILABLE, error.to_string().into())
            }
        }
    }
}
