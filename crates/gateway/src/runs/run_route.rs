//! One run of a skill for a user, `POST /api/v1/skills/{name}/run` of Agent Flow: the filled template is sent to the model
//! as a request of Chat Completions, with the skill's own tools, and the answer comes back as events.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use knack_registry::{AgentFlow, ApiCall, RefusalKind, deny, read_json, refuse};
use knack_serving::run_off_thread_if_large;
use knack_serving::sources::SourcePermit;
use knack_skill::agent_flow::{
    ApiError, RUN_SYSTEM, RunEnd, RunEvent, RunSettings, Status, begin_run, check_name, end_run, not_found,
    parse_run_body, run_token,
};
use knack_skill::catalog::CatalogEntry;
use knack_skill::template::{FilledTooLarge, MAX_FILLED_BYTES, MissingInput};
use knack_vocabulary::HEADER_SKILLS;
use knack_wire::drive::EndKind;
use knack_wire::frame::{SseDecoder, SseEvent, push_event};
use knack_wire::{CallKind, Format, ModelRoute};
use serde_json::{Value, json};

use super::skill_runs::{RunAnswer, RunOrigin, RunReading, TOO_MANY_RUNS};
use crate::callers::caller;
use crate::http_server::budget::{BodyError, HeldBody, Holding};
use crate::http_server::request_id::RequestId;
use crate::model_calls::exchange::insert_stream_headers;
use crate::model_calls::model;
use crate::providers::provider::Api;
use crate::skills_api::upload_routes;
use crate::skills_api::uploads::Uploads;
use crate::state::Gateway;
use crate::telemetry::log::SKILLS_API;
use crate::telemetry::own_request::OwnRequest;
use crate::telemetry::request_report::cut_copy;

/// Where the request to the model goes.
const CHAT: &str = "/v1/chat/completions";
/// Sent to a client while a tool runs, so that no proxy closes the idle connection.
const HEARTBEAT: &[u8] = b": heartbeat\n\n";
/// In the log, of an answer whose event exceeds the bound.
const TOO_LARGE: &str = "The upstream sent an event that is too large.";
/// In the log, of an answer that is not of Chat Completions.
const NOT_CHAT: &str = "The upstream sent something that is not an event of its format.";
/// A body, and the inputs that are read from it, are there at one time.
const COPIES_OF_INPUTS: usize = 2;
/// Copies of the prompt in memory at one time: the filled text, and the request that is written from it.
const COPIES_OF_PROMPT: usize = 2;

/// A run that was accepted.
struct AcceptedRun {
    /// The events before the model is called.
    first: Vec<RunEvent>,
    /// `None`: an input is missing.
    request: Option<RunRequest>,
    turn: SourcePermit,
}

/// The request of a run to its model.
struct RunRequest {
    request: Request,
    /// The memory of its body, until the model's side takes its own for it.
    holding: Holding,
}

/// The call of a request that is a run, and the name of its skill.
pub(crate) fn route(request: &Request) -> Option<(ApiCall, String)> {
    let uri = request.uri();
    let call = knack_registry::route(request.method(), uri.path(), uri.query(), request.headers())?;
    let ApiCall::AgentFlow(AgentFlow::Run(name)) = &call else {
        return None;
    };
    let name = name.clone();
    Some((call, name))
}

/// Serves a run of the skill `name`. Without a credential that is needed the answer is that of `uploads`.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    uploads: &dyn Uploads,
    (call, name): (ApiCall, String),
    request: Request,
) -> Response {
    if upload_routes::lacks_credential(uploads, &request) {
        return upload_routes::serve(&gateway, uploads, request).await;
    }
    let own = OwnRequest::begin(&gateway, SKILLS_API, &request);
    let (parts, body) = request.into_parts();
    match accept(&gateway, &name, &call, &parts, body).await {
        Ok(run) if run.request.is_none() => own.answered(answer(Arc::clone(&gateway), run)),
        Ok(run) => {
            // Its request to the model is reported, under the same id.
            own.reported_elsewhere();
            answer(gateway, run)
        }
        Err(refused) => own.answered(*refused),
    }
}

