//! Requests to the Skills APIs, sent on to the registry of the cluster.
//!
//! ```text
//! client ── its own credential, which goes no further ──▶ gateway ── the gateway's ServiceAccount ──▶ registry ──▶ Skill
//!   ◀── the answer, when the catalog has what changed ─────  ◀── hub ◀── controller ◀───────────────────────────┘
//! ```

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use knack_hub_api::client::{HubClient, HubError};
use knack_registry::{
    AgentFlow, ApiCall, ApiRequest, Claims, ElsewhereKept, History, IDEMPOTENCY_KEY, LiteLlm, OmniRoute, Operation,
    Owner, RefusalKind, deny, execute_shared, refuse_unknown, route,
};
use knack_skill::ids::versioned;
use knack_trust::read_answer;
use knack_vocabulary::HEADER_CLIENT;
use serde_json::Value;

use super::skill_calls::{SkillCalls, SkillPaces};
use super::uploads::Uploads;
use crate::callers::caller::{self, CallerSecret};
use crate::catalog::{LiveCatalog, Snapshot};
use crate::http_server::fault::RETRY_AFTER_SECONDS;
use crate::http_server::request_id::RequestId;
use crate::http_server::request_path;
use crate::providers::forwarded_headers::{credential_parameter, forward_response_headers};
use crate::runs::ad_hoc::AdHocRuns;
use crate::runs::claims::ReportedClaims;
use crate::runs::execution_reporter::Reports;
use crate::state::Gateway;

/// How long the answer to a change waits until the catalog has it, so that the client's next request finds the skill. What
/// takes longer, on a cluster with much to do, is found by a later one.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// How often the catalog is polled meanwhile.
const SHOWN_CHECK: Duration = Duration::from_millis(50);
/// The header that keeps the SDKs of OpenAI and Anthropic from repeating a 503.
const NO_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Longest pause between two parts of an answer: the registry reads files of a skill at once.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longest answer to a change that is read for the id in it: those with one have a few hundred bytes, and a description.
const READ_MAX_BYTES: usize = 64 << 10;
/// The headers that the registry reads of a request. All others stay here: above all those that are or may be a credential.
const FORWARDED: [&str; 5] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "user-agent",
];

/// The registry, as this gateway's clients reach it.
#[derive(Debug)]
pub struct Relay {
    client: HubClient,
    catalog: Arc<LiveCatalog>,
    secret: Arc<CallerSecret>,
    /// Where runs are noted, if a history is kept.
    reports: Option<Arc<Reports>>,
    /// For the registry all callers of this gateway are one: who of them asks how often is counted here.
    calls: SkillCalls,
    /// The gateway that runs tools for programs; it owns this relay.
    gateway: OnceLock<Weak<Gateway>>,
}

impl Relay {
    /// `client`: of the registry. `catalog`: what this gateway's own ServiceAccount is served. `secret`: of callers' identities.
    pub fn new(
        client: HubClient,
        catalog: Arc<LiveCatalog>,
        secret: Arc<CallerSecret>,
        reports: Option<Arc<Reports>>,
    ) -> Self {
        Self {
            client,
            catalog,
            secret,
            reports,
            calls: SkillCalls::new(SkillPaces::RELAYED),
            gateway: OnceLock::new(),
        }
    }

    /// Runs tools for programs by a gateway, the first that is named.
    pub fn run_by(&self, gateway: &Arc<Gateway>) {
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    /// The sender of a request, as its runs are noted.
    fn client_of(&self, parts: &Parts) -> Owner {
        Owner::from(caller::identify(&self.secret.current(), &parts.headers, &parts.uri).bucket())
    }

    /// Runs a tool here: the registry runs nothing, and knows no hub.
    async fn execute(&self, call: &ApiCall, parts: &Parts, body: Bytes) -> Response<Body> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        let base = match &gateway {
            Some(gateway) => gateway.served_to(parts).await.1,
            None => self.catalog.snapshot().await,
        };
        let runs = AdHocRuns {
            gateway: gateway.clone(),
            parts,
            base: &base,
        };
        let asked = ApiRequest {
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
            body,
            request_id: RequestId::of(&parts.extensions),
        };
        let is_unknown = |gateway: &Arc<Gateway>| {
            let replicas = gateway.replicas.as_ref();
            replicas.is_some_and(|replicas| !replicas.has_secret())
        };
        let is_claimed = self.reports.is_some() && asked.headers.contains_key(IDEMPOTENCY_KEY);
        if is_claimed && gateway.as_ref().is_some_and(is_unknown) {
            // Other replicas, and this one later, would not find what it claims.
            let cause = "the hub has not sent the secret of callers' identities yet";
            return unavailable(call, &cause, parts);
        }
        let claims = self.reports.clone().map(ReportedClaims);
        let claims = claims.map(|claims| Arc::new(claims) as Arc<dyn Claims>);
        let history = self.reports.clone().map(|reports| reports as Arc<dyn History>);
        let owner = self.client_of(parts);
        let kept = ElsewhereKept {
            history: history.as_ref(),
            claims: claims.as_ref(),
        };
        let answer = execute_shared(kept, &owner, &asked, &base.skills, &base.catalog, &runs).await;
        answer.map(Body::from)
    }

