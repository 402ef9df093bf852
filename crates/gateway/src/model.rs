//! A model call: body, view, plan, loop, answer.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use knack_execution::Executor;
use knack_serving::aside;
use knack_skill::plan::{Action, Active, Note, Plan, Why};
use knack_vocabulary::{HEADER_KNACK, HEADER_SKILLS};
use knack_wire::drive::{BodyKind, ClientHead};
use knack_wire::history::Caller;
use knack_wire::{CallKind, Drive, DriveSettings, Fault, Format, Injection, ModelRoute, View};
use tokio::time::Instant;

use super::answer_container::{self, AnswerContainer, ContainerContext};
use super::caller;
use super::code_tools;
use super::exchange::{AnswerPiece, Exchange, ExchangeParts, UpstreamTarget};
use super::fault::{REQUEST_ID, RETRY_AFTER_SECONDS, body_fault, fault, fault_of};
use super::forwarded_headers::forward_request_headers;
use super::hidden::Hidden;
use super::inject;
use super::log::RequestLog;
use super::provider::Api;
use super::recorder::Recording;
use super::skill_metrics::{SkillUse, Use};
use super::state::Gateway;
use super::tools::{LoopState, ToolRunner};
use super::trace::RequestTrace;
use super::user_files::{Container, named};
use crate::catalog::Snapshot;

/// The header with the id that the log and the spans of a request have; answers and refusals carry it.
const HEADER_REQUEST_ID: &str = "x-knack-request-id";

