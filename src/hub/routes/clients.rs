//! `POST /v1/clients`: a shared gateway has no rights in Kubernetes; it asks the hub who its clients are.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::{Extension, Json};
use http::HeaderMap;
use knack_hub_api::{ClientCheck, ClientVerdict, Problem, ProblemCode};

use super::{HubState, Refused};
use crate::hub::auth::Caller;

/// How long a gateway may use an answer: as long as the hub itself would.
const VALID_SECONDS: u64 = 10;

/// The route. The gateway itself must be allowed to use the runtime that it asks about.
pub(super) async fn check(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ClientVerdict>, Refused> {
    let refused = |problem| Refused::new("clients", problem);
    let held = state
        .bodies
        .read(&caller.key(), &headers, body)
        .await
        .map_err(refused)?;
    let check: ClientCheck = serde_json::from_slice(&held.bytes).map_err(|_| {
        refused(Problem::new(
            ProblemCode::Invalid,
            "the body must be {\"runtime\": \"namespace/name\", \"token\": \"…\"}",
        ))
    })?;
    let gateway = state.access.check(&caller, &check.runtime).await.map_err(refused)?;
    let client = match state.clients.authenticate(&check.token, &caller.key()).await {
        Ok(client) => client,
        Err(problem) if matches!(problem.code, ProblemCode::Unavailable | ProblemCode::Throttled) => {
            return Err(refused(problem));
        }
        Err(problem) => return Ok(verdict(None, false, Some(problem.message))),
    };
    match state.access.check(&client, &check.runtime).await {
        // A client gets no more than both may see.
        Ok(granted) => Ok(verdict(
            Some(&client),
            granted.sees.is_none() && gateway.sees.is_none(),
            None,
        )),
        Err(problem) if problem.code == ProblemCode::Unavailable => Err(refused(problem)),
        Err(problem) => Ok(verdict(Some(&client), false, Some(problem.message))),
    }
}

fn verdict(client: Option<&Caller>, sees_all: bool, reason: Option<String>) -> Json<ClientVerdict> {
    Json(ClientVerdict {
        allowed: reason.is_none(),
        client: client.map(|client| format!("{}/{}", client.name(), client.uid)),
        sees_all,
        reason,
        valid_seconds: VALID_SECONDS,
    })
}
