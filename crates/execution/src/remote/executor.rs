//! The executor of a gateway in a cluster.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use knack_hub_api::client::{HubClient, HubError, LineReader};
use knack_hub_api::{ExecutionFrame, ExecutionState, PROTOCOL, PROTOCOLS, RefusalCode, RuntimeName};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shown::{Progress, ShownOutput};
use crate::lines::error_of_refusal;
use crate::lines::post_of_request;
use crate::lines::{CollectStep, Collector};
use crate::records::RecordSettings;
use crate::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, ExecutionStatus,
    Executor, Language, Missing,
};

/// How long an id is repeated beyond the run's own limit: the queue (30 s by default), a cold pod that pulls its image
/// (120 s), and a change of owner (a Lease of 15 s and its recovery).
const BEYOND_THE_LIMIT: Duration = Duration::from_mins(3);
/// First wait after a failure; doubled up to [`WAIT_MAX`], each with a jitter of half of it.
const WAIT_FIRST: Duration = Duration::from_millis(50);
/// Longest pause: an owner that returns is reached within it.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A full queue is retried this often, and only if it says so within [`QUEUE_WAIT_MAX`]: after that the model gets the
/// error and can do something else.
const QUEUE_TRIES: u32 = 2;
/// See [`QUEUE_TRIES`].
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Redirects without a wait: two replicas that name each other must not make a hot loop.
const REDIRECTS_AT_ONCE: u32 = 2;

/// Runs executions at a runtime of a hub.
#[derive(Debug)]
pub struct RemoteExecutor {
    client: HubClient,
    runtime: RuntimeName,
    /// Where the owner answered last.
    owner: ArcSwapOption<String>,
}

/// The next step after a failed answer.
enum RetryStep {
    /// Ask again at once.
    Now,
    /// Ask again after the usual wait.
    Wait(String),
    /// Ask again after this wait.
    After(Duration),
    /// It is over.
    Over(ExecutionError),
}

impl RemoteExecutor {
    /// An executor for one runtime.
    pub fn new(client: HubClient, runtime: RuntimeName) -> Arc<Self> {
        Arc::new(Self {
            client,
            runtime,
            owner: ArcSwapOption::empty(),
        })
    }

    /// Runs the request as [`Executor::execute`] does, and shows how it goes.
    pub async fn execute_shown(
        &self,
        request: &ExecutionRequest,
        cancel: &CancellationToken,
        show: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        self.run(request, cancel, Some(show)).await
    }

    async fn run(
        &self,
        request: &ExecutionRequest,
        cancel: &CancellationToken,
        show: Option<&(dyn Fn(Progress) + Send + Sync)>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let body = self.body(request, show.is_some(), PROTOCOL)?;
        let deadline = Instant::now() + request.limits.timeout + BEYOND_THE_LIMIT;
        let mut abandoned = DeleteOnDrop {
            client: &self.client,
            owner: &self.owner,
            path: self.path(request.id),
            armed: true,
        };
        let work = self.ask_until_over(request, body, show, deadline);
        let outcome = tokio::select! {
            outcome = work => outcome,
            () = cancel.cancelled() => return Err(ExecutionError::Cancelled),
        };
        abandoned.armed = false;
        outcome
    }

