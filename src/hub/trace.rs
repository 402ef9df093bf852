//! The trace of one execution at the hub: a part of the gateway's call.

use http::HeaderMap;
use knack_execution::{ExecutionError, ExecutionResult, ExecutionStatus, StartKind};
use knack_telemetry::genai::{self, CallFacts, ExecutionFacts, Failure};
use knack_telemetry::{Scope, SpanPosition, SpanRole, Tracer};
use tokio::time::Instant;

/// The trace of one execution, if there is one. Dropped before the end: the client disconnected.
#[derive(Debug)]
pub(super) struct ExecutionTrace(Option<Box<(Scope, SpanPosition, ExecutionFacts)>>);

impl ExecutionTrace {
    /// Begins with the request's head.
    pub(super) fn begin(tracer: &Tracer, headers: &HeaderMap, begun: Instant) -> Self {
        let opened = Scope::open(tracer, headers, || genai::EXECUTED.to_owned(), SpanRole::Server, begun);
        Self(opened.map(|(scope, position)| Box::new((scope, position, ExecutionFacts::default()))))
    }

    /// Sets the runtime, the id of the execution and the skill.
    pub(super) fn describe(&mut self, runtime: &str, id: &str, skill: Option<&str>) {
        if let Some(open) = &mut self.0 {
            let executed = &mut open.2;
            runtime.clone_into(&mut executed.runtime);
            executed.ran.execution = Some(id.to_owned());
            executed.ran.skill = skill.map(ToOwned::to_owned);
        }
    }

    /// It has run, or cannot.
    pub(super) fn end(&mut self, outcome: Result<&ExecutionResult, &ExecutionError>) {
        let (start, failure) = match outcome {
            Ok(result) => (
                Some(StartKind::as_str(result.timings.start)),
                (result.status() != ExecutionStatus::Success).then(|| Failure::Run(result.status().as_str())),
            ),
            Err(error) => (None, Some(Failure::Run(error.metric_label()))),
        };
        self.close(start, failure);
    }

    /// It was refused before it ran, for the reason that this code names.
    pub(super) fn refuse(&mut self, word: &'static str) {
        self.close(None, Some(Failure::Run(word)));
    }

    fn close(&mut self, start: Option<&'static str>, failure: Option<Failure>) {
        let Some(open) = self.0.take() else { return };
        let (scope, position, mut executed) = *open;
        executed.ran = CallFacts {
            start,
            failure,
            ..executed.ran
        };
        scope.end(position, (scope.began(), Instant::now()), || genai::executed(&executed));
    }
}

impl Drop for ExecutionTrace {
    fn drop(&mut self) {
        self.close(None, Some(Failure::Cancelled));
    }
}