    async fn call(&self, call: &ApiCall, parts: &Parts, body: Bytes) -> Response<Body> {
        let before = self.catalog.current();
        let path = path_and_query(&parts.uri);
        let mut headers = forwarded(&parts.headers);
        // With the gateway's token alone it would be a request of the gateway itself, which has the runs and files of all clients.
        let Ok(client) = HeaderValue::from_str(&self.client_of(parts).text()) else {
            return unavailable(call, &"the client identity is not a valid header value", parts);
        };
        headers.insert(HeaderName::from_static(HEADER_CLIENT), client);
        let sent = self.client.relay(parts.method.clone(), &path, headers, body);
        let mut answer = match sent.await {
            Ok(answer) if answer.status() != StatusCode::UNAUTHORIZED => answer,
            // It is the gateway's token that was refused; the client could do nothing about a 401.
            Ok(_) => return unavailable(call, &"the registry does not accept the token of this gateway", parts),
            // The client's own words are of a hub.
            Err(HubError::Unreachable(cause) | HubError::Broken(cause)) => return unavailable(call, &cause, parts),
            Err(error) => return unavailable(call, &error, parts),
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = forward_response_headers(answer.headers());
        if let Some(length) = answer.headers().get(header::CONTENT_LENGTH) {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.clone());
        }
        if !answer.status().is_success() || matches!(parts.method, Method::GET | Method::HEAD) {
            *response.body_mut() = Body::from_stream(parts_of(answer));
            return response;
        }
        // A long answer, as of a SKILL.md, names no id.
        let is_short = answer
            .content_length()
            .is_some_and(|bytes| bytes <= READ_MAX_BYTES as u64);
        let mut change = None;
        if is_short {
            match tokio::time::timeout(SILENCE_MAX, read_answer(&mut answer, READ_MAX_BYTES)).await {
                Ok(Ok(bytes)) => {
                    change = Change::of(call, &bytes);
                    *response.body_mut() = Body::from(bytes);
                }
                Ok(Err(error)) => return answer_lost(call, &error, parts),
                Err(_) => return answer_lost(call, &silence(), parts),
            }
        } else {
            *response.body_mut() = Body::from_stream(parts_of(answer));
        }
        self.shown(change.as_ref(), &before).await;
        response
    }

    /// Waits until the catalog has a change, within a bound; where it is not known which change, until the catalog is
    /// another one than `before`.
    async fn shown(&self, change: Option<&Change>, before: &Snapshot) {
        // What was there before does not say that there is a new version of it.
        let change = change.filter(|change| !change.is_in(before));
        let shown = async {
            loop {
                let current = self.catalog.current();
                let is_there = match change {
                    Some(change) => change.is_in(&current),
                    None => current.revision != before.revision,
                };
                // Without a catalog there is nothing to wait for.
                if current.absent.is_some() || is_there {
                    break;
                }
                tokio::time::sleep(SHOWN_CHECK).await;
            }
        };
        // A change that the catalog does not show waits for the whole time: of a title, or of a skill that this runtime does not select.
        let _ = tokio::time::timeout(SHOWN_WITHIN, shown).await;
    }
}

impl Uploads for Relay {
    fn takes(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        route(method, uri.path(), uri.query(), headers).is_some()
    }

    fn is_by_credential(&self) -> bool {
        false
    }

