//! TokenReview, cached. Real callers never wait behind forged tokens: decisions of the two are kept apart, tokens that
//! were accepted once have a separate limit, and a source that sends many unknown tokens is answered 429.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_serving::expiring::Expiring;
use knack_serving::keyed_locks::KeyedLocks;
use knack_serving::sources::{Pace, Sources};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::caller::{CallerError, ServiceAccountCaller, accept, inspect};

/// How long an accepted token is not reviewed again; a deleted ServiceAccount is locked out within it.
const ACCEPTED_FOR: Duration = Duration::from_secs(30);
/// How long a refused token is not reviewed again: on an API server that lags, a new token becomes valid soon.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// Accepted tokens remembered, at about 500 bytes each.
const ACCEPTED_MAX: usize = 8192;
/// Refused tokens remembered. They have a separate cache: forged tokens evict only other refused ones.
const REFUSED_MAX: usize = 4096;
/// Tokens that were accepted once, until they expire: real callers wait only for reviews of these.
const PROVEN: usize = 8192;
/// Reviews of unknown tokens at once: unknown callers must not use up the hub's connections.
const STRANGERS_AT_ONCE: usize = 16;
/// Reviews at once of tokens that were accepted before.
const PROVEN_AT_ONCE: usize = 16;
/// Reviews of unknown tokens that one source may cause.
const REVIEWS: Pace = Pace {
    // A quarter of the reviews for strangers.
    at_once: 4,
    // The gateways of a node behind one address, or a gateway's clients after its start.
    burst: 100,
    // 20 a second.
    refill: Duration::from_millis(50),
};
/// Time for a review, with the wait for a permit: less than for other calls, because a request waits for it and can be retried.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

