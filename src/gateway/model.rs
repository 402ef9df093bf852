//! A model call: body, view, plan, loop, answer.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use knack_skill::plan::{Action, Plan, Why};
use knack_wire::drive::{BodyKind, ClientHead};
use knack_wire::history::Caller;
use knack_wire::{Drive, Fault, Format, Injection, Kind, ModelRoute, Settings, View};
use tokio::time::Instant;

use super::app::{RETRY_AFTER_SECONDS, fault};
use super::budget::BodyError;
use super::caller;
use super::exchange::{Exchange, Parts, Piece, Target};
use super::hidden::Hidden;
use super::inject::{self, Materials};
use super::observe::RequestLog;
use super::state::Gateway;
use super::tenants::Tenant;
use super::tools::{LoopState, ToolRunner};
use super::trace::RequestTrace;
use super::upstream::{Api, forward_request_headers};
use crate::api::vocabulary::{HEADER_KNACK, HEADER_SKILLS};
use crate::catalog::Snapshot;
use crate::execution::Executor;
use crate::serving::aside;
use crate::serving::bodies::{ARRIVE_TIMEOUT, SILENCE_TIMEOUT};

/// Serves one call of a model API.
pub async fn serve(gateway: Arc<Gateway>, route: ModelRoute, request: Request) -> Response {
    let begun = Instant::now();
    let (format, kind) = (route.format, route.kind);
    let log = RequestLog {
        request_id: request_id(),
        format: word(format),
        ..RequestLog::default()
    };
    let (parts, body) = request.into_parts();
    let mut trace = RequestTrace::begin(&gateway.tracer, &route, &parts, begun);
    let caller = caller::identify(&gateway.secret.current(), &parts.headers, &parts.uri);
    let held = match gateway.requests.read(&caller.bucket(), &parts.headers, body).await {
        Ok(held) => held,
        Err(error) => return refuse(&gateway, (log, trace), begun, &body_fault(error), format),
    };
    let recording = gateway
        .recorder
        .as_ref()
        .map(|recorder| recorder.request(&log.request_id));
    if let Some(recording) = &recording {
        recording.write("request.json", held.bytes.clone());
    }
    // A client that is known is served what its namespace sees; where clients are unknown, all are served the same.
    let served = match parts.extensions.get::<Tenant>() {
        Some(tenant) => tenant.served().await,
        None => gateway.served(),
    };
    let snapshot = served.catalog.snapshot().await;
    trace.catalog(&snapshot.revision);
    let size = held.bytes.len();
    let header = skills_header(&parts.headers);
    let Prepared {
        request,
        view,
        plan,
        injection,
    } = match read_request(&gateway, &snapshot, route, held.bytes.clone(), header).await {
        Ok(prepared) => prepared,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let log = describe(log, &view, &plan, &snapshot);
    let hidden = hidden(caller, &snapshot, &view, &plan, format);
    let settings = settings(
        &view,
        &plan,
        &snapshot,
        hidden.concerns(&gateway, &request),
        (format, kind),
        &log.request_id,
    );
    let tools = (!injection.tools().is_empty()).then(|| {
        let runner = tool_runner(&gateway, served.executor, &snapshot, &plan, &hidden, &log);
        runner.stage_attachments_later(request.clone());
        Arc::new(runner)
    });
    let knack_header = knack_header(&snapshot, &plan);
    let drive = match aside(size, move || Drive::with_view(request, view, injection, settings)).await {
        Ok(drive) => drive,
        Err(error) => return refuse(&gateway, (log, trace), begun, &error, format),
    };
    let target = target(&parts, format);
    let mut exchange = Exchange::start(
        Arc::clone(&gateway),
        Parts {
            drive,
            target,
            tools,
            hidden,
            recording,
            log,
            trace,
            begun,
            held,
        },
    );
    match exchange.next().await {
        Some(Piece::Head(head)) => answer(exchange, head, knack_header),
        // The loop always begins with a head; without one there is nothing left to say.
        Some(Piece::Bytes(_) | Piece::Broken) | None => {
            fault(&Fault::new(500, "The gateway could not begin its answer."), format)
        }
    }
}

/// Reads a body and decides what it gets; a large one on a thread that may take long.
async fn read_request(
    gateway: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    route: ModelRoute,
    bytes: Bytes,
    header: Result<Option<String>, Fault>,
) -> Result<Prepared, Fault> {
    let (gateway, snapshot) = (Arc::clone(gateway), Arc::clone(snapshot));
    aside(bytes.len(), move || {
        knack_wire::Request::parse(route, bytes)
            .and_then(|request| prepare(request, header, &snapshot, &gateway.materials))
    })
    .await
}

/// Where the request goes, with the headers of its client.
fn target(parts: &http::request::Parts, format: Format) -> Target {
    let path_and_query = parts.uri.path_and_query();
    Target {
        api: Api::of_format(format),
        path_and_query: path_and_query.map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        headers: forward_request_headers(&parts.headers),
    }
}

/// What the model is told about a call beyond the limit, if the client's own calls of that turn keep the loop alive.
const LIMIT_REACHED: &str = "Limit of skill calls for this request reached; answer without them.";
/// Skill calls of one turn that are run: what a model that splits work over parallel calls asks for, and no flood.
const CALLS_PER_TURN: usize = 32;

fn hidden(caller: Caller, snapshot: &Arc<Snapshot>, view: &View, plan: &Arc<Plan>, format: Format) -> Hidden {
    let run_code = plan.tools.iter().find(|tool| matches!(tool.action, Action::RunCode));
    Hidden {
        caller,
        snapshot: Arc::clone(snapshot),
        plan: Arc::clone(plan),
        injecting: !snapshot.runtime.suspend && expands(view, plan, format),
        run_tool: run_code.map(|tool| tool.name.clone()),
    }
}

/// Whether hidden turns come back into this request. A choice of no tools injects nothing, and still needs its history
/// (docs/design/conversation.md#when-nothing-is-injected), unless the format refuses calls in a history without any declared tool.
fn expands(view: &View, plan: &Plan, format: Format) -> bool {
    use knack_wire::request::ToolChoice;
    let closed_by_choice = view.closed.is_some() || matches!(view.tool_choice, ToolChoice::None | ToolChoice::Allowed);
    let may_hold_calls = format != Format::Messages || !view.client_tools.is_empty();
    !plan.off || (closed_by_choice && may_hold_calls)
}

struct Prepared {
    request: knack_wire::Request,
    view: View,
    plan: Arc<Plan>,
    injection: Injection,
}

fn prepare(
    request: knack_wire::Request,
    header: Result<Option<String>, Fault>,
    snapshot: &Snapshot,
    materials: &Materials,
) -> Result<Prepared, Fault> {
    let view = request.view()?;
    let mut plan = inject::make_plan(&request, &view, header?.as_deref(), snapshot)?;
    let mut injection = inject::injection(&plan, &view, materials);
    if snapshot.runtime.suspend {
        injection = Injection::default();
        plan.off = true;
    }
    Ok(Prepared {
        request,
        view,
        plan: Arc::new(plan),
        injection,
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
    log.model.clone_from(&view.model);
    log.stream = view.stream;
    log.skills = plan
        .active
        .iter()
        .map(|active| format!("{} ({})", active.handle, why(active.why)))
        .collect();
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
    if snapshot.runtime.suspend {
        log.notes.push("suspended by the runtime".to_owned());
    }
    log
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

fn settings(
    view: &View,
    plan: &Plan,
    snapshot: &Snapshot,
    lookup: bool,
    (format, kind): (Format, Kind),
    request_id: &str,
) -> Settings {
    let injects = !plan.tools.is_empty();
    let native = view.code_execution && injects && !plan.litellm && kind == Kind::Generate;
    // Ours are taken out of the container that goes upstream and come back in the response's: in the vendor's container,
    // beside native skills, or where it gives none in one of ours.
    let answers = format == Format::Messages && kind == Kind::Generate && !plan.litellm;
    let names_ours = answers && !plan.container.ours.is_empty();
    Settings {
        max_rounds: snapshot.runtime.max_tool_rounds,
        deadline: snapshot.runtime.deadline,
        last_note: knack_skill::texts::LAST_CALL.to_owned(),
        limit_text: LIMIT_REACHED.to_owned(),
        max_calls: CALLS_PER_TURN,
        calls_text: knack_skill::texts::too_many_calls(CALLS_PER_TURN),
        native,
        container: names_ours.then(|| container(view, plan, request_id)),
        litellm: plan.litellm,
        lookup,
    }
}

/// The response's `container` member, where the vendor gives none. Its id is ours by prefix and means nothing when it comes back.
fn container(view: &View, plan: &Plan, request_id: &str) -> String {
    let skills: Vec<_> = plan
        .container
        .ours
        .iter()
        .filter_map(|&index| view.container_skills.get(index))
        .map(|skill| serde_json::json!({"type": skill.kind, "skill_id": skill.id, "version": skill.version.as_deref().unwrap_or("latest")}))
        .collect();
    let expires = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::from_hours(1))
        .unwrap_or(jiff::Timestamp::MAX);
    let id = format!("container_knack_{}", request_id.replace('-', ""));
    serde_json::json!({"id": id, "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "skills": skills})
        .to_string()
}

fn tool_runner(
    gateway: &Gateway,
    executor: Arc<dyn Executor>,
    snapshot: &Arc<Snapshot>,
    plan: &Arc<Plan>,
    hidden: &Hidden,
    log: &RequestLog,
) -> ToolRunner {
    ToolRunner {
        snapshot: Arc::clone(snapshot),
        plan: Arc::clone(plan),
        executor,
        grants: Arc::clone(&gateway.grants),
        caller: crate::digest::hex(&hidden.bucket()),
        caller_key: hidden.bucket(),
        request_id: log.request_id.clone(),
        request_start: crate::execution::now(),
        public_url: gateway.public_url.clone(),
        requests: gateway.requests.clone(),
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

fn answer(mut exchange: Exchange, head: ClientHead, knack_header: HeaderValue) -> Response {
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
        headers.insert("x-knack-request-id", id);
    }
    let pieces = futures::stream::unfold(exchange, |mut exchange| async move {
        loop {
            match exchange.next().await? {
                Piece::Bytes(bytes) => return Some((Ok(bytes), exchange)),
                Piece::Broken => return Some((Err(std::io::Error::other("the provider broke off")), exchange)),
                Piece::Head(_) => {}
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
    log.status = error.status;
    log.end = Some(error.message.clone());
    log.duration = begun.elapsed();
    log.publish(&*gateway.console, &gateway.metrics);
    trace.finish(&log, false);
    fault(error, format)
}

/// What a client is told about a body that was not taken.
pub fn body_fault(error: BodyError) -> Fault {
    match error {
        BodyError::TooLarge => Fault {
            retry: false,
            ..Fault::new(
                413,
                "The request body is larger than 32 MiB, which is the most that this gateway takes.",
            )
        },
        BodyError::Busy(_) => Fault::new(
            503,
            "The gateway holds too many large requests at this moment; try again in a second.",
        ),
        BodyError::Late => Fault::new(
            408,
            format!(
                "The request body did not arrive in time: the gateway waits {} s for the next piece of it, and {} s for all.",
                SILENCE_TIMEOUT.as_secs(),
                ARRIVE_TIMEOUT.as_secs()
            ),
        ),
        BodyError::Broken => Fault::new(400, "The request body broke off before its end."),
    }
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
