//! A model call: body, fields, plan, loop, answer.

mod accept;
mod answer;
mod describe;
mod loop_setup;
mod prepare;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use knack_serving::run_off_thread_if_large;
use knack_skill::plan::Action;
use knack_wire::history::Caller;
use knack_wire::{Drive, Fault, Format, ModelRoute, RequestFields};
use tokio::time::Instant;

use self::accept::{Accepted, accept};
use self::answer::{first, knack_header};
use self::describe::{describe, new_log};
use self::loop_setup::LoopSetup;
use self::prepare::{Prepared, read_request};
use super::call::ModelCall;
use super::exchange::{Exchange, ExchangeParts, UpstreamTarget};
use super::hidden_turns::HiddenTurnLookup;
use crate::callers::caller;
use crate::catalog::Snapshot;
use crate::files::user_files::Container;
use crate::files::user_files::named;
use crate::http_server::request_id::RequestId;
use crate::providers::forwarded_headers::forward_request_headers;
use crate::providers::provider::Api;
use crate::runs::code_tools;
use crate::runs::skill_runs::RunOrigin;
use crate::state::Gateway;
use crate::telemetry::trace::RequestTrace;

/// Serves one call of a model API.
pub(crate) async fn serve(gateway: Arc<Gateway>, route: ModelRoute, request: Request) -> Response {
    let begun = Instant::now();
    let format = route.format;
    let (parts, body) = request.into_parts();
    let log = new_log(
        format,
        RequestId::of(&parts.extensions),
        parts.extensions.get::<RunOrigin>(),
    );
    let trace = RequestTrace::begin(&gateway.tracer, &route, &parts, begun);
    let mut call = ModelCall {
        gateway,
        log,
        trace,
        begun,
        format,
    };
    match call.prepare(route, &parts, body).await {
        Ok((exchange, knack_header)) => {
            let exchange = Exchange::start(call, exchange).await;
            first(exchange, knack_header, format).await
        }
        Err(error) => call.refuse(&error),
    }
}

impl ModelCall {
    /// Decides everything until the first round. Returns what the exchange begins with, and `x-knack` of its answer.
    async fn prepare(
        &mut self,
        route: ModelRoute,
        parts: &Parts,
        body: Body,
    ) -> Result<(ExchangeParts, HeaderValue), Fault> {
        let kind = route.kind;
        let caller = caller::identify(&self.gateway.secret.current(), &parts.headers, &parts.uri);
        let accepted = accept(self, &caller, &route, parts, body).await?;
        let (served, snapshot) = self.gateway.served_to(parts).await;
        self.trace.catalog(&snapshot.revision);
        self.log.revision.clone_from(&snapshot.revision);
        let prepared = read_request(self, &snapshot, route, &accepted, parts).await?;
        describe(&mut self.log, &prepared.fields, &prepared.plan, &snapshot);
        let Accepted {
            held,
            received,
            recording,
            mut named,
            counted: _,
        } = accepted;
        let hidden = self.hidden(caller, &snapshot, &prepared);
        let has_tools = !prepared.injection.tools().is_empty();
        let mut target = target(parts, self.format, received);
        let array = asks_for_events(&mut target, &prepared.fields, has_tools, self.format);
        let memory = memory_of_runs(&prepared.fields, named.container.as_ref());
        let setup = LoopSetup {
            call: self,
            kind,
            parts,
            snapshot: &snapshot,
            prepared: &prepared,
            hidden: &hidden,
        };
        let container = setup.container(named.container).await?;
        let settings = setup.settings(container.as_ref(), array);
        let tools = has_tools.then(|| setup.tool_runner(served.executor, memory));
        let knack_header = knack_header(&snapshot, &prepared.plan);
        let Prepared {
            request,
            fields,
            injection,
            texts,
            attached,
            attached_memory,
            ..
        } = prepared;
        let drive = run_off_thread_if_large(held.bytes.len(), move || {
            Drive::with_fields(request, fields, injection, settings).map(Box::new)
        })
        .await?;
        // Files take their share of the memory when they are staged.
        drop((named.holding.take(), attached_memory));
        named.files.extend(attached);
        let exchange = ExchangeParts {
            drive,
            target,
            tools,
            hidden,
            recording,
            holding: held.holding,
            _texts: texts,
            given: named.files,
            container: container.and_then(|container| container.id),
            read_by_run: parts.extensions.get::<RunOrigin>().map(|run| run.reading.clone()),
        };
        Ok((exchange, knack_header))
    }

    /// The state for hidden turns.
    fn hidden(&self, caller: Caller, snapshot: &Arc<Snapshot>, prepared: &Prepared) -> HiddenTurnLookup {
        let plan = &prepared.plan;
        let run_code = plan.tools.iter().find(|tool| matches!(tool.action, Action::RunCode));
        HiddenTurnLookup {
            caller,
            snapshot: Arc::clone(snapshot),
            plan: Arc::clone(plan),
            injecting: prepared.injecting,
            run_tool: run_code.map(|tool| tool.name.clone()),
            runs_here: code_tools::runs_here(&self.gateway.sandbox_code_tools, self.format),
            chain: None,
            earlier: knack_wire::StoredForm::default(),
            runs: Vec::new(),
        }
    }
}

/// Where the request goes, with the headers of its client. `received`: its body, if that was compressed.
fn target(parts: &Parts, format: Format, received: Option<Bytes>) -> UpstreamTarget {
    let path_and_query = parts.uri.path_and_query();
    UpstreamTarget {
        api: Api::of_format(format),
        path_and_query: path_and_query.map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        headers: forward_request_headers(&parts.headers),
        received,
    }
}

/// Gemini answers a stream without `alt=sse` as one array, which ends only with the answer. Where the loop reads the
/// answer, the upstream is asked for events, and the client gets its array all the same. True if it does.
fn asks_for_events(target: &mut UpstreamTarget, fields: &RequestFields, reads: bool, format: Format) -> bool {
    if format != Format::Gemini || !fields.stream || !reads {
        return false;
    }
    let events = knack_wire::route::with_events(&target.path_and_query);
    let array = events != target.path_and_query;
    target.path_and_query = events;
    array
}

/// The memory of each run of a request: the least of what its code tool asks for and its container has.
fn memory_of_runs(fields: &RequestFields, container: Option<&Container>) -> Option<u64> {
    let asked = fields.code_tool.as_ref().and_then(|tool| tool.memory_bytes);
    let allowed = container.and_then(named::memory_bytes);
    asked.into_iter().chain(allowed).min()
}
