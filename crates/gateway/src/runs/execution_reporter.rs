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
use knack_serving::tasks::{TaskEnded, Tasks};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

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
    /// Executions by id. Ids of a gateway sort by their time, except those of runs with an `idempotency-key`.
    lines: BTreeMap<String, PendingLine>,
    bytes: usize,
}

/// An execution that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PendingLine {
    caller: Owner,
    /// The line's JSON.
    text: String,
}

/// Sends reports until it is closed.
#[derive(Debug)]
pub struct ReportSender {
    reports: Arc<Reports>,
    stop: CancellationToken,
    tasks: Tasks,
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
    /// Replaces the line of the same id, or adds one. Where there is no room, the caller that has the most loses its newest, so that
    /// no caller takes the place of others. Returns how many are dropped, this one among them.
    fn put(&mut self, id: String, line: PendingLine) -> usize {
        let before = self.remove(&id);
        let mut dropped = 0;
        loop {
            let is_long = self.bytes + line.text.len() > WAITING_MAX_BYTES;
            if !is_long && self.lines.len() < WAITING_MAX {
                self.insert(id, line);
                return dropped;
            }
            let Some(newest) = self.newest_of_largest_other(&line, is_long) else {
                break;
            };
            self.remove(&newest);
            dropped += 1;
        }
        // The earlier state is better than none.
        if let Some(before) = before {
            self.insert(id, before);
        }
        dropped + 1
    }

    fn insert(&mut self, id: String, line: PendingLine) {
        self.bytes += line.text.len();
        self.lines.insert(id, line);
    }

    fn remove(&mut self, id: &str) -> Option<PendingLine> {
        let gone = self.lines.remove(id)?;
        self.bytes -= gone.text.len();
        Some(gone)
    }

    /// The newest line of the caller that has the most bytes or lines; `None` if that is the caller of a new one.
    fn newest_of_largest_other(&self, new: &PendingLine, by_bytes: bool) -> Option<String> {
        let size = |line: &PendingLine| if by_bytes { line.text.len() } else { 1 };
        let mut sizes = BTreeMap::from([(&new.caller, size(new))]);
        for line in self.lines.values() {
            *sizes.entry(&line.caller).or_default() += size(line);
        }
        let (largest, _) = sizes.into_iter().max_by_key(|(_, size)| *size)?;
        let mut newest = self.lines.iter().rev();
        let found = newest.find(|(_, line)| line.caller == *largest && *largest != new.caller);
        found.map(|(id, _)| id.clone())
    }

    /// The oldest, as many as a report has.
    fn take(&mut self) -> Vec<(String, PendingLine)> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < REPORT_EXECUTIONS
            && let Some((_, line)) = self.lines.first_key_value()
        {
            bytes += line.text.len() + 1;
            if !taken.is_empty() && bytes > REPORT_MAX_BYTES / 2 {
                break;
            }
            if let Some((id, line)) = self.lines.pop_first() {
                self.bytes -= line.text.len();
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
        let mut tasks = Tasks::default();
        tasks.spawn_finite("reports of executions", send_all(Arc::clone(&reports), stop.clone()));
        let reporting = ReportSender {
            reports: Arc::clone(&reports),
            stop,
            tasks,
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
        let text = serde_json::to_string(&execution).unwrap_or_default();
        if text.is_empty() {
            return self.drop_notes(1);
        }
        let caller = execution.caller;
        let dropped = self.lock().put(id, PendingLine { caller, text });
        self.drop_notes(dropped);
        self.more.notify_one();
    }

    /// Puts back reports that were taken and did not arrive, unless a later state is known.
    fn put_back(&self, taken: Vec<(String, PendingLine)>) {
        for (id, line) in taken {
            let mut waiting = self.lock();
            if !waiting.lines.contains_key(&id) {
                let dropped = waiting.put(id, line);
                drop(waiting);
                self.drop_notes(dropped);
            }
        }
    }

    async fn send(&self, taken: &[(String, PendingLine)]) -> Result<(), RejectedReport> {
        let lines: Vec<String> = taken.iter().map(|(_, line)| line.text.clone()).collect();
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
    /// Resolves when the task that sends has failed.
    pub(crate) async fn ended(&mut self) -> TaskEnded {
        self.tasks.ended().await
    }

    /// Sends what waits, within a bound.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.returned()).await;
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

    fn line(caller: u8, text: &str) -> PendingLine {
        PendingLine {
            caller: Owner::from([caller; 32]),
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_waits_is_the_last_of_each_run_within_a_bound() {
        let mut waiting = PendingReports::default();
        let mut put = |id: &str, text: &str| waiting.put(id.to_owned(), line(1, text));
        assert_eq!((put("a", "pending"), put("a", "ended")), (0, 0));
        let many = (1..WAITING_MAX).map(|number| put(&format!("b{number:04}"), "x"));
        assert_eq!(many.sum::<usize>(), 0);
        assert_eq!(put("c", "x"), 1, "there is no room");
        assert_eq!(put("a", "as ever"), 0, "it has its place");
        assert_eq!(put("a", &"x".repeat(WAITING_MAX_BYTES)), 1);
        let taken = waiting.take();
        assert_eq!((taken.len(), taken[0].1.text.as_str()), (REPORT_EXECUTIONS, "as ever"));
        while !waiting.take().is_empty() {}
        assert_eq!((waiting.bytes, waiting.lines.len()), (0, 0));
    }

    #[test]
    fn who_has_much_that_waits_takes_no_place_of_others() {
        let long = "x".repeat(WAITING_MAX_BYTES / 20);
        for (count, text) in [(2 * WAITING_MAX, "x"), (100, long.as_str())] {
            let mut waiting = PendingReports::default();
            let flood = (0..count).map(|number| waiting.put(format!("flood {number:04}"), line(1, text)));
            let dropped = flood.sum::<usize>();
            let kept = waiting.lines.len();
            assert_eq!(dropped + kept, count);
            for number in 0..3 {
                let dropped = waiting.put(format!("other {number}"), line(2, text));
                assert_eq!(dropped, 1, "one of the flood");
            }
            assert_eq!(waiting.put("more of the flood".to_owned(), line(1, text)), 1);
            let of = |caller: u8| {
                let lines = waiting.lines.values();
                lines.filter(|one| one.caller == Owner::from([caller; 32])).count()
            };
            assert_eq!((of(1), of(2)), (kept - 3, 3));
            assert!(waiting.lines.contains_key("flood 0000"), "its newest went");
            assert_eq!(waiting.bytes, kept * text.len());
        }
    }
}
