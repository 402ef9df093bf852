//! The report on a request: one console line, one structured log record, metrics, and what `knack trace` shows of it.

use super::log::RequestLog;
use super::metrics::Metrics;
use super::recent_requests::RecentRequests;

/// Where console lines go; `knack dev` prints them, a Deployment only logs.
pub trait Console: Send + Sync + std::fmt::Debug {
    /// Shows a request that is over to the person at the terminal.
    fn show(&self, request: &RequestLog);
}

/// A console without output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SilentConsole;

impl Console for SilentConsole {
    fn show(&self, _: &RequestLog) {}
}

impl RequestLog {
    /// Sends it to all outputs.
    pub(crate) fn publish(self, console: &dyn Console, metrics: &Metrics, recent: &RecentRequests) {
        metrics.request(&self);
        console.show(&self);
        tracing::info!(
            request_id = %self.request_id, format = self.format, model = %self.subject, stream = self.stream, status = self.status,
            skills = ?self.skills, added_tokens = self.added_tokens, rounds = self.rounds, executions = self.executions.len(),
            duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX), end = self.end.as_deref().unwrap_or("answer"), "request"
        );
        recent.keep(self.into());
    }
}
