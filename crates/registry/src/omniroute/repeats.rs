//! Requests with an idempotency key: the same one runs once. One process knows what it runs itself; of a cluster's gateways the
//! registry knows which has claimed it.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::rows::refused;
use crate::answer::{Refusal, RefusalKind, RepeatRefusal};
use crate::history::{ClaimOutcome, Execution, History, Status};

/// The header that makes a repeat of a request the same run.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Characters of its value.
const KEY_MAX: usize = 256;

/// Where the gateways of a cluster claim runs.
#[async_trait]
pub trait Claims: Debug + Send + Sync {
    /// Claims a run. On an error nothing may be run.
    async fn claim(&self, execution: &Execution) -> Result<ClaimOutcome, ClaimError>;
    /// Claims it again and again until the answer is dropped.
    fn hold(&self, execution: &Execution) -> Box<dyn Any + Send + Sync>;
    /// Says how it ended, or that the claim is withdrawn, and waits until the registry knows, within a bound.
    async fn settle(&self, execution: Execution);
    /// Says how it ended, or that the claim is withdrawn, without waiting.
    fn report(&self, execution: Execution);
}

/// Why it is not known who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError {
    /// There is no answer, or none that can be used.
    Away,
    /// The registry takes no more claims at this moment.
    Busy,
    /// The registry keeps no history.
    NoHistory,
}

/// The authority on which requests ran.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IdempotencyAuthority<'a> {
    /// This process.
    Here(&'a RunsInProgress),
    /// The registry of the cluster.
    Cluster(&'a Arc<dyn Claims>),
    /// No run.
    Nobody,
}

/// Runs with an idempotency key that this process has started: the fingerprints of their requests by their ids.
#[derive(Debug, Default)]
pub(crate) struct RunsInProgress(Mutex<HashMap<String, Option<String>>>);

/// Given back when the run has ended.
pub(crate) struct OwnRun<'a>(&'a RunsInProgress, String);

impl RunsInProgress {
    fn take(&self, first: &Execution) -> Result<OwnRun<'_>, Refusal> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.entry(first.id.clone()) {
            Entry::Occupied(running) if first.is_other_request(running.get().as_deref()) => Err(other_request()),
            Entry::Occupied(_) => Err(in_progress()),
            Entry::Vacant(free) => {
                free.insert(first.fingerprint.clone());
                Ok(OwnRun(self, first.id.clone()))
            }
        }
    }
}

impl Drop for OwnRun<'_> {
    fn drop(&mut self) {
        let mut taken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.1);
    }
}

/// The decision about a request with an idempotency key.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a request, and it is moved once"
)]
pub(crate) enum RepeatDecision<'a> {
    /// The first request: it is run, and this gets its steps.
    Own(RunObserver<'a>),
    /// It has run.
    Done(Box<Execution>),
}

/// The receiver of the steps of a run.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a request, and it is moved once"
)]
pub(crate) enum RunObserver<'a> {
    /// The history, of each.
    History(Option<Arc<dyn History>>),
    /// The history, and requests of this process, of each.
    Here(
        KeptRun,
        #[expect(dead_code, reason = "given back when dropped, behind the run that it is of")] OwnRun<'a>,
    ),
    /// The registry, of the end.
    Registry(ClaimedRun),
}

/// Notes an execution as it is now.
pub(crate) type Note = Arc<dyn Fn(Execution) + Send + Sync>;

impl<'a> IdempotencyAuthority<'a> {
    /// Decides about the request of this execution.
    pub(crate) async fn decide(
        self,
        history: Option<&Arc<dyn History>>,
        first: &Execution,
    ) -> Result<RepeatDecision<'a>, Refusal> {
        match self {
            Self::Here(runs) => {
                let history = history.ok_or_else(no_history)?;
                // Taken before it is looked up: of two at once, one runs.
                let own = runs.take(first)?;
                let found = history.get(&first.caller, &first.id).await;
                match found.map_err(|error| refused(error, &first.id))? {
                    // On the disk before it begins: the next process must know that it may have run.
                    None => {
                        let kept = KeptRun::of(history, first).await?;
                        Ok(RepeatDecision::Own(RunObserver::Here(kept, own)))
                    }
                    Some(execution) => known(execution, first),
                }
            }
            Self::Cluster(claims) => match claims.claim(first).await {
                Ok(ClaimOutcome::Run(claimed)) => {
                    // The registry sets the caller, and withholds what it must.
                    let own = Execution {
                        id: claimed.id,
                        request: claimed.request,
                        created: claimed.created,
                        ..first.clone()
                    };
                    Ok(RepeatDecision::Own(RunObserver::Registry(ClaimedRun::of(claims, own))))
                }
                Ok(ClaimOutcome::Known(execution)) => known(*execution, first),
                Err(ClaimError::NoHistory) => Err(nobody_knows()),
                Err(ClaimError::Busy) => {
                    let text = "Too many runs with this header are claimed at this moment; nothing was run; try again.";
                    Err(Refusal::new(RefusalKind::Throttled, IDEMPOTENCY_KEY, text))
                }
                Err(ClaimError::Away) => {
                    let text = "The registry, which knows what ran under this key, does not answer this gateway at this moment; \
                                nothing was run; try again in a few seconds.";
                    Err(Refusal::new(RefusalKind::Unavailable, IDEMPOTENCY_KEY, text))
                }
            },
            Self::Nobody => Err(nobody_knows()),
        }
    }
}

