//! The task that keeps the Lease of a runtime, serves while it is held, and gives it to the replica that should have it.

mod clock_step;
mod handover;
pub(super) mod ownership_term;
pub(super) mod recovery;
pub(super) mod serving_state;
mod term_services;
mod waiter_grace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use knack_vocabulary::LEASE_RUNTIME_PREFIX;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::clock_step::ClockReading;
use self::handover::{HandoverDecision, OwnerState, decide};
use self::ownership_term::Term;
use self::recovery::recover;
use self::serving_state::ServingState;
use self::term_services::TermServices;
use super::records::job_record::PendingWrites;
use super::resolved_runtime::ResolvedRuntime;
use super::settings::{JobClients, JobSettings};
use crate::lease::{LeaseHolder, LeaseSettings, Peers, ReadRequest, Spread, replica_of};

/// How often an owner checks whether another replica should have its runtime.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause while its process ends: a caller that waits for the end waits for this.
const CHECK_INTERVAL_LEAVING: Duration = Duration::from_millis(100);
/// Between two runtimes that a replica gives away, unless it ends: their new owners fill their pools meanwhile.
const MOVE_PAUSE: Duration = Duration::from_secs(1);

/// The input of the task.
pub(super) struct Ownership {
    pub(super) read_request: ReadRequest,
    pub(super) clients: JobClients,
    pub(super) resolved: Arc<ArcSwap<ResolvedRuntime>>,
    pub(super) settings: JobSettings,
    pub(super) state: watch::Sender<ServingState>,
    pub(super) shutdown: CancellationToken,
    /// The time since the Unix epoch, as ids have it.
    pub(super) wall_clock: fn() -> Duration,
    /// The runtime is deleted.
    pub(super) retired: Arc<AtomicBool>,
}

/// How a term ended.
enum TermEnd {
    /// This process does not hold the Lease any more, or takes the runtime over anew with it, or the process ends.
    Lost,
    /// The Lease must be released: at a replica that ends, or one at a time where another replica should have it.
    GivenUp(Option<OwnedMutexGuard<()>>),
}

