//! A request of the Skills APIs: who asks for which namespace, how often, with which body; then the APIs over the Skills.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use knack_hub_api::{HubRefusal, RefusalCode, is_label};
use knack_registry::{ApiCall, ApiRequest, Dialect, OmniRoute, Owner, Registry as Apis, no_such_path, route};
use knack_serving::probes::Probes as _;
use knack_serving::sources::{Pace, SourcePermit};
use knack_vocabulary::HEADER_CLIENT;
use uuid::Uuid;

use super::caller::authenticate;
use super::caller_store::CallerStore;
use super::offered::{OfferedInNamespace, of_problem};
use super::refusal::{denied, too_many};
use super::state::RegistryState;
use crate::account_auth::ServiceAccountCaller;
use crate::installer_index::{FOLDER, NotOffered};

/// Changes by the ServiceAccounts of one namespace: 60 a minute, 30 of them in a row, 4 at once. Each is several writes to etcd.
pub(super) const CHANGES: Pace = Pace {
    at_once: 4,
    burst: 30,
    refill: Duration::from_secs(1),
};
/// Reads by one ServiceAccount: 100 a second, 1,000 of them in a row, 64 at once. Each may be a question to the API server. A gateway's
/// account reads for all of its callers, of which it lets none have more than half of that.
pub(super) const READS: Pace = Pace {
    at_once: 64,
    burst: 1000,
    refill: Duration::from_millis(10),
};
/// The begin of an address that names a namespace.
const NAMESPACES: &str = "/namespaces/";

