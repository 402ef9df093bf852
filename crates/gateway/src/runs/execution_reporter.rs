//! The history of runs of a cluster: reports to the registry, which keeps it. Nothing waits for them.
//!
//! ```text
//! run ─▶ note ─▶ waiting, the last of an id ─▶ a task: POST /knack/v1/executions, as this gateway's ServiceAccount
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use knack_hub_api::client::HubClient;
use knack_registry::{
    Execution, ExecutionPage, ExecutionQuery, History, Owner, REPORT_EXECUTIONS, REPORT_MAX_BYTES, REPORT_PATH, Report,
    StoreError,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::run_history::{RunHistory, RunNote};
use super::run_lines::execution;

/// Executions that wait: those of some minutes of a busy gateway, for a registry that is being replaced.
const WAITING_MAX: usize = 1_024;
/// Bytes of what waits. Of a sidecar's memory limit of 128 MiB.
const WAITING_MAX_BYTES: usize = 8 << 20;
/// How long a report waits for more: most runs end within it, and are then one note and not two.
const GATHER: Duration = Duration::from_millis(250);
/// Pauses between tries while the registry does not take reports, the last one again and again.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
];
/// Time for one report.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an orderly end waits for the registry.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports of this gateway's runs.
#[derive(Debug)]
pub struct Reports {
    pub(crate) client: HubClient,
    waiting: Mutex<PendingReports>,
    more: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct PendingReports {
    /// JSON of executions by id. Ids of a gateway sort by their time, except those of runs with an `idempotency-key`.
    lines: BTreeMap<String, String>,
    bytes: usize,
}

/// Sends reports until it is closed.
#[derive(Debug)]
pub struct ReportSender {
    reports: Arc<Reports>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// Why a report was not taken.
#[derive(Debug)]
pub(crate) enum RejectedReport {
    /// It may be taken later.
    Later(String),
    /// It is not taken at any time.
    Never(String),
}

impl PendingReports {
    /// Replaces the line of the same id, or adds one. `false`: there is no room.
    fn put(&mut self, id: String, line: String) -> bool {
        let before = self.lines.get(&id).map_or(0, String::len);
        let bytes = self.bytes - before + line.len();
        if bytes > WAITING_MAX_BYTES || (before == 0 && self.lines.len() >= WAITING_MAX) {
            return false;
        }
        self.bytes = bytes;
        self.lines.insert(id, line);
        true
    }

