//! `GET /v1/content/{digest}[/{path}]`: files of skills that the caller sees.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header;
use knack_hub_api::{ContentIndex, HubRefusal, RefusalCode};
use knack_skill::model::SkillRef;

use super::{HubState, RefusalResponse, RuntimeQuery, granted};
use crate::account_auth::ServiceAccountCaller;
use crate::hub::artifacts::{ArtifactError, Content};
use crate::hub::start::starting;
use crate::request_bodies::no_room;

/// `GET /v1/content/{digest}`.
pub(super) async fn index(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Path(digest): Path<String>,
) -> Result<Json<ContentIndex>, RefusalResponse> {
    let content = find(&state, &caller, &query, &digest).await?;
    Ok(Json(ContentIndex {
        digest,
        files: content.summary.files.clone(),
    }))
}

/// `GET /v1/content/{digest}/{path}`.
pub(super) async fn file(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Path((digest, path)): Path<(String, String)>,
) -> Result<Response, RefusalResponse> {
    let content = find(&state, &caller, &query, &digest).await?;
    let bytes = content.file(&path).ok_or_else(|| missing(&digest))?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// The content, if a skill that the caller sees at this runtime has it now. Other content is answered as unknown.
async fn find(
    state: &HubState,
    caller: &ServiceAccountCaller,
    query: &Query<RuntimeQuery>,
    digest: &str,
) -> Result<Arc<Content>, RefusalResponse> {
    let granted = granted(state, caller, query, "content").await?;
    let version = *state.shared.changes().borrow();
    let view = state.views.get(version, &granted.name, granted.sees.as_deref());
    let skill = view.and_then(|view| view.of_digest(digest).cloned());
    let skill: SkillRef = match skill {
        Some(skill) => skill,
        // Another replica may have named it.
        None if state.start.waiting_for().is_some() => return Err(RefusalResponse::new("content", starting())),
        None => return Err(missing(digest)),
    };
    state.artifacts.content(&skill, digest).await.map_err(|error| {
        let refusal = match error {
            ArtifactError::Unknown => return missing(digest),
            ArtifactError::NoRoom(over) => no_room(over),
            ArtifactError::Api(text) | ArtifactError::Broken(text) => {
                tracing::warn!(%skill, error = %text, "content cannot be read");
                HubRefusal::new(
                    RefusalCode::Unavailable,
                    "the content cannot be read at this moment; try again",
                )
                .retry_after(1)
            }
        };
        RefusalResponse::new("content", refusal)
    })
}

fn missing(digest: &str) -> RefusalResponse {
    // A path may contain any text: only a well-formed digest is repeated in the answer.
    let shown: String = digest.chars().filter(char::is_ascii_hexdigit).take(64).collect();
    let text = format!("no skill visible to you at this runtime has the digest {shown}, or it has no such file");
    RefusalResponse::new("content", HubRefusal::new(RefusalCode::NotFound, text))
}