    fn answer<'a>(&'a self, parts: &'a Parts, body: Bytes, _: Arc<Snapshot>) -> BoxFuture<'a, Response<Body>> {
        async move {
            let Some(call) = route(&parts.method, parts.uri.path(), parts.uri.query(), &parts.headers) else {
                return Response::new(Body::empty());
            };
            let counted = Owner::from(caller::counted(&self.secret.current(), parts).bucket());
            let address = caller::unchecked_address(parts);
            let admitted = self.calls.admit(
                &call,
                &parts.method,
                &counted.text(),
                address,
                RequestId::find(&parts.extensions).as_str(),
            );
            let _admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refused) => return (*refused).map(Body::from),
            };
            // MCP's tools for skills make paths of their arguments.
            if let Some(why) = request_path::refusal(parts.uri.path()) {
                let request_id = RequestId::of(&parts.extensions);
                return deny(&call, RefusalKind::Invalid, why, None, &request_id).map(Body::from);
            }
            // It is answered here: the registry is asked for nothing that this gateway does not know.
            if let Some(refused) = refuse_unknown(&call, RequestId::find(&parts.extensions).as_str()) {
                return refused.map(Body::from);
            }
            match call {
                ApiCall::OmniRoute(OmniRoute::Execute) => self.execute(&call, parts, body).await,
                call => self.call(&call, parts, body).await,
            }
        }
        .boxed()
    }

    fn snapshot<'a>(&'a self, _: &'a Parts, base: Arc<Snapshot>) -> BoxFuture<'a, Arc<Snapshot>> {
        std::future::ready(base).boxed()
    }
}

/// The log has the cause; the answer to a client has no addresses of the cluster.
fn unavailable(call: &ApiCall, cause: &dyn std::fmt::Display, parts: &Parts) -> Response<Body> {
    let request_id = RequestId::find(&parts.extensions);
    let request_id = request_id.as_str();
    tracing::warn!(request_id, %cause, "a request to the Skills APIs is refused: the registry gave no answer");
    let text = "The registry of skills does not answer this gateway at this moment; the gateway's log has the cause. Try again \
                in a few seconds.";
    let after = RETRY_AFTER_SECONDS.parse().ok();
    deny(call, RefusalKind::Unavailable, text.to_owned(), after, request_id).map(Body::from)
}

/// The answer to a change that the registry has made, and whose answer is lost: it must not be made again.
fn answer_lost(call: &ApiCall, cause: &dyn std::fmt::Display, parts: &Parts) -> Response<Body> {
    let request_id = RequestId::find(&parts.extensions);
    let request_id = request_id.as_str();
    tracing::warn!(request_id, %cause, "the registry made a change, and its answer is lost");
    let text =
        "The registry has made this change, and its answer was lost on the way; read the skill before you try again.";
    let mut response = deny(call, RefusalKind::Unavailable, text.to_owned(), None, request_id).map(Body::from);
    response
        .headers_mut()
        .insert(NO_RETRY, HeaderValue::from_static("false"));
    response
}

/// The headers that the registry reads.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    for name in FORWARDED.map(HeaderName::from_static) {
        for value in headers.get_all(&name) {
            out.append(&name, value.clone());
        }
    }
    out
}

/// The address without a key in it, which some SDKs send there.
fn path_and_query(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&');
    let pairs: Vec<&str> = pairs
        .filter(|pair| !pair.is_empty() && credential_parameter(pair).is_none())
        .collect();
    if pairs.is_empty() {
        return uri.path().to_owned();
    }
    format!("{}?{}", uri.path(), pairs.join("&"))
}

fn silence() -> String {
    format!("no data was received for {} s", SILENCE_MAX.as_secs())
}

/// A change of a skill, by a name or an id in the catalog.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// A skill has it from now on.
    Made(String),
    /// No skill has it.
    Gone(String),
}

impl Change {
    /// What was changed, by the call and its answer; `None`: they name no skill, or one that stays.
    fn of(call: &ApiCall, answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let text = |member: &str| answer.get(member)?.as_str();
        match call {
            ApiCall::Vendor(_, Operation::DeleteVersion { id, .. }) => Some(Self::Gone(versioned(id, text("id")?))),
            ApiCall::Vendor(_, Operation::Delete(id))
            | ApiCall::LiteLlm(LiteLlm::Delete(id))
            | ApiCall::OmniRoute(OmniRoute::Delete(id))
            | ApiCall::AgentFlow(AgentFlow::Delete(id)) => Some(Self::Gone(id.clone())),
            ApiCall::Vendor(_, Operation::CreateVersion(id)) => Some(Self::Made(versioned(id, text("id")?))),
            ApiCall::Vendor(_, Operation::Create)
            | ApiCall::LiteLlm(LiteLlm::Create)
            | ApiCall::OmniRoute(OmniRoute::Install | OmniRoute::InstallFrom(_)) => {
                text("id").map(|id| Self::Made(id.to_owned()))
            }
            ApiCall::AgentFlow(AgentFlow::Create) => text("name").map(|name| Self::Made(name.to_owned())),
            _ => None,
        }
    }