    /// Asks with one id until the execution is over, or its time is.
    async fn ask_until_over(
        &self,
        request: &ExecutionRequest,
        mut body: Bytes,
        show: Option<&(dyn Fn(Progress) + Send + Sync)>,
        deadline: Instant,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let mut shown = ShownOutput::new(show);
        let (mut tries, mut wait) = (Tries::default(), WAIT_FIRST);
        let mut stated = PROTOCOL;
        let mut posts = 0_u32;
        loop {
            posts += 1;
            let next = match self.once(request, body.clone(), &mut shown).await {
                Ok(result) => return Ok(result),
                Err(error) => match older(&error, stated) {
                    // A hub that is not upgraded yet, while gateways are.
                    Some(protocol) => {
                        stated = protocol;
                        body = self.body(request, show.is_some(), protocol)?;
                        RetryStep::Now
                    }
                    None => self.judge(error, &mut tries),
                },
            };
            let pause = match next {
                // A replica with another clock. A caller makes a new id of one that is invalid so; this one may have run.
                RetryStep::Over(ExecutionError::Invalid(why))
                    if posts > 1 && RecordSettings::is_ahead(request.id, self.client.now()) =>
                {
                    tracing::warn!(id = %request.id, %why, "an execution is not retried: an earlier attempt may have run its code");
                    return Err(ExecutionError::Gone);
                }
                RetryStep::Over(error) => return Err(error),
                RetryStep::Now => continue,
                RetryStep::After(pause) => pause,
                RetryStep::Wait(why) => {
                    shown.report(Progress::Again(why));
                    let pause = wait;
                    wait = (wait * 2).min(WAIT_MAX);
                    jitter(pause)
                }
            };
            if Instant::now() + pause >= deadline {
                return Err(ExecutionError::Unavailable(Missing::new(
                    "the hub that runs code did not answer in time",
                    "try again later",
                )));
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn body(&self, request: &ExecutionRequest, live: bool, protocol: u32) -> Result<Bytes, ExecutionError> {
        let post = post_of_request(&self.runtime, request, live, protocol);
        let body = serde_json::to_vec(&post).map_err(|error| ExecutionError::Internal(error.to_string()))?;
        Ok(body.into())
    }

    /// Asks once, and reads to the end.
    async fn once(
        &self,
        request: &ExecutionRequest,
        body: Bytes,
        shown: &mut ShownOutput<'_>,
    ) -> Result<Arc<ExecutionResult>, HubError> {
        let owner = self.owner.load_full();
        let owner = owner.as_ref().map(|owner| owner.as_str());
        let mut lines = self
            .client
            .at(owner)
            .post_traced("/v1/executions", body, request.trace)
            .await?;
        let result = read(&mut lines, request.id, shown).await;
        lines.finish();
        result
    }

    fn judge(&self, error: HubError, tries: &mut Tries) -> RetryStep {
        // Counted in a row: during an outage replicas come and go, and each says so once or twice.
        if !matches!(&error, HubError::Refused(refusal) if refusal.code == RefusalCode::Unavailable) {
            tries.unavailable = 0;
        }
        match error {
            HubError::Refused(refusal) => match refusal.code {
                RefusalCode::NotOwner => {
                    self.owner.store(refusal.owner.clone().map(Arc::new));
                    tries.redirects += 1;
                    if refusal.owner.is_some() && tries.redirects <= REDIRECTS_AT_ONCE {
                        RetryStep::Now
                    } else {
                        RetryStep::Wait("the runtime changes its owner".to_owned())
                    }
                }
                RefusalCode::TooManyRequests => {
                    tries.full += 1;
                    let wait = Duration::from_secs(refusal.retry_after_seconds.unwrap_or(1).max(1));
                    if tries.full <= QUEUE_TRIES && wait <= QUEUE_WAIT_MAX {
                        RetryStep::After(jitter(wait))
                    } else {
                        RetryStep::Over(error_of_refusal(refusal))
                    }
                }
                // The caller was not authenticated: after a hub was replaced, many call at once.
                RefusalCode::TooSlow | RefusalCode::Throttled => RetryStep::Wait("the hub is busy".to_owned()),
                // Unavailable with a failure of the cluster is an answer; without, a replica that cannot answer now.
                RefusalCode::Unavailable if refusal.failure.is_none() => {
                    tries.unavailable += 1;
                    let wait = Duration::from_secs(refusal.retry_after_seconds.unwrap_or(1).max(1));
                    if tries.unavailable > UNAVAILABLE_TRIES || wait > QUEUE_WAIT_MAX {
                        RetryStep::Over(error_of_refusal(refusal))
                    } else {
                        self.owner.store(None);
                        RetryStep::After(jitter(wait))
                    }
                }
                _ => RetryStep::Over(error_of_refusal(refusal)),
            },
            HubError::Unreachable(_) | HubError::Broken(_) => {
                // The owner may be gone: the Service has the replicas that are ready.
                self.owner.store(None);
                tries.redirects = 0;
                tracing::info!(runtime = %self.runtime, %error, "retrying the request to the hub");
                RetryStep::Wait("the hub does not answer".to_owned())
            }
            HubError::Protocol(text) => RetryStep::Over(ExecutionError::Internal(text)),
            HubError::Configuration(text) => {
                tracing::warn!(%text, "cannot send requests to the hub");
                RetryStep::Over(ExecutionError::Unavailable(Missing::new(
                    "this gateway cannot send requests to its hub",
                    "see its log for the cause",
                )))
            }
        }
    }

    /// Path and query of an execution at the hub.
    fn path(&self, id: ExecutionId) -> String {
        format!("/v1/executions/{id}?runtime={}", self.runtime)
    }
}

/// How often replicas may say "not now", in a row, before that is the answer.
const UNAVAILABLE_TRIES: u32 = 3;

#[derive(Debug, Default)]
struct Tries {
    redirects: u32,
    full: u32,
    unavailable: u32,
}

/// The protocol of a hub that did not understand a request of protocol `stated`, if it is an older one that is still spoken.
fn older(error: &HubError, stated: u32) -> Option<u32> {
    match error {
        HubError::Refused(refusal) if refusal.code == RefusalCode::Invalid => refusal
            .protocol
            .filter(|protocol| *protocol < stated && PROTOCOLS.accepts(*protocol)),
        _ => None,
    }
}

fn plain(error: HubError) -> ExecutionError {
    match error {
        HubError::Refused(refusal) => error_of_refusal(refusal),
        error => {
            tracing::info!(%error, "the hub did not answer");
            ExecutionError::Unavailable(Missing::new("the hub does not answer", "try again later"))
        }
    }
}

async fn read(
    lines: &mut LineReader,
    id: ExecutionId,
    shown: &mut ShownOutput<'_>,
) -> Result<Arc<ExecutionResult>, HubError> {
    let mut collector = Collector::default();
    shown.begin();
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await? {
        match frame {
            ExecutionFrame::Error(refusal) => return Err(HubError::Refused(refusal)),
            ExecutionFrame::Phase { phase } => shown.report(Progress::Phase(phase)),
            ExecutionFrame::Output(output) => shown.output(output.stream, &output.data.0),
            ExecutionFrame::Skipped { .. } => shown.skip(),
            frame => match collector.take(id, frame) {
                Ok(CollectStep::Result(result)) => {
                    shown.end(&result);
                    return Ok(result);
                }
                Ok(CollectStep::More) => {}
                Err(error) => return Err(HubError::Protocol(error.to_string())),
            },
        }
    }
    Err(HubError::Broken("it ended before the result".to_owned()))
}

/// How long a hub is asked to end an execution while it cannot: as long as one goes on without anybody waiting for it.
const DELETE_PATIENCE: Duration = Duration::from_secs(30);
/// How long one such request may take: a hub whose node is lost gives no answer, and the next one may have taken over.
const ASK_ONCE: Duration = Duration::from_secs(5);

/// Asks the owner of a runtime, `owner` as far as it is known. For as long as `patience` it is asked again, also an owner that is still to
/// come. Errors: a refusal that is an answer, or the last error.
async fn at_owner<T, F>(
    mut owner: Option<Arc<String>>,
    patience: Duration,
    ask: impl Fn(Option<Arc<String>>) -> F,
) -> Result<T, HubError>
where
    F: Future<Output = Result<T, HubError>>,
{
    let deadline = Instant::now() + patience;
    let (mut wait, mut redirects) = (WAIT_FIRST, 0);
    loop {
        let silent = |_| Err(HubError::Broken("no answer in time".to_owned()));
        let asked = tokio::time::timeout(ASK_ONCE, ask(owner)).await;
        let error = match asked.unwrap_or_else(silent) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let is_redirect = matches!(&error, HubError::Refused(refusal) if refusal.code == RefusalCode::NotOwner);
        if !is_redirect && !error.is_transient() {
            return Err(error);
        }
        let (next, after) = match &error {
            HubError::Refused(refusal) => (refusal.owner.clone(), refusal.retry_after_seconds),
            _ => (None, None),
        };
        owner = next.map(Arc::new);
        redirects += u32::from(owner.is_some());
        if owner.is_some() && redirects <= REDIRECTS_AT_ONCE {
            continue;
        }
        let bounded = |seconds: u64| Duration::from_secs(seconds.clamp(1, DELETE_PATIENCE.as_secs()));
        let pause = after.map_or(wait, bounded);
        wait = (wait * 2).min(WAIT_MAX);
        if Instant::now() + pause >= deadline {
            return Err(error);
        }
        tokio::time::sleep(jitter(pause)).await;
    }
}

/// Ends an execution. Errors: it is not known, or nobody took it in time.
async fn delete(client: &HubClient, owner: Option<Arc<String>>, path: &str) -> Result<(), HubError> {
    at_owner(owner, DELETE_PATIENCE, |owner| async move {
        client.at(owner.as_deref().map(String::as_str)).delete(path).await
    })
    .await
}

/// Deletes the execution at the hub when its caller leaves before its end.
struct DeleteOnDrop<'e> {
    client: &'e HubClient,
    owner: &'e ArcSwapOption<String>,
    path: String,
    armed: bool,
}

impl Drop for DeleteOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (client, owner, path) = (self.client.clone(), self.owner.load_full(), self.path.clone());
        runtime.spawn(async move {
            if let Err(error) = delete(&client, owner, &path).await {
                // Nothing is lost: an execution without a waiter is cancelled by the hub after 30 s.
                tracing::debug!(%error, "an abandoned execution was not deleted");
            }
        });
    }
}

