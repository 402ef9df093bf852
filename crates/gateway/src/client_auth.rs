//! Who may use a shared gateway: clients send a ServiceAccount token, and the hub authenticates it.
//!
//! The token comes in `x-knack-token`, or as the API key (`Authorization`, `x-api-key`, `x-goog-api-key`, `api-key`), where an
//! unchanged SDK sends it. It never goes upstream. Behind this layer the client is identified by its account, so that
//! its hidden turns and files outlive its tokens, and it is served what its namespace sees.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ClientCheck, ClientVerdict, Problem, ProblemCode, RuntimeName};
use knack_vocabulary::{HEADER_CLIENT, HEADER_CLIENT_TOKEN};
use knack_wire::Fault;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::fault::{error_format, fault, is_mcp, mcp_fault};
use super::forwarded_headers::CREDENTIAL_HEADERS;
use super::tenants::Tenants;

/// Verdicts remembered, at about 200 bytes each.
const REMEMBERED: usize = 8192;
/// How long a known client is let in while the hub is away: as long as a request may take.
const STALE_FOR: Duration = Duration::from_mins(10);

/// The check of clients.
#[derive(Debug)]
pub struct ClientAuth {
    hub: HubClient,
    runtime: RuntimeName,
    tenants: Arc<Tenants>,
    verdicts: Mutex<HashMap<[u8; 32], Review>>,
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

#[derive(Debug, Clone)]
struct Review {
    fresh_until: Instant,
    usable_until: Instant,
    /// The client, or why it is refused.
    verdict: Result<Client, String>,
}

impl ClientAuth {
    /// A check by a hub for one runtime; clients are served from the catalogs of `tenants`.
    pub fn new(hub: HubClient, runtime: RuntimeName, tenants: Arc<Tenants>) -> Arc<Self> {
        Arc::new(Self {
            hub,
            runtime,
            tenants,
            verdicts: Mutex::default(),
        })
    }

    /// The client of this token; the error is the answer to the client.
    async fn client(&self, token: &str) -> Result<Client, Fault> {
        let key: [u8; 32] = Sha256::digest(token).into();
        let now = Instant::now();
        let known = self.lock().get(&key).cloned();
        if let Some(known) = &known
            && now < known.fresh_until
        {
            return known.verdict.clone().map_err(|reason| refused(&reason));
        }
        let check = ClientCheck {
            runtime: self.runtime.clone(),
            token: token.to_owned(),
        };
        match self.hub.post::<ClientVerdict>("/v1/clients", &check).await {
            Ok(answer) => {
                let verdict = match (answer.allowed, answer.client) {
                    (true, Some(account)) => Ok(Client {
                        account,
                        sees_all: answer.sees_all,
                    }),
                    _ => Err(answer.reason.unwrap_or_else(|| "the hub refuses it".to_owned())),
                };
                let fresh_until = now + Duration::from_secs(answer.valid_seconds);
                self.remember(
                    key,
                    Review {
                        fresh_until,
                        usable_until: fresh_until + STALE_FOR,
                        verdict: verdict.clone(),
                    },
                );
                verdict.map_err(|reason| refused(&reason))
            }
            Err(error) => match known {
                // The hub is away; recently authenticated clients are still accepted.
                Some(Review {
                    verdict: Ok(client),
                    usable_until,
                    ..
                }) if error.is_transient() && now < usable_until => Ok(client),
                _ => Err(cannot_tell(&error)),
            },
        }
    }

    fn remember(&self, key: [u8; 32], known: Review) {
        let mut verdicts = self.lock();
        if verdicts.len() >= REMEMBERED {
            let now = Instant::now();
            verdicts.retain(|_, known| now < known.fresh_until);
            if verdicts.len() >= REMEMBERED {
                verdicts.clear();
            }
        }
        verdicts.insert(key, known);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Review>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer: runs before any other part of a request is read.
pub async fn check(State(auth): State<Arc<ClientAuth>>, mut request: Request, next: Next) -> Response {
    // Kubelets and scrapers show no token; nothing of a client's is behind these.
    if matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
        return next.run(request).await;
    }
    let (format, of_mcp) = (error_format(&request), is_mcp(request.uri().path()));
    let refuse = |answer: &Fault| {
        if of_mcp {
            mcp_fault(answer)
        } else {
            fault(answer, format)
        }
    };
    let Some(token) = take_token(request.headers_mut()) else {
        return refuse(&refused(
            "no token; send a ServiceAccount token for the audience knack-gateway as the API key",
        ));
    };
    match auth.client(&token).await {
        Ok(client) => {
            if let Ok(value) = HeaderValue::from_str(&client.account) {
                request
                    .headers_mut()
                    .insert(HeaderName::from_static(HEADER_CLIENT), value);
            }
            if !client.sees_all {
                let tenant = auth.tenants.tenant(client.namespace());
                request.extensions_mut().insert(tenant);
            }
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

fn refused(reason: &str) -> Fault {
    Fault {
        retry: false,
        ..Fault::new(401, format!("Authentication failed: {reason}."))
    }
}

fn cannot_tell(error: &HubError) -> Fault {
    if let HubError::Refused(Problem { code, .. }) = error
        && matches!(code, ProblemCode::Forbidden | ProblemCode::Unauthenticated)
    {
        tracing::warn!(%error, "the hub refuses this gateway");
        return Fault::new(
            503,
            "The gateway is not allowed to check credentials; its log has the cause.",
        );
    }
    tracing::info!(%error, "the hub did not authenticate a client");
    Fault::new(
        503,
        "The gateway cannot check credentials at this moment; try again in a few seconds.",
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
