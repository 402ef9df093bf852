//! Authentication of a shared gateway's clients: they send a ServiceAccount token, and the hub reviews it.
//!
//! The token comes in `x-knack-token`, or as the API key (`Authorization`, `x-api-key`, `x-goog-api-key`, `api-key`), where an
//! unchanged SDK sends it. It never goes upstream. Behind this layer the client is identified by its account, so that
//! its hidden turns and files outlive its tokens, and it is served what its namespace sees.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ClientAuthorization, ClientCheck, HubRefusal, RefusalCode, RuntimeName};
use knack_serving::Peer;
use knack_serving::expiring::Expiring;
use knack_serving::keyed_locks::KeyedLocks;
use knack_serving::sources::{Pace, Sources};
use knack_vocabulary::{HEADER_CLIENT, HEADER_CLIENT_TOKEN};
use knack_wire::Fault;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::caller::CheckedAccount;
use super::tenants::Tenants;
use crate::http_server::fault::{error_format, fault_of, is_mcp, log_refusal, mcp_fault, named, request_id};
use crate::providers::forwarded_headers::CREDENTIAL_HEADERS;

/// Accepted tokens remembered, at about 200 bytes each.
const ACCEPTED_MAX: usize = 8192;
/// Refused tokens remembered, apart: they evict only each other.
const REFUSED_MAX: usize = 4096;
/// How long a known client is let in while the hub is away: as long as a request may take.
const STALE_FOR: Duration = Duration::from_mins(10);
/// How long a request waits for the decision that another one with the same token has asked for.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Unknown tokens that one address may have checked. The hub gives a gateway twice as much, so that one address that
/// forges tokens leaves the new clients of others their part.
const UNKNOWN_TOKENS: Pace = Pace {
    at_once: 4,
    // Clients behind one proxy, after a start of the gateway.
    burst: 50,
    // 10 a second.
    refill: Duration::from_millis(100),
};

type TokenHash = [u8; 32];

/// Authentication mode.
#[derive(Debug, Clone)]
pub enum ClientAccess {
    /// Clients whose token the hub accepts.
    Tokens(Arc<ClientAuth>),
    /// Rejects every request, because this setting is invalid.
    Closed(&'static str),
}

/// The check of clients.
#[derive(Debug)]
pub struct ClientAuth {
    hub: HubClient,
    runtime: RuntimeName,
    tenants: Arc<Tenants>,
    accepted: Expiring<TokenHash, AcceptedClient>,
    refused: Expiring<TokenHash, String>,
    locks: KeyedLocks<TokenHash>,
    sources: Arc<Sources>,
}

/// A client that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    /// `namespace/serviceaccount/uid`.
    account: String,
    /// Whether it sees all that this gateway does, not only what its namespace sees.
    sees_all: bool,
}

impl Client {
    fn namespace(&self) -> &str {
        self.account
            .split_once('/')
            .map_or(self.account.as_str(), |(namespace, _)| namespace)
    }
}

/// A client, kept for as long as it may be let in while the hub is away.
#[derive(Debug, Clone)]
struct AcceptedClient {
    client: Client,
    /// Until then the hub need not be asked.
    fresh_until: Instant,
}

impl ClientAuth {
    /// A check by a hub for one runtime; clients are served from the catalogs of `tenants`.
    pub fn new(hub: HubClient, runtime: RuntimeName, tenants: Arc<Tenants>) -> Arc<Self> {
        Arc::new(Self {
            hub,
            runtime,
            tenants,
            accepted: Expiring::new(ACCEPTED_MAX),
            refused: Expiring::new(REFUSED_MAX),
            locks: KeyedLocks::default(),
            sources: Arc::new(Sources::new(UNKNOWN_TOKENS)),
        })
    }

    /// The client of this token, which came from `address`; the error is the answer to the client.
    async fn client(&self, token: &str, address: &str) -> Result<Client, Fault> {
        let key: TokenHash = Sha256::digest(token).into();
        if let Some(decision) = self.decision(&key) {
            return decision;
        }
        let Some(_guard) = self.locks.take(key, AUTHORIZATION_TIMEOUT).await else {
            return Err(try_again());
        };
        // Another request may have had it checked meanwhile.
        if let Some(decision) = self.decision(&key) {
            return decision;
        }
        let known = self.accepted.get(&key).map(|known| known.client);
        let _unknown = match known {
            Some(_) => None,
            None => Some(self.sources.take(address, Instant::now()).ok_or_else(too_many)?),
        };
        self.ask(token, key, known).await
    }

    /// The remembered decision on a token; `None` if there is none, or it has expired.
    fn decision(&self, key: &TokenHash) -> Option<Result<Client, Fault>> {
        if let Some(known) = self.accepted.get(key) {
            return (Instant::now() < known.fresh_until).then_some(Ok(known.client));
        }
        self.refused.get(key).map(|reason| Err(refused(&reason)))
    }

    /// Has the hub check a token. `known` is its client, if it was accepted a while ago.
    async fn ask(&self, token: &str, key: TokenHash, known: Option<Client>) -> Result<Client, Fault> {
        let check = ClientCheck {
            runtime: self.runtime.clone(),
            token: token.to_owned(),
        };
        let answer = match (
            self.hub.hub().post::<ClientAuthorization>("/v1/clients", &check).await,
            known,
        ) {
            (Ok(answer), _) => answer,
            // The hub is away; recently authenticated clients are still accepted.
            (Err(error), Some(client)) if error.is_transient() => return Ok(client),
            (Err(error), _) => return Err(cannot_tell(&error)),
        };
        let fresh = Duration::from_secs(answer.valid_seconds);
        let Some(account) = answer.client.filter(|_| answer.allowed) else {
            let reason = answer.reason.unwrap_or_else(|| "the hub refuses it".to_owned());
            self.accepted.remove(&key);
            self.refused.put(key, reason.clone(), fresh);
            return Err(refused(&reason));
        };
        let client = Client {
            account,
            sees_all: answer.sees_all,
        };
        let accepted = AcceptedClient {
            client: client.clone(),
            fresh_until: Instant::now() + fresh,
        };
        self.accepted.put(key, accepted, fresh + STALE_FOR);
        Ok(client)
    }
}