/// Serves one call of a model API.
pub async fn serve(gateway: Arc<Gateway>, route: ModelRoute, request: Request) -> Response {
    let begun = Instant::now();
    let (format, kind) = (route.format, route.kind);
    let log = RequestLog {
        request_id: request_id(),
        begun: jiff::Timestamp::now(),
        format: word(format),
        ..RequestLog::default()
    };
    let (parts, body) = request.into_parts();
    let mut trace = RequestTrace::begin(&gateway.tracer, &route, &parts, begun);
    let caller = caller::identify(&gateway.secret.current(), &parts.headers, &parts.uri);
    let mut held = match gateway.requests.read(&caller.bucket(), &parts.headers, body).await {
        Ok(held) => held,
        Err(error) => return refuse(&gateway, (log, trace), begun, &body_fault(error), format),
    };
    let recording = recording(&gateway, &log.request_id, &held.bytes);
    let mut named = match named::resolve(&gateway, &caller, &route, &mut held.bytes).await {
        Ok(named) => named,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let (served, snapshot) = gateway.served_to(&parts).await;
    trace.catalog(&snapshot.revision);
    let size = held.bytes.len();
    let header = skills_header(&parts.headers);
    let Prepared {
        request,
        view,
        plan,
        injection,
        injecting,
    } = match read_request(
        &gateway,
        &snapshot,
        route,
        (held.bytes.clone(), named.runs_here),
        header,
    )
    .await
    {
        Ok(prepared) => prepared,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let log = describe(log, &view, &plan, &snapshot);
    let hidden = hidden(caller, (&gateway, &snapshot), (&plan, injecting), format);
    let mut target = target(&parts, format);
    let array = asks_for_events(&mut target, &view, !injection.tools().is_empty(), format);
    let mut settings = settings(&view, (&plan, &injection), &snapshot, kind);
    settings.request_id = Some(log.request_id.clone());
    let allowed = named.container.as_ref().and_then(named::memory_bytes);
    let asked = (&view, &*plan, &injection);
    let container = container(&gateway, asked, (format, kind), (&hidden, &log), named.container).await;
    settings.container = container.as_ref().map(|container| container.shown.clone());
    settings.array = array;
    settings.run_tool.clone_from(&hidden.run_tool);
    let tools = (!injection.tools().is_empty()).then(|| {
        let asked = view.code_tool.as_ref().and_then(|tool| tool.memory_bytes);
        let memory = asked.into_iter().chain(allowed).min();
        let runner = tool_runner(&gateway, served.executor, (&snapshot, memory), &plan, &hidden, &log);
        runner.stage_attachments_later(request.clone());
        Arc::new(runner)
    });
    let knack_header = knack_header(&snapshot, &plan);
    let drive = match aside(size, move || Drive::with_view(request, view, injection, settings)).await {
        Ok(drive) => drive,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    // The files take their share as they are staged.
    drop(named.holding.take());
    let exchange = Exchange::start(
        Arc::clone(&gateway),
        ExchangeParts {
            drive,
            target,
            tools,
            hidden,
            recording,
            log,
            trace,
            begun,
            held,
            given: named.files,
            container: container.and_then(|container| container.id),
        },
    )
    .await;
    first(exchange, knack_header, format).await
}

/// The recording of a request, begun with its body.
fn recording(gateway: &Gateway, request_id: &str, body: &Bytes) -> Option<Recording> {
    let recording = gateway.recorder.as_ref()?.request(request_id);
    recording.write("request.json", body.clone());
    Some(recording)
}

/// The answer, from its head on.
async fn first(mut exchange: Box<Exchange>, knack_header: HeaderValue, format: Format) -> Response {
    match exchange.next().await {
        Some(AnswerPiece::Head(head)) => answer(exchange, head, knack_header),
        // The loop always begins with a head; without one there is nothing left to say.
        Some(AnswerPiece::Bytes(_) | AnswerPiece::Broken) | None => {
            fault(&Fault::new(500, "The gateway could not begin its answer."), format)
        }
    }
}

/// Reads a body and decides what is injected; a large one on a thread that may take long.
async fn read_request(
    gateway: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    route: ModelRoute,
    (bytes, names_files): (Bytes, bool),
    header: Result<Option<String>, Fault>,
) -> Result<Prepared, Fault> {
    let (gateway, snapshot) = (Arc::clone(gateway), Arc::clone(snapshot));
    aside(bytes.len(), move || {
        let request = knack_wire::Request::parse(route, bytes)?;
        prepare(request, header, &snapshot, (&gateway, names_files))
    })
    .await
}

/// Where the request goes, with the headers of its client.
fn target(parts: &http::request::Parts, format: Format) -> UpstreamTarget {
    let path_and_query = parts.uri.path_and_query();
    UpstreamTarget {
        api: Api::of_format(format),
        path_and_query: path_and_query.map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        headers: forward_request_headers(&parts.headers),
    }
}

/// Gemini answers a stream without `alt=sse` as one array, which ends only with the answer. Where the loop reads the
/// answer, the upstream is asked for events, and the client gets its array all the same. True if it does.
fn asks_for_events(target: &mut UpstreamTarget, view: &View, reads: bool, format: Format) -> bool {
    if format != Format::Gemini || !view.stream || !reads {
        return false;
    }
    let events = knack_wire::route::with_events(&target.path_and_query);
    let array = events != target.path_and_query;
    target.path_and_query = events;
    array
}

/// The answer to a call beyond the limit, if the client's own calls of that turn keep the loop alive.
const LIMIT_REACHED: &str = "Limit of skill calls for this request reached; answer without them.";
/// Skill calls of one turn that are run: as many as a model makes that splits work over parallel calls.
const CALLS_PER_TURN: usize = 32;

fn hidden(
    caller: Caller,
    (gateway, snapshot): (&Gateway, &Arc<Snapshot>),
    (plan, injecting): (&Arc<Plan>, bool),
    format: Format,
) -> Hidden {
    let run_code = plan.tools.iter().find(|tool| matches!(tool.action, Action::RunCode));
    Hidden {
        caller,
        snapshot: Arc::clone(snapshot),
        plan: Arc::clone(plan),
        injecting,
        run_tool: run_code.map(|tool| tool.name.clone()),
        runs_here: code_tools::runs_here(&gateway.sandbox_code_tools, format),
        chain: None,
    }
}

/// Whether hidden turns come back into this request. A choice of no tools injects nothing, and still needs its history
/// (docs/design/conversation.md#when-nothing-is-injected), unless the format refuses calls in a history without any declared tool.
fn expands(view: &View, (plan, injection): (&Plan, &Injection), format: Format) -> bool {
    use knack_wire::request::ToolChoice;
    let closed_by_choice = view.closed.is_some() || matches!(view.tool_choice, ToolChoice::None | ToolChoice::Allowed);
    let taken_out = usize::from(injection.code_tool.is_some());
    let may_hold_calls = format != Format::Messages || view.client_tools.len() > taken_out;
    !plan.off || (closed_by_choice && may_hold_calls)
}

struct Prepared {
    request: knack_wire::Request,
    view: View,
    plan: Arc<Plan>,
    injection: Injection,
    /// Whether hidden turns come back.
    injecting: bool,
}

fn prepare(
    request: knack_wire::Request,
    header: Result<Option<String>, Fault>,
    snapshot: &Snapshot,
    (gateway, names_files): (&Gateway, bool),
) -> Result<Prepared, Fault> {
    let mut view = request.view()?;
    let format = request.format();
    let lacks = code_tools::runs_here(&gateway.sandbox_code_tools, format) || code_tools::is_own(&view, names_files);
    code_tools::opens(&mut view, lacks);
    let run_code = code_tools::run_code(&view, format, lacks);
    let mut plan = inject::make_plan(&request, &view, header?.as_deref(), snapshot, run_code)?;
    let (injection, injecting) = if snapshot.runtime.suspend {
        plan.off = true;
        plan.notes.push(Note {
            skill: None,
            text: "suspended by the runtime".to_owned(),
        });
        (Injection::default(), false)
    } else {
        let code_tool = code_tools::stands_in(&view, &plan, snapshot.absent.is_none(), (format, lacks))?;
        let injection = inject::injection(&plan, &view, &gateway.materials, code_tool);
        let injecting = expands(&view, (&plan, &injection), format);
        (injection, injecting)
    };
    Ok(Prepared {
        request,
        view,
        plan: Arc::new(plan),
        injection,
        injecting,
    })
}

/// All values of `x-knack-skills`, joined as one list.
fn skills_header(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let values: Result<Vec<&str>, _> = headers.get_all(HEADER_SKILLS).iter().map(HeaderValue::to_str).collect();
    let values = values.map_err(|_| {
        Fault::bad(
            HEADER_SKILLS,
            "The header x-knack-skills is not text; write skill names separated by commas.",
        )
    })?;
    Ok((!values.is_empty()).then(|| values.join(",")))
}

fn describe(mut log: RequestLog, view: &View, plan: &Plan, snapshot: &Snapshot) -> RequestLog {
    log.revision.clone_from(&snapshot.revision);
    log.model.clone_from(&view.model);
    log.stream = view.stream;
    log.skills = plan
        .active
        .iter()
        .map(|active| format!("{} ({})", active.handle, why(active.why)))
        .collect();
    log.uses = plan.active.iter().map(carried).collect();
    if !plan.off {
        log.listed = snapshot.listed;
    }
    log.added_tokens = plan.added_tokens;
    log.notes = plan
        .notes
        .iter()
        .map(|note| {
            note.skill.as_ref().map_or_else(
                || note.text.clone(),
                |skill| format!("skill {}: {}", skill.name, note.text),
            )
        })
        .collect();
    log
}

fn carried(active: &Active) -> SkillUse {
    SkillUse {
        skill: format!("{}/{}", active.skill.id.namespace, active.skill.id.name),
        what: Use::Carried,
        tokens: knack_skill::texts::tokens(active.skill.body.len()),
        call: None,
    }
}

const fn why(why: Why) -> &'static str {
    match why {
        Why::Always => "always",
        Why::Mention => "@mention",
        Why::Header => "header",
        Why::Container | Why::Litellm => "container",
        Why::Auto => "auto",
    }
}

fn settings(view: &View, (plan, injection): (&Plan, &Injection), snapshot: &Snapshot, kind: CallKind) -> DriveSettings {
    let injects = !plan.tools.is_empty();
    let stands_in = injection.code_tool.is_some();
    let asks = view.code_execution || stands_in || (view.code_tool.is_some() && !injection.own_skills.is_empty());
    let native = asks && injects && !plan.litellm && kind == CallKind::Generate;
    DriveSettings {
        max_rounds: snapshot.runtime.max_tool_rounds,
        deadline: snapshot.runtime.deadline,
        last_note: knack_skill::texts::LAST_CALL.to_owned(),
        limit_text: LIMIT_REACHED.to_owned(),
        lost_text: knack_skill::texts::NO_LONGER_AVAILABLE.to_owned(),
        max_calls: CALLS_PER_TURN,
        calls_text: knack_skill::texts::too_many_calls(CALLS_PER_TURN),
        native,
        run_tool: None,
        container: None,
        litellm: plan.litellm,
        array: false,
        request_id: None,
    }
}

async fn container(
    gateway: &Gateway,
    (view, plan, injection): (&View, &Plan, &Injection),
    route: (Format, CallKind),
    (hidden, log): (&Hidden, &RequestLog),
    named: Option<Container>,
) -> Option<AnswerContainer> {
    let asked = ContainerContext {
        view,
        plan,
        injection,
        route,
        caller: &hidden.bucket(),
        request_id: &log.request_id,
    };
    answer_container::of(gateway, &asked, named).await
}

fn tool_runner(
    gateway: &Gateway,
    executor: Arc<dyn Executor>,
    (snapshot, max_memory_bytes): (&Arc<Snapshot>, Option<u64>),
    plan: &Arc<Plan>,
    hidden: &Hidden,
    log: &RequestLog,
) -> ToolRunner {
    ToolRunner {
        snapshot: Arc::clone(snapshot),
        max_memory_bytes,
        plan: Arc::clone(plan),
        executor,
        grants: Arc::clone(&gateway.grants),
        caller: knack_skill::digest::hex(&hidden.bucket()),
        caller_key: hidden.bucket(),
        request_id: log.request_id.clone(),
        request_start: knack_execution::now(),
        public_url: gateway.public_url.clone(),
        requests: gateway.requests.clone(),
        history: gateway.history.clone(),
        state: Mutex::new(LoopState::default()),
    }
}

/// `x-knack`: what was done to this request, for a person with curl.
fn knack_header(snapshot: &Snapshot, plan: &Plan) -> HeaderValue {
    let skills: Vec<&str> = plan.active.iter().map(|active| &*active.handle).collect();
    let text = format!(
        "revision={}; skills={}; added-tokens={}",
        snapshot.revision,
        skills.join(","),
        plan.added_tokens
    );
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("revision=?"))
}

fn answer(mut exchange: Box<Exchange>, head: ClientHead, knack_header: HeaderValue) -> Response {
    let mut headers = if head.upstream_headers {
        exchange.take_headers()
    } else {
        HeaderMap::new()
    };
    match head.body {
        BodyKind::AsUpstream => {}
        BodyKind::Stream => {
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/event-stream; charset=utf-8"),
            );
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        }
        BodyKind::Json => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
    if head.status == 503 && !head.upstream_headers && !head.no_retry {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    if head.no_retry {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    headers.insert(HeaderName::from_static(HEADER_KNACK), knack_header);
    if let Ok(id) = HeaderValue::from_str(&exchange.log().request_id) {
        // An answer of ours has no id of the provider.
        if exchange.log().format == word(Format::Messages) && !head.upstream_headers {
            headers.insert(REQUEST_ID, id.clone());
        }
        headers.insert(HEADER_REQUEST_ID, id);
    }
    let pieces = futures::stream::unfold(exchange, |mut exchange| async move {
        loop {
            match exchange.next().await? {
                AnswerPiece::Bytes(bytes) => return Some((Ok(bytes), exchange)),
                AnswerPiece::Broken => return Some((Err(std::io::Error::other("the provider broke off")), exchange)),
                AnswerPiece::Head(_) => {}
            }
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers;
    response
}

fn refuse(
    gateway: &Gateway,
    (mut log, mut trace): (RequestLog, RequestTrace),
    begun: Instant,
    error: &Fault,
    format: Format,
) -> Response {
    let request_id = HeaderValue::from_str(&log.request_id);
    log.status = error.status;
    log.end = Some(error.message.clone());
    log.duration = begun.elapsed();
    log.publish(&*gateway.console, &gateway.metrics, &gateway.recent);
    trace.finish(&log, false);
    let mut response = fault_of(error, format, &log.request_id);
    if let Ok(id) = request_id {
        response.headers_mut().insert(HEADER_REQUEST_ID, id);
    }
    response
}

const fn word(format: Format) -> &'static str {
    match format {
        Format::Chat => "chat",
        Format::Messages => "messages",
        Format::Responses => "responses",
        Format::Gemini => "gemini",
    }
}

/// A UUIDv7: sorts by time, so that log lines and recordings do too.
fn request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
