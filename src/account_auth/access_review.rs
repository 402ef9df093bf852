//! The rights of a caller by RBAC: SubjectAccessReview, cached briefly.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_serving::expiring::Expiring;
use kube::api::PostParams;
use kube::{Api, Client};

use super::caller::ServiceAccountCaller;
use crate::access_review::{AccessAction, review};
use crate::api_call::within;

/// How long an answer of the API server is used: a revoked right ends within it.
const ANSWER_FOR: Duration = Duration::from_secs(10);
/// Answers remembered.
const REMEMBERED: usize = 8192;
/// Time for one review: less than for other calls, because a request waits for it and can be retried.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the API server, and remembers its answers.
pub struct AccessReviewer {
    client: Client,
    answers: Expiring<(String, String, AccessAction), bool>,
}

impl std::fmt::Debug for AccessReviewer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AccessReviewer").finish_non_exhaustive()
    }
}

impl AccessReviewer {
    /// Reviews by an API server.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Expiring::new(REMEMBERED),
        }
    }

    /// Whether `caller` may do that. Error: [`RefusalCode::Unavailable`] if the API server does not answer.
    pub(crate) async fn may(&self, caller: &ServiceAccountCaller, action: &AccessAction) -> Result<bool, HubRefusal> {
        let key = (caller.username.clone(), caller.uid.clone(), action.clone());
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let review = review(subject(caller), action);
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let asked = api.create(&params, &review);
        let answer = within(REVIEW_TIMEOUT, asked).await.map_err(|error| {
            tracing::warn!(%error, "a SubjectAccessReview failed");
            unavailable()
        })?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.answers.put(key, allowed, ANSWER_FOR);
        Ok(allowed)
    }
}

fn subject(caller: &ServiceAccountCaller) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(caller.username.clone()),
        uid: Some(caller.uid.clone()),
        groups: Some(caller.groups.clone()),
        extra: Some(caller.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    }
}

fn unavailable() -> HubRefusal {
    HubRefusal::new(
        RefusalCode::Unavailable,
        "the API server did not authorize the request in time; try again",
    )
    .retry_after(1)
}