/// The layer: runs before any other part of a request is read.
pub(crate) async fn check(State(door): State<ClientAccess>, mut request: Request, next: Next) -> Response {
    // Kubelets and load balancers show no token; nothing of a client's is behind these.
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return next.run(request).await;
    }
    let (format, of_mcp) = (error_format(&request), is_mcp(request.uri().path()));
    let refuse = |answer: &Fault| {
        let id = request_id();
        // The sender decides how many refusals with 429 there are, so the log has none of them.
        if answer.status != 429 {
            log_refusal(answer, &id);
        }
        if of_mcp {
            named(mcp_fault(answer), &id)
        } else {
            fault_of(answer, format, &id)
        }
    };
    let auth = match door {
        ClientAccess::Tokens(auth) => auth,
        ClientAccess::Closed(setting) => return refuse(&closed(setting)),
    };
    let Some(token) = take_token(request.headers_mut()) else {
        return refuse(&refused(
            "no token; send a ServiceAccount token for the audience knack-gateway as the API key",
        ));
    };
    // Every request of the listener has its peer; without one all share one source.
    let address = request.extensions().get::<Peer>().map(|peer| peer.address.to_string());
    match auth.client(&token, &address.unwrap_or_default()).await {
        Ok(client) => {
            if let Ok(value) = HeaderValue::from_str(&client.account) {
                request
                    .headers_mut()
                    .insert(HeaderName::from_static(HEADER_CLIENT), value);
            }
            let extensions = request.extensions_mut();
            if !client.sees_all {
                let tenant = auth.tenants.tenant(client.namespace());
                extensions.insert(tenant);
            }
            extensions.insert(CheckedAccount(client.account));
            next.run(request).await
        }
        Err(answer) => refuse(&answer),
    }
}

/// The token, removed from the headers: it must not reach a provider, and a header must not claim a client's identity.
fn take_token(headers: &mut HeaderMap) -> Option<String> {
    headers.remove(HEADER_CLIENT);
    let own = headers.remove(HEADER_CLIENT_TOKEN);
    if let Some(value) = own {
        return value.to_str().ok().map(str::to_owned);
    }
    let name = CREDENTIAL_HEADERS
        .into_iter()
        .find(|name| headers.contains_key(*name))?;
    let value = headers.remove(name)?;
    // Other credential headers have the same token, as SDKs send it in several ways.
    for other in CREDENTIAL_HEADERS {
        headers.remove(other);
    }
    let text = value.to_str().ok()?;
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token,
        _ => text,
    };
    Some(token.trim().to_owned())
}

fn closed(setting: &str) -> Fault {
    Fault {
        retry: false,
        ..Fault::new(
            502,
            format!(
                "{setting} of this gateway cannot be read, so no request is served; correct it and restart the pod."
            ),
        )
    }
}

fn refused(reason: &str) -> Fault {
    Fault {
        retry: false,
        ..Fault::new(401, format!("Authentication failed: {reason}."))
    }
}

fn cannot_tell(error: &HubError) -> Fault {
    if let HubError::Refused(HubRefusal { code, .. }) = error
        && matches!(code, RefusalCode::Forbidden | RefusalCode::Unauthenticated)
    {
        tracing::warn!(%error, "the hub refuses this gateway");
        return Fault::new(
            503,
            "The gateway is not allowed to check credentials; its log has the cause.",
        );
    }
    tracing::info!(%error, "the hub did not authenticate a client");
    try_again()
}

fn try_again() -> Fault {
    Fault::new(
        503,
        "The gateway cannot check credentials at this moment; try again in a few seconds.",
    )
}

fn too_many() -> Fault {
    Fault::new(
        429,
        "Too many unknown credentials were sent from your address; try again in a second.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(headers: &[(&'static str, &'static str)]) -> (Option<String>, Vec<String>) {
        let mut map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let token = take_token(&mut map);
        let mut left: Vec<String> = map.keys().map(|name| name.as_str().to_owned()).collect();
        left.sort();
        (token, left)
    }

    #[test]
    fn the_token_is_taken_out_wherever_an_sdk_puts_it() {
        for (headers, expected, left) in [
            (
                &[("authorization", "Bearer t"), ("accept", "x")][..],
                Some("t"),
                &["accept"][..],
            ),
            (&[("x-api-key", "t")], Some("t"), &[]),
            (&[("api-key", "t")], Some("t"), &[]),
            (
                &[("x-goog-api-key", "t"), ("authorization", "Bearer u")],
                Some("u"),
                &[],
            ),
            (
                &[("x-knack-token", "t"), ("authorization", "Bearer key")],
                Some("t"),
                &["authorization"],
            ),
            (&[("x-knack-client", "team/app/u")], None, &[]),
            (&[], None, &[]),
        ] {
            let (token, rest) = token(headers);
            assert_eq!(token.as_deref(), expected, "{headers:?}");
            assert_eq!(rest, left, "{headers:?}");
        }
    }
}
