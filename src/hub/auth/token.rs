//! TokenReview, cached.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::cache::Expiring;
use super::caller::{Caller, CallerError, accept, inspect};
use crate::hub_api::{Problem, ProblemCode};

/// How long an accepted token is not asked about again; a deleted ServiceAccount is locked out within it.
const ACCEPTED_FOR: Duration = Duration::from_secs(30);
/// How long a refused one is not: a token that is not valid yet, on a lagging API server, becomes valid soon.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// Tokens remembered, at about 500 bytes each.
const REMEMBERED: usize = 8192;
/// Reviews at once: strangers must not use up the hub's connections.
const REVIEWS_AT_ONCE: usize = 16;
/// Time for a review, the wait for a turn included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

type Key = [u8; 32];

/// Tells who a token belongs to, for one audience.
pub struct Authenticator {
    client: Client,
    audience: &'static str,
    known: Expiring<Key, Result<Caller, CallerError>>,
    turns: Semaphore,
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
            known: Expiring::new(REMEMBERED),
            turns: Semaphore::new(REVIEWS_AT_ONCE),
        }
    }

    /// Who the token belongs to.
    ///
    /// Errors: [`ProblemCode::Unauthenticated`] with the reason, [`ProblemCode::Unavailable`] if the API server does not
    /// answer.
    pub async fn authenticate(&self, token: &str) -> Result<Caller, Problem> {
        let refused = |error: CallerError| Problem::new(ProblemCode::Unauthenticated, error.to_string());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let expires = inspect(token, self.audience, now).map_err(refused)?;
        // Hashed: a credential is never kept.
        let key: Key = Sha256::digest(token).into();
        if let Some(known) = self.known.get(&key) {
            return known.map_err(refused);
        }
        let verdict = match tokio::time::timeout(REVIEW_TIMEOUT, self.review(token, expires)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a TokenReview failed");
                return Err(unavailable());
            }
            Err(_) => return Err(unavailable()),
        };
        let life = match &verdict {
            Ok(_) => ACCEPTED_FOR.min(Duration::from_secs(expires.saturating_sub(now))),
            Err(_) => REFUSED_FOR,
        };
        self.known.put(key, verdict.clone(), life);
        verdict.map_err(refused)
    }

    async fn review(&self, token: &str, expires: u64) -> kube::Result<Result<Caller, CallerError>> {
        // An error means that the semaphore is closed, which it never is.
        let _turn = self.turns.acquire().await;
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

fn unavailable() -> Problem {
    Problem::new(
        ProblemCode::Unavailable,
        "the API server did not say in time who this is; try again",
    )
    .retry_after(1)
}
