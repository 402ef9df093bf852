//! The trace of one request: events are recorded as they happen, and exported at the end.
//!
//! Without a sink (the usual case) every step is one comparison. The end of a request ends its spans: those that are
//! still open when it is dropped were cancelled.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use knack_telemetry::genai::{
    self, CallFacts, ClientRequest, Conventions, Failure, InjectedCall, ProviderOutcome, ProviderRequest,
};
use knack_telemetry::{Scope, SpanPosition, SpanRole, TraceContext, Tracer};
use knack_wire::drive::EndKind;
use knack_wire::glance::{self, Glance};
use knack_wire::{CallKind, Format, ModelRoute, ToolCall};
use tokio::time::Instant;

use super::log::RequestLog;
use super::request_report::cut_copy;
use crate::runs::skill_runs::RunOrigin;

/// `http.route` of a run of a skill.
const RUN_ROUTE: &str = "/api/v1/skills/{name}/run";

/// The trace of one request, if there is one.
#[derive(Debug, Default)]
pub(crate) struct RequestTrace(Option<Box<Active>>);

#[derive(Debug)]
struct Active {
    scope: Scope,
    conventions: Conventions,
    position: SpanPosition,
    format: Format,
    kind: CallKind,
    served: ClientRequest,
    round: Option<Round>,
    /// Why the round before failed, if it did.
    failed: Option<Failure>,
    /// Why the answer to the client is not whole.
    cut: Option<Failure>,
}

/// A round that is out.
#[derive(Debug)]
struct Round {
    position: SpanPosition,
    sent: Instant,
    /// When the last bytes arrived: the end of a round that succeeded.
    last_read: Instant,
    asked: ProviderRequest,
    answered: ProviderOutcome,
    /// The answer comes as a stream.
    streams: bool,
    glance: Option<Glance>,
}

/// The call of a tool while it runs, if there is a trace. Dropped without an end, it was cancelled.
#[derive(Debug, Default)]
pub(crate) struct CallTrace(Option<Box<OpenCall>>);

#[derive(Debug)]
struct OpenCall {
    scope: Scope,
    position: SpanPosition,
    begun: Instant,
    called: InjectedCall,
}

impl RequestTrace {
    /// Begins with the request's head; the trace is the client's if it has one. Its span is that of the path that the client
    /// called: of a run of a skill that is another one than that of its request to the model.
    pub(crate) fn begin(tracer: &Tracer, route: &ModelRoute, head: &http::request::Parts, begun: Instant) -> Self {
        let run = head.extensions.get::<RunOrigin>();
        let route_text = run.map_or_else(|| genai::route(route.format, route.kind), |_| RUN_ROUTE);
        let name = || format!("POST {route_text}");
        let Some((scope, position)) = Scope::open(tracer, &head.headers, name, SpanRole::Server, begun) else {
            return Self(None);
        };
        Self(Some(Box::new(Active {
            scope,
            conventions: tracer.conventions(),
            position,
            format: route.format,
            kind: route.kind,
            served: ClientRequest {
                route: route_text,
                path: run.map_or_else(|| cut_copy(head.uri.path()), |run| run.path.clone()),
                ..ClientRequest::default()
            },
            round: None,
            failed: None,
            cut: None,
        })))
    }

    /// The catalog's revision that serves it.
    pub(crate) fn catalog(&mut self, revision: &str) {
        if let Some(active) = &mut self.0 {
            revision.clone_into(&mut active.served.revision);
        }
    }

    /// A round goes out, after `delay`: its headers carry the round's span from here on. A round that is still open was left for it.
    pub(crate) fn send(
        &mut self,
        headers: &mut HeaderMap,
        (round, body, delay): (u32, &Bytes, Duration),
        log: &RequestLog,
        server: impl FnOnce() -> Option<(String, u16)>,
    ) {
        let Some(active) = &mut self.0 else { return };
        active.close(None);
        let mut asked = ProviderRequest {
            format: active.format,
            kind: active.kind,
            model: log.subject.clone(),
            stream: log.stream,
            server: None,
            request: glance::RequestFacts::default(),
            round,
        };
        let position = active
            .scope
            .child(active.position.context, &asked.name(), SpanRole::Client);
        position.context.write(headers);
        if position.context.sampled {
            asked.server = server();
            asked.request = glance::request(active.format, body);
        }
        let sent = Instant::now() + delay;
        active.round = Some(Round {
            position,
            sent,
            last_read: sent,
            asked,
            answered: ProviderOutcome::default(),
            streams: false,
            glance: None,
        });
    }

    /// The head of the answer.
    pub(crate) fn head(&mut self, status: u16, stream: bool) {
        let Some(round) = self.round() else { return };
        round.answered.status = Some(status);
        round.last_read = Instant::now();
        if status < 300 && round.position.context.sampled {
            round.glance = Some(Glance::new(round.asked.format, stream));
        }
        round.streams = stream;
    }

