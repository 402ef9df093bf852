//! The HTTP API. Order of the checks: token, runtime, right, and only then the rest of the request.

mod catalog;
mod clients;
mod content;
mod execution_answer;
mod executions;
mod refusal;
mod shared_values;
mod stream_reader;
mod uses;

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{HeaderMap, header};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

pub use refusal::RefusalResponse;

use super::artifacts::Artifacts;
use super::catalog_views::CatalogViews;
use super::executors::Executors;
use super::metrics::{Metrics, RefusalLabels};
use super::reported_uses::ReportedUses;
use super::settings::HubSettings;
use super::shared_values::{KeptSecrets, KeptStore};
use super::start::Start;
use crate::account_auth::{Authenticator, ServiceAccountCaller};
use crate::cluster_reader::watch::Shared;
use crate::hub::access::{Access, GrantedCaller};
use crate::request_bodies::Bodies;
use knack_hub_api::{HubRefusal, PROTOCOL, RefusalCode, RuntimeName, Version, is_label};
use knack_serving::Peer;
use knack_vocabulary::HEADER_FOR;

/// The state that all requests share.
#[derive(Debug)]
pub struct HubState {
    /// The caller.
    pub callers: Authenticator,
    /// Whom a gateway serves.
    pub clients: Authenticator,
    /// The rights of callers.
    pub access: Access,
    /// What is still read for the first time.
    pub start: Start,
    /// The catalogs.
    pub views: CatalogViews,
    /// Files of skills.
    pub artifacts: Artifacts,
    /// Where code runs.
    pub executors: Arc<Executors>,
    /// The values that replicas of gateways keep for each other.
    pub kept: Arc<KeptStore>,
    /// The secrets that they make their keys from.
    pub kept_secrets: KeptSecrets,
    /// Bound of request bodies.
    pub bodies: Bodies,
    /// The cluster as it is known.
    pub shared: Arc<Shared>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// When skills were used last.
    pub reported_uses: Arc<ReportedUses>,
    /// Settings.
    pub settings: Arc<HubSettings>,
}

/// The whole service. `stop` ends streams.
pub fn router(state: Arc<HubState>, stop: CancellationToken) -> Router {
    Router::new()
        .route("/v1/version", get(version))
        .route("/v1/catalog", get(catalog::catalog))
        .route("/v1/content/{digest}", get(content::index))
        .route("/v1/content/{digest}/{*path}", get(content::file))
        .route("/v1/executions", post(executions::run))
        .route("/v1/executions/{id}", get(executions::read).delete(executions::cancel))
        .route("/v1/clients", post(clients::check))
        .route("/v1/kept", get(shared_values::follow))
        .route(
            "/v1/kept/{client}/{keys}",
            get(shared_values::read).put(shared_values::write),
        )
        .route("/v1/uses", post(uses::count))
        .fallback(async || {
            RefusalResponse::new(
                "unknown",
                HubRefusal::new(
                    RefusalCode::NotFound,
                    "no such endpoint of the hub; client and hub may be of different releases",
                ),
            )
        })
        .layer(from_fn_with_state(Arc::clone(&state), authenticate))
        .layer(Extension(Stop(stop)))
        .with_state(state)
}

/// Ends streams when the hub stops.
#[derive(Debug, Clone)]
struct Stop(CancellationToken);

/// The query of every request about a runtime.
#[derive(Debug, Deserialize)]
struct RuntimeQuery {
    runtime: String,
    #[serde(default)]
    watch: bool,
}

async fn version() -> Json<Version> {
    Json(Version {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Nothing is answered to strangers, and nothing of a request is read before its sender is known.
async fn authenticate(State(state): State<Arc<HubState>>, mut request: Request, next: Next) -> Response {
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim().to_owned());
    let caller = match token {
        Some(token) => {
            // Every request of the listener has its peer; without one all share one source.
            let peer = request.extensions().get::<Peer>().map(|peer| peer.address.to_string());
            state.callers.authenticate(&token, &peer.unwrap_or_default()).await
        }
        None => Err(HubRefusal::new(
            RefusalCode::Unauthenticated,
            "send a ServiceAccount token: Authorization: Bearer <token>",
        )),
    };
    let caller = caller.and_then(|caller| acting_for(request.headers(), caller));
    let mut response = match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => RefusalResponse::new("authenticate", refusal).into_response(),
    };
    if let Some(refused) = response.extensions_mut().remove::<RefusalLabels>() {
        state.metrics.refused(refused);
    }
    response
}

/// The caller, with the namespace that it says it asks for. Whether it may do so is checked with its other rights.
fn acting_for(headers: &HeaderMap, caller: ServiceAccountCaller) -> Result<ServiceAccountCaller, HubRefusal> {
    let Some(value) = headers.get(HEADER_FOR) else {
        return Ok(caller);
    };
    let namespace = value.to_str().ok().filter(|text| is_label(text)).ok_or_else(|| {
        HubRefusal::new(
            RefusalCode::Invalid,
            format!("{HEADER_FOR}: write the name of a namespace"),
        )
    })?;
    Ok(ServiceAccountCaller {
        acting_for: Some(namespace.to_owned()),
        ..caller
    })
}

/// Why nothing is known of a runtime at this moment, and nobody else can be asked.
fn nobody(runtime: &RuntimeName) -> HubRefusal {
    let text = format!("no replica of the hub holds the Lease of SkillRuntime {runtime} at this moment; try again");
    HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1)
}

/// The runtime of a query, if the caller may use it.
async fn granted(
    state: &HubState,
    caller: &ServiceAccountCaller,
    query: &Query<RuntimeQuery>,
    route: &'static str,
) -> Result<GrantedCaller, RefusalResponse> {
    let name: RuntimeName = query.runtime.parse().map_err(|error| {
        RefusalResponse::new(
            route,
            HubRefusal::new(RefusalCode::Invalid, format!("runtime: {error}")),
        )
    })?;
    state
        .access
        .check(caller, &name)
        .await
        .map_err(|refusal| RefusalResponse::new(route, refusal))
}