fn known<'a>(execution: Execution, first: &Execution) -> Result<RepeatDecision<'a>, Refusal> {
    if execution.is_other_request(first.fingerprint.as_deref()) {
        return Err(other_request());
    }
    let why_not = match execution.status {
        Status::Success => return Ok(RepeatDecision::Done(Box::new(execution))),
        Status::Pending | Status::Running => return Err(in_progress()),
        Status::Timeout => RepeatRefusal::TimedOut,
        Status::Error if execution.is_lost() => RepeatRefusal::Lost,
        Status::Error => RepeatRefusal::Failed,
    };
    let why = execution.error.as_deref().unwrap_or("no cause is recorded");
    let id = execution.id;
    let text = match why_not {
        RepeatRefusal::TimedOut => "This run has reached its time limit; it is not run again.".to_owned(),
        _ => format!(
            "This run has failed: {why}; it is not run again. GET /api/skills/executions/{id} has its record; send another \
             {IDEMPOTENCY_KEY} to run it anew."
        ),
    };
    Err(Refusal::new(RefusalKind::Repeated(why_not), IDEMPOTENCY_KEY, text))
}

fn in_progress() -> Refusal {
    let text = "This run is in progress; ask for its result when it has ended.";
    Refusal::new(RefusalKind::Repeated(RepeatRefusal::InProgress), IDEMPOTENCY_KEY, text)
}

fn other_request() -> Refusal {
    let text = format!(
        "This key was sent before with another skill, tool or input; nothing was run. Send each request with an {IDEMPOTENCY_KEY} of its own."
    );
    Refusal::new(
        RefusalKind::Repeated(RepeatRefusal::OtherRequest),
        IDEMPOTENCY_KEY,
        text,
    )
}

/// The idempotency key of a request, if it has one.
pub(crate) fn idempotency_key(headers: &http::HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_MAX);
    let text = format!("must be a string of 1 to {KEY_MAX} characters");
    key.map(Some).ok_or_else(|| Refusal::invalid(IDEMPOTENCY_KEY, text))
}

/// Why there is no history.
pub(super) fn no_history() -> Refusal {
    let text = "No history of executions is kept here (--history-days 0).";
    Refusal::new(RefusalKind::NotFound, "executions", text)
}

fn nobody_knows() -> Refusal {
    let text = "without a history of executions it is unknown whether this ran at another replica; set registry.history.enabled in the chart, or omit this header";
    Refusal::invalid(IDEMPOTENCY_KEY, text)
}

impl RunObserver<'_> {
    /// The execution that was claimed; `None`: it is as it was asked for.
    pub(crate) fn first(&self) -> Option<Execution> {
        match self {
            Self::Registry(run) => Some(run.lock().now.clone()),
            Self::History(_) | Self::Here(..) => None,
        }
    }

    pub(crate) fn note(&self) -> Note {
        match self {
            Self::History(history) => {
                let history = history.clone();
                Arc::new(move |execution| {
                    if let Some(history) = &history {
                        history.note(execution);
                    }
                })
            }
            Self::Here(kept, _) => {
                let (history, is_begun) = (Arc::clone(&kept.history), Arc::clone(&kept.is_begun));
                Arc::new(move |execution| {
                    is_begun.store(true, Ordering::Release);
                    history.note(execution);
                })
            }
            Self::Registry(run) => {
                let state = Arc::clone(&run.state);
                Arc::new(move |execution| {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.is_begun = true;
                    state.now = execution;
                })
            }
        }
    }

    /// Waits until a repeat finds how this ended.
    pub(crate) async fn settle(&self) {
        if let Self::Registry(run) = self {
            let last = run.lock().last();
            run.claims.settle(last).await;
            run.lock().is_settled = true;
        }
    }
}

/// A run that the disk of this process has as pending. If it does not begin, that is withdrawn, also when the client leaves.
pub(crate) struct KeptRun {
    history: Arc<dyn History>,
    first: Execution,
    /// A step was reported, so that a program may have run.
    is_begun: Arc<AtomicBool>,
}

impl KeptRun {
    /// Error: it is not on the disk.
    async fn of(history: &Arc<dyn History>, first: &Execution) -> Result<Self, Refusal> {
        let kept = Self {
            history: Arc::clone(history),
            first: first.clone(),
            is_begun: Arc::default(),
        };
        if history.keep(first.clone()).await {
            return Ok(kept);
        }
        let text = "The record of this run could not be written to disk. Without it a repeat would run again, so nothing was run. Check \
                    the volume that keeps the history of executions, and try again.";
        Err(Refusal::new(RefusalKind::Unavailable, IDEMPOTENCY_KEY, text))
    }
}

impl Drop for KeptRun {
    fn drop(&mut self) {
        if !self.is_begun.load(Ordering::Acquire) {
            self.history.withdraw(self.first.clone());
        }
    }
}

/// A run that this gateway has claimed. The registry lists it as pending, and gets its end however that comes: also when the
/// client leaves.
pub(crate) struct ClaimedRun {
    claims: Arc<dyn Claims>,
    state: Arc<Mutex<RepeatState>>,
    _held: Box<dyn Any + Send + Sync>,
}

struct RepeatState {
    now: Execution,
    /// A step was reported, so that a program may have run.
    is_begun: bool,
    is_settled: bool,
}

impl RepeatState {
    /// The last report.
    fn last(&self) -> Execution {
        let now = self.now.clone();
        match (self.is_begun, now.status.has_ended()) {
            (true, true) => now,
            (true, false) => now.lost(),
            (false, _) => Execution { withdrawn: true, ..now },
        }
    }
}

impl ClaimedRun {
    fn of(claims: &Arc<dyn Claims>, execution: Execution) -> Self {
        Self {
            _held: claims.hold(&execution),
            claims: Arc::clone(claims),
            state: Arc::new(Mutex::new(RepeatState {
                now: execution,
                is_begun: false,
                is_settled: false,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RepeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClaimedRun {
    fn drop(&mut self) {
        let state = self.lock();
        if !state.is_settled {
            self.claims.report(state.last());
        }
    }
}