/// Takes a run in. Error: the refusal, in the shape of the API.
async fn accept(
    gateway: &Arc<Gateway>,
    name: &str,
    call: &ApiCall,
    parts: &Parts,
    body: Body,
) -> Result<AcceptedRun, Box<Response>> {
    let request_id = RequestId::find(&parts.extensions);
    let request_id = request_id.as_str();
    let api = Api::of_format(Format::Chat);
    gateway.upstreams.admit(api, &Method::POST, CHAT).map_err(|fault| {
        let denial = if fault.status == 403 {
            RefusalKind::Forbidden
        } else {
            RefusalKind::Unavailable
        };
        Box::new(deny(call, denial, fault.message, None, request_id).map(Body::from))
    })?;
    let counted = caller::counted(&gateway.secret.current(), parts).bucket();
    let source = knack_skill::digest::hex(&counted);
    let turn = gateway
        .skill_runs
        .admit(&source, caller::unchecked_address(parts))
        .map_err(|seconds| {
            let text = TOO_MANY_RUNS.to_owned();
            Box::new(deny(call, RefusalKind::Throttled, text, Some(seconds), request_id).map(Body::from))
        })?;
    let held = gateway.requests.read(&counted, &parts.headers, body).await;
    let held = held.map_err(|error| Box::new(unread(parts, error)))?;
    let refused = |error| Box::new(refuse(call, error, request_id).map(Body::from));
    let HeldBody { bytes, mut holding } = held;
    let length = bytes.len();
    let mut room = |bytes: usize| {
        holding
            .grow_to(bytes)
            .map_err(|over| Box::new(unread(parts, over.into())))
    };
    room(length.saturating_mul(COPIES_OF_INPUTS))?;
    let given = run_off_thread_if_large(length, move || inputs(&bytes))
        .await
        .map_err(refused)?;
    let (_, snapshot) = gateway.served_to(parts).await;
    if snapshot.is_suspended() || snapshot.absent.is_some() {
        let text = format!("Skill '{name}' cannot run at this moment: this gateway serves no skills");
        let denied = deny(call, RefusalKind::Unavailable, text, Some(5), request_id);
        return Err(Box::new(denied.map(Body::from)));
    }
    let entry = snapshot.catalog.find(name).ok_or_else(|| refused(missing(name)))?;
    let settings = RunSettings::of(&entry.skill.document);
    let model = settings.model.as_deref().or_else(|| gateway.skill_runs.model());
    let model = model.ok_or_else(|| refused(no_model(name)))?;
    let checked = match entry.missing_inputs(&given).first() {
        Some(input) => Err(MissingInput {
            name: input.name.clone(),
        }),
        None => Ok(()),
    };
    let request = if checked.is_ok() {
        let prompt_bytes = entry.body_bytes(&given).min(MAX_FILLED_BYTES);
        room(length + COPIES_OF_PROMPT * prompt_bytes)?;
        let prompt = entry.body(&given).map_err(|error| refused(too_long(name, error)))?;
        let body = chat_body(model, prompt, &settings).to_string();
        drop(given);
        room(body.len())?;
        holding.shrink_to(body.len());
        let request = chat(parts, entry, body);
        Some(RunRequest { request, holding })
    } else {
        None
    };
    Ok(AcceptedRun {
        first: begin_run(checked, settings.knowledge_base.as_deref()),
        request,
        turn,
    })
}

/// The refusal of a body that was not taken, or for which there is no memory.
fn unread(parts: &Parts, error: BodyError) -> Response {
    upload_routes::refused(parts, error, Format::Chat)
}

/// The inputs of a body.
fn inputs(body: &[u8]) -> Result<BTreeMap<String, String>, ApiError> {
    let body = read_json(body).map_err(|error| invalid("body", format!("the body is {error}")))?;
    parse_run_body(body)
}

fn too_long(name: &str, error: FilledTooLarge) -> ApiError {
    let message = format!("the instructions of skill '{name}' are too long with these inputs: {error}");
    invalid("inputs", message)
}

fn invalid(field: &str, message: String) -> ApiError {
    ApiError::new(Status::Invalid, field, message)
}

/// The refusal of a name that no skill has: what is wrong with it, if it is no legal one.
fn missing(name: &str) -> ApiError {
    check_name(name).err().unwrap_or_else(|| not_found(name))
}

fn no_model(name: &str) -> ApiError {
    let message = format!(
        "Skill '{name}' names no model, and this gateway has none for runs; write model: {{name: …}} into its SKILL.md, or start the gateway with --run-model"
    );
    invalid("model", message)
}

fn chat_body(model: &str, prompt: String, settings: &RunSettings) -> Value {
    let mut body = json!({
        "model": model,
        "messages": [{"role": "system", "content": RUN_SYSTEM}, {"role": "user"}],
        "stream": true,
    });
    // Moved, where the macro would copy it.
    body["messages"][1]["content"] = prompt.into();
    if let Some(temperature) = settings.temperature {
        body["temperature"] = temperature.into();
    }
    if let Some(max_tokens) = settings.max_tokens {
        body["max_tokens"] = max_tokens.into();
    }
    body
}

/// The request to the model, with the credentials of the client, and the id of the client's request.
fn chat(parts: &Parts, entry: &CatalogEntry, body: String) -> Request {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(CHAT);
    *request.headers_mut() = headers(&parts.headers);
    *request.extensions_mut() = parts.extensions.clone();
    request.extensions_mut().insert(RunOrigin {
        skill: entry.skill.id.clone(),
        path: cut_copy(parts.uri.path()),
        reading: RunReading::default(),
    });
    request
}

/// The headers of the client without those about the body that it sent, and the answer that it accepts.
fn headers(of_client: &HeaderMap) -> HeaderMap {
    let mut headers = of_client.clone();
    for name in [
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::HeaderName::from_static(HEADER_SKILLS),
    ] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

fn answer(gateway: Arc<Gateway>, run: AcceptedRun) -> Response {
    let stream = RunStream {
        gateway,
        stage: Stage::Begin(run.first, run.request),
        _turn: run.turn,
    };
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(bytes), stream))
    });
    let mut response = Response::new(Body::from_stream(body));
    insert_stream_headers(response.headers_mut());
    response
}