/// Answers a request, counts it and logs it.
pub(super) async fn answer(State(state): State<Arc<RegistryState>>, request: Request) -> Response<Body> {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let id = format!("req_knack_{}", Uuid::now_v7().simple());
    let unknown = |text: &str| no_such_path(&method, request.uri(), request.headers(), text, &id).map(Body::from);
    let (named, bare) = match namespace_of(&path) {
        Ok((named, bare)) => (named, bare.to_owned()),
        Err(text) => return unknown(&text),
    };
    if bare.starts_with(FOLDER) {
        let (who, response) = offer(&state, named, &path, request).await;
        state
            .metrics
            .answered("discovery", response.status().as_u16(), begun.elapsed().as_secs_f64());
        log(&method, &path, &response, begun, &who, &id);
        return response.map(Body::from);
    }
    let Some(call) = route(&method, &bare, request.uri().query(), request.headers()) else {
        return unknown("no such skill, or not a path of a Skills API; ids of uploaded skills start with skill_knack_");
    };
    let (parts, body) = request.into_parts();
    let incoming = Incoming {
        call: &call,
        request_id: &id,
        namespace: named,
        parts,
        body,
    };
    let (who, response) = respond(&state, incoming).await;
    let (status, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
    state.metrics.answered(api_of(&call), status, seconds);
    log(&method, &path, &response, begun, &who, &id);
    response.map(Body::from)
}

/// The line of a request in the log.
fn log(method: &Method, path: &str, response: &Response<Bytes>, begun: Instant, who: &str, id: &str) {
    let (status, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
    tracing::info!(request_id = id, %method, path, status, seconds, caller = who, "answered");
}

/// The caller's name for the log, and the index of the skills that it may list, or a file of one.
async fn offer(
    state: &RegistryState,
    named: Option<String>,
    path: &str,
    request: Request,
) -> (String, Response<Bytes>) {
    let (parts, _) = request.into_parts();
    let caller = match authenticate(&state.callers, &parts).await {
        Ok(caller) => caller,
        Err(refusal) => return (String::new(), of_problem(&refusal).response(path)),
    };
    let who = caller.name();
    let answered = offer_to(state, caller, named, &parts).await;
    (who, answered.unwrap_or_else(|refused| refused.response(path)))
}

async fn offer_to(
    state: &RegistryState,
    caller: ServiceAccountCaller,
    named: Option<String>,
    parts: &Parts,
) -> Result<Response<Bytes>, NotOffered> {
    let of_problem = |refusal: HubRefusal| of_problem(&refusal);
    demand_ready(state).map_err(of_problem)?;
    let before = named
        .as_ref()
        .map(|named| format!("{NAMESPACES}{named}"))
        .unwrap_or_default();
    let namespace = named.unwrap_or_else(|| caller.namespace.clone());
    demand_served(state, &namespace).map_err(of_problem)?;
    let _permit = read_permit(state, &caller).map_err(of_problem)?;
    let path = parts.uri.path().strip_prefix(&*before).unwrap_or_default();
    let (store, owner) = (
        CallerStore::new(Arc::clone(&state.shared), caller),
        Owner::namespace(&namespace),
    );
    let offered = OfferedInNamespace::of(&store, &owner).await?;
    Ok(state.site.answer(parts, &before, path, &offered).await)
}

/// Error: 400 for a namespace of another installation.
fn demand_served(state: &RegistryState, namespace: &str) -> Result<(), HubRefusal> {
    if state.settings.serves(namespace) {
        return Ok(());
    }
    let text = format!(
        "this installation does not serve namespace {namespace}; its operator can add it to watchNamespaces of the chart"
    );
    Err(HubRefusal::new(RefusalCode::Invalid, text))
}

/// A request of a Skills API.
struct Incoming<'a> {
    call: &'a ApiCall,
    request_id: &'a str,
    /// The namespace that its address names.
    namespace: Option<String>,
    parts: Parts,
    body: Body,
}

/// The caller's name for the log, and the answer.
async fn respond(state: &Arc<RegistryState>, incoming: Incoming<'_>) -> (String, Response<Bytes>) {
    let (call, id) = (incoming.call, incoming.request_id);
    let caller = match authenticate(&state.callers, &incoming.parts).await {
        Ok(caller) => caller,
        Err(refusal) => return (String::new(), denied(call, &refusal, id)),
    };
    let answered = answer_caller(state, &caller, incoming).await;
    let answered = answered.unwrap_or_else(|refusal| denied(call, &refusal, id));
    (caller.name(), answered)
}

async fn answer_caller(
    state: &Arc<RegistryState>,
    caller: &ServiceAccountCaller,
    incoming: Incoming<'_>,
) -> Result<Response<Bytes>, HubRefusal> {
    let Incoming {
        call,
        request_id,
        namespace,
        parts,
        body,
    } = incoming;
    demand_ready(state)?;
    let namespace = namespace.unwrap_or_else(|| caller.namespace.clone());
    demand_served(state, &namespace)?;
    let permit = match parts.method {
        Method::GET | Method::HEAD => read_permit(state, caller)?,
        _ => change_permit(state, caller)?,
    };
    let held = state.bodies.read(&caller.key(), &parts.headers, body).await;
    let held = held.map_err(too_many_bytes)?;
    let owner = owner(call, &namespace, caller, &parts.headers)?;
    let asked = ApiRequest {
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers,
        body: held.bytes.clone(),
        request_id: request_id.to_owned(),
    };
    let store = Arc::new(CallerStore::new(Arc::clone(&state.shared), caller.clone()));
    let mut apis = Apis::new(Arc::clone(&store) as Arc<_>, &state.reader);
    let mut fetch = None;
    if let Some(catalogs) = &state.catalogs {
        fetch = catalogs.admit(call, &store, &owner, caller).await?;
        apis = apis.with_catalogs(catalogs.catalogs.clone());
    }
    if let Some(history) = &state.history {
        apis = apis.with_history(Arc::clone(&history.kept) as Arc<_>);
    }
    let response = apis.answer(Some(&owner), call.clone(), &asked, &[]).await;
    drop((held, permit, fetch));
    Ok(response)
}

/// Error: 503 before the first lists. A replica that drains still answers what comes to it.
fn demand_ready(state: &RegistryState) -> Result<(), HubRefusal> {
    match state.ready() {
        Err(text) if !state.draining.load(Ordering::Acquire) => {
            let text = format!("this replica is not ready: {text}");
            Err(HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1))
        }
        _ => Ok(()),
    }
}