impl Ownership {
    /// Competes for the Lease and serves while it is held, until the shutdown.
    pub(super) async fn keep(self) {
        let resolved = self.resolved.load_full();
        let (wanted, is_wanted) = watch::channel(true);
        let lease = LeaseSettings {
            address: Some(self.settings.address.clone()),
            // It is deleted with its runtime.
            owner: Some(super::pods::spec::owner(&resolved)),
            duration: self.settings.lease_duration,
            // With the Lease of 15 s, a runtime that does nothing costs one write in 5 s, and each standby one read in
            // 7.5 s.
            interval: self.settings.lease_duration / 3,
            standby: self.settings.lease_duration / 2,
            read_request: self.read_request.clone(),
            spread: Some(Spread {
                replica: replica_of(&self.settings.replica).to_owned(),
                lease: resolved.reference(),
                peers: self.settings.peers.clone(),
            }),
            wanted: Some(is_wanted),
            ..LeaseSettings::new(
                &resolved.namespace,
                format!("{LEASE_RUNTIME_PREFIX}{}", resolved.name),
                &self.settings.replica,
            )
        };
        let release = CancellationToken::new();
        let (renewing, mut holder) = self.clients.leases.keep(lease, release.clone());
        let mut given_at = None;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                () = self.wait_for_lease(&mut holder) => {}
            }
            let ended = Box::pin(self.serve(holder.clone(), given_at)).await;
            if self.shutdown.is_cancelled() {
                break;
            }
            if let TermEnd::GivenUp(permit) = ended {
                given_at = Some(Instant::now());
                self.state.send_replace(ServingState::Standby { owner: None });
                wanted.send_replace(false);
                LeaseHolder::lost(holder.clone()).await;
                wanted.send_replace(true);
                tokio::spawn(async move {
                    tokio::time::sleep(MOVE_PAUSE).await;
                    drop(permit);
                });
            }
        }
        self.state.send_replace(ServingState::Standby { owner: None });
        release.cancel();
        // It only fails if it panicked; the Lease then runs out by itself.
        let _ = renewing.await;
    }

    /// Waits until this process holds the Lease and reports its holder meanwhile.
    async fn wait_for_lease(&self, holder: &mut watch::Receiver<LeaseHolder>) {
        loop {
            let now = holder.borrow_and_update().clone();
            if now.is_mine(tokio::time::Instant::now()) {
                return;
            }
            if now.holder.is_some() {
                self.state.send_replace(ServingState::Standby { owner: now.address });
            } else if matches!(*self.state.borrow(), ServingState::Standby { .. }) {
                self.state.send_replace(ServingState::Standby { owner: None });
            }
            if holder.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// One term: recovers, serves, and lets go when the Lease is lost or the process ends.
    async fn serve(&self, holder: watch::Receiver<LeaseHolder>, given_at: Option<Instant>) -> TermEnd {
        self.state.send_replace(ServingState::TakingOver);
        let term_ended = CancellationToken::new();
        let _ended = term_ended.clone().drop_guard();
        let resolved = self.resolved.load_full();
        let unwritten = PendingWrites::default();
        // Before the recovery, which refuses by the clock.
        let clock = ClockReading::take(self.wall_clock);
        let begin = async {
            let services = TermServices::start(&self.clients, &resolved, &self.settings, unwritten.clone()).await?;
            recover(&services, &resolved, &self.settings, &term_ended).await;
            Some(Term::begin(
                services,
                Arc::clone(&self.resolved),
                &self.settings,
                holder.clone(),
                term_ended.clone(),
            ))
        };
        let term = tokio::select! {
            term = begin => {
                let Some(term) = term else {
                    tracing::warn!(
                        runtime = %resolved.reference(),
                        "the pods of the runtime cannot be listed; giving it up, and its next owner, which may be this replica, lists them anew"
                    );
                    return TermEnd::GivenUp(None);
                };
                term
            }
            () = LeaseHolder::lost(holder.clone()) => {
                tracing::warn!(
                    runtime = %resolved.reference(),
                    "this replica lost the Lease of the runtime while taking it over"
                );
                return TermEnd::Lost;
            }
            () = self.shutdown.cancelled() => {
                break_off(&unwritten, &term_ended).await;
                return TermEnd::Lost;
            }
            () = self.leaving() => {
                break_off(&unwritten, &term_ended).await;
                return TermEnd::GivenUp(None);
            }
        };
        tracing::info!(runtime = %resolved.reference(), "this replica owns the runtime");
        self.state.send_replace(ServingState::Serving(Arc::clone(&term)));
        // An edit that came during the takeover.
        term.renew();
        tokio::select! {
            () = LeaseHolder::lost(holder) => {
                tracing::warn!(runtime = %resolved.reference(), "this replica lost the Lease of the runtime");
                self.abandon(&term, &term_ended);
                TermEnd::Lost
            }
            step = clock.stepped() => {
                tracing::warn!(
                    runtime = %resolved.reference(), seconds = step.as_secs(),
                    "the clock of this node was stepped; taking the runtime over anew, by the clock as it is now"
                );
                self.abandon(&term, &term_ended);
                TermEnd::Lost
            }
            permit = self.time_to_give_up(&term, given_at) => {
                tracing::info!(runtime = %resolved.reference(), "handing the runtime over to another replica");
                self.let_go(&term, &unwritten, &term_ended).await;
                TermEnd::GivenUp(permit)
            }
            () = self.shutdown.cancelled() => {
                self.let_go(&term, &unwritten, &term_ended).await;
                if self.retired.load(Ordering::Relaxed) {
                    term.end_pods().await;
                }
                TermEnd::Lost
            }
        }
    }

    /// Accepts no new runs, and leaves pods, runs and what is to be written of them to the next owner.
    fn abandon(&self, term: &Term, term_ended: &CancellationToken) {
        self.state.send_replace(ServingState::Standby { owner: None });
        term_ended.cancel();
        term.pool.abandon();
    }

    /// Accepts no new runs, deletes idle pods, writes what there is to say of runs that have ended, and leaves running executions to
    /// the next owner.
    async fn let_go(&self, term: &Term, unwritten: &PendingWrites, term_ended: &CancellationToken) {
        self.state.send_replace(ServingState::Standby { owner: None });
        term_ended.cancel();
        tokio::join!(term.pool.close(), unwritten.written());
    }

    /// Returns when this replica ends.
    async fn leaving(&self) {
        let mut peers = self.settings.peers.clone();
        if peers.wait_for(Peers::is_leaving).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the runtime is to be given away; with the right to be the only one that is, unless the process ends.
    async fn time_to_give_up(&self, term: &Term, given_at: Option<Instant>) -> Option<OwnedMutexGuard<()>> {
        let (me, lease) = (replica_of(&self.settings.replica), self.resolved.load().reference());
        let mut peers = self.settings.peers.clone();
        let begun = Instant::now();
        let (mut requested, mut busy_at) = (term.requested(), begun);
        loop {
            let interval = if peers.borrow_and_update().is_leaving() {
                CHECK_INTERVAL_LEAVING
            } else {
                CHECK_INTERVAL
            };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                Ok(()) = peers.changed() => {}
            }
            let (now, in_flight, counts) = (Instant::now(), term.in_flight(), term.counts());
            if in_flight > 0 || term.requested() != requested {
                (requested, busy_at) = (term.requested(), now);
            }
            let state = OwnerState {
                now,
                in_flight,
                pool_stands: counts.ready >= counts.desired,
                busy_at,
                begun,
                given_at,
            };
            let decision = decide(&peers.borrow(), me, &lease, &state);
            match decision {
                HandoverDecision::Keep => {}
                HandoverDecision::Leave => return None,
                HandoverDecision::Move => {
                    if let Ok(permit) = Arc::clone(&self.settings.moves).try_lock_owned() {
                        return Some(permit);
                    }
                }
            }
        }
    }
}

/// The end of a takeover that is not over yet: runs that it has found ended are recorded.
async fn break_off(unwritten: &PendingWrites, term_ended: &CancellationToken) {
    term_ended.cancel();
    unwritten.written().await;
}

#[cfg(test)]
#[path = "ownership_tests.rs"]
mod tests;