    /// Bytes of the answer.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let Some(round) = self.round() else { return };
        round.last_read = Instant::now();
        if round.streams && round.answered.first_chunk.is_none() {
            round.answered.first_chunk = Some(round.sent.elapsed());
        }
        if let Some(glance) = &mut round.glance {
            glance.push(bytes);
        }
    }

    /// The round is over, well or not.
    pub(crate) fn over(&mut self, failure: Option<Failure>) {
        if let Some(active) = &mut self.0 {
            active.close(failure);
        }
    }

    /// The loop is over; `late` if a timeout ended it. A round that is still open here succeeded, unless the loop
    /// rejected its answer.
    pub(crate) fn end(&mut self, end: &EndKind, late: bool) {
        let failure = match end {
            EndKind::Fault(_) if late => Some(Failure::Timeout),
            EndKind::Fault(_) => Some(Failure::Unreadable),
            EndKind::Answer | EndKind::Upstream(_) | EndKind::Limit | EndKind::Passed => None,
        };
        self.over(failure.clone());
        if let Some(active) = &mut self.0 {
            active.cut = match end {
                // The round says why; without one that failed it was between two rounds.
                EndKind::Fault(_) | EndKind::Upstream(_) => active.failed.take().or(failure),
                EndKind::Answer | EndKind::Limit | EndKind::Passed => None,
            };
        }
    }

    /// A call of a tool begins.
    pub(crate) fn call(&self, call: &ToolCall) -> CallTrace {
        let Some(active) = &self.0 else {
            return CallTrace(None);
        };
        let called = InjectedCall {
            name: cut_copy(&call.name),
            call_id: cut_copy(&call.id),
            round: call.round,
        };
        CallTrace(Some(Box::new(OpenCall {
            position: active
                .scope
                .child(active.position.context, &called.name(), SpanRole::Internal),
            scope: active.scope.clone(),
            begun: Instant::now(),
            called,
        })))
    }

    /// The request is over; `dropped`: before its end, and why.
    pub(crate) fn finish(&mut self, log: &RequestLog, dropped: Option<&Failure>) {
        let Some(mut active) = self.0.take() else { return };
        active.close(dropped.cloned());
        // An error status says it already, and that of a client's own mistake is no failure of the server.
        let cut = active.cut.take().filter(|_| log.status < 400);
        let mut served = active.served;
        served.request_id.clone_from(&log.request_id);
        served.status = log.status;
        served.cut = dropped.cloned().or(cut);
        served.skills.clone_from(&log.skills);
        served.added_tokens = log.added_tokens as u64;
        served.rounds = u64::from(log.rounds);
        let times = (active.scope.began(), Instant::now());
        active.scope.end(active.position, times, || genai::served(&served));
    }

    fn round(&mut self) -> Option<&mut Round> {
        self.0.as_mut()?.round.as_mut()
    }
}

impl Active {
    /// Ends the span of the open round.
    fn close(&mut self, failure: Option<Failure>) {
        let Some(mut round) = self.round.take() else { return };
        if let Some(glance) = round.glance.take() {
            round.answered.answer = glance.finish();
        }
        let ended = if failure.is_some() {
            Instant::now()
        } else {
            round.last_read
        };
        round.answered.failure = failure;
        self.failed = genai::failure_of(&round.answered);
        self.scope.end(round.position, (round.sent, ended), || {
            genai::round(&round.asked, &round.answered, self.conventions)
        });
    }
}

impl CallTrace {
    /// A call that no model's answer asked for: its span is below the sender's, if the request names one.
    pub(crate) fn begin(tracer: &Tracer, headers: &HeaderMap, call: &ToolCall) -> Self {
        let begun = Instant::now();
        let called = InjectedCall {
            name: cut_copy(&call.name),
            call_id: cut_copy(&call.id),
            round: call.round,
        };
        let opened = Scope::open(tracer, headers, || called.name(), SpanRole::Internal, begun);
        Self(opened.map(|(scope, position)| {
            Box::new(OpenCall {
                scope,
                position,
                begun,
                called,
            })
        }))
    }

    /// The span context of the call, for the executor.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(|open| open.position.context)
    }

    /// The call has its result.
    pub(crate) fn end(mut self, ran: &CallFacts) {
        self.close(ran);
    }

    fn close(&mut self, ran: &CallFacts) {
        if let Some(open) = self.0.take() {
            let times = (open.begun, Instant::now());
            open.scope.end(open.position, times, || genai::call(&open.called, ran));
        }
    }
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        self.close(&CallFacts {
            failure: Some(Failure::Cancelled),
            ..CallFacts::default()
        });
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