/// Between half of it and all of it: gateways that lost the same hub must not reconnect at the same moment.
#[must_use]
pub fn jitter(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_bytes()[0];
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / 255.0)
}

#[async_trait]
impl Executor for RemoteExecutor {
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        self.run(&request, &cancel, None).await
    }

    /// The caller is this gateway: its own clients' executions are distinguished by their ids, which cannot be guessed.
    /// Files are not part of it.
    async fn get(&self, _caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        let path = self.path(id);
        // A caller that reads a state asks again by itself.
        let state: Result<ExecutionState, HubError> = at_owner(self.owner.load_full(), Duration::ZERO, |owner| {
            // The next request goes to the owner that a redirect named.
            if owner.is_some() {
                self.owner.store(owner.clone());
            }
            let (client, path) = (&self.client, &path);
            async move { client.at(owner.as_deref().map(String::as_str)).get(path).await }
        })
        .await;
        let state = state.map_err(plain)?;
        let status = match state.status.as_str() {
            "pending" => ExecutionStatus::Pending,
            "running" => ExecutionStatus::Running,
            "success" => ExecutionStatus::Success,
            "timeout" => ExecutionStatus::Timeout,
            _ => ExecutionStatus::Error,
        };
        let result = match state.result {
            Some(frame) => match Collector::default().take(id, ExecutionFrame::Result(frame))? {
                CollectStep::Result(result) => Some(result),
                CollectStep::More => None,
            },
            None => None,
        };
        Ok(ExecutionRecord {
            id,
            skill: state.skill,
            status,
            result,
            error: state.error,
        })
    }

    async fn cancel(&self, _caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        let deleted = delete(&self.client, self.owner.load_full(), &self.path(id)).await;
        deleted.map_err(plain)
    }

    fn now(&self) -> Duration {
        self.client.now()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            languages: vec![Language::Python],
            missing: None,
            notes: Vec::new(),
            // The hub's runtime bounds it.
            concurrency: usize::MAX,
        }
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod follow_tests;