/// The right to one change, by the caller's namespace: no namespace uses up the permits of others. Error: 429.
fn change_permit(state: &RegistryState, caller: &ServiceAccountCaller) -> Result<SourcePermit, HubRefusal> {
    let permit = state.changes.take(&caller.namespace, tokio::time::Instant::now());
    permit.ok_or_else(|| {
        too_many(format!(
            "ServiceAccounts of namespace {} make too many changes to skills: the limit is {} at once and {} per second",
            caller.namespace,
            CHANGES.at_once,
            CHANGES.per_second()
        ))
    })
}

/// The right to one read, by the account: a namespace's programs do not use up those of its gateway. Error: 429.
fn read_permit(state: &RegistryState, caller: &ServiceAccountCaller) -> Result<SourcePermit, HubRefusal> {
    let permit = state.reads.take(&caller.key(), tokio::time::Instant::now());
    permit.ok_or_else(|| {
        too_many(format!(
            "ServiceAccount {} sends too many requests: the limit is {} at once and {} per second",
            caller.name(),
            READS.at_once,
            READS.per_second()
        ))
    })
}

/// Bytes in flight are the caller's affair: 429 instead of 503.
fn too_many_bytes(refusal: HubRefusal) -> HubRefusal {
    if refusal.code == RefusalCode::Unavailable {
        return HubRefusal::new(RefusalCode::TooManyRequests, refusal.message).retry_after(1);
    }
    refusal
}

/// The owner of the objects that a request is about: a namespace's Skills, or the executions of the account itself, of
/// which a gateway asks for those of one of its clients. Error: executions of another namespace.
fn owner(
    call: &ApiCall,
    namespace: &str,
    caller: &ServiceAccountCaller,
    headers: &HeaderMap,
) -> Result<Owner, HubRefusal> {
    let is_of_runs = matches!(
        call,
        ApiCall::OmniRoute(OmniRoute::Executions | OmniRoute::Execution(_))
    );
    if !is_of_runs {
        return Ok(Owner::namespace(namespace));
    }
    if namespace != caller.namespace {
        let text = format!(
            "executions are shown only to the ServiceAccount that they belong to; {} is not in namespace {namespace}",
            caller.name()
        );
        return Err(HubRefusal::new(RefusalCode::Invalid, text));
    }
    let client = headers.get(HEADER_CLIENT).and_then(|client| client.to_str().ok());
    Ok(Owner::account(&caller.namespace, &caller.service_account, client))
}

/// The namespace that an address names, and the rest of the address.
fn namespace_of(path: &str) -> Result<(Option<String>, &str), String> {
    let Some(rest) = path.strip_prefix(NAMESPACES) else {
        return Ok((None, path));
    };
    let (namespace, _) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_label(namespace) {
        return Err(format!("{path}: write {NAMESPACES}<name of a namespace>/v1/skills"));
    }
    let bare = rest.get(namespace.len()..).unwrap_or_default();
    Ok((Some(namespace.to_owned()), bare))
}

/// The word of an API in metrics.
const fn api_of(call: &ApiCall) -> &'static str {
    match call {
        ApiCall::Vendor(Dialect::Anthropic { .. }, _) => "anthropic",
        ApiCall::Vendor(Dialect::OpenAi, _) => "openai",
        ApiCall::AgentFlow(_) => "agent_flow",
        ApiCall::OmniRoute(_) => "omniroute",
        ApiCall::LiteLlm(_) => "litellm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_name_a_namespace() {
        for (path, expected) in [
            ("/v1/skills", Ok((None, "/v1/skills"))),
            ("/namespaces/team/v1/skills", Ok((Some("team"), "/v1/skills"))),
            (
                "/namespaces/skills/api/v1/skills/a",
                Ok((Some("skills"), "/api/v1/skills/a")),
            ),
            ("/namespaces/team", Ok((Some("team"), ""))),
            ("/namespaces/", Err(())),
            ("/namespaces/../v1/skills", Err(())),
            ("/namespaces/A_b/v1/skills", Err(())),
        ] {
            let found = namespace_of(path);
            let found = found
                .as_ref()
                .map(|(named, bare)| (named.as_deref(), *bare))
                .map_err(|_| ());
            assert_eq!(found, expected, "{path}");
        }
    }
}