    /// The oldest, as many as a report has.
    fn take(&mut self) -> Vec<(String, String)> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < REPORT_EXECUTIONS
            && let Some((_, line)) = self.lines.first_key_value()
        {
            bytes += line.len() + 1;
            if !taken.is_empty() && bytes > REPORT_MAX_BYTES / 2 {
                break;
            }
            if let Some((id, line)) = self.lines.pop_first() {
                self.bytes -= line.len();
                taken.push((id, line));
            }
        }
        taken
    }
}

impl Reports {
    /// Reports to a registry, and what sends them. Must be called inside a tokio runtime.
    pub fn start(client: HubClient) -> (Arc<Self>, ReportSender) {
        let reports = Arc::new(Self {
            client,
            waiting: Mutex::default(),
            more: Notify::new(),
            dropped: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn(send_all(Arc::clone(&reports), stop.clone()));
        let reporting = ReportSender {
            reports: Arc::clone(&reports),
            stop,
            task: AbortOnDropHandle::new(task),
        };
        (reports, reporting)
    }

    fn lock(&self) -> MutexGuard<'_, PendingReports> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_notes(&self, notes: usize) {
        self.dropped.fetch_add(notes as u64, Ordering::Relaxed);
    }

    pub(crate) fn put(&self, execution: Execution) {
        let execution = reported(execution);
        let id = execution.id.clone();
        let line = serde_json::to_string(&execution).unwrap_or_default();
        if line.is_empty() || !self.lock().put(id, line) {
            return self.drop_notes(1);
        }
        self.more.notify_one();
    }

    /// Puts back reports that were taken and did not arrive, unless a later state is known.
    fn put_back(&self, taken: Vec<(String, String)>) {
        for (id, line) in taken {
            let mut waiting = self.lock();
            if !waiting.lines.contains_key(&id) && !waiting.put(id, line) {
                drop(waiting);
                self.drop_notes(1);
            }
        }
    }

    async fn send(&self, taken: &[(String, String)]) -> Result<(), RejectedReport> {
        let lines: Vec<String> = taken.iter().map(|(_, line)| line.clone()).collect();
        self.send_lines(&lines).await
    }

    pub(crate) async fn send_lines(&self, lines: &[String]) -> Result<(), RejectedReport> {
        let body = Bytes::from(Report::of_lines(lines));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let sent = self.client.relay(Method::POST, REPORT_PATH, headers, body);
        match tokio::time::timeout(SEND_TIMEOUT, sent).await {
            Err(_) => Err(RejectedReport::Later(format!(
                "no answer within {} s",
                SEND_TIMEOUT.as_secs()
            ))),
            Ok(Err(error)) => Err(RejectedReport::Later(error.to_string())),
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => Err(refused(answer.status())),
        }
    }
}

/// The report of an execution to the registry. Granted values are in a Secret that this process cannot read, so they cannot be
/// hidden in texts.
pub(crate) fn reported(execution: Execution) -> Execution {
    let is_granted = execution.skill.as_ref().is_some_and(|skill| skill.asks_for_values);
    if is_granted { execution.withheld() } else { execution }
}

fn refused(status: StatusCode) -> RejectedReport {
    let text = format!("the registry answers {status}");
    match status {
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => RejectedReport::Never(text),
        // Also one that keeps no history, or does not know this gateway: it may be replaced by one that does.
        _ => RejectedReport::Later(text),
    }
}

async fn send_all(reports: Arc<Reports>, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let is_last = tokio::select! {
            () = stop.cancelled() => true,
            () = reports.more.notified() => {
                tokio::select! {
                    () = stop.cancelled() => true,
                    () = tokio::time::sleep(GATHER) => false,
                }
            }
        };
        loop {
            let taken = reports.lock().take();
            if taken.is_empty() {
                break;
            }
            match reports.send(&taken).await {
                Ok(()) => failures = 0,
                Err(RejectedReport::Never(why)) => {
                    tracing::warn!(
                        why,
                        executions = taken.len(),
                        "the registry refused a report of executions"
                    );
                    reports.drop_notes(taken.len());
                }
                Err(RejectedReport::Later(why)) => {
                    reports.put_back(taken);
                    if failures == 0 {
                        tracing::warn!(why, "executions cannot be reported to the history; trying again");
                    }
                    if is_last {
                        return;
                    }
                    let pause = PAUSES.get(failures).or(PAUSES.last()).copied().unwrap_or_default();
                    failures += 1;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                    reports.more.notify_one();
                    break;
                }
            }
        }
        if is_last {
            return;
        }
    }
}

impl ReportSender {
    /// Sends what waits, within a bound.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.task).await;
        let lost = self.reports.lock().lines.len();
        if lost > 0 {
            tracing::warn!(
                executions = lost,
                "executions could not be reported and are missing in the history"
            );
        }
    }
}

impl RunHistory for Reports {
    fn note(&self, run: &RunNote) {
        self.put(execution(run));
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The hub would be asked again and again about each run.
    fn wants_starts(&self) -> bool {
        false
    }
}

/// Notes the runs of programs through this gateway like all other runs. They are read at the registry itself.
#[async_trait]
impl History for Reports {
    fn note(&self, execution: Execution) {
        self.put(execution);
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    async fn get(&self, _: &Owner, _: &str) -> Result<Option<Execution>, StoreError> {
        Err(kept_at_the_registry())
    }

    async fn find(&self, _: &Owner, _: &ExecutionQuery) -> Result<ExecutionPage, StoreError> {
        Err(kept_at_the_registry())
    }
}

fn kept_at_the_registry() -> StoreError {
    StoreError::Unavailable("the history is kept by the registry".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_the_last_of_each_run_within_a_bound() {
        let mut waiting = PendingReports::default();
        assert!(waiting.put("a".to_owned(), "pending".to_owned()));
        assert!(waiting.put("a".to_owned(), "ended".to_owned()));
        assert_eq!((waiting.bytes, waiting.lines.len()), ("ended".len(), 1));
        let many = (1..WAITING_MAX).filter(|number| waiting.put(format!("b{number:04}"), "x".to_owned()));
        assert_eq!(many.count(), WAITING_MAX - 1);
        assert!(!waiting.put("c".to_owned(), "x".to_owned()), "there is no room");
        assert!(waiting.put("a".to_owned(), "as ever".to_owned()), "it has its place");
        assert!(!waiting.put("a".to_owned(), "x".repeat(WAITING_MAX_BYTES)));
        let taken = waiting.take();
        assert_eq!((taken.len(), taken[0].1.as_str()), (REPORT_EXECUTIONS, "as ever"));
        while !waiting.take().is_empty() {}
        assert_eq!((waiting.bytes, waiting.lines.len()), (0, 0));
    }
}
