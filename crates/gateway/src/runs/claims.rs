//! Runs with an `idempotency-key` on a cluster: before a run begins, the gateway claims the key at the registry, to which all replicas report.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use knack_registry::{CLAIM_EVERY, CLAIM_PATH, ClaimError, ClaimOutcome, Claims, Execution};
use knack_trust::read_answer;
use tokio_util::task::AbortOnDropHandle;

use super::execution_reporter::{Reports, reported};

/// Time for an answer to a claim: the registry writes it to its disk first, which it gives 5 s.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(8);
/// Times that a claim is sent. It is the same one: an answer that was lost is given again.
const CLAIM_TRIES: usize = 2;
/// How long the answer to a client waits until the registry knows how its run ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer: an execution with input, output and error, each JSON in JSON at worst.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// Claims by the reports of this gateway.
#[derive(Debug, Clone)]
pub(crate) struct ReportedClaims(pub Arc<Reports>);

/// The outcome of one try.
enum TryOutcome {
    Answered(Result<ClaimOutcome, ClaimError>),
    Silent(String),
}

impl ReportedClaims {
    async fn try_claim(&self, line: Bytes) -> TryOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let sent = self.0.client.relay(Method::POST, CLAIM_PATH, headers, line).await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return TryOutcome::Silent(error.to_string()),
        };
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return TryOutcome::Answered(Err(ClaimError::NoHistory)),
            StatusCode::TOO_MANY_REQUESTS => return TryOutcome::Answered(Err(ClaimError::Busy)),
            status => return TryOutcome::Silent(format!("the registry answers {status}")),
        }
        let read = match read_answer(&mut response, ANSWER_MAX_BYTES).await {
            Ok(read) => read,
            Err(error) => return TryOutcome::Silent(error.to_string()),
        };
        match serde_json::from_slice(&read) {
            Ok(claimed) => TryOutcome::Answered(Ok(claimed)),
            Err(error) => TryOutcome::Silent(format!("its answer cannot be read: {error}")),
        }
    }
}

#[async_trait]
impl Claims for ReportedClaims {
    async fn claim(&self, execution: &Execution) -> Result<ClaimOutcome, ClaimError> {
        let line = serde_json::to_vec(&reported(execution.clone())).map_err(|_| ClaimError::Away)?;
        let line = Bytes::from(line);
        for _ in 0..CLAIM_TRIES {
            let cause = match tokio::time::timeout(CLAIM_TIMEOUT, self.try_claim(line.clone())).await {
                Ok(TryOutcome::Answered(answer)) => return answer,
                Ok(TryOutcome::Silent(cause)) => cause,
                Err(_) => format!("no answer within {} s", CLAIM_TIMEOUT.as_secs()),
            };
            tracing::warn!(cause, "the registry did not answer the claim of a run");
        }
        // It may have the claim, and only its answers were lost.
        self.report(Execution {
            withdrawn: true,
            ..execution.clone()
        });
        Err(ClaimError::Away)
    }

    fn hold(&self, execution: &Execution) -> Box<dyn Any + Send + Sync> {
        let (claims, line) = (self.clone(), serde_json::to_vec(&reported(execution.clone())));
        let task = tokio::spawn(async move {
            let Ok(line) = line.map(Bytes::from) else { return };
            loop {
                tokio::time::sleep(CLAIM_EVERY).await;
                // Without an answer, a repeat may get "this run is lost" until the end of the run is reported.
                let _ = tokio::time::timeout(CLAIM_TIMEOUT, claims.try_claim(line.clone())).await;
            }
        });
        Box::new(AbortOnDropHandle::new(task))
    }

    async fn settle(&self, execution: Execution) {
        let line = serde_json::to_string(&reported(execution.clone())).unwrap_or_default();
        let lines = [line];
        let sent = tokio::time::timeout(SETTLE_TIMEOUT, self.0.send_lines(&lines)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.0.put(execution);
        }
    }

    fn report(&self, execution: Execution) {
        self.0.put(execution);
    }
}
