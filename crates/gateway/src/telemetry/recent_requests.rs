//! The last requests of this gateway, kept for a person who asks about one of them.
//!
//! They are in memory only, within a bound, and are shown to nobody but who may reach the process itself: on the loopback
//! addresses of its pod, which is the right to forward a port to it, or of the machine of `knack dev`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::StatusCode;
use knack_serving::Peer;
use serde_json::json;

use super::request_report::RequestReport;

/// Bytes of memory for reports, by [`RequestReport::bytes`]: those of the last 1,000 requests or so, at 1 KiB for one with two
/// rounds and a call.
const RECENT_BYTES: usize = 1 << 20;
/// Reports in an answer without an id: what a person reads.
const LISTED_MAX: usize = 20;

/// The last requests.
#[derive(Debug, Default)]
pub struct RecentRequests {
    kept: Mutex<RecentReports>,
}

#[derive(Debug, Default)]
struct RecentReports {
    /// The newest last. They become JSON on demand, since most are never read.
    reports: VecDeque<Arc<RequestReport>>,
    bytes: usize,
}

impl RecentRequests {
    /// Keeps a report; the oldest ones make room for it.
    pub fn keep(&self, report: RequestReport) {
        let mut kept = self.lock();
        kept.bytes += report.bytes();
        kept.reports.push_back(Arc::new(report));
        while kept.bytes > RECENT_BYTES {
            let Some(oldest) = kept.reports.pop_front() else {
                break;
            };
            kept.bytes -= oldest.bytes();
        }
    }

    /// The report on a request.
    pub fn find(&self, id: &str) -> Option<Arc<RequestReport>> {
        let kept = self.lock();
        kept.reports
            .iter()
            .rev()
            .find(|report| report.request_id == id)
            .cloned()
    }

    /// The last ones, the oldest first.
    pub fn last(&self) -> Vec<Arc<RequestReport>> {
        let kept = self.lock();
        let skipped = kept.reports.len().saturating_sub(LISTED_MAX);
        kept.reports.iter().skip(skipped).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RecentReports> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Their endpoints; who serves them decides who may ask.
pub(crate) fn router(recent: Arc<RecentRequests>) -> Router {
    Router::new()
        .route("/knack/v1/requests", get(list))
        .route("/knack/v1/requests/{id}", get(one))
        .with_state(recent)
}

/// Their endpoints for a port that the network reaches: connections from within the pod are answered, others are not.
pub(crate) fn local_router(recent: Arc<RecentRequests>) -> Router {
    router(recent).layer(from_fn(local_only))
}

async fn local_only(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if peer.is_local() {
        return next.run(request).await;
    }
    let text = "requests are shown within the pod only: knack trace, or kubectl port-forward\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

async fn list(State(recent): State<Arc<RecentRequests>>) -> Response {
    let kept = recent.last();
    let requests: Vec<&RequestReport> = kept.iter().map(AsRef::as_ref).collect();
    Json(json!({ "requests": requests })).into_response()
}

async fn one(State(recent): State<Arc<RecentRequests>>, Path(id): Path<String>) -> Response {
    match recent.find(&id) {
        Some(report) => Json(&*report).into_response(),
        None => (
            StatusCode::NOT_FOUND,
            "no such request among the last ones of this gateway\n",
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::RequestLog;

    fn report(id: &str) -> RequestReport {
        RequestReport::from(RequestLog {
            request_id: id.to_owned(),
            ..RequestLog::default()
        })
    }

    #[test]
    fn the_last_requests_are_found_and_older_ones_make_room() {
        let recent = RecentRequests::default();
        for number in 0..10_000 {
            recent.keep(report(&format!("r{number}")));
        }
        let kept = recent.lock().reports.len();
        assert!((1_000..10_000).contains(&kept), "{kept}");
        let sum: usize = recent.lock().reports.iter().map(|one| one.bytes()).sum();
        assert_eq!(recent.lock().bytes, sum);
        assert!(sum <= RECENT_BYTES);
        assert!(recent.find("r0").is_none());
        assert_eq!(*recent.find("r9999").unwrap(), report("r9999"));
        let listed = recent.last();
        assert_eq!(listed.len(), LISTED_MAX);
        assert_eq!(listed[LISTED_MAX - 1].request_id, "r9999");
    }

    #[tokio::test]
    async fn what_is_asked_for_becomes_json() {
        let recent = Arc::new(RecentRequests::default());
        recent.keep(report("r1"));
        recent.keep(report("r2"));
        let Json(one) = read::<RequestReport>(one(State(Arc::clone(&recent)), Path("r2".to_owned())).await).await;
        assert_eq!(one, report("r2"));
        let Json(listed) = read::<serde_json::Value>(list(State(recent)).await).await;
        assert_eq!(listed["requests"][0]["requestId"], "r1");
        assert_eq!(listed["requests"].as_array().unwrap().len(), 2);
    }

    async fn read<T: serde::de::DeserializeOwned>(response: Response) -> Json<T> {
        assert_eq!(response.headers()[http::header::CONTENT_TYPE], "application/json");
        let bytes = axum::body::to_bytes(response.into_body(), RECENT_BYTES).await.unwrap();
        Json::from_bytes(&bytes).unwrap()
    }
}
