//! `POST /v1/uses`: gateways say how often skills were used; the hub's metrics have the sums.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use http::{HeaderMap, StatusCode};
use knack_hub_api::{HubRefusal, RefusalCode, USES_MAX, USES_MAX_BYTES, UsesPost};
use knack_skill::model::SkillRef;

use super::{HubState, RefusalResponse, RuntimeQuery, granted};
use crate::hub::auth::ServiceAccountCaller;

/// The route. Skills that the runtime does not serve are counted together, so that no caller can make up names.
pub(super) async fn count(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, RefusalResponse> {
    let granted = granted(&state, &caller, &query, "uses").await?;
    let held = state
        .bodies
        .read_within("a report of uses", USES_MAX_BYTES, &caller.key(), &headers, body)
        .await
        .map_err(refused)?;
    let post: UsesPost = serde_json::from_slice(&held.bytes).map_err(|error| {
        let text = format!("the body must be {{\"uses\": [{{\"skill\": \"namespace/name\", \"ran\": 1}}]}}: {error}");
        refused(HubRefusal::new(RefusalCode::Invalid, text))
    })?;
    if post.uses.len() > USES_MAX {
        let text = format!("a report of uses may have at most {USES_MAX} lines");
        return Err(refused(HubRefusal::new(RefusalCode::Invalid, text)));
    }
    let runtime = granted.name.to_string();
    for line in &post.uses {
        let is_served = skill_of(&line.skill).is_some_and(|skill| state.views.serves(&granted.name, None, &skill));
        state
            .metrics
            .skill_uses
            .count(&runtime, is_served.then_some(&*line.skill), line);
    }
    Ok(StatusCode::NO_CONTENT)
}

fn skill_of(text: &str) -> Option<SkillRef> {
    let (namespace, name) = text.split_once('/')?;
    Some(SkillRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn refused(refusal: HubRefusal) -> RefusalResponse {
    RefusalResponse::new("uses", refusal)
}
