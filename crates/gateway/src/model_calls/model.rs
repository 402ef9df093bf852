//! A model call: body, fields, plan, loop, answer.

mod answer;
mod describe;
mod prepare;

use std::sync::{Arc, LazyLock, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use knack_execution::Executor;
use knack_registry::{Dialect, SKILLS_BETA};
use knack_serving::run_off_thread_if_large;

use knack_skill::plan::{Action, Plan};
use knack_wire::history::Caller;
use knack_wire::{CallKind, Drive, DriveSettings, Fault, Format, Injection, ModelRoute, RequestFields};
use tokio::time::Instant;

use self::answer::{first, knack_header, refuse};
use self::describe::{describe, new_log};
use self::prepare::{Prepared, read_request};
use super::client_timeout;
use super::compressed;
use super::exchange::{Exchange, ExchangeParts, UpstreamTarget};
use super::hidden_turns::HiddenTurnLookup;
use super::turn_store::KeyedHash;
use crate::callers::caller;
use crate::catalog::Snapshot;
use crate::files::answer_container::{self, AnswerContainer, ContainerContext};
use crate::files::user_files::Container;
use crate::files::user_files::named::{self, NamedFiles};
use crate::http_server::budget::HeldBody;
use crate::http_server::fault::body_fault;
use crate::http_server::request_id::RequestId;
use crate::providers::forwarded_headers::forward_request_headers;
use crate::providers::provider::Api;
use crate::runs::code_tools;
use crate::runs::skill_runs::RunOrigin;
use crate::runs::tools::{LoopState, ToolRunner};
use crate::state::Gateway;
use crate::telemetry::body_files::Recording;
use crate::telemetry::log::RequestLog;
use crate::telemetry::trace::RequestTrace;

/// Serves one call of a model API.
pub(crate) async fn serve(gateway: Arc<Gateway>, route: ModelRoute, request: Request) -> Response {
    let begun = Instant::now();
    let (format, kind) = (route.format, route.kind);
    let (parts, body) = request.into_parts();
    let request_id = RequestId::of(&parts.extensions);
    let mut log = new_log(format, request_id, parts.extensions.get::<RunOrigin>());
    let mut trace = RequestTrace::begin(&gateway.tracer, &route, &parts, begun);
    let caller = caller::identify(&gateway.secret.current(), &parts.headers, &parts.uri);
    let counted = caller::counted_beside(&caller, &gateway.secret.current(), &parts).bucket();
    let asked = (&caller, counted);
    let accepted = accept(&gateway, asked, &route, (&parts, body), &log.request_id).await;
    let (held, received, recording, mut named) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let (served, snapshot) = gateway.served_to(&parts).await;
    trace.catalog(&snapshot.revision);
    log.revision.clone_from(&snapshot.revision);
    let read = read_request(&gateway, &snapshot, route, (&held, &named, counted), &parts).await;
    let Prepared {
        request,
        fields,
        plan,
        injection,
        injecting,
        texts,
        attached,
        attached_memory,
    } = match read {
        Ok(prepared) => prepared,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let log = describe(log, &fields, &plan, &snapshot);
    let hidden = hidden(caller, (&gateway, &snapshot), (&plan, injecting), format);
    let mut target = target(&parts, (format, received));
    let array = asks_for_events(&mut target, &fields, !injection.tools().is_empty(), format);
    let memory = memory_of_runs(&fields, named.container.as_ref());
    let (asked, own) = ((&fields, &*plan, &injection), (&hidden, &log));
    let container = match container(
        &gateway,
        asked,
        (format, kind),
        (&hidden, &log, &parts),
        named.container,
    )
    .await
    {
        Ok(container) => container,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let mut settings = settings(asked, (&snapshot, kind, array), container.as_ref(), own);
    if !fields.stream {
        settings.deadline = client_timeout::deadline(settings.deadline, &parts.headers);
    }
    let runs = (!injection.tools().is_empty()).then_some(served.executor);
    let tools = runs.map(|executor| tool_runner(&gateway, executor, (&snapshot, memory), &plan, own, &request));
    let knack_header = knack_header(&snapshot, &plan);
    let driven = run_off_thread_if_large(held.bytes.len(), move || {
        Drive::with_fields(request, fields, injection, settings).map(Box::new)
    })
    .await;
    let drive = match driven {
        Ok(drive) => drive,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    // Files take their share of the memory when they are staged.
    drop((named.holding.take(), attached_memory));
    named.files.extend(attached);
    let parts = ExchangeParts {
        drive,
        target,
        tools,
        hidden,
        recording,
        log,
        trace,
        begun,
        held,
        texts,
        given: named.files,
        container: container.and_then(|container| container.id),
        read_by_run: parts.extensions.get::<RunOrigin>().map(|run| run.reading.clone()),
    };
    let exchange = Exchange::start(Arc::clone(&gateway), parts).await;
    first(exchange, knack_header, format).await
}

/// Takes a request in: its body within the budget, also as it was received if that was compressed, its recording, and the
/// files and container of Knack that it names.
async fn accept(
    gateway: &Arc<Gateway>,
    (caller, counted): (&Caller, KeyedHash),
    route: &ModelRoute,
    (parts, body): (&http::request::Parts, Body),
    request_id: &str,
) -> Result<(HeldBody, Option<Bytes>, Option<Recording>, NamedFiles), Fault> {
    let held = gateway.requests.read(&counted, &parts.headers, body).await;
    let held = held.map_err(body_fault)?;
    let (mut held, received) = compressed::decode(held, &parts.headers).await?;
    let decoded = held.bytes.as_ptr().addr();
    let recording = recording(gateway, request_id, &held.bytes);
    let from = (caller, counted, caller::unchecked_address(parts));
    let named = named::resolve(gateway, from, route, &mut held.bytes).await?;
    // The received bytes are used only while the body was not changed.
    let received = received.filter(|_| held.bytes.as_ptr().addr() == decoded);
    Ok((held, received, recording, named))
}

/// The recording of a request, started with its body.
fn recording(gateway: &Gateway, request_id: &str, body: &Bytes) -> Option<Recording> {
    let recording = gateway.recorder.as_ref()?.request(request_id);
    recording.write("request.json", body.clone());
    Some(recording)
}

/// Where the request goes, with the headers of its client.
fn target(parts: &http::request::Parts, (format, received): (Format, Option<Bytes>)) -> UpstreamTarget {
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

/// Skill calls of one turn that are run: as many as a model makes that splits work over parallel calls.
const CALLS_PER_TURN: usize = 32;
/// The answer to a call beyond those.
static CALLS_TEXT: LazyLock<String> = LazyLock::new(|| knack_skill::texts::too_many_calls(CALLS_PER_TURN));

/// The state for hidden turns.
fn hidden(
    caller: Caller,
    (gateway, snapshot): (&Gateway, &Arc<Snapshot>),
    (plan, injecting): (&Arc<Plan>, bool),
    format: Format,
) -> HiddenTurnLookup {
    let run_code = plan.tools.iter().find(|tool| matches!(tool.action, Action::RunCode));
    HiddenTurnLookup {
        caller,
        snapshot: Arc::clone(snapshot),
        plan: Arc::clone(plan),
        injecting,
        run_tool: run_code.map(|tool| tool.name.clone()),
        runs_here: code_tools::runs_here(&gateway.sandbox_code_tools, format),
        chain: None,
        earlier: knack_wire::StoredForm::default(),
        runs: Vec::new(),
    }
}

fn settings(
    (fields, plan, injection): (&RequestFields, &Plan, &Injection),
    (snapshot, kind, array): (&Snapshot, CallKind, bool),
    container: Option<&AnswerContainer>,
    (hidden, log): (&HiddenTurnLookup, &RequestLog),
) -> DriveSettings {
    let injects = !plan.tools.is_empty();
    let stands_in = injection.code_tool.is_some();
    let takes_skills = !injection.own_skills.is_empty() || injection.own_inline_skills;
    let asks = fields.code_execution || stands_in || (fields.code_tool.is_some() && takes_skills);
    let native = asks && injects && !plan.litellm && kind == CallKind::Generate;
    DriveSettings {
        max_rounds: snapshot.runtime.max_tool_rounds,
        deadline: snapshot.runtime.deadline,
        last_note: knack_skill::texts::LAST_CALL,
        limit_text: knack_skill::texts::LIMIT_REACHED,
        lost_text: knack_skill::texts::NO_LONGER_AVAILABLE,
        max_calls: CALLS_PER_TURN,
        calls_text: &CALLS_TEXT,
        native,
        run_tool: hidden.run_tool.clone(),
        container: container.map(|container| container.shown.clone()),
        litellm: plan.litellm,
        array,
        request_id: Some(log.request_id.clone()),
    }
}

/// The memory of each run of a request: the least of what its code tool asks for and its container has.
fn memory_of_runs(fields: &RequestFields, container: Option<&Container>) -> Option<u64> {
    let asked = fields.code_tool.as_ref().and_then(|tool| tool.memory_bytes);
    let allowed = container.and_then(named::memory_bytes);
    asked.into_iter().chain(allowed).min()
}

async fn container(
    gateway: &Gateway,
    (fields, plan, injection): (&RequestFields, &Plan, &Injection),
    route: (Format, CallKind),
    (hidden, log, parts): (&HiddenTurnLookup, &RequestLog, &http::request::Parts),
    named: Option<Container>,
) -> Result<Option<AnswerContainer>, Fault> {
    let asked = ContainerContext {
        fields,
        plan,
        injection,
        route,
        caller: &hidden.caller,
        address: caller::unchecked_address(parts),
        request_id: &log.request_id,
        beta: Dialect::of(&parts.headers, SKILLS_BETA) == Dialect::Anthropic { beta: true },
    };
    answer_container::of(gateway, &asked, named).await
}

fn tool_runner(
    gateway: &Gateway,
    executor: Arc<dyn Executor>,
    (snapshot, max_memory_bytes): (&Arc<Snapshot>, Option<u64>),
    plan: &Arc<Plan>,
    (hidden, log): (&HiddenTurnLookup, &RequestLog),
    request: &knack_wire::Request,
) -> Arc<ToolRunner> {
    let runner = ToolRunner {
        snapshot: Arc::clone(snapshot),
        max_memory_bytes,
        plan: Arc::clone(plan),
        request_start: executor.now(),
        executor,
        grants: Arc::clone(&gateway.grants),
        caller_key: hidden.bucket(),
        request_id: log.request_id.clone(),
        public_url: gateway.public_url.clone(),
        requests: gateway.requests.clone(),
        history: gateway.history.clone(),
        state: Mutex::new(LoopState::default()),
    };
    runner.stage_attachments_later(request.clone());
    Arc::new(runner)
}
