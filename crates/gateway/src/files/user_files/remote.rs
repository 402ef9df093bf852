//! The store in the registry of the cluster, asked as this gateway's ServiceAccount.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use knack_hub_api::client::HubClient;
use knack_memory::MemoryBudget;
use knack_serving::sources::Pace;
use knack_trust::read_answer;
use tokio::time::Instant;

use super::bounds::Bounds;
use super::caller_calls::CallerCalls;
use super::files_caller::FilesCaller;
use super::operation::{self, FILES_PATH, Op, Reply};
use super::refusal::FilesRefusal;
use super::store::UploadStore;
use crate::replicas::Replicas;

/// Time for one answer with its content, of 30 MiB at most.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until files of a run are kept: the answer that has them waits.
pub(crate) const MADE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of contents that are sent at once: one of the largest size. Of a sidecar's memory limit of 128 MiB.
const SENDING_MAX_BYTES: usize = 32 << 20;
/// How long a content waits for others to be sent.
const SENDING_PATIENCE: Duration = Duration::from_secs(10);
/// Calls of one caller: half of what the registry takes of all gateways of a namespace, so that none uses up what all of them
/// have.
const CALLER_CALLS: Pace = Pace {
    at_once: 16,
    burst: 250,
    refill: Duration::from_millis(40),
};
/// Pause before a call is sent again that the registry has no turn for. It was not begun.
const BUSY_PAUSE: Duration = Duration::from_millis(250);
/// Longest line of an answer: a caller's 1,000 uploads.
const LINE_MAX_BYTES: usize = 4 << 20;
/// Longest content of an answer.
const CONTENT_MAX_BYTES: usize = 30 << 20;

/// Uploads and containers that the registry keeps.
#[derive(Debug)]
pub struct RemoteFiles {
    client: HubClient,
    replicas: Option<Arc<Replicas>>,
    calls: CallerCalls,
    /// The memory budget for what is sent: a request is a copy of the content that its client has sent.
    sending: MemoryBudget,
}

impl RemoteFiles {
    /// `client`: of the registry. `replicas`: where the secret of callers' identities comes from; nothing is asked before it is
    /// there, since other replicas, and this one later, would not find what it kept. `memory`: of the process.
    pub fn new(client: HubClient, replicas: Option<Arc<Replicas>>, memory: &MemoryBudget) -> Self {
        Self {
            client,
            replicas,
            calls: CallerCalls::new(CALLER_CALLS),
            sending: memory.part(SENDING_MAX_BYTES),
        }
    }

    /// The registry's answer; `None`: it has too much to do.
    async fn answer(&self, body: Bytes, most: usize) -> Result<Option<Bytes>, String> {
        let mut headers = HeaderMap::new();
        let octets = HeaderValue::from_static("application/octet-stream");
        headers.insert(header::CONTENT_TYPE, octets);
        let sent = self.client.relay(Method::POST, FILES_PATH, headers, body).await;
        let mut response = sent.map_err(|error| error.to_string())?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            return Ok(None);
        }
        // A failing disk is reported in the answer, too.
        if !matches!(response.status(), StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR) {
            return Err(format!("the registry answers {}", response.status()));
        }
        let read = read_answer(&mut response, most).await;
        read.map(Some).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl UploadStore for RemoteFiles {
    async fn call(&self, who: &FilesCaller, op: Op, content: Bytes) -> Result<Reply, FilesRefusal> {
        if self.replicas.as_ref().is_some_and(|replicas| !replicas.has_secret()) {
            tracing::warn!(
                "a request about files is refused: the hub has not sent the secret of callers' identities yet"
            );
            return Err(FilesRefusal::Away);
        }
        if !op.is_sound() {
            return Err(FilesRefusal::Invalid("id", "an id or a name is too long".to_owned()));
        }
        let _turn = self.calls.turn(who).await?;
        let most = match op {
            Op::FileContent(_) | Op::ContainerFileContent(..) => LINE_MAX_BYTES + CONTENT_MAX_BYTES,
            _ => LINE_MAX_BYTES,
        };
        let is_made = matches!(&op, Op::AddToContainer(_, file) if file.source == super::Source::Assistant);
        let within = if is_made { MADE_TIMEOUT } else { CALL_TIMEOUT };
        let copied = self.sending.take(content.len(), SENDING_PATIENCE).await;
        let _copied = copied.map_err(|_| FilesRefusal::Busy)?;
        let body = operation::call_body(&who.bucket(), op, &content).ok_or(FilesRefusal::Failed)?;
        let cause = loop {
            match tokio::time::timeout(within, self.answer(body.clone(), most)).await {
                // Other replicas ask for the same caller, or others of its namespace.
                Ok(Ok(None)) if who.until.is_some_and(|until| Instant::now() < until) => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Ok(Ok(None)) => return Err(FilesRefusal::Busy),
                Ok(Ok(Some(answer))) => match operation::read_answered(&answer) {
                    Some(outcome) => return outcome,
                    None => break "its answer cannot be read; is it of another version?".to_owned(),
                },
                Ok(Err(cause)) => break cause,
                Err(_) => break format!("no answer within {} s", within.as_secs()),
            }
        };
        // The log has the cause; the answer to a client has no addresses of the cluster.
        tracing::warn!(cause, "a request about files is refused: the registry gave no answer");
        Err(FilesRefusal::Away)
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// No setting of a registry changes it.
    fn idle(&self) -> SignedDuration {
        Bounds::default().idle
    }
}