    fn is_in(&self, snapshot: &Snapshot) -> bool {
        let (Self::Made(reference) | Self::Gone(reference)) = self;
        // Whether it reaches models or not.
        let is_there = snapshot.skills.iter().any(|skill| {
            skill.id.name == *reference
                || [&skill.ids, &skill.object_ids]
                    .into_iter()
                    .any(|ids| ids.contains(reference))
        });
        is_there == matches!(self, Self::Made(_))
    }
}

/// The body of an answer; it ends with an error if the registry is silent for too long.
fn parts_of(answer: reqwest::Response) -> impl Stream<Item = Result<Bytes, HubError>> + Send + 'static {
    futures::stream::try_unfold(answer, |mut answer| async move {
        let next = tokio::time::timeout(SILENCE_MAX, answer.chunk()).await;
        let broken = match next {
            Ok(Ok(part)) => return Ok(part.map(|part| (part, answer))),
            Ok(Err(error)) => error.without_url().to_string(),
            Err(_) => silence(),
        };
        Err(HubError::Broken(broken))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn no_credential_of_a_client_goes_to_the_registry() {
        let sent = [
            ("authorization", "Bearer sk-1"),
            ("x-api-key", "sk-2"),
            ("api-key", "sk-3"),
            ("x-goog-api-key", "sk-4"),
            ("x-knack-token", "sk-5"),
            ("x-knack-for", "other"),
            ("cookie", "sk-6"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "skills-2025-10-02"),
            ("content-type", "multipart/form-data; boundary=x"),
        ];
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let forwarded = forwarded(&headers);
        let mut names: Vec<&str> = forwarded.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["anthropic-beta", "anthropic-version", "content-type"]);
    }

    #[test]
    fn a_key_in_the_address_stays_here() {
        for (sent, expected) in [
            ("/v1/skills", "/v1/skills"),
            ("/v1/skills?key=sk-1", "/v1/skills"),
            ("/v1/skills?limit=2&key=sk-1&after=a", "/v1/skills?limit=2&after=a"),
            ("/v1/skills?access_token=sk-1", "/v1/skills"),
            (
                "/namespaces/team/v1/skills/x/content?",
                "/namespaces/team/v1/skills/x/content",
            ),
        ] {
            assert_eq!(path_and_query(&sent.parse().unwrap()), expected, "{sent}");
        }
    }

    #[test]
    fn an_answer_to_a_change_says_what_the_catalog_will_have() {
        let id = "skill_knack_1";
        let (made, gone) = (
            |text: &str| Some(Change::Made(text.to_owned())),
            |text: &str| Some(Change::Gone(text.to_owned())),
        );
        for (method, path, answer, expected) in [
            ("POST", "/v1/skills", r#"{"id": "skill_knack_1"}"#, made(id)),
            ("POST", "/v1/skills", "[]", None),
            (
                "POST",
                "/v1/skills/skill_knack_1/versions",
                r#"{"id": "skver_knack_2", "skill_id": "skill_knack_1"}"#,
                made("skill_knack_1:skver_knack_2"),
            ),
            ("POST", "/v1/skills/skill_knack_1", r#"{"id": "skill_knack_1"}"#, None),
            ("DELETE", "/v1/skills/skill_knack_1", "{}", gone(id)),
            (
                "DELETE",
                "/v1/skills/skill_knack_1/versions/2",
                r#"{"id": "skver_knack_2"}"#,
                gone("skill_knack_1:skver_knack_2"),
            ),
            (
                "POST",
                "/api/skills/install",
                r#"{"success": true, "id": "skill_knack_1"}"#,
                made(id),
            ),
            ("PUT", "/api/skills/skill_knack_1", r#"{"success": true}"#, None),
            ("DELETE", "/api/skills/skill_knack_1", r#"{"success": true}"#, gone(id)),
            ("POST", "/api/v1/skills", r#"{"name": "word"}"#, made("word")),
            ("DELETE", "/api/v1/skills/word", "", gone("word")),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let call = route(&method, path, None, &HeaderMap::new()).unwrap();
            assert_eq!(Change::of(&call, answer.as_bytes()), expected, "{method} {path}");
        }
    }
}
