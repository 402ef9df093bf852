//! TokenReview, cached. Real callers never wait behind forged tokens: verdicts of the two are kept apart, tokens that were
//! accepted once have turns of their own, and a source that shows many unknown tokens is told to wait.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::cache::Expiring;
use super::caller::{Caller, CallerError, accept, inspect};
use super::sources::Sources;
use crate::hub_api::{Problem, ProblemCode};

/// How long an accepted token is not asked about again; a deleted ServiceAccount is locked out within it.
const ACCEPTED_FOR: Duration = Duration::from_secs(30);
/// How long a refused one is not: a token that is not valid yet, on a lagging API server, becomes valid soon.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// Accepted tokens remembered, at about 500 bytes each.
const ACCEPTED: usize = 8192;
/// Refused tokens remembered. They are apart from the others: whoever forges tokens pushes out what he forged.
const REFUSED: usize = 4096;
/// Tokens that were accepted once, for as long as they say: theirs are the reviews that real callers wait for.
const PROVEN: usize = 8192;
/// Reviews at once of tokens that nobody knows: strangers must not use up the hub's connections.
const STRANGERS_AT_ONCE: usize = 16;
/// Reviews at once of tokens that were accepted before.
const PROVEN_AT_ONCE: usize = 16;
/// Time for a review, the wait for a turn included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

type Key = [u8; 32];

/// Tells who a token belongs to, for one audience.
pub struct Authenticator {
    client: Client,
    audience: &'static str,
    accepted: Expiring<Key, Caller>,
    refused: Expiring<Key, CallerError>,
    proven: Expiring<Key, ()>,
    sources: Arc<Sources>,
    strangers: Semaphore,
    known: Semaphore,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Authenticator")
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl Authenticator {
    /// An authenticator for one audience.
    pub fn new(client: Client, audience: &'static str) -> Self {
        Self {
            client,
            audience,
            accepted: Expiring::new(ACCEPTED),
            refused: Expiring::new(REFUSED),
            proven: Expiring::new(PROVEN),
            sources: Arc::default(),
            strangers: Semaphore::new(STRANGERS_AT_ONCE),
            known: Semaphore::new(PROVEN_AT_ONCE),
        }
    }

    /// Who the token belongs to. `source` is who shows it: an address, or the gateway that asks about a client.
    ///
    /// Errors: [`ProblemCode::Unauthenticated`] with the reason, [`ProblemCode::Throttled`] for a source that shows
    /// many unknown tokens, [`ProblemCode::Unavailable`] if the API server does not answer.
    pub async fn authenticate(&self, token: &str, source: &str) -> Result<Caller, Problem> {
        let refused = |error: CallerError| Problem::new(ProblemCode::Unauthenticated, error.to_string());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let expires = inspect(token, self.audience, now).map_err(refused)?;
        // Hashed: a credential is never kept.
        let key: Key = Sha256::digest(token).into();
        if let Some(caller) = self.accepted.get(&key) {
            return Ok(caller);
        }
        if let Some(error) = self.refused.get(&key) {
            return Err(refused(error));
        }
        let is_proven = self.proven.get(&key).is_some();
        let (turns, _turn) = if is_proven {
            (&self.known, None)
        } else {
            let turn = self.sources.take(source, Instant::now()).ok_or_else(too_many)?;
            (&self.strangers, Some(turn))
        };
        let verdict = match tokio::time::timeout(REVIEW_TIMEOUT, self.review(turns, token, expires)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a TokenReview failed");
                return Err(unavailable());
            }
            Err(_) => return Err(unavailable()),
        };
        let left = Duration::from_secs(expires.saturating_sub(now));
        match &verdict {
            Ok(caller) => {
                self.accepted.put(key, caller.clone(), ACCEPTED_FOR.min(left));
                self.proven.put(key, (), left);
            }
            Err(error) => self.refused.put(key, error.clone(), REFUSED_FOR),
        }
        verdict.map_err(refused)
    }

    async fn review(&self, turns: &Semaphore, token: &str, expires: u64) -> kube::Result<Result<Caller, CallerError>> {
        // An error means that the semaphore is closed, which it never is.
        let _turn = turns.acquire().await;
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![self.audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(accept(answer.status, self.audience, expires))
    }
}

fn too_many() -> Problem {
    let text = "many unknown tokens came from your address lately; try again";
    Problem::new(ProblemCode::Throttled, text).retry_after(1)
}

fn unavailable() -> Problem {
    Problem::new(
        ProblemCode::Unavailable,
        "the API server did not say in time who this is; try again",
    )
    .retry_after(1)
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use axum::{Json, Router};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::*;

    /// How long the API server of this test takes for a review.
    const SLOW: Duration = Duration::from_millis(100);

    fn token(name: &str) -> String {
        let claims = json!({"aud": ["knack"], "exp": u32::MAX, "sub": name}).to_string();
        format!(
            "e30.{}.{}",
            URL_SAFE_NO_PAD.encode(claims),
            URL_SAFE_NO_PAD.encode(name)
        )
    }

    async fn review(Json(asked): Json<Value>) -> Json<Value> {
        tokio::time::sleep(SLOW).await;
        let token = asked["spec"]["token"].as_str().unwrap_or_default().to_owned();
        let is_real = token.ends_with(&URL_SAFE_NO_PAD.encode("real"));
        let user = json!({"username": "system:serviceaccount:team:app", "uid": "u"});
        let status = json!({"authenticated": is_real, "audiences": ["knack"], "user": user});
        Json(json!({"metadata": {}, "spec": asked["spec"], "status": status}))
    }

    async fn slow_api_server() -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/apis/authentication.k8s.io/v1/tokenreviews", post(review));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap()
    }

    #[tokio::test]
    async fn a_flood_of_forged_tokens_delays_no_real_caller() {
        let authenticator = Arc::new(Authenticator::new(slow_api_server().await, "knack"));
        authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
        // Eight peers, each with eight connections, forge as fast as they are answered.
        let floods: Vec<_> = (0..64)
            .map(|number| {
                let authenticator = Arc::clone(&authenticator);
                tokio::spawn(async move {
                    let source = format!("10.0.1.{}", number % 8);
                    let mut refused = 0_usize;
                    for call in 0_usize.. {
                        let forged = token(&format!("forged {number} {call}"));
                        if authenticator.authenticate(&forged, &source).await.is_err() {
                            refused += 1;
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        if call > 100_000 {
                            break;
                        }
                    }
                    refused
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            // As when the verdict is half a minute old.
            authenticator.accepted.clear();
            let since = Instant::now();
            authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
            longest = longest.max(since.elapsed());
        }
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        // What was accepted stays, however much is refused.
        for number in 0..3 * REFUSED {
            let key: Key = Sha256::digest(number.to_string()).into();
            authenticator.refused.put(key, CallerError::Unknown, REFUSED_FOR);
        }
        let since = Instant::now();
        authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
        assert!(since.elapsed() < SLOW, "not asked again: {:?}", since.elapsed());
        for flood in floods {
            flood.abort();
        }
    }
}
