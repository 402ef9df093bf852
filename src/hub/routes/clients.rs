//! `POST /v1/clients`: a shared gateway has no rights in Kubernetes; it asks the hub who its clients are.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::{Extension, Json};
use http::HeaderMap;
use knack_hub_api::{ClientAuthorization, ClientCheck, HubRefusal, RefusalCode};

use super::{HubState, RefusalResponse};
use crate::account_auth::ServiceAccountCaller;

/// How long a gateway may use an answer: as long as the hub itself would.
const VALID_SECONDS: u64 = 10;

/// The route. The gateway itself must be allowed to use the runtime that it asks about.
pub(super) async fn check(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ClientAuthorization>, RefusalResponse> {
    let refused = |refusal| RefusalResponse::new("clients", refusal);
    let held = state
        .bodies
        .read(&caller.key(), &headers, body)
        .await
        .map_err(refused)?;
    let check: ClientCheck = serde_json::from_slice(&held.bytes).map_err(|_| {
        refused(HubRefusal::new(
            RefusalCode::Invalid,
            "the body must be {\"runtime\": \"namespace/name\", \"token\": \"…\"}",
        ))
    })?;
    let gateway = state.access.check(&caller, &check.runtime).await.map_err(refused)?;
    let client = match state.clients.authenticate(&check.token, &caller.key()).await {
        Ok(client) => client,
        Err(refusal) if matches!(refusal.code, RefusalCode::Unavailable | RefusalCode::Throttled) => {
            return Err(refused(refusal));
        }
        Err(refusal) => return Ok(authorization(None, false, Some(refusal.message))),
    };
    match state.access.check(&client, &check.runtime).await {
        // A client gets no more than both may see.
        Ok(granted) => Ok(authorization(
            Some(&client),
            granted.sees.is_none() && gateway.sees.is_none(),
            None,
        )),
        Err(refusal) if refusal.code == RefusalCode::Unavailable => Err(refused(refusal)),
        Err(refusal) => Ok(authorization(Some(&client), false, Some(refusal.message))),
    }
}

fn authorization(
    client: Option<&ServiceAccountCaller>,
    sees_all: bool,
    reason: Option<String>,
) -> Json<ClientAuthorization> {
    Json(ClientAuthorization {
        allowed: reason.is_none(),
        client: client.map(|client| format!("{}/{}", client.name(), client.uid)),
        sees_all,
        reason,
        valid_seconds: VALID_SECONDS,
    })
}
