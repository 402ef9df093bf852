//! One call of a tool that no model made: on the same path as a model's call, with the same names, schemas, limits and sandbox.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use knack_execution::Executor;
use knack_skill::plan::Plan;
use knack_wire::history::Caller;
use knack_wire::{CallOutcome, ToolCall};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::run_history::RunHistory;
use super::tools::{LoopState, ToolRunner};
use crate::catalog::Snapshot;
use crate::files::delivered;
use crate::http_server::request_id::RequestId;
use crate::state::Gateway;
use crate::telemetry::log::RequestLog;
use crate::telemetry::trace::CallTrace;

/// The note of a call that is refused before anything runs.
const NOTHING_RAN: &str = "nothing was run: the answer says why";

/// The caller, and its catalog.
#[derive(Debug)]
pub struct Direct<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The caller.
    pub caller: &'a Caller,
    /// The catalog of the caller.
    pub snapshot: &'a Arc<Snapshot>,
    /// The tools.
    pub plan: &'a Arc<Plan>,
    /// Runs programs.
    pub executor: &'a Arc<dyn Executor>,
    /// The headers of the request, for its trace.
    pub headers: &'a HeaderMap,
    /// The request's id, which its answer, the log and `knack trace` have.
    pub request_id: RequestId,
    /// The word for logs and metrics.
    pub format: &'static str,
    /// Where runs are noted.
    pub history: Option<Arc<dyn RunHistory>>,
    /// The status of an answer that refuses the call before anything runs.
    pub refused: u16,
    /// Which run it is; `None`: that of this request.
    pub identity: Option<DirectIdentity>,
}

/// The parts of a run's id, beside the id of its call. A repeat of a request has those of the first one.
#[derive(Debug, Clone)]
pub struct DirectIdentity {
    /// The request's id.
    pub request: String,
    /// When it was asked for, since the Unix epoch.
    pub begun: Duration,
}

impl Direct<'_> {
    /// Runs one call. Its run has an id of its own, or that of its identity, so it runs once, and nothing of another call is in its work directory. The
    /// answer is the id under which its files are, and what came of it.
    pub async fn call(
        &self,
        name: String,
        id: String,
        arguments: String,
        cancel: CancellationToken,
    ) -> (String, CallOutcome) {
        let begun = Instant::now();
        let gateway = self.gateway;
        let call = ToolCall {
            token: 0,
            round: 1,
            name,
            id,
            arguments,
        };
        let log = RequestLog {
            request_id: self.request_id.as_str().to_owned(),
            begun: jiff::Timestamp::now(),
            format: self.format,
            // A name that is not one of Knack's tools is text of the client, and is not logged.
            subject: self
                .plan
                .tool(&call.name)
                .map_or_else(String::new, |tool| tool.name.clone()),
            revision: self.snapshot.revision.clone(),
            ..RequestLog::default()
        };
        let identity = self.identity.as_ref();
        let files_id = identity.map_or_else(|| log.request_id.clone(), |identity| identity.request.clone());
        let runner = Arc::new(self.runner(&files_id));
        let trace = CallTrace::begin(&gateway.tracer, self.headers, &call);
        let mut report = CallReport {
            direct: self,
            runner: Arc::clone(&runner),
            cancel: cancel.clone(),
            log,
            begun,
            has_ended: false,
        };
        report.log.timeline.called(&call, begun.elapsed());
        // By its end, whichever that is.
        self.request_id.set_reported();
        let outcome = runner.run(call, files_id.clone(), cancel, trace).await;
        if !report.cancel.is_cancelled() {
            report.log.status = 200;
            if outcome.is_error && !report.runner.has_run() {
                report.log.status = self.refused;
                // Its text may repeat arguments, which are not logged.
                report.log.notes.push(NOTHING_RAN.to_owned());
            }
            report
                .log
                .timeline
                .answered(outcome.token, outcome.is_error, begun.elapsed());
        }
        if !outcome.files.is_empty() {
            let (made, log) = (&outcome.files, &mut report.log);
            delivered::keep(gateway, self.caller, &files_id, made, log).await;
        }
        report.has_ended = true;
        (files_id, outcome)
    }

    fn runner(&self, request_id: &str) -> ToolRunner {
        let key = self.caller.bucket();
        ToolRunner {
            snapshot: Arc::clone(self.snapshot),
            max_memory_bytes: None,
            plan: Arc::clone(self.plan),
            executor: Arc::clone(self.executor),
            grants: Arc::clone(&self.gateway.grants),
            caller_key: key,
            request_id: request_id.to_owned(),
            request_start: self
                .identity
                .as_ref()
                .map_or_else(|| self.executor.now(), |identity| identity.begun),
            public_url: self.gateway.public_url.clone(),
            requests: self.gateway.requests.clone(),
            history: self.history.clone(),
            state: Mutex::new(LoopState::default()),
        }
    }
}

/// Reports a call when it has ended, also where its client has left and nobody waits for it.
struct CallReport<'a> {
    direct: &'a Direct<'a>,
    runner: Arc<ToolRunner>,
    cancel: CancellationToken,
    log: RequestLog,
    begun: Instant,
    has_ended: bool,
}

impl Drop for CallReport<'_> {
    fn drop(&mut self) {
        let gateway = self.direct.gateway;
        self.runner.take_notes(&mut self.log);
        if !self.has_ended || self.cancel.is_cancelled() {
            self.log.dropped(gateway.is_cut());
        }
        self.log.duration = self.begun.elapsed();
        let log = std::mem::take(&mut self.log);
        log.publish(&*gateway.console, &gateway.metrics, &gateway.recent);
    }
}