/// The events of one run as they come. Dropped with its connection, and the request to the model with it.
struct RunStream {
    gateway: Arc<Gateway>,
    stage: Stage,
    _turn: SourcePermit,
}

enum Stage {
    Begin(Vec<RunEvent>, Option<RunRequest>),
    Call(RunRequest),
    Read(Box<AnswerReader>),
    Ended,
}

impl RunStream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Begin(events, request) => {
                    self.stage = request.map_or(Stage::Ended, Stage::Call);
                    return Some(frames(&events));
                }
                Stage::Call(RunRequest { request, holding }) => {
                    // The path of a model's request takes memory for the same body at once.
                    drop(holding);
                    match call(Arc::clone(&self.gateway), request).await {
                        Some(reader) => self.stage = Stage::Read(reader),
                        None => return Some(frames(&end_run(RunEnd::Failed))),
                    }
                }
                Stage::Read(mut reader) => {
                    let (bytes, ended) = reader.read().await;
                    if !ended {
                        self.stage = Stage::Read(reader);
                    }
                    return Some(bytes);
                }
                Stage::Ended => return None,
            }
        }
    }
}

/// Calls the model; `None`: it was not reached, or refused. Why is in the log of that request.
async fn call(gateway: Arc<Gateway>, request: Request) -> Option<Box<AnswerReader>> {
    let route = ModelRoute::new(Format::Chat, CallKind::Generate);
    let origin = request.extensions().get::<RunOrigin>();
    let reading = origin.map(|origin| origin.reading.clone()).unwrap_or_default();
    let response = Box::pin(model::serve(gateway, route, request)).await;
    if !response.status().is_success() {
        reading.set(RunAnswer::Failed(EndKind::Upstream(response.status().as_u16())));
        return None;
    }
    Some(Box::new(AnswerReader {
        pieces: response.into_body().into_data_stream(),
        decoder: SseDecoder::new(),
        reading,
    }))
}

/// Reads an answer of Chat Completions.
struct AnswerReader {
    pieces: BodyDataStream,
    decoder: SseDecoder,
    reading: RunReading,
}

impl AnswerReader {
    /// The events of what comes next, and whether they are the last.
    async fn read(&mut self) -> (Bytes, bool) {
        loop {
            // An answer that broke has no further piece. Its exchange has ended with the reason.
            let piece = self.pieces.next().await;
            let is_broken = matches!(piece, Some(Err(_)));
            let piece = piece.and_then(Result::ok);
            let (reported, ended) = self.take(piece.as_deref(), is_broken);
            if ended || !reported.is_empty() {
                return (frames(&reported), ended);
            }
            if piece.is_some_and(|piece| piece.starts_with(b":")) {
                return (Bytes::from_static(HEARTBEAT), false);
            }
        }
    }

    /// The events of one piece, and whether they are the last; no piece is the end.
    fn take(&mut self, piece: Option<&[u8]>, is_broken: bool) -> (Vec<RunEvent>, bool) {
        let mut events = Vec::new();
        let is_too_large = piece.is_some_and(|piece| self.decoder.push(piece, &mut events).is_err());
        let mut reported = Vec::new();
        let mut read = events.iter().try_for_each(|event| self.report(event, &mut reported));
        if is_too_large {
            read = read.and(Err(EndKind::Fault(TOO_LARGE.to_owned())));
        }
        let ended = read.is_err() || piece.is_none();
        if ended {
            let end = if read.is_ok() && !is_broken && self.reading.is_whole() {
                RunEnd::Answered
            } else {
                RunEnd::Failed
            };
            reported.extend(end_run(end));
        }
        if let Err(end) = read {
            self.reading.set(RunAnswer::Failed(end));
        }
        (reported, ended)
    }

    /// Adds the run events of one event of the model to `reported`. Error: how the request ends, since the event is an
    /// error or none of the format.
    fn report(&self, event: &SseEvent, reported: &mut Vec<RunEvent>) -> Result<(), EndKind> {
        let Ok(chunk) = serde_json::from_slice::<Value>(&event.data) else {
            return if event.data == "[DONE]" {
                Ok(())
            } else {
                Err(EndKind::Fault(NOT_CHAT.to_owned()))
            };
        };
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(EndKind::Upstream(200));
        }
        let choice = &chunk["choices"][0];
        if let Some(text) = choice["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
            reported.push(run_token(text));
        }
        if choice["finish_reason"].is_string() {
            self.reading.set(RunAnswer::Whole);
        }
        Ok(())
    }
}

fn frames(events: &[RunEvent]) -> Bytes {
    let mut out = Vec::new();
    for event in events {
        push_event(&mut out, event.name.as_bytes(), event.data.to_string().as_bytes());
    }
    out.into()
}
