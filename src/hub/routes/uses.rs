//! `POST /v1/uses`: gateways say how often skills were used. The hub's metrics have the sums, and Skills the time of the last use.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use http::{HeaderMap, StatusCode};
use knack_hub_api::{HubRefusal, RefusalCode, USES_MAX, USES_MAX_BYTES, UsesPost};
use knack_skill::model::SkillRef;

use super::{HubState, RefusalResponse, RuntimeQuery, granted};
use crate::account_auth::ServiceAccountCaller;
use crate::last_uses;

/// The route. Skills that the runtime does not serve are counted together and get no time, so that no caller can make up names or
/// tell uses of others' skills.
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
    let (runtime, now) = (granted.name.to_string(), last_uses::now());
    for line in &post.uses {
        let served = skill_of(&line.skill).filter(|skill| state.views.serves(&granted.name, None, skill));
        let name = served.is_some().then_some(&*line.skill);
        state.metrics.skill_uses.count(&runtime, name, line);
        if let Some(skill) = served.filter(|_| line.is_use()) {
            state.reported_uses.remember(skill, now);
        }
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