type TokenHash = [u8; 32];
/// Finds the owner of a token, for one audience.
pub struct Authenticator {
    client: Client,
    audience: &'static str,
    accepted: Expiring<TokenHash, ServiceAccountCaller>,
    refused: Expiring<TokenHash, CallerError>,
    proven: Expiring<TokenHash, ()>,
    sources: Arc<Sources>,
    strangers: Semaphore,
    known: Semaphore,
    /// Tokens that are being reviewed: other requests with the same token wait for its decision.
    locks: KeyedLocks<TokenHash>,
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
            accepted: Expiring::new(ACCEPTED_MAX),
            refused: Expiring::new(REFUSED_MAX),
            proven: Expiring::new(PROVEN),
            sources: Arc::new(Sources::new(REVIEWS)),
            strangers: Semaphore::new(STRANGERS_AT_ONCE),
            known: Semaphore::new(PROVEN_AT_ONCE),
            locks: KeyedLocks::default(),
        }
    }

    /// The owner of the token. `source` is the sender: an address, or the gateway that asks about a client.
    ///
    /// Errors: [`RefusalCode::Unauthenticated`] with the reason, [`RefusalCode::Throttled`] for a source that shows
    /// many unknown tokens, [`RefusalCode::Unavailable`] if the API server does not answer.
    pub async fn authenticate(&self, token: &str, source: &str) -> Result<ServiceAccountCaller, HubRefusal> {
        let now = knack_execution::now().as_secs();
        let expires = inspect(token, self.audience, now).map_err(refused)?;
        // Hashed: a credential is never kept.
        let key: TokenHash = Sha256::digest(token).into();
        if let Some(decision) = self.decision(&key) {
            return decision.map_err(refused);
        }
        let Some(_guard) = self.locks.take(key, REVIEW_TIMEOUT).await else {
            return Err(unavailable());
        };
        // Another request may have had it reviewed meanwhile.
        match self.decision(&key) {
            Some(decision) => decision.map_err(refused),
            None => self.ask(token, source, key, (now, expires)).await,
        }
    }

    /// The known decision on a token.
    fn decision(&self, key: &TokenHash) -> Option<Result<ServiceAccountCaller, CallerError>> {
        let accepted = self.accepted.get(key).map(Ok);
        accepted.or_else(|| self.refused.get(key).map(Err))
    }

    /// Has a token reviewed.
    async fn ask(
        &self,
        token: &str,
        source: &str,
        key: TokenHash,
        (now, expires): (u64, u64),
    ) -> Result<ServiceAccountCaller, HubRefusal> {
        let is_proven = self.proven.get(&key).is_some();
        let (permits, _permit) = if is_proven {
            (&self.known, None)
        } else {
            let permit = self.sources.take(source, Instant::now()).ok_or_else(too_many)?;
            (&self.strangers, Some(permit))
        };
        let decision = match tokio::time::timeout(REVIEW_TIMEOUT, self.review(permits, token, expires)).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a TokenReview failed");
                return Err(unavailable());
            }
            Err(_) => return Err(unavailable()),
        };
        let left = Duration::from_secs(expires.saturating_sub(now));
        match &decision {
            Ok(caller) => {
                self.accepted.put(key, caller.clone(), ACCEPTED_FOR.min(left));
                self.proven.put(key, (), left);
            }
            Err(error) => self.refused.put(key, error.clone(), REFUSED_FOR),
        }
        decision.map_err(refused)
    }

    async fn review(
        &self,
        permits: &Semaphore,
        token: &str,
        expires: u64,
    ) -> kube::Result<Result<ServiceAccountCaller, CallerError>> {
        // An error means that the semaphore is closed, which it never is.
        let _permit = permits.acquire().await;
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

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn refused(error: CallerError) -> HubRefusal {
    HubRefusal::new(RefusalCode::Unauthenticated, error.to_string())
}

fn too_many() -> HubRefusal {
    let text = "too many unknown tokens were sent from your address; try again";
    HubRefusal::new(RefusalCode::Throttled, text).retry_after(1)
}

fn unavailable() -> HubRefusal {
    HubRefusal::new(
        RefusalCode::Unavailable,
        "the API server did not authenticate the token in time; try again",
    )
    .retry_after(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::extract::State;
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

    /// Reviews of the real token so far.
    type Reviews = Arc<AtomicUsize>;

    async fn review(State(of_real): State<Reviews>, Json(asked): Json<Value>) -> Json<Value> {
        tokio::time::sleep(SLOW).await;
        let token = asked["spec"]["token"].as_str().unwrap_or_default().to_owned();
        let is_real = token.ends_with(&URL_SAFE_NO_PAD.encode("real"));
        of_real.fetch_add(usize::from(is_real), Ordering::Relaxed);
        let user = json!({"username": "system:serviceaccount:team:app", "uid": "u"});
        let status = json!({"authenticated": is_real, "audiences": ["knack"], "user": user});
        Json(json!({"metadata": {}, "spec": asked["spec"], "status": status}))
    }

    /// A client of that server. Both are in memory, so that the clock of a test can stand still while they work: what is measured are
    /// waits, whatever the machine does meanwhile.
    fn slow_api_server() -> (Client, Reviews) {
        let of_real = Reviews::default();
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(Arc::clone(&of_real));
        (Client::new(router, "default"), of_real)
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_with_one_new_token_are_one_review() {
        let (client, of_real) = slow_api_server();
        let authenticator = Arc::new(Authenticator::new(client, "knack"));
        let ask = |name: &'static str| {
            let authenticator = Arc::clone(&authenticator);
            tokio::spawn(async move { authenticator.authenticate(&token(name), "10.0.0.1").await })
        };
        let real: Vec<_> = (0..200).map(|_| ask("real")).collect();
        let forged: Vec<_> = (0..200).map(|_| ask("forged")).collect();
        for asked in real {
            assert!(asked.await.unwrap().is_ok(), "none is refused for the others");
        }
        assert_eq!(of_real.load(Ordering::Relaxed), 1);
        for asked in forged {
            assert_eq!(asked.await.unwrap().unwrap_err().code, RefusalCode::Unauthenticated);
        }
        // A caller that leaves before the decision leaves nothing behind either.
        let left = tokio::time::timeout(SLOW / 4, authenticator.authenticate(&token("left"), "10.0.0.1")).await;
        assert!(left.is_err());
        let permit = authenticator
            .locks
            .take(Sha256::digest(token("left")).into(), SLOW)
            .await;
        assert!(permit.is_some(), "its permit went with it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_forged_tokens_delays_no_real_caller() {
        let (client, of_real) = slow_api_server();
        let authenticator = Arc::new(Authenticator::new(client, "knack"));
        let caller = authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
        // Eight peers, each with eight connections, forge 20 times as much as they are allowed to.
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
                        tokio::time::sleep(Duration::from_millis(20)).await;
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
            // As when the decision is half a minute old.
            let key: TokenHash = Sha256::digest(token("real")).into();
            authenticator.accepted.put(key, caller.clone(), Duration::ZERO);
            let since = Instant::now();
            authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
            longest = longest.max(since.elapsed());
        }
        // A wait for one review of a forged token would add another one's time.
        assert!(longest < 2 * SLOW, "{longest:?}, and {SLOW:?} without the flood");
        // Accepted tokens stay, however many are refused.
        for number in 0..3 * REFUSED_MAX {
            let key: TokenHash = Sha256::digest(number.to_string()).into();
            authenticator.refused.put(key, CallerError::Unknown, REFUSED_FOR);
        }
        let reviews = of_real.load(Ordering::Relaxed);
        authenticator.authenticate(&token("real"), "10.0.0.1").await.unwrap();
        assert_eq!(of_real.load(Ordering::Relaxed), reviews, "not asked again");
        for flood in floods {
            flood.abort();
        }
    }
}
